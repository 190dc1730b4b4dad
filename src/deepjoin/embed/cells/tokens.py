"""Features of cells: words, word pieces, letter n-grams and numbers, and sums of their rows."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_128_digest

from deepjoin.arrays import Float, Int, Marks

#: 'u.s.' and 'r.e.m' are one word each, because people also write 'us' and 'rem'.
_DOTTED = re.compile(r"(?:\w\.)+\w?\.?")
_PUNCTUATION = re.compile(r"[\W_]+")
#: Knuth's multiplicative hash.
_MULTIPLIER = np.uint32(2654435761)
#: Longer words (hashes, addresses) are cut: the table has no rows for their tails.
_LONGEST_WORD = 40
_MOST_WORDS = 48
#: Up to this many values, Python is faster than to compile a pattern with all letters of Unicode.
_FEW = 1 << 9
#: Rows summed at a time: few enough that the sums stay in the processor's cache.
_ROWS_AT_ONCE = 512
_DIGITS = re.compile(r"[0-9]+")
#: What a byte is, 16 bits for each: an ASCII letter, a digit, a space, or inside a character.
_KINDS = np.array(
    [
        (code < 0x80 and chr(code).isalpha()) | (chr(code) in "0123456789") << 16
        | (chr(code) in "\t\n\f\r ") << 32 | (0x80 <= code < 0xC0) << 48
        for code in range(256)
    ],
    np.uint64,
)  # fmt: skip
_MINUS = ("-", "−")


@dataclass(frozen=True)
class Bags:
    """Feature numbers of many strings: string i has ``ids[starts[i]:starts[i + 1]]``."""

    starts: Int
    ids: Int


def text_array(values: Sequence[str | None] | pa.Array) -> pa.Array:
    """Return values as Arrow strings; replace lone surrogates, which Arrow cannot store."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values.cast(pa.string())
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        mended = (one and one.encode("utf-8", "replace").decode("utf-8") for one in values)
        return pa.array(list(mended), pa.string())


def split_words(values: pa.Array) -> tuple[Int, Int, list[str]]:
    """Split values at white space: word starts of each value, word numbers, distinct words.

    >>> starts, numbers, words = split_words(pa.array(["new york", "york"]))
    >>> starts.tolist(), numbers.tolist(), words
    ([0, 2, 3], [0, 1, 1], ['new', 'york'])
    """
    if len(values) <= _FEW:
        # Arrow and Python agree on what white space is; blank texts are one empty word there.
        texts = values.to_pylist()
        split = [[] if one is None else one.split(None, _MOST_WORDS) or [""] for one in texts]
        known: dict[str, int] = {}
        ids = [known.setdefault(word, len(known)) for words in split for word in words]
        starts = np.cumsum([0, *map(len, split)])
        return starts, np.array(ids, np.int64), list(known)
    lists = pc.utf8_split_whitespace(values, max_splits=_MOST_WORDS)
    counts = np.asarray(pc.fill_null(pc.list_value_length(lists), 0)).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(counts)])
    coded = pc.list_flatten(lists).dictionary_encode()
    return starts, np.asarray(coded.indices).astype(np.int64), coded.dictionary.to_pylist()


def plain_word(word: str) -> str:
    """Lower a word's case and remove its punctuation and accents.

    >>> [plain_word(w) for w in ("U.S.", "(men's)", "São", "--")]
    ['us', 'men s', 'sao', '']
    """
    word = word[:_LONGEST_WORD].lower()
    if word.isascii() and word.isalnum():
        return word
    if not word.isascii():
        # NFKD splits accents off as characters of category Mn (non-spacing mark).
        letters = unicodedata.normalize("NFKD", word)
        word = "".join(letter for letter in letters if unicodedata.category(letter) != "Mn")
    if _DOTTED.fullmatch(word):
        return word.replace(".", "")
    return _PUNCTUATION.sub(" ", word).strip()


def undotted(values: pa.Array) -> pa.Array:
    """Remove the dots from values that consist of initials; all other values become null.

    >>> undotted(pa.array(["u.s.a.", "st. louis"])).to_pylist()
    ['usa', None]
    """
    if len(values) <= _FEW:
        return pa.array(map(plain_initials, values.to_pylist()), pa.string())
    initials = pc.match_substring_regex(values, r"^(?:\pL\.)+\pL?$")
    return pc.replace_substring(pc.if_else(initials, values, None), ".", "")


def plain_initials(value: str | None) -> str | None:
    """Remove the dots from a value that consists of initials; None for any other value."""
    if value is None or "." not in value or value[1::2].strip(".") or not value[::2].isalpha():
        return None
    return value.replace(".", "")


def with_digits(values: pa.Array) -> Marks:
    """Mark values that have a digit."""
    if len(values) <= _FEW:
        texts = (value or "" for value in values.to_pylist())
        return np.array([_DIGITS.search(text) is not None for text in texts], bool)
    return np.asarray(pc.fill_null(pc.match_substring_regex(values, "[0-9]"), False))


def without_letters(values: pa.Array) -> Marks:
    """Mark values that have no letter, in any alphabet."""
    if len(values) <= _FEW:
        texts = (value or "" for value in values.to_pylist())
        return np.array([not any(map(str.isalpha, text)) for text in texts], bool)
    return np.asarray(pc.invert(pc.match_substring_regex(values, r"\pL")))


