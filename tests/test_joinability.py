"""The definitions, on the paper's running example and at their edges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.definitions import cardinality, equi_joinability, join_size, multiset_joinability

COMPANIES = ["Apple", "GE", "Microsoft", "Yahoo!", "Amazon"]


def test_running_example() -> None:
    assert equi_joinability(COMPANIES, ["Microsoft", "Apple", "IBM", "Amazon"]) == 3 / 5
    assert equi_joinability(["Microsoft", "Apple", "IBM", "Amazon"], COMPANIES) == 3 / 4


def test_empty_columns_join_with_nothing() -> None:
    assert equi_joinability([], COMPANIES) == 0
    assert equi_joinability([None, " "], COMPANIES) == 0
    assert multiset_joinability(COMPANIES, []) == 0


@pytest.mark.parametrize(
    ("query", "target", "expected"),
    [
        (["a", "b"], ["a", "b"], "1:1"),
        (["a", "b"], ["a", "a"], "1:n"),
        (["a", "a"], ["a", "b"], "n:1"),
        (["a", "A"], ["a", "a"], "n:m"),
        (["a", "b", "b"], ["a"], "1:1"),
        (["a"], ["b", "b"], "1:1"),
    ],
)
def test_cardinality_counts_matched_values_only(
    query: list[str], target: list[str], expected: str
) -> None:
    assert cardinality(query, target) == expected


@given(*[st.lists(st.sampled_from("aAbBcd "))] * 2)
def test_join_size_counts_pairs(query: list[str], target: list[str]) -> None:
    pairs = [
        1 for q in query for t in target if q.strip() and q.strip().lower() == t.strip().lower()
    ]
    assert join_size(query, target) == len(pairs)
