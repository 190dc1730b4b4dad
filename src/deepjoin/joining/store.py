"""Brings both tables to where DuckDB can read them again and again in the same order.

A table of typed columns that DuckDB reads itself stays where it is. Any other is read once,
into a table of the session: reading CSV or JSON anew for every question costs more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from deepjoin.errors import UnreadableTable, unknown_name
from deepjoin.joining.casts import learn_casts
from deepjoin.joining.names import free_name
from deepjoin.joining.session import Session
from deepjoin.joining.side import Side, Source, SourceColumn
from deepjoin.model import Table
from deepjoin.normalise.cells import seconds
from deepjoin.read.sql import identifier

#: Small batches are gathered to this size, so that each is not a statement of its own.
_CHUNK_BYTES = 32 << 20


def bring(session: Session, side: Side, store: str) -> Source:
    """Make a side readable, under the given name if it has to be stored."""
    if side.scan is None:
        source = _streamed(session, side, store)
    else:
        source = _scanned(session, side, side.scan, store)
    if any(column.kind != "VARCHAR" for column in source.columns):
        return source
    others = [column for column in source.columns if column != source.key]
    learned = learn_casts(session, source.reads, others)
    columns = tuple(learned.get(column.name, column) for column in source.columns)
    return replace(source, columns=columns)


def _scanned(session: Session, side: Side, scan: str, store: str) -> Source:
    """Store a table of text, whose types are still to be learnt; leave a typed one in place."""
    described = _read(session, side, f"DESCRIBE SELECT * FROM {scan}")
    columns = [SourceColumn(name, name, kind) for name, kind, *_ in described]
    key = _key(side, columns)
    reads = scan
    if all(column.kind == "VARCHAR" for column in columns):
        _read(session, side, f"CREATE TABLE {store} AS SELECT * FROM {scan}")
        reads = store
    return Source(side.table.name, reads, scan, tuple(columns), key)


def _read(session: Session, side: Side, sql: str) -> list[tuple[Any, ...]]:
    """Run a statement over a scan; what goes wrong is the table's fault."""
    import duckdb

    try:
        return session.run(sql)
    except duckdb.Error as error:
        reason = str(error).split("\n", 1)[0]
        raise UnreadableTable(f"DuckDB cannot read {side.table.name}: {reason}") from error


def _streamed(session: Session, side: Side, store: str) -> Source:
    columns = _store_stream(session, side.table, store)
    shows = identifier(side.table.name)
    return Source(side.table.name, store, shows, tuple(columns), _key(side, columns))


def _key(side: Side, columns: Sequence[SourceColumn]) -> SourceColumn:
    for column in columns:
        if column.original == side.key:
            return column
    names = [column.original for column in columns]
    raise unknown_name("column", side.key, side.table.name, names)


def _store_stream(session: Session, table: Table, store: str) -> list[SourceColumn]:
    """Store a table batch by batch, widening the stored table as columns turn up."""
    columns = _StoredColumns()
    for chunk in _chunks(table.open()):
        renamed = columns.rename(chunk)
        is_first = not columns.kinds
        changes = columns.widen(session.columns("batch", renamed), renamed)
        if is_first:
            session.run(f"CREATE TABLE {store} AS SELECT * FROM batch LIMIT 0", renamed)
        else:
            for change in changes:
                session.run(f"ALTER TABLE {store} {change}")
        session.run(f"INSERT INTO {store} BY NAME SELECT * FROM batch", renamed)
    return columns.described()


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Gather batches that have the same columns."""
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if gathered and (size >= _CHUNK_BYTES or batch.schema != gathered[0].schema):
            yield pa.Table.from_batches(gathered)
            gathered, size = [], 0
        gathered.append(batch)
        size += batch.nbytes
    if gathered:
        yield pa.Table.from_batches(gathered)


@dataclass
class _StoredColumns:
    """The columns seen so far; repeated, empty and case-only different names made unique."""

    names: dict[tuple[str, int], str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def rename(self, chunk: pa.Table) -> pa.Table:
        """Give a chunk its stored names, and types that DuckDB can take."""
        seen: dict[str, int] = {}
        names = []
        for name in chunk.column_names:
            seen[name] = seen.get(name, 0) + 1
            names.append(self._stored_name(name, seen[name]))
        return pa.table([_storable(column) for column in chunk.columns], names=names)

    def _stored_name(self, name: str, occurrence: int) -> str:
        if (name, occurrence) not in self.names:
            # DuckDB cuts names at a NUL.
            stored = free_name(name.replace("\0", ""), self.taken)
            self.names[name, occurrence] = stored
            self.taken.add(stored.lower())
        return self.names[name, occurrence]

    def widen(self, kinds: dict[str, str], chunk: pa.Table) -> list[str]:
        """Return what to alter for a chunk; a column whose types disagree becomes text."""
        changes = []
        for name, kind in kinds.items():
            known = self.kinds.get(name)
            if known is None:
                changes.append(f"ADD COLUMN {identifier(name)} {kind}")
                self.kinds[name] = kind
            elif known not in (kind, "VARCHAR") and chunk[name].null_count < len(chunk):
                changes.append(f"ALTER COLUMN {identifier(name)} TYPE VARCHAR")
                self.kinds[name] = "VARCHAR"
        return changes

    def described(self) -> list[SourceColumn]:
        """List the columns in the order in which they were seen."""
        return [
            SourceColumn(stored, original, self.kinds[stored])
            for (original, _), stored in self.names.items()
        ]


def _storable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Turn the few Arrow types that DuckDB does not store, or compares otherwise, into others."""
    kind = column.type
    if pa.types.is_null(kind) or pa.types.is_decimal256(kind):
        return column.cast(pa.string())
    if pa.types.is_dictionary(kind):
        return column.cast(kind.value_type)
    if pa.types.is_duration(kind):
        return seconds(column)
    return column.cast(pa.float32()) if pa.types.is_float16(kind) else column
