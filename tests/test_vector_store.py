"""Column vectors in a real PostgreSQL: the same answers as the index gives, kept up to date."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepjoin import Column
from deepjoin.engines.postgres.binary import EqualRows, codes
from deepjoin.engines.postgres.publishing import Published, SegmentVectors, publish_vectors
from deepjoin.engines.postgres.shards import TableQuery
from deepjoin.engines.postgres.store import PostgresServers
from deepjoin.progress import no_progress
from deepjoin.search.context import EmbeddedStore
from deepjoin.search.vectors import NearColumn, VectorSearcher, opened_vectors
from deepjoin.settings import PublishSettings
from deepjoin.store.column_vectors import About, ColumnVectors, write_rows
from deepjoin.store.segment import Segment
from tests.support.column_lakes import segment_of
from tests.support.vector_stores import execute, fresh

ABOUT = About("drawn", "d1", 5)


@pytest.fixture(scope="module")
def stores(vector_server: str) -> tuple[str, str, str]:
    """Give three databases, each a server as far as the store can tell."""
    return fresh(vector_server, "one"), fresh(vector_server, "two"), fresh(vector_server, "three")


@pytest.fixture(scope="module")
def segments(tmp_path_factory: pytest.TempPathFactory) -> list[Segment]:
    """Make three segments of 2, 18 and 60 columns, two in each table."""
    folder = tmp_path_factory.mktemp("segments")
    # Names in another order than numbers: equal distances come by name.
    tables = [f"t{(7 * n) % 40:02}" for n in range(40)]
    source = [Column([f"{name} {c}"], c, name) for name in tables for c in ("a", "b")]
    cuts = [(0, 2), (2, 20), (20, 80)]
    return [segment_of(source[a:b], folder / f"{a}") for a, b in cuts]


def drawn(segments: Sequence[Segment], rows: np.ndarray, metric: str) -> None:
    """Give segments vectors."""
    start = 0
    for segment in segments:
        count = segment.values.columns
        blocks = [rows[start : start + count]]
        write_rows(segment.folder, "columns", ABOUT, count, blocks, "flat", metric)
        start += count


def sent(
    segments: Sequence[Segment], urls: Sequence[str], how: PublishSettings | None = None
) -> Published:
    """Publish segments into databases without any."""
    for url in urls:
        execute(url, "DROP SCHEMA IF EXISTS deepjoin CASCADE")
    pieces = []
    for segment in segments:
        found = ColumnVectors.open(segment.folder, "columns")
        assert found is not None
        pieces.append(SegmentVectors(segment.folder.name, "columns", found))
    settings = how or PublishSettings("exact")
    return publish_vectors(urls, ("lake", "here"), pieces, settings, no_progress)


def near(
    segments: Sequence[Segment], query: np.ndarray, k: int, urls: Sequence[str] = ()
) -> list[NearColumn]:
    vectors = opened_vectors(segments, "columns")
    open_store = PostgresServers(urls).open if urls else EmbeddedStore
    searcher = VectorSearcher(segments, open_store(segments, vectors, "columns"), lambda _: query)
    return searcher.nearest(Column([]), k, "t07")


@settings(max_examples=12)
@given(
    draw=st.randoms(use_true_random=False),
    metric=st.sampled_from(["cosine", "euclidean"]),
    removed=st.lists(st.integers(0, 29), max_size=29),
    k=st.sampled_from([1, 3, 10, 37]),
)
def test_compared_as_a_whole_it_answers_as_the_index_does(
    stores: tuple[str, str, str],
    segments: list[Segment],
    draw: object,
    metric: str,
    removed: list[int],
    k: int,
) -> None:
    random = np.random.default_rng(draw.getrandbits(32))  # type: ignore[attr-defined]
    # Few different numbers: rows are equal, of equal distance, or zero.
    rows = random.integers(-1, 2, (80, 5)).astype(np.float32) * random.choice([1, 1000])
    drawn(segments, rows, metric)
    sent(segments, stores[:1])
    sent(segments, stores[1:])
    lake = [*segments[:2], segments[2].without(removed)]
    for query in (rows[3] + 0.5, random.standard_normal(5).astype(np.float32)):
        truth = near(lake, query, k)
        assert near(lake, query, k, stores[:1]) == truth
        assert near(lake, query, k, stores[1:]) == truth
        assert near(lake, query, k, stores[:0:-1]) == truth


@pytest.mark.slow
@given(rows=st.lists(st.lists(st.sampled_from([0.0, -0.0, 1.0]), min_size=2, max_size=2)))
def test_equal_rows_are_sent_as_one(rows: list[list[float]]) -> None:
    given_rows = np.array(rows, np.float16).reshape(-1, 2)
    groups = EqualRows.of(given_rows)
    truth: dict[tuple[float, ...], list[int]] = {}
    for number, row in enumerate(rows):
        truth.setdefault(tuple(row), []).append(number)
    found = [
        groups.members[a:b].tolist()
        for a, b in zip(groups.offsets, groups.offsets[1:], strict=False)
    ]
    assert found == list(truth.values())
    shares = [groups.share(number, 3).tolist() for number in range(3)]
    assert sorted(number for share in shares for number in share) == list(range(len(groups)))


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Segment:
    """Make a segment of 3,000 columns in 1,500 tables, with vectors in clusters."""
    names = [f"t{n:04}" for n in range(1500)]
    source = [Column([name], c, name) for name in names for c in ("a", "b")]
    segment = segment_of(source, tmp_path_factory.mktemp("crowd"))
    random = np.random.default_rng(5)
    rows = np.repeat(random.standard_normal((300, 24)), 10, axis=0)
    rows += 0.3 * random.standard_normal(rows.shape)
    rows[::7] = rows[3]  # equal vectors, which come by their tables' names
    write_rows(segment.folder, "columns", About("drawn", "d1", 24), len(rows), [rows], "flat")
    return segment


@pytest.mark.parametrize("ann", ["hnsw", "codes"])
def test_what_is_near_is_found_and_measured_exactly(
    stores: tuple[str, str, str], crowd: Segment, ann: str
) -> None:
    done = sent([crowd], stores[:1], PublishSettings(ann))
    assert (done.parts, done.sent, done.vectors) == (1, 1, 3000 - len(range(0, 3000, 7)))
    sent([crowd], stores[1:], PublishSettings(ann))
    found = ColumnVectors.open(crowd.folder, "columns")
    assert found is not None
    right = 0
    for number in range(1, 3000, 100):
        query = found.rows[number].astype(np.float32) + 0.1
        everything = near([crowd], query, 3000)
        truth, exactly = everything[:20], {one.column: one.similarity for one in everything}
        assert near([crowd], query, 20) == truth
        for urls in (stores[:1], stores[1:]):
            got = near([crowd], query, 20, urls)
            right += len(set(got) & set(truth))
            assert {one.column: one.similarity for one in got} == {
                one.column: exactly[one.column] for one in got
            }
            assert got == sorted(got, key=lambda one: (-one.similarity, one.column))
    assert right >= 0.98 * 2 * 30 * 20
    # Equal vectors are all found, whatever the graph does.
    assert near([crowd], found.rows[3].astype(np.float32), 50, stores[:1]) == near(
        [crowd], found.rows[3].astype(np.float32), 50
    )


@pytest.mark.parametrize("ann", ["hnsw", "codes"])
@pytest.mark.parametrize("kept", [3, 12, 200])
def test_as_many_come_as_are_wanted_however_many_have_left(
    stores: tuple[str, str, str], crowd: Segment, kept: int, ann: str
) -> None:
    sent([crowd], stores[:1], PublishSettings(ann, effort=20))
    lake = [crowd.without(range(kept, 1500))]
    for number in (5, 500, 2999):
        found = ColumnVectors.open(crowd.folder, "columns")
        assert found is not None
        query = found.rows[number].astype(np.float32)
        for k in (1, 10, 2 * kept + 1):
            got, truth = near(lake, query, k, stores[:1]), near(lake, query, k)
            assert len(got) == len(truth)
            assert kept > 12 or got == truth
    # More than a graph gives at a time.
    assert near([crowd], query, 1500, stores[:1]) == near([crowd], query, 1500)


def test_columns_of_zeros_are_like_nothing_and_still_there(
    stores: tuple[str, str, str], segments: list[Segment]
) -> None:
    rows = np.zeros((80, 5), np.float32)
    rows[:10] = np.eye(10, 5)
    drawn(segments, rows, "cosine")
    query = np.array([1, 2, 3, 4, 5], np.float32)
    for how in (PublishSettings("hnsw"), PublishSettings("exact"), PublishSettings("codes")):
        sent(segments, stores[:1], how)
        assert near(segments, query, 40, stores[:1]) == near(segments, query, 40)
    assert near(segments, np.zeros(5, np.float32), 5, stores[:1]) == []
    assert near(segments, query, 0, stores[:1]) == []
    assert near([], query, 5, stores[:1]) == []


@given(st.integers(64, 300), st.integers(0, 1 << 32))
def test_codes_tell_angles(dimension: int, seed: int) -> None:
    one, other = np.random.default_rng(seed).standard_normal((2, dimension)).astype(np.float32)
    first, second = codes(np.stack([one, other]))
    cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
    differing = np.bitwise_count(first ^ second).sum() / (8 * len(first))
    assert abs(differing - np.arccos(np.clip(cosine, -1, 1)) / np.pi) < 0.08
    np.testing.assert_array_equal(codes(8 * one[None])[0], first)


def test_a_sample_of_codes_changes_no_answer(
    stores: tuple[str, str, str], crowd: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent([crowd], stores[:1], PublishSettings("codes", effort=200))
    # Pages of this table have 28 codes, so a larger sample than usual for so few of them.
    monkeypatch.setattr("deepjoin.engines.postgres.shards._SHARE", 1 / 5)
    vectors = opened_vectors([crowd], "columns")
    (shard,) = PostgresServers(stores[:1]).open([crowd], vectors, "columns")._shards
    asked: list[float | None] = []
    again = TableQuery.again
    monkeypatch.setattr(TableQuery, "again", lambda q, f: (asked.append(q.within), again(q, f))[1])
    for number in range(0, 3000, 60):
        query = vectors[0].rows[number].astype(np.float32) + 0.1
        (found,) = shard.near(query, 3, [None])
        with monkeypatch.context() as all_codes:
            all_codes.setattr(TableQuery, "is_sampled", False)
            (truth,) = shard.near(query, 3, [None])
        assert [one.distance for one in found] == [one.distance for one in truth]
        near_enough = truth[-1].distance
        assert {tuple(one.columns) for one in found if one.distance < near_enough} == {
            tuple(one.columns) for one in truth if one.distance < near_enough
        }
    assert sum(one is not None for one in asked) == 50
    # A bound that lets too few pass is given up.
    monkeypatch.setattr("deepjoin.engines.postgres.shards._SAMPLED", 0.05)
    assert len(shard.near(query, 3, [None])[0]) == 200
