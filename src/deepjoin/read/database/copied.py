"""What COPY sends, CSV a row at a time, as Arrow batches of the columns' types."""

from __future__ import annotations

import selectors
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from deepjoin.read.cells import MENDED_NOTE
from deepjoin.read.database.relation import BATCH_BYTES, BATCH_ROWS

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.pq.abc import PGresult


@dataclass(frozen=True)
class CopiedColumn:
    """A column: its SQL and its Arrow type; ``is_unmeasured`` if its digits have no bound."""

    name: str
    sql: str
    kind: pa.DataType
    is_unmeasured: bool = False

    def with_kind(self, kind: pa.DataType) -> CopiedColumn:
        """Change the type."""
        return replace(self, kind=kind)


def copied_rows(connection: Connection[Any]) -> Iterator[bytes | memoryview]:
    """Yield the rows that a connection is copying out, and raise what ended it early.

    psycopg's own loop over the rows takes twice the time.
    """
    libpq = connection.pgconn
    with selectors.DefaultSelector() as selector:
        selector.register(libpq.socket, selectors.EVENT_READ)
        while (got := libpq.get_copy_data(1))[0] >= 0:
            if got[0]:
                yield got[1]
            else:
                selector.select()
                libpq.consume_input()
    # All results are fetched before one is raised: only then may the connection go on.
    for result in list(iter(libpq.get_result, None)):
        _raise_failure(result)


def _raise_failure(result: PGresult) -> None:
    from psycopg import errors
    from psycopg.pq import DiagnosticField, ExecStatus

    if result.status == ExecStatus.FATAL_ERROR:
        state = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()
        said = result.error_field(DiagnosticField.MESSAGE_PRIMARY) or result.error_message
        try:
            kind = errors.lookup(state)
        except KeyError:  # a state of the user's own
            kind = errors.DatabaseError
        raise kind(said.decode("utf-8", "replace"))


def copied_batches(
    rows: Iterable[bytes | bytearray | memoryview], columns: list[CopiedColumn], notes: list[str]
) -> Iterator[pa.RecordBatch]:
    """Parse rows, of which none is cut in two, into batches; at least one."""
    parser = _Parser(columns, notes)
    waiting: list[bytes | bytearray | memoryview] = []
    size, is_first = 0, True
    for row in rows:
        waiting.append(row)
        size += len(row)
        if size >= BATCH_BYTES or len(waiting) >= BATCH_ROWS:
            yield parser.batch(b"".join(waiting))
            waiting, size, is_first = [], 0, False
    if waiting or is_first:
        yield parser.batch(b"".join(waiting))


class _Parser:
    """Parses CSV; a column with a cell that its Arrow type cannot hold is text from there on."""

    def __init__(self, columns: list[CopiedColumn], notes: list[str]) -> None:
        self._names = [column.name for column in columns]
        # Numbered, so that no name of a column matters to the parser.
        self._kinds = {str(at): column.kind for at, column in enumerate(columns)}
        self._declared = dict(self._kinds)
        self._notes = notes

    def batch(self, data: bytes) -> pa.RecordBatch:
        if not data:
            empty = [pa.array([], kind) for kind in self._kinds.values()]
            return pa.RecordBatch.from_arrays(empty, names=self._names)
        try:
            table = self._parsed(data, self._kinds)
        except pa.ArrowInvalid:
            data = self._mended(data)
            self._kinds = {at: self._fitting(data, at) for at in self._kinds}
            table = self._parsed(data, self._kinds)
        arrays = [
            self._array(at, column.combine_chunks())
            for at, column in zip(self._kinds, table.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, names=self._names)

    def _parsed(self, data: bytes, kinds: dict[str, pa.DataType]) -> pa.Table:
        return csv.read_csv(
            pa.py_buffer(data),
            csv.ReadOptions(
                use_threads=False, block_size=len(data) + 1, column_names=list(self._kinds)
            ),
            csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            csv.ConvertOptions(
                column_types=kinds,
                include_columns=list(kinds),
                null_values=[""],
                true_values=["t"],
                false_values=["f"],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def _mended(self, data: bytes) -> bytes:
        """Make valid text of what a database without an encoding may hold."""
        try:
            data.decode()
        except UnicodeDecodeError:
            if MENDED_NOTE not in self._notes:
                self._notes.append(MENDED_NOTE)
            return data.decode("utf-8", "replace").encode()
        return data

    def _fitting(self, data: bytes, at: str) -> pa.DataType:
        try:
            self._parsed(data, {at: self._kinds[at]})
        except pa.ArrowInvalid:
            return pa.string()
        return self._kinds[at]

    def _array(self, at: str, array: pa.Array) -> pa.Array:
        declared = self._declared[at]
        if pa.types.is_string(array.type) and pa.types.is_timestamp(declared) and declared.tz:
            return pc.replace_substring_regex(array, r"\+00( BC)?$", r"Z\1")
        return array
