"""Learns which text columns are integers, decimals or dates throughout, so that they can be cast.

Only text that loses nothing by it counts: `007` is a code, and so is a number of 30 digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.joining.session import Session
from deepjoin.joining.side import SourceColumn
from deepjoin.normalise.canonical import CellType, cell_types
from deepjoin.read.sql import identifier

#: In order of preference; blank cells pass. A double keeps 15 digits; longer text must survive
#: the way there and back.
_CHECKS = {
    "BIGINT": r"regexp_full_match({cell}, ' *|0|-?[1-9][0-9]{0,17}')",
    "DOUBLE": r"regexp_full_match({cell}, ' *|-?(0|[1-9][0-9]*)(\.[0-9]+)?') "
    r"AND (length({cell}) <= 15 OR CAST(TRY_CAST({cell} AS DOUBLE) AS VARCHAR) = {cell})",
    "DATE": r"regexp_full_match({cell}, ' *|[0-9]{4}-[0-9]{2}-[0-9]{2}') "
    r"AND (TRY_CAST({cell} AS DATE) IS NOT NULL OR trim({cell}) = '')",
}
#: Most columns are text and show it in their first rows.
_FIRST_ROWS = 2048
_CELL_TYPES = {
    "BIGINT": {CellType.INTEGER},
    "DOUBLE": {CellType.INTEGER, CellType.DECIMAL},
    "DATE": {CellType.DATE},
}
_ANSWERS_A_QUERY = 300


def learn_casts(
    session: Session, table: str, columns: Sequence[SourceColumn]
) -> dict[str, SourceColumn]:
    """Return, by name, the columns whose every cell that is not blank has one such type."""
    first_rows = session.table(f"SELECT * FROM {table} LIMIT {_FIRST_ROWS}")
    likely = {column.name: _likely(first_rows[column.name]) for column in columns}
    learned: dict[str, SourceColumn] = {}
    for kind in _CHECKS:
        casts = [replace(each, cast=kind) for each in columns if kind in likely[each.name]]
        casts = [column for column in casts if column.name not in learned]
        learned |= {column.name: column for column in _holding(session, table, casts)}
    return _with_blanks(session, table, list(learned.values()))


def _likely(cells: pa.ChunkedArray) -> list[str]:
    """Return the types that some cells leave possible."""
    filled = cells.filter(pc.not_equal(pc.utf8_trim(cells, " "), ""))
    kinds = set(pc.unique(cell_types(filled)).to_pylist())
    return [kind for kind, types in _CELL_TYPES.items() if kinds <= types]


def _holding(session: Session, reads: str, columns: Sequence[SourceColumn]) -> list[SourceColumn]:
    """Keep the columns whose cells all pass the check of their cast."""
    checks = []
    for column in columns:
        check = _CHECKS[column.cast or ""].replace("{cell}", identifier(column.name))
        checks.append(f"bool_and({check})")
    answers = _answers(session, reads, checks)
    return [column for column, holds in zip(columns, answers, strict=True) if holds is not False]


def _with_blanks(
    session: Session, table: str, columns: Sequence[SourceColumn]
) -> dict[str, SourceColumn]:
    """Mark columns that have blank cells, and drop those that have nothing else."""
    # Blank cells sort before '!', digits and signs after it.
    names = [identifier(column.name) for column in columns]
    blank = _answers(session, table, [f"bool_or({name} < '!')" for name in names])
    filled = _answers(session, table, [f"bool_or({name} > '!')" for name in names])
    return {
        column.name: replace(column, has_blanks=has_blanks)
        for column, has_blanks, has_values in zip(columns, blank, filled, strict=True)
        if has_values
    }


def _answers(session: Session, reads: str, questions: Sequence[str]) -> list[Any]:
    """Ask a bounded number of aggregates at a time: tables may have thousands of columns."""
    answers: list[Any] = []
    for start in range(0, len(questions), _ANSWERS_A_QUERY):
        some = ", ".join(questions[start : start + _ANSWERS_A_QUERY])
        answers += session.run(f"SELECT {some} FROM {reads}")[0]
    return answers
