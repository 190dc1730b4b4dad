"""Write an enriched table to a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from deepjoin.errors import DeepJoinError
from deepjoin.files import written_aside

Writer = Callable[[pa.Table, Path], None]


def writer_of(path: Path) -> Writer:
    """Choose the writer of a file by its ending."""
    ending = path.suffix.lower()
    if ending not in (".parquet", ".csv"):
        raise DeepJoinError(f"Cannot write {path.name}: an enriched table is .parquet or .csv.")
    return _write_parquet if ending == ".parquet" else _write_csv


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table; the file appears when it is complete."""
    write = writer_of(path)
    with written_aside(path) as aside:
        write(table, aside)


def _write_parquet(table: pa.Table, path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(table, path)


def _write_csv(table: pa.Table, path: Path) -> None:
    import pyarrow.csv as csv

    csv.write_csv(table, path)
