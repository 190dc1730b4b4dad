"""The lake: one index folder, searched and joined through one object."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deepjoin.catalog import TableEntry
from deepjoin.columns import Column
from deepjoin.errors import DeepJoinError, IndexUnusable, UnknownName, unknown_name
from deepjoin.lake.build import usual_means
from deepjoin.lake.manifest import (
    MANIFEST,
    SEGMENTS,
    Described,
    Manifest,
    damaged,
    read_manifest,
)
from deepjoin.lake.origin import TableOrigin, name_of, root_of
from deepjoin.lake.reader import read_again
from deepjoin.lake.report import BuildReport, lake_report
from deepjoin.search import method_named
from deepjoin.search.exact_equi import SHOWN, ExactEqui
from deepjoin.search.results import Hit, Results
from deepjoin.segment import Segment
from deepjoin.sources.frames import as_column
from deepjoin.values.private import key

if TYPE_CHECKING:
    from deepjoin.join import JoinPlan

JOINS = ("any", "equi")
#: How often opening is tried while other processes commit.
_ATTEMPTS = 50


class Lake:
    """An index of tables, open for searching; opening maps files and reads none.

    >>> lake = Lake("no such folder")
    Traceback (most recent call last):
    ...
    deepjoin.errors.IndexUnusable: no such folder is not a deepjoin index (no manifest.json). \
