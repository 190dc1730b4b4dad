"""Programs: the shortest way to rewrite one column so that its values are found in the other.

Examples are pairs that share rare trigrams. For each example, the target is taken apart into parts
of the source and constant texts; programs that many examples agree on are run over the whole
column, and the one that finds most values of the other column is kept if that cannot be chance.
What it leaves over may need a second one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, islice
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from deepjoin.arrays import Int
from deepjoin.matching import steps
from deepjoin.matching.candidates import GramSpace
from deepjoin.matching.formats import format_steps
from deepjoin.matching.steps import WHOLE, ProgramStep
from deepjoin.matching.units import unit_pairs
from deepjoin.model import Program
from deepjoin.normalise.canonical import canonical

#: Example pairs that programs are made from, and the lengths of texts they are made for.
_EXAMPLES, _SOURCE, _TARGET = 150, 200, 120
#: Partial programs kept while a target is taken apart; programs kept of an example.
_BEAM, _KEPT = 16, 6
#: The longest constant text that may end all values, and where one may begin.
_ENDING, _ENDING_STARTS = 20, re.compile(r"(?<=[^\W_])[^\w\s](?=[^\W_])")
#: Cells of which a step, and a column, remember what was made.
_REMEMBERED = 1 << 11
#: Programs that are run over (a part of) the column, and the size of that part.
_TRIED, _SAMPLE = 60, 400
#: Programs of one pair of columns, and the share of the values that one must explain.
_PROGRAMS, _SHARE = 3, 0.25
#: The most that a program may reach of what an earlier one has reached.
_TAKEN = 0.3
#: Letters of a name that all cells of a column have.
_NAMED = 6
#: Constant letters and digits in the words of a program, not what is between two separators.
_CONSTANT = re.compile(r"(?:^|, |then )'[^']*[A-Za-z0-9][^']*'(?:,|$)")
#: The share of equal values from which a program must not map many values to one.
_ALIKE = 0.2
#: The least share of the cells that is compared where both sides are cut.
_KEPT_TEXT = 0.3
#: How many times fewer proposed pairs are than values, for these to be looked at first.
_FEWER = 4
#: Values that both sides may need to be freed of.
_BOTH = (steps.SQUASHED, steps.DIGITS, steps.TITLE, steps.BRACKETED, steps.FIRST_LAST)


def _letters(text: str) -> int:
    return sum(letter.isalnum() for letter in text)


@dataclass(frozen=True)
class Rewriting:
    """A program with what it matches: places in the lists of left and right values."""

    program: Program
    left: Int
    right: Int


@dataclass(frozen=True)
class _Candidate:
    """What is done to the left and to the right value before they are compared."""

    left: ProgramStep
    right: ProgramStep

    @property
    def cost(self) -> float:
        return self.left.cost + self.right.cost

    @property
    def key(self) -> tuple[str, str]:
        return self.left.sql, self.right.sql


class _Sides:
    """Two lists of cells, by the canonical form of what a step makes of them."""

    def __init__(self, left: Sequence[str], right: Sequence[str], free: int) -> None:
        self.cells = list(left), list(right)
        #: Whether many values are equal as they are: then both columns hold things of one kind.
        self.is_alike = len(left) - free >= _ALIKE * len(left)
        self._tables: dict[str, dict[str, list[int]]] = {}
        # Many candidates make the same texts.
        self._canonical = lru_cache(_REMEMBERED)(canonical)

    def found(self, one: _Candidate, rows: Iterable[int]) -> list[tuple[int, list[int]]]:
        """Run a candidate for some values on the left; return who meets whom."""
        table = self._table(one.right)
        met = []
        for row in rows:
            made = one.left(self.cells[0][row])
            held = table.get(self._canonical(made)) if made else None
            if held:
                met.append((row, held))
        return met

    def holds_for(self, one: _Candidate, pairs: Sequence[tuple[int, int]]) -> bool:
        """Check whether a candidate makes two left values, or more, what their partners are."""
        rows = set[int]()
        for row, other in pairs:
            mine, theirs = one.left(self.cells[0][row]), one.right(self.cells[1][other])
            if mine and theirs and self._canonical(mine) == self._canonical(theirs):
                rows.add(row)
                if len(rows) > 1:
                    return True
        return False

    def kept(self, one: _Candidate, met: list[tuple[int, list[int]]]) -> float:
        """Return how much of the cells a candidate compares: 1 for all of one side."""
        if one.left is WHOLE or one.right is WHOLE:
            return 1.0
        shares, keys = [], set()
        for row, others in met[:50]:
            cell, other = self.cells[0][row], self.cells[1][others[0]]
            key = one.left(cell) or ""
            keys.add(key)
            size = max(_letters(key), 1)
            shares.append((size / max(_letters(cell), _letters(other), 1), size, len(others)))
        # A year and a word that all values have say nothing of what is between them.
        texts = {re.sub("[0-9]+", "", key) for key in keys}
        if len(texts) == 1 < len(keys) and any(map(str.isalpha, texts.pop())):
            return 0.0
        share, size, partners = np.mean(shares, axis=0).tolist()
        words = np.mean([len(re.findall(r"\w+", key)) for key in keys])
        # What is left must name one value on either side: one word of two different cells does
        # not (Cobaltine Foods, Cobaltine Optics), first and last name do.
        if partners > 1.25 or len(keys) < 0.8 * len(shares) or size < 5 or words < 1.8:
            return min(share, 0.9) if share > 0.8 else 0.0
        return float(share)

    def _table(self, step: ProgramStep) -> dict[str, list[int]]:
        table = self._tables.get(step.sql)
        if table is None:
            table = {}
            for at, cell in enumerate(self.cells[1]):
                made = step(cell)
                if made and (key := self._canonical(made)):
                    table.setdefault(key, []).append(at)
            self._tables[step.sql] = table
        return table


def find_programs(
    left: Sequence[str],
    right: Sequence[str],
    free: Int,
    examples: Sequence[tuple[int, int]] | None = None,
    proposed: Sequence[tuple[int, int]] = (),
) -> list[Rewriting]:
    """Find up to three programs for the left values at ``free``, which have no equal one.

    ``examples`` are pairs of places to learn from; by default, values that share rare trigrams.
    Where ``proposed`` pairs are few beside the values on the right, a program must hold for some
    of them before it is run over all values.
    """
    short = [at for at in free.tolist() if 0 < len(left[at]) <= _SOURCE]
    found: list[Rewriting] = []
    if len(short) < 2 or not right:
        return found
    sides = _Sides(left, [cell if len(cell) <= _SOURCE else "" for cell in right], len(free))
    units = unit_pairs([left[at] for at in short], list(right))
    if units is not None:
        # Digits that look alike explain numbers less well than a conversion that fits them all.
        step, other_step, places, others = units
        rows = np.array(short, np.int64)[places]
        met = [(row, [other]) for row, other in zip(rows.tolist(), others.tolist(), strict=True)]
        return [Rewriting(_shown(_Candidate(step, other_step), met, len(short)), rows, others)]
    rest = short
    if examples is None:
        examples = list(_examples(left, right, short))
    candidates = list(_proposed(left, right, short, examples))
    if proposed and len(proposed) * _FEWER < len(right):
        candidates = [one for one in candidates if sides.holds_for(one, proposed)]
    taken: set[int] = set()
    for _ in range(_PROGRAMS):
        if len(rest) < 2:
            break
        best = _best(sides, candidates, rest, taken)
        if best is None:
            break
        one, met = best
        pairs = [(row, other) for row, others in met for other in others]
        rows, places = np.array(pairs, np.int64).T
        found.append(Rewriting(_shown(one, met, len(rest)), rows, places))
        matched = {row for row, _ in met}
        taken.update(other for _, others in met for other in others)
        rest = [row for row in rest if row not in matched]
    return found


def _shown(one: _Candidate, met: list[tuple[int, list[int]]], size: int) -> Program:
    """Write a program for people; count what it leaves over and what it maps to one value."""
    if one.left.sql == one.right.sql:
        side, step, text = "both", one.left, f"on both sides {one.left.words}"
    elif one.right is WHOLE:
        side, step, text = "left", one.left, f"left: {one.left.words}"
    elif one.left is WHOLE:
        side, step, text = "right", one.right, f"right: {one.right.words}"
    else:
        text = f"left: {one.left.words}; right: {one.right.words}"
        side, step = "both", one.left
    sql, pandas = (code.replace("{x}", "cell") for code in (step.sql, step.pandas))
    if side == "both" and one.left.sql != one.right.sql:
        sql = one.left.sql.replace("{x}", "left_cell")
        sql += " = " + one.right.sql.replace("{x}", "right_cell")
        pandas = one.left.pandas.replace("{x}", "left_cells")
        pandas += ", " + one.right.pandas.replace("{x}", "right_cells")
    else:
        pandas = step.pandas.replace("{x}", "cells")
    merged = len(met) - len({tuple(others) for _, others in met})
    return Program(text, sql, pandas, len(met), side, size - len(met), merged)


def _best(
    sides: _Sides, candidates: list[_Candidate], rest: list[int], taken: set[int]
) -> tuple[_Candidate, list[tuple[int, list[int]]]] | None:
    """Return the candidate that explains most of the rest, if it is more than chance."""
    size = len(sides.cells[1])
    sample = rest if len(rest) <= _SAMPLE else rest[:: len(rest) // _SAMPLE + 1]
    scored = []
    for one in candidates:
        met = sides.found(one, sample)
        if len(met) >= 2:
            reached = len({other for _, others in met for other in others})
            pairs = sum(len(others) for _, others in met)
            # Parameters cost a little, partners in excess more: a program should say which one.
            worth = max(len(met), min(reached, len(sample))) - 0.05 * one.cost
            worth += 0.1 * min(len(met), reached)
            worth -= 0.02 * max(0, pairs - max(len(met), reached))
            kept = sides.kept(one, met)
            if kept >= _KEPT_TEXT:
                scored.append((worth * min(1.0, 0.5 + kept), one))
    scored.sort(key=lambda item: -item[0])
    for _, one in scored[:8]:
        met = sides.found(one, rest)
        gives = {other for _, others in met for other in others}
        # What an earlier program gave to other values is rarely theirs (Sweden and Switzerland).
        if len(gives & taken) > _TAKEN * len(gives):
            continue
        if _convincing(sides, one, met, len(rest), size):
            return one, met
    return None


def _convincing(
    sides: _Sides, one: _Candidate, met: list[tuple[int, list[int]]], rest: int, size: int
) -> bool:
    """Tell a program from a coincidence."""
    reached = {other for _, others in met for other in others}
    share = max(len(met) / rest, len(reached) / size)
    least = 2 if min(rest, size) <= 8 and one.cost < 6 else 3
    if one.cost > 8 and share < 0.5:
        return False
    if len(met) < least or len(reached) < min(least, 2) or share < _SHARE:
        return False
    # Where species are equal to species, their first word leads to the genus, another thing.
    if sides.is_alike and len(reached) < 0.5 * len(met):
        return False
    # Constants that lump many values together (Q2 and the year) must explain the other side.
    pairs = sum(len(others) for _, others in met)
    few, of = min((len(met), rest), (len(reached), size))
    if _CONSTANT.search(f"{one.left.words}, {one.right.words}") and pairs > 2 * few < of:
        return False
    # The seasons of one league are not those of another, though their years are the same.
    series = [_one_name([sides.cells[side][at] for at in rows])
              for side, rows in enumerate(([row for row, _ in met], sorted(reached)))]  # fmt: skip
    if series[0] and series[1] and series[0] != series[1]:
        return False
    # A left value with dozens of partners was cut down to something that says nothing.
    if pairs > 3 * max(len(met), len(reached)) and len(reached) < 0.6 * size:
        return False
    keys = [canonical(one.right(sides.cells[1][other]) or "") for other in sorted(reached)[:200]]
    length = float(np.mean([len(key) for key in keys]))
    # Short texts meet by chance, unless each finds a partner of its own.
    if length < 2.5 and (share < 0.8 or len(reached) < 0.8 * len(met)):
        return False
    if all(re.fullmatch("[0-9]{1,15}", key) for key in keys):
        # Any numbers are found in a column that has nearly all of them; only numbers that stay
        # the same (7 and 007) or come of words (March) are more than that.
        cells = [(sides.cells[0][row], sides.cells[1][others[0]]) for row, others in met[:200]]
        if all(re.fullmatch("[0-9]{1,15}", cell) for pair in cells for cell in pair):
            numbers = [(int(cell), int(other)) for cell, other in cells]
            if max(map(_density, zip(*numbers, strict=True))) > 0.3:
                return all(one == other for one, other in numbers)
        elif _density(map(int, keys)) > 0.3 and share < 0.9:
            return False
    return len(met) / rest >= 0.1 or len(reached) / size >= 0.5


def _one_name(cells: list[str]) -> str:
    """Return the letters of cells that differ in their digits alone; '' if others differ too."""
    names = {re.sub(r"[\W_0-9]+", "", cell).lower() for cell in cells}
    name = names.pop() if len(names) == 1 < len(cells) else ""
    return name if len(name) >= _NAMED else ""


def _density(numbers: Iterable[int]) -> float:
    """Return the share of the numbers between the least and the greatest that are there."""
    distinct = set(numbers)
    return len(distinct) / (max(distinct) - min(distinct) + 1)


def _proposed(
    left: Sequence[str],
    right: Sequence[str],
    free: list[int],
    examples: Sequence[tuple[int, int]],
) -> Iterator[_Candidate]:
    """Propose candidates: fixed ones, and those that examples suggest, most agreed on first."""
    mine = [left[at] for at in free]
    for step in _BOTH:
        yield _Candidate(step, step)
    for pair in format_steps(mine, list(right)):
        yield _Candidate(*pair)
    lengths = {len(cell) for cell in right}
    if len(lengths) == 1 and (length := lengths.pop()) <= 20:
        yield _Candidate(steps.padded(length), WHOLE)
    lengths = {len(cell) for cell in mine}
    if len(lengths) == 1 and (length := lengths.pop()) <= 20:
        yield _Candidate(WHOLE, steps.padded(length))
    yield _Candidate(steps.NO_ZEROS, steps.NO_ZEROS)
    votes: dict[tuple[str, str], float] = defaultdict(float)
    known: dict[tuple[str, str], _Candidate] = {}
    parts = _Parts()
    for row, other in examples:
        for source, target, forwards in (
            (left[row], right[other], True),
            (right[other], left[row], False),
        ):
            for program in _taken_apart(source, target, parts):
                one = _Candidate(program, WHOLE) if forwards else _Candidate(WHOLE, program)
                known.setdefault(one.key, one)
                votes[one.key] += 1 / (1 + 0.1 * program.cost)
        for one in _meeting(parts(left[row]), parts(right[other])):
            known.setdefault(one.key, one)
            votes[one.key] += 1 / (1 + 0.1 * one.cost)
    best = sorted(known.values(), key=lambda one: (-votes[one.key], one.cost))
    yield from best[:_TRIED]


def _examples(
    left: Sequence[str], right: Sequence[str], free: list[int]
) -> Iterator[tuple[int, int]]:
    """Yield pairs to learn from: all of a few, else those that share rare trigrams."""
    if len(free) * len(right) <= _EXAMPLES:
        yield from ((row, other) for row in free for other in range(len(right)))
        return
    some = free if len(free) <= 60 else [free[at] for at in
                                         np.linspace(0, len(free) - 1, 40).astype(int)]  # fmt: skip
    cells = [left[at].lower() for at in some]
    others = [cell.lower() for cell in right]
    small = GramSpace(cells, others)
    seen: set[tuple[int, int]] = set()
    for sides, forwards in (((small.left, small.right), True), ((small.right, small.left), False)):
        who, whom = small.nearest(sides, 2, False)
        for one, other in zip(who.tolist(), whom.tolist(), strict=True):
            pair = (some[one], other) if forwards else (some[other], one)
            if pair not in seen and len(seen) < _EXAMPLES:
                seen.add(pair)
                yield pair


def _meeting(
    mine: dict[str, list[ProgramStep]], theirs: dict[str, list[ProgramStep]]
) -> Iterator[_Candidate]:
    """Find parts that both cells have in common, and the cheapest steps that give them."""
    common = sorted((made for made in mine if len(made) > 3 and made in theirs), key=len)
    for made in common[-2:]:
        for one in mine[made][:3]:
            for other in theirs[made][:3]:
                if one is not WHOLE and other is not WHOLE:
                    yield _Candidate(one, other)


class _Parts:
    """What steps make of cells; a step remembers what it made, for programs share their steps."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, list[ProgramStep]]] = {}
        self._steps: dict[str, ProgramStep] = {}

    def __call__(self, source: str) -> dict[str, list[ProgramStep]]:
        """List what steps make of a cell, in lower case, with the cheapest steps of each."""
        if source not in self._known:
            parts: dict[str, list[ProgramStep]] = {}
            for step in steps.pieces(source):
                if made := step(source):
                    parts.setdefault(made.lower(), []).append(self._same(step))
            for held in parts.values():
                held.sort(key=lambda one: one.cost)
            self._known[source] = parts
        return self._known[source]

    def _same(self, step: ProgramStep) -> ProgramStep:
        if step is WHOLE:
            return step
        if step.sql not in self._steps:
            self._steps[step.sql] = replace(step, run=lru_cache(_REMEMBERED)(step.run))
        return self._steps[step.sql]


