"""JSON rows: one object a line, or one array of objects, read a block at a time."""

from __future__ import annotations

import io
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO, cast

import pyarrow as pa

from deepjoin.errors import UnreadableTable
from deepjoin.model import Reading
from deepjoin.normalise.cells import REPAIRED_NOTE, float_text, text_array
from deepjoin.read.encoding import check_file, compression_of, open_bytes
from deepjoin.read.formats import unreadable

_ROWS = 16_384
#: Characters that show whether a file holds an array or lines.
_PEEK = 1 << 16
_CHUNK = 1 << 20
#: Longer rows do not belong to a table; the limit also bounds memory.
MAX_ROW = 1 << 26
#: Where ids are used as keys, each would make a column; keys beyond this are left out and noted.
MAX_COLUMNS = 2_000
#: A file is given up when this many first rows are all bad.
PATIENCE = 1_000

_DAMAGED = (EOFError, OSError, UnicodeError, zlib.error, pa.ArrowException)
_ENCODER = json.JSONEncoder(ensure_ascii=False)
_GAP = re.compile(r"[\s,]*")
Row = dict[str, str | None]


def why_not_rows(path: Path) -> str | None:
    """Explain why a .json file is not a table, from its start alone.

    None if it may be one, or is empty or damaged: then reading it reports what is wrong.
    """
    try:
        with _open(path) as stream:
            start = stream.read(_PEEK)
    except (*_DAMAGED, UnreadableTable):
        return None
    text = start.lstrip()
    if not text or _is_array(text):
        return None
    if not text.startswith("{"):
        array = text.startswith("[")
        return "is a JSON array, but not of objects" if array else "holds no JSON objects"
    line, _, rest = text.partition("\n")
    # A first object longer than the sample may be a row; reading the file decides.
    cut = len(start) == _PEEK and "\n" not in text
    if cut or (rest.lstrip().startswith("{") and _parsed(line) is not None):
        return None
    return "holds one JSON object, not rows (an array of objects or an object a line)"


def _is_array(text: str) -> bool:
    return text.startswith("[") and text[1:].lstrip()[:1] in ("{", "]", "")


def read_json(path: Path) -> Reading:
    """Read a file named .json, which may hold something else than rows."""
    reason = why_not_rows(path)
    if reason:
        raise UnreadableTable(f"{path} {reason}.")
    return read_jsonlines(path)


def read_jsonlines(path: Path) -> Reading:
    """Read rows as text; nested objects become dotted names, lists JSON text.

    A later batch may bring columns that earlier ones did not have.
    """
    check_file(path)
    notes: list[str] = []

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            with _open(path) as stream:
                yield from _RowBatches(path, notes).batches(json_rows(path, stream))
        except _DAMAGED as error:
            raise unreadable(path, error) from None

    return Reading(batches(), notes)


def _open(path: Path) -> TextIO:
    binary = io.BufferedReader(cast(io.RawIOBase, open_bytes(path, compression_of(path))))
    wide = binary.peek(2)[:2] in (b"\xff\xfe", b"\xfe\xff")
    # Invalid bytes become half characters, which `_RowBatches` finds, repairs and notes.
    if wide:
        return io.TextIOWrapper(binary, "utf-16", "surrogatepass")
    return io.TextIOWrapper(binary, "utf-8-sig", "surrogateescape")


def json_rows(path: Path, stream: TextIO) -> Iterator[Row | None]:
    """Yield every row of an array or of lines, None for a bad one."""
    start = stream.read(_PEEK)
    text = start.lstrip()
    is_array = _is_array(text)
    return _array_rows(path, stream, text[1:]) if is_array else _line_rows(path, stream, start)


def _line_rows(path: Path, stream: TextIO, start: str) -> Iterator[Row | None]:
    # The sample ends within a line; its rest completes it.
    lines = io.StringIO(start + stream.readline(MAX_ROW))
    for source in (lines, stream):
        while line := source.readline(MAX_ROW):
            if len(line) >= MAX_ROW:
                raise UnreadableTable(f"{path} has a line of over {MAX_ROW >> 20} MiB.")
            if not line.isspace():
                yield _parsed(line)


