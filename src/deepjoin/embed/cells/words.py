"""Words to vectors: a known word rests on its meaning, an unknown one on its letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.embed.cells.tokens import Bags

Floats = npt.NDArray[np.float32]
Int = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Recipe:
    """How long a word's letters are beside its pieces.

    ``known`` is the length of a whole piece's letters as a share of the piece's own. A word that
    is split has the length ``split``, its pieces together being ``fragments`` of its letters: where
    a tokenizer happens to cut an unknown word says little. A slip is ``slip`` parts the word
    that was meant. Lengths are raised to 1 - ``even``: rarity counts, but not so much that one rare
    word is all there is. Words behind a comma count ``behind``, those in parentheses ``aside``.
    A number among words has a direction of its own and the length ``number``;
    a word of letters and digits has ``code`` times its length in such a direction besides.
    """

    known: float = 0.7
    split: float = 1.5
    fragments: float = 0.25
    slip: float = 0.5
    even: float = 0.5
    behind: float = 0.7
    aside: float = 0.5
    number: float = 0.5
    code: float = 1.0


def weights(
    pieces: Floats, letters: Floats, is_split: Bools, recipe: Recipe
) -> tuple[Floats, Floats]:
    """Weigh the sum of a word's piece rows and that of its letter rows."""
    long, broad = _lengths(pieces), _lengths(letters)
    along: Floats = np.where(is_split, np.float32(recipe.fragments) / long, np.float32(1))
    across: Floats = np.where(is_split, np.float32(1), np.float32(recipe.known) * long)
    across = across / broad
    mixed = _lengths(along[:, None] * pieces + across[:, None] * letters)
    whole = np.where(is_split, np.float32(recipe.split) / mixed, np.float32(1))
    return along * whole, across * whole


def mix_slips(own: Floats, meant: Floats, share: float) -> Floats:
    """Turn mistyped words towards those that were meant, and give them their lengths."""
    ratios = slip_ratios(own, meant, share)
    mixed: Floats = ratios[:, None] * own + np.float32(share) * meant
    return mixed


def slip_ratios(own: Floats, meant: Floats, share: float) -> Floats:
    """Say by what to multiply mistyped words so that they are as long as those meant."""
    ratios: Floats = _lengths(meant) / _lengths(own) * np.float32(1 - share)
    return ratios


def levelled(vectors: Floats, even: float) -> Floats:
    """Say by what to multiply words so that long and short vectors differ less."""
    factors: Floats = _lengths(vectors) ** np.float32(-even)
    return factors


def shades(starts: Int, numbers: Int, words: Sequence[str], recipe: Recipe) -> Floats:
    """Weigh the words of each value: what stands aside tells namesakes apart, and says less.

    >>> words = ["paris,", "texas", "(the", "film)"]
    >>> shades(np.array([0, 4]), np.arange(4), words, Recipe()).tolist()
    [1.0, 0.699999988079071, 0.5, 0.5]
    """
    texts = pa.array(words, pa.string())
    commas, opened, closed = (
        np.asarray(pc.count_substring_regex(texts, pattern)).astype(np.int64)[numbers]
        for pattern in (",$", r"[(\[]", r"[)\]]")
    )
    inside = _before(opened, starts) + opened > _before(closed, starts)
    first = np.zeros(len(numbers), np.bool_)
    first[starts[:-1][np.diff(starts) > 0]] = True
    weights = np.where(_before(commas, starts) > 0, np.float32(recipe.behind), np.float32(1))
    return np.where(inside & ~first, np.float32(recipe.aside), weights)


def _before(counts: Int, starts: Int) -> Int:
    """Add up what comes before each word in its own value."""
    sums = np.concatenate([[0], np.cumsum(counts)])
    before: Int = sums[:-1] - np.repeat(sums[starts[:-1]], np.diff(starts))
    return before


def is_split(words: Sequence[str], bags: Bags) -> Bools:
    """Mark words that are no whole piece, numbers aside: their pieces are drawn at random."""
    counts = np.diff(bags.starts)
    named = np.fromiter((not word.isdigit() for word in words), np.bool_, len(words))
    split: Bools = (counts != 1) & named
    return split


def _lengths(rows: Floats) -> Floats:
    lengths: Floats = np.linalg.norm(rows, axis=1)
    return np.where(lengths > 0, lengths, np.float32(1))
