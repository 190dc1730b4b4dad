"""Exact semantic search equals comparing every cell with every cell; the bounds are kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepjoin import Column, DeepJoinError
from deepjoin.arrays import Double, Float, Int, Marks
from deepjoin.embed import scan
from deepjoin.embed.list_build import write_value_lists
from deepjoin.embed.packed import ZERO_POINT
from deepjoin.embed.value_vectors import ValueVectors, write_vectors
from deepjoin.matching import engine
from deepjoin.matching.engine import (
    ExactRanking,
    ExactRequest,
    Measure,
    SemanticEngine,
    SemanticQuery,
    SemanticSegment,
)
from deepjoin.matching.joinability import best_similarities, semantic_joinability, similarities
from deepjoin.search import scores
from deepjoin.search.scores import CellMatches
from deepjoin.store.values.index import ValueIndex
from tests.support.definitions import soft_joinability

from .conftest import MakeLake

#: Words and vectors with equal directions, right angles, cosines at .6 and .8, and none at all.
GRID = [(x, y, z) for x in (0, 3, 4) for y in (0, 3, 4) for z in (0, 1)]
WORDS = [f"w{i}" for i in range(2 * len(GRID))]
WORD = st.sampled_from(WORDS)
COLUMNS = st.lists(st.lists(WORD, min_size=1, max_size=6), min_size=1, max_size=10)
BOUND = st.sampled_from([0.3, 0.6, 0.7, 0.8, 0.96, 1.0])


def unit(rows: npt.ArrayLike) -> Float:
    """Scale rows to length 1, but for those that are 0."""
    matrix = np.asarray(rows, np.float64)
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return (matrix / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def encode(values: list[str]) -> Float:
    """Give each word its vector; two words share each."""
    return unit(np.reshape([GRID[int(value[1:]) % len(GRID)] for value in values], (-1, 3)))


class SmallIndex(ValueIndex):
    """A value index in memory."""

    def __init__(self, columns: list[list[str]]) -> None:
        held: dict[str, list[int]] = {}
        for number, cells in enumerate(columns):
            for value in dict.fromkeys(cells):
                held.setdefault(value, []).append(number)
        self.words = sorted(held)
        lists = [held[word] for word in self.words]
        self.posting_offsets = np.cumsum([0, *map(len, lists)])
        self.posting_columns = np.array([c for one in lists for c in one], np.int32)
        self.column_offsets = np.cumsum([0, *(len(set(cells)) for cells in columns)])

    def look_up(self, values: Sequence[str]) -> Int:
        """Find values by comparing them."""
        places = {word: i for i, word in enumerate(self.words)}
        return np.array([places.get(value, -1) for value in values], np.int64)


def part_of(
    index: ValueIndex, values: list[str], folder: Path, first: int = 0, lists: bool = False
) -> SemanticSegment:
    """Store the vectors of an index's values; its columns come behind those before ``first``."""
    folder.mkdir(exist_ok=True)
    write_vectors(folder, [encode(values[:3]), encode(values[3:])], 3)
    if lists:
        write_value_lists(folder, ValueVectors.open(folder), threads=1)
    order = first + np.arange(index.columns)[::-1]

    def exact(numbers: Int) -> Float:
        return encode([values[i] for i in numbers.tolist()])

    return SemanticSegment(index, ValueVectors.open(folder), exact, order)


def parts_of(halves: list[list[list[str]]], folder: Path) -> list[SemanticSegment]:
    """Make one part of each list of columns; the second has its vectors in another order."""
    parts, first = [], 0
    for number, drawn in enumerate(halves):
        index = SmallIndex(drawn)
        parts.append(part_of(index, index.words, folder / f"v{number}", first, number == 1))
        first += len(drawn)
    return parts


def ask(values: list[str]) -> SemanticQuery:
    """Make a query of distinct words."""
    distinct = list(dict.fromkeys(values))
    return SemanticQuery(distinct, encode(distinct))


