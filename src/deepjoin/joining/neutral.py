"""Cells that a spreadsheet would run as formulas, made text."""

from __future__ import annotations

import re
from dataclasses import replace

from deepjoin.joining.select import OutputColumn
from deepjoin.joining.sql import JoinSql

#: What a formula may start with; a plain number may start so as well, and is left alone.
_FORMULA = r"^[=+\-@\t\r\n]"
_NUMBER = r"[+\-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+\-]?[0-9]+)?"


def neutral(join: JoinSql) -> JoinSql:
    """Write the same join with a ``'`` before every cell and name that starts like a formula."""
    parts = (join.left_columns, join.between, join.right_columns)
    left, between, right = (tuple(map(_neutral, columns)) for columns in parts)
    return replace(join, left_columns=left, between=between, right_columns=right)


def _neutral(column: OutputColumn) -> OutputColumn:
    cell = f"CAST({column.text} AS VARCHAR)"
    text = (
        f"CASE WHEN regexp_matches({cell}, '{_FORMULA}') "
        f"AND NOT regexp_full_match({cell}, '{_NUMBER}') THEN '''' || {cell} ELSE {cell} END"
    )
    return OutputColumn(neutral_text(column.name), text, text)


def neutral_text(text: str) -> str:
    """Put a ``'`` before a text that a spreadsheet would run.

    >>> neutral_text("=1+1"), neutral_text("-5"), neutral_text("a=b")
    ("'=1+1", '-5', 'a=b')
    """
    runs = re.match(_FORMULA, text) and not re.fullmatch(_NUMBER, text)
    return f"'{text}" if runs else text
