"""Whole columns of one table, for a query."""

from __future__ import annotations

from deepjoin.columns import Column, Table
from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.sources.cells import as_strings


def read_columns(table: Table, only: str | None = None) -> list[Column]:
    """Read the columns of a table, or the one that is named.

    >>> from deepjoin.sources.frames import frame_table
    >>> [column.name for column in read_columns(frame_table({"id": [1, 2], "city": ["a", "b"]}))]
    ['id', 'city']
    """
    cells: dict[str, list[str | None]] = {}
    names: dict[str, None] = {}
    rows = 0
    for batch in table.open():
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            names[name] = None
            strings = as_strings(array) if only in (None, name) else None
            if strings is not None:
                column = cells.setdefault(name, [None] * rows)
                column.extend([None] * (rows - len(column)))
                column.extend(strings.to_pylist())
        rows += batch.num_rows
    if only is not None and only not in names:
        raise unknown_name("column", only, table.name, names)
    if not cells:
        raise DeepJoinError(f"{table.name} has no column that could be searched with.")
    return [Column(c, name, table.name, table.title, table.context) for name, c in cells.items()]