def brute_force(
    halves: list[list[list[str]]],
    query: list[str],
    wanted: ExactRequest,
    dead: list[Marks],
) -> list[tuple[float, int, int]]:
    """Rank every column by the definition: score, segment, column."""
    score = semantic_joinability if wanted.measure.join == "semantic" else soft_joinability
    found, first = [], 0
    for part, drawn in enumerate(halves):
        for column, cells in enumerate(drawn):
            value = score(query, cells, encode, wanted.measure.floor)
            if value > 0 and value >= wanted.threshold and not dead[part][column]:
                found.append((-value, first + len(drawn) - 1 - column, part, column))
        first += len(drawn)
    return [(-value, part, column) for value, _, part, column in sorted(found)]


def as_list(found: ExactRanking) -> list[tuple[float, int, int]]:
    """Give what was found as tuples."""
    return list(
        zip(found.scores.tolist(), found.parts.tolist(), found.columns.tolist(), strict=True)
    )


@pytest.mark.slow
@given(
    drawn=COLUMNS,
    more=COLUMNS,
    query=st.lists(WORD, max_size=6),
    join=st.sampled_from(["any", "semantic"]),
    floor=BOUND,
    k=st.none() | st.integers(0, 25),
    threshold=st.sampled_from([0.0, 0.2, 0.5, 1.0]),
    marks=st.lists(st.booleans(), min_size=20, max_size=20),
)
@pytest.mark.parametrize(("first", "threads"), [(1, 1), (64, 2)])
def test_search_equals_brute_force(
    tmp_path: Path,
    drawn: list[list[str]],
    more: list[list[str]],
    query: list[str],
    join: str,
    floor: float,
    k: int | None,
    threshold: float,
    marks: list[bool],
    first: int,
    threads: int,
) -> None:
    halves = [drawn, more]
    parts = parts_of(halves, tmp_path)
    dead = [np.array(marks[: len(drawn)]), np.array(marks[10 : 10 + len(more)])]
    wanted = ExactRequest(Measure(join, floor), k, threshold)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_FIRST", first)
        patch.setattr(engine, "_GROWTH", 2)
        patch.setattr(scan, "_ROWS", 4)
        searcher = SemanticEngine(parts, threads=threads)
        found = searcher.search(ask(query), wanted, dead)
    truth = brute_force(halves, query, wanted, dead)
    assert as_list(found) == truth[:k]
    check_evidence(found, parts, halves, ask(query), floor)


def check_evidence(
    found: ExactRanking,
    parts: list[SemanticSegment],
    halves: list[list[list[str]]],
    query: SemanticQuery,
    floor: float,
) -> None:
    """Compare what a hit says of its cells with the definition."""
    for part, column, evidence in zip(found.parts, found.columns, found.evidence, strict=True):
        cells = halves[part][column]
        best = best_similarities(query.values, cells, encode)
        least = round(floor * 1e6)
        assert evidence.cells.tolist() == np.flatnonzero(best >= least).tolist()
        assert (1e6 * evidence.similarities).round().tolist() == best[best >= least].tolist()
        index = parts[part].index
        assert isinstance(index, SmallIndex)
        values = [index.words[i] for i in evidence.values.tolist()]
        assert set(values) <= set(cells)
        own = [query.values[i] for i in evidence.cells.tolist()]
        assert all(v in (o, *values) for o, v in zip(own, values, strict=True))
        backward = best_similarities(cells, query.values, encode)
        assert evidence.reverse == int((backward >= least).sum())


