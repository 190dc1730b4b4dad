"""Signatures: short hashes that values have in common when a program may rewrite one to the other.

The first hashes a value's words in any order, without case, accents, punctuation and leading
zeros, with months as numbers: `Ng, Ann` and `Ann Ng`, `01001` and `1001`, `2020-03-01` and
`3/1/2020` share it. The second, for names of two to four words, hashes the first initial and the
last name: `A. Ng` and `Ng, Ann` share that. They propose columns; programs decide
(docs/decisions/0030).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.arrays import Array, ArrayWriter, Hashes, Int, load_strings, ranges
from deepjoin.memory import DEFAULT, rows_at_once
from deepjoin.normalise.canonical import hash_values
from deepjoin.packing import load_numbers, pack

#: The files, and what they hold: hashes ascending, and the value of each.
SIGNATURE_FILES: dict[str, npt.DTypeLike] = {
    "signature_hashes": np.uint32,
    "signature_values": np.uint32,
}
#: Longer values are texts rather than keys, and have no signature.
_LONGEST = 120
#: Values whose signatures are computed at a time.
BLOCK = 1 << 16
#: Bytes that computing the signatures of one value takes.
_VALUE_BYTES = 4096
#: Signatures sorted at a time: 256 MB.
_SORTED = 1 << 25
_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september",
           "october", "november", "december")  # fmt: skip
_MONTH = {name[:length]: at for at, name in enumerate(_MONTHS, 1) for length in (3, len(name))}
#: Distinguishes initials from words of one letter.
_INITIAL = "initial "
#: What cuts values into words, in order.
_CUTS = (
    (r"^((?:19|20)[0-9]{2})([0-9]{2})([0-9]{2})$", r"\1 \2 \3"),
    (r"[’'`]", ""),
    (r"([0-9]),([0-9]{3})", r"\1\2"),
    (r"([0-9]),([0-9]{3})", r"\1\2"),
    (r"(\pL)(\pN)", r"\1 \2"),
    (r"(\pN)(\pL)", r"\1 \2"),
    (r"[^\pL\pN\pM]+", " "),
)
_ASCII_CUTS = [(re.compile(pattern), by) for pattern, by in _CUTS[:4]]
_ASCII_WORDS = [
    (re.compile(pattern), by)
    for pattern, by in (
        (r"([A-Za-z])([0-9])", r"\1 \2"),
        (r"([0-9])([A-Za-z])", r"\1 \2"),
        (r"[^A-Za-z0-9]+", " "),
    )
]
#: Up to this many values are cut one by one.
_FEW = 1 << 9


@dataclass(frozen=True)
class ValueSignatures:
    """Signatures of some values: which value has which, and values that are one bare word."""

    values: Int
    hashes: npt.NDArray[np.uint32]
    #: Values that are one word but not written as such, and the word: 01001 and 1001.
    bare: Int
    words: list[str]


def signatures_of(values: pa.Array, every: bool = False) -> ValueSignatures:
    """Compute the signatures of canonical values, numbered by their place.

    A value that is its own only word is left out, since equality finds it, unless ``every``.
    """
    short = pc.if_else(pc.less_equal(pc.utf8_length(values), _LONGEST), values, "")
    has_comma = np.asarray(pc.match_substring(short, ","))
    cut = short
    if len(values) <= _FEW:
        cut = pa.array(map(_cut, short.to_pylist()), values.type)
    else:
        for pattern, by in _CUTS:
            cut = pc.replace_substring_regex(cut, pattern, by)
    # Upper-case letters are left where a profile keeps the case.
    lists = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(pc.utf8_lower(cut)))
    encoded = lists.flatten().dictionary_encode()
    numbers, words = np.asarray(encoded.indices).astype(np.int64), encoded.dictionary.to_pylist()
    starts = np.asarray(lists.offsets).astype(np.int64)
    starts, owners = starts - starts[0], np.repeat(np.arange(len(values)), np.diff(starts))
    plain = [_plain(word) for word in words]
    hashes, initials = hash_values(plain), hash_values([_INITIAL + word[:1] for word in plain])
    month = hash_values([str(_MONTH.get(word, word)) for word in plain])
    is_digits = np.array([word.isdigit() for word in plain], bool)
    is_short = np.array([len(word) == 1 for word in plain], bool)
    is_empty = np.array([word == "" for word in plain], bool)
    counts = np.bincount(owners[~is_empty[numbers]], minlength=len(values))
    digits = np.bincount(owners, is_digits[numbers], len(values))
    used = np.where(digits[owners] >= 2, month[numbers], hashes[numbers])
    sums = np.zeros(len(values), np.uint64)
    with np.errstate(over="ignore"):
        np.add.at(sums, owners[~is_empty[numbers]], used[~is_empty[numbers]])
    known = np.flatnonzero(counts)
    single = known[counts[known] == 1]
    texts = [plain[number] for number in numbers[starts[single]].tolist()]
    differs = np.array(
        [text != value for text, value in zip(texts, values.take(single).to_pylist(), strict=True)],
        bool,
    )
    kept = np.ones(len(values), bool)
    kept[single[~differs]] = every
    sorted_words = known[kept[known]]
    names = np.flatnonzero((counts >= 2) & (counts <= 4) & (digits == 0))
    first, last = numbers[starts[names]], numbers[starts[names + 1] - 1]
    second = numbers[starts[names] + 1]
    # "Ng, Ann" and "Ng A." have the last name first.
    turned = has_comma[names] | (is_short[last] & ~is_short[first])
    given = np.where(turned, np.where(has_comma[names], second, last), first)
    family = np.where(turned, first, last)
    with np.errstate(over="ignore"):
        named = hashes[family] * np.uint64(3) + initials[given]
    parts = (sorted_words, sums[sorted_words]), (names, named)
    values_, hashes_ = (np.concatenate(part) for part in zip(*parts, strict=True))
    bare = [text for text, other in zip(texts, differs.tolist(), strict=True) if other]
    return ValueSignatures(values_, _folded(hashes_), single[differs], bare)


@lru_cache(1 << 12)
def _cut(value: str) -> str:
    """Do as `_CUTS` with one value: Arrow compiles its patterns anew for every call."""
    for pattern, by in _ASCII_CUTS:
        value = pattern.sub(by, value)
    if value.isascii():
        for pattern, by in _ASCII_WORDS:
            value = pattern.sub(by, value)
        return value
    found, before = [], " "
    for letter in value:
        kind = unicodedata.category(letter)[0]
        if kind + before in ("LN", "NL"):
            found.append(" ")
        found.append(letter if kind in "LNM" else " ")
        before = kind
    return "".join(found)


def _plain(word: str) -> str:
    """Strip accents and leading zeros."""
    if not word.isascii():
        letters = unicodedata.normalize("NFKD", word)
        word = "".join(one for one in letters if not unicodedata.combining(one))
    return word.lstrip("0") or word[:1] if word.isdigit() else word


def _folded(hashes: Hashes) -> npt.NDArray[np.uint32]:
    # 32 bits suffice to propose: of 10 million signatures, one in 430 queries meets a wrong one.
    with np.errstate(over="ignore"):
        return ((hashes * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)).astype(np.uint32)


def signature_blocks(folder: Path, size: int = BLOCK) -> Iterator[npt.NDArray[np.uint64]]:
    """Compute the signatures of a segment's values: hash and value in one number each."""
    strings = load_strings(folder, "values")
    for start in range(0, len(strings), size):
        found = signatures_of(strings.slice(start, size).cast(pa.string()))
        values = (found.values + start).astype(np.uint64)
        yield found.hashes.astype(np.uint64) << np.uint64(32) | values


