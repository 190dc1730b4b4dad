"""An index as it was when it was opened: its segments, and the tables in them by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import xxhash
from pyarrow import ArrowException

from deepjoin.build.reader import read_again
from deepjoin.embed.devices import device_named
from deepjoin.errors import DeepJoinError, IndexUnusable, StoreUnreachable, unknown_name
from deepjoin.model import Column
from deepjoin.search.searchers import Searchers
from deepjoin.settings import Vectors
from deepjoin.store.catalog import TableEntry
from deepjoin.store.manifest import (
    MANIFEST,
    SEGMENTS,
    Described,
    Manifest,
    SegmentRecord,
    damaged,
    read_manifest,
)
from deepjoin.store.numbering import Numbering
from deepjoin.store.origin import TableOrigin, name_of, root_of
from deepjoin.store.report import BuildReport, lake_report
from deepjoin.store.segment import Segment

if TYPE_CHECKING:
    from deepjoin.engines.postgres.postgres import PostgresServers

#: How often opening is tried while other processes commit.
_ATTEMPTS = 50


class LakeView:
    """Opening maps files and reads few; what is open stays as it is until `reopen`.

    ``url`` is where the index is if that is in a bucket; ``path`` is its copy on this machine.
    ``device`` is where column vectors are searched, and made by encoders that run on torch;
    with ``vector_store``, the addresses of PostgreSQL servers, they are searched there.
    """

    def __init__(
        self,
        path: str | Path,
        url: str = "",
        device: str | None = None,
        vector_store: str | Sequence[str] | None = None,
    ) -> None:
        self.path = Path(path)
        self.url = url
        self.device = device
        if device is not None:
            if vector_store:
                raise DeepJoinError(
                    f"Device {device} came with a vector store; column vectors are searched on "
                    "one or in the other. Leave out --device or --vector-store."
                )
            device_named(device)
        self.store = self._opened_store(vector_store)
        #: Why the vector store could not be asked when the lake was opened; "" if it was.
        self.store_problem = ""
        self._read = b""
        self.segments: Sequence[Segment] = ()
        self._map()

    def _opened_store(self, urls: str | Sequence[str] | None) -> PostgresServers | None:
        if not urls:
            return None
        from deepjoin.engines.postgres.postgres import PostgresServers

        return PostgresServers(urls, self.location)

    def reopen(self) -> bool:
        """Move to the lake as it is now; until then an open lake answers as it did when opened.

        Returns whether there was anything newer.
        """
        if self.url:
            from deepjoin.store.remote import pull

            self.path = pull(self.url).folder
        return self._map()

    def renewed(self) -> Self:
        """Open the lake as it is now beside this one, which stays as it is.

        What both have in common is shared; where there is nothing newer, it is this one.
        """
        other = copy(self)
        return other if other.reopen() else self

    @property
    def generation(self) -> str:
        """Tells one state of the index from all others."""
        return xxhash.xxh3_64_hexdigest(self._read)

    @contextmanager
    def telling_damage(self) -> Iterator[None]:
        """Look for damage in the files when something fails that cannot fail in a sound index."""
        try:
            yield
        except DeepJoinError:
            raise
        except Exception as error:
            if isinstance(error, FileNotFoundError) and self._manifest_bytes() != self._read:
                raise IndexUnusable(
                    f"{self.location} has changed since it was opened, and what this needs is "
                    "gone; open it again, or call reopen()."
                ) from None
            from deepjoin.checking.check import file_problems

            problems = file_problems(self.path)
            if problems:
                raise IndexUnusable(problems[0]) from None
            raise

    @property
    def location(self) -> str | Path:
        """Where the index is: the URL in a bucket, or the folder."""
        return self.url or self.path

    def _map(self) -> bool:
        """Map the files of the index as it is now, unless that is done."""
        for attempt in range(_ATTEMPTS):
            before = self._manifest_bytes()
            if before and before == self._read:
                return False
            try:
                self._open(read_manifest(self.path))
                self._read = before
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
                if attempt + 1 < _ATTEMPTS and self._manifest_bytes() != before:
                    continue
                if isinstance(error, IndexUnusable):
                    raise
                raise damaged(self.path, f"a file is not what was written ({error})") from None
        raise AssertionError("the last attempt returns or raises")

    def _open(self, manifest: Manifest) -> None:
        segments = opened(self.path / SEGMENTS, manifest.segments, self.segments)
        self._check_store(segments)
        #: What was indexed, what was left out, and why.
        self.report: BuildReport = lake_report(segments)
        self.segments = segments
        #: All columns under one number each, for what goes through the whole lake.
        self.numbering = Numbering(segments)
        #: Searchers by what they were made for.
        self._searchers = Searchers()
        self.settings = manifest.settings
        self._manifest = manifest

    def _check_store(self, segments: Sequence[Segment]) -> None:
        """Refuse a store without these segments; one that is down keeps no lake from opening.

        Methods that need it say so then. A lake that is open stays with the state it has.
        """
        if self.store is None:
            return
        try:
            self.store.check(segments)
        except StoreUnreachable as error:
            if self._read:
                raise
            self.store_problem = str(error)

    @property
    def sources(self) -> Sequence[Described]:
        """Where the tables came from, without secrets."""
        return self._manifest.sources

    @property
    def root(self) -> Path | None:
        """The folder of the tables the index was made of, if they are in one."""
        return root_of(self.sources[0], self.path)

    @property
    def records(self) -> Sequence[SegmentRecord]:
        """The segments as the manifest has them."""
        return self._manifest.segments

    @property
    def excluded(self) -> Sequence[str]:
        """The tables that were taken out, and do not come back by themselves."""
        return self._manifest.excluded

    @property
    def vectors(self) -> Vectors:
        """What is encoded beside the values."""
        return self._manifest.vectors

    @property
    def reads(self) -> int:
        """The version of what is stored for a table."""
        return self._manifest.reads

    def _manifest_bytes(self) -> bytes:
        try:
            return (self.path / MANIFEST).read_bytes()
        except OSError:
            return b""

    def column(self, table: str, column: str) -> Column:
        """Fetch a column of the lake, to search with it."""
        segment, table_number = self.place(table)
        catalog, values = segment.catalog, segment.values
        number = catalog.find_column(table, column)
        if self.settings.hash_only:
            return self._column_again(segment, table_number, number)
        start, stop = values.cells_of(number)
        order = np.argsort(values.cell_rows[start:stop], kind="stable") + start
        spelled = [
            values.spelling(values.values[int(value)], spelling)
            for value, spelling in zip(
                values.cell_values[order].tolist(),
                values.cell_spellings[order].tolist(),
                strict=True,
            )
        ]
        counts = values.cell_counts[order].tolist()
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
        cells = read_again(origin.table(), origin.key(name, column_id), self.settings.max_cell)
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


def opened(
    folder: Path, records: Iterable[SegmentRecord], before: Iterable[Segment]
) -> list[Segment]:
    """Open segments as the manifest has them; those that are open already stay so."""
    there = {segment.folder: segment for segment in before}
    segments = []
    for record in records:
        segment = there.get(folder / record.name)
        if segment is None:
            segments.append(Segment(folder / record.name, record.removed))
        else:
            segments.append(segment.without(record.removed))
    return segments
