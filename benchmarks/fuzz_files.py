"""Read a malformed file in every way: it must be read or refused, and never crash.

Anything but rows or an `UnreadableTable` of one line is a failure, and so are rows that depend on
which of the two parsers reads them, on how the bytes come in blocks, or on DuckDB being asked
instead. `hard.py --only file` does this for file after file.
"""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from deepjoin.errors import UnreadableTable
from deepjoin.model import Reading
from deepjoin.read import encoding, jsonlines
from deepjoin.read.delimited import duckdb_scan, read_delimited
from deepjoin.read.files import FileSource
from deepjoin.read.formats import true_format
from fuzz_grammar import Fuzzed

#: Larger and wider files are not read in the other ways, which are slow by design.
_COMPARED = 1 << 18
_WIDE = 2000


@dataclass(frozen=True)
class Outcome:
    """The outcome of a file: read, unreadable, no table, or failed; and the reason."""

    kind: str
    reason: str = ""


class Differing(Exception):
    """The same file gave different rows when read in another way."""


def examine(path: Path) -> Outcome:
    """Read a file in every way."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source = FileSource([path])
        tables = list(source.tables())
        if not tables:
            return Outcome("no table", source.skipped[0].reason)
        try:
            batches = _checked(tables[0].open())
        except UnreadableTable as error:
            _check_refusal(str(error), tables[0].open)
            return Outcome("unreadable", str(error))
        _check_again(path, batches, tables[0].open)
        return Outcome("read")


def _checked(reading: Reading) -> list[pa.RecordBatch]:
    """Read to the end; every batch is whole, of named text columns, one cell a row."""
    batches = list(reading)
    for batch in batches:
        batch.validate(full=True)
        names = batch.schema.names
        if len(set(names)) != len(names):
            raise Differing(f"columns of one name: {names[:20]}")
        if {str(kind) for kind in batch.schema.types} - {"string"}:
            raise Differing(f"other types than text: {batch.schema.types[:20]}")
        if {len(column) for column in batch.columns} - {batch.num_rows}:
            raise Differing("columns of different length")
    if not batches:
        raise Differing("not even an empty batch")
    if any("\n" in note for note in reading.notes):
        raise Differing(f"a note of more than a line: {reading.notes}")
    return batches


def _check_refusal(text: str, again: Callable[[], Reading]) -> None:
    if "\n" in text or "\r" in text:
        raise Differing(f"a refusal of more than a line: {text!r}")
    try:
        list(again())
    except UnreadableTable as error:
        if str(error) != text:
            raise Differing(f"first {text!r}, then {error}") from None
        return
    raise Differing(f"first {text!r}, then rows")


def _check_again(path: Path, batches: list[pa.RecordBatch], again: Callable[[], Reading]) -> None:
    """Read in every other way that must give the same rows."""
    other = list(again())
    if len(other) != len(batches) or not all(map(pa.RecordBatch.equals, batches, other)):
        raise Differing("read twice, other rows")
    wide = any(batch.num_columns > _WIDE for batch in batches)
    if wide or path.stat().st_size > _COMPARED:
        return
    rows = list(_rows(batches))
    with _small_blocks(7 + path.stat().st_size % 500):
        _compare(rows, _rows(again()), "in small blocks")
    if true_format(path) == "delimited":
        _compare(rows, _rows(read_delimited(path, _engine="csv")), "by the csv module")
        _compare_duckdb(path, rows)


def _rows(batches: Reading | list[pa.RecordBatch]) -> Iterator[dict[str, str]]:
    for batch in batches:
        for row in batch.to_pylist():
            yield {name: cell for name, cell in row.items() if cell is not None}


def _compare(rows: list[dict[str, str]], others: Iterator[dict[str, str]], way: str) -> None:
    found = list(others)
    for number, (one, other) in enumerate(zip(rows, found, strict=False)):
        if one != other:
            raise Differing(f"row {number} {way}: {_short(one)} became {_short(other)}")
    if len(rows) != len(found):
        raise Differing(f"{len(rows)} rows, {len(found)} {way}")


def _short(row: dict[str, str]) -> str:
    return ascii(row)[:300]


def _compare_duckdb(path: Path, rows: list[dict[str, str]]) -> None:
    import duckdb

    scan = duckdb_scan(path)
    if scan is not None:
        table = duckdb.sql(f"SELECT * FROM {scan}").to_arrow_table()
        _compare(rows, _rows(table.to_batches()), "by DuckDB")


@contextmanager
def _small_blocks(size: int) -> Iterator[None]:
    """Read files in blocks of a few bytes, to test every block boundary."""
    kept = encoding.BLOCK, jsonlines._CHUNK
    encoding.BLOCK = jsonlines._CHUNK = size
    try:
        yield
    finally:
        encoding.BLOCK, jsonlines._CHUNK = kept


def outcome_of(made: Fuzzed, folder: Path) -> Outcome:
    """Write a file, examine it and remove it."""
    path = folder / made.name
    path.write_bytes(made.content)
    try:
        return examine(path)
    except Exception as error:  # whatever it is, it is what we look for
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        return Outcome("failed", f"{type(error).__name__} at {where}: {error}"[:2000])
    finally:
        path.unlink()
