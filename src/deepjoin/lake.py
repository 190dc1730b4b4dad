"""The lake: one index folder, searched and joined through one object."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from deepjoin.embed.devices import device_named
from deepjoin.errors import DeepJoinError, StoreUnreachable, StoreUnusable, unknown_name
from deepjoin.model import (
    Bridges,
    Column,
    Decision,
    Hit,
    JoinEdge,
    JoinPaths,
    Neighbourhood,
    Relation,
    Results,
)
from deepjoin.optional import as_frame
from deepjoin.progress import Progress, no_progress
from deepjoin.read.frames import as_column, as_columns
from deepjoin.search.context import SearchContext
from deepjoin.search.likely import with_decision
from deepjoin.search.methods import method_for
from deepjoin.search.query import SearchOptions, query_columns
from deepjoin.search.searcher import Searcher, SearcherCache, search_columns, set_apart
from deepjoin.settings import (
    BuildSettings,
    EnrichSettings,
    JoinSettings,
    SearchSettings,
    Settings,
    Vectors,
    with_deprecated,
)
from deepjoin.store.catalog import TableEntry
from deepjoin.store.feedback import Decided, Feedback, now
from deepjoin.store.manifest import DEFAULT, MANIFEST, is_index, is_remote
from deepjoin.store.open_index import OpenIndex
from deepjoin.store.report import BuildReport

if TYPE_CHECKING:
    from deepjoin.build.engine import BuildResources
    from deepjoin.build.refresh import Refreshed
    from deepjoin.checking.check import Check
    from deepjoin.engines.postgres.store import PostgresServers
    from deepjoin.enriching.enrich import Enrichment
    from deepjoin.joining import JoinPlan
    from deepjoin.joining.chain import JoinChain
    from deepjoin.joining.entry import KeyTarget
    from deepjoin.relating.graph import JoinGraph
    from deepjoin.relating.relations import Relations
    from deepjoin.search.context import OpenStore

Outcome = TypeVar("Outcome")
#: One end of a join that somebody accepts or rejects.
JoinEnd: TypeAlias = "str | Mapping[str, Any] | KeyTarget"
#: The least probability of relations that maps draw and paths follow.
_ON_MAPS = 0.1
#: A frame with this many columns is one key unless `settings.keys` says otherwise.
SMALL_FRAME = 4


class Lake:
    """An index of tables, open for searching; opening maps files and reads few.

    An open lake stays as it was when opened until `reopen`. ``device`` is where column vectors
    are searched, and where encoders on torch run; with ``vector_store``, the addresses of
    PostgreSQL servers, column vectors are searched there.

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
                    "one or in the other. Leave out `device` or `vector_store`."
                )
            device_named(device)
        self.device = device
        self._reopening = str(path), url, device, vector_store
        self._store: PostgresServers | None = None
        if vector_store:
            from deepjoin.engines.postgres.store import PostgresServers

            self._store = PostgresServers(vector_store, url or Path(path))
        #: Why the vector store did not answer when the lake was opened; "" if it did.
        self.store_problem = ""
        self._adopt(OpenIndex(path, url), is_first=True)

    def _adopt(self, index: OpenIndex, is_first: bool = False) -> None:
        """Make this state of the index the open one, if the vector store has its segments.

        A store that is down keeps no lake from opening: methods that need it raise then. A lake
        that is open keeps the state it has.
        """
        while self._store is not None:
            try:
                self._store.check(index.segments)
                break
            except StoreUnreachable as error:
                if not is_first:
                    raise
                self.store_problem = str(error)
                break
            except StoreUnusable:
                # Another process may have committed and published in between.
                newer = index.renewed()
                if newer is index:
                    raise
                index = newer
        #: The open index, for code that needs more of it than users do: segments, origins, …
        self.index = index
        #: Searchers by what they were made for; a newer state has its own.
        self._searchers = SearcherCache()
        #: Relations for maps and paths, and the state of the lake that they are of.
        self._related: tuple[object, tuple[Relation, ...]] | None = None

    def reopen(self) -> bool:
        """Move to the lake as it is now; return whether it has changed."""
        newer = self.index.renewed()
        if newer is self.index:
            return False
        self._adopt(newer)
        return True

    def renewed(self) -> Lake:
        """Open the lake as it is now beside this one, which stays as it is.

        Both share what has not changed; if nothing has, this lake is returned.
        """
        other = copy(self)
        return other if other.reopen() else self

    @property
    def path(self) -> Path:
        """The folder of the index, or of the local copy of one in a bucket."""
        return self.index.path

    @property
    def location(self) -> str | Path:
        """Where the index is: the URL in a bucket, or the folder."""
        return self.index.location

    @property
    def settings(self) -> Settings:
        """What was indexed and how cells compare."""
        return self.index.settings

    @property
    def vectors(self) -> Vectors:
        """What is encoded beside the values."""
        return self.index.vectors

    @property
    def report(self) -> BuildReport:
        """What was indexed, what was left out, and why."""
        return self.index.report

    @property
    def tables(self) -> Sequence[str]:
        """The names of all tables."""
        return self.index.tables

    def table(self, name: str) -> TableEntry:
        """Return what is known of a table: its columns, types, what was left out, first rows."""
        return self.index.table(name)

    def column(self, table: str, column: str) -> Column:
        """Fetch a column of the lake, to search with it."""
        return self.index.column(table, column)

    def read(self, table: str, kind: str | None = None) -> Any:
        """Read a whole table of the lake from its source as a frame.

        ``kind`` is "pandas", "polars" or "arrow"; by default pandas if it is installed, else
        Arrow. Text that is integers, decimals or dates throughout gets that type.
        """
        from deepjoin.joining.store import read_typed

        return as_frame(read_typed(self.index.origin(table).table()), kind)

    def __getitem__(self, table: str) -> TableEntry:
        return self.table(table)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)

    def __contains__(self, table: str) -> bool:
        return table in self.index

    def __len__(self) -> int:
        return self.report.tables

    def __bool__(self) -> bool:
        # A lake without tables is a lake: `lake or default` must not replace it.
        return True

    def __copy__(self) -> Lake:
        # The same open index, which `renewed` replaces in the copy alone.
        other = object.__new__(Lake)
        vars(other).update(vars(self))
        return other

    def __reduce__(self) -> tuple[type[Lake], tuple[Any, ...]]:
        # A pickled lake is its address: where it is loaded, the index is opened again.
        return Lake, self._reopening

    def __repr__(self) -> str:
        return f"Lake('{self.location}', {len(self)} tables, {self.report.columns} columns)"

    def _repr_html_(self) -> str:
        from deepjoin.show.cards import lake_html

        return lake_html(self.info(), islice(self, 1000))

    def search(
        self,
        query: object,
        k: int | None = None,
        *,
        on: str | Sequence[str] | None = None,
        join: str = "any",
        method: str = "hybrid",
        exclude_table: str | None = None,
        min_joinability: float | None = None,
        settings: SearchSettings | None = None,
        **deprecated: Any,
    ) -> Results:
        """Find the columns of the lake that join with a column of yours, or with several.

        Several columns are one key: a hit is then a table whose rows hold the query's tuples, and
        ``hit.columns`` are its columns, in the order of the query's.

        Parameters
        ----------
        query
            A pandas, polars or Arrow column, a list, or a `Column`; a frame, the path of a file or
            the name of a table of this lake. Without ``on``, a frame or file of two to four columns
            is one key. Of any other table, or if no table of the lake has a tuple of the key, every
            column is searched: the hits are those of the best, and ``others`` has the other
            columns; ``settings.keys`` chooses. What comes from a table of this lake (see `column`)
            leaves that table out.
        k
            How many hits; 10, or all when ``min_joinability`` is given.
        on
            The column of a frame, file or table to search with, or a list of columns: a key of
            several columns.
        join
            "equi" for equal values, "semantic" for values that mean the same, "any" for both:
            then a value counts by the chance that the hit has it, in any spelling.
        method
            A name from `deepjoin methods`.
        exclude_table
            A table that is never a hit.
        min_joinability
            Only hits that cover at least this share of the query's distinct values, or tuples.
        settings
            How values are matched and hits listed: tau, grouping, how many matches; a time limit,
            and a function that gets the answers before the last one.
        **deprecated
            Fields of `SearchSettings`; accepted for one more release.
        """
        chosen = with_deprecated("search", settings, SearchSettings, deprecated)
        columns = query_columns(self.index, query, on)
        options = SearchOptions.of(
            *(k, min_joinability, exclude_table, chosen),
            feedback=self._decided,
            reading=self.index.reporting_damage,
        )
        together = chosen.keys == "together" or (on is not None and not isinstance(on, str))
        # Of a table of the lake, and of several sheets, the cells are not those of the same rows.
        is_small = 1 < len(columns) <= SMALL_FRAME and not isinstance(query, list | tuple)
        is_small = is_small and len({one.table for one in columns}) == 1
        is_small = is_small and all(one.column_id is None for one in columns)
        if len(columns) > 1 and (together or (chosen.keys == "auto" and is_small)):
            found = self._search_key(columns, options, (method, join, chosen.tau), together)
            if found is not None:
                self.index.count_search()
                return found
        searcher = self._searcher(method, join, chosen.tau)
        with self.index.reporting_damage():
            for results in search_columns(searcher, columns, options):
                if chosen.on_partial is not None and results.partial is not None:
                    chosen.on_partial(results)
            has_others = len(columns) > 1 or not isinstance(query, list | tuple | Column)
            if has_others or chosen.beside:
                results = self._with_better_keys(results, query, columns, chosen.beside)
        self.index.count_search()
        return results

    def _search_key(
        self,
        columns: Sequence[Column],
        options: SearchOptions,
        how: tuple[str, str, float | None],
        together: bool,
    ) -> Results | None:
        """Search with several columns as one key; None if it finds nothing and need not be one."""
        from deepjoin.search.composite import composite

        with self.index.reporting_damage():
            try:
                searcher = composite(self.context(), *how)
            except DeepJoinError:  # another method, or an index without rows
                if together:
                    raise
                return None
            found = searcher.search(columns, options)
        if decided := self._decided(columns):
            hits = [with_decision(hit, decided) for hit in found.hits]
            if how[1] == "any":
                hits.sort(key=lambda hit: (hit.decided == "rejected", hit.decided != "accepted"))
            found = replace(
                found, hits=tuple(replace(hit, rank=n) for n, hit in enumerate(hits, 1))
            )
        likely, unlikely = set_apart(found.hits, options, usual=0)
        found = replace(found, hits=likely, unlikely=unlikely)
        return found if together or likely or unlikely else None

    def _decided(self, query: Sequence[Column]) -> Decided:
        """Return what people said of joins of a query; one from outside is known by its columns."""
        table = query[0].table or ""
        known = self.index.feedback.by_ends
        if not known:
            return {}
        table = table if table in self.index else ""
        return self.index.feedback.about(table, [column.name for column in query])

    def _with_better_keys(
        self, results: Results, query: object, columns: Sequence[Column], beside: Sequence[Column]
    ) -> Results:
        """Say of hits that multiply rows which further columns would not."""
        if not any(hit.multiplies for one in (results, *results.others) for hit in one.hits):
            return results
        from deepjoin.search.suggesting import MOST_CELLS, with_better_keys

        if len(columns) > 1:
            beside = columns
        elif not beside and not isinstance(query, list | tuple | Column):
            names = query if isinstance(query, Mapping) else getattr(query, "columns", ())
            if 1 < len(names) * len(columns[0].cells) <= MOST_CELLS:
                beside = as_columns(query)
        if not beside or self.settings.hash_only:
            return results
        of_lake = self.index.segments, self.settings.profile
        others = tuple(with_better_keys(*of_lake, one, beside) for one in results.others)
        return with_better_keys(*of_lake, replace(results, others=others), beside)

    def _searcher(self, method: str, join: str, tau: float | None) -> Searcher:
        chosen, join = method_for(method, join, tau)
        # What a method has opened serves the next search as well, until the index changes.
        return self._searchers.get(
            (method, join, tau), lambda: chosen.make(self.context(), join, tau)
        )

    def bridges(
        self,
        left: object,
        right: object,
        *,
        left_on: str | None = None,
        right_on: str | None = None,
        least: float = 0.3,
    ) -> Bridges:
        """Find tables in which two keys meet that have nothing in common, by equal values.

        ``left`` and ``right`` are columns as for `search`: lists, Series, frames or files with
        ``left_on`` and ``right_on``, or tables of the lake. At least the share ``least`` of the
        left values must reach a right one.

        See Also
        --------
        relations : Keys and foreign keys of the lake, with paths from table to table.
        """
        from deepjoin.search.bridging import find_bridges

        if self.settings.hash_only:
            raise DeepJoinError(f"{self.path} holds hashes of values, whose rows are not stored.")
        sides = []
        for side, given, on in (("left", left, left_on), ("right", right, right_on)):
            columns = query_columns(self.index, given, on)
            if len(columns) != 1:
                names = ", ".join(one.name for one in columns[:12])
                raise DeepJoinError(
                    f"The {side} table has {len(columns)} columns; name one with `{side}_on`: "
                    f"{names}."
                )
            sides.append(columns[0])
        one, other = sides
        tables = one.table or "left", other.table or "right"
        segments, profile = self.index.segments, self.settings.profile
        return find_bridges(segments, (one, other), least, profile, tables)

    def explain(
        self,
        query: object,
        target: KeyTarget,
        *,
        on: str | Sequence[str] | None = None,
        join: str = "any",
        settings: SearchSettings | None = None,
        **deprecated: Any,
    ) -> Hit:
        """Show how a column of yours joins with one column of the lake, found by a search or not.

        ``target`` is (table, column), or (table, [columns]) for a key of several; the rest is as
        for `search`. A pair without a match has joinability 0.
        """
        from deepjoin.search.hybrid import explain_pair

        chosen = with_deprecated("explain", settings, SearchSettings, deprecated)
        self._searcher("hybrid", join, chosen.tau)  # refuses what a search would
        table, theirs = target
        segment, _ = self.index.place(table)
        names = [theirs] if isinstance(theirs, str) else list(theirs)
        if len(names) > 1 or (on is not None and not isinstance(on, str) and len(on) > 1):
            from deepjoin.search.composite import composite

            with self.index.reporting_damage():
                measured = composite(self.context(), "hybrid", join, chosen.tau)
                mine = query_columns(self.index, query, on)
                found = measured.explain(mine, (segment, table, names), chosen.matches)
                return with_decision(found, self._decided(mine))
        if on is None:
            column = as_column(query)
        else:
            first = on if isinstance(on, str) else on[0]
            (column,) = query_columns(self.index, query, first)
        with self.index.reporting_damage():
            place = segment, segment.catalog.find_column(table, names[0])
            found = explain_pair(self.context(), column, place, join, chosen.tau, chosen.matches)
            return with_decision(found, self._decided([column]))

    def context(self) -> SearchContext:
        """Return what search methods and training work on."""
        index = self.index
        store: OpenStore | None = None
        if self._store is not None:
            store = self._store.open
        elif self.device is not None:
            from deepjoin.engines.gpu import GpuStore

            store = partial(GpuStore, device=self.device)
        return SearchContext(
            *(index.segments, index.settings, index.vectors, index.location, index.path),
            *(self.device, store),
        )

    def plan_join(
        self,
        left: object,
        on: str | Sequence[str],
        hit: Hit | KeyTarget,
        *,
        how: str = "left",
        many: str = "expand",
        join: str | None = None,
        settings: JoinSettings | None = None,
        progress: Progress | None = None,
        **options: Any,
    ) -> JoinPlan:
        """Prepare the join of a table of yours with a hit: its facts, SQL, preview and outputs.

        Parameters
        ----------
        left
            A data frame, an Arrow table, the path of a file or the name of a table of this lake.
        on
            Its key column; for a key of several, a list in the order of the hit's columns.
        hit
            A hit of a search, or (table, column) of the lake, or (table, [columns]).
        how
            "left" keeps your rows without a match, "inner" does not.
        many
            Several matching rows: "expand" to all, the "first", or "aggregate" them to one.
        join
            "equi" for equal values, "semantic" for values that mean the same, "any" for equal
            values and, for the rest, similar ones. By default a hit joins as it was found, and a
            (table, column) as "any".
        settings
            Which columns to bring, how to aggregate, how values are matched.
        progress
            Called with (matched values, total, what is being done).
        **options
            ``columns`` and ``aggregate`` of `JoinSettings`, for short; its other fields are
            accepted for one more release.
        """
        from deepjoin.joining import entry

        chosen = with_deprecated("plan_join", settings, JoinSettings, options, entry.KEYWORDS)
        kind: dict[str, Any] = {"how": how, "many": many, "join": join}
        sides = left, on, hit
        return entry.plan_index_join(self.index, sides, **kind, settings=chosen, progress=progress)

    def join(
        self,
        left: object,
        on: str | Sequence[str],
        hit: Hit | KeyTarget,
        *,
        how: str = "left",
        many: str = "expand",
        join: str | None = None,
        settings: JoinSettings | None = None,
        **options: Any,
    ) -> Any:
        """Join a table of yours with a hit; a data frame comes back as the same kind of frame.

        Everything else comes back as an Arrow table. See `plan_join` for the options, the
        facts, the SQL and results too large for memory.
        """
        from deepjoin.joining import entry

        chosen = with_deprecated("join", settings, JoinSettings, options, entry.KEYWORDS)
        with self.plan_join(left, on, hit, how=how, many=many, join=join, settings=chosen) as plan:
            return entry.joined_frame(plan, left)

    def join_sql(
        self, plan: JoinPlan, table: str, left: str = "", matches: str | Path | None = None
    ) -> str:
        """Write a planned join with a table as SQL.

        For a table in a database, the SQL is for that database; ``left`` names the other table
        if it is in the same one. For all other tables the SQL is DuckDB's. The pairs of a
        semantic join are listed in it, or read from the .parquet file ``matches``.
        """
        source = self.index.origin(table).source
        database = source.as_database if source else None
        if database is None:
            return plan.sql if matches is None else plan.reading(matches)[0]
        from deepjoin.joining.database_sql import database_sql

        there = (
            bool(left)
            and left in self
            and self.index.origin(left).described == database.describe(self.path)
        )
        return database_sql(plan, database, left if there else "")

    def graph(
        self,
        min_joinability: float = 0.7,
        *,
        least: float = 0.0,
        most: int | None = None,
        save: bool = True,
        rebuild: bool = False,
        progress: Progress | None = None,
    ) -> JoinGraph:
        """Find all pairs of columns of different tables that join, exactly.

        Parameters
        ----------
        min_joinability
            Two columns join if one of them holds at least this share of the other's distinct
            values. Row numbers, years and flags join with nothing.
        least
            Only edges with at least this probability, estimated for every edge found. Without it,
            probabilities are estimated when edges are read.
        most
            Keep at most this many edges from each column to larger ones, the best; the graph
            counts what it leaves out, and is never saved.
        save
            Keep the graph in the index folder, so that the next one joins only what changed.
        rebuild
            Join everything again, whatever was saved.
        progress
            Called with (columns done, total, what).
        """
        from deepjoin.relating.graph import make_graph

        return make_graph(
            self.index,
            min_joinability,
            least=least,
            most=most,
            save=save,
            rebuild=rebuild,
            progress=progress,
        )

    def neighbourhood(
        self, table: str = "", *, depth: int = 1, min_joinability: float = 0.5, limit: int = 60
    ) -> Neighbourhood:
        """Find the tables within ``depth`` joins of a table, or those that join with most others.

        Parameters
        ----------
        table
            The table in the middle; without one, the answer is an overview of the lake.
        depth
            How many joins away a table may be.
        min_joinability
            Two columns join if one of them holds at least this share of the other's distinct
            values. Row numbers, years and flags join by relations alone.
        limit
            How many tables to return at most.
        """
        from deepjoin.relating.neighbourhood import neighbourhood, overview

        if not table:
            return overview(self.index, min_joinability, limit, self._map_relations())
        where = self.index, table, depth, min_joinability, limit
        return neighbourhood(*where, self._map_relations())

    def paths(
        self, start: str, end: str, *, min_joinability: float = 0.5, longest: int = 4
    ) -> JoinPaths:
        """Find chains of joins from one table to another, at most 5, the likeliest first.

        The probability of a path is the product of those of its joins; of paths that are about as
        likely, the one that multiplies rows least comes first. `join_path` runs one.
        """
        from deepjoin.relating.neighbourhood import paths

        ends = self.index, start, end, min_joinability, longest
        return paths(*ends, self._map_relations())

    def join_path(
        self, path: Sequence[JoinEdge], *, how: str = "left", many: str = "expand"
    ) -> JoinChain:
        """Prepare the joins of a path as one: its facts, its SQL, its rows.

        Parameters
        ----------
        path
            One of the ``paths`` of `paths`: joins on equal values, each from a table that is there
            already to the next one.
        how
            "left" keeps rows without a match, "inner" does not.
        many
            Several matching rows: "expand" to all, the "first", or "aggregate" them to one.
        """
        from deepjoin.joining.chain import ChainStep, plan_chain

        steps = [ChainStep(one.a.table, one.a.column, one.b.table, one.b.column) for one in path]
        return plan_chain(self.index, steps, how, many)

    def _map_relations(self) -> Sequence[Relation]:
        """Return the relations that maps and paths use; of a very large lake, none."""
        from deepjoin.relating.relations import RelationFinder, find_relations

        state = self.index.generation, tuple(self.feedback)
        if self._related is None or self._related[0] != state:
            with self.index.reporting_damage():
                large = RelationFinder(self.index).is_large
            found = () if large else find_relations(self.index, _ON_MAPS).relations
            self._related = state, tuple(found)
        return self._related[1]

    def enrich(
        self,
        table: object,
        target: str | None = None,
        *,
        depth: int = 2,
        settings: EnrichSettings | None = None,
        progress: Progress | None = None,
    ) -> Enrichment:
        """Add columns of the lake that help to predict a column of yours, and measure how much.

        Every key of your table is searched; joins that make sense are made, those that would
        multiply rows are summarised, and from the tables they bring the walk goes on. Columns that
        tell the target more than shuffled ones are kept. The gain is measured on rows that the
        choice has not seen, and nothing is added unless its interval lies above 0. Your table
        itself, also as a copy in the lake, is never joined. Ctrl-C gives the best so far.

        Parameters
        ----------
        table
            A data frame, an Arrow table, the path of a file or the name of a table of this lake.
        target
            The column to predict; classes are scored by accuracy, numbers by R². Without one,
            ``offers`` lists what could be added.
        depth
            How many joins in a row, at most 3.
        settings
            Bounds of the work, keys, joins on order, whether leaks are used.
        progress
            Called with (tables joined, most tables, table), then (folds, all folds, "measuring").
        """
        from deepjoin.enriching.enrich import enrich

        chosen = EnrichSettings() if settings is None else settings
        return enrich(self, table, target, depth, chosen, progress or no_progress)

    def relations(self, *, least: float = 0.5, across: bool = False) -> Relations:
        """Find the keys and foreign keys of the lake, each with the chance that it means something.

        Parameters
        ----------
        least
            Only relations and keys with at least this probability.
        across
            Compare columns of different sources as well: of two databases, or a database and a
            folder. By default relations stay inside each source.
        """
        from deepjoin.relating.relations import find_relations

        return find_relations(self.index, least, across)

    @property
    def feedback(self) -> Feedback:
        """What people accepted and rejected, to list, export, import and take back."""
        return self.index.feedback

    def accept(self, join: Relation | JoinEnd, hit: Hit | KeyTarget | None = None) -> Decision:
        """Say that a join means something: its probability is 1 from now on, and it ranks first.

        Decisions are kept beside the index and survive every change of it.

        Parameters
        ----------
        join
            A relation, or one end of a join: (table, column) or (table, [columns]) of the lake,
            the ``query`` of results, or the name of a column of a table that is not in the lake.
        hit
            The other end, unless the first is a relation: a hit, or (table, column) of the lake.
        """
        decision = self._decision(join, hit, accepted=True)
        self.feedback.add([decision])
        return decision

    def reject(self, join: Relation | JoinEnd, hit: Hit | KeyTarget | None = None) -> Decision:
        """Say that a join means nothing: its probability is 0 from now on, and it ranks last.

        The arguments are those of `accept`.
        """
        decision = self._decision(join, hit, accepted=False)
        self.feedback.add([decision])
        return decision

    def forget(self, join: Relation | JoinEnd, hit: Hit | KeyTarget | None = None) -> bool:
        """Take back what was said of a join; returns False if nothing was.

        The arguments are those of `accept`.
        """
        return self.feedback.forget(self._decision(join, hit, accepted=False))

    def _decision(
        self, join: Relation | JoinEnd, hit: Hit | KeyTarget | None, accepted: bool
    ) -> Decision:
        if isinstance(join, Relation):
            ends = join.child_table, join.child_columns, join.parent_table, join.parent_columns
            return Decision(*ends, accepted, now())
        if hit is None:
            raise DeepJoinError(
                f"Only one end of a join was named ({join!r:.60}). Name the other end as well, or "
                "give a relation."
            )
        mine: tuple[str, ...]
        if isinstance(join, str):
            table, mine = "", (join,)
        elif isinstance(join, Mapping):
            table = join.get("table") or ""
            table = table if table in self.index else ""
            mine = tuple(join.get("columns") or [join["column"]])
        else:
            table, mine = self._end(join)
        if not all(mine):
            raise DeepJoinError(
                "The column of the query has no name to know it by; search with a named column, "
                'e.g. Column(values, name="customer").'
            )
        parent, theirs = (hit.table, hit.columns) if isinstance(hit, Hit) else self._end(hit)
        if len(mine) != len(theirs):
            raise DeepJoinError(
                f"The ends of the join have {len(mine)} and {len(theirs)} columns. Name as many "
                "of each, in the same order."
            )
        return Decision(table, mine, parent, theirs, accepted, now())

    def _end(self, end: KeyTarget) -> tuple[str, tuple[str, ...]]:
        """Check that a table of the lake has the columns of one end."""
        table, named = end
        columns = (named,) if isinstance(named, str) else tuple(named)
        known = [one.name for one in self.index.table(table).columns]
        known = known or self.index.indexed_columns(table)
        for name in columns:
            if name not in known:
                raise unknown_name("column", name, table, known)
        return table, columns

    def refresh(self, *, memory: int | None = None, progress: Progress | None = None) -> Refreshed:
        """Read what has changed in the sources, and reopen the lake.

        ``memory`` is as in `BuildSettings`, also for `add` and `compact`.
        """
        from deepjoin.build.refresh import refresh_lake

        return self._reopened(refresh_lake(self.location, self._resources(progress, memory)))

    def add(
        self, source: object, *, memory: int | None = None, progress: Progress | None = None
    ) -> list[str]:
        """Index more tables into this lake, and reopen it; return their names.

        ``source`` is anything `deepjoin.index` takes. Tables that came from the same files,
        or frames of the same names, are replaced.
        """
        from deepjoin.build.pipeline import add_tables

        return self._reopened(add_tables(self.location, source, self._resources(progress, memory)))

    def remove(self, *tables: str) -> list[str]:
        """Remove tables by name or pattern, and reopen the lake; return their names.

        Their files stay, and a refresh does not bring them back; `add` does.
        """
        from deepjoin.build.pipeline import remove_tables

        return self._reopened(remove_tables(self.location, tables, self._resources()))

    def compact(self, *, memory: int | None = None) -> bool:
        """Merge all segments into one; return False if there was nothing to do."""
        from deepjoin.build.pipeline import compact

        return self._reopened(compact(self.location, self._resources(memory=memory)))

    def _resources(
        self, progress: Progress | None = None, memory: int | None = None
    ) -> BuildResources:
        from deepjoin.build.engine import BuildResources

        settings = BuildSettings(memory=memory, device=self.device)
        return BuildResources.of(settings, progress, None)

    def _reopened(self, outcome: Outcome) -> Outcome:
        """Reopen the lake after a change."""
        self.reopen()
        return outcome

    def check(self, *, tables: int | None = 100, progress: Progress | None = None) -> Check:
        """Look for damage in the index as it is now, and compare it with some of its tables.

        ``tables`` is how many to read again, None for all. The result is true if nothing is
        wrong.
        """
        from deepjoin.checking.check import check_index

        return check_index(self.path, tables, progress, self.location)

    def info(self) -> dict[str, Any]:
        """Describe the index: its size, its settings, what was left out and why."""
        return self.index.info()


def open_lake(
    path: str | os.PathLike[str],
    *,
    device: str | None = None,
    vector_store: str | Sequence[str] | None = None,
) -> Lake:
    """Open an index: its folder or URL, or the folder of tables that has one inside.

    A folder of tables without an index is an error here; `deepjoin.index` makes one.

    With a ``device``, "cuda" or "cuda:1", the methods with column vectors compare a query with
    every one of them there; encoders on torch run there too, but the default encoder does not
    use torch. Needs the extra ``train``.

    With a ``vector_store``, "postgresql://host/vectors" or several such addresses, the methods
    with column vectors search in PostgreSQL, where `deepjoin.publish` has put them; if it is
    down, the other methods still work. Not together with a device. Needs the extra ``postgres``.
    """
    if isinstance(path, str) and is_remote(path):
        from deepjoin.store.remote import pull

        return Lake(pull(path).folder, path, device, vector_store)
    folder = Path(path)
    inside = folder / DEFAULT
    within = not is_index(folder) and (inside / MANIFEST).exists()
    return Lake(inside if within else folder, device=device, vector_store=vector_store)
