"""The lake: one index folder, searched and joined through one object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from deepjoin.build.build import Means, Progress, usual_means
from deepjoin.embed.devices import device_named
from deepjoin.errors import DeepJoinError, StoreUnreachable, UnknownName, unknown_name
from deepjoin.model import Hit, Results
from deepjoin.read.frames import as_column
from deepjoin.search.base import Searching
from deepjoin.search.lake_ground import LakeGround
from deepjoin.search.methods import method_named
from deepjoin.search.searchers import Searchers
from deepjoin.search.stores import EmbeddedStore, OpenStore
from deepjoin.settings import JoinSettings, SearchSettings, deprecated_keywords
from deepjoin.store.manifest import Manifest
from deepjoin.store.open_index import OpenIndex
from deepjoin.store.segment import Segment

if TYPE_CHECKING:
    from deepjoin.build.refresh import Refreshed
    from deepjoin.checking.check import Check
    from deepjoin.engines.postgres.postgres import PostgresServers
    from deepjoin.joining import JoinPlan
    from deepjoin.relating.graph import Graph

Done = TypeVar("Done")

JOINS = ("any", "equi", "semantic")


class Lake(OpenIndex):
    """An index of tables, open for searching; opening maps files and reads none.

    >>> lake = Lake("no such folder")
    Traceback (most recent call last):
    ...
    deepjoin.errors.IndexUnusable: no such folder is not a deepjoin index (no manifest.json). \
