"""The tools: look around, search, explain, join; each takes the session and its arguments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from math import floor
from pathlib import Path

from deepjoin.errors import DeepJoinError
from deepjoin.joining import JoinPlan
from deepjoin.joining.output import JoinLimits, row_texts, save_join
from deepjoin.lake import Lake
from deepjoin.model import Column, EquiEvidence, Hit, Results, SemanticEvidence
from deepjoin.read.frames import (
    as_column,
    read_rows,
    table_of_columns,
)
from deepjoin.search.methods import joins_of
from deepjoin.serve.current import CurrentLake
from deepjoin.serve.mcp.answers import (
    ColumnAnswer,
    Cutter,
    ExplainAnswer,
    FileAnswer,
    FindAnswer,
    HitAnswer,
    JoinCounts,
    LakeAnswer,
    OtherColumn,
    PageAnswer,
    PathsAnswer,
    PreviewAnswer,
    SearchAnswer,
    TableAnswer,
    ToolCoverage,
)
from deepjoin.serve.mcp.arguments import (
    ExplainArguments,
    FileArguments,
    FindArguments,
    InfoArguments,
    JoinArguments,
    PageArguments,
    PathArguments,
    PreviewArguments,
    QueryArguments,
    SearchArguments,
    TableArguments,
)
from deepjoin.settings import JoinSettings, SearchSettings, fields_of
from deepjoin.show.text import cardinality_words, count, generic_words, one_line, set_apart
from deepjoin.show.wording import in_tool_arguments
from deepjoin.store.directory import SAMPLES, column_facts, column_values

#: Tables named by lake_info, columns and notes of a table.
_EXAMPLES, _COLUMNS, _NOTES = 10, 100, 5
#: Matched cells, new columns and other columns that a hit of a search lists.
_CELLS, _BROUGHT, _ALSO = 5, 20, 10
#: Columns and warnings of a preview, and rows of a join that a tool may write.
_JOINED, _WARNINGS = 50, 20
_MOST = JoinLimits(rows=5_000_000, bytes=2 << 30)


class AgentSession:
    """One open lake for one agent; tools use it one after the other."""

    def __init__(self, lake: Lake, out: Path | None = None) -> None:
        self.out = out
        # Checked at every call, so that an agent finds what it has just indexed.
        self._current = CurrentLake(lake, every=0.0)

    def renew(self) -> None:
        """Open the newest index, if it has changed."""
        if self._current.is_due():
            self._current.renew()

    @property
    def lake(self) -> Lake:
        """The lake of the call that runs."""
        return self._current.lake

    @property
    def has_meaning(self) -> bool:
        """Whether values can be compared by meaning."""
        return self.lake.context().has_cells

    def query(self, args: QueryArguments) -> Column:
        """Find the query column: one of the lake by its names, or the values that were sent."""
        if isinstance(args.column, list):
            raise DeepJoinError(
                "A list of columns is a key of several columns of a table of this lake: pass it "
                "as table and column, without values."
            )
        if args.values is not None and args.table is None:
            return Column(as_column(args.values).cells, args.column or "")
        if args.table is not None and args.column is not None and args.values is None:
            return self.lake.column(self.lake.index.full_name(args.table), args.column)
        raise DeepJoinError(
            "Pass the query column either as table and column, both names of this lake, or as "
            "values, a list of cells. Paths of files are not opened."
        )

    def queries(self, args: QueryArguments) -> list[Column]:
        """Find the query column, or all columns of a table that can be searched with."""
        if args.table is None or isinstance(args.column, str) or args.values is not None:
            return [self.query(args)]
        return self._current.opened.columns(self.lake.index.full_name(args.table), args.column)

    def lake_info(self, args: InfoArguments) -> LakeAnswer:
        """Describe the lake."""
        report, cutter = self.lake.report, Cutter()
        total, tables = self._current.opened.directory.tables("", 0, _EXAMPLES)
        if total > _EXAMPLES:
            cutter.note(f"{_EXAMPLES} of {total:,} tables are named; find_tables finds the others")
        note = "Next: find_tables to look around, or search with a table's column or with values."
        if not report.tables:
            note = "The lake holds no tables: nothing can be found or joined."
        elif not self.has_meaning:
            note += " It has no cell vectors: only equal values match."
        return LakeAnswer(
            tables=report.tables,
            columns=report.columns,
            rows=report.rows,
            distinct_values=report.values,
            joins=joins_of(self.lake.context()),
            can_write=self.out is not None,
            values_are_hashed=self.lake.settings.hash_only,
            not_searchable=dict(report.left_out.most_common()),
            not_read=len(report.skipped),
            examples=[table.name for table in tables],
            note=note,
            cut=cutter.cut,
        )

    def find_tables(self, args: FindArguments) -> FindAnswer:
        """Find a text in the names of tables and columns, and as a cell."""
        text, limit, cutter = args.text.strip(), args.limit, Cutter()
        directory = self._current.opened.directory
        total, tables = directory.tables(text, 0, limit) if text else (0, [])
        columns = cutter.some(directory.columns(text, limit + 1), limit, "or more columns")
        holding, holders = directory.holders(text, limit)
        for number, what in ((total, "tables"), (holding, "columns that hold the value")):
            if number > limit:
                cutter.note(f"{limit:,} of {number:,} {what} are listed")
        note, report = "", self.lake.report
        if not (total or columns or holding):
            note = (
                f"Nothing: none of {report.tables:,} tables and {report.columns:,} columns has "
                f"'{one_line(text, 60)}' in its name, and no indexed cell equals it. Try a shorter "
                "part of the name; for other spellings of a value, search with "
                f"values=['{one_line(text, 60)}']."
            )
        return FindAnswer(
            tables=tables,
            tables_in_all=total,
            columns=columns,
            holders=holders,
            holders_in_all=holding,
            note=note,
            cut=cutter.cut,
        )

    def describe_table(self, args: TableArguments) -> TableAnswer:
        """Describe a table from the index; its file is not opened."""
        cutter, index = Cutter(), self.lake.index
        entry = index.table(index.full_name(args.table))
        columns = list(islice(column_facts(index, entry.name), _COLUMNS))
        total = len(entry.columns) or len(index.indexed_columns(entry.name))
        if total > len(columns):
            cutter.note(f"{len(columns):,} of {total:,} columns are listed")
        if args.rows > len(entry.sample) and entry.rows > len(entry.sample):
            cutter.note(f"{len(entry.sample)} of {entry.rows:,} rows; read_table has all")

        def samples(column: str) -> list[str]:
            # A column that is not indexed has samples only in the first rows of the table.
            cells = (row.get(column) for row in entry.sample)
            return list(dict.fromkeys(cell for cell in cells if cell))[:SAMPLES]

        return TableAnswer(
            table=entry.name,
            title=entry.title,
            context=entry.context,
            rows=entry.rows,
            columns=[
                ColumnAnswer(
                    column=one.name,
                    type=one.type,
                    distinct=one.distinct,
                    searchable=one.indexed,
                    why_not=one.left_out,
                    warning=generic_words(one.generic),
                    samples=one.samples or samples(one.name),
                )
                for one in columns
            ],
            sample=[
                {one.name: row.get(one.name) for one in columns}
                for row in entry.sample[: args.rows]
            ],
            mended=cutter.some(entry.notes, _NOTES, "notes"),
            note="Search with a column that is searchable and has no warning.",
            cut=cutter.cut,
        )

    def read_table(self, args: PageArguments) -> PageAnswer:
        """Read a page of the rows of a table, or of the distinct values of a column."""
        index, cutter = self.lake.index, Cutter()
        table, end = index.full_name(args.table), args.offset + args.limit
        if args.column is not None:
            total, counts = column_values(index, table, args.column, args.offset, args.limit)
            columns = ["value", "rows"]
            rows: list[list[str | None]] = [[cell, str(number)] for cell, number in counts]
        else:
            page = read_rows(index.origin(table).table(), args.offset, args.limit)
            columns = cutter.some(page.column_names, _JOINED, "columns")
            # A collection of columns does not record rows.
            total, rows = index.table(table).rows, row_texts(page.select(columns))
        return PageAnswer(
            columns=columns,
            rows=rows,
            total=total,
            next_offset=end if len(rows) == args.limit and end != total else None,
            note="" if rows else f"There are no rows from {args.offset:,} on.",
            cut=cutter.cut,
        )

    def find_paths(self, args: PathArguments) -> PathsAnswer:
        """Find the chains of joins between two tables."""
        index = self.lake.index
        ends = index.full_name(args.start), index.full_name(args.end)
        found = self.lake.paths(*ends, min_joinability=args.min_joinability, longest=args.longest)
        note = "preview_join shows one join of a path at a time."
        if not found.paths:
            sure = "" if found.complete else " The search was cut short, so there may be one."
            note = (
                f"No path of at most {count(args.longest, 'join')} on equal values, each with "
                f"joinability >= {args.min_joinability:g}.{sure} Try a lower min_joinability, or "
                "search with a column of either table, which also finds other spellings."
            )
        return PathsAnswer(
            paths=found.paths,
            probabilities=found.probabilities,
            searched_columns=found.searched,
            complete=found.complete,
            note=note,
        )

    def search(self, args: SearchArguments) -> SearchAnswer:
        """Find the columns that join with the query; without a column, with the best key."""
        cutter, report = Cutter(), self.lake.report
        keys = "together" if isinstance(args.column, list) else "each"
        group = "tables" if args.one_per_table else None
        settings = SearchSettings(group=group, keys=keys, matches=_CELLS, least=args.least)

        def searched(k: int, least: float) -> Results:
            return self.lake.search(
                queries, k, join=args.join, min_joinability=least, settings=settings
            )

        queries = self.queries(args)
        results = searched(args.k, args.min_joinability)
        query = next(one for one in queries if one.name == results.query["column"])
        if isinstance(args.column, list):
            query = replace(query, name=",".join(args.column))
        if not results.query["size"]:
            raise DeepJoinError("The query column has no values: every cell is missing or blank.")
        # Columns of the query's own table are not compared.
        own = 0 if query.table is None else len(self.lake.index.indexed_columns(query.table))
        answer = SearchAnswer(
            query=_query_name(query),
            query_size=results.query["size"],
            join=args.join,
            compared_columns=report.columns - own,
            compared_tables=report.tables - (query.table is not None),
            hits=[_hit(hit, cutter, _CELLS) for hit in results],
            note="explain shows all evidence of a hit, preview_join the joined table.",
            other_columns=[
                OtherColumn(
                    one.query["column"],
                    f"{one[0].table}:{one[0].column}" if one else "",
                    one[0].joinability if one else 0.0,
                )
                for one in cutter.some(results.others, _COLUMNS, "other columns")
            ],
        )
        if results.unlikely:
            cutter.note(set_apart(results, "least=0 lists them"))
        if results:
            if len(results) == args.k:
                cutter.note(f"there may be more than {args.k} hits; ask for a larger k")
            return replace(answer, cut=cutter.cut)
        nearest = searched(1, 0.0) if args.min_joinability else ()
        best = _hit(nearest[0], cutter, _CELLS) if nearest else None
        if best is not None:
            found = (
                f"None reaches min_joinability {args.min_joinability:g}; without it the first hit "
                f"is {best.table}:{best.column} with joinability {best.joinability:.3f}."
            )
        elif args.join == "equi" or not self.has_meaning:
            found = "None of the values occurs in any of these columns."
        else:
            found = "None of these columns holds a value that equals one of them or means the same."
        note = (
            f"Nothing joins: {count(answer.query_size, 'distinct value')} of {answer.query} "
            f"compared with {count(answer.compared_columns, 'column')} of "
            f"{count(answer.compared_tables, 'table')} (join {args.join}). {found}"
        )
        advice = self._advice(args, best)
        return replace(answer, best_below=best, advice=advice, note=note, cut=cutter.cut)

    def _advice(self, args: SearchArguments, best: HitAnswer | None) -> list[str]:
        """List what to try when nothing joins, the most promising first."""
        tries = []
        if best is not None:
            reached = floor(100 * best.joinability) / 100
            tries.append(f"min_joinability={reached:g} or lower, if that is enough for you")
        if args.join == "equi" and self.has_meaning:
            tries.append("join='any', which also finds other spellings")
        if not self.has_meaning:
            tries.append("values spelled as in the lake: this index compares equal values only")
        if args.table is not None:
            tries.append(f"another column of {one_line(args.table, 100)}: see describe_table")
        tries.append("find_tables with one value or a word of the subject, to see what there is")
        return tries

    def explain(self, args: ExplainArguments) -> ExplainAnswer:
        """Measure one pair of columns."""
        queries, cutter = self.queries(args), Cutter()
        query = queries[0] if isinstance(args.column, list) else self.query(args)
        target = self.lake.index.full_name(args.target_table), args.target_column
        settings = SearchSettings(matches=args.cells)
        mine = queries if isinstance(args.column, list) else query
        hit = self.lake.explain(mine, target, join=args.join, settings=settings)
        if isinstance(args.column, list):
            query = replace(query, name=",".join(args.column))
        evidence = _hit(hit, cutter, args.cells)
        if self.lake.settings.hash_only:
            cutter.note("the index holds hashes of values: no cells can be listed")
        note = "No value matches: these columns do not join."
        if hit.matched:
            matched = f"{hit.matched:,} of {hit.query_size:,} values match"
            note = f"{matched}; {cardinality_words(hit.cardinality)}. {generic_words(hit.generic)}"
        return ExplainAnswer(
            query=_query_name(query),
            joins=hit.matched > 0,
            evidence=evidence,
            note=note.strip(),
            cut=cutter.cut,
        )

    def preview_join(self, args: PreviewArguments) -> PreviewAnswer:
        """Plan a join and show its first rows."""
        cutter = Cutter()
        with self._planned(args) as plan:
            rows, total = plan.preview(args.rows), plan.facts.result_rows
            if total > rows.num_rows:
                cutter.note(f"{rows.num_rows:,} of {total:,} rows are shown")
            names = cutter.some(rows.column_names, _JOINED, "columns")
            note = "Nothing was written; join writes the whole table."
            if self.out is None:
                note = (
                    "Nothing was written: this server is read-only. Its user can let it write "
                    "joins by starting it with: deepjoin mcp --out FOLDER"
                )
            return PreviewAnswer(
                columns=names,
                new_columns=[name for name in names if name in plan.brought],
                rows=row_texts(rows.select(names)),
                facts=_counts(plan, cutter),
                warnings=_warnings(plan, cutter),
                note=note,
                cut=cutter.cut,
            )

    def join(self, args: FileArguments) -> FileAnswer:
        """Run a join into a new file of the output folder; offered only where there is one."""
        assert self.out is not None
        cutter = Cutter()
        with self._planned(args) as plan:
            path, rows = save_join(plan, self.out, args.name, args.format, args.neutralise, _MOST)
            return FileAnswer(
                file=path.name,
                path=str(path),
                rows=rows,
                bytes=path.stat().st_size,
                facts=_counts(plan, cutter),
                warnings=_warnings(plan, cutter),
                cut=cutter.cut,
            )

    @contextmanager
    def _planned(self, args: JoinArguments) -> Iterator[JoinPlan]:
        """Plan a join; the left table is one of the lake by name, never a path, or the values."""
        if args.values is None and args.table is not None and args.column is not None:
            table = self.lake.index.full_name(args.table)
            left = self.lake.index.origin(table).table()
            on: str | list[str] = args.column
        else:
            query = self.query(args)
            on = query.name or "value"
            left = table_of_columns("values", [Column(query.cells, query.name or "value")])
        hit = self.lake.index.full_name(args.target_table), args.target_column
        settings = JoinSettings(columns=args.columns, aggregate=args.aggregate)
        with self.lake.plan_join(
            left, on, hit, how=args.how, many=args.many, join=args.join, settings=settings
        ) as plan:
            yield plan


def _query_name(query: Column) -> str:
    if query.table is not None:
        return f"{query.table}:{query.name}"
    return f"the values sent as '{query.name}'" if query.name else "the values sent"


def _hit(hit: Hit, cutter: Cutter, cells: int) -> HitAnswer:
    """Describe a hit; ``cells`` is how many cells of each kind were requested."""
    for number, listed, what in (
        (hit.matched, len(hit.matches), "matched"),
        (hit.query_size - hit.matched, len(hit.unmatched), "unmatched"),
    ):
        if number > listed:
            cutter.note(f"at most {cells} {what} cells a hit are listed")
    semantic = hit.semantic
    changed = {
        "equal": _coverage(hit.equi),
        "equal_or_similar": None if semantic is None else _coverage(semantic),
        "rows_meet": cardinality_words(hit.cardinality),
        "warning": generic_words(hit.generic),
        "longer_key": _longer_key(hit),
        "programs": [program.text for program in hit.programs],
        "brings": cutter.some(hit.brings.columns, _BROUGHT, "new columns"),
        "also": [one.column for one in cutter.some(hit.also, _ALSO, "other columns")],
        "suggested_join": "equi" if semantic is None else hit.join,
    }
    return HitAnswer(**fields_of(HitAnswer, hit) | changed)


def _longer_key(hit: Hit) -> str:
    if hit.better is None:
        return ""
    key = f"{', '.join(hit.better.on)} = {', '.join(hit.better.columns)}"
    return f"{key}: {hit.better.rows:,} rows instead of {hit.better.instead_of:,}"


def _coverage(evidence: EquiEvidence | SemanticEvidence) -> ToolCoverage:
    return ToolCoverage(evidence.joinability, evidence.reverse, evidence.matched)


def _counts(plan: JoinPlan, cutter: Cutter) -> JoinCounts:
    facts = plan.facts
    renamed = cutter.some(facts.renamed.items(), _JOINED, "renamed columns")
    changed = {"most_rows_for_one_key": facts.max_fan_out, "renamed": dict(renamed)}
    return JoinCounts(**fields_of(JoinCounts, facts) | changed)


def _warnings(plan: JoinPlan, cutter: Cutter) -> list[str]:
    return [in_tool_arguments(text) for text in cutter.some(plan.warnings, _WARNINGS, "warnings")]
