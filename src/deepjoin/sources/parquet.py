"""Parquet files, a batch at a time, with the types they have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from deepjoin.columns import Reading
from deepjoin.sources.cells import unique_names
from deepjoin.sources.formats import unreadable

_ROWS = 65_536
_BROKEN = "is not a readable Parquet file"


def read_parquet(path: Path) -> Reading:
    """Open a Parquet file; columns of one name are told apart by a number."""
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error, _BROKEN) from None
    return Reading(_batches(path, file))


def _batches(path: Path, file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    names = unique_names(file.schema_arrow.names)
    with file:
        try:
            for batch in file.iter_batches(batch_size=_ROWS):
                yield decoded(batch, names)
            if not file.metadata.num_rows:
                yield decoded(no_rows(file.schema_arrow), names)
        except (pa.ArrowException, OSError) as error:
            raise unreadable(path, error, _BROKEN) from None


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Make the batch that still names the columns of a table without rows."""
    columns = [column.combine_chunks() for column in schema.empty_table().columns]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def decoded(batch: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
    """Rename the columns of a batch and spell out its dictionaries."""
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=names)
