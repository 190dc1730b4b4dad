"""Parquet files, a batch at a time, with the types they have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.model import Reading
from deepjoin.normalise.cells import REPAIRED_NOTE, unique_names
from deepjoin.read.formats import unreadable
from deepjoin.read.sql import literal

if TYPE_CHECKING:
    import pyarrow.parquet as pq

# The most rows and bytes of a batch: rows may be wide.
_ROWS = 65_536
_BYTES = 64 << 20
# Bytes that the cells of one column of a batch could take before its dictionary is looked at.
_MOST_RISK = 4 << 30
_BROKEN = "is not a readable Parquet file"


def read_parquet(path: Path) -> Reading:
    """Open a Parquet file; columns that share a name are numbered."""
    notes: list[str] = []
    file = _open(path)

    def batches() -> Iterator[pa.RecordBatch]:
        with file:
            try:
                found = file.iter_batches(rows_at_once(path, file.metadata))
                for batch in named_batches(file.schema_arrow, found):
                    yield with_valid_text(batch, notes)
            except (pa.ArrowException, OSError) as error:
                raise unreadable(path, error, _BROKEN) from None

    return Reading(batches(), notes)


def _open(path: Path) -> pq.ParquetFile:
    import pyarrow.parquet as pq  # searches of other tables do without it

    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error, _BROKEN) from None


def rows_at_once(path: Path, metadata: pq.FileMetaData) -> int:
    """Return how many rows of a file to read at once, so that their cells fit into memory.

    A dictionary holds a cell once, however many rows have it: a small file may hold a cell of
    megabytes in every row. So dictionaries that could be of such cells are looked at.
    """
    rows = batch_rows(metadata, _ROWS, _BYTES)
    longest = 1
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        most = min(rows, group.num_rows)
        columns = [group.column(at) for at in range(group.num_columns)]
        risky = [
            column.path_in_schema
            for column in columns
            if column.physical_type in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
            and column.has_dictionary_page
            and column.total_uncompressed_size * most > _MOST_RISK
            and "." not in column.path_in_schema
        ]
        if not risky:
            continue
        import pyarrow.parquet as pq

        with pq.ParquetFile(path, read_dictionary=risky) as file:
            first = next(file.iter_batches(1, row_groups=[number], columns=risky), None)
        for cells in first.columns if first is not None else ():
            if pa.types.is_dictionary(cells.type):
                cells = cells.dictionary
            if not pa.types.is_nested(cells.type) and len(cells):
                text = cells if _is_text(cells.type) else cells.cast(pa.binary())
                longest = max(longest, pc.max(pc.binary_length(text)).as_py() or 1)
    return int(max(1, min(rows, _BYTES // longest)))


def batch_rows(metadata: pq.FileMetaData, most: int, size: int) -> int:
    """Return how many rows to read at once: fewer than ``most`` where they pass ``size`` bytes."""
    # Sizes are those of the encoded pages, so this is a lower bound; it is enough to notice rows
    # that hold documents or images.
    groups = (metadata.row_group(at) for at in range(metadata.num_row_groups))
    widest = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=0)
    return int(min(most, max(1, size // max(1, widest))))


def named_batches(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give every column a name that no other has, and decode dictionaries; at least one batch.

    A table without rows gets an empty batch, which still names its columns.
    """
    names = unique_names(schema.names)
    is_empty = True
    for batch in batches:
        is_empty = False
        yield _decoded(batch, names)
    if is_empty:
        columns = [column.combine_chunks() for column in schema.empty_table().columns]
        yield _decoded(pa.RecordBatch.from_arrays(columns, schema=schema), names)


def _decoded(batch: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=names)


def with_valid_text(batch: pa.RecordBatch, notes: list[str]) -> pa.RecordBatch:
    """Repair text that is not UTF-8: some writers store bytes of another encoding as text."""
    if all(map(_is_valid, batch.columns)):
        return batch
    if REPAIRED_NOTE not in notes:
        notes.append(REPAIRED_NOTE)
    columns = [column if _is_valid(column) else _repaired(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _is_valid(column: pa.Array) -> bool:
    """Check whether all text is UTF-8; nested columns are not indexed, so they are not checked."""
    if not _is_text(column.type):
        return True
    try:
        # The only check of Arrow that looks at the bytes; reading Parquet does not.
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _is_text(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _is_text(kind.storage_type)
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(test(kind) for test in tests)


def _repaired(column: pa.Array) -> pa.Array:
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _repaired(column.storage))
    # As bytes, because Arrow raises when it decodes invalid text.
    cells = column.cast(pa.large_binary()).to_pylist()
    return pa.array([cell and cell.decode("utf-8", "replace") for cell in cells], kind)


def duckdb_scan(path: Path) -> str | None:
    """Return DuckDB's table expression for a file, or None where it would read other rows.

    All text is checked, because DuckDB refuses what is not UTF-8. Hive partitioning would
    replace a column by the name of a folder, as in `region=eu`.
    """
    with _open(path) as file:
        schema = file.schema_arrow
        names = schema.names
        # DuckDB's names ignore case.
        if unique_names(names) != names or len({name.lower() for name in names}) < len(names):
            return None
        if any(map(_differs, schema.types)):
            return None
        texts = [
            field.name
            for field in schema
            if _is_text(field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
        ]
        try:
            most = rows_at_once(path, file.metadata)
            for batch in file.iter_batches(most, columns=texts):
                if not all(map(_is_valid, _decoded(batch, batch.schema.names).columns)):
                    return None
        except (pa.ArrowException, OSError) as error:
            raise unreadable(path, error, _BROKEN) from None
    return f"read_parquet({literal(str(path))}, hive_partitioning=false)"


def _differs(kind: pa.DataType) -> bool:
    """Check whether DuckDB reads durations as ticks, or long decimals as doubles, in this type."""
    if pa.types.is_dictionary(kind):
        return _differs(kind.value_type)
    inner = (kind.field(at).type for at in range(kind.num_fields))
    return pa.types.is_duration(kind) or pa.types.is_decimal256(kind) or any(map(_differs, inner))
