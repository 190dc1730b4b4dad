"""Strings as sparse sums of a table's rows, which is what tuning differentiates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.sparse import csr_matrix, diags

from deepjoin.embed.cells.folder import Facts
from deepjoin.embed.cells.table import StaticTable
from deepjoin.embed.cells.tokens import Bags, plain_word, split_words
from deepjoin.embed.cells.words import is_split, levelled, shades, slip_ratios, weights

Floats = npt.NDArray[np.floating[Any]]
Int = npt.NDArray[np.int64]
#: Gives the rows of the numbers asked for, as they stand.
Rows = Callable[[Int], Floats]

_AT_ONCE = 1 << 16


class FeatureReader:
    """Turns strings into the weights that a table would give its rows for them.

    Rows of number pieces stand in for the directions that the table gives numbers.
    """

    def __init__(self, facts: Facts, tokenizer: str, words: Sequence[str] = ()) -> None:
        self._width, self._recipe = facts.pieces + facts.buckets, facts.recipe
        blank = np.zeros((self._width, facts.dimension), np.float32)
        self._bare = StaticTable.pack(facts, tokenizer, blank, words=words)

    def features(self, values: list[str], rows: Rows) -> csr_matrix:
        """Weigh every value's rows as a table of the rows given would."""
        starts, numbers, words = split_words(pa.array(values, pa.string()))
        inner, places, parts = split_words(
            pa.array([plain_word(word) for word in words], pa.string())
        )
        by_word = _counts(Bags(inner, places), len(parts)) @ self._by_part(parts, rows)
        shaded = shades(starts, numbers, words, self._recipe)
        return (_counts(Bags(starts, numbers), len(words), shaded) @ by_word).tocsr()

    def frequencies(self, values: Iterable[str]) -> npt.NDArray[np.float64]:
        """Count the values that have each row."""
        distinct = list(values)
        ones, total = np.ones((self._width, 1), np.float32), np.zeros(self._width)
        for start in range(0, len(distinct), _AT_ONCE):
            found = self.features(distinct[start : start + _AT_ONCE], lambda ids: ones[ids])
            total += np.bincount(found.indices, minlength=len(total))
        return total

    def _by_part(self, parts: list[str], rows: Rows) -> csr_matrix:
        own, split = self._own(parts, rows)
        places, meant = self._bare.slips(parts, split)
        if meant:
            own = self._mixed(own, places, self._own(meant, rows)[0], rows)
        return diags(levelled(_sum(own, rows), self._recipe.even)) @ own

    def _own(self, parts: list[str], rows: Rows) -> tuple[csr_matrix, npt.NDArray[np.bool_]]:
        """Weigh the rows of words, as if none were mistyped, and say which are no whole piece."""
        bags = self._bare.bags(parts)
        split = is_split(parts, bags[0])
        pieces, letters = (_counts(some, self._width) for some in bags)
        along, across = weights(_sum(pieces, rows), _sum(letters, rows), split, self._recipe)
        return (diags(along) @ pieces + diags(across) @ letters).tocsr(), split

    def _mixed(self, own: csr_matrix, places: Int, meant: csr_matrix, rows: Rows) -> csr_matrix:
        kept = np.ones(own.shape[0], np.float32)
        kept[places] = slip_ratios(
            _sum(own[places], rows), _sum(meant, rows), self._recipe.slip
        )  # fmt: skip
        share = np.full(len(places), self._recipe.slip, np.float32)
        shape = (own.shape[0], len(places))
        put = csr_matrix((share, (places, np.arange(len(places)))), shape=shape)
        return (diags(kept) @ own + put @ meant).tocsr()


def _counts(
    bags: Bags, width: int, weighed: npt.NDArray[np.float32] | None = None
) -> csr_matrix:  # fmt: skip
    weighed = np.ones(len(bags.ids), np.float32) if weighed is None else weighed
    counts = csr_matrix((weighed, bags.ids, bags.starts), shape=(len(bags.starts) - 1, width))
    counts.sum_duplicates()
    return counts


def _sum(counts: csr_matrix, rows: Rows) -> npt.NDArray[np.float32]:
    """Add up rows, looking up only those that take part."""
    used, places = np.unique(counts.indices, return_inverse=True)
    narrow = csr_matrix((counts.data, places, counts.indptr), shape=(counts.shape[0], len(used)))
    sums: npt.NDArray[np.float32] = (narrow @ rows(used)).astype(np.float32)
    return sums
