"""An index as it was when it was opened: its segments, and the tables in them by name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from pathlib import Path
from threading import Thread
from typing import Any, Self

import numpy as np
import pyarrow.compute as pc
import xxhash
from pyarrow import ArrowException

from deepjoin.checksums import NAME, DamagedFile
from deepjoin.errors import DeepJoinError, IndexUnusable, UnknownName, resource_limit, unknown_name
from deepjoin.model import Column
from deepjoin.settings import Vectors
from deepjoin.store.catalog import TableEntry
from deepjoin.store.feedback import Feedback
from deepjoin.store.manifest import (
    SEGMENTS,
    Described,
    Manifest,
    SegmentRecord,
    damaged,
    manifest_bytes,
    read_manifest,
)
from deepjoin.store.origin import TableOrigin, name_of, root_of
from deepjoin.store.report import BuildReport, lake_report
from deepjoin.store.segment import Numbering, Segment
from deepjoin.store.storage import file_problems

#: How often to try opening an index while other processes commit.
_ATTEMPTS = 50
#: A process with this many searches is likely to make more.
_SETTLED_AFTER = 16
#: The share of the memory up to which an index is read whole to verify it.
_MEMORY_SHARE = 4
#: Tables named for an ending that several have.
_CANDIDATES = 12


class OpenIndex:
    """An index as it was when opened, until `reopen`; opening maps files and reads few.

    ``url`` is where the index is if that is in a bucket; ``path`` is its copy on this machine.
    """

    def __init__(self, path: str | Path, url: str = "") -> None:
        self.path = Path(path)
        self.url = url
        #: The manifest of the state that is open, byte for byte; empty while none is.
        self._opened_manifest = b""
        self.segments: Sequence[Segment] = ()
        self._searches = 0
        #: What people said of joins; always the newest, whatever state is open.
        self.feedback = Feedback(self.path, url)
        self._map()

    def reopen(self) -> bool:
        """Move to the index as it is now; return whether it has changed."""
        if self.url:
            from deepjoin.store.remote import pull

            self.path = pull(self.url).folder
        return self._map()

    def renewed(self) -> Self:
        """Return the index as it is now, sharing what has not changed; itself if nothing has."""
        other = copy(self)
        return other if other.reopen() else self

    @property
    def generation(self) -> str:
        """Identifies this state of the index among all others."""
        return xxhash.xxh3_64_hexdigest(self._opened_manifest)

    @contextmanager
    def reporting_damage(self) -> Iterator[None]:
        """Report damaged files as the cause when something fails that cannot in a sound index."""
        try:
            yield
        except DamagedFile as error:
            raise self._damaged(error) from None
        except DeepJoinError:
            raise
        except Exception as error:
            has_changed = manifest_bytes(self.path) != self._opened_manifest
            if isinstance(error, FileNotFoundError) and has_changed:
                raise IndexUnusable(
                    f"{self.location} has changed since it was opened, and what this needs is "
                    "gone; open it again, or call reopen()."
                ) from None
            problems = file_problems(self.path)
            if problems:
                raise IndexUnusable(problems[0]) from None
            raise

    def _damaged(self, error: DamagedFile) -> IndexUnusable:
        """Say what to do about a damaged file; of an index in a bucket, the copy is damaged."""
        if not self.url:
            return error
        return IndexUnusable(
            f"The copy of {self.url} on this machine is damaged: {error.what}. Remove {self.path}; "
            "the next command downloads it again."
        )

    def count_search(self) -> None:
        """Count a search; after some, verify the rest of the index in the background.

        From then on searches read it as fast as an index without checksums.
        """
        self._searches += 1
        if self._searches == _SETTLED_AFTER and 0 < self._bytes() <= _share_of_memory():
            Thread(target=_settle, args=(self.segments,), daemon=True).start()

    def _bytes(self) -> int:
        """Size of the segments with checksums."""
        return sum(record.bytes for record in self.records if NAME in record.files)

    @property
    def location(self) -> str | Path:
        """Where the index is: the URL in a bucket, or the folder."""
        return self.url or self.path

    def _map(self) -> bool:
        """Map the files of the index as it is now, unless that is done."""
        for attempt in range(_ATTEMPTS):
            before = manifest_bytes(self.path)
            if before and before == self._opened_manifest:
                return False
            try:
                self._open(read_manifest(self.path))
                self._opened_manifest = before
                return True
            except (
                OSError,
                ValueError,
                TypeError,
                LookupError,
                ArrowException,
                IndexUnusable,
            ) as error:
                # A commit between reading the manifest and mapping a segment may remove it.
                if attempt + 1 < _ATTEMPTS and manifest_bytes(self.path) != before:
                    continue
                if isinstance(error, DamagedFile):
                    raise self._damaged(error) from None
                if isinstance(error, DeepJoinError):
                    raise
                if limit := resource_limit(error):
                    raise limit from None
                raise damaged(self.path, f"a file is not what was written ({error})") from None
        raise AssertionError("the last attempt returns or raises")

    def _open(self, manifest: Manifest) -> None:
        """Make the segments of a manifest the open state."""
        segments = opened(self.path / SEGMENTS, manifest.segments, self.segments)
        #: What was indexed, what was left out, and why.
        self.report: BuildReport = lake_report(segments)
        # Only now: a report that fails must leave the index as it was open.
        self.segments = segments
        self._searches = 0
        #: All columns under one number each, for what goes through the whole lake.
        self.numbering = Numbering(segments)
        self.settings = manifest.settings
        self.manifest = manifest

    @property
    def sources(self) -> Sequence[Described]:
        """Where the tables came from, without secrets."""
        return self.manifest.sources

    @property
    def root(self) -> Path | None:
        """The folder of the tables the index was made of, if they are in one."""
        return root_of(self.sources[0], self.path)

    @property
    def records(self) -> Sequence[SegmentRecord]:
        """The segments as the manifest has them."""
        return self.manifest.segments

    @property
    def excluded(self) -> Sequence[str]:
        """The tables that `remove` has excluded; a refresh does not read them again."""
        return self.manifest.excluded

    @property
    def vectors(self) -> Vectors:
        """What is encoded beside the values."""
        return self.manifest.vectors

    @property
    def reads(self) -> int:
        """The version of what is stored for a table."""
        return self.manifest.reads

    def info(self) -> dict[str, Any]:
        """Describe the index: its size, its settings, what was left out and why."""
        report, manifest = self.report, self.manifest
        return {
            "index": str(self.location),
            "format": manifest.format,
            "version": manifest.version,
            "tables": report.tables,
            "columns": report.columns,
            "values": report.values,
            "rows": report.rows,
            "cells": report.cells,
            "bytes": sum(record.bytes for record in manifest.segments),
            "vectors": vars(manifest.vectors),
            "settings": {n: v for n, v in vars(self.settings).items() if n != "salt"},
            "sources": list(manifest.sources),
            "segments": len(manifest.segments),
            "excluded": list(manifest.excluded),
            "left_out": dict(report.left_out.most_common()),
            "skipped": [vars(one) for one in report.skipped],
            "notes": [{"table": table, "note": note} for table, note in report.notes],
        }

    def column(self, table: str, column: str) -> Column:
        """Fetch a column of the lake, to search with it."""
        segment, table_number = self.place(table)
        catalog, values = segment.catalog, segment.values
        number = catalog.find_column(table, column)
        if self.settings.hash_only:
            return self._column_again(segment, table_number, number)
        entries = values.entries(number)
        counts = values.cell_counts[entries].tolist()
        spelled = values.cells(entries)
        cells = [cell for cell, count in zip(spelled, counts, strict=True) for _ in range(count)]
        entry = catalog.table(table_number)
        words = (catalog.column_names[number], table, entry.title, entry.context)
        return Column(cells, *words, catalog.column_ids[number])

    def column_size(self, table: str, column: str) -> int:
        """Count the distinct values of a column of the lake, without reading them."""
        segment, _ = self.place(table)
        start, stop = segment.values.cells_of(segment.catalog.find_column(table, column))
        return stop - start

    def _column_again(self, segment: Segment, table: int, number: int) -> Column:
        """Read a column from its table, since a lake of hashes holds no cells."""
        catalog, origin = segment.catalog, TableOrigin(self, segment, table)
        entry, name = catalog.table(table), catalog.column_names[number]
        column_id = catalog.column_ids[number]
        cells = origin.cells(origin.key(name, column_id))
        return Column(cells, name, entry.name, entry.title, entry.context, column_id)

    def table(self, name: str) -> TableEntry:
        """Return what is known of a table: its columns, types, what was left out, first rows."""
        segment, number = self.place(name)
        return segment.catalog.table(number)

    def indexed_columns(self, table: str) -> list[str]:
        """Return the names of a table's columns that can be searched with."""
        segment, number = self.place(table)
        names = segment.catalog.column_names
        return [names[column] for column in segment.catalog.columns_of(number)]

    @property
    def tables(self) -> Sequence[str]:
        """The names of all tables."""
        first = self.segments[0]
        if len(self.segments) == 1 and not first.removed:
            return first.catalog.table_names
        every = ((one.catalog.table_names, one.live_tables) for one in self.segments)
        return sorted(names[number] for names, live in every for number in live)

    def __contains__(self, table: str) -> bool:
        return self._find(table) is not None

    def _find(self, table: str) -> tuple[Segment, int] | None:
        for segment in self.segments:
            number = segment.find_table(table)
            if number is not None:
                return segment, number
        return None

    def place(self, table: str) -> tuple[Segment, int]:
        """Return the segment that holds a table, and its number there; no other has the name."""
        found = self._find(table)
        if found is None:
            raise unknown_name("table", table, str(self.path), self.tables)
        return found

    def find_name(self, table: str) -> str | None:
        """Return the name of a table that was typed whole, or as an ending that only it has.

        An ending is countries.csv of geo/countries.csv, orders of public.orders, or Sheet1 of
        book.xlsx#Sheet1. None if no table has it.
        """
        if not table or self._find(table) is not None:
            return table or None
        found: list[str] = []
        for segment in self.segments:
            names = segment.catalog.table_names
            arrow = names.arrow()
            marks = [np.asarray(pc.ends_with(arrow, mark + table)) for mark in "/.#"]
            places = np.flatnonzero(np.logical_or.reduce(marks)).tolist()
            found += [names[place] for place in places if place not in segment.removed]
        if len(found) < 2:
            return found[0] if found else None
        listed = ", ".join(sorted(found)[:_CANDIDATES])
        more = f" and {len(found) - _CANDIDATES:,} more" if len(found) > _CANDIDATES else ""
        raise UnknownName(
            f"Several tables of {self.path} end in '{table}': {listed}{more}. "
            "Type more of the name."
        )

    def full_name(self, table: str) -> str:
        """Return the name of a table as `find_name` does, or raise with the nearest name."""
        name = self.find_name(table)
        if name is None:
            raise unknown_name("table", table, str(self.path), self.tables)
        return name

    def source_of(self, table: str) -> Described:
        """Return the source a table came from, as the manifest describes it."""
        segment, number = self.place(table)
        row = int(segment.catalog.table_items[number])
        number = int(segment.ledger["source"][row].as_py())
        return self.sources[number]

    def origin(self, table: str) -> TableOrigin:
        """Return where a table came from, to open it again."""
        return TableOrigin(self, *self.place(table))

    def name_of(self, path: Path) -> str | None:
        """Return the name a file has as a table of this lake, or None if it is none."""
        names = (name_of(path, source, self.path) for source in self.sources)
        return next((name for name in names if name is not None), None)


def _settle(segments: Sequence[Segment]) -> None:
    """Verify segments; a damaged block is reported by the search that reads it."""
    for segment in segments:
        with suppress(DamagedFile):
            segment.settle(whole=True)


def _share_of_memory() -> int:
    if not hasattr(os, "sysconf"):  # Windows
        return 0
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _MEMORY_SHARE


def opened(
    folder: Path, records: Iterable[SegmentRecord], before: Iterable[Segment]
) -> list[Segment]:
    """Open segments as the manifest has them; those that are open already stay so."""
    there = {segment.folder: segment for segment in before}
    return [
        there[folder / record.name].without(record.removed)
        if folder / record.name in there
        else Segment(folder / record.name, record.removed)
        for record in records
    ]
