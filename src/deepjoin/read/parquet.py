"""Parquet files, a batch at a time, with the types they have."""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

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
# Bytes in which the header of a page ends, apart from statistics, which dictionaries do not have.
_HEADER = 128
_LENGTH = struct.Struct("<I")
# The most that dictionaries may take where DuckDB reads a file, whatever a join may hold.
_MOST_SCANNED = 256 << 20
_BROKEN = "is not a readable Parquet file"


def read_parquet(path: Path) -> Reading:
    """Open a Parquet file; columns that share a name are numbered."""
    notes: list[str] = []
    file = _open(path)

    def batches() -> Iterator[pa.RecordBatch]:
        with file:
            try:
                found = file.iter_batches(rows_at_once(path, file))
                for batch in named_batches(file.schema_arrow, found):
                    yield with_valid_text(batch, notes)
            except (pa.ArrowException, OSError) as error:
                raise unreadable(path, error, _BROKEN) from None

    return Reading(batches(), notes, dictionary_bytes(path, file))


def _open(path: Path) -> pq.ParquetFile:
    import pyarrow.parquet as pq  # searches of other tables do without it

    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error, _BROKEN) from None


def rows_at_once(path: Path, file: pq.ParquetFile) -> int:
    """Return how many rows of a file to read at once, so that their cells fit into memory.

    A dictionary holds a cell once, however many rows have it: a small file may hold a cell of
    megabytes in every row. So dictionaries that could be of such cells are looked at.
    """
    rows = batch_rows(file.metadata, _ROWS, _BYTES)
    longest = max((one.longest(path) for one in _dictionaries(path, file, rows)), default=1)
    return max(1, min(rows, _BYTES // longest))


def dictionary_bytes(path: Path, file: pq.ParquetFile) -> int:
    """Return how much memory the dictionaries of a row group take while its rows are read.

    All other pages are read one after the other; and most writers end dictionaries at a megabyte.
    """
    groups: Counter[int] = Counter()
    for one in _dictionaries(path, file, batch_rows(file.metadata, _ROWS, _BYTES)):
        groups[one.group] += one.taken
    return max(groups.values(), default=0)


class _Dictionary(NamedTuple):
    """The distinct cells of a column in a row group: a page that starts at a place of the file."""

    group: int
    #: Its compression; none where the page cannot be looked at, but a cell is at most this long.
    codec: str
    place: int
    packed: int
    unpacked: int
    cells: int

    @property
    def taken(self) -> int:
        """Bytes that Arrow takes: it unpacks the page, copies it, and notes where cells are."""
        return self.packed + 2 * self.unpacked + 16 * self.cells

    def longest(self, path: Path) -> int:
        """Return how long the longest cell is, or could be where that cannot be told."""
        if not self.codec:
            return self.unpacked
        try:
            with path.open("rb") as file:
                file.seek(self.place)
                page: Any = file.read(self.packed)
            if self.codec != "UNCOMPRESSED":
                name = "lz4_raw" if self.codec == "LZ4" else self.codec.lower()
                page = pa.Codec(name).decompress(page, self.unpacked)
            view, length, at, longest = memoryview(page), _LENGTH.unpack_from, 0, 1
            # Each cell has its length in front, so they can only be found one after the other.
            for _ in range(self.cells):
                (size,) = length(view, at)
                if size > longest:
                    longest = size
                at += 4 + size
        except (
            pa.ArrowException,
            OSError,
            ValueError,
            struct.error,
        ):  # reading says what it is
            return self.unpacked
        return longest


def _dictionaries(path: Path, file: pq.ParquetFile, rows: int) -> Iterator[_Dictionary]:
    """Find the dictionaries whose cells could fill the memory when rows repeat them."""
    with path.open("rb") as pages:
        length = os.fstat(pages.fileno()).st_size
        for number in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(number)
            most = min(rows, group.num_rows)
            for at in range(group.num_columns):
                column = group.column(at)
                size, place = column.total_uncompressed_size, column.dictionary_page_offset
                if (
                    column.physical_type not in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
                    or not column.has_dictionary_page
                    or size * most <= _MOST_RISK
                ):
                    continue
                if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
                    width = file.schema.column(at).length
                    yield _Dictionary(number, "", place, 0, width, 0)
                    continue
                if 0 <= place < length:
                    pages.seek(place)
                    found = _page_header(pages.read(_HEADER), size, length - place)
                else:
                    found = None
                if found is None:
                    yield _Dictionary(number, "", place, 0, size, 0)
                elif found[2] * most > _MOST_RISK:
                    start, *sizes = found
                    yield _Dictionary(number, column.compression, place + start, *sizes)


def _page_header(data: bytes, most: int, left: int) -> tuple[int, int, int, int] | None:
    """Return the length of a dictionary page's header, its bytes packed and unpacked, its cells.

    None if there is no such header, as in encrypted files; ``most`` bounds the bytes of a page, and
    what is ``left`` of the file bounds them packed.
    """
    try:
        fields, end = _thrift(data, 0)
        unpacked, packed, cells = fields[2], fields[3], fields[7][1]
        is_sound = 0 <= 4 * cells <= unpacked <= most and 0 <= packed <= left - end
    except (IndexError, KeyError, TypeError, ValueError):  # a structure is not a number either
        return None
    return (end, packed, unpacked, cells) if is_sound else None


def _thrift(data: bytes, at: int) -> tuple[dict[int, Any], int]:
    """Read a structure of integers, flags and structures, in Thrift's compact protocol."""
    fields: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        at, number, kind = at + 1, number + (head >> 4), head & 15
        if kind in (1, 2):  # a flag; its kind is its value
            fields[number] = kind == 1
        elif kind in (4, 5, 6):
            value = shift = 0
            while data[at] & 0x80:
                value |= (data[at] & 0x7F) << shift
                at, shift = at + 1, shift + 7
            value |= data[at] << shift
            fields[number], at = value >> 1 ^ -(value & 1), at + 1
        elif kind == 12:
            fields[number], at = _thrift(data, at)
        else:
            raise ValueError(f"a field of kind {kind}")
    return fields, at + 1


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
            if dictionary_bytes(path, file) > _MOST_SCANNED:
                return None
            most = rows_at_once(path, file)
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
