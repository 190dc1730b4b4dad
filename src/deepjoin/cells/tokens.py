"""Cells to features: word pieces and hashed letter trigrams, found once a distinct word."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Int = npt.NDArray[np.int64]

#: 'u.s.' and 'r.e.m' are one word each, as people write 'us' and 'rem'.
_DOTTED = re.compile(r"(?:\w\.)+\w?\.?")
_PUNCTUATION = re.compile(r"[\W_]+")
_MULTIPLIER = np.uint32(2654435761)
#: Longer words (hashes, addresses) are cut: the table knows nothing of their tails.
_LONGEST_WORD = 40
_MOST_WORDS = 48


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


def _is_accent(character: str) -> bool:
    return unicodedata.category(character) == "Mn"


def piece_bags(words: Sequence[str], tokenizer: Tokenizer, unknown: int) -> Bags:
    """Split plain words into the tokenizer's pieces, without those it does not know."""
    found = tokenizer.encode_batch_fast(list(words), add_special_tokens=False)
    lists = [encoding.ids for encoding in found]
    return _without(_pack(lists), unknown)


def gram_bags(words: Sequence[str], buckets: int, first: int) -> Bags:
    """Hash the byte trigrams of every word, its ends marked, into ``first .. first + buckets``."""
    marked = [f" {word} ".encode() for word in words]
    starts = np.concatenate([[0], np.cumsum([len(word) for word in marked])]).astype(np.int64)
    letters = np.frombuffer(b"".join(marked) + b"  ", np.uint8).astype(np.uint32)
    codes = (letters[:-2] << 16) | (letters[1:-1] << 8) | letters[2:]
    buckets_of = ((codes * _MULTIPLIER) >> np.uint32(8)) % np.uint32(buckets)
    space = np.uint32(ord(" "))
    # A space in the middle joins two words; one at both ends leaves a letter, which is a piece.
    inside = (letters[1:-1] != space) & ~((letters[:-2] == space) & (letters[2:] == space))
    kept = np.concatenate([[0], np.cumsum(inside)])
    return Bags(kept[starts], buckets_of[inside].astype(np.int64) + first)


def _pack(lists: Sequence[Sequence[int]]) -> Bags:
    lengths = np.fromiter((len(ids) for ids in lists), np.int64, len(lists))
    total = int(lengths.sum())
    ids = np.fromiter((number for ids in lists for number in ids), np.int64, total)
    return Bags(np.concatenate([[0], np.cumsum(lengths)]), ids)


def _without(bags: Bags, unwanted: int) -> Bags:
    wanted = bags.ids != unwanted
    kept = np.concatenate([[0], np.cumsum(wanted)])
    return Bags(kept[bags.starts], bags.ids[wanted])
