"""Columns to text: the paper's patterns to the letter, sampling, and the token limit."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepjoin import Column, DeepJoinError
from deepjoin.embed.columns.text import (
    PATTERNS,
    SAMPLINGS,
    DocumentFrequencies,
    Frequency,
    TextSettings,
    TokenCounter,
    column_texts,
    no_frequency,
)
from deepjoin.normalise.cells import distinct_cells

_TOKEN = re.compile(r"\w|[^\w\s]")


def letters(texts: Sequence[str]) -> list[int]:
    """Count letters and marks: a tokeniser whose counts add up."""
    return [len(_TOKEN.findall(text)) for text in texts]


def halves(texts: Sequence[str]) -> list[int]:
    """Count pairs of characters: a tokeniser whose counts do not add up."""
    return [(len(text) + 1) // 2 for text in texts]


def column_text(
    column: Column, settings: TextSettings, frequency: Frequency, count: TokenCounter
) -> str:
    return column_texts([column], settings, frequency, count)[0]


def text(column: Column, pattern: str, tokens: int = 1000, **options: str) -> str:
    return column_text(column, TextSettings(pattern, tokens, **options), no_frequency, letters)


COMPANY = Column(["Apple", "GE"], name="Company", title="T", context="C")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("col", "Apple, GE"),
        ("colname-col", "Company: Apple, GE."),
        ("colname-col-context", "Company: Apple, GE. C"),
        ("colname-stat-col", "Company contains 2 values (5, 2, 3.5): Apple, GE"),
        ("title-colname-col", "T. Company: Apple, GE."),
        ("title-colname-col-context", "T. Company: Apple, GE. C"),
        ("title-colname-stat-col", "T. Company contains 2 values (5, 2, 3.5): Apple, GE."),
    ],
)
def test_patterns(pattern: str, expected: str) -> None:
    assert text(COMPANY, pattern) == expected
    assert len(PATTERNS) == 7


def test_worked_example_of_the_paper() -> None:
    cells = ["Apple", "GE", "Microsoft", "Yahoo!", "Amazon"]
    column = Column(cells, name="Company", title="Company information")
    assert text(column, "title-colname-stat-col") == (
        "Company information. Company contains 5 values (9, 2, 5.6): "
        "Apple, GE, Microsoft, Yahoo!, Amazon."
    )


@pytest.mark.parametrize(
    ("column", "pattern", "expected"),
    [
        (Column(["a", "b"]), "colname-col", "a, b."),
        (Column(["a", "b"], name="n"), "title-colname-col-context", "n: a, b."),
        (Column(["a", "b"], title="t"), "title-colname-col-context", "t. a, b."),
        (Column(["a"], context="c"), "title-colname-col-context", "a. c"),
        (Column(["a", "bc"]), "title-colname-stat-col", "2 values (2, 1, 1.5): a, bc."),
        (Column([], name="n", title="t"), "title-colname-stat-col", "t. n"),
        (Column([None, " "], name="n", title="t"), "colname-col", "n"),
        (Column([]), "col", ""),
        (Column([" a\n b ", "A B", "c"], name=" n\t"), "colname-col", "n: a b, c."),
        (Column(["{name}", "{0}"], name="{cells}"), "colname-col", "{cells}: {name}, {0}."),
    ],
)
def test_missing_parts_vanish_with_their_punctuation(
    column: Column, pattern: str, expected: str
) -> None:
    assert text(column, pattern) == expected


def test_statistics_may_count_words() -> None:
    column = Column(["New York", "Rome", "Rio de Janeiro"])
    assert text(column, "colname-stat-col", unit="words").startswith("3 values (3, 1, 2.0): ")


def test_statistics_are_over_all_cells_not_the_sample() -> None:
    cells = [f"{n:03}" for n in range(998)] + ["longest", "a"]
    written = text(Column(cells), "colname-stat-col", 64)
    assert written.startswith("1000 values (7, 1, 3.0): 000, 001")
    assert letters([written])[0] <= 64


def test_most_frequent_cells_are_kept_in_table_order() -> None:
    column = Column(["rare", "often", "never", "most"])
    lake = [Column(["often", "most"]), Column(["MOST", "rare"]), Column(["often", "most"])]
    frequency = DocumentFrequencies.of(lake)
    assert frequency.columns == 3
    settings = TextSettings("col", 10)
    assert column_text(column, settings, frequency, letters) == "often, most"


def test_ties_are_settled_by_table_order() -> None:
    assert text(Column(["cccc", "aaaa", "bbbb"]), "col", 10) == "cccc, aaaa"


def test_a_cell_that_no_longer_fits_is_passed_over() -> None:
    assert text(Column(["aa", "b" * 50, "cc"]), "col", 8) == "aa, cc"


def test_a_single_longer_cell_is_cut() -> None:
    assert text(Column(["a" * 100_000]), "col", 8) == "a" * 8
    assert text(Column(["a" * 90, "b" * 80], name="n"), "colname-col", 10) == f"n: {'a' * 7}."


def test_random_depends_on_the_content_alone() -> None:
    cells = [f"{n:03}" for n in range(200)]
    settings = TextSettings("col", 40, "random")
    one = column_text(Column(cells, name="x"), settings, no_frequency, letters)
    assert one == column_text(Column(cells, title="y"), settings, no_frequency, letters)
    assert one != text(Column(cells), "col", 40)
    assert one.split(", ") == sorted(one.split(", "))


def test_orders_for_multisets() -> None:
    column = Column(["everywhere"] * 3 + ["here"] * 3 + ["once"])
    lake = [Column(["everywhere"]) for _ in range(50)] + [column]
    frequency = DocumentFrequencies.of(lake)
    for sampling in ("tf-idf", "bm25"):
        settings = TextSettings("col", 8, sampling)
        assert column_text(column, settings, frequency, letters) == "here"
        assert SAMPLINGS[sampling](distinct_cells(column.cells), frequency)[0] == 1
    counted = DocumentFrequencies({}, 10)
    order = SAMPLINGS["tf-idf"](distinct_cells(["a", "b", "b"]), counted)
    assert order.tolist() == [1, 0]


def test_orders_for_multisets_need_the_number_of_columns() -> None:
    with pytest.raises(DeepJoinError, match=r"needs the number of columns.*sampling='frequency'"):
        text(Column(["aaaa", "bbbb", "cccc"]), "col", 8, sampling="bm25")


def test_words_around_the_cells_leave_them_room() -> None:
    long = "x" * 500
    column = Column(["aa", "bb"], name=long, title=long, context=long)
    written = text(column, "title-colname-col-context", 32)
    assert written == f"{'x' * 8}. {'x' * 8}: aa, bb. {'x' * 8}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pattern": "colum"}, "pattern is 'colum'; it must be one of col, colname-col,"),
        (
            {"sampling": "best"},
            "sampling is 'best'; it must be one of frequency, random, tr",
        ),
        ({"unit": "bytes"}, "unit is 'bytes'; it must be one of characters, words."),
        ({"profile": "x"}, "profile is 'x'; it must be one of default, basic."),
        ({"tokens": 7}, "tokens is 7; it must be at least 8."),
    ],
)
def test_settings_that_cannot_be(options: dict[str, object], message: str) -> None:
    with pytest.raises(DeepJoinError, match=re.escape(message)):
        TextSettings(**options)  # type: ignore[arg-type]


@pytest.mark.slow
def test_cells_of_tall_columns_are_counted_only_as_far_as_they_could_fit() -> None:
    seen: list[str] = []

    def count(texts: Sequence[str]) -> list[int]:
        seen.extend(texts)
        return letters(texts)

    column_text(
        Column([str(n) for n in range(100_000)]), TextSettings("col", 64), no_frequency, count
    )
    assert sum(map(len, seen)) < 2000


words = st.text(st.characters(), max_size=30) | st.text(" ,.:{}é漢😀\x00\ud800ab", max_size=60)
columns = st.builds(
    Column, st.lists(words | st.none(), max_size=40), name=words, title=words, context=words
)


@pytest.mark.slow
@given(
    st.lists(columns, max_size=4),
    st.sampled_from(sorted(PATTERNS)),
    st.sampled_from(sorted(SAMPLINGS)),
    st.integers(8, 60),
    st.sampled_from([letters, halves]),
)
def test_any_column_keeps_the_limit_and_reads_as_one(
    some: list[Column], pattern: str, sampling: str, tokens: int, count: object
) -> None:
    settings = TextSettings(pattern, tokens, sampling)
    frequency = DocumentFrequencies.of(some)
    texts = column_texts(some, settings, frequency, count)  # type: ignore[arg-type]
    assert all(size <= tokens for size in count(texts))  # type: ignore[operator]
    assert texts == [
        column_text(column, settings, frequency, count)  # type: ignore[arg-type]
        for column in some
    ]


@pytest.mark.slow
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=60, unique=True), st.integers(8, 60))
def test_as_many_of_the_best_cells_as_fit(numbers: list[int], tokens: int) -> None:
    cells = [str(number) for number in numbers]
    rank = {cell: place for place, cell in enumerate(sorted(cells, reverse=True), 1)}

    def frequency(values: Sequence[str]) -> np.ndarray:
        return np.array([rank[value] for value in values], np.int64)

    written = column_text(Column(cells), TextSettings("col", tokens), frequency, letters)
    kept = written.split(", ")
    assert kept == [cell for cell in cells if cell in kept]
    room = tokens - letters([written])[0]
    candidates = sorted(cells, key=lambda cell: -rank[cell])[: tokens // 2 + 1]
    for cell in set(candidates) - set(kept):
        better = [other for other in kept if rank[other] > rank[cell]]
        used = sum(map(len, better)) + len(better)
        assert used + len(cell) > tokens or room < len(cell) + 1


def test_words_alone_are_cut_too() -> None:
    """Few letters may be many tokens."""
    tokens = lambda texts: [4 * len(text) for text in texts]  # noqa: E731
    text = column_text(
        *(Column([], name="한글", title="제목"), TextSettings(tokens=8), no_frequency, tokens)
    )
    assert tokens([text])[0] <= 8
