"""Make both tables readable for DuckDB, repeatedly and in the same order, and learn their types.

A table of typed columns that DuckDB reads itself stays where it is. Any other is read once, into
a table of the session, since reading CSV or JSON anew for every query costs more. Text columns
that are integers, decimals or dates throughout can be cast if no text loses anything by it:
`007` is a code, and so are `1e5` and a number of 30 digits; `1e-05` is how programs write numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.errors import UnreadableTable, unknown_name
from deepjoin.joining.session import Session
from deepjoin.joining.tables import JoinSide, SideColumn, SideTable, free_name
from deepjoin.model import Table
from deepjoin.normalise.canonical import CellType, cell_types
from deepjoin.normalise.cells import seconds
from deepjoin.read.sql import identifier

#: Small batches are collected to this size, to save statements.
_CHUNK_BYTES = 32 << 20
#: Checks of text, in order of preference; blank cells pass. A double keeps 15 digits; longer text
#: must survive the cast to DOUBLE and back.
_CHECKS = {
    "BIGINT": r"regexp_full_match({cell}, ' *|0|-?[1-9][0-9]{0,17}')",
    "DOUBLE": r"regexp_full_match({cell}, ' *|-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+][0-9]+)?') "
    r"AND (length({cell}) <= 15 OR CAST(TRY_CAST({cell} AS DOUBLE) AS VARCHAR) = {cell})",
    "DATE": r"regexp_full_match({cell}, ' *|[0-9]{4}-[0-9]{2}-[0-9]{2}') "
    r"AND (TRY_CAST({cell} AS DATE) IS NOT NULL OR trim({cell}) = '')",
}
_EXPONENT = r"^ *-?[0-9]+(\.[0-9]+)?[eE][-+][0-9]+ *$"
#: Most columns are text, which their first rows show.
_FIRST_ROWS = 2048
_CELL_TYPES = {
    "BIGINT": {CellType.INTEGER},
    "DOUBLE": {CellType.INTEGER, CellType.DECIMAL},
    "DATE": {CellType.DATE},
}
#: Tables may have thousands of columns, so aggregates are computed a number at a time.
_AGGREGATES_A_QUERY = 300


def make_readable(session: Session, side: JoinSide, store: str) -> SideTable:
    """Make a side readable, under the given name if it has to be stored."""
    if side.scan is None:
        columns = _store_stream(session, side.table, store)
    else:
        described = _read(session, side, f"DESCRIBE SELECT * FROM {side.scan}")
        columns = [SideColumn(name, name, kind) for name, kind, *_ in described]
    by_name = {column.original: column for column in reversed(columns)}
    for name in side.keys:
        if name not in by_name:
            names = [column.original for column in columns]
            raise unknown_name("column", name, side.table.name, names)
    key, *more = (by_name[name] for name in side.keys)
    # Only text has types to learn; DuckDB knows the types of other files.
    is_text = all(column.kind == "VARCHAR" for column in columns)
    reads, shows = side.scan or store, side.scan or identifier(side.table.name)
    if side.scan and is_text:
        _read(session, side, f"CREATE TABLE {store} AS SELECT * FROM {side.scan}")
        reads = store
    if is_text:
        learned = learn_casts(session, reads, [one for one in columns if one not in (key, *more)])
        columns = [learned.get(column.name, column) for column in columns]
    return SideTable(side.table.name, reads, shows, tuple(columns), key, tuple(more))


def read_typed(table: Table) -> pa.Table:
    """Read a whole table into memory; text columns get the types that they have in a join."""
    session = Session()
    try:
        columns = _store_stream(session, table, "stored")
        if all(column.kind == "VARCHAR" for column in columns):
            learned = learn_casts(session, "stored", columns)
            columns = [learned.get(column.name, column) for column in columns]
        names = [identifier(column.name) for column in columns]
        typed = [column.value(name) for column, name in zip(columns, names, strict=True)]
        cells = ", ".join(f"{one} AS {name}" for one, name in zip(typed, names, strict=True))
        return session.table(f"SELECT {cells} FROM stored")
    finally:
        session.close()


def _read(session: Session, side: JoinSide, sql: str) -> list[tuple[Any, ...]]:
    """Run a statement over a scan; errors are reported as those of the table."""
    import duckdb

    try:
        return session.run(sql)
    except duckdb.OutOfMemoryException:  # the limit of the join, not the table
        raise
    except duckdb.Error as error:
        reason = str(error).split("\n", 1)[0]
        raise UnreadableTable(f"DuckDB cannot read {side.table.name}: {reason}") from error


def _store_stream(session: Session, table: Table, store: str) -> list[SideColumn]:
    """Store a table batch by batch, and widen the stored table as new columns appear."""
    columns = ColumnNames()
    reading = table.open()
    session.check_reading(table.name, reading.memory)
    for chunk in _chunks(reading):
        renamed = columns.rename(chunk)
        is_first = not columns.kinds
        changes = columns.widen(session.columns("batch", renamed), renamed)
        # INSERT BY NAME fills columns that a batch lacks with NULL.
        if is_first:
            session.run(f"CREATE TABLE {store} AS SELECT * FROM batch LIMIT 0", renamed)
        else:
            for change in changes:
                session.run(f"ALTER TABLE {store} {change}")
        session.run(f"INSERT INTO {store} BY NAME SELECT * FROM batch", renamed)
    return columns.described()


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Collect batches that have the same columns."""
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
class ColumnNames:
    """Unique names for the columns seen so far: repeated, empty, or different only in case."""

    names: dict[tuple[str, int], str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def rename(self, chunk: pa.Table) -> pa.Table:
        """Rename the columns of a chunk, and convert types that DuckDB cannot store."""
        seen: dict[str, int] = {}
        names = []
        for name in chunk.column_names:
            seen[name] = seen.get(name, 0) + 1
            column = (name, seen[name])
            if column not in self.names:
                # DuckDB cuts names at a NUL.
                self.names[column] = free_name(name.replace("\0", ""), self.taken)
                self.taken.add(self.names[column].lower())
            names.append(self.names[column])
        return pa.table([_storable(column) for column in chunk.columns], names=names)

    def widen(self, kinds: dict[str, str], chunk: pa.Table) -> list[str]:
        """Return the ALTER clauses for a chunk; a column whose types differ becomes text."""
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

    def described(self) -> list[SideColumn]:
        """List the columns in order of first appearance."""
        return [
            SideColumn(stored, original, self.kinds[stored])
            for (original, _), stored in self.names.items()
        ]


def _storable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert the few Arrow types that DuckDB does not store, or compares differently."""
    kind = column.type
    if pa.types.is_null(kind) or pa.types.is_decimal256(kind):
        return column.cast(pa.string())
    if pa.types.is_dictionary(kind):
        return column.cast(kind.value_type)
    if pa.types.is_duration(kind):
        return seconds(column)
    return column.cast(pa.float32()) if pa.types.is_float16(kind) else column


def learn_casts(
    session: Session, table: str, columns: Sequence[SideColumn]
) -> dict[str, SideColumn]:
    """Return, by name, the columns whose non-blank cells all have one such type."""
    first_rows = session.table(f"SELECT * FROM {table} LIMIT {_FIRST_ROWS}")
    likely: dict[str, list[str]] = {}
    for column in columns:
        cells = first_rows[column.name]
        filled = cells.filter(pc.not_equal(pc.utf8_trim(cells, " "), ""))
        filled = filled.filter(pc.invert(pc.match_substring_regex(filled, _EXPONENT)))
        kinds = set(pc.unique(cell_types(filled)).to_pylist())
        likely[column.name] = [kind for kind, types in _CELL_TYPES.items() if kinds <= types]
    learned: dict[str, SideColumn] = {}
    for kind, check in _CHECKS.items():
        casts = [
            replace(column, cast=kind)
            for column in columns
            if kind in likely[column.name] and column.name not in learned
        ]
        checks = [check.replace("{cell}", identifier(column.name)) for column in casts]
        holds = _aggregates(session, table, [f"bool_and({check})" for check in checks])
        passed = zip(casts, holds, strict=True)
        learned |= {column.name: column for column, holds in passed if holds is not False}
    # Blank cells sort before '!', digits and signs after it; a column of blanks alone is text.
    names = [identifier(name) for name in learned]
    blank = _aggregates(session, table, [f"bool_or({name} < '!')" for name in names])
    filled = _aggregates(session, table, [f"bool_or({name} > '!')" for name in names])
    return {
        column.name: replace(column, has_blanks=has_blanks)
        for column, has_blanks, has_values in zip(learned.values(), blank, filled, strict=True)
        if has_values
    }


def _aggregates(session: Session, table: str, aggregates: Sequence[str]) -> list[Any]:
    results: list[Any] = []
    for start in range(0, len(aggregates), _AGGREGATES_A_QUERY):
        some = ", ".join(aggregates[start : start + _AGGREGATES_A_QUERY])
        results += session.run(f"SELECT {some} FROM {table}")[0]
    return results
