"""What two values have in common and what sets them apart, as numbers for the scorer.

Two names that share most letters may still be two things: what differs decides. A word that few
values have, a number or a year sets things apart; Ltd, The and a missing accent do not. Words
weigh by how rare they are in the two columns at hand.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from math import log, log1p
from typing import TypeAlias

import numpy as np

from deepjoin.arrays import Float, Int
from deepjoin.matching.candidates import MOST_CHARACTERS

_WORD = re.compile(r"[^\W\d_]+|\d+")
#: The least length of a code, what is left out of it and what it must have.
_CODE, _PUNCTUATION, _DIGIT = 4, re.compile(r"[\W_]+"), re.compile(r"\d")
#: A separator of thousands.
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
#: Where the name ends and what qualifies it begins: Georgia (country), Paris, Texas.
_HEAD_END = re.compile(r"[(\[,]|\s[-–—|]\s")
#: Letters that different spellings of one sound leave out or exchange.
_SOUNDS = str.maketrans("cqzwjpx", "kksvibk", "aeiouyh'")
#: Words that rarely tell two things apart, in any column.
_LIGHT = frozenset(
    (
        *("the", "a", "an", "of", "and", "or", "for", "in", "at", "on", "to", "by", "de", "la"),
        *("le", "les", "el", "los", "las", "del", "di", "da", "do", "dos", "das", "du", "des"),
        *("der", "die", "und", "et", "y", "e", "i", "inc", "ltd", "llc", "co", "corp"),
        *("corporation", "company", "limited", "plc", "gmbh", "ag", "sa", "spa", "nv", "bv"),
        *("oy", "ab", "as", "kg", "mr", "mrs", "ms", "dr", "sir", "st", "nd", "rd", "th"),
    )
)
_LIGHT_WEIGHT = 0.25
#: Numbers as words: ordinals and numerals, which set Otto II apart from Otto I.
_NUMERALS = {
    word: str(at)
    for words in (
        "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth",
        "one two three four five six seven eight nine ten eleven twelve",
        "- ii iii iv - vi vii viii ix - xi xii xiii xiv xv xvi xvii xviii xix xx",
    )
    for at, word in enumerate(words.split(), 1)
}
#: A numeral of one letter is one after a name: Otto I of Bavaria, but no middle initial.
_LETTER_NUMERAL = re.compile(r"(?<=[^\W\d_] )[ivx](?=$|[,()\[\]:]| of | and )")
_LETTER_NUMERALS = {"i": "1", "v": "5", "x": "10"}
#: Words that exclude each other: two names with different ones mean different things.
_OPPOSED = {
    form: (kind, member)
    for kind, members in enumerate(
        (
            "women womens woman ladies girls female femenina feminine|men mens boys male",
            "junior juniors youth juvenile|senior seniors",
            "north northern|south southern|east eastern|west western|central",
            "northeast northeastern|northwest northwestern|southeast southeastern|"
            "southwest southwestern",
            "upper|lower|middle",
            "new|old",
            "great greater|little lesser small",
            "summer|winter|spring|autumn",
            "black|white|red|blue|green|silver|yellow|pink|gray grey|brown|purple|orange",
            "january jan|february feb|march|april apr|may|june|july|august aug|september sept|"
            "october oct|november nov|december dec",
            "monday|tuesday|wednesday|thursday|friday|saturday|sunday",
        )
    )
    for member, forms in enumerate(members.split("|"))
    for form in forms.split()
}
#: The first kinds, of which a word counts as well if only one of the two values has it.
_MARKS = 2
#: Leftover words compared with each other; a longer list is cut.
_COMPARED = 8
#: Two leftover words this alike count as one word spelled in two ways.
_ALIKE = 0.55

#: Words that only the one and only the other value of a pair has.
Difference: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]

NAMES = (
    "mine_shared", "theirs_shared", "mine_alike", "theirs_alike", "mine_rarest_left",
    "theirs_rarest_left", "contrast", "mine_left", "theirs_left", "numbers_shared",
    "numbers_mine", "numbers_theirs", "numbers_contrast", "leftover_dice", "word_alike",
    "common_prefix", "common_suffix", "acronym", "first_same", "last_same", "length_ratio",
    "least_words", "most_words", "same_words", "squashed", "mine_known_there",
    "theirs_known_here", "mine_weight", "theirs_weight", "initials",
    "swapped_same_length", "unique_shared", "codes_shared", "codes_contrast", "codes_alike",
    "code_unique", "codes_known", "heads_same", "heads_shared", "mine_head_there",
    "theirs_head_here", "qualifiers_contrast", "sound", "opposed", "marked",
)  # fmt: skip


@dataclass(frozen=True)
class ValueWords:
    """The words of a value: letters without accents, and runs of digits."""

    tokens: tuple[str, ...]
    distinct: frozenset[str]
    text: str
    #: Words with digits as they are written, such as DVP-FX911: numbers of models and parts.
    codes: frozenset[str]
    #: The words before a bracket, comma or dash; all of them if there is none.
    head: frozenset[str]

    @classmethod
    @lru_cache(1 << 14)
    def of(cls, value: str) -> ValueWords:
        """Take a value apart."""
        plain = value[:MOST_CHARACTERS].lower()
        if not plain.isascii():
            letters = unicodedata.normalize("NFKD", plain)
            plain = "".join(one for one in letters if not unicodedata.combining(one))
        plain = plain.replace("'s", "s").replace("&", " and ")
        if "," in plain:
            plain = _THOUSANDS.sub("", plain)
        plain = _LETTER_NUMERAL.sub(lambda one: _LETTER_NUMERALS[one[0]], plain)
        words = _WORD.findall(plain)
        tokens = tuple(_number(word, at) for at, word in enumerate(words))
        codes = frozenset(
            _PUNCTUATION.sub("", word) for word in plain.split()
            if len(word) >= _CODE and _DIGIT.search(word)
        )  # fmt: skip
        all_words = frozenset(tokens)
        count = len(_WORD.findall(_HEAD_END.split(plain, maxsplit=1)[0]))
        head = all_words if count == len(tokens) else frozenset(tokens[:count]) or all_words
        return cls(tokens, all_words, " ".join(tokens), codes, head)


def _number(word: str, place: int) -> str:
    if word[0].isdigit():
        return word.lstrip("0") or "0"
    # Xi Jinping is not an eleventh.
    return word if place == 0 and len(word) < _CODE else _NUMERALS.get(word, word)


class WordWeights:
    """How much each word of two columns weighs, and in how many values of each it is."""

    def __init__(self, left: list[ValueWords], right: list[ValueWords]) -> None:
        self.left = Counter(token for words in left for token in words.distinct)
        self.right = Counter(token for words in right for token in words.distinct)
        #: How many values of either column have a code.
        self.codes = tuple(
            Counter(code for words in side for code in words.codes) for side in (left, right)
        )
        self._most = log(len(left) + len(right) + 1) or 1.0
        self._known: dict[str, float] = {}

    def of(self, token: str) -> float:
        """Weigh a word: 1 for one that a single value has, close to 0 for one that most have."""
        known = self._known.get(token)
        if known is None:
            held = self.left[token] + self.right[token]
            # A word that both partners of one true pair have is as rare as can be.
            known = min(1.0, 1 - log(max(held - 1, 1)) / self._most)
            if token in _LIGHT:
                known *= _LIGHT_WEIGHT
            self._known[token] = known
        return known


@lru_cache(1 << 16)
def _bigrams(text: str) -> frozenset[str]:
    padded = f" {text} "
    return frozenset(padded[at : at + 2] for at in range(len(padded) - 1))


def _dice(a: str, b: str) -> float:
    one, two = _bigrams(a), _bigrams(b)
    return 2 * len(one & two) / (len(one) + len(two))


def _alike(a: str, b: str) -> float:
    """Compare two words: spelling, or one short for the other."""
    if a[0].isdigit() or b[0].isdigit():
        return 0.0
    short, long = (a, b) if len(a) <= len(b) else (b, a)
    if long.startswith(short):
        return 0.75 if len(short) > 1 else 0.6
    if len(short) > 1 and short[0] == long[0] and len(short) <= 4 and short[-1] == long[-1]:
        letters = iter(long)
        if all(letter in letters for letter in short):
            return 0.6  # St, Dept, Intl
    return _dice(a, b)


def compare(
    mine: ValueWords, theirs: ValueWords, weights: WordWeights, cross: bool = True
) -> tuple[list[float], Difference]:
    """Return the features of a pair, in the order of `NAMES`, and the words that differ.

    ``cross`` False says that both are of one column, where words are known on both sides.
    """
    weigh = weights.of
    shared = mine.distinct & theirs.distinct
    left = [token for token in dict.fromkeys(mine.tokens) if token not in shared]
    right = [token for token in dict.fromkeys(theirs.tokens) if token not in shared]
    both = sum(map(weigh, shared))
    mine_all = both + sum(map(weigh, left)) or 1e-9
    theirs_all = both + sum(map(weigh, right)) or 1e-9
    mine_soft = theirs_soft = best = initials = 0.0
    rest, others = left[:_COMPARED], right[:_COMPARED]
    if rest and others:
        scored = sorted(((_alike(a, b), a, b) for a in rest for b in others), reverse=True)
        best = scored[0][0]
        for value, a, b in scored:
            if value < _ALIKE:
                break
            if a in rest and b in others:
                rest.remove(a)
                others.remove(b)
                mine_soft += value * weigh(a)
                theirs_soft += value * weigh(b)
                initials += len(a) == 1 or len(b) == 1
    rarest = max(rest, key=weigh, default="")
    rarest_other = max(others, key=weigh, default="")
    lost, missing = (weigh(one) if one else 0.0 for one in (rarest, rarest_other))
    digits = {token for token in mine.distinct if token[0].isdigit()}
    other_digits = {token for token in theirs.distinct if token[0].isdigit()}
    only, only_other = digits - other_digits, other_digits - digits
    a, b = mine.text, theirs.text
    squashed, squashed_other = a.replace(" ", ""), b.replace(" ", "")
    prefix = _common(squashed, squashed_other)
    suffix = _common(squashed[::-1], squashed_other[::-1])
    shortest = max(min(len(squashed), len(squashed_other)), 1)
    acronym = _acronym(mine, squashed_other) or _acronym(theirs, squashed)
    if mine.head is mine.distinct and theirs.head is theirs.distinct:
        heads = (
            mine.distinct == theirs.distinct, both / max(mine_all, theirs_all),
            both / mine_all, both / theirs_all, False,
        )  # fmt: skip
    else:
        heads = _compared_heads(mine, theirs, weights)
    there, here = (weights.right, weights.left) if cross else (weights.right, weights.right)
    described = [
        both / mine_all,
        both / theirs_all,
        (both + mine_soft) / mine_all,
        (both + theirs_soft) / theirs_all,
        lost,
        missing,
        min(lost, missing),
        len(rest),
        len(others),
        len(digits & other_digits),
        len(only),
        len(only_other),
        bool(only and only_other),
        _dice("".join(left), "".join(right)) if left and right else 1.0,
        best,
        prefix / shortest,
        suffix / shortest,
        acronym,
        bool(mine.tokens and theirs.tokens and mine.tokens[0] == theirs.tokens[0]),
        bool(mine.tokens and theirs.tokens and mine.tokens[-1] == theirs.tokens[-1]),
        shortest / max(len(squashed), len(squashed_other), 1),
        min(len(mine.tokens), len(theirs.tokens)),
        max(len(mine.tokens), len(theirs.tokens)),
        mine.distinct == theirs.distinct,
        squashed == squashed_other,
        log1p(there[rarest]) if rarest else 0.0,
        log1p(here[rarest_other]) if rarest_other else 0.0,
        mine_all,
        theirs_all,
        initials,
        bool(rest and others and len(rest) == len(others)),
        # A word that one value of either column has names the thing.
        sum(there[token] == 1 and here[token] == 1 for token in shared) if cross else 0,
        *_compared_codes(mine.codes, theirs.codes, weights, cross),
        *heads,
        _sound_alike("".join(left), "".join(right)) if left and right else 1.0,
        *_opposed(left, right),
    ]
    return described, (tuple(rest), tuple(others))


def _common(a: str, b: str) -> int:
    """Return how many characters two texts begin with."""
    for at, (one, two) in enumerate(zip(a, b, strict=False)):
        if one != two:
            return at
    return min(len(a), len(b))


def _opposed(left: list[str], right: list[str]) -> tuple[int, int]:
    """Count opposed words (north, south), and kinds of words that only one side has (women)."""
    mine, theirs = (dict(_OPPOSED[one] for one in side if one in _OPPOSED)
                    for side in (left, right))  # fmt: skip
    opposed = sum(theirs.get(kind, member) != member for kind, member in mine.items())
    return opposed, sum(kind < _MARKS for kind in mine.keys() ^ theirs.keys())


def _compared_heads(
    mine: ValueWords, theirs: ValueWords, weights: WordWeights
) -> tuple[bool, float, float, float, bool]:
    """Compare what stands before a bracket or comma, and say whether nothing behind it agrees."""

    def weight(words: frozenset[str]) -> float:
        return sum(map(weights.of, words))

    sizes = weight(mine.head) or 1e-9, weight(theirs.head) or 1e-9
    tail, other_tail = mine.distinct - mine.head, theirs.distinct - theirs.head
    return (
        mine.head == theirs.head,
        weight(mine.head & theirs.head) / max(sizes),
        weight(mine.head & theirs.distinct) / sizes[0],
        weight(theirs.head & mine.distinct) / sizes[1],
        bool(tail and other_tail and tail.isdisjoint(other_tail)),
    )


def _compared_codes(
    mine: frozenset[str], theirs: frozenset[str], weights: WordWeights, cross: bool
) -> tuple[int, bool, float, bool, int]:
    """Count common codes, and look for what contradicts: codes that the other column has."""
    shared = mine & theirs
    known, other_known = weights.codes if cross else (weights.codes[1],) * 2
    # The partner of a code that the other column has elsewhere is elsewhere.
    elsewhere = any(other_known[code] for code in mine - shared) + any(
        known[code] for code in theirs - shared
    )
    return (
        len(shared),
        bool(mine and theirs and not shared),
        1.0 if shared else _codes_alike(mine, theirs),
        any(known[code] == 1 == other_known[code] for code in shared),
        elsewhere if cross else 0,
    )


def _codes_alike(mine: frozenset[str], theirs: frozenset[str]) -> float:
    """Compare codes by the beginning they share, if it has a digit (IM600, IM600USB)."""
    best = 0.0
    for one in mine:
        for other in theirs:
            same = _common(one, other)
            if same >= _CODE and _DIGIT.search(one[:same]):
                best = max(best, same / max(len(one), len(other)))
    return best


def _sound_alike(a: str, b: str) -> float:
    """Compare the consonants of two texts, similar ones as one."""
    one, two = (_sound(text) for text in (a, b))
    return _dice(one, two) if one and two else 0.0


@lru_cache(1 << 16)
def _sound(text: str) -> str:
    letters = text.translate(_SOUNDS)
    return "".join(a for a, b in zip(letters, f" {letters}", strict=False) if a != b)


def _acronym(words: ValueWords, squashed: str) -> bool:
    if not 2 <= len(squashed) <= 8 or len(words.tokens) < 2:
        return False
    letters = "".join(token[0] for token in words.tokens)
    heavy = "".join(token[0] for token in words.tokens if token not in _LIGHT)
    return squashed in (letters, heavy)


def pair_features(
    sides: tuple[list[ValueWords], list[ValueWords]], mine: Int, theirs: Int, weights: WordWeights,
    cross: bool = True,
) -> tuple[Float, list[Difference]]:  # fmt: skip
    """Compare pairs of values, a row each; return their features and the words that differ."""
    lefts, rights = sides
    rows, differences = [], []
    for i, j in zip(mine.tolist(), theirs.tolist(), strict=True):
        described, difference = compare(lefts[i], rights[j], weights, cross)
        rows.append(described)
        differences.append(difference)
    return np.array(rows, np.float32).reshape(len(rows), len(NAMES)), differences
