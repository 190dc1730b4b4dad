"""Write columns as text: the paper's seven patterns, and the sampling of tall columns (section 4).

Where the paper leaves details open: statistics count characters, over all distinct cells; a
missing part is left out together with its punctuation; title, name and context take at most a
quarter of the tokens each; sampled cells keep the order of the table.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from xxhash import xxh3_64_intdigest

from deepjoin.arrays import Double, Int
from deepjoin.errors import DeepJoinError
from deepjoin.model import Column
from deepjoin.normalise.canonical import PROFILES
from deepjoin.normalise.cells import DistinctCells, distinct_cells

#: Maps canonical values to the number of columns of the lake that hold each.
Frequency = Callable[[Sequence[str]], Int]
#: Maps texts to the number of tokens of each, without special tokens.
TokenCounter = Callable[[Sequence[str]], Sequence[int]]

#: The patterns of the paper's first table, in pieces; a piece is left out if its part is missing.
PATTERNS: dict[str, tuple[str, ...]] = {
    "col": ("{cells}",),
    "colname-col": ("{name}: ", "{cells}."),
    "colname-col-context": ("{name}: ", "{cells}. ", "{context}"),
    "colname-stat-col": ("{name} contains ", "{stat}: ", "{cells}"),
    "title-colname-col": ("{title}. ", "{name}: ", "{cells}."),
    "title-colname-col-context": ("{title}. ", "{name}: ", "{cells}. ", "{context}"),
    "title-colname-stat-col": ("{title}. ", "{name} contains ", "{stat}: ", "{cells}."),
}
UNITS = ("characters", "words")
_WORDS = ("title", "name", "context")
#: Word pieces are shorter, so text beyond this many characters per token is never read.
_LONGEST_TOKEN = 32
#: The parameter k1 of BM25.
_SATURATION = 1.5


@dataclass(frozen=True)
class DocumentFrequencies:
    """A `Frequency` in memory that also knows the number of columns.

    >>> frequency = DocumentFrequencies.of([Column(["GE", "Apple"]), Column(["ge", "ge"])])
    >>> frequency(["ge", "apple", "ibm"]).tolist(), frequency.columns
    ([2, 1, 0], 2)
    """

    counts: Mapping[str, int]
    columns: int

    def __call__(self, values: Sequence[str]) -> Int:
        """Look up each value."""
        return np.array([self.counts.get(value, 0) for value in values], np.int64)

    @classmethod
    def of(cls, columns: Iterable[Column], profile: str = "default") -> DocumentFrequencies:
        """Count in how many columns each value occurs."""
        counts: Counter[str] = Counter()
        number = 0
        for column in columns:
            counts.update(distinct_cells(column.cells, profile).values)
            number += 1
        return cls(counts, number)


def no_frequency(values: Sequence[str]) -> Int:
    """Return 0 for every value: the `Frequency` to use without a lake.

    >>> no_frequency(["ge", "apple"]).tolist()
    [0, 0]
    """
    return np.zeros(len(values), np.int64)


def _at_random(cells: DistinctCells, frequency: Frequency) -> Int:
    """Shuffle with the content as the seed, so that a column always gets the same text."""
    content = "\0".join(cells.values).encode("utf-8", "surrogatepass")
    return np.random.default_rng(xxh3_64_intdigest(content)).permutation(len(cells))


def _by_tf_idf(cells: DistinctCells, frequency: Frequency) -> Int:
    share = np.array(cells.counts) / sum(cells.counts)
    return np.argsort(-share * _rarity(cells, frequency), kind="stable")


def _by_bm25(cells: DistinctCells, frequency: Frequency) -> Int:
    # BM25 without its length term, which is the same for all cells of a column.
    times = np.array(cells.counts, np.float64)
    weight = times * (_SATURATION + 1) / (times + _SATURATION)
    return np.argsort(-weight * _rarity(cells, frequency), kind="stable")


def _rarity(cells: DistinctCells, frequency: Frequency) -> Double:
    columns = getattr(frequency, "columns", None)
    if columns is None:
        raise DeepJoinError(
            "Sampling by tf-idf or bm25 needs the number of columns, which this frequency does "
            "not have. Use DocumentFrequencies, or sampling='frequency'."
        )
    found = np.maximum(1, frequency(cells.values))
    return np.log1p(int(columns) / found.astype(np.float64))


#: Order in which cells of a tall column are chosen; the last two also use how often they occur.
SAMPLINGS: dict[str, Callable[[DistinctCells, Frequency], Int]] = {
    "frequency": lambda cells, frequency: np.argsort(-frequency(cells.values), kind="stable"),
    "random": _at_random,
    "truncate": lambda cells, frequency: np.arange(len(cells)),
    "tf-idf": _by_tf_idf,
    "bm25": _by_bm25,
}


@dataclass(frozen=True)
class TextSettings:
    """How to write a column as a text of at most ``tokens`` tokens, without special tokens.

    >>> TextSettings(pattern="col").sampling
    'frequency'
    """

    pattern: str = "title-colname-stat-col"
    tokens: int = 62
    sampling: str = "frequency"
    #: Unit of the statistics: characters, as in the paper's example, or words, as in its text.
    unit: str = "characters"
    profile: str = "default"
    #: Prefix of the text of a query column, not counted in ``tokens``. Joinability is not
    #: symmetric, so a model may have to distinguish queries from targets.
    prompt: str = ""

    def __post_init__(self) -> None:
        for kind, got, known in (
            ("pattern", self.pattern, PATTERNS),
            ("sampling", self.sampling, SAMPLINGS),
            ("unit", self.unit, UNITS),
            ("profile", self.profile, PROFILES),
        ):
            if got not in known:
                raise DeepJoinError(f"{kind} is '{got}'; it must be one of {', '.join(known)}.")
        if self.tokens < 8:
            raise DeepJoinError(f"tokens is {self.tokens}; it must be at least 8.")


#: Settings of texts, or changes of single ones.
TextChange = TextSettings | Mapping[str, str | int]


def column_texts(
    columns: Sequence[Column],
    settings: TextSettings,
    frequency: Frequency,
    count: TokenCounter,
) -> list[str]:
    """Write columns as texts within the limit, with only a few calls of the token counter.

    Each column is written whole and counted once. Only if it is too long are its cells counted:
    the best ones, as many as would fit if each were one token and a comma.

    >>> words = lambda texts: [len(text.split()) for text in texts]
    >>> column = Column(["Apple", "GE"], name="Company", title="Firms")
    >>> column_texts([column], TextSettings(), no_frequency, words)
    ['Firms. Company contains 2 values (5, 2, 3.5): Apple, GE.']
    """
    pages = [_Page(column, settings) for column in columns]
    _shorten_words(pages, settings, count)
    texts = ["" if page.is_tall else page.write(page.cells()) for page in pages]
    counts = count(texts)
    tall = [
        number
        for number, page in enumerate(pages)
        if page.is_tall or counts[number] > settings.tokens
    ]
    sampled = _sampled([pages[number] for number in tall], frequency, count)
    for number, text in zip(tall, sampled, strict=True):
        texts[number] = text
    return texts


class _Page:
    """The parts of one column's text, before it is known how many cells fit."""

    def __init__(self, column: Column, settings: TextSettings) -> None:
        self.settings = settings
        self.distinct = distinct_cells(column.cells, settings.profile)
        self.pieces = PATTERNS[settings.pattern]
        self.words = {
            name: _plain(getattr(column, name), settings.tokens)
            for name in _WORDS
            if any(f"{{{name}}}" in piece for piece in self.pieces)
        }
        self.words["stat"] = ""
        if cells := self.distinct.spellings:
            is_words = settings.unit == "words"
            sizes = [len(cell.split()) if is_words else len(cell.strip()) for cell in cells]
            mean = math.fsum(sizes) / len(sizes)
            self.words["stat"] = f"{len(cells)} values ({max(sizes)}, {min(sizes)}, {mean:.1f})"

    @property
    def is_tall(self) -> bool:
        """Whether there are more cells than can fit: each takes a token and a comma."""
        return len(self.distinct) > self.settings.tokens // 2 + 1

    def cells(self, chosen: Sequence[int] | None = None) -> list[str]:
        """Return the chosen cells, or all, as the text spells them."""
        spellings = self.distinct.spellings
        some = spellings if chosen is None else [spellings[place] for place in chosen]
        return [_plain(cell, self.settings.tokens) for cell in some]

    def candidates(self, frequency: Frequency) -> list[int]:
        """Return the places of as many cells as can fit, best first."""
        order = SAMPLINGS[self.settings.sampling](self.distinct, frequency)
        return [int(place) for place in order[: self.settings.tokens // 2 + 1]]

    def write(self, cells: Sequence[str]) -> str:
        """Fill in the pattern."""
        if not cells:
            return ". ".join(self.words[name] for name in _WORDS if self.words.get(name))
        parts = {**self.words, "cells": ", ".join(cells)}
        # Each piece has one field, which names its part.
        present = (
            piece for piece in self.pieces if parts[piece.partition("{")[2].partition("}")[0]]
        )
        return "".join(piece.format(**parts) for piece in present).strip()


def _plain(text: str, tokens: int) -> str:
    """Return text on one line, without what no limit could let in."""
    return " ".join(text.split())[: _LONGEST_TOKEN * tokens].rstrip()


def _shorten_words(pages: list[_Page], settings: TextSettings, count: TokenCounter) -> None:
    """Shorten title, name and context, so that they leave room for the cells."""
    limit = settings.tokens // 4
    long = {
        text
        for page in pages
        for name, text in page.words.items()
        if name != "stat" and len(text) > limit
    }
    ordered = sorted(long)
    shorter = {
        text: _cut(text, limit, count)
        for text, size in zip(ordered, count(ordered), strict=True)
        if size > limit
    }
    for page in pages:
        page.words = {name: shorter.get(text, text) for name, text in page.words.items()}


def _cut(text: str, tokens: int, count: TokenCounter) -> str:
    """Return the longest prefix within the limit, by bisection."""
    if count([text])[0] <= tokens:
        return text
    low, high = 0, len(text) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if count([text[:middle]])[0] <= tokens:
            low = middle
        else:
            high = middle - 1
    return text[:low].rstrip()


def _sampled(pages: list[_Page], frequency: Frequency, count: TokenCounter) -> list[str]:
    """Write each page with the best cells that fit."""
    ordered = [page.candidates(frequency) for page in pages]
    cells = [page.cells(places) for page, places in zip(pages, ordered, strict=True)]
    distinct = sorted({cell for some in cells for cell in some})
    sizes = dict(zip(distinct, count(distinct), strict=True))
    frames = count([page.write(["a"]) for page in pages])
    chosen = [
        _greedy(places, [sizes[cell] for cell in some], page.settings.tokens - frame + 1)
        for page, places, some, frame in zip(pages, ordered, cells, frames, strict=True)
    ]
    texts = [
        page.write(page.cells(sorted(some or places[:1])))
        for page, places, some in zip(pages, ordered, chosen, strict=True)
    ]
    # Joined parts may split into other tokens, so the whole text is counted as well.
    return [
        text if size <= page.settings.tokens else _shortened(page, some or places[:1], count)
        for page, places, some, text, size in zip(
            *(pages, ordered, chosen, texts, count(texts)), strict=True
        )
    ]


def _shortened(page: _Page, chosen: list[int], count: TokenCounter) -> str:
    """Drop cells, the last chosen first, then cut the only one left."""
    limit = page.settings.tokens
    if not chosen:  # a column without cells
        return _cut(page.write([]), limit, count)
    for kept in range(len(chosen) - 1, 0, -1):
        text = page.write(page.cells(sorted(chosen[:kept])))
        if count([text])[0] <= limit:
            return text
    frame = count([page.write(["a"])])[0] - 1
    cell = _cut(page.cells(chosen[:1])[0], max(1, limit - frame), count)
    return _cut(page.write([cell] if cell else []), limit, count)


def _greedy(places: list[int], sizes: list[int], room: int) -> list[int]:
    """Take cells in order, skipping those that no longer fit."""
    chosen: list[int] = []
    for place, size in zip(places, sizes, strict=True):
        needed = size + 1 if chosen else size
        if needed <= room:
            chosen.append(place)
            room -= needed
    return chosen