@pytest.mark.parametrize("join", ["any", "semantic"])
@pytest.mark.parametrize("seed", range(6))
def test_near_ties_are_distinguished_and_ties_kept(tmp_path: Path, seed: int, join: str) -> None:
    # Twins differ by less than the 8-bit vectors can say, and lie on both sides of the floor.
    random = np.random.default_rng(seed)
    twins = np.repeat(random.standard_normal((30, 8)), 5, axis=0)
    vectors = unit(twins + 4e-3 * random.standard_normal((150, 8)))
    lists = [random.choice(150, random.integers(1, 4), replace=False) for _ in range(400)]
    columns = [[f"w{i}" for i in one.tolist()] for one in lists]
    index = SmallIndex(columns)
    write_vectors(tmp_path, [vectors[[int(word[1:]) for word in index.words]]], 8)

    def exact(numbers: Int) -> Float:
        return vectors[[int(index.words[i][1:]) for i in numbers.tolist()]]

    part = SemanticSegment(index, ValueVectors.open(tmp_path), exact, random.permutation(400))
    for size in (1, 2, 4, 1, 2, 1):
        words = random.choice(150, size, replace=False)
        queries = vectors[words] if size < 4 else unit(vectors[words] + 1e-3)
        query = SemanticQuery([f"{'w' if size < 3 else 'x'}{i}" for i in words.tolist()], queries)
        middles = np.median((vectors @ queries[0]).reshape(30, 5), axis=1)
        floor = float(np.round(middles[middles < 0.9].max(), 4))
        wanted = ExactRequest(Measure(join, floor), 3)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine, "_FIRST", 1)
            patch.setattr(engine, "_GROWTH", 1)
            found = SemanticEngine([part], threads=1).search(query, wanted)
        near = np.array([similarities(row, vectors) for row in queries])
        equal = np.array([[word == f"w{i}" for i in range(150)] for word in query.values])
        near = np.where(equal, 1_000_000, near)
        best = np.stack([near[:, one].max(axis=1) for one in lists])
        totals = wanted.measure.counted(best).sum(axis=1)
        ranked = np.lexsort((part.order, -totals))[:3]
        assert found.columns.tolist() == ranked[totals[ranked] > 0].tolist()
        assert found.scores.tolist() == [t / (1e6 * size) for t in totals[found.columns]]


def test_a_lake_is_searched_through_its_segment(make_lake: MakeLake, tmp_path: Path) -> None:
    drawn = [WORDS[i : i + 6] for i in range(0, 30, 4)]
    columns = [Column(cells, "c", table=f"t{i}") for i, cells in enumerate(drawn)]
    index = make_lake(columns).index.segments[0].values
    part = part_of(index, list(index.values), tmp_path / "v")
    wanted = ExactRequest(Measure("any", 0.8), 5)
    found = SemanticEngine([part]).search(ask(WORDS[3:9]), wanted)
    truth = brute_force([drawn], WORDS[3:9], wanted, [np.zeros(len(drawn), bool)])
    assert as_list(found) == truth[:5]


@pytest.mark.slow
@given(drawn=COLUMNS, query=st.lists(WORD, min_size=1, max_size=6), k=st.integers(1, 5))
def test_ties_with_the_last_come_too_when_asked(
    tmp_path: Path, drawn: list[list[str]], query: list[str], k: int
) -> None:
    wanted = ExactRequest(Measure("any", 0.6), k, ties=True)
    searcher = SemanticEngine(parts_of([drawn], tmp_path), threads=1)
    found = as_list(searcher.search(ask(query), wanted))
    truth = brute_force([drawn], query, wanted, [np.zeros(len(drawn), bool)])
    last = truth[min(k, len(truth)) - 1][0] if truth else 0
    assert found == [one for one in truth if one[0] >= last]


