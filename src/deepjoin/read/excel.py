"""Workbooks (xlsx, xls, xlsb, ods): one table a sheet, the first row its header."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.errors import UnreadableTable
from deepjoin.model import Reading
from deepjoin.normalise.cells import unique_names
from deepjoin.optional import require
from deepjoin.read.formats import unreadable

if TYPE_CHECKING:
    from fastexcel import ExcelReader

_ROWS = 65_536
# The date that a workbook gives a time of day without one, in either calendar of Excel.
_NO_DATE = r"^(1899-12-3[01]|1904-01-01) "


def sheet_names(path: Path) -> list[str]:
    """List the sheets that hold at least one cell, and those too damaged to say."""
    workbook = _open(path)
    names = []
    for name in workbook.sheet_names:
        try:
            if _load(workbook, path, name).num_columns:
                names.append(name)
        except UnreadableTable:  # reading it reports why
            names.append(name)
    return names


def read_sheet(path: Path, sheet: str | None = None) -> Reading:
    """Read one sheet, by default the first that is not empty; every cell as text."""
    workbook = _open(path)
    notes: list[str] = []
    if sheet is None:
        sheets = sheet_names(path)
        if not sheets:
            raise UnreadableTable(f"{path} is empty: none of its sheets holds a cell.")
        sheet = sheets[0]
        if len(sheets) > 1:
            notes.append(f"Only sheet '{sheet}' is read, not {', '.join(sheets[1:])}.")
    cells = _load(workbook, path, sheet)
    header = [column[0].as_py() for column in cells.columns]
    rows = cells.slice(1)
    # A column with neither a name nor a cell is a spacer.
    kept = [
        position
        for position, column in enumerate(rows.columns)
        if header[position] or column.null_count < len(column)
    ]
    names = unique_names(header)
    columns = [pc.replace_substring_regex(rows.column(at), _NO_DATE, "") for at in kept]
    table = pa.RecordBatch.from_arrays(columns, names=[names[at] for at in kept])
    starts = range(0, max(1, table.num_rows), _ROWS)
    return Reading((table.slice(start, _ROWS) for start in starts), notes)


def _open(path: Path) -> ExcelReader:
    fastexcel = require("fastexcel", "excel", f"Reading {path}")
    try:
        # The library reports a file that it may not open as damaged.
        with path.open("rb"):
            workbook: ExcelReader = fastexcel.read_excel(path)
            return workbook
    except (fastexcel.FastExcelError, OSError) as error:
        raise _damaged(path, error) from None


def _load(workbook: ExcelReader, path: Path, sheet: str) -> pa.RecordBatch:
    import fastexcel

    try:
        # As text, because a column of a sheet may mix types, and text is what is compared.
        return workbook.load_sheet(sheet, header_row=None, dtypes="string").to_arrow()
    except fastexcel.FastExcelError as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> UnreadableTable:
    return unreadable(path, error, "is not a readable workbook")
