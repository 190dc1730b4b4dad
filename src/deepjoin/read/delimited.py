"""Delimited text to record batches: Arrow's reader while all is plain, the csv module where not.

Both produce the same table from what both can read, so a file may pass from one to the other at
any record; which files DuckDB reads the same way is decided by the same test.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from pathlib import Path

import pyarrow as pa
from pyarrow import csv as arrow_csv

from deepjoin.errors import UnreadableTable
from deepjoin.model import Reading
from deepjoin.read.dialect import Dialect, check_width, sniff, unescaped, widened
from deepjoin.read.encoding import TextRepairs, check_file, utf8_blocks
from deepjoin.read.records import (
    LONGEST_CELL,
    Form,
    Records,
    line_end,
    line_ends,
    lines_of,
    record_end,
)
from deepjoin.read.sql import literal

# The most rows and cells of a batch: one long row may make thousands of columns.
_ROWS = 1 << 16
_CELLS = 1 << 20
# DuckDB's default limit is 2,000,000 bytes.
_DUCKDB_LINE = 1_900_000
_UTF8_MARK = b"\xef\xbb\xbf"


@dataclass
class _Pass:
    """One pass over a file, and the oddities met on the way."""

    path: Path
    dialect: Dialect
    repairs: TextRepairs
    plain: bool = True
    short_rows: int = 0
    long_rows: int = 0
    stray: int = 0
    first_stray: str = ""

    def notes(self) -> Iterator[str]:
        """Describe what the user should know."""
        dialect = self.dialect
        if dialect.skip_lines:
            yield f"Lines before the table, left out: {dialect.skip_lines:,}."
        if not dialect.header:
            yield "No header was found; the columns are numbered."
        if not dialect.encoding.startswith("utf"):
            yield f"The text is not UTF-8; it is read as {dialect.encoding}."
        yield from self.repairs.notes(dialect.encoding)
        if self.short_rows:
            yield f"Rows with too few cells, filled up: {self.short_rows:,}."
        if self.long_rows:
            yield f"Rows with more cells than names, given new columns: {self.long_rows:,}."
        if self.stray:
            yield (
                f"Lines whose quotes do not pair, each read by itself: {self.stray:,};"
                f" the first is {self.first_stray[:60]}"
            )


def read_delimited(path: Path, *, _engine: str = "") -> Reading:
    """Read a delimited file as batches of string columns; empty cells are null.

    ``_engine`` forces "csv" for tests.
    """
    before = check_file(path)
    state = _Pass(path, sniff(path), TextRepairs(), plain=_engine != "csv")
    notes: list[str] = []

    def batches() -> Iterator[pa.RecordBatch]:
        rows = 0
        for batch in _batches(state):
            rows += batch.num_rows
            yield batch
        # Rows from two states of a file would be a table that never existed.
        if check_file(path) != before:
            raise UnreadableTable(
                f"{path.name} changed while it was being read; index it again when it is at rest."
            )
        if not rows:
            names = state.dialect.names
            none = [pa.array([], pa.string())] * len(names)
            yield pa.RecordBatch.from_arrays(none, names=list(names))
        notes.extend(state.notes())

    return Reading(batches(), notes)


def _batches(state: _Pass) -> Iterator[pa.RecordBatch]:
    """Read chunk by chunk of whole records, as they become complete."""
    # What a block ends with may be half a record; it waits for the next block.
    data = b""
    for block in _body(state):
        data += block
        taken = yield from _whole(data, state)
        data = data[taken:]
    while data:
        taken = yield from _whole(data, state, last=True)
        data = data[taken:]


def _whole(data: bytes, state: _Pass, last: bool = False) -> Generator[pa.RecordBatch, None, int]:
    """Read the whole records at the start of some bytes; return how many bytes they took."""
    form = state.dialect.form
    # Arrow has no option for blanks after a delimiter.
    end = record_end(data, form) if state.plain and not form.padded else None
    if end is None:
        # Quotes that do not pair: read with the csv module, line by line.
        end = len(data) if last else line_end(data)
        rest = yield from _records(lines_of(data[:end].decode()), state, cut=not last)
        taken = end - len(rest.encode())
        if taken == 0 and len(data) > LONGEST_CELL:
            return (yield from _one_line(data, state))
        return taken
    if last and not _open_quote(data[end:], form):
        end = len(data)
    # A quote that should have closed by now is a character: read its line by itself.
    if end == 0 and (last or len(data) > LONGEST_CELL):
        return (yield from _one_line(data, state))
    if end:
        chunk = data[:end]
        table = _arrow(chunk, state.dialect)
        if table is not None:
            yield from table.to_batches(max_chunksize=_ROWS)
        else:
            yield from _csv_batches(csv.reader(lines_of(chunk.decode()), **form.options()), state)
    return end


def _open_quote(data: bytes, form: Form) -> bool:
    return bool(form.quote) and data.count(form.quote.encode()) % 2 == 1


def _one_line(data: bytes, state: _Pass) -> Generator[pa.RecordBatch, None, int]:
    """Read one line by itself, because its quote is never closed."""
    line = next(lines_of(data.decode()), "")
    if len(line) > LONGEST_CELL:
        raise UnreadableTable(
            f"{state.path.name} has a line of more than {LONGEST_CELL:,} characters; leave it out."
        )
    yield from _records((line,), state, cut=False)
    return len(line.encode())


def _records(lines: Iterable[str], state: _Pass, cut: bool) -> Generator[pa.RecordBatch, None, str]:
    dialect = state.dialect
    records = Records(lines, dialect.form, len(dialect.names), cut=cut)
    yield from _csv_batches(records, state)
    state.stray += records.stray
    state.first_stray = state.first_stray or records.first_stray
    return records.rest


def _body(state: _Pass) -> Iterator[bytes]:
    """Yield the file from its first row on, as UTF-8, escaped quotes doubled."""
    dialect = state.dialect
    blocks = utf8_blocks(state.path, dialect.encoding, dialect.compression, state.repairs)
    if dialect.escape:
        blocks = _doubled(blocks, dialect.form.quote)
    data = b""
    for block in blocks:
        # The lines to skip were counted in a sample, so they end within a block or two.
        data += block
        start = _after_lines(data, dialect.first_line)
        if start is not None:
            yield data[start:]
            break
    yield from blocks


def _after_lines(data: bytes, count: int) -> int | None:
    """Return where the first lines end, or None if they do not end here."""
    ends = re.finditer(rb"\r\n|\r(?=.)|\n", data, re.DOTALL)
    seen = [match.end() for match in islice(ends, count)]
    if len(seen) < count:
        return None
    return seen[-1] if seen else 0


def _doubled(blocks: Iterator[bytes], quote: str) -> Iterator[bytes]:
    """Double the quotes that follow a backslash, which may end one block and belong to the next."""
    rest = b""
    for block in blocks:
        data = rest + block
        slashes = len(data) - len(data.rstrip(b"\\"))
        end = len(data) - slashes % 2
        yield unescaped(data[:end].decode(), quote).encode()
        rest = data[end:]
    yield rest


def _arrow(data: bytes, dialect: Dialect) -> pa.Table | None:
    """Read a chunk with Arrow, or return None where rows differ in width."""
    # Arrow would drop the mark, which inside a file is a character of the first cell.
    if data.startswith(_UTF8_MARK):
        return None
    strings = dict.fromkeys(dialect.names, pa.string())
    try:
        return arrow_csv.read_csv(
            pa.BufferReader(data),
            # Threads of Arrow's own have been seen to abort a process at its exit.
            arrow_csv.ReadOptions(
                use_threads=False, column_names=list(dialect.names), block_size=len(data) + 1
            ),
            arrow_csv.ParseOptions(
                delimiter=dialect.form.delimiter,
                quote_char=dialect.form.quote or False,
                newlines_in_values=bool(dialect.form.quote),
            ),
            arrow_csv.ConvertOptions(
                column_types=strings, null_values=[""], strings_can_be_null=True, check_utf8=False
            ),
        )
    except pa.ArrowInvalid:
        return None


def _csv_batches(records: Iterable[list[str]], state: _Pass) -> Iterator[pa.RecordBatch]:
    """Collect records until they are many, long or wide enough for a batch."""
    names = state.dialect.names
    usual = widest = len(names)
    rows: list[list[str]] = []
    for row in records:
        width = len(row)
        if width != usual:
            # A blank line is not a row; in a table of one column it is not a missing cell either.
            if not row or (width == 1 and not row[0].strip()):
                continue
            state.short_rows += width < usual
            if width > usual:
                check_width(state.path, width)
                state.long_rows += 1
        if len(rows) >= _ROWS or max(widest, width) * len(rows) > _CELLS:
            yield _batch(rows, widest, names)
            rows, widest = [], usual
        rows.append(row)
        widest = max(widest, width)
    if rows:
        yield _batch(rows, widest, names)


def _batch(rows: list[list[str]], width: int, names: tuple[str, ...]) -> pa.RecordBatch:
    columns = list(zip_longest(*rows, fillvalue=None))
    columns += [(None,) * len(rows)] * (width - len(columns))
    arrays = [pa.array([cell or None for cell in column], pa.string()) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(widened(names, width)))


def duckdb_scan(path: Path) -> str | None:
    """Return DuckDB's table expression for a file, or None where it would read other rows.

    The whole file is checked, because the last row may be the odd one. Hive partitioning would
    replace a column by the name of a folder, as in `region=eu`.
    """
    state = _Pass(path, sniff(path), TextRepairs())
    dialect = state.dialect
    is_known = (
        dialect.encoding.startswith("utf-8")
        and not (dialect.compression or dialect.form.padded or dialect.escape)
        and dialect.first_line - dialect.skip_lines == dialect.header
        # DuckDB's names ignore case.
        and len({name.lower() for name in dialect.names}) == len(dialect.names)
    )
    if not is_known or not _plain_throughout(state):
        return None
    columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in dialect.names)
    quote = literal(dialect.form.quote)
    return (
        f"read_csv({literal(str(path))}, auto_detect=false, header=false,"
        f" skip={dialect.first_line}, delim={literal(dialect.form.delimiter)}, quote={quote},"
        f" escape={quote}, nullstr='', compression='none', hive_partitioning=false,"
        f" columns={{{columns}}})"
    )


def _plain_throughout(state: _Pass) -> bool:
    """Check whether every record is one that all readers of delimited text agree on."""
    dialect, data, kinds = state.dialect, b"", set[str]()
    blocks = utf8_blocks(state.path, dialect.encoding, dialect.compression, state.repairs)
    is_start = True
    for block in chain(blocks, (b"",)):
        data += block
        end = record_end(data, dialect.form) if block else len(data)
        if end is None or _open_quote(data[:end], dialect.form):
            return False
        chunk, data = data[:end], data[end:]
        found, longest = line_ends(chunk, dialect.form)
        kinds |= found
        if is_start:
            start = _after_lines(chunk, dialect.first_line)
            if start is None and (dialect.skip_lines or not dialect.header):
                return False
            start = len(chunk) if start is None else start
            # DuckDB counts the lines to skip differently where one of them has quotes.
            quote = dialect.form.quote.encode()
            if dialect.skip_lines and quote and quote in chunk[:start]:
                return False
            chunk, is_start = chunk[start:], False
        if longest > _DUCKDB_LINE or not _plain_rows(chunk, dialect):
            return False
    # DuckDB accepts one kind of line end per file, and repairs nothing.
    return len(kinds) < 2 and state.repairs == TextRepairs()


def _plain_rows(data: bytes, dialect: Dialect) -> bool:
    if not data.strip(b"\r\n"):
        return len(dialect.names) > 1 or not data
    # A blank line in a single column is a missing cell to DuckDB, and nothing to us.
    blank = len(dialect.names) == 1 and re.search(rb"(?:^|\n|\r(?!\n))(?:\r?\n|\r)", data)
    return not blank and _arrow(data, dialect) is not None
