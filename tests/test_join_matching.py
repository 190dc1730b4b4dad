"""Which values match: against brute force, in every way, whatever the size of the blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepjoin.errors import DeepJoinError, UnknownName
from deepjoin.matching import similar
from deepjoin.matching import values as matching
from deepjoin.matching.joinability import least, similarities
from deepjoin.matching.values import SemanticMatching, match_values, nearest_values
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
        for pairs in found
        for triple in zip(
            pairs.mine.tolist(), pairs.theirs.tolist(), pairs.similarities.tolist(), strict=True
        )
    ]
    assert len(set(triples)) == len(triples)
    assert set(triples) == brute_matches(mine, theirs, tau, way)


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
