"""Column corpora: written, streamed, put back into tables, and refused when they are none."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepjoin.errors import DeepJoinError, UnknownName, UnreadableTable
from deepjoin.model import Column
from deepjoin.read import corpus
from deepjoin.read.corpus import SCHEMA, CorpusSource, is_corpus, write_corpus
from deepjoin.read.files import FileSource
from deepjoin.settings import Settings
from tests.support.opening import open_source

COLUMNS = [
    Column(["Paris", None, "Rome"], "city", "t1", "Cities", "of Europe", "t1#0"),
    Column(["2", "3"], "people", "t1", "Cities", "of Europe", "t1#1"),
    Column(["GE"], "company", "t2", "", "", "t2#0"),
]
QUERIES = [Column(["Rome"], "town", "q", "", "", "q#0")]


@pytest.fixture
def source(tmp_path: Path) -> CorpusSource:
    return write_corpus(tmp_path / "corpus", iter(COLUMNS), QUERIES)


def contents(source: CorpusSource) -> dict[str, dict[str, list[str | None]]]:
    return {table.name: batch.to_pydict() for table in source.tables() for batch in table.open()}


EXPECTED = {
    "t1": {"city": ["Paris", None, "Rome"], "people": ["2", "3", None]},
    "t2": {"company": ["GE"]},
}


def test_what_is_written_is_read(source: CorpusSource) -> None:
    assert source.count == 3
    assert list(source.columns()) == COLUMNS
    assert source.queries() == QUERIES
    assert source.labels() is None
    assert source.skipped == []


def test_blocks_have_the_schema(source: CorpusSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "_BLOCK", 2)
    blocks = list(source.blocks())
    assert [block.num_rows for block in blocks] == [2, 1]
    assert all(block.schema.equals(SCHEMA) for block in blocks)


def test_blocks_of_long_columns_are_shorter(
    source: CorpusSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "_BLOCK_BYTES", 1)
    assert [block.num_rows for block in source.blocks()] == [1, 1, 1]


def test_tables_are_put_together(source: CorpusSource) -> None:
    assert contents(source) == EXPECTED
    table = source.table("t1")
    assert (table.title, table.context) == ("Cities", "of Europe")


def test_scattered_columns_are_put_together(tmp_path: Path) -> None:
    scattered = [COLUMNS[0], COLUMNS[2], COLUMNS[1]]
    assert contents(write_corpus(tmp_path, scattered)) == EXPECTED


def test_a_table_across_row_groups(tmp_path: Path, source: CorpusSource) -> None:
    path = source.folder / "columns.parquet"
    pq.write_table(pq.read_table(path), path, row_group_size=1)
    assert contents(source) == EXPECTED
    (batch,) = source.table("t1").open()
    assert batch.to_pydict() == EXPECTED["t1"]


def test_unknown_table(source: CorpusSource) -> None:
    with pytest.raises(UnknownName, match=r"No table 't3' in .*Tables: t1, t2\."):
        source.table("t3")


def test_labels(source: CorpusSource) -> None:
    labels = pa.table({"query_id": ["q#0"], "column_id": ["t1#0"], "entity_jn": [1.0]})
    pq.write_table(labels, source.folder / "labels.parquet")
    assert source.labels() == labels


def test_small_types_and_missing_titles(tmp_path: Path) -> None:
    table = pa.table(
        {
            "column_id": ["a#0", "a#1"],
            "table_id": pa.array(["a", "a"]).dictionary_encode(),
            "column_name": ["x", None],
            "cells": [["1", None], None],
            "extra": [1, 2],
        }
    )
    pq.write_table(table, tmp_path / "columns.parquet")
    source = open_source(tmp_path, Settings())
    assert isinstance(source, CorpusSource)
    assert list(source.columns()) == [
        Column(["1", None], "x", "a", column_id="a#0"),
        Column([], "", "a", column_id="a#1"),
    ]
    (batch,) = source.table("a").open()
    assert batch.to_pydict() == {"x": ["1", None], "column_2": [None, None]}


def test_ids_are_made_up(tmp_path: Path) -> None:
    columns = [Column(["a"]), Column(["b"], table="t"), Column(["c"], table="t")]
    source = write_corpus(tmp_path, columns, [Column(["d"])])
    assert [column.column_id for column in source.columns()] == ["table-0#0", "t#0", "t#1"]
    assert source.queries()[0].column_id == "query-0#0"


def test_empty_corpus(tmp_path: Path) -> None:
    source = write_corpus(tmp_path, [])
    assert (source.count, list(source.blocks()), list(source.tables())) == (0, [], [])


def test_dispatch(source: CorpusSource, tmp_path: Path) -> None:
    assert isinstance(open_source(source.folder, Settings()), CorpusSource)
    assert isinstance(open_source([str(source.folder)], Settings()), CorpusSource)
    with pytest.raises(DeepJoinError, match=r"corpus' is a column corpus; give it on its own\."):
        open_source([source.folder, tmp_path], Settings())


def test_a_table_called_columns_is_no_corpus(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": ["x"]}), tmp_path / "columns.parquet")
    assert not is_corpus(tmp_path)
    assert isinstance(open_source(tmp_path, Settings()), FileSource)
    with pytest.raises(
        DeepJoinError, match="not a column corpus: column_id, table_id, column_name"
    ):
        CorpusSource(tmp_path)


def test_cells_must_be_lists(tmp_path: Path) -> None:
    fields = {name: ["x"] for name in SCHEMA.names}
    pq.write_table(pa.table(fields), tmp_path / "columns.parquet")
    with pytest.raises(DeepJoinError, match="'cells' must be a list of strings, it is string"):
        CorpusSource(tmp_path)


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(DeepJoinError, match=r"The corpus '.*' has no columns.parquet\."):
        CorpusSource(tmp_path)
    source = write_corpus(tmp_path, COLUMNS)
    with pytest.raises(DeepJoinError, match=r"The corpus '.*' has no queries.parquet\."):
        source.queries()


def test_damaged_corpus(source: CorpusSource) -> None:
    path = source.folder / "columns.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    assert not is_corpus(source.folder)
    with pytest.raises(UnreadableTable, match=r"columns.parquet is not a readable Parquet file"):
        CorpusSource(source.folder)
    with pytest.raises(UnreadableTable, match=r"columns.parquet is not a readable Parquet file"):
        next(source.blocks())


def test_damaged_pages(tmp_path: Path) -> None:
    source = write_corpus(tmp_path, [Column([f"value {n}" for n in range(5000)])])
    path = tmp_path / "columns.parquet"
    data = bytearray(path.read_bytes())
    data[4:2000] = b"\xff" * 1996
    path.write_bytes(bytes(data))
    with pytest.raises(UnreadableTable, match=r"columns.parquet cannot be read: "):
        list(source.blocks())


@pytest.mark.slow
@given(st.lists(st.builds(Column, st.lists(st.none() | st.text()), st.text(), st.text())))
def test_any_columns_survive(
    tmp_path_factory: pytest.TempPathFactory, columns: list[Column]
) -> None:
    source = write_corpus(tmp_path_factory.mktemp("corpus"), columns)
    assert [column.cells for column in source.columns()] == [column.cells for column in columns]
    assert [column.name for column in source.columns()] == [column.name for column in columns]