class _Extension(NamedTuple):
    """A part or a constant text that gives the next characters of the target."""

    part: ProgramStep | str
    length: int
    cost: float
    #: Whether it counts characters, which rarely carries over to cells of another length.
    is_fixed: bool = False


class _Partial(NamedTuple):
    """A program that gives the beginning of the target."""

    at: int
    parts: tuple[ProgramStep | str, ...]
    cost: float
    copied: int
    #: Whether any of its parts counts characters.
    is_fixed: bool = False

    def take(self, one: _Extension) -> _Partial:
        copied = 0 if isinstance(one.part, str) else one.length
        return _Partial(
            self.at + one.length, (*self.parts, one.part), self.cost + one.cost,
            self.copied + copied, self.is_fixed or one.is_fixed,
        )  # fmt: skip


def _taken_apart(source: str, target: str, parts_of: _Parts | None = None) -> list[ProgramStep]:
    """Write the target as parts of the source and constants, in the cheapest few ways."""
    if not target or len(target) > _TARGET or len(source) > _SOURCE:
        return []
    goal = target.lower()
    if len(goal) != len(target):
        return []
    every = (parts_of or _Parts())(source)
    parts = {made: held[:3] for made, held in every.items() if len(made) <= len(goal)}
    for made, held in list(parts.items()):
        if len(made) > 1 and held[0] is not WHOLE and len(held[0].words) < 60:
            parts.setdefault(made[0], []).append(held[0].then(steps.begin(1)))
    ways = _Extensions(source.lower(), target, goal, parts)
    beam = [_Partial(0, (), 0.0, 0)]
    done: list[tuple[float, _Partial, _Extension]] = []
    least = max(1, len(re.sub(r"\W", "", goal)) / 2)
    # An ending that all values have may be longer than the name before it (@example.com).
    endings = {target[met.start() :] for met in _ENDING_STARTS.finditer(target)}
    for _ in range(12):
        # What is not kept, which is most of it, is not made.
        longer: list[tuple[float, _Partial, _Extension]] = []
        for state in beam:
            is_behind_text = bool(state.parts) and isinstance(state.parts[-1], str)
            for one in ways.at(state.at, is_behind_text):
                if (end := state.at + one.length) < len(goal):
                    longer.append((state.cost + one.cost - 0.35 * end, state, one))
                elif state.copied + (0 if isinstance(one.part, str) else one.length) >= (
                    least if one.part not in endings else _letters(goal[: state.at]) / 2
                ):
                    done.append((state.cost + one.cost, state, one))
        beam = _cheapest(longer, _BEAM)
        if not beam:
            break
    kept = _cheapest(done, _KEPT)
    return [steps.joined(one.parts, one.cost) for one in kept if one.parts != (WHOLE,)]