@pytest.mark.slow
@pytest.mark.parametrize("dimension", [1, 2, 48, 192])
@pytest.mark.parametrize("clustered", [False, True])
def test_the_scan_misses_no_pair_and_keeps_its_bound(
    tmp_path: Path, dimension: int, clustered: bool
) -> None:
    random = np.random.default_rng(dimension)
    centres = random.standard_normal((20, dimension))
    spread = 0.4 if clustered else 5.0
    rows = unit(
        centres[random.integers(0, 20, 3000)] + spread * random.standard_normal((3000, dimension))
    )
    rows[::50] = 0
    write_vectors(tmp_path, [rows[:1000], rows[1000:1000], rows[1000:]], dimension)
    queries = np.concatenate([rows[:21], unit(random.standard_normal((9, dimension)))])
    stored = ValueVectors.open(tmp_path)
    cosines = queries.astype(np.float64) @ rows.T.astype(np.float64)
    for floor in (0.4, 0.7, 0.999):
        pairs = stored.near(queries, floor, threads=1)
        found = set(zip(pairs.cells.tolist(), pairs.values.tolist(), strict=True))
        assert len(found) == len(pairs)
        needed = np.argwhere(np.rint(1e6 * cosines) >= round(1e6 * floor))
        assert set(map(tuple, needed.tolist())) <= found
        off = np.abs(cosines[pairs.cells, pairs.values] - pairs.similarities)
        assert (off <= pairs.errors + scan.SLACK).all()


def test_outliers_in_one_dimension_cost_no_pair(tmp_path: Path) -> None:
    rows = np.eye(64, dtype=np.float32)[[0, 0, 1, 2]]
    rows = unit(rows + 0.01)
    write_vectors(tmp_path, [rows], 64)
    pairs = ValueVectors.open(tmp_path).near(rows[:1], 0.99)
    assert pairs.values.tolist() == [0, 1]


def test_an_empty_segment_has_no_pairs(tmp_path: Path) -> None:
    assert write_vectors(tmp_path, [], 3) == 0
    assert len(ValueVectors.open(tmp_path).near(unit([[1, 0, 0]]), 0.5)) == 0
    assert len(ValueVectors.open(tmp_path).near(np.zeros((0, 3)), 0.5)) == 0


def test_the_kernel_is_the_graph_it_says_and_multiplies_exactly() -> None:
    model = onnx.load_from_string(scan.multiplication_graph())
    onnx.checker.check_model(model, full_check=True)
    assert [node.op_type for node in model.graph.node] == ["MatMulInteger"]
    codes = np.full((70, 40), 255, np.uint8)
    codes[1::2] = 0
    signed = np.full((40, 17), scan.LARGEST_SIGNED, np.int8)
    signed[:, 1::2] *= -1
    expected = (codes.astype(np.int32) - ZERO_POINT) @ signed.astype(np.int32)
    assert (scan.multiplier(1)(codes, signed) == expected).all()
    expected = (codes.astype(np.int32) - 8) @ signed.astype(np.int32)
    assert (scan.multiplier(1)(codes, signed, 8) == expected).all()


def test_vectors_that_are_no_unit_vectors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DeepJoinError, match="Vector 1 has the squared length 4; 1, or 0 for"):
        write_vectors(tmp_path, [[[1.0, 0.0], [0.0, 2.0]]], 2)
    with pytest.raises(DeepJoinError, match="Vector 0 has the squared length nan"):
        write_vectors(tmp_path, [[[np.nan, 0.0]]], 2)
    write_vectors(tmp_path, [[[1.0, 0.0]]], 2)
    with pytest.raises(DeepJoinError, match=r"shape \(1, 3\) where rows of 2 numbers are stored"):
        ValueVectors.open(tmp_path).near(np.eye(3)[:1], 0.5)


@pytest.mark.parametrize("floor", [0.0, -0.5, 1.5, float("nan")])
def test_a_cosine_bound_out_of_range_is_refused(tmp_path: Path, floor: float) -> None:
    write_vectors(tmp_path, [[[1.0, 0.0]]], 2)
    with pytest.raises(DeepJoinError, match="The cosine bound is .*; it is above 0 and at most 1"):
        ValueVectors.open(tmp_path).near([[1.0, 0.0]], floor)


def test_a_search_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(DeepJoinError, match="Unknown join 'equi'. Joins: semantic, any."):
        ExactRequest(Measure("equi", 0.7))
    with pytest.raises(DeepJoinError, match="k is -1; it must be 0 or more"):
        ExactRequest(Measure("any", 0.7), -1)


def test_similarity_of_equal_directions_is_exactly_one() -> None:
    rows = unit(np.random.default_rng(1).standard_normal((100, 37)))
    assert set(similarities(rows, rows).tolist()) == {1_000_000}


