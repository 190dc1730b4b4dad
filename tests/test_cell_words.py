"""Words of a cell: groups of letters, typing errors, what stands aside, and their sums."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepjoin.embed.cells import DEFAULT_TABLE, StaticTable, pieces, tokens
from deepjoin.embed.cells.pieces import WordPieces
from deepjoin.embed.cells.tokens import Bags, gram_bags, plain_word, sum_bags
from deepjoin.embed.cells.words import LONG, KnownWords, Recipe, Speller, shades
from deepjoin.lab.cell_table.variants import real_words

DEFAULT = StaticTable.load(DEFAULT_TABLE)


def cosine(one: str, other: str) -> float:
    vectors = DEFAULT.encode([one, other])
    return float(vectors[0] @ vectors[1])


def hashed(code: bytes) -> int:
    return (int.from_bytes(code, "big") * 2654435761 % 2**32 >> 8) % (1 << 24)


@given(st.lists(st.text(max_size=12), max_size=8))
def test_groups_of_letters_equal_the_plain_definition(words: list[str]) -> None:
    plain = [plain_word(word) for word in words]
    bags = gram_bags(plain, 1 << 24, 0)
    for at, word in enumerate(plain):
        marked = f" {word} ".encode()
        pairs = [marked[i : i + 2] for i in range(len(marked) - 1)]
        triples = [marked[i : i + 3] for i in range(len(marked) - 2)]
        expected = [hashed(pair) for pair in pairs if pair != b"  "]
        expected += [hashed(t) for t in triples if t[1] != 32 and not t[0] == t[2] == 32]
        assert sorted(bags.ids[bags.starts[at] : bags.starts[at + 1]]) == sorted(expected)


@given(st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=40), st.booleans())
def test_sums_of_rows_equal_the_plain_sum(lists: list[list[int]], weighed: bool) -> None:
    table = np.random.default_rng(3).standard_normal((10, 4)).astype(np.float32)
    starts = np.concatenate([[0], np.cumsum([len(ids) for ids in lists])]).astype(np.int64)
    ids = np.array([number for ids in lists for number in ids], np.int64)
    weights = np.arange(len(ids), dtype=np.float32) if weighed else np.ones(len(ids), np.float32)
    out = np.zeros((len(lists), 4), np.float32)
    sum_bags(table, Bags(starts, ids), out, weights if weighed else None)
    for at in range(len(lists)):
        some = slice(starts[at], starts[at + 1])
        assert np.allclose(out[at], (table[ids[some]] * weights[some, None]).sum(axis=0), atol=1e-3)


def without_one(word: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for place in range(1, len(word)):
        found.setdefault(word[:place] + word[place + 1 :], []).append(place)
    return found


def one_slip(word: str, known: str) -> bool:
    """Check whether a letter behind the first is missing, too many, another or swapped."""
    mine, theirs = without_one(word), without_one(known)
    pairs = [
        (i, j) for rest in mine.keys() & theirs.keys() for i in mine[rest] for j in theirs[rest]
    ]
    moved = bool(pairs) and min(len(word), len(known)) >= LONG
    changed = any(i == j for i, j in pairs)
    swaps = [word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in range(1, len(word) - 1)]
    return known in mine or word in theirs or known in swaps or changed or moved


SLIPS = st.lists(st.text("ab", min_size=1, max_size=10), max_size=12)


@given(SLIPS, SLIPS)
def test_the_nearest_known_word_equals_trying_them_all(known: list[str], asked: list[str]) -> None:
    few, many = Speller(known), Speller(known)
    many.nearest(["abc"] * 1000)  # from now on, in an index of all known words
    for word, *found in zip(asked, few.nearest(asked), many.nearest(asked), strict=True):
        near = [at for at, other in enumerate(known) if one_slip(word, other)]
        assert found == 2 * [-1 if word in known else min(near, default=-1)]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("germny", "germany"), ("argentinia", "argentina"), ("microsfot", "microsoft"),
     ("jonson", "johnson"), ("neatherlands", "netherlands"), ("phillipines", "philippines"),
     ("untied states", "united states"), ("cincinatti", "cincinnati"), ("mosambique", "mozambique"),
     ("barak obama", "barack obama")],
)  # fmt: skip
def test_typing_errors_match(typed: str, meant: str) -> None:
    assert cosine(typed, meant) >= DEFAULT.tau


@pytest.mark.parametrize(
    ("one", "other"),
    [("australia", "austria"), ("kazakhstan", "uzbekistan"), ("liverpool", "manchester"),
     ("johnson", "jackson"), ("oregon", "obregon"), ("houston", "hudson"), ("gambia", "zambia")],
)  # fmt: skip
def test_words_that_look_alike_stay_apart(one: str, other: str) -> None:
    assert cosine(one, other) < DEFAULT.floor


def test_what_stands_aside_counts_less() -> None:
    words = ["go", "(board", "game)", "paris,", "texas"]
    starts = np.array([0, 3, 5], np.int64)
    found = shades(starts, np.arange(5), words, Recipe(behind=0.7, aside=0.5))
    assert np.allclose(found, [1, 0.5, 0.5, 1, 0.7])
    assert cosine("the sunset (song)", "the sunset (painting)") > cosine("song", "sunset song")


def test_words_of_several_columns_are_real() -> None:
    columns = [["Hansson", "o'hara-jones"], ["hansson jones"], ["hansson"], ["hansson"], ["rare"]]
    lower = [[cell.lower() for cell in cells] for cells in columns]
    assert real_words(lower, {"jones"}) == ["hansson"]
    assert real_words(lower, {"hansson"}) == []


@given(st.lists(st.none() | st.text(st.sampled_from("aé.ß中1 ²-"), max_size=6), min_size=1))
def test_few_values_are_read_as_many_are(values: list[str | None]) -> None:
    few = pa.array(values, pa.string())
    many = pa.array(values * (tokens._FEW + 1), pa.string())
    assert tokens.undotted(few).equals(tokens.undotted(many)[: len(few)])
    texts = pa.array([value or "" for value in values], pa.string())
    long = pa.array(texts.to_pylist() * (tokens._FEW + 1), pa.string())
    marks = tokens.without_letters(texts).tolist()
    assert marks == tokens.without_letters(long)[: len(texts)].tolist()


@given(st.lists(st.text("abcdeinorst019é北-", max_size=12), max_size=30))
def test_pieces_equal_those_of_the_tokenizer(words: list[str]) -> None:
    plain = [plain_word(word).replace(" ", "") for word in words]
    splitter = WordPieces(DEFAULT.tokenizer, DEFAULT.facts.unknown)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "_MANY", 1)
        patch.setattr(WordPieces, "_index", DEFAULT._pieces._index)
        mine, theirs = splitter.bags(plain), splitter._asked(plain)
    assert mine.starts.tolist() == theirs.starts.tolist()
    assert mine.ids.tolist() == theirs.ids.tolist()


def test_known_words_change_no_bit_of_a_vector() -> None:
    values = ["new york", "york (city)", "u.s. york", "sku-123 new"]
    known = KnownWords(3, DEFAULT.dimension)
    for some in (values[:2], values, values):
        assert np.array_equal(DEFAULT.encode(some, known), DEFAULT.encode(some))
