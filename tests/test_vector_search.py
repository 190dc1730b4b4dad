"""Search by column vectors: the nearest first, however the lake is cut, and never verified."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from deepjoin import Column, DeepJoinError
from deepjoin.embed.columns.text import no_frequency
from deepjoin.errors import IndexUnusable
from deepjoin.search.context import EmbeddedStore
from deepjoin.search.exact import TwoStageSearch
from deepjoin.search.query import SearchOptions
from deepjoin.search.ranking import table_of
from deepjoin.search.vectors import ToVector, VectorSearcher, opened_vectors
from deepjoin.settings import SearchSettings
from deepjoin.store.column_vectors import (
    About,
    ColumnVectors,
    both_rows,
    finish_both,
    finish_columns,
    finish_sketch,
    write_rows,
)
from deepjoin.store.segment import Segment
from deepjoin.store.sketch import FrequencySnapshot, Sketcher, write_frequency
from tests.support.column_lakes import WordEncoder, segment_of

ENCODER = WordEncoder()


def columns(count: int = 24) -> list[Column]:
    """Make tables of two columns; every third table is a copy of the one before it."""
    made = []
    for n in range(count):
        of = n - 1 if n % 3 == 2 else n
        for name in ("city", "code"):
            made.append(Column([f"{name} {of + i}" for i in range(5)], name, f"t{n:02}", "Towns"))
    return made


def encoded(columns: list[Column], folder: Path, metric: str = "cosine") -> Segment:
    segment = segment_of(columns, folder)
    finish_columns(segment, segment.folder, ENCODER, no_frequency, index=("auto", metric))
    return segment


def vector(query: Column) -> np.ndarray:
    return ENCODER.encode([query], no_frequency)[0]


def searcher(
    segments: list[Segment], space: str = "columns", vector: ToVector = vector
) -> VectorSearcher:
    return VectorSearcher(
        segments, EmbeddedStore(segments, opened_vectors(segments, space)), vector
    )


def brute_force(columns: list[Column], query: Column, metric: str) -> list[tuple[str, str, float]]:
    rows = ENCODER.encode(columns, no_frequency).astype(np.float16).astype(float)
    asked = vector(query).astype(float)
    like = rows @ asked / np.linalg.norm(rows, axis=1) / np.linalg.norm(asked)
    if metric == "euclidean":
        like = -np.linalg.norm(rows - asked, axis=1)
    found = zip(columns, np.round(like, 6).tolist(), strict=True)
    return sorted(
        ((c.table or "", c.name, s) for c, s in found), key=lambda one: (-one[2], one[0], one[1])
    )


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("cuts", [(48,), (20, 48), (2, 10, 12, 48)])
def test_the_nearest_come_first_however_the_lake_is_cut(
    tmp_path: Path, cuts: tuple[int, ...], metric: str
) -> None:
    source = columns()
    parts = [source[a:b] for a, b in zip((0, *cuts), cuts, strict=False)]
    segments = [encoded(part, tmp_path / f"{n}", metric) for n, part in enumerate(parts)]
    search = searcher(segments)
    for query in (source[7], Column(["city 3", "city 4", "code 9"], "city")):
        truth = brute_force(source, query, metric)
        for k in (1, 10, 100):
            hits = search.search(query, SearchOptions(k))
            got = [(hit.table, hit.column) for hit in hits]
            assert got == [one[:2] for one in truth[:k]]
            scores = [one[2] for one in truth[:k]]
            np.testing.assert_allclose([hit.score for hit in hits], scores, atol=1e-5)
        others = [one[:2] for one in truth if one[0] != "t03"][:10]
        hits = search.search(query, SearchOptions(10, exclude="t03"))
        assert [(hit.table, hit.column) for hit in hits] == others


def test_hits_show_the_equi_join_which_does_not_rank_them(tmp_path: Path) -> None:
    search = searcher([encoded(columns(), tmp_path)])
    results = search.search(
        Column(["city 0", "city 1", "nowhere"], "city"), SearchOptions(48, show=1)
    )
    assert len(results) == 48
    scores = [hit.score for hit in results]
    assert scores == sorted(scores, reverse=True)
    joinable = {(hit.table, hit.column): hit for hit in results}
    first = joinable["t00", "city"]
    assert (first.joinability, first.equi.matched, len(first.matches)) == (2 / 3, 2, 1)
    assert joinable["t20", "code"].joinability == 0
    assert (first.found_by, first.join) == (("deepjoin",), "equi")
    assert set(results.seconds) == {"encode", "candidates", "verify", "total"}


def test_columns_out_of_the_lake_are_never_found(tmp_path: Path) -> None:
    segment = encoded(columns(), tmp_path).without(range(3, 24))
    near = searcher([segment]).nearest(columns()[20], 100, None)
    assert sorted(one.column for one in near) == [0, 1, 2, 3, 4, 5]


def test_a_query_without_cells_or_known_values_finds_nothing(tmp_path: Path) -> None:
    segment = encoded(columns(), tmp_path / "index")
    assert len(searcher([segment]).search(Column([None, " "], "city"), SearchOptions(5))) == 0
    write_frequency([segment], tmp_path)
    frequency = FrequencySnapshot(tmp_path)
    finish_sketch(segment, segment.folder, frequency, 64)
    sketcher = Sketcher([segment], frequency, 64, "default")
    search = searcher([segment], "sketch", sketcher)
    assert len(search.search(Column(["unheard of"]), SearchOptions(5))) == 0
    assert search.search(columns()[0], SearchOptions(1))[0].column == "city"


def test_both_halves_are_searched_as_one(tmp_path: Path) -> None:
    segment = encoded(columns(), tmp_path / "index")
    write_frequency([segment], tmp_path)
    frequency = FrequencySnapshot(tmp_path)
    finish_sketch(segment, segment.folder, frequency, 64)
    finish_both(segment.folder)
    sketcher = Sketcher([segment], frequency, 64, "default")

    def both(query: Column) -> np.ndarray:
        return both_rows(vector(query)[None], sketcher(query)[None])[0]

    found = searcher([segment], "both", both).nearest(columns()[8], 48, None)
    stored = [ColumnVectors.open(segment.folder, space) for space in ("columns", "sketch")]
    like = []
    for one, half in zip(stored, (vector, sketcher), strict=True):
        assert one is not None
        rows, asked = one.rows.astype(float), half(columns()[8])
        like.append(rows @ asked / np.linalg.norm(rows, axis=1) / np.linalg.norm(asked))
    mean = (like[0] + 2 * like[1]) / 3
    np.testing.assert_allclose([n.similarity for n in found], np.sort(mean)[::-1], atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 3, 24, 30])
def test_tables_come_by_their_nearest_column(tmp_path: Path, k: int) -> None:
    source = columns()
    search = searcher([encoded(source[:10], tmp_path / "1"), encoded(source[10:], tmp_path / "2")])
    truth = brute_force(source, source[0], "cosine")
    tables = list(dict.fromkeys(table for table, _, _ in truth))[:k]
    hits = search.search(source[0], SearchOptions(k, by_table=True))
    assert [hit.table for hit in hits] == tables
    assert [hit.rank for hit in hits] == list(range(1, len(tables) + 1))
    last = next(n for n, one in enumerate(truth) if one[0] == tables[-1]) + 1
    shown = truth if k > 24 else truth[:last]
    listed = {(one.table, one.column) for hit in hits for one in (hit, *hit.also)}
    assert listed == {one[:2] for one in shown}
    assert len(search.search(source[0], SearchOptions(None, exclude="t00", by_table=True))) == 23


def test_what_is_not_verified_has_no_minimum(tmp_path: Path) -> None:
    search = searcher([encoded(columns(2), tmp_path)])
    text = "came with method 'deepjoin', which does not verify its hits; `min_joinability` needs"
    with pytest.raises(DeepJoinError, match=text):
        search.search(columns()[0], SearchOptions(None, 0.5))
    with pytest.raises(DeepJoinError, match=text):
        search.search(columns()[0], SearchOptions(5, 0.1))
    with pytest.raises(DeepJoinError, match=text):
        search.search(columns()[0], SearchOptions(5, 0.1, by_table=True))


def test_segments_without_vectors_are_named(tmp_path: Path) -> None:
    segments = [encoded(columns(2), tmp_path / "1"), segment_of(columns(4)[4:], tmp_path / "2")]
    with pytest.raises(
        DeepJoinError,
        match=r"lake has no column vectors \(1 of 2 segments are without\). Make them with: "
        "deepjoin index lake --encoder default",
    ):
        opened_vectors(segments, "columns", location="lake")
    with pytest.raises(DeepJoinError, match=r"no sketches \(2 of 2 .*index lake --sketch 768"):
        opened_vectors(segments, "sketch", location="lake")
    about = About("words", ENCODER.digest, 24)
    write_rows(segments[1].folder, "columns", about, 4, [np.full((4, 24), np.nan)])
    with pytest.raises(DeepJoinError, match="1 of 2 segments are without"):
        searcher(segments)


def test_another_encoder_is_named(tmp_path: Path) -> None:
    segments = [encoded(columns(2), tmp_path)]
    again = "deepjoin index lake --encoder ../mpnet"
    opened_vectors(segments, "columns", ("words", ENCODER.digest))
    with pytest.raises(
        IndexUnusable,
        match=rf"lake was encoded by 'words' \({ENCODER.digest}\), not by 'mpnet' \(0\). "
        f"Encode it again with: {again}",
    ):
        opened_vectors(segments, "columns", ("mpnet", "0"), "lake", again)


def test_deepjoin_exact_ranks_the_nearest_by_the_definition(tmp_path: Path) -> None:
    segments = [
        encoded(some, tmp_path / str(n)) for n, some in enumerate((columns()[:20], columns()[20:]))
    ]
    near = searcher(segments)
    query = Column([f"city {n}" for n in range(3, 9)], "city", "mine", "Towns")
    for verified in (1, 4, 100):
        found = TwoStageSearch(near, segments, "default", b"", None, None).search(
            query, SearchOptions(k=5, verified=verified)
        )
        candidates = near.nearest(query, max(verified, 5), None)
        shares = sorted(
            (
                len(set(query.cells) & {f"city {of + i}" for i in range(5)}) / 6
                for of in (
                    n - 1 if n % 3 == 2 else n
                    for n in (
                        int(table_of(segments[one.segment], one.column)[1:])
                        for one in candidates
                        if segments[one.segment].catalog.column_names[one.column] == "city"
                    )
                )
            ),
            reverse=True,
        )
        expected = [share for share in shares if share][:5]
        assert [hit.joinability for hit in found] == pytest.approx(expected)
        assert {hit.found_by for hit in found} <= {("deepjoin-exact",)}
    with pytest.raises(DeepJoinError, match="`verified` is 0; it must be at least 1"):
        SearchSettings(verified=0)