Make one with: deepjoin index SOURCE -o no such folder
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.reopen()

    def reopen(self) -> bool:
        """Move to the lake as it is now; until then an open lake answers as it did when opened.

        Returns whether there was anything newer.
        """
        for attempt in range(_ATTEMPTS):
            before = self._manifest_bytes()
            if before and before == getattr(self, "_read", None):
                return False
            try:
                self._open(read_manifest(self.path))
                self._read = before
                return True
            except (OSError, ValueError, TypeError, KeyError, IndexUnusable) as error:
                # A commit between reading the manifest and mapping a segment may remove it.
                if attempt + 1 < _ATTEMPTS and self._manifest_bytes() != before:
                    continue
                if isinstance(error, IndexUnusable):
                    raise
                raise damaged(self.path, f"a file is not what was written ({error})") from None
        raise AssertionError("the last attempt returns or raises")

    def _open(self, manifest: Manifest) -> None:
        folder = self.path / SEGMENTS
        segments = [Segment(folder / one.name, one.removed) for one in manifest.segments]
        self.segments: Sequence[Segment] = segments
        #: What was indexed, what was left out, and why.
        self.report: BuildReport = lake_report(segments)
        self.settings = manifest.settings
        self._manifest = manifest

    @property
    def sources(self) -> Sequence[Described]:
        """Where the tables came from, without secrets."""
        return self._manifest.sources

    @property
    def root(self) -> Path | None:
        """The folder of the tables the index was made of, if they are in one."""
        return root_of(self.sources[0], self.path)

    @property
    def excluded(self) -> Sequence[str]:
        """The tables that were taken out, and do not come back by themselves."""
        return self._manifest.excluded

    @property
    def reads(self) -> int:
        """The version of what is stored for a table."""
        return self._manifest.reads

    def _manifest_bytes(self) -> bytes:
        try:
            return (self.path / MANIFEST).read_bytes()
        except OSError:
            return b""

    def search(
        self,
        query: object,
        k: int | None = None,
        *,
        join: str = "any",
        method: str = "hybrid",
        min_joinability: float | None = None,
        group: str | None = None,
        exclude_table: str | None = None,
        matches: int | None = SHOWN,
    ) -> Results:
        """Find the columns of the lake that join with a column of yours.

        Parameters
        ----------
        query
            A pandas, polars or Arrow column, a list, or a `Column`; a `Column` of this lake
            (see `column`) leaves its own table out.
        k
            How many hits; 10, or all when ``min_joinability`` is given.
        join
            "equi" for equal values; "any" for every kind the index can prove.
        method
            A name from `deepjoin methods`.
        min_joinability
            Only hits that cover at least this share of the query's distinct values.
        group
            "tables": one hit a table, its other matching columns in ``hit.also``.
        exclude_table
            A table never to be among the hits.
        matches
            How many matched and unmatched cells to list per hit; None for all.
        """
        column = as_column(query)
        searcher = self._searcher(method, join)
        exclude = exclude_table if exclude_table is not None else column.table
        if k is None:
            k = 10 if min_joinability is None else None
        least = min_joinability or 0.0
        _check(k, least, group)
        if group is not None:
            return searcher.search_tables(column, k, exclude, least, matches)
        if k is None:
            return searcher.search_above(column, least, exclude_table=exclude, show=matches)
        return searcher.search(
            column, k, exclude_table=exclude, min_joinability=least, show=matches
        )

    def _searcher(self, method: str, join: str) -> ExactEqui:
        chosen = method_named(method)
        if join == "semantic":
            raise DeepJoinError(
                f"{self.path} has no cell vectors, which semantic joins need. Use --join equi."
            )
        if join not in JOINS:
            raise unknown_name("join kind", join, "deepjoin", JOINS)
        return chosen.searcher(self.segments, self.settings.profile, key(self.settings))

    def column(self, table: str, column: str) -> Column:
        """Fetch a column of the lake, to search with it."""
        segment, table_number = self._found(table)
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

    def _column_again(self, segment: Segment, table: int, number: int) -> Column:
        """Read a column from its table, since a lake of hashes holds no cells."""
        catalog, origin = segment.catalog, TableOrigin(self, segment, table)
        entry, name = catalog.table(table), catalog.column_names[number]
        column_id = catalog.column_ids[number]
        cells = read_again(origin.table(), origin.key(name, column_id), self.settings.max_cell)
        return Column(cells, name, entry.name, entry.title, entry.context, column_id)

    def table(self, name: str) -> TableEntry:
        """Return what is known of a table: its columns, types, what was left out, first rows."""
        segment, number = self._found(name)
        return segment.catalog.table(number)

    def indexed_columns(self, table: str) -> list[str]:
        """Return the names of a table's columns that can be searched with."""
        segment, number = self._found(table)
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

    def _found(self, table: str) -> tuple[Segment, int]:
        found = self._find(table)
        if found is None:
            raise unknown_name("table", table, str(self.path), self.tables)
        return found

    def origin(self, table: str) -> TableOrigin:
        """Return where a table came from, to open it again."""
        return TableOrigin(self, *self._found(table))

    def name_of(self, path: Path) -> str | None:
        """Return the name a file has as a table of this lake, or None if it is none."""
        names = (name_of(path, source, self.path) for source in self.sources)
        return next((name for name in names if name is not None), None)

    def plan_join(
        self,
        left: object,
        on: str,
        hit: Hit | tuple[str, str],
        *,
        how: str = "left",
        many: str = "expand",
    ) -> JoinPlan:
        """Prepare the join of a table of yours with a hit: its facts, SQL, preview and outputs.

        ``left`` is a data frame, an Arrow table or the path of a file; ``hit`` a hit of a
        search, or (table, column) of the lake.
        """
        from deepjoin.join import plan_join
        from deepjoin.lake.sides import check_key, left_side, right_side

        table, column = (hit.table, hit.column) if isinstance(hit, Hit) else hit
        known = {one.name for one in self.table(table).columns}
        mine = left_side(left, on)
        origin = self.origin(table)
        if isinstance(hit, Hit):
            column = origin.key(column, hit.column_id)
        try:
            right = right_side(origin, column)
            check_key(right)
        except UnknownName as error:
            hint = " It has changed since it was indexed: run deepjoin index again."
            raise UnknownName(f"{error}{hint if column in known else ''}") from None
        plan = plan_join(mine, right, how=how, many=many, profile=self.settings.profile)
        if origin.has_changed:
            changed = f"{table} has changed since it was indexed: run deepjoin index again."
            plan.warnings = (*plan.warnings, changed)
        return plan

    def join(
        self,
        left: object,
        on: str,
        hit: Hit | tuple[str, str],
        *,
        how: str = "left",
        many: str = "expand",
    ) -> Any:
        """Join a table of yours with a hit; a data frame comes back as the same kind of frame.

        Everything else comes back as an Arrow table. See `plan_join` for the facts, the SQL
        and results too large for memory.
        """
        from deepjoin.lake.sides import frame_like, warn

        with self.plan_join(left, on, hit, how=how, many=many) as plan:
            warn(plan.warnings)
            return frame_like(left, plan.to_arrow())

    def add(self, source: object, *, threads: int | None = None) -> list[str]:
        """Index more tables into this lake and move to it; returns their names.

        ``source`` is anything `deepjoin.index` takes. Tables that came from the same files,
        or frames of the same names, are replaced.
        """
        from deepjoin.lake.updating import add_tables

        names = add_tables(self.path, source, usual_means(threads))
        self.reopen()
        return names

    def remove(self, *tables: str) -> list[str]:
        """Take tables out by name or pattern, and move to the lake without them.

        Their files stay as they are, and a refresh does not bring them back; `add` does.
        """
        from deepjoin.lake.updating import remove_tables

        names = remove_tables(self.path, tables, usual_means())
        self.reopen()
        return names

    def compact(self, *, threads: int | None = None) -> bool:
        """Merge all segments into one; False if they were one already."""
        from deepjoin.lake.updating import compact

        merged = compact(self.path, usual_means(threads))
        self.reopen()
        return merged

    def info(self) -> dict[str, Any]:
        """Describe the index: its size, its settings, what was left out and why."""
        report = self.report
        size = sum(record.bytes for record in self._manifest.segments)
        return {
            "index": str(self.path),
            "format": self._manifest.format,
            "version": self._manifest.version,
            "tables": report.tables,
            "columns": report.columns,
            "values": report.values,
            "rows": report.rows,
            "cells": report.cells,
            "bytes": size,
            "settings": {n: v for n, v in vars(self.settings).items() if n != "salt"},
            "sources": list(self._manifest.sources),
            "segments": len(self.segments),
            "excluded": list(self._manifest.excluded),
            "left_out": dict(report.left_out.most_common()),
            "skipped": [vars(one) for one in report.skipped],
            "notes": [{"table": table, "note": note} for table, note in report.notes],
        }

    def __repr__(self) -> str:
        return f"Lake('{self.path}', {self.report.tables} tables, {self.report.columns} columns)"


def _check(k: int | None, least: float, group: str | None) -> None:
    if k is not None and k < 0:
        raise DeepJoinError(f"k is {k}; ask for at least 1 hit.")
    if not 0 <= least <= 1:
        raise DeepJoinError(f"min_joinability is {least}; it is a share between 0 and 1.")
    if group not in (None, "tables"):
        raise unknown_name("grouping", str(group), "deepjoin", ["tables"])