def write_signatures(
    folder: Path, memory: int = DEFAULT, stopped: Callable[[], bool] = lambda: False
) -> None:
    """Write the signatures of a segment whose values are stored in the folder.

    Gives up as soon as ``stopped`` returns true.
    """
    unsorted = folder / "signatures.unsorted"
    size = rows_at_once(memory, _VALUE_BYTES, 1 << 12, BLOCK)
    at_once = rows_at_once(memory, 16, 1 << 16, _SORTED)
    with ArrayWriter(unsorted, np.uint64) as writer:
        for block in signature_blocks(folder, size):
            if stopped():
                return
            writer.append(block)
        count = writer.length
    every = np.load(unsorted, mmap_mode="r") if count else np.zeros(0, np.uint64)
    parts = max(1, -(-count // at_once))
    bounds = [(part << 64) // parts for part in range(parts + 1)]
    with (
        ArrayWriter(folder / "signature_hashes.npy", np.uint32) as hashes,
        ArrayWriter(folder / "signature_values.npy", np.uint32) as values,
    ):
        for low, high in pairwise(bounds):
            chosen = [
                part[(part >= np.uint64(low)) & (part <= np.uint64(high - 1))]
                for part in (every[at : at + at_once] for at in range(0, count, at_once))
            ]
            ordered = np.sort(np.concatenate([np.zeros(0, np.uint64), *chosen]))
            hashes.append(ordered >> np.uint64(32))
            values.append(ordered & np.uint64(0xFFFFFFFF))
    del every
    unsorted.unlink()
    for name in SIGNATURE_FILES:
        pack(folder / f"{name}.npy")


class Signatures:
    """The signatures of a segment, mapped."""

    def __init__(self, folder: Path) -> None:
        self.hashes, self.values = (
            load_numbers(folder / f"{name}.npy") for name in SIGNATURE_FILES
        )

    @classmethod
    def open(cls, folder: Path) -> Signatures | None:
        """Open the signatures of a segment; None in one of an earlier version, or of hashes."""
        return cls(folder) if (folder / "signature_hashes.npy").exists() else None

    def look_up(self, wanted: Array, most: int) -> tuple[Int, Int]:
        """Find values by signature: which of the wanted ones, and which value.

        A signature of more than ``most`` values names none of them.
        """
        starts = np.searchsorted(self.hashes, wanted, side="left")
        counts = np.searchsorted(self.hashes, wanted, side="right") - starts
        counts = np.where(counts > most, 0, counts)
        found = self.values[ranges(starts, counts)].astype(np.int64)
        return np.repeat(np.arange(len(wanted)), counts), found
