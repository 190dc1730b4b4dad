"""Tools to look at a join and to write it: into the folder that was given, nowhere else."""

from __future__ import annotations

import pyarrow as pa

from deepjoin.errors import DeepJoinError
from deepjoin.joining import JoinPlan
from deepjoin.joining.texts import row_texts
from deepjoin.model import Column, Table
from deepjoin.read.frames import table_of_columns
from deepjoin.serve.mcp.answers import ColumnShown, FactsAnswer, FileAnswer, PreviewAnswer
from deepjoin.serve.mcp.asked import AskFile, AskJoin, AskPreview
from deepjoin.serve.mcp.bounds import Cutter, one_line
from deepjoin.serve.mcp.desk import Desk
from deepjoin.serve.saving import save_join

_COLUMNS, _WARNINGS = 50, 20
#: A join with more rows is none to be started by a tool.
_MOST_ROWS = 5_000_000
_VALUES = "value"


def preview_join(desk: Desk, asked: AskPreview) -> PreviewAnswer:
    """Plan a join and show its first rows."""
    cutter = Cutter()
    with _planned(desk, asked) as plan:
        rows, brought = plan.preview(asked.rows), plan.brought
        if plan.facts.result_rows > rows.num_rows:
            cutter.tell(f"{rows.num_rows:,} of {plan.facts.result_rows:,} rows are shown")
        names = cutter.some(rows.column_names, _COLUMNS, "columns")
        return PreviewAnswer(
            columns=[ColumnShown(column=cutter.name(n), is_new=n in brought) for n in names],
            rows=_cells(rows.select(names), cutter),
            facts=_facts(plan, cutter),
            warnings=_warnings(plan, cutter),
            note=_how_to_write(desk),
            cut=cutter.cut,
        )


def _how_to_write(desk: Desk) -> str:
    if desk.out is not None:
        return "Nothing was written; join writes the whole table."
    return (
        "Nothing was written. This server only reads: to have joins written, its user starts it "
        "with --out FOLDER."
    )


def join(desk: Desk, asked: AskFile) -> FileAnswer:
    """Run a join into a new file of the output folder."""
    if desk.out is None:
        raise DeepJoinError(_how_to_write(desk))
    cutter = Cutter()
    with _planned(desk, asked) as plan:
        path, rows = save_join(
            plan, desk.out, asked.name, asked.format, asked.neutralise, _MOST_ROWS
        )
        return FileAnswer(
            file=path.name,
            path=str(path),
            rows=rows,
            bytes=path.stat().st_size,
            facts=_facts(plan, cutter),
            warnings=_warnings(plan, cutter),
            cut=cutter.cut,
        )


def _planned(desk: Desk, asked: AskJoin) -> JoinPlan:
    left, on = _left(desk, asked)
    hit = asked.target_table, asked.target_column
    return desk.lake.plan_join(left, on, hit, how=asked.how, many=asked.many, join=asked.join)


def _left(desk: Desk, asked: AskJoin) -> tuple[Table, str]:
    """Find the left table: one of the lake by its name, never by a path, or the values sent."""
    if asked.values is None and asked.table is not None and asked.column is not None:
        return desk.lake.index.origin(asked.table).table(), asked.column
    query = desk.query(asked)
    on = query.name or _VALUES
    return table_of_columns("values", [Column(query.cells, on)]), on


def _cells(rows: pa.Table, cutter: Cutter) -> list[list[str | None]]:
    return [
        [None if cell is None else cutter.cell(cell) for cell in row] for row in row_texts(rows)
    ]


def _facts(plan: JoinPlan, cutter: Cutter) -> FactsAnswer:
    facts = plan.facts
    renamed = cutter.some(facts.renamed.items(), _COLUMNS, "renamed columns")
    return FactsAnswer(
        join=facts.join,
        left_rows=facts.left_rows,
        matched_left_rows=facts.matched_left_rows,
        left_keys=facts.left_keys,
        matched_keys=facts.matched_keys,
        result_rows=facts.result_rows,
        cardinality=facts.cardinality,
        most_rows_for_one_key=facts.max_fan_out,
        renamed={cutter.name(old): cutter.name(new) for old, new in renamed},
    )


def _warnings(plan: JoinPlan, cutter: Cutter) -> list[str]:
    return [one_line(text) for text in cutter.some(plan.warnings, _WARNINGS, "warnings")]
