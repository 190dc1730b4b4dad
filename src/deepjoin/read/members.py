"""The part files of a table on a local disk: their columns, their rows, their content."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from deepjoin.model import Reading
from deepjoin.read.dialect import sniff
from deepjoin.read.formats import format_of, read_file, true_format, unreadable
from deepjoin.read.parts import Parts, first_columns, read_parts
from deepjoin.read.source import file_digest


def read_group(root: Path, parts: Parts) -> Reading:
    """Read part files, whose names are relative to ``root``, as one table."""
    return read_parts(parts, partial(_read_member, root))


def _read_member(root: Path, name: str) -> Reading:
    if _is_blank(root, name):
        return Reading(iter(()), ["The file is empty."])
    return read_file(root / name, format_of(name) or "delimited")


def _is_blank(root: Path, name: str) -> bool:
    """Tell a file without a byte, which engines write for a part without rows."""
    try:
        return os.path.getsize(root / name) == 0 and format_of(name) not in ("parquet", "excel")
    except OSError as error:
        raise unreadable(root / name, error) from None


def member_columns(root: Path, name: str) -> list[str]:
    """Name the columns of a part file, reading as little as its format allows."""
    path = root / name
    if _is_blank(root, name):
        return []
    kind = true_format(path) or "delimited"
    if kind == "delimited":
        return list(sniff(path).names)
    if kind == "parquet":
        try:
            return list(pq.read_schema(path).names)
        except (pa.ArrowException, OSError) as error:
            raise unreadable(path, error) from None
    return first_columns(read_file(path, kind))


def group_digest(root: Path, parts: Parts) -> str:
    """Sum up the bytes of all part files, and their names."""
    digest = xxhash.xxh3_128()
    for name in parts.members:
        digest.update(f"{name} {file_digest(root / name)}\n".encode())
    return digest.hexdigest()
