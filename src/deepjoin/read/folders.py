"""Table formats that keep a whole folder to themselves: Delta and Iceberg.

Both are read as they are now: the current version or snapshot, without deleted rows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa

from deepjoin.errors import UnreadableTable
from deepjoin.model import Reading
from deepjoin.optional import require
from deepjoin.read.formats import unreadable
from deepjoin.read.parquet import named_batches, with_valid_text
from deepjoin.read.source import file_digest, file_stamp, group_digest, group_stamp

_DELTA_LOG = "_delta_log"
_DELTA_COMMIT = re.compile(r"\d{20}\.json")
_ICEBERG_METADATA = "metadata"
_ICEBERG_HINT = "version-hint.text"
_ICEBERG_VERSION = re.compile(r"v?(\d+)")
_METADATA_ENDINGS = (".metadata.json", ".metadata.json.gz")


@dataclass(frozen=True)
class FolderFormat:
    """How to read such a folder; ``check`` raises `MissingExtra` if its library is missing."""

    name: str
    check: Callable[[Path], object]
    stamp: Callable[[Path], str]
    digest: Callable[[Path], str]
    read: Callable[[Path], Reading]


def folder_format(folder: str, names: Collection[str]) -> FolderFormat | None:
    """Recognise a folder that is one table by the names in it."""
    if _DELTA_LOG in names and os.path.isdir(os.path.join(folder, _DELTA_LOG)):
        return DELTA
    if _ICEBERG_METADATA in names:
        try:
            inside = os.listdir(os.path.join(folder, _ICEBERG_METADATA))
        except OSError:
            return None
        return ICEBERG if any(name.endswith(_METADATA_ENDINGS) for name in inside) else None
    return None


def _reading(batches: Iterator[pa.RecordBatch]) -> Reading:
    notes: list[str] = []
    return Reading((with_valid_text(batch, notes) for batch in batches), notes)


def _check_delta(folder: Path) -> None:
    require("deltalake", "delta", f"Reading {folder}")


def read_delta(folder: Path) -> Reading:
    """Read the rows of the current version, partition columns included."""
    _check_delta(folder)
    return _reading(_delta_batches(folder))


def _delta_batches(folder: Path) -> Iterator[pa.RecordBatch]:
    """Read file by file in the table's order, or with the library's engine where it must be."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, DeltaProtocolError

    try:
        # The library reports a table that is gone, or that it may not open, as damaged.
        for entry in _delta_log(folder)[:1]:
            Path(entry.path).open("rb").close()
        table = DeltaTable(folder)
        try:
            files = table.to_pyarrow_dataset()
        except DeltaProtocolError:
            # Deletion vectors and mapped columns, which releases before 1.6 cannot read at all.
            if not hasattr(table, "scan"):
                raise UnreadableTable(
                    f"{folder} is a Delta table with features that the installed deltalake cannot "
                    "read: pip install --upgrade deltalake",
                    passing=True,
                ) from None
            reader = pa.RecordBatchReader.from_stream(table.scan())
            yield from named_batches(reader.schema, reader)
        else:
            yield from named_batches(files.schema, files.to_batches())
    except (DeltaError, pa.ArrowException, OSError, ValueError) as error:
        raise unreadable(folder, error, "is not a readable Delta table") from None


def _delta_log(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder / _DELTA_LOG) as entries:
        files = [entry for entry in entries if entry.is_file()]
    return sorted(files, key=lambda entry: entry.name)


def _delta_stamp(folder: Path) -> str:
    """Combine the version with the names, sizes and times of the log's files."""
    files = _delta_log(folder)
    stamp = group_stamp((entry.name, file_stamp(entry.stat())) for entry in files)
    commits = [entry.name for entry in files if _DELTA_COMMIT.fullmatch(entry.name)]
    return stamp and f"version {int(commits[-1][:20]) if commits else 0}-{stamp}"


def _delta_digest(folder: Path) -> str:
    """Hash the log; the files that it names never change."""
    return group_digest(folder / _DELTA_LOG, (entry.name for entry in _delta_log(folder)))


DELTA = FolderFormat("Delta", _check_delta, _delta_stamp, _delta_digest, read_delta)


def current_metadata(folder: Path) -> Path:
    """Find the metadata that counts: what the catalogue's hint names, else the newest."""
    inside = folder / _ICEBERG_METADATA
    with os.scandir(inside) as entries:
        found = {entry.name: entry for entry in entries}
    if _ICEBERG_HINT in found:
        hint = (inside / _ICEBERG_HINT).read_text("utf-8").strip()
        for ending in ("", *_METADATA_ENDINGS, ".gz.metadata.json"):
            for name in (f"v{hint}{ending}", f"{hint}{ending}"):
                if name in found and name.endswith(_METADATA_ENDINGS):
                    return inside / name

    def age(name: str) -> tuple[int, int, str]:
        number = _ICEBERG_VERSION.match(name)
        return int(number[1]) if number else -1, found[name].stat().st_mtime_ns, name

    return inside / max((name for name in found if name.endswith(_METADATA_ENDINGS)), key=age)


def _check_iceberg(folder: Path) -> None:
    require("pyiceberg.table", "iceberg", f"Reading {folder}")


def read_iceberg(folder: Path) -> Reading:
    """Read the rows of the current snapshot."""
    _check_iceberg(folder)
    return _reading(_iceberg_batches(folder))


def _iceberg_batches(folder: Path) -> Iterator[pa.RecordBatch]:
    from pyiceberg.table import StaticTable

    try:
        table = StaticTable.from_metadata(str(current_metadata(folder)))
        # The metadata holds absolute paths, so a moved table would only report a missing file.
        location = urlparse(table.location())
        there = unquote(location.path) if location.scheme == "file" else table.location()
        if location.scheme in ("", "file") and not os.path.isdir(there):
            raise UnreadableTable(
                f"{folder} is an Iceberg table that was moved here from {there}, where its "
                "metadata still looks for its files; move it back, or write it anew here.",
                passing=True,
            )
        reader = table.scan().to_arrow_batch_reader()
        yield from named_batches(reader.schema, reader)
    except UnreadableTable:
        raise
    # The errors that the library raises for damaged metadata have no common base class.
    except Exception as error:
        raise unreadable(folder, error, "is not a readable Iceberg table") from None


def _iceberg_stamp(folder: Path) -> str:
    path = current_metadata(folder)
    stamp = file_stamp(path.stat())
    return stamp and f"{path.name}-{stamp}"


ICEBERG = FolderFormat(
    "Iceberg",
    _check_iceberg,
    _iceberg_stamp,
    # The metadata names the snapshot, whose files never change.
    lambda folder: file_digest(current_metadata(folder)),
    read_iceberg,
)
