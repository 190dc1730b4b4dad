"""Column corpora: folders of columns in Parquet, as benchmarks and training use them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.model import Column, Table
from deepjoin.normalise.cells import text_array, unique_names
from deepjoin.read.formats import unreadable
from deepjoin.read.frames import table_of_columns
from deepjoin.read.parquet import batch_rows
from deepjoin.read.source import (
    Description,
    Item,
    Listing,
    Skipped,
    Source,
    file_digest,
    file_stamp,
    relative,
    tables_gone,
)
from deepjoin.settings import Settings

#: Large offsets, because the cells of one block may pass two gibibytes.
SCHEMA = pa.schema(
    [
        *((name, pa.large_string()) for name in ("column_id", "table_id", "title")),
        *((name, pa.large_string()) for name in ("column_name", "context")),
        ("cells", pa.large_list(pa.large_string())),
    ]
)
# Titles and contexts may be missing: most benchmarks have none.
_REQUIRED = ("column_id", "table_id", "column_name", "cells")
# The most columns and bytes of a block: columns may be long.
_BLOCK = 20_000
_BLOCK_BYTES = 256 << 20


def is_corpus(folder: Path) -> bool:
    """Check whether a folder is a corpus; some other table may be called columns.parquet."""
    path = folder / "columns.parquet"
    try:
        names = pq.read_schema(path).names if os.path.isfile(path) else []
    except (pa.ArrowException, OSError):
        return False
    return {"column_id", "cells"} <= set(names)


class CorpusSource(Source):
    """The columns, queries and labels of a corpus folder, streamed from disk."""

    kind = "corpus"

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.root = Path(folder).expanduser().absolute()
        with self._open("columns.parquet") as file:
            self.count: int = file.metadata.num_rows
        self.skipped: list[Skipped] = []

    @property
    def folder(self) -> Path:
        """The folder of the corpus."""
        return self.root

    @property
    def as_corpus(self) -> CorpusSource:
        """The source itself."""
        return self

    def blocks(
        self, file: str = "columns.parquet", names: Sequence[str] = SCHEMA.names
    ) -> Iterator[pa.RecordBatch]:
        """Yield the columns in file order, about 20,000 a block; fields not named are blank."""
        with self._open(file) as opened:
            names = [name for name in names if name in opened.schema_arrow.names]
            try:
                rows = batch_rows(opened.metadata, _BLOCK, _BLOCK_BYTES)
                for batch in opened.iter_batches(rows, columns=names):
                    yield _conformed(batch)
            except (pa.ArrowException, OSError) as error:
                raise unreadable(self.folder / file, error) from None

    def columns(self, file: str = "columns.parquet") -> Iterator[Column]:
        """Yield the columns one by one."""
        for block in self.blocks(file):
            yield from _columns_of(block)

    def queries(self) -> list[Column]:
        """Read the query columns."""
        return list(self.columns("queries.parquet"))

    def labels(self) -> pa.Table | None:
        """Read which columns answer which query, if the corpus has labels."""
        path = self.folder / "labels.parquet"
        return pq.read_table(path) if os.path.isfile(path) else None

    def items(self) -> Iterator[Item]:
        """List the corpus as the one item it is."""
        path = self.folder / "columns.parquet"
        # The columns of a table may be anywhere in the file, so no smaller part can change alone.
        yield Item(
            *(path.name, file_stamp(path.stat()), lambda: Listing(tuple(self.tables()))),
            partial(file_digest, path),
        )

    def describe(self, index: Path) -> Description:
        """Describe where the corpus is, relative to an index folder."""
        return {"kind": self.kind, "root": relative(self.folder, index)}

    def tables(self) -> Iterator[Table]:
        """Put the columns back into tables, in file order."""
        ids = self._table_ids().combine_chunks()
        runs = 1 + (pc.sum(pc.not_equal(ids[1:], ids[:-1])).as_py() or 0)
        # Mostly the columns of a table are side by side, and one pass over the file will do.
        if len(ids) < 2 or runs == len(pc.unique(ids)):
            for name, group in groupby(self.columns(), key=lambda column: column.table or ""):
                yield table_of_columns(name, list(group))
        else:
            for name in pc.unique(ids).to_pylist():
                yield self.table(name)

    def table(self, name: str) -> Table:
        """Put one table together from its columns."""
        return table_of_columns(name, self._columns_of_table(name))

    def column_names(self, table: str) -> dict[str, str]:
        """Map column ids to names in the table; columns may be nameless or share a name."""
        columns = self._columns_of_table(table)
        names = unique_names([column.name for column in columns])
        return {column.column_id or "": name for column, name in zip(columns, names, strict=True)}

    def _columns_of_table(self, name: str) -> list[Column]:
        with self._open("columns.parquet") as file:
            columns: list[Column] = []
            # The ids are a small part of the file; cells are read only where they fit.
            for group in range(file.num_row_groups):
                ids = file.read_row_group(group, ["table_id"]).column(0)
                chosen = pc.equal(ids, pa.scalar(name, ids.type))
                if pc.any(chosen).as_py():
                    rows = file.read_row_group(group).filter(chosen).combine_chunks()
                    columns += [
                        c for batch in rows.to_batches() for c in _columns_of(_conformed(batch))
                    ]
        if not columns:
            known = pc.unique(self._table_ids()).to_pylist()
            raise unknown_name("table", name, str(self.folder), known)
        return columns

    def _table_ids(self) -> pa.ChunkedArray:
        with self._open("columns.parquet") as file:
            return file.read(["table_id"]).column(0)

    def _open(self, name: str) -> pq.ParquetFile:
        path = self.folder / name
        if not os.path.isfile(path):
            raise DeepJoinError(f"The corpus '{self.folder}' has no {name}.")
        try:
            file = pq.ParquetFile(path)
        except (pa.ArrowException, OSError) as error:
            raise unreadable(path, error, "is not a readable Parquet file") from None
        schema = file.schema_arrow
        missing = [name for name in _REQUIRED if name not in schema.names]
        if missing:
            raise DeepJoinError(
                f"{path} is not a column corpus: {', '.join(missing)} missing. "
                f"A corpus has {', '.join(SCHEMA.names)}."
            )
        # Lists have several types (large, fixed-size, view); all have a type of their values.
        kind = schema.field("cells").type
        if not hasattr(kind, "value_type"):
            raise DeepJoinError(f"{path}: 'cells' must be a list of strings, it is {kind}.")
        return file


def reopen(described: Description, index: Path, settings: Settings) -> CorpusSource:
    """Open the corpus that `CorpusSource.describe` described."""
    folder = Path(os.path.normpath(index.resolve() / described["root"]))
    if not folder.exists():
        raise tables_gone(folder)
    return CorpusSource(folder)


def _conformed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add missing fields to a block and cast the others; missing texts are blank."""
    columns = []
    for name, kind in zip(SCHEMA.names, SCHEMA.types, strict=True):
        if name not in batch.schema.names:
            blank = pa.scalar([] if name == "cells" else "", kind)
            columns.append(pa.repeat(blank, batch.num_rows))
        else:
            array = batch.column(name).cast(kind)
            columns.append(array if name == "cells" else pc.fill_null(array, ""))
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _columns_of(block: pa.RecordBatch) -> Iterator[Column]:
    for row in block.to_pylist():
        yield Column(
            cells=row["cells"] or [],
            name=row["column_name"],
            table=row["table_id"],
            title=row["title"],
            context=row["context"],
            column_id=row["column_id"],
        )


