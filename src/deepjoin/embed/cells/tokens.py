"""Cells to features: word pieces, hashed pairs and triples of letters, found once a word."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Int = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

#: 'u.s.' and 'r.e.m' are one word each, as people write 'us' and 'rem'.
_DOTTED = re.compile(r"(?:\w\.)+\w?\.?")
_PUNCTUATION = re.compile(r"[\W_]+")
_MULTIPLIER = np.uint32(2654435761)
#: Longer words (hashes, addresses) are cut: the table knows nothing of their tails.
_LONGEST_WORD = 40
_MOST_WORDS = 48


def text_array(values: Sequence[str | None] | pa.Array) -> pa.Array:
    """Return values as Arrow strings; lone surrogates, which these cannot hold, are replaced."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values.cast(pa.string())
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        mended = (one and one.encode("utf-8", "replace").decode("utf-8") for one in values)
        return pa.array(list(mended), pa.string())


@dataclass(frozen=True)
class Bags:
    """Feature numbers of many strings: string i has ``ids[starts[i]:starts[i + 1]]``."""

    starts: Int
    ids: Int


def split_words(values: pa.Array) -> tuple[Int, Int, list[str]]:
    """Split values at white space: word starts of each value, word numbers, distinct words.

    >>> starts, numbers, words = split_words(pa.array(["new york", "york"]))
    >>> starts.tolist(), numbers.tolist(), words
    ([0, 2, 3], [0, 1, 1], ['new', 'york'])
    """
    lists = pc.utf8_split_whitespace(values, max_splits=_MOST_WORDS)
    counts = np.asarray(pc.fill_null(pc.list_value_length(lists), 0)).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(counts)])
    coded = pc.list_flatten(lists).dictionary_encode()
    return starts, np.asarray(coded.indices).astype(np.int64), coded.dictionary.to_pylist()


def plain_word(word: str) -> str:
    """Take a word's punctuation and accents away.

    >>> [plain_word(w) for w in ("U.S.", "(men's)", "São", "--")]
    ['us', 'men s', 'sao', '']
    """
    word = word[:_LONGEST_WORD].lower()
    if word.isascii() and word.isalnum():
        return word
    if not word.isascii():
        word = "".join(c for c in unicodedata.normalize("NFKD", word) if not _is_accent(c))
    if _DOTTED.fullmatch(word):
        return word.replace(".", "")
    return _PUNCTUATION.sub(" ", word).strip()


def undotted(values: pa.Array) -> pa.Array:
    """Take the dots out of values that are initials alone, and leave the rest as null.

    >>> undotted(pa.array(["u.s.a.", "st. louis"])).to_pylist()
    ['usa', None]
    """
    initials = pc.match_substring_regex(values, r"^(?:\pL\.)+\pL?$")
    return pc.replace_substring(pc.if_else(initials, values, None), ".", "")


@cache
def _is_accent(character: str) -> bool:
    return unicodedata.category(character) == "Mn"


def piece_bags(words: Sequence[str], tokenizer: Tokenizer, unknown: int) -> Bags:
    """Split plain words into the tokenizer's pieces, without those it does not know."""
    found = tokenizer.encode_batch_fast(list(words), add_special_tokens=False)
    lists = [encoding.ids for encoding in found]
    return _without(_pack(lists), unknown)


def gram_bags(words: Sequence[str], buckets: int, first: int) -> Bags:
    """Hash the pairs and triples of a word's bytes, ends marked, into ``buckets`` numbers."""
    marked = [f" {word} ".encode() for word in words]
    starts = np.concatenate([[0], np.cumsum(list(map(len, marked)))]).astype(np.int64)
    letters = np.frombuffer(b"".join(marked) + b"  ", np.uint8).astype(np.uint32)
    pairs = (letters[:-2] << 8) | letters[1:-1]
    codes = np.stack([(pairs << 8) | letters[2:], pairs], axis=1)
    hashed = ((codes * _MULTIPLIER) >> np.uint32(8)) % np.uint32(buckets)
    space = np.uint32(ord(" "))
    before, middle, after = (part == space for part in (letters[:-2], letters[1:-1], letters[2:]))
    # A space in the middle joins two words; one at both ends leaves a letter, which is a piece.
    kept = np.stack([~middle & ~(before & after), ~(before & middle)], axis=1)
    counts = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    return Bags(counts[starts], hashed[kept].astype(np.int64) + first)


def _pack(lists: Sequence[Sequence[int]]) -> Bags:
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    ids = np.fromiter(chain.from_iterable(lists), np.int64, int(lengths.sum()))
    return Bags(np.concatenate([[0], np.cumsum(lengths)]), ids)


def _without(bags: Bags, unwanted: int) -> Bags:
    wanted = bags.ids != unwanted
    kept = np.concatenate([[0], np.cumsum(wanted)])
    return Bags(kept[bags.starts], bags.ids[wanted])


#: So few that their sums stay in the processor's cache.
_AT_ONCE = 512


def sum_bags(table: Floats, bags: Bags, out: Floats, weights: Floats | None = None) -> None:
    """Add to each row of ``out`` the sum of its bag's rows, weighed, in the order of the bag."""
    rows = np.empty((_AT_ONCE, table.shape[1]), np.float32)
    for start in range(0, len(out), _AT_ONCE):
        end = start + _AT_ONCE
        some = Bags(bags.starts[start : end + 1], bags.ids)
        _sum_some(table, some, out[start:end], weights, rows)


def _sum_some(
    table: Floats, bags: Bags, out: Floats, weights: Floats | None, rows: Floats
) -> None:  # fmt: skip
    lengths = np.diff(bags.starts)
    # Longest first: those with an n-th feature are then a prefix, and no row is gathered twice.
    order = np.argsort(-lengths, kind="stable")
    having = np.searchsorted(-lengths[order], -np.arange(lengths.max(initial=0)), side="left")
    sums, firsts = np.zeros_like(out), bags.starts[order]
    for place, count in enumerate(having.tolist()):
        at, gathered = firsts[:count] + place, rows[:count]
        # Unlike the default, this mode writes where it is told without a copy in between.
        np.take(table, bags.ids[at], axis=0, out=gathered, mode="clip")
        if weights is not None:
            gathered *= weights[at, None]
        sums[:count] += gathered
    out[order] += sums


def normalise(rows: Floats) -> None:
    """Scale rows to length 1, but for those that are 0."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    np.divide(rows, lengths, out=rows, where=lengths > 0)
