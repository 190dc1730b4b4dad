"""Careful similarity: which values that are not equal mean the same thing, and how sure that is.

Candidates share rare trigrams or have close vectors. A first model, boosted trees, compares the two
values of a pair. Two others also see the surroundings: the next best partner on either side,
whether the partner has an equal value already, and how alike values of one column are, which are
different things by nature. Trees judge each pair, small networks choose among the candidates of a
value and no partner at all; the mean of their log odds counts (docs/decisions/0032).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import log1p
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from deepjoin.arrays import Array, Double, Float, Int, Marks, distinct, ranges
from deepjoin.embed.cells import CellEncoder
from deepjoin.matching.candidates import Grams, GramSpace, leading, near_vectors
from deepjoin.matching.features import NAMES, Difference, ValueWords, WordWeights, pair_features
from deepjoin.matching.trees import Network, Trees, ordered

_MODEL = Path(__file__).with_name("careful.json")
#: Candidates of a value by trigrams and by vectors, and how many of them are scored.
_BY_GRAMS, _BY_VECTORS, _SCORED = 8, 6, 5
#: Neighbours of a value in its own column that are scored.
_SIBLINGS = 2
#: The least cosine of vectors that proposes a pair.
_CLOSE = 0.45
#: The least cosine of two values without a common word that the encoder knows to be synonyms.
_SYNONYM = 0.8
#: Characters of a code; the least cosine of a code and its name, and how much less similar an
#: alternative may be.
_CODE, _CODED, _NEARLY = 3, 0.65, 0.02
#: Words by which two values may differ to count each of them as a difference.
_FEW_WORDS = 3
#: The chance of a best partner of which nothing is known.
_USUAL = 0.3
#: The score of a network that means certainty.
_CERTAIN = 30.0
#: The most that the chance of a pair can be whose words or numbers contradict each other.
_DOUBTFUL = 0.2

#: What the first model sees, and what the others see besides, by name.
FIRST = ("spelled", "meant", *NAMES, "differences_meant")
SURROUNDINGS = (
    "chance", "next_in_row", "above_row", "row_rank", "next_in_column", "above_column",
    "column_rank", "spelled_above_row", "spelled_above_column", "taken", "mine_sibling",
    "theirs_sibling", "above_sibling", "mine_sibling_spelled", "theirs_sibling_spelled",
    "spelled_above_sibling", "siblings_above", "size", "other_size", "size_ratio", "equal",
    "mean_best", "mean_sibling",
)  # fmt: skip
HABITS = (
    "difference_seen", "difference_within", "mine_within", "theirs_within", "mine_seen",
    "theirs_seen", "difference_sure", "mine_sure", "theirs_sure", "least_sure",
)  # fmt: skip


@dataclass(frozen=True)
class ScoredPairs:
    """Candidate pairs and the chance that each is right; numbers are places in the lists."""

    left: Int
    right: Int
    chances: Double

    def __len__(self) -> int:
        return len(self.left)

    def where(self, chosen: Array) -> ScoredPairs:
        """Keep some of the pairs."""
        return ScoredPairs(self.left[chosen], self.right[chosen], self.chances[chosen])


class DescribedPairs(NamedTuple):
    """Pairs by their places in the lists, their features, and the words that differ."""

    left: Int
    right: Int
    rows: Float
    differences: list[Difference]


class ComparedColumns:
    """Two lists of distinct canonical values, prepared to be compared."""

    def __init__(self, left: list[str], right: list[str], encoder: CellEncoder | None) -> None:
        self.words = (
            [ValueWords.of(value) for value in left],
            [ValueWords.of(value) for value in right],
        )
        self.weights = WordWeights(*self.words)
        left_texts, right_texts = ([one.text for one in side] for side in self.words)
        self.space = GramSpace(left_texts, right_texts)
        self.grams = self.space.left, self.space.right
        self._encoder = encoder
        self.vectors: tuple[Float, Float] | None = None
        if encoder is not None:
            self.vectors = encoder.encode(left), encoder.encode(right)

    def candidates(self, rows: Int) -> tuple[Int, Int]:
        """Propose partners for some values on the left, seen from both sides."""
        wanted = np.zeros(len(self.words[0]), bool)
        wanted[rows] = True
        parts = []
        for first, second in ((0, 1), (1, 0)):
            found = [self.space.nearest((self.grams[first], self.grams[second]), _BY_GRAMS, False)]
            if self.vectors is not None and len(self.vectors[first]):
                mine, theirs = self.vectors[first], self.vectors[second]
                found.append(near_vectors(mine, theirs, _BY_VECTORS, _CLOSE))
            for who, other in found:
                parts.append((who, other) if first == 0 else (other, who))
        left, right = (np.concatenate(part) for part in zip(*parts, strict=True))
        kept = wanted[left]
        pairs = distinct(left[kept] * len(self.words[1]) + right[kept])
        left, right = np.divmod(pairs, max(len(self.words[1]), 1))
        # Of many candidates, the closest by each measure, seen from either side.
        alike = self._alike(left, right, (0, 1))
        best = np.union1d(*(leading(left, measure, _SCORED) for measure in alike.T))
        wanted_too = np.zeros(len(self.words[1]), bool)
        wanted_too[right[best]] = True
        rivals = leading(right, alike.max(axis=1), _SIBLINGS)
        some = np.union1d(best, rivals[wanted_too[right[rivals]]])
        return left[some], right[some]

    def described(self, left: Int, right: Int, sides: tuple[int, int] = (0, 1)) -> DescribedPairs:
        """Describe pairs of values; ``sides`` (1, 1) are pairs within the right column."""
        words = self.words[sides[0]], self.words[sides[1]]
        compared, differences = pair_features(
            words, left, right, self.weights, sides[0] != sides[1]
        )
        meant = self._meant(differences)
        rows = np.hstack([self._alike(left, right, sides), compared, meant[:, None]])
        return DescribedPairs(left, right, rows.astype(np.float32), differences)

    def _meant(self, differences: list[Difference]) -> Double:
        """Compare the words that differ by their vectors; 0 if a side has none."""
        cosines = np.zeros(len(differences))
        if self._encoder is None:
            return cosines
        sides = [[" ".join(one[side]) for one in differences] for side in (0, 1)]
        phrases = {phrase: at for at, phrase in enumerate(dict.fromkeys(sides[0] + sides[1]))}
        vectors = self._encoder.encode(list(phrases))
        for start in range(0, len(differences), 1 << 16):
            part = slice(start, start + (1 << 16))
            mine, theirs = (vectors[[phrases[one] for one in side[part]]] for side in sides)
            cosines[part] = np.einsum("ij,ij->i", mine, theirs)
        both = np.array([bool(one and other) for one, other in differences], bool)
        return np.where(both, cosines, 0.0)

    def siblings(self, side: int, chosen: Int) -> tuple[Int, Int]:
        """Return the nearest neighbours of some values within their own column."""
        grams = self.grams[side]
        starts = grams.starts
        lengths = np.zeros(len(grams), np.int64)
        lengths[chosen] = np.diff(starts)[chosen]
        # The same numbers of values, but only the chosen ones look for neighbours.
        mine = Grams(
            np.concatenate([[0], np.cumsum(lengths)]), grams.grams[ranges(starts[:-1], lengths)]
        )
        return self.space.nearest((mine, grams), _SIBLINGS, True)

    def _alike(self, left: Int, right: Int, sides: tuple[int, int]) -> Double:
        spelled = self.space.cosines(left, right, (self.grams[sides[0]], self.grams[sides[1]]))
        meant = np.zeros(len(left))
        if self.vectors is not None:
            mine, theirs = self.vectors[sides[0]], self.vectors[sides[1]]
            for start in range(0, len(left), 1 << 16):
                part = slice(start, start + (1 << 16))
                meant[part] = np.einsum("ij,ij->i", mine[left[part]], theirs[right[part]])
        return np.stack([spelled, meant], axis=1)


def first_features(pair: ComparedColumns, equal: Int) -> DescribedPairs:
    """Propose pairs for the values without an equal one, and describe them."""
    return pair.described(*pair.candidates(np.flatnonzero(equal < 0)))


def second_features(
    pair: ComparedColumns, equal: Int, found: DescribedPairs, first: Trees
) -> Float:
    """Describe pairs with their surroundings, in the order of `FIRST`, `SURROUNDINGS`, `HABITS`."""
    left, right, rows, _ = found
    size, other_size = len(pair.words[0]), len(pair.words[1])
    chance = first.chance(rows)
    in_row, row_rank = ordered(chance, left, 3)
    in_column, column_rank = ordered(chance, right, 3)
    spelled_row, _ = ordered(rows[:, 0], left, 3)
    spelled_column, _ = ordered(rows[:, 0], right, 3)
    taken = np.zeros(other_size, bool)
    taken[equal[equal >= 0]] = True
    alone, shapes = [], []
    apart: list[Difference] = []
    for side, chosen in ((0, distinct(left)), (1, distinct(right))):
        mine, theirs = pair.siblings(side, chosen)
        scores = np.zeros(len(pair.words[side]))
        spelled = np.zeros(len(pair.words[side]))
        if len(mine):
            described = pair.described(mine, theirs, (side, side))
            np.maximum.at(scores, mine, first.chance(described.rows))
            np.maximum.at(spelled, mine, described.rows[:, 0])
            apart += described.differences
        alone.append((scores, spelled))
        shapes.append(np.sort(scores[chosen]))
    (mine_score, mine_spelled), (their_score, their_spelled) = alone
    best_rows = chance[row_rank == 0]
    above = 1 - np.searchsorted(shapes[1], chance) / max(len(shapes[1]), 1)
    around = [
        chance, in_row, chance - in_row, row_rank, in_column, chance - in_column, column_rank,
        rows[:, 0] - spelled_row, rows[:, 0] - spelled_column, taken[right],
        mine_score[left], their_score[right], chance - their_score[right],
        mine_spelled[left], their_spelled[right], rows[:, 0] - their_spelled[right], above,
        np.full(len(left), np.log1p(size)), np.full(len(left), np.log1p(other_size)),
        np.full(len(left), np.log((1 + size) / (1 + other_size))),
        np.full(len(left), np.mean(equal >= 0)),
        np.full(len(left), best_rows.mean() if len(best_rows) else 0.0),
        np.full(len(left), shapes[1].mean() if len(shapes[1]) else 0.0),
    ]  # fmt: skip
    best = np.where(row_rank == 0, chance, -1.0)
    counted = _counted_differences(pair.words[0], found, best, apart)
    return np.hstack([rows, np.stack(around, axis=1), counted]).astype(np.float32)


class _Habits:
    """How often words differ between best partners, and how sure those partners are.

    Values that differ in a number alone (the seasons of a league) are one observation: the same
    mistake in each of them is no habit.
    """

    def __init__(self) -> None:
        self._seen: dict[object, dict[frozenset[str], float]] = {}
        self._sums: dict[object, float] = {}

    def note(self, key: object, context: frozenset[str], chance: float) -> None:
        """Note that a best partner of this chance differs in this way."""
        seen = self._seen.setdefault(key, {})
        before = seen.get(context, 0.0)
        seen[context] = max(before, chance)
        self._sums[key] = self._sums.get(key, 0.0) + seen[context] - before

    def others(self, key: object, context: frozenset[str]) -> tuple[int, float]:
        """Return how often that is so elsewhere, and the mean chance there, drawn to .3."""
        seen = self._seen.get(key)
        if seen is None:
            return 0, _USUAL
        count = len(seen) - (context in seen)
        total = max(self._sums[key] - seen.get(context, 0.0), 0.0)
        return count, (total + _USUAL) / (count + 1)


def _counted_differences(
    words: list[ValueWords], found: DescribedPairs, best: Double, apart: list[Difference]
) -> Double:
    """Count how often the words that differ do so in other pairs.

    Words that set two values of one column apart name different things (men, women); words that
    often differ between best partners of two columns are a habit of one of them (NHS Trust).
    ``best`` has the chance of the best partners, and -1 for others.
    """
    within: Counter[tuple[str, ...] | str] = Counter()
    for mine, theirs in apart:
        within[(*min(mine, theirs), "/", *max(mine, theirs))] += 1
        if len(mine) + len(theirs) <= _FEW_WORDS:
            within.update(mine + theirs)
    contexts = [
        frozenset(one for one in words[at].distinct.difference(difference[0])
                  if not one[0].isdigit())
        for at, difference in zip(found.left.tolist(), found.differences, strict=True)
    ]  # fmt: skip
    habits = _Habits()
    for at in np.flatnonzero(best >= 0).tolist():
        difference, context, chance = found.differences[at], contexts[at], float(best[at])
        habits.note(difference, context, chance)
        if sum(map(len, difference)) <= _FEW_WORDS:
            for side in (0, 1):
                for word in difference[side]:
                    habits.note((side, word), context, chance)
    counted = np.zeros((len(contexts), 10))
    counted[:, 6:] = 1.0
    for at, ((mine, theirs), context) in enumerate(zip(found.differences, contexts, strict=True)):
        if not mine and not theirs:
            continue
        both, sure = habits.others((mine, theirs), context)
        seen = [[habits.others((side, word), context) for word in part]
                for side, part in enumerate((mine, theirs))]  # fmt: skip
        chances = [min((chance for _, chance in part), default=1.0) for part in seen]
        counted[at] = (
            log1p(both),
            log1p(within[(*min(mine, theirs), "/", *max(mine, theirs))]),
            log1p(max((within[word] for word in mine), default=0)),
            log1p(max((within[word] for word in theirs), default=0)),
            log1p(max((count for count, _ in seen[0]), default=0)),
            log1p(max((count for count, _ in seen[1]), default=0)),
            sure,
            *chances,
            min(chances),
        )
    return counted


@dataclass(frozen=True)
class CarefulModels:
    """The first model, and the two that also see the surroundings of a pair."""

    first: Trees
    second: Trees
    networks: tuple[Network, ...]

    @classmethod
    def load(cls, stored: dict[str, Any]) -> CarefulModels:
        """Read the models from what `json` gives."""
        first, second = (Trees.load(stored[name]) for name in ("first", "second"))
        return cls(first, second, tuple(map(Network.load, stored["networks"])))

    def chances(self, left: Int, rows: Float) -> Double:
        """Return the chance of each pair; the candidates of a value share one chance."""
        scores = np.mean([network(rows) for network in self.networks], axis=0)
        scores = np.clip(scores, -_CERTAIN, _CERTAIN)
        odds = np.exp(scores)
        others = np.maximum(np.bincount(left, odds)[left] - odds, 0)
        # The odds against it are those of the other candidates, and of no partner, which is 1.
        log_odds = (self.second.log_odds(rows) + scores - np.log1p(others)) / 2
        return np.asarray(1 / (1 + np.exp(-log_odds)))


@cache
def _models() -> CarefulModels:
    return CarefulModels.load(json.loads(_MODEL.read_text("utf-8")))


def scored_pairs(
    left: list[str], right: list[str], equal: Int, encoder: CellEncoder | None
) -> ScoredPairs:
    """Score pairs of values that are not equal; ``equal`` is the place of the equal one, or -1."""
    none = ScoredPairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    if not right or not (equal < 0).any():
        return none
    pair = ComparedColumns(left, right, encoder)
    found = first_features(pair, equal)
    if len(found.left) == 0:
        return none
    models = _models()
    chances = models.chances(found.left, second_features(pair, equal, found, models.first))
    chances = with_knowledge(chances, found.rows)
    return ScoredPairs(found.left, found.right, _with_codes(pair, found, chances))


def _with_codes(pair: ComparedColumns, found: DescribedPairs, chances: Double) -> Double:
    """Judge codes beside names (Germany, DE) by their vectors: their letters say little.

    The most similar code of a name keeps its cosine as chance; a code that is clearly less similar
    than another is not an alternative.
    """
    left, right, rows, _ = found
    sizes = [np.array([len(one.text) for one in side]) for side in pair.words]
    mine, theirs = sizes[0][left], sizes[1][right]
    is_code = (np.minimum(mine, theirs) <= _CODE) & (np.maximum(mine, theirs) > _CODE + 1)
    is_code &= rows[:, 2] == 0  # no common word
    if pair.vectors is None or not is_code.any():
        return chances
    meant = rows[:, 1].astype(float)
    best = np.zeros(len(sizes[0]))
    np.maximum.at(best, left[is_code], meant[is_code])
    close = (meant >= _CODED) & (meant >= best[left] - _NEARLY)
    return np.where(is_code, np.where(close, meant, np.minimum(chances, _DOUBTFUL)), chances)


def with_knowledge(chances: Double, rows: Float) -> Double:
    """Correct chances by what is known anyway: synonyms, and what contradicts each other."""
    # That close without a common word, the cell encoder knows both (UK, 1B).
    known = (rows[:, 1] >= _SYNONYM) & (rows[:, 2] == 0)
    chances = np.where(known, np.maximum(chances, rows[:, 1] - 0.05), chances)
    # One rare word each that the other lacks sets two short names apart (Foods, Optics). Of such
    # pairs that the models accept, most are right where the same two words differ often.
    feature = {name: rows[:, 2 + at] for at, name in enumerate(NAMES)}
    contrary = (feature["mine_left"] == 1) & (feature["theirs_left"] == 1)
    contrary &= (feature["contrast"] >= 0.5) & (feature["leftover_dice"] < 0.4)
    contrary &= (feature["most_words"] <= 2) & ~known
    # Numbers that differ set things apart, unless both name the same model or part.
    contrary |= (feature["numbers_contrast"] > 0) & (feature["codes_shared"] == 0)
    return np.where(contrary, np.minimum(chances, _DOUBTFUL), chances)


class AlikePairs(NamedTuple):
    """Values at the same place of two lists, and the cosines of their vectors."""

    left: list[str]
    right: list[str]
    cosines: Double


def look_alike(groups: Sequence[AlikePairs], least: float) -> list[Marks]:
    """Mark pairs of each group that share a word but are probably two things.

    It looks at the two values alone, and at how rare their words are in the two lists. Values
    without a common word are left to the cell encoder, which knows codes and abbreviations.
    """
    found = [np.zeros(len(group.left), bool) for group in groups]
    texts: tuple[list[str], list[str]] = [], []
    owners: tuple[list[int], list[int]] = [], []
    places: tuple[list[int], list[int]] = [], []
    compared, cosines, pairs = [], [], []
    for number, group in enumerate(groups):
        known = {value: ValueWords.of(value) for value in (*group.left, *group.right)}
        both = zip(group.left, group.right, strict=True)
        some = [
            at for at, (a, b) in enumerate(both)
            if not known[a].distinct.isdisjoint(known[b].distinct)
        ]  # fmt: skip
        if not some:
            continue
        words, at = [], []
        for side, values in enumerate(group[:2]):
            different = {value: place for place, value in enumerate(dict.fromkeys(values))}
            at.append(np.array([different[values[one]] for one in some], np.int64))
            places[side].extend((at[side] + len(texts[side])).tolist())
            words.append([known[value] for value in different])
            texts[side].extend(one.text for one in words[side])
            owners[side].extend([number] * len(different))
        sides = words[0], words[1]
        compared.append(pair_features(sides, at[0], at[1], WordWeights(*sides))[0])
        cosines.append(group.cosines[some])
        pairs.append((number, some))
    if not pairs:
        return found
    space = GramSpace(*texts, (np.array(owners[0]), np.array(owners[1])))
    spelled = space.cosines(np.array(places[0]), np.array(places[1]), (space.left, space.right))
    apart = np.zeros(len(spelled))  # what the vectors of the words that differ would say
    rows = np.column_stack([spelled, np.concatenate(cosines), np.concatenate(compared), apart])
    rows = rows.astype(np.float32)
    chances = with_knowledge(_models().first.chance(rows), rows)
    doubtful = (chances < least) & (rows[:, 2] > 0)
    ends = np.cumsum([len(some) for _, some in pairs])
    for (number, some), marks in zip(pairs, np.split(doubtful, ends[:-1]), strict=True):
        found[number][some] = marks
    return found
