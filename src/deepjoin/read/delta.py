"""Delta tables: the current version, without the rows that were deleted."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import xxhash

from deepjoin.errors import MissingExtra, UnreadableTable
from deepjoin.model import Reading
from deepjoin.read.folders import DELTA_LOG, FolderFormat, group_stamp, table_batches
from deepjoin.read.formats import unreadable
from deepjoin.read.source import file_digest, file_stamp

if TYPE_CHECKING:
    from deltalake import DeltaTable

_COMMIT = re.compile(r"\d{20}\.json")
_BROKEN = "is not a readable Delta table"


def check_delta(folder: Path) -> None:
    """See that the library is there."""
    try:
        import deltalake  # noqa: F401
    except ImportError:
        raise MissingExtra(
            f"Reading {folder} needs the Delta extra: pip install 'deepjoin[delta]'"
        ) from None


def read_delta(folder: Path) -> Reading:
    """Read the rows of the current version, partition columns included."""
    check_delta(folder)
    notes: list[str] = []
    return Reading(_guarded(folder, notes), notes)


def _guarded(folder: Path, notes: list[str]) -> Iterator[pa.RecordBatch]:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        # The library calls a table damaged that is gone, or that it may not open.
        for entry in _log_files(folder)[:1]:
            Path(entry.path).open("rb").close()
        yield from _batches(folder, DeltaTable(folder), notes)
    except (DeltaError, pa.ArrowException, OSError, ValueError) as error:
        raise unreadable(folder, error, _BROKEN) from None


def _batches(folder: Path, table: DeltaTable, notes: list[str]) -> Iterator[pa.RecordBatch]:
    """Read file by file, in the table's order; what that cannot do, the library's engine can."""
    from deltalake.exceptions import DeltaProtocolError

    try:
        files = table.to_pyarrow_dataset()
    except DeltaProtocolError:
        reader = _engine_reader(folder, table)
        return table_batches(reader.schema, reader, notes)
    return table_batches(files.schema, files.to_batches(), notes)


def _engine_reader(folder: Path, table: DeltaTable) -> pa.RecordBatchReader:
    """Read deletion vectors and mapped columns, which releases before 1.6 cannot."""
    if not hasattr(table, "scan"):
        raise UnreadableTable(
            f"{folder} is a Delta table with features that the installed deltalake cannot read: "
            "pip install --upgrade deltalake",
            passing=True,
        )
    return pa.RecordBatchReader.from_stream(table.scan())


def _log_files(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder / DELTA_LOG) as entries:
        files = [entry for entry in entries if entry.is_file()]
    return sorted(files, key=lambda entry: entry.name)


def delta_stamp(folder: Path) -> str:
    """Give the version, and a sum of the log's names, sizes and times."""
    files = _log_files(folder)
    stamp = group_stamp((entry.name, file_stamp(entry.stat())) for entry in files)
    commits = [entry.name for entry in files if _COMMIT.fullmatch(entry.name)]
    return stamp and f"version {int(commits[-1][:20]) if commits else 0}-{stamp}"


def delta_digest(folder: Path) -> str:
    """Sum up the log; the files it names never change."""
    digest = xxhash.xxh3_128()
    for entry in _log_files(folder):
        digest.update(f"{entry.name} {file_digest(Path(entry.path))}\n".encode())
    return digest.hexdigest()


DELTA = FolderFormat("Delta", check_delta, delta_stamp, delta_digest, read_delta)