def test_a_value_without_a_vector_matches_only_itself() -> None:
    assert best_similarities(["w0"], ["w0", "w1"], encode).tolist() == [1_000_000]
    assert best_similarities(["w0"], ["w18"], encode).tolist() == [0]
    assert semantic_joinability([], ["w1"], encode, 0.5) == 0
    assert soft_joinability([], ["w1"], encode, 0.5) == 0


def steep(cosines: Double) -> Float:
    """Count cosines by a curve in single precision, 1 from .9 on."""
    return np.minimum(1, np.maximum(0, cosines.astype(np.float32) - 0.3) ** 2 / 0.36)


@given(
    drawn=COLUMNS,
    query=st.lists(WORD, min_size=1, max_size=6),
    floor=BOUND,
    k=st.integers(1, 12),
)
def test_any_rising_function_of_the_cosine_can_count(
    tmp_path: Path, drawn: list[list[str]], query: list[str], floor: float, k: int
) -> None:
    measure = Measure("any", floor, steep)
    parts = parts_of([drawn], tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_FIRST", 1)
        patch.setattr(engine, "_GROWTH", 1)
        found = SemanticEngine(parts, threads=1).search(ask(query), ExactRequest(measure, k))
    size = len(set(query))
    best = [best_similarities(query, cells, encode) for cells in drawn]
    totals = np.array([int(measure.counted(one).sum()) for one in best])
    order = np.lexsort((parts[0].order, -totals))[:k]
    order = order[totals[order] > 0]
    assert found.columns.tolist() == order.tolist()
    assert found.scores.tolist() == (totals[order] / (1e6 * size)).tolist()


def test_what_counts_is_whole_millionths_and_nothing_below_the_floor() -> None:
    best = np.array([0, 599_999, 600_000, 650_001, 1_000_000])
    assert Measure("any", 0.6).counted(best).tolist() == [0, 0, 600_000, 650_001, 1_000_000]
    assert Measure("semantic", 0.6).counted(best).tolist() == [0, 0, *[1_000_000] * 3]
    counted = Measure("any", 0.6, steep).counted(best)
    assert counted[1:3].tolist() == [0, 250_000]
    assert (counted == np.rint(counted)).all()


_MATCHES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 4), st.integers(0, 20)),
    unique_by=lambda one: one[:3],
)


@given(_MATCHES, st.lists(st.integers(-2, 2), min_size=100, max_size=100), st.booleans())
def test_pairs_that_decide_nothing_are_left_out_and_no_others(
    found: list[tuple[int, int, int, int]], off: list[int], counted: bool
) -> None:
    found.sort()
    columns, values, cells, stored = np.array(found, np.int64).reshape(-1, 4).T
    tau, error, unit_size = 0.5, 0.1001, 0.05
    matches = CellMatches(columns, cells, values, unit_size * stored)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scores, "_COUNTED", 1 << 26 if counted else 0)
        kept = matches.where(matches.decisive(tau, error))
    # What similarities may be in truth, if none is off by more than the error.
    noise = {one[:3]: unit_size * add for one, add in zip(found, off, strict=False)}

    def outcome(of: CellMatches) -> tuple[object, object]:
        keys = zip(of.columns.tolist(), of.values.tolist(), of.cells.tolist(), strict=True)
        # Below 0 nothing is looked up, and the order of pairs is that of positive numbers.
        true = [max(0.0, one + noise[key]) for key, one in zip(keys, of.similarities, strict=True)]
        exact = CellMatches(of.columns, of.cells, of.values, np.array(true)).ordered()
        best = exact.best()
        held = exact.similarities >= tau
        parts = best.columns, best.cells, best.values
        return (
            list(zip(*(part.tolist() for part in parts), strict=True)),
            set(zip(exact.columns[held].tolist(), exact.values[held].tolist(), strict=True)),
        )

    assert outcome(kept) == outcome(matches)
