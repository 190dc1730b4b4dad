"""Tools to find one's way: what the lake is, where a text is found, what a table holds."""

from __future__ import annotations

from itertools import islice

from deepjoin.model import ColumnDescription, ColumnSummary, TableSummary, ValueHolder
from deepjoin.serve.mcp.answers import (
    ColumnAnswer,
    ColumnFound,
    FindAnswer,
    LakeAnswer,
    TableAnswer,
    TableFound,
    ValueFound,
)
from deepjoin.serve.mcp.asked import AskFind, AskInfo, AskTable
from deepjoin.serve.mcp.bounds import Cutter, one_line
from deepjoin.serve.mcp.desk import Desk
from deepjoin.show.words import generic_words
from deepjoin.store.catalog import TableEntry
from deepjoin.store.describing import SAMPLES, column_facts

_EXAMPLES, _FIRST, _COLUMNS, _NOTES = 10, 8, 100, 5


def lake_info(desk: Desk, asked: AskInfo) -> LakeAnswer:
    """Describe the lake."""
    report, cutter = desk.lake.report, Cutter()
    total, tables = desk.directory.tables("", 0, _EXAMPLES)
    if total > _EXAMPLES:
        cutter.tell(f"{_EXAMPLES} of {total:,} tables are named; find_tables finds the others")
    return LakeAnswer(
        tables=report.tables,
        columns=report.columns,
        rows=report.rows,
        distinct_values=report.values,
        joins=desk.joins,
        can_write=desk.out is not None,
        values_are_hashed=desk.lake.settings.hash_only,
        not_searchable=dict(report.left_out.most_common()),
        not_read=len(report.skipped),
        examples=[cutter.name(table.name) for table in tables],
        note=_what_next(desk),
        cut=cutter.cut,
    )


def _what_next(desk: Desk) -> str:
    if not desk.lake.report.tables:
        return "The lake holds no tables: nothing can be found or joined."
    meaning = "" if desk.has_meaning else " It has no cell vectors: only equal values match."
    return (
        "Next: find_tables to look around, or search with a table's column or with values."
        + meaning
    )


def find_tables(desk: Desk, asked: AskFind) -> FindAnswer:
    """Find a text in the names of tables and columns, and as a cell."""
    text, limit, cutter = asked.text.strip(), asked.limit, Cutter()
    total, tables = desk.directory.tables(text, 0, limit) if text else (0, [])
    columns = cutter.some(desk.directory.columns(text, limit + 1), limit, "or more columns")
    holding, holders = desk.directory.holders(text, limit)
    for count, what in ((total, "tables"), (holding, "columns that hold the value")):
        if count > limit:
            cutter.tell(f"{limit:,} of {count:,} {what} are listed")
    return FindAnswer(
        tables=[_table_found(one, cutter) for one in tables],
        tables_in_all=total,
        columns=[_column_found(one, cutter) for one in columns],
        holders=[_value_found(one, cutter) for one in holders],
        holders_in_all=holding,
        note="" if total or columns or holding else _not_found(desk, text),
        cut=cutter.cut,
    )


def _table_found(one: TableSummary, cutter: Cutter) -> TableFound:
    return TableFound(
        table=cutter.name(one.name),
        title=cutter.cell(one.title),
        rows=one.rows,
        columns=one.columns,
        first_columns=[cutter.cell(name) for name in one.names[:_FIRST]],
    )


def _column_found(one: ColumnSummary, cutter: Cutter) -> ColumnFound:
    return ColumnFound(
        table=cutter.name(one.table),
        column=cutter.name(one.column),
        type=one.type,
        distinct=one.distinct,
    )


def _value_found(one: ValueHolder, cutter: Cutter) -> ValueFound:
    return ValueFound(table=cutter.name(one.table), column=cutter.name(one.column), rows=one.rows)


def _not_found(desk: Desk, text: str) -> str:
    report = desk.lake.report
    return (
        f"Nothing: none of {report.tables:,} tables and {report.columns:,} columns has "
        f"'{one_line(text, 60)}' in its name, and no indexed cell equals it. Try a shorter part of "
        f"the name; for other spellings of a value, search with values=['{one_line(text, 60)}']."
    )


def describe_table(desk: Desk, asked: AskTable) -> TableAnswer:
    """Describe a table from what the index holds; its file is not opened."""
    entry, cutter = desk.lake.table(asked.table), Cutter()
    shown = list(islice(column_facts(desk.lake.index, entry.name), _COLUMNS))
    count = len(entry.columns) or len(desk.lake.index.indexed_columns(entry.name))
    if count > len(shown):
        cutter.tell(f"{len(shown):,} of {count:,} columns are listed")
    return TableAnswer(
        table=cutter.name(entry.name),
        title=cutter.cell(entry.title),
        context=cutter.cell(entry.context),
        rows=entry.rows,
        columns=[_column(entry, one, cutter) for one in shown],
        sample=_sample(entry, [one.name for one in shown], asked.rows, cutter),
        mended=[cutter.cell(note) for note in cutter.some(entry.notes, _NOTES, "notes")],
        note="Search with a column that is searchable and has no warning.",
        cut=cutter.cut,
    )


def _column(entry: TableEntry, facts: ColumnDescription, cutter: Cutter) -> ColumnAnswer:
    return ColumnAnswer(
        column=cutter.name(facts.name),
        type=facts.type,
        distinct=facts.distinct,
        searchable=facts.indexed,
        why_not=facts.left_out,
        warning=generic_words(facts.generic),
        samples=[cutter.cell(cell) for cell in facts.samples or _seen(entry, facts.name)],
    )


def _seen(entry: TableEntry, column: str) -> list[str]:
    """List the cells that the first rows have of a column which is not indexed."""
    cells = (row.get(column) for row in entry.sample)
    return list(dict.fromkeys(cell for cell in cells if cell))[:SAMPLES]


def _sample(
    entry: TableEntry, names: list[str], rows: int, cutter: Cutter
) -> list[dict[str, str | None]]:
    if rows > len(entry.sample) and entry.rows > len(entry.sample):
        cutter.tell(f"the index keeps {len(entry.sample)} of {entry.rows:,} rows")
    return [
        {cutter.name(name): _cell(row.get(name), cutter) for name in names}
        for row in entry.sample[:rows]
    ]


def _cell(text: str | None, cutter: Cutter) -> str | None:
    return None if text is None else cutter.cell(text)
