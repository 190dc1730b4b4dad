"""The lake: one index folder, searched and joined through one object."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deepjoin.catalog import Catalog, TableEntry
from deepjoin.columns import Column
from deepjoin.errors import DeepJoinError, IndexUnusable, UnknownName, unknown_name
from deepjoin.lake.origin import Origin
from deepjoin.lake.report import BuildReport
from deepjoin.lake.storage import MANIFEST, SEGMENTS, Manifest, damaged, read_manifest
from deepjoin.search import method_named
from deepjoin.search.exact_equi import SHOWN, ExactEqui
from deepjoin.search.results import Hit, Results
from deepjoin.sources.frames import as_column
from deepjoin.values.index import ValueIndex

if TYPE_CHECKING:
    from deepjoin.join import JoinPlan

JOINS = ("any", "equi")
#: How often opening is tried while other processes commit.
_ATTEMPTS = 5


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
        for attempt in range(_ATTEMPTS):
            before = self._manifest_bytes()
            try:
                self._open(read_manifest(self.path))
                return
            except (OSError, ValueError, TypeError, KeyError, IndexUnusable) as error:
                # A commit between reading the manifest and mapping the segment removes it.
                if attempt + 1 < _ATTEMPTS and self._manifest_bytes() != before:
                    continue
                if isinstance(error, IndexUnusable):
                    raise
                raise damaged(self.path, f"a file is not what was written ({error})") from None

    def _open(self, manifest: Manifest) -> None:
        self._manifest = manifest
        segment = self.path / SEGMENTS / manifest.segment
        self.report = BuildReport.from_json((segment / "report.json").read_bytes())
        self.values = ValueIndex(segment)
        self.catalog = Catalog(segment)
        self.settings = manifest.settings
        self.origin = Origin(self.path, manifest.source, segment, self.settings)

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
        return chosen.searcher(self.values, self.catalog, self.settings.profile)

    def column(self, table: str, column: str) -> Column:
        """Fetch a column of the lake, to search with it."""
        number = self.catalog.find_column(table, column)
        start, stop = self.values.cells_of(number)
        order = np.argsort(self.values.cell_rows[start:stop], kind="stable") + start
        spelled = [
            self.values.spelling(self.values.values[int(value)], spelling)
            for value, spelling in zip(
                self.values.cell_values[order].tolist(),
                self.values.cell_spellings[order].tolist(),
                strict=True,
            )
        ]
        counts = self.values.cell_counts[order].tolist()
        cells = [cell for cell, count in zip(spelled, counts, strict=True) for _ in range(count)]
        entry = self.catalog.table(int(self.catalog.column_tables[number]))
        words = (self.catalog.column_names[number], table, entry.title, entry.context)
        return Column(cells, *words, self.catalog.column_ids[number])

    def table(self, name: str) -> TableEntry:
        """Return what is known of a table: its columns, types, what was left out, first rows."""
        return self.catalog.table(self._table_number(name))

    @property
    def tables(self) -> Sequence[str]:
        """The names of all tables."""
        return self.catalog.table_names

    def _table_number(self, name: str) -> int:
        number = self.catalog.find_table(name)
        if number is None:
            raise unknown_name("table", name, str(self.path), self.catalog.table_names)
        return number

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

        if isinstance(hit, Hit):
            table, column = hit.table, self.origin.key(hit.table, hit.column, hit.column_id)
        else:
            table, column = hit
        number = self._table_number(table)
        known = {one.name for one in self.catalog.table(number).columns}
        mine = left_side(left, on)
        try:
            right = right_side(self.origin, table, number, column)
            check_key(right)
        except UnknownName as error:
            hint = " It has changed since it was indexed: run deepjoin index again."
            raise UnknownName(f"{error}{hint if column in known else ''}") from None
        plan = plan_join(mine, right, how=how, many=many, profile=self.settings.profile)
        if self.origin.has_changed(self.catalog.table(number)):
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

    def info(self) -> dict[str, Any]:
        """Describe the index: its size, its settings, what was left out and why."""
        report = self.report
        size = sum(size for size, _ in self._manifest.files.values())
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
            "settings": vars(self.settings),
            "source": self._manifest.source,
            "left_out": dict(report.left_out.most_common()),
            "skipped": [vars(one) for one in report.skipped],
            "notes": [{"table": table, "note": note} for table, note in report.notes],
        }

    def __repr__(self) -> str:
        return f"Lake('{self.path}', {len(self.tables)} tables, {self.values.columns} columns)"


def _check(k: int | None, least: float, group: str | None) -> None:
    if k is not None and k < 0:
        raise DeepJoinError(f"k is {k}; ask for at least 1 hit.")
    if not 0 <= least <= 1:
        raise DeepJoinError(f"min_joinability is {least}; it is a share between 0 and 1.")
    if group not in (None, "tables"):
        raise unknown_name("grouping", str(group), "deepjoin", ["tables"])