def _cheapest(ways: list[tuple[float, _Partial, _Extension]], most: int) -> list[_Partial]:
    """Make the best of the programs that count characters, and of the others."""
    ways.sort(key=itemgetter(0))
    fixed = (one for one in ways if one[1].is_fixed or one[2].is_fixed)
    others = (one for one in ways if not (one[1].is_fixed or one[2].is_fixed))
    return [state.take(one) for _, state, one in chain(islice(fixed, most), islice(others, most))]


class _Extensions:
    """What can give the next characters of a target, place by place: many programs pass each."""

    def __init__(
        self, source: str, target: str, goal: str, parts: dict[str, list[ProgramStep]]
    ) -> None:
        self._source, self._target, self._goal = source, target, goal
        #: The parts that fit at each place, longest first.
        self._fitting: list[list[list[ProgramStep]]] = [[] for _ in range(len(goal) + 1)]
        self._lengths: list[list[int]] = [[] for _ in range(len(goal) + 1)]
        for made in sorted(filter(None, parts), key=len, reverse=True):
            held, place = sorted(parts[made], key=lambda one: one.cost)[:3], goal.find(made)
            while place >= 0:
                self._fitting[place].append(held)
                self._lengths[place].append(len(made))
                place = goal.find(made, place + 1)
        self._known: dict[int, tuple[list[_Extension], list[_Extension]]] = {}

    def at(self, place: int, is_behind_text: bool) -> list[_Extension]:
        """Return the extensions at a place; two constant texts never follow one another."""
        if place not in self._known:
            parts = list(self._parts(place))
            self._known[place] = parts, [*parts, *self._texts(place)]
        return self._known[place][0 if is_behind_text else 1]

    def _parts(self, at: int) -> Iterator[_Extension]:
        goal, source = self._goal, self._source
        for held, size in zip(self._fitting[at][:4], self._lengths[at][:4], strict=True):
            for step in held:
                yield _Extension(step, size, 1 + step.cost)
        # A stretch of the source at fixed places, as in 20200131.
        length = 0
        while at + length < len(goal) and goal[at : at + length + 1] in source:
            length += 1
        if length >= 2 or (length == 1 and len(source) <= 12):
            place = source.find(goal[at : at + length])
            fixed = [steps.middle(place, place + length)]
            if place == 0:
                fixed.append(steps.begin(length))
            if place + length == len(source):
                fixed.append(steps.end(length))
            for step in fixed:
                yield _Extension(step, length, 1 + step.cost, is_fixed=True)

    def _texts(self, at: int) -> Iterator[_Extension]:
        goal, target = self._goal, self._target
        constant = re.match(r"[\W_]+", target[at:])
        if constant:
            text = constant.group()
            yield _Extension(text, len(text), 0.5 + 0.1 * len(text))
            rest = target[at:]
            if at and len(text) < len(rest) <= _ENDING and not text.isspace():
                yield _Extension(rest, len(rest), 1.5 + 0.2 * len(rest))  # @example.com
            return
        # Letters that no part gives: up to where one fits.
        for stop in range(at + 1, min(len(goal), at + 16) + 1):
            if stop == len(goal) or self._fitting[stop]:
                digits = sum(letter.isdigit() for letter in target[at:stop])
                cost = 1.5 + 0.6 * (stop - at) + 2 * digits
                yield _Extension(target[at:stop], stop - at, cost)
                if stop - at >= 12:
                    return
