"""Iceberg tables in a folder: the current snapshot, without the rows that were deleted."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

import pyarrow as pa

from deepjoin.errors import MissingExtra, UnreadableTable
from deepjoin.model import Reading
from deepjoin.read.folders import ICEBERG_METADATA, METADATA_ENDINGS, FolderFormat, table_batches
from deepjoin.read.formats import unreadable
from deepjoin.read.source import file_digest, file_stamp

if TYPE_CHECKING:
    from pyiceberg.table import StaticTable

_BROKEN = "is not a readable Iceberg table"
_HINT = "version-hint.text"
_VERSION = re.compile(r"v?(\d+)")


def check_iceberg(folder: Path) -> None:
    """See that the library is there."""
    try:
        import pyiceberg.table  # noqa: F401
    except ImportError:
        raise MissingExtra(
            f"Reading {folder} needs the Iceberg extra: pip install 'deepjoin[iceberg]'"
        ) from None


def current_metadata(folder: Path) -> Path:
    """Find the metadata that counts: what the hint of the catalogue names, else the newest."""
    inside = folder / ICEBERG_METADATA
    with os.scandir(inside) as entries:
        found = {entry.name: entry for entry in entries}
    if _HINT in found:
        hint = (inside / _HINT).read_text("utf-8").strip()
        for ending in ("", *METADATA_ENDINGS, ".gz.metadata.json"):
            for name in (f"v{hint}{ending}", f"{hint}{ending}"):
                if name in found and name.endswith(METADATA_ENDINGS):
                    return inside / name
    newest = max((e for e in found.values() if e.name.endswith(METADATA_ENDINGS)), key=_age)
    return inside / newest.name


def _age(entry: os.DirEntry[str]) -> tuple[int, int, str]:
    number = _VERSION.match(entry.name)
    return int(number[1]) if number else -1, entry.stat().st_mtime_ns, entry.name


def read_iceberg(folder: Path) -> Reading:
    """Read the rows of the current snapshot."""
    check_iceberg(folder)
    notes: list[str] = []
    return Reading(_guarded(folder, notes), notes)


def _guarded(folder: Path, notes: list[str]) -> Iterator[pa.RecordBatch]:
    from pyiceberg.table import StaticTable

    try:
        table = StaticTable.from_metadata(str(current_metadata(folder)))
        _refuse_moved(folder, table)
        reader = table.scan().to_arrow_batch_reader()
        yield from table_batches(reader.schema, reader, notes)
    except UnreadableTable:
        raise
    # What the library raises of damaged metadata has no base of its own.
    except Exception as error:
        raise unreadable(folder, error, _BROKEN) from None


def _refuse_moved(folder: Path, table: StaticTable) -> None:
    """Say plainly what a missing file would not: the metadata holds whole paths."""
    location = urlparse(table.location())
    there = unquote(location.path) if location.scheme == "file" else table.location()
    if location.scheme in ("", "file") and not os.path.isdir(there):
        raise UnreadableTable(
            f"{folder} is an Iceberg table that was moved here from {there}, where its metadata "
            "still looks for its files; move it back, or write it anew here.",
            passing=True,
        )


def iceberg_stamp(folder: Path) -> str:
    """Give the name, size and time of the metadata that counts."""
    path = current_metadata(folder)
    stamp = file_stamp(path.stat())
    return stamp and f"{path.name}-{stamp}"


def iceberg_digest(folder: Path) -> str:
    """Sum up the metadata that counts; it names the snapshot, whose files never change."""
    return file_digest(current_metadata(folder))


ICEBERG = FolderFormat("Iceberg", check_iceberg, iceberg_stamp, iceberg_digest, read_iceberg)
