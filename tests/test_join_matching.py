"""Which values match: against brute force, in every way, whatever the size of the blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepjoin.embed.cells import load_cell_encoder
from deepjoin.errors import DeepJoinError, UnknownName
from deepjoin.matching import similar
from deepjoin.matching import values as matching
from deepjoin.matching.joinability import least, similarities
from deepjoin.matching.values import (
    ALTERNATIVES,
    CLOSE,
    SemanticMatching,
    match_values,
    nearest_values,
)
from tests.support.join_tables import Dial, brute_matches

VALUES = st.lists(
    st.builds("{:02d}{}".format, st.integers(0, 59), st.sampled_from(["", "a", "b", "c"]))
    | st.sampled_from(["x", "?", "", "😀"]),
    unique=True,
    max_size=25,
)


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(
    mine=VALUES,
    theirs=VALUES,
    tau=st.sampled_from([0.05, 0.9, 0.99, 0.994522, 1.0]),
    way=st.sampled_from(["best", "one-to-one", "all"]),
    block=st.sampled_from([1, 3, 1000]),
)
def test_matches_equal_brute_force(
    mine: list[str], theirs: list[str], tau: float, way: str, block: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(similar, "COLUMNS", block)
        patch.setattr(matching, "ROWS", block)
        patch.setattr(matching, "_CANDIDATES", 1)
        found = list(match_values(mine, theirs, SemanticMatching(Dial(), tau, way)))
    triples = [
        triple
        for pairs, _ in found
        for triple in zip(
            pairs.mine.tolist(), pairs.theirs.tolist(), pairs.similarities.tolist(), strict=True
        )
    ]
    assert len(set(triples)) == len(triples)
    assert set(triples) == brute_matches(mine, theirs, tau, way)


def brute_alternatives(
    mine: list[str], theirs: list[str], pairs: set[tuple[int, int, int]], tau: float, way: str
) -> set[tuple[int, int]]:
    """Find what is nearly as similar as each match of unequal values, and free."""
    found: set[tuple[int, int]] = set()
    taken = {j for _, j, _ in pairs} if way == "one-to-one" else set()
    vectors, others = Dial().encode(mine), Dial().encode(theirs)
    for i, j, similarity in pairs if way != "all" else ():
        if mine[i] == theirs[j]:
            continue
        least_of = max(least(tau), similarity - least(CLOSE))
        near = [
            (-int(like), other)
            for other, like in enumerate(similarities(vectors[i], others))
            if like >= least_of and other != j and other not in taken
        ]
        found |= {(i, other) for _, other in sorted(near)[:ALTERNATIVES]}
    return found


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(
    mine=VALUES,
    theirs=VALUES,
    tau=st.sampled_from([0.9, 0.99]),
    way=st.sampled_from(["best", "one-to-one", "all"]),
    block=st.sampled_from([3, 1000]),
)
def test_alternatives_equal_brute_force(
    mine: list[str], theirs: list[str], tau: float, way: str, block: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(similar, "COLUMNS", block)
        patch.setattr(matching, "ROWS", block)
        found = list(match_values(mine, theirs, SemanticMatching(Dial(), tau, way)))
    alternatives = {
        pair
        for one in found
        for pair in zip(
            one.alternatives.mine.tolist(), one.alternatives.theirs.tolist(), strict=True
        )
    }
    pairs = brute_matches(mine, theirs, tau, way)
    assert alternatives == brute_alternatives(mine, theirs, pairs, tau, way)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["best", "one-to-one", "all"])
def test_join_any_never_matches_different_numbers(way: str) -> None:
    mine = ["-5", "1.5", "2020-01-05", "gate 7", "cust-0000123", "boeing 737", "7", "usa"]
    theirs = [
        *("5", "15", "2020-01-06", "gate 8", "cust-0000124", "boeing 737-800", "gate 7b"),
        *("007", "united states"),
    ]

    def matched(join: str) -> set[tuple[str, str]]:
        how = SemanticMatching(load_cell_encoder(), matching=way, join=join)
        return {
            (mine[i], theirs[j])
            for pairs, _ in match_values(mine, theirs, how)
            for i, j in zip(pairs.mine.tolist(), pairs.theirs.tolist(), strict=True)
        }

    assert matched("any") >= {("boeing 737", "boeing 737-800"), ("usa", "united states")}
    assert not matched("any") & {
        *(("-5", "5"), ("1.5", "15"), ("2020-01-05", "2020-01-06")),
        *(("gate 7", "gate 8"), ("cust-0000123", "cust-0000124"), ("7", "007")),
    }


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 5), block=st.sampled_from([1, 7, 64]))
def test_nearest_vectors_equal_brute_force(seed: int, count: int, block: int) -> None:
    chance = np.random.default_rng(seed)
    vectors = chance.standard_normal((50, 8)).astype(np.float32)
    vectors = np.concatenate([vectors, vectors[:10]])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(similar, "COLUMNS", block)
        found = similar.SimilarValues(vectors[20:]).nearest(vectors[:30], count, least(0.2))
    expected = []
    for row in range(30):
        exact = similarities(vectors[row], vectors[20:])
        order = [at for at in np.lexsort((np.arange(40), -exact)) if exact[at] >= least(0.2)]
        expected += [(row, at, exact[at]) for at in order[:count]]
    assert list(zip(found.mine, found.theirs, found.similarities, strict=True)) == expected


def test_nearest_values_leave_out_what_has_no_vector() -> None:
    found = nearest_values(["10", "x", "40"], ["x", "11a", "12"], SemanticMatching(Dial()))
    assert found.mine.tolist() == [0]
    assert found.theirs.tolist() == [1]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"tau": 0.0},
            r"`tau` is 0\.0; it must be a cosine above 0 and at most 1\. Leave it out for 0\.99",
        ),
        ({"tau": 1.01}, r"`tau` is 1\.01; it must be a cosine"),
        ({"tau": float("nan")}, r"`tau` is nan; it must be a cosine"),
        ({"tau": -0.5}, r"`tau` is -0\.5; it must be a cosine"),
    ],
)
def test_wrong_bounds(options: dict[str, float], says: str) -> None:
    with pytest.raises(DeepJoinError, match=says):
        SemanticMatching(Dial(), **options)


def test_an_unknown_matching() -> None:
    with pytest.raises(UnknownName, match=r"'worst'\. Allowed: best, one-to-one, all\."):
        SemanticMatching(Dial(), matching="worst")