Make one with: deepjoin index SOURCE -o no such folder
    """

    def __init__(
        self,
        path: str | Path,
        url: str = "",
        device: str | None = None,
        vector_store: str | Sequence[str] | None = None,
    ) -> None:
        if device is not None:
            if vector_store:
                raise DeepJoinError(
                    f"Device {device} came with a vector store; column vectors are searched on "
                    "one or in the other. Leave out --device or --vector-store."
                )
            device_named(device)
        self.device = device
        self.store: PostgresServers | None = None
        if vector_store:
            from deepjoin.engines.postgres.postgres import PostgresServers

            self.store = PostgresServers(vector_store, url or Path(path))
        #: Why the vector store could not be asked when the lake was opened; "" if it was.
        self.store_problem = ""
        super().__init__(path, url)

    def _adopt(self, manifest: Manifest, segments: Sequence[Segment]) -> None:
        """Refuse a vector store without these segments; one that is down is noted.

        Methods that need it say so then. A lake that is open stays with the state it has.
        """
        if self.store is not None:
            try:
                self.store.check(segments)
            except StoreUnreachable as error:
                if self._opened_manifest:
                    raise
                self.store_problem = str(error)
        super()._adopt(manifest, segments)
        #: Searchers by what they were made for; a newer state has its own.
        self._searchers = Searchers()

    def search(
        self,
        query: object,
        k: int | None = None,
        *,
        on: str | None = None,
        join: str = "any",
        method: str = "hybrid",
        exclude_table: str | None = None,
        min_joinability: float | None = None,
        settings: SearchSettings | None = None,
        **deprecated: Any,
    ) -> Results:
        """Find the columns of the lake that join with a column of yours.

        Parameters
        ----------
        query
            A pandas, polars or Arrow column, a list, or a `Column`; a frame together with ``on``.
            A `Column` of this lake (see `column`) leaves its own table out.
        k
            How many hits; 10, or all when ``min_joinability`` is given.
        on
            The column of a frame to search with.
        join
            "equi" for equal values, "semantic" for values that mean the same, "any" for both:
            then a value counts by the chance that the hit has it, in any spelling.
        method
            A name from `deepjoin methods`.
        exclude_table
            A table that is never a hit.
        min_joinability
            Only hits that cover at least this share of the query's distinct values.
        settings
            How values are matched and hits listed: tau, grouping, how many matches.
        **deprecated
            Fields of `SearchSettings`; accepted for one more release.
        """
        moved = deprecated_keywords("search", deprecated, settings=SearchSettings)
        chosen = replace(settings or SearchSettings(), **moved["settings"])
        column = as_column(query, on)
        if k is not None and (not isinstance(k, int | np.integer) or k < 0):
            raise DeepJoinError(f"`k` is {k!r}; it must be a whole number of at least 0.")
        least = min_joinability or 0.0
        if not 0 <= least <= 1:
            raise DeepJoinError(f"`min_joinability` is {least}; it must be between 0 and 1.")
        searcher = self._searcher(method, join, chosen.tau)
        exclude = exclude_table if exclude_table is not None else column.table
        if k is None:
            k = 10 if min_joinability is None else None
        with self.reporting_damage():
            if chosen.group is not None:
                return searcher.search_tables(column, k, exclude, least, chosen.matches)
            if k is None:
                return searcher.search_above(
                    column, least, exclude_table=exclude, show=chosen.matches
                )
            return searcher.search(
                column, k, exclude_table=exclude, min_joinability=least, show=chosen.matches
            )

    def _searcher(self, method: str, join: str, tau: float | None) -> Searching:
        chosen = method_named(method)
        if join not in JOINS:
            raise unknown_name("join kind", join, "deepjoin", JOINS)
        if join not in chosen.joins:
            if join != "any":
                raise DeepJoinError(
                    f"Method '{method}' answers join {' or '.join(chosen.joins)}, not {join}. "
                    f"Methods: deepjoin methods."
                )
            join = chosen.joins[0]
        if tau is not None and (join == "equi" or "cell vectors" not in chosen.needs):
            raise DeepJoinError(
                f"`tau` is {tau}, and '{method}' compares no cells by meaning for join {join}. "
                'Leave it out, or use `join="semantic"` with a method that does.'
            )
        # What a method has opened serves the next search as well, until the index changes.
        return self._searchers.get(
            (method, join, tau), lambda: chosen.make(self.ground(), join, tau)
        )

    def explain(
        self,
        query: object,
        target: tuple[str, str],
        *,
        on: str | None = None,
        join: str = "any",
        settings: SearchSettings | None = None,
        **deprecated: Any,
    ) -> Hit:
        """Show how a column of yours joins with one column of the lake, found by a search or not.

        ``target`` is (table, column); the rest is as for `search`. A pair without a match has
        joinability 0.
        """
        from deepjoin.search.pair import measure_pair

        moved = deprecated_keywords("explain", deprecated, settings=SearchSettings)
        chosen = replace(settings or SearchSettings(), **moved["settings"])
        self._searcher("hybrid", join, chosen.tau)  # refuses what a search would
        column = as_column(query, on)
        segment, _ = self.place(target[0])
        with self.reporting_damage():
            place = segment, segment.catalog.find_column(*target)
            return measure_pair(self.ground(), column, place, join, chosen.tau, chosen.matches)

    def ground(self) -> LakeGround:
        """Give what search methods and training stand on."""
        opened = self.segments, self.settings, self.vectors
        return LakeGround(*opened, self.location, self.path, self.device, self._open_store())

    def _open_store(self) -> OpenStore:
        """Choose where column vectors are searched: PostgreSQL, a device, or the index itself."""
        if self.store is not None:
            return self.store.open
        if self.device is not None:
            from deepjoin.engines.gpu import GpuStore

            return partial(GpuStore, device=self.device)
        return EmbeddedStore

    def plan_join(
        self,
        left: object,
        on: str,
        hit: Hit | tuple[str, str],
        *,
        how: str = "left",
        many: str = "expand",
        join: str | None = None,
        settings: JoinSettings | None = None,
        progress: Progress | None = None,
        **deprecated: Any,
    ) -> JoinPlan:
        """Prepare the join of a table of yours with a hit: its facts, SQL, preview and outputs.

        Parameters
        ----------
        left
            A data frame, an Arrow table, the path of a file or the name of a table of this lake.
        on
            Its key column.
        hit
            A hit of a search, or (table, column) of the lake.
        how
            "left" keeps your rows without a match, "inner" does not.
        many
            Several matching rows: "expand" to all, the "first", or "aggregate" them to one.
        join
            "equi" for equal values, "semantic" for values that mean the same, too; default:
            semantic for a hit that has more matches that way, else equi.
        settings
            How values are matched, tau and matching, and how much memory DuckDB may use.
        progress
            Called with (matched values, total, what is being done).
        **deprecated
            Fields of `JoinSettings`; accepted for one more release.
        """
        from deepjoin.joining import plan_join, sides

        moved = deprecated_keywords("plan_join", deprecated, settings=JoinSettings)
        chosen = replace(settings or JoinSettings(), **moved["settings"])
        semantic = sides.semantic_or_equi(
            *(hit, join, chosen.tau, chosen.matching, progress),
            lambda: sides.encoder_of(self.vectors.cells, self.path),
        )
        table, column = (hit.table, hit.column) if isinstance(hit, Hit) else hit
        known = {one.name for one in self.table(table).columns}
        if isinstance(left, str) and not Path(left).exists() and left in self:
            left = self.origin(left).table()
        mine = sides.left_side(left, on)
        origin = self.origin(table)
        if isinstance(hit, Hit):
            column = origin.key(column, hit.column_id)
        try:
            right = sides.right_side(origin, column)
            sides.check_key(right)
        except UnknownName as error:
            hint = " It has changed since it was indexed: run deepjoin index again."
            raise UnknownName(f"{error}{hint if column in known else ''}") from None
        plan = plan_join(
            *(mine, right),
            how=how,
            many=many,
            profile=self.settings.profile,
            memory_limit=chosen.memory_limit,
            semantic=semantic,
        )
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
        join: str | None = None,
        settings: JoinSettings | None = None,
        **deprecated: Any,
    ) -> Any:
        """Join a table of yours with a hit; a data frame comes back as the same kind of frame.

        Everything else comes back as an Arrow table. See `plan_join` for the options, the
        facts, the SQL and results too large for memory.
        """
        from deepjoin.joining.sides import frame_like, warn

        moved = deprecated_keywords("join", deprecated, settings=JoinSettings)
        chosen = replace(settings or JoinSettings(), **moved["settings"])
        with self.plan_join(left, on, hit, how=how, many=many, join=join, settings=chosen) as plan:
            warn(plan.warnings)
            return frame_like(left, plan.to_arrow())

    def join_sql(
        self, plan: JoinPlan, table: str, left: str = "", matches: str | Path | None = None
    ) -> str:
        """Write a planned join with a table as SQL.

        It is for the database that has the table, where ``left`` names the other one if that
        is there too; for tables that are not in a database, it is DuckDB's, and ``matches`` may
        name a .parquet file for the pairs of a semantic join, which are else listed in it.
        """
        source = self.origin(table).source
        database = source.as_database if source else None
        if database is None:
            return plan.sql if matches is None else plan.reading(matches)[0]
        from deepjoin.joining.database_sql import database_sql

        there = (
            bool(left)
            and left in self
            and self.origin(left).described == database.describe(self.path)
        )
        return database_sql(plan, database, left if there else "")

    def graph(
        self,
        min_joinability: float = 0.7,
        *,
        most: int | None = None,
        save: bool = True,
        rebuild: bool = False,
        progress: Progress | None = None,
    ) -> Graph:
        """Find all pairs of columns of different tables that join, exactly.

        Parameters
        ----------
        min_joinability
            Two columns join if one of them holds at least this share of the other's distinct
            values. Row numbers, years and flags join with nothing.
        most
            Keep only the best so many edges of each column with larger ones; what was left out
            is counted. Such a graph is never saved.
        save
            Keep the graph in the index folder: the next one only joins what has changed.
        rebuild
            Join everything again, whatever was saved.
        progress
            Told how many columns are done, of how many.
        """
        from deepjoin.relating.graph import make_graph

        return make_graph(
            self, min_joinability, most=most, save=save, rebuild=rebuild, progress=progress
        )

    def refresh(self, *, progress: Progress | None = None) -> Refreshed:
        """Read what has changed in the sources, and move to the lake as it has become."""
        from deepjoin.build.commands import refresh_lake

        return self._moved(refresh_lake(self.location, self._means(progress)))

    def add(self, source: object, *, progress: Progress | None = None) -> list[str]:
        """Index more tables into this lake and move to it; returns their names.

        ``source`` is anything `deepjoin.index` takes. Tables that came from the same files,
        or frames of the same names, are replaced.
        """
        from deepjoin.build.commands import add_tables

        return self._moved(add_tables(self.location, source, self._means(progress)))

    def remove(self, *tables: str) -> list[str]:
        """Take tables out by name or pattern, and move to the lake without them.

        Their files stay as they are, and a refresh does not bring them back; `add` does.
        """
        from deepjoin.build.commands import remove_tables

        return self._moved(remove_tables(self.location, tables, self._means()))

    def compact(self) -> bool:
        """Merge all segments into one; False if they were one already."""
        from deepjoin.build.commands import compact

        return self._moved(compact(self.location, self._means()))

    def _means(self, progress: Progress | None = None) -> Means:
        return usual_means(progress=progress, device=self.device)

    def _moved(self, done: Done) -> Done:
        """Go on with the lake as an update has left it."""
        self.reopen()
        return done

    def check(self, *, tables: int | None = 100, progress: Progress | None = None) -> Check:
        """Look for damage in the index as it is now, and compare it with some of its tables.

        ``tables`` is how many are read again, None for all; what is found is true if sound.
        """
        from deepjoin.checking.check import check_index

        return check_index(self.path, tables, progress, self.location)

    def info(self) -> dict[str, Any]:
        """Describe the index: its size, its settings, what was left out and why."""
        report = self.report
        size = sum(record.bytes for record in self._manifest.segments)
        return {
            "index": str(self.location),
            "format": self._manifest.format,
            "version": self._manifest.version,
            "tables": report.tables,
            "columns": report.columns,
            "values": report.values,
            "rows": report.rows,
            "cells": report.cells,
            "bytes": size,
            "vectors": vars(self.vectors),
            "settings": {n: v for n, v in vars(self.settings).items() if n != "salt"},
            "sources": list(self._manifest.sources),
            "segments": len(self.segments),
            "excluded": list(self._manifest.excluded),
            "left_out": dict(report.left_out.most_common()),
            "skipped": [vars(one) for one in report.skipped],
            "notes": [{"table": table, "note": note} for table, note in report.notes],
        }

    def __repr__(self) -> str:
        return (
            f"Lake('{self.location}', {self.report.tables} tables, {self.report.columns} columns)"
        )