def _array_rows(path: Path, stream: TextIO, text: str) -> Iterator[Row | None]:
    """Yield the rows of an array, decoding from a window that moves over the text."""
    decoder, at = json.JSONDecoder(), 0
    while True:
        gap = _GAP.match(text, at)
        at = gap.end() if gap else at
        if text.startswith("]", at):
            return
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            # Either the value continues after the window or it is damaged: more text shows which.
            more = stream.read(max(_CHUNK, len(text) - at))
            if not more or len(text) - at > MAX_ROW:
                raise UnreadableTable(f"{path} breaks off: its JSON array is damaged.") from None
            text, at = text[at:] + more, 0
        else:
            yield _flat(value)


def _parsed(line: str) -> Row | None:
    try:
        return _flat(json.loads(line))
    except (ValueError, RecursionError):
        return None


def _flat(value: object) -> Row | None:
    if not isinstance(value, dict):
        return None
    row: Row = {}
    _flatten(value, "", row)
    return row


def _flatten(value: dict[str, object], prefix: str, row: Row) -> None:
    for key, cell in value.items():
        # Two paths may make one name, {"a.b": 1, "a": {"b": 2}}; the last one counts.
        if isinstance(cell, dict):
            _flatten(cell, f"{prefix}{key}.", row)
        else:
            row[prefix + key] = cell if type(cell) is str else _cell(cell)


def _cell(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return float_text(value)
    return _ENCODER.encode(value) if isinstance(value, list) else str(value)


class _RowBatches:
    """Collects rows into batches, and counts what was wrong with all of them so far."""

    def __init__(self, path: Path, notes: list[str]) -> None:
        self.path, self.notes = path, notes
        self.names: dict[str, None] = {}
        self.good = self.bad = self.unnamed = 0
        self.is_repaired = self.is_crowded = False

    def batches(self, rows: Iterator[Row | None]) -> Iterator[pa.RecordBatch]:
        """Gather rows into batches bounded by rows and by characters."""
        block: list[Row] = []
        size = 0
        for row in rows:
            if row is None:
                self.bad += 1
                # Whatever this file is, the rest of it is not rows either.
                if not self.good and self.bad == PATIENCE:
                    break
                continue
            self.good += 1
            block.append(row)
            size += sum(len(cell) for cell in row.values() if cell)
            if len(block) == _ROWS or size > MAX_ROW:
                yield from self._made(block)
                block, size = [], 0
        if block:
            yield from self._made(block)
        if self.unnamed:
            yield pa.RecordBatch.from_arrays([], names=[])
        if not self.good:
            raise UnreadableTable(
                f"{self.path} holds no JSON objects: {self.bad} lines and none could be read."
                if self.bad
                else f"{self.path} is empty: it holds no rows."
            )
        if self.bad:
            self.notes.append(f"{self.bad} of {self.good + self.bad} rows are not JSON objects.")
        if self.is_crowded:
            self.notes.append(f"Only the first {MAX_COLUMNS} different keys became columns.")
        if self.is_repaired:
            self.notes.append(REPAIRED_NOTE)

    def _made(self, block: list[Row]) -> Iterator[pa.RecordBatch]:
        """Make the batch of some rows; rows without a key are rows of missing cells."""
        if not self.names and not any(block):
            self.unnamed += len(block)  # a batch without a column cannot hold them
            return
        if self.names and not any(block):
            block[0] = {next(iter(self.names)): None}
        batch = self._batch(block)
        for start in range(0, self.unnamed, _ROWS):
            size = min(_ROWS, self.unnamed - start)
            nulls = [pa.nulls(size, field.type) for field in batch.schema]
            yield pa.RecordBatch.from_arrays(nulls, schema=batch.schema)
        self.unnamed = 0
        yield batch

    def _batch(self, block: list[Row]) -> pa.RecordBatch:
        columns: dict[str, pa.Array] = {}
        for name in dict.fromkeys(name for row in block for name in row):
            if name not in self.names and len(self.names) >= MAX_COLUMNS:
                self.is_crowded = True
                continue
            self.names[name] = None
            cells = [row.get(name) for row in block]
            try:
                columns[name] = pa.array(cells, pa.string())
            except UnicodeEncodeError:
                self.is_repaired = True
                columns[name] = text_array(cells)
        names = text_array(columns).to_pylist()
        return pa.RecordBatch.from_arrays(list(columns.values()), names=names)
