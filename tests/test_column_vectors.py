"""Column vectors: made from a segment as from its tables, kept through merges, never made twice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepjoin import Column, DeepJoinError
from deepjoin.embed.columns.cache import CachedEncoder, VectorCache
from deepjoin.embed.columns.text import SAMPLINGS, DocumentFrequencies, TextSettings, column_texts
from deepjoin.normalise.cells import distinct_cells
from deepjoin.progress import Progress
from deepjoin.store import column_vectors
from deepjoin.store.column_vectors import (
    About,
    ColumnVectors,
    both_query,
    both_rows,
    finish_both,
    finish_columns,
    finish_sketch,
    known_rows,
    merge_rows,
    segment_columns,
    write_rows,
)
from deepjoin.store.segment import Segment
from deepjoin.store.sketch import FrequencySnapshot, write_frequency
from tests.support.column_lakes import WordEncoder, segment_of

#: Cells that come in several spellings, twice, blank, missing, or with much white space.
CELLS = st.lists(
    st.sampled_from(["Apple", "apple ", "GE", "ge", "7", "7.0", "a  b", "", " ", "Zürich", None])
    | st.text("abé 1,\t", max_size=5),
    min_size=1,
    max_size=12,
)
TABLES = st.lists(
    st.tuples(CELLS, st.sampled_from(["Firms", "Firms 1990"])), min_size=1, max_size=4
)


def made(tables: Sequence[tuple[list[str | None], str]]) -> list[Column]:
    """Give each column a table of its own, which needs one cell that is there."""
    return [
        Column([*cells, "x"], f"name {n}", f"t{n}", title, f"about {n}" if " " in title else "")
        for n, (cells, title) in enumerate(tables)
    ]


def cities(count: int, start: int = 0) -> list[Column]:
    """Make columns whose neighbours share half of their cells."""
    return [
        Column([f"city {3 * n + i}" for i in range(6)], "city", f"t{n:03}")
        for n in range(start, start + count)
    ]


def words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def snapshot(segments: Sequence[Segment], folder: Path) -> FrequencySnapshot:
    folder.mkdir(exist_ok=True)
    write_frequency(segments, folder)
    return FrequencySnapshot(folder)


@pytest.mark.slow
@settings(max_examples=25)
@given(
    profile=st.sampled_from(["default", "basic"]),
    tables=TABLES,
    sampling=st.sampled_from(sorted(SAMPLINGS)),
)
def test_texts_are_those_of_the_tables(
    tmp_path_factory: pytest.TempPathFactory,
    profile: str,
    tables: list[tuple[list[str | None], str]],
    sampling: str,
) -> None:
    source = made(tables)
    segment = segment_of(source, tmp_path_factory.mktemp("index"), profile=profile)
    how = TextSettings("title-colname-col-context", 14, sampling, profile=profile)
    exact = DocumentFrequencies.of(source, profile)
    stored = snapshot([segment], tmp_path_factory.mktemp("frequency"))
    counted = sampling in ("tf-idf", "bm25")
    again = list(segment_columns(segment, np.arange(len(source)), counted))
    assert column_texts(again, how, stored, words) == column_texts(source, how, exact, words)
    for mine, theirs in zip(again, source, strict=True):
        one, two = (distinct_cells(column.cells, profile) for column in (mine, theirs))
        assert (one.values, one.spellings) == (two.values, two.spellings)
        assert not counted or one.counts == two.counts
        assert (mine.name, mine.table, mine.title, mine.context) == (
            *(theirs.name, theirs.table),
            *(theirs.title, theirs.context),
        )


def test_columns_come_in_the_order_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_vectors, "_SPELLED", 13)
    source = cities(9)
    segment = segment_of(source, tmp_path)
    asked = np.array([7, 2, 2, 8, 0, 1])
    got = list(segment_columns(segment, asked))
    assert [column.table for column in got] == [f"t{n:03}" for n in asked]
    assert [list(column.cells) for column in got] == [source[n].cells for n in asked]
    assert list(segment_columns(segment, np.zeros(0, np.int64))) == []


def test_the_snapshot_counts_live_columns_of_all_segments(tmp_path: Path) -> None:
    one = segment_of([Column(["a", "b"], table="1"), Column(["A", "c"], table="2")], tmp_path / "1")
    two = segment_of([Column(["a", "d"], table="3"), Column(["b", "d"], table="4")], tmp_path / "2")
    frequency = snapshot([one, two], tmp_path / "both")
    assert frequency(["a", "b", "c", "d", "e"]).tolist() == [3, 2, 0, 2, 0]
    assert frequency.columns == 4
    less = snapshot([one, two.without([0])], tmp_path / "less")
    assert less(["a", "b", "d"]).tolist() == [2, 2, 0]
    assert less.columns == 3
    assert np.load(tmp_path / "less" / "frequency_counts.npy").dtype == np.uint32
    assert FrequencySnapshot.exists(tmp_path / "less")
    assert not FrequencySnapshot.exists(tmp_path)
    none = snapshot([], tmp_path / "none")
    assert (none(["a"]).tolist(), none.columns) == ([0], 0)


def test_only_what_is_not_known_is_encoded(tmp_path: Path) -> None:
    segment = segment_of(cities(30), tmp_path / "index")
    frequency, encoder = snapshot([segment], tmp_path / "f"), WordEncoder()
    told: list[tuple[int, int, str]] = []
    assert finish_columns(segment, tmp_path, encoder, frequency, progress=told_to(told)) == 30
    assert told == [(30, 30, "columns")]
    rows = known_rows(tmp_path, "columns", encoder.digest)
    assert rows is not None and rows.shape == (30, 24) and rows.dtype == np.float16
    truth = encoder.encode(list(segment_columns(segment, np.arange(30))), frequency)
    np.testing.assert_allclose(rows, truth, rtol=2e-3)
    assert known_rows(tmp_path, "columns", "another") is None
    assert known_rows(tmp_path, "sketch", encoder.digest) is None
    partly = np.array(rows)
    partly[[3, 20]] = np.nan
    encoder.asked.clear()
    assert finish_columns(segment, tmp_path / "two", encoder, frequency, partly) == 2
    assert len(encoder.asked) == 2
    again = ColumnVectors.open(tmp_path / "two", "columns")
    assert again is not None and again.complete
    np.testing.assert_array_equal(again.rows, rows)
    assert again.about == About("words", encoder.digest, 24)
    assert again.index.search(truth[5], 1).ids.tolist() == [5]
    with pytest.raises(DeepJoinError, match=r"shape \(30, 23\) came for 30 columns of 24 numbers"):
        finish_columns(segment, tmp_path / "three", encoder, frequency, rows[:, :23])


def told_to(told: list[tuple[int, int, str]]) -> Progress:
    return lambda done, total, text: told.append((done, total, text))


def test_columns_out_of_the_lake_are_not_encoded(tmp_path: Path) -> None:
    segment = segment_of(cities(10), tmp_path / "index").without([2, 5])
    encoder = WordEncoder()
    assert finish_columns(segment, tmp_path, encoder, snapshot([segment], tmp_path / "f")) == 8
    found = ColumnVectors.open(tmp_path, "columns")
    assert found is not None and found.complete
    assert np.flatnonzero(~found.rows.any(axis=1)).tolist() == [2, 5]


def test_an_interrupted_run_loses_one_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_vectors, "_BLOCK", 4)
    segment = segment_of(cities(10), tmp_path / "index")
    frequency, encoder = snapshot([segment], tmp_path / "f"), WordEncoder()

    def interrupt(done: int, total: int, text: str) -> None:
        if done == 8:
            raise KeyboardInterrupt

    with VectorCache(tmp_path / "cache") as cache:
        with pytest.raises(KeyboardInterrupt):
            cached = CachedEncoder(encoder, cache)
            finish_columns(segment, tmp_path, cached, frequency, None, interrupt)
        assert ColumnVectors.open(tmp_path, "columns") is None
        encoder.asked.clear()
        finish_columns(segment, tmp_path, CachedEncoder(encoder, cache), frequency)
    assert len(encoder.asked) <= 2


def test_repeated_cells_count_where_the_sampling_looks_at_them(tmp_path: Path) -> None:
    column = Column(["a", "b", "b", "b", "c", "d", "e", "f", "g"], "n", "t")
    segment = segment_of([column], tmp_path / "index")
    frequency = snapshot([segment], tmp_path / "f")
    encoder = WordEncoder(pattern="col", tokens=8, sampling="tf-idf")
    finish_columns(segment, tmp_path, encoder, frequency)
    assert encoder.asked == column_texts([column], encoder.settings, frequency, encoder.count)
    assert "b" in encoder.asked[0]


def test_a_merge_keeps_the_rows_there_are(tmp_path: Path) -> None:
    segments = [segment_of(cities(4, 4 * n), tmp_path / f"{n}") for n in range(3)]
    kept = [np.array(marks, bool) for marks in ([1, 1, 0, 1], [1, 0, 1, 1], [1, 1, 1, 1])]
    parts = list(zip(segments, kept, strict=True))
    assert not merge_rows(parts, tmp_path / "out", "columns")
    about = About("words", "digest", 2)
    for n in (0, 2):
        write_rows(segments[n].folder, "columns", about, 4, [np.full((4, 2), n + 1, np.float16)])
    assert merge_rows(parts, tmp_path / "out", "columns")
    merged = ColumnVectors.open(tmp_path / "out", "columns")
    assert merged is not None and merged.about == about and not merged.complete
    assert np.isnan(merged.rows[3:6]).all()
    assert merged.rows[[0, 1, 2, 6, 7, 8, 9], 0].tolist() == [1, 1, 1, 3, 3, 3, 3]
    other = About("words", "other", 2)
    write_rows(segments[1].folder, "columns", other, 4, np.zeros((2, 2, 2)))
    assert not merge_rows(parts, tmp_path / "more", "columns")


def test_segments_without_columns_have_vectors_too(tmp_path: Path) -> None:
    segment = segment_of(cities(2), tmp_path / "index", min_distinct=50)
    assert segment.values.columns == 0
    frequency = snapshot([segment], tmp_path / "f")
    assert finish_columns(segment, tmp_path, WordEncoder(), frequency) == 0
    finish_sketch(segment, tmp_path, frequency, 64)
    finish_both(tmp_path)
    both = ColumnVectors.open(tmp_path, "both")
    assert both is not None and both.complete and both.rows.shape == (0, 88)


def test_both_is_one_vector_of_two_halves(tmp_path: Path) -> None:
    segment = segment_of(cities(8), tmp_path / "index")
    frequency = snapshot([segment], tmp_path / "f")
    with pytest.raises(DeepJoinError, match="lacks column vectors or sketches, of which"):
        finish_both(tmp_path)
    finish_columns(segment, tmp_path, WordEncoder(), frequency)
    finish_sketch(segment, tmp_path, frequency, 64)
    finish_both(tmp_path)
    found = [ColumnVectors.open(tmp_path, space) for space in ("columns", "sketch", "both")]
    one, two, both = (vectors.rows.astype(float) for vectors in found if vectors is not None)
    np.testing.assert_allclose(np.linalg.norm(both[:, :24], axis=1), 1, atol=1e-3)
    np.testing.assert_allclose(both[:, 24:], two * 2**0.5, atol=2e-3)
    np.testing.assert_allclose(
        both[:, :24], one / np.linalg.norm(one, axis=1, keepdims=True), atol=1e-3
    )
    assert found[2] is not None and found[2].about.name == "words+sketch"


def test_columns_without_a_sketch_are_not_lifted_above_others() -> None:
    columns, sketch = np.eye(2, 4)[[0, 0]], np.array([[0.6, 0, 0.8], [0, 0, 0]])
    rows = both_rows(columns, sketch)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 3**0.5, rtol=1e-6)
    cosines = rows @ both_query(columns[:1], np.array([[1.0, 0, 0]]), "equi")[0]
    assert cosines[0] > cosines[1] > 0
    assert not both_query(columns[:1], sketch[1:], "equi")[0, 4:].any(), "queries have none"


def test_sketches_count_most_where_equal_cells_are_asked_for() -> None:
    asked = [both_query(np.ones((1, 2)), np.ones((1, 3)), join)[0] for join in ("equi", "semantic")]
    shares = [np.linalg.norm(row[2:]) / np.linalg.norm(row[:2]) for row in asked]
    np.testing.assert_allclose(shares, np.array([4, 0.5]) * 2**0.5, rtol=1e-6)
