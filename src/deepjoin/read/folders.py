"""Table formats that keep a whole folder to themselves: Delta and Iceberg."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import xxhash

from deepjoin.model import Reading
from deepjoin.read.cells import unique_names
from deepjoin.read.parquet import decoded, no_rows, with_valid_text

DELTA_LOG = "_delta_log"
ICEBERG_METADATA = "metadata"
METADATA_ENDINGS = (".metadata.json", ".metadata.json.gz")


@dataclass(frozen=True)
class FolderFormat:
    """How to look at such a folder; ``check`` raises `MissingExtra` if its library is."""

    name: str
    check: Callable[[Path], None]
    stamp: Callable[[Path], str]
    digest: Callable[[Path], str]
    read: Callable[[Path], Reading]


def folder_format(folder: str, names: Collection[str]) -> FolderFormat | None:
    """Tell by the names in a folder whether it is one table."""
    if DELTA_LOG in names and os.path.isdir(os.path.join(folder, DELTA_LOG)):
        from deepjoin.read.delta import DELTA

        return DELTA
    if ICEBERG_METADATA in names and _has_metadata(os.path.join(folder, ICEBERG_METADATA)):
        from deepjoin.read.iceberg import ICEBERG

        return ICEBERG
    return None


def _has_metadata(folder: str) -> bool:
    try:
        return any(name.endswith(METADATA_ENDINGS) for name in os.listdir(folder))
    except OSError:
        return False


def group_stamp(stamps: Iterable[tuple[str, str]]) -> str:
    """Sum up files by their names and stamps; '' where one of them has none."""
    digest, count = xxhash.xxh3_64(), 0
    for name, stamp in stamps:
        if not stamp:
            return ""
        digest.update(f"{name} {stamp}\n".encode())
        count += 1
    return f"{count}-{digest.hexdigest()}"


def table_batches(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], notes: list[str]
) -> Iterator[pa.RecordBatch]:
    """Give the batches of a library the form that Parquet files have here."""
    names = unique_names(schema.names)
    empty = True
    for batch in batches:
        empty = False
        yield with_valid_text(decoded(batch, names), notes)
    if empty:
        yield decoded(no_rows(schema), names)