def write_corpus(
    folder: str | os.PathLike[str],
    columns: Iterable[Column],
    queries: Iterable[Column] | None = None,
) -> CorpusSource:
    """Write columns, and queries if any, as a corpus folder; missing ids are generated.

    A column without a table becomes a table by itself.
    """
    target = Path(folder).expanduser()
    target.mkdir(parents=True, exist_ok=True)
    _write(target / "columns.parquet", columns, "table")
    if queries is not None:
        _write(target / "queries.parquet", queries, "query")
    return CorpusSource(target)


def _write(path: Path, columns: Iterable[Column], kind: str) -> None:
    rows = _rows(columns, kind)
    with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        while block := list(islice(rows, _BLOCK)):
            writer.write_batch(pa.RecordBatch.from_pylist(block, SCHEMA))


def _rows(columns: Iterable[Column], kind: str) -> Iterator[dict[str, Any]]:
    counts: dict[str, int] = {}
    for position, column in enumerate(columns):
        table = column.table if column.table is not None else f"{kind}-{position}"
        within = counts[table] = counts.get(table, -1) + 1
        identity = column.column_id if column.column_id is not None else f"{table}#{within}"
        # Through `text_array`, because Parquet cannot store half characters.
        texts = (identity, table, column.title, column.name, column.context)
        fields = zip(SCHEMA.names, text_array(texts).to_pylist(), strict=False)
        yield {**dict(fields), "cells": text_array(column.cells).to_pylist()}
