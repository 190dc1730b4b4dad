"""Write a table that is in memory, such as an enriched one, to a file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.errors import DeepJoinError
from deepjoin.files import written_aside
from deepjoin.joining.output import FORMULA, NUMBER, plain_text


def check_output(path: Path) -> None:
    """Refuse a file whose extension is not one that can be written."""
    if path.suffix.lower() not in (".parquet", ".csv"):
        raise DeepJoinError(f"Cannot write {path.name}: an enriched table is .parquet or .csv.")


def write_table(table: pa.Table, path: Path, neutralise: bool = False) -> None:
    """Write a table; the file appears when it is complete.

    Neutralised, a CSV file has a ``'`` before cells that a spreadsheet would run as formulas.
    """
    check_output(path)
    with written_aside(path) as aside:
        if path.suffix.lower() == ".parquet":
            import pyarrow.parquet as pq

            pq.write_table(table, aside)
        else:
            import pyarrow.csv as csv

            csv.write_csv(_for_csv(table, neutralise), aside)


def _for_csv(table: pa.Table, neutralise: bool) -> pa.Table:
    columns = []
    for column in table.columns:
        if pa.types.is_nested(column.type):  # CSV has no such types
            cells = [None if cell is None else str(cell) for cell in column.to_pylist()]
            column = pa.chunked_array([pa.array(cells, pa.string())])
        elif pa.types.is_string_view(column.type) or pa.types.is_dictionary(column.type):
            column = column.cast(pa.string())
        is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        columns.append(_without_formulas(column) if neutralise and is_text else column)
    names = [plain_text(name) if neutralise else name for name in table.column_names]
    return pa.table(columns, names=names)


def _without_formulas(column: pa.ChunkedArray) -> pa.ChunkedArray:
    is_number = pc.match_substring_regex(column, f"^({NUMBER})$")
    runs = pc.and_not(pc.match_substring_regex(column, FORMULA), is_number)
    return pc.if_else(runs, pc.binary_join_element_wise("'", column, ""), column)
