"""Rows of a join as texts, the same wherever they are shown."""

from __future__ import annotations

import pyarrow as pa

from deepjoin.normalise.cells import as_strings


def row_texts(rows: pa.Table) -> list[list[str | None]]:
    """Give each row as a list of texts, missing cells as None.

    >>> row_texts(pa.table({"n": [7.0, None], "is": [True, False]}))
    [['7', 'true'], [None, 'false']]
    """
    columns = [_cells(column) for column in rows.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def _cells(column: pa.ChunkedArray) -> list[str | None]:
    strings = as_strings(column)
    if strings is None:  # nested, or bytes
        return [None if cell is None else str(cell) for cell in column.to_pylist()]
    cells: list[str | None] = strings.to_pylist()
    return cells
