"""Whether what a segment says of its tables fits its arrays: entries, ledger and report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deepjoin.arrays import Strings
from deepjoin.normalise.canonical import CellType
from deepjoin.store.catalog import ColumnEntry, TableEntry
from deepjoin.store.ledger import LEDGER, entries_of, read_ledger
from deepjoin.store.report import REPORT, BuildReport

Arrays = Mapping[str, npt.NDArray[Any]]

#: What JSON of another form than ours makes its readers raise.
MISREAD = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
_TYPES = tuple(kind.name.lower() for kind in CellType)


def content_problems(
    folder: Path, arrays: Arrays, removed: Collection[int], kinds: Sequence[str]
) -> Iterator[str]:
    """Say what is wrong with a segment whose arrays are sound.

    ``removed`` are the tables that left, ``kinds`` those of the lake's sources.
    """
    tables = len(arrays["table_items"])
    if not all(0 <= number < tables for number in removed):
        yield "removed tables, in the manifest, are not there"
    yield from _ledger_problems(folder, arrays["table_items"], len(kinds))
    try:
        counted = _counted(folder, arrays)
    except MISREAD:
        yield "table_entries.bytes.npy is not what was written"
        return
    yield from counted.problems
    yield from _report_problems(folder, counted, exact="corpus" not in kinds)


def _ledger_problems(folder: Path, items: npt.NDArray[Any], sources: int) -> Iterator[str]:
    try:
        ledger = read_ledger(folder)
        ledger.validate(full=True)
        whole = not any(column.null_count for column in ledger.columns)
        keys = [entry.key for entry in entries_of(ledger)] if whole else []
    except (*MISREAD, pa.ArrowException, OSError):
        whole = False
    if not whole:
        yield f"{LEDGER} is not what was written"
    elif not all(0 <= key.source < sources for key in keys):
        yield f"{LEDGER} names sources that are not there"
    elif len(items) and int(items.max()) >= len(keys):
        yield f"table_items.npy names items that {LEDGER} does not have"


class _Counted(NamedTuple):
    """What the entries of all tables add up to."""

    report: BuildReport
    problems: list[str]


def _counted(folder: Path, arrays: Arrays) -> _Counted:
    """Read the entries of all tables, and see that their columns are those of the arrays."""
    columns = _Columns(folder, arrays)
    names, texts = (Strings.load(folder, of) for of in ("table_names", "table_entries"))
    report = BuildReport(
        len(names), len(arrays["column_tables"]), cells=int(arrays["column_cells"].sum())
    )
    problems = []
    for number in range(len(names)):
        entry = TableEntry.from_json(names[number], texts[number])
        _check_types(entry)
        report.rows += entry.rows
        report.notes += [(entry.name, note) for note in entry.notes]
        if not entry.columns:  # a corpus says nothing of columns beyond those it holds
            continue
        report.left_out.update(c.left_out.split(" (")[0] for c in entry.columns if c.left_out)
        if not columns.are(number, entry):
            problems.append(f"table_entries.bytes.npy tells other columns of {entry.name}")
    return _Counted(report, problems)


def _check_types(entry: TableEntry) -> None:
    texts = {type(entry.title), type(entry.context), *map(type, entry.notes)}
    if texts != {str} or type(entry.rows) is not int or {*map(type, entry.sample)} - {dict}:
        raise TypeError("not an entry")


class _Columns:
    """The columns of each table, as the arrays have them."""

    def __init__(self, folder: Path, arrays: Arrays) -> None:
        self._arrays = arrays
        self._names = Strings.load(folder, "column_names")
        self._ids = Strings.load(folder, "column_ids")
        self._sizes = np.diff(arrays["column_offsets"])

    def are(self, table: int, entry: TableEntry) -> bool:
        """Tell whether an entry has these columns as indexed ones, and none of them elsewhere."""
        start, stop = self._arrays["table_column_offsets"][table : table + 2]
        numbers = self._arrays["table_columns"][start:stop]
        stored = [
            (self._ids[i], ColumnEntry(self._names[i], _TYPES[kind], size))
            for i, kind, size in zip(
                numbers.tolist(),
                self._arrays["column_types"][numbers].tolist(),
                self._sizes[numbers].tolist(),
                strict=True,
            )
        ]
        named = ((f"{entry.name}#{i}", one) for i, one in enumerate(entry.columns))
        if [pair for pair in named if not pair[1].left_out] != stored:
            return False
        return self._have_rows(numbers, entry.rows)

    def _have_rows(self, columns: npt.NDArray[Any], rows: int) -> bool:
        """Tell whether every value of these columns, which are neighbours, is in a row."""
        if len(columns) == 0:
            return True
        offsets, first = self._arrays["column_offsets"], self._arrays["cell_rows"]
        start, stop = offsets[columns.min()], offsets[columns.max() + 1]
        return int(first[start:stop].max()) < rows


def _report_problems(folder: Path, counted: _Counted, exact: bool) -> Iterator[str]:
    """Compare the report with what it reports on; of a corpus, only it knows what was left out."""
    try:
        report = BuildReport.load(folder)
        told = (report.tables, report.columns, report.rows, report.cells)
        same = told == (*_numbers(counted.report),) and Counter(report.notes) == Counter(
            counted.report.notes
        )
        same = same and (not exact or report.left_out == counted.report.left_out)
    except (*MISREAD, OSError):
        yield f"{REPORT} is not what was written"
        return
    if not same:
        yield f"{REPORT} does not count what the segment holds"


def _numbers(report: BuildReport) -> tuple[int, int, int, int]:
    return report.tables, report.columns, report.rows, report.cells