def character_counts(values: pa.Array) -> tuple[Int, Int, Int, Int]:
    """Count the characters of values, and of these letters in any alphabet, digits, and spaces.

    Digits and spaces are those of ASCII. Of a value of more than 65,535 bytes, which no key has,
    the counts may be too small, except that of characters.

    >>> [counts.tolist() for counts in character_counts(pa.array(["b-52", "São 1"]))]
    [[4, 5], [1, 3], [2, 1], [0, 1]]
    """
    whole = values.cast(pa.large_string())
    _, offsets, data = whole.buffers()
    if data is None:
        return (np.zeros(len(values), np.int64),) * 4
    bounds = np.frombuffer(offsets, np.int64)[whole.offset : whole.offset + len(whole) + 1]
    codes = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
    # Counted byte by byte, all kinds in one sum: patterns take many times as long. A number of
    # 16 bits for each kind may pass its end, but differences of sums are right again.
    sums = np.append(np.uint64(0), np.cumsum(_KINDS[codes]))[bounds - bounds[0]]
    counted = np.diff(sums)
    letters, digits, spaces, inside = (
        (counted >> np.uint64(shift) & np.uint64(0xFFFF)).astype(np.int64)
        for shift in (0, 16, 32, 48)
    )
    others = np.flatnonzero(inside)
    if len(others):
        letters[others] = pc.count_substring_regex(values.take(pa.array(others)), r"\pL")
    return np.diff(bounds) - inside, letters, digits, spaces


def gram_bags(words: Sequence[str], buckets: int, first: int) -> Bags:
    """Hash the bigrams and trigrams of a word's bytes, its ends marked, into ``buckets``."""
    marked = [f" {word} ".encode() for word in words]
    starts = np.concatenate([[0], np.cumsum(list(map(len, marked)))]).astype(np.int64)
    letters = np.frombuffer(b"".join(marked) + b"  ", np.uint8).astype(np.uint32)
    pairs = (letters[:-2] << 8) | letters[1:-1]
    codes = np.stack([(pairs << 8) | letters[2:], pairs], axis=1)
    hashed = ((codes * _MULTIPLIER) >> np.uint32(8)) % np.uint32(buckets)
    space = np.uint32(ord(" "))
    before, middle, after = (part == space for part in (letters[:-2], letters[1:-1], letters[2:]))
    # A space in the middle spans two words; spaces at both ends leave one letter, which is a piece.
    kept = np.stack([~middle & ~(before & after), ~(before & middle)], axis=1)
    counts = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    return Bags(counts[starts], hashed[kept].astype(np.int64) + first)


def number_bags(values: Sequence[str], alone: Sequence[bool]) -> tuple[Bags, list[str]]:
    """Find the numbers of each value; return them as bags, and the distinct numbers.

    A value marked ``alone`` has no words: its groups of digits make one number.

    >>> number_bags(["gate 07", "(555) 123-4567", "-5"], [False, True, True])[1]
    ['7', '555 123 4567', '-5']
    """
    known: dict[str, int] = {}
    ids: list[int] = []
    starts = [0]
    for value, whole in zip(values, alone, strict=True):
        groups = _DIGITS.findall(value)
        if whole:
            groups = ["-" * value.lstrip().startswith(_MINUS) + " ".join(groups)]
        else:
            groups = [group.lstrip("0") or "0" for group in groups]
        ids += [known.setdefault(group, len(known)) for group in groups]
        starts.append(len(ids))
    return Bags(np.array(starts, np.int64), np.array(ids, np.int64)), list(known)


def directions(numbers: Sequence[str], dimension: int) -> Float:
    """Hash each number to a unit vector of signs; two such vectors are nearly orthogonal."""
    blocks = [
        b"".join(xxh3_128_digest(number.encode(), seed) for number in numbers)
        for seed in range(-(-dimension // 128))
    ]
    bits = [np.unpackbits(np.frombuffer(b, np.uint8)).reshape(len(numbers), 128) for b in blocks]
    signs = np.concatenate(bits, axis=1)[:, :dimension].astype(np.float32) * 2 - 1
    return np.asarray(signs / np.float32(dimension**0.5), np.float32)


def sum_bags(table: Float, bags: Bags, out: Float, weights: Float | None = None) -> None:
    """Add to each row of ``out`` the weighted sum of its bag's rows, in the order of the bag."""
    buffer = np.empty((_ROWS_AT_ONCE, table.shape[1]), np.float32)
    for start in range(0, len(out), _ROWS_AT_ONCE):
        starts = bags.starts[start : start + _ROWS_AT_ONCE + 1]
        lengths = np.diff(starts)
        # Longest first: bags with an n-th feature are then a prefix, so no row is gathered twice.
        order = np.argsort(-lengths, kind="stable")
        counts = np.searchsorted(-lengths[order], -np.arange(lengths.max(initial=0)), side="left")
        firsts = starts[order]
        sums = np.zeros((len(lengths), table.shape[1]), np.float32)
        for place, count in enumerate(counts.tolist()):
            at, gathered = firsts[:count] + place, buffer[:count]
            # mode="clip" writes straight into `out`; the default mode makes a copy first.
            np.take(table, bags.ids[at], axis=0, out=gathered, mode="clip")
            if weights is not None:
                gathered *= weights[at, None]
            sums[:count] += gathered
        out[start + order] += sums


def normalise(rows: Float) -> None:
    """Scale rows to length 1, in place; zero rows stay zero."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    np.divide(rows, lengths, out=rows, where=lengths > 0)
