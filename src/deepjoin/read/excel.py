"""Workbooks (xlsx, xls, xlsb, ods): one table a sheet, the first row its header."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.errors import MissingExtra, UnreadableTable
from deepjoin.model import Reading
from deepjoin.normalise.cells import unique_names
from deepjoin.read.formats import unreadable

if TYPE_CHECKING:
    from fastexcel import ExcelReader

_ROWS = 65_536
# How a workbook dates a time of day without a date; the two calendars of Excel.
_NO_DATE = r"^(1899-12-3[01]|1904-01-01) "


def sheet_names(path: Path) -> list[str]:
    """List the sheets that hold at least one cell, and those too damaged to say."""
    workbook = _open(path)
    return [name for name in workbook.sheet_names if not _is_empty(workbook, path, name)]


def _is_empty(workbook: ExcelReader, path: Path, sheet: str) -> bool:
    try:
        return bool(_load(workbook, path, sheet).num_columns == 0)
    except UnreadableTable:
        return False


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
    return Reading(_batches(_load(workbook, path, sheet)), notes)


def _batches(cells: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Name the columns by the first row; one with neither name nor cell is a spacer."""
    header = [column[0].as_py() for column in cells.columns]
    rows = cells.slice(1)
    kept = [
        position
        for position, column in enumerate(rows.columns)
        if header[position] or column.null_count < len(column)
    ]
    names = unique_names(header)
    columns = [pc.replace_substring_regex(rows.column(at), _NO_DATE, "") for at in kept]
    table = pa.RecordBatch.from_arrays(columns, names=[names[at] for at in kept])
    for start in range(0, max(1, table.num_rows), _ROWS):
        yield table.slice(start, _ROWS)


def _open(path: Path) -> ExcelReader:
    try:
        import fastexcel
    except ImportError:
        raise MissingExtra(
            f"Reading {path} needs the Excel extra: pip install 'deepjoin[excel]'"
        ) from None
    try:
        # The library calls a file damaged that it may not open.
        with path.open("rb"):
            return fastexcel.read_excel(path)
    except (fastexcel.FastExcelError, OSError) as error:
        raise _damaged(path, error) from None


def _load(workbook: ExcelReader, path: Path, sheet: str) -> pa.RecordBatch:
    import fastexcel

    try:
        # As text, for a column of a sheet may mix types and text is what is compared.
        return workbook.load_sheet(sheet, header_row=None, dtypes="string").to_arrow()
    except fastexcel.FastExcelError as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> UnreadableTable:
    return unreadable(path, error, "is not a readable workbook")
