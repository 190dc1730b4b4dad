"""Sets and posting lists as JOSIE stores them, and the candidates counted while lists are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import Hashes, Int, Int32, Integers, Marks

#: Values of `slots`: not seen yet, and excluded.
UNSEEN, IGNORED = 0, -1


def _signatures(sets: Int, values: npt.NDArray[np.uint32], count: int) -> Hashes:
    """Hash the posting list of each value: the sum, modulo 2**64, of its sets' hashes.

    Equal hashes only make lists neighbours; whether they are equal is checked entry by entry.
    """
    # The finaliser of splitmix64, a bijection that spreads numbers over 64 bits.
    mixed = sets.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    sums = np.zeros(count, np.uint64)
    np.add.at(sums, values, mixed ^ (mixed >> np.uint64(31)))
    return sums


class PostingLists(NamedTuple):
    """Concatenated posting lists: the sets, and the position of the token in each set."""

    sets: Int32
    positions: Int32
    lengths: Int


@dataclass(frozen=True)
class TokenQuery:
    """A query as tokens, rarest first, and the distinct posting lists of its tokens."""

    tokens: Int32
    #: The duplicate group of each list, and the last token of the query in that group.
    groups: Int
    last: Int32
    #: How many tokens of the query share each list, and the position of the first of them.
    weights: Int
    starts: Int
    lengths: Int
    #: How many tokens are in this list or a later one; 0 past the last list.
    left: Int

    def __len__(self) -> int:
        return len(self.groups)


@dataclass(frozen=True)
class SetIndex:
    """The columns of a segment as sorted sets of tokens, and the posting list of each token.

    Tokens are numbered by frequency. Those with equal lists are neighbours and form a duplicate
    group with one list. A set holds all tokens of a group, side by side, or none, so the position
    of the first implies the others.
    """

    token_of: Int32
    #: The first token of each duplicate group, and one past the last token.
    firsts: Int32
    list_offsets: Int
    list_sets: Int32
    list_positions: Int32
    set_offsets: Int
    set_tokens: Int32
    sizes: Int32

    @classmethod
    def of(
        cls, offsets: Int, values: npt.NDArray[np.uint32], dead: Marks | None = None
    ) -> SetIndex:
        """Index sets given as ranges of distinct value numbers; dead ones count as empty."""
        sizes = np.diff(offsets)
        count = int(values.max()) + 1 if len(values) else 0
        if dead is not None:
            values = values[~np.repeat(dead, sizes)]
            sizes = np.where(dead, 0, sizes)
        owners = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)
        frequency = np.bincount(values, minlength=count)
        # By frequency, then by posting list, so that equal lists are neighbours.
        order = np.lexsort((_signatures(owners, values, count), frequency))
        frequency = frequency[order]
        token_of = np.empty(count, np.int32)
        token_of[order] = np.arange(count, dtype=np.int32)
        pairs = owners << 32 | token_of[values]
        pairs.sort()
        set_tokens = (pairs & 0xFFFFFFFF).astype(np.int32)
        set_offsets = np.append(0, np.cumsum(sizes))
        # The posting lists, one for each duplicate group.
        by_token = np.argsort(set_tokens, kind="stable")
        tokens = set_tokens[by_token]
        sets = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)[by_token]
        first = _begins_group(frequency, tokens, sets)
        firsts, kept = np.flatnonzero(first), first[tokens]
        by_token, sets = by_token[kept], sets[kept]
        return cls(
            token_of,
            np.append(firsts, count).astype(np.int32),
            np.append(0, np.cumsum(frequency[firsts])),
            sets,
            (by_token - set_offsets[sets]).astype(np.int32),
            set_offsets,
            set_tokens,
            sizes.astype(np.int32),
        )

    @property
    def nbytes(self) -> int:
        """The memory that the arrays take."""
        return sum(array.nbytes for array in vars(self).values())

    def query(self, values: Int) -> TokenQuery:
        """Turn value numbers into tokens, without those that no live set holds."""
        tokens = np.sort(self.token_of[values])
        groups = np.searchsorted(self.firsts, tokens, side="right") - 1
        lengths = self.list_offsets[groups + 1] - self.list_offsets[groups]
        tokens, groups = tokens[lengths > 0], groups[lengths > 0]
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        bounds = np.append(starts, len(tokens))
        groups, last = groups[starts], tokens[bounds[1:] - 1]
        lengths = self.list_offsets[groups + 1] - self.list_offsets[groups]
        left = len(tokens) - bounds
        return TokenQuery(tokens, groups, last, np.diff(bounds), starts, lengths, left)

    def read(self, query: TokenQuery, start: int, stop: int) -> PostingLists:
        """Read some lists of a query, with the position of the query's last token of each group."""
        groups = query.groups[start:stop]
        bounds = zip(
            self.list_offsets[groups].tolist(), self.list_offsets[groups + 1].tolist(), strict=True
        )
        slices = [slice(*pair) for pair in bounds]
        lengths = query.lengths[start:stop]
        shifts = query.last[start:stop] - self.firsts[groups]
        positions = np.concatenate([self.list_positions[one] for one in slices])
        if shifts.any():
            positions += np.repeat(shifts, lengths)
        return PostingLists(
            np.concatenate([self.list_sets[one] for one in slices]), positions, lengths
        )

    def shared(self, number: int, position: int, tokens: Int32) -> int:
        """Count the tokens found in a set from a position on; both are sorted."""
        suffix = self.set_tokens[self.set_offsets[number] + position : self.set_offsets[number + 1]]
        few, many = (suffix, tokens) if len(suffix) < len(tokens) else (tokens, suffix)
        if len(few) == 0:
            return 0
        at = np.minimum(np.searchsorted(many, few), len(many) - 1)
        return int(np.count_nonzero(many[at] == few))


def _begins_group(frequency: Int, tokens: Int32, sets: Int32) -> Marks:
    """Mark the tokens whose list differs from that of the token before, entry by entry."""
    first = np.ones(len(frequency), bool)
    first[1:] = frequency[1:] != frequency[:-1]
    # The same entry of the list before, if that is as long, is one list length back.
    other = sets[np.arange(len(sets)) - frequency[tokens]]
    first[tokens[other != sets]] = True
    first[:1] = True
    return first


def score_of(overlap: Int, size: Integers) -> Int:
    """Score sets as hits are ranked: by overlap, then the smaller set first."""
    return np.asarray((overlap << 32) - size)


def overlap_of(score: int) -> int:
    """Return the least overlap that can have this score."""
    return -(-score >> 32)


class CandidateCounter:
    """The candidates: sets seen in the lists read so far, in order of appearance.

    ``slots`` has a number for every set of the lake: 0, or one more than its row here.
    """

    def __init__(self, slots: Int32, sizes: Int32, capacity: int, ignored: Int) -> None:
        self._slots, self._sizes, self._ignored = slots, sizes, ignored
        self._count = 0
        self._alive = np.zeros(capacity, bool)
        self.sets = np.zeros(capacity, np.int32)
        self.partial, self.latest = (np.zeros(capacity, np.int32) for _ in range(2))
        self.first_position, self.first_in_query = (np.zeros(capacity, np.int32) for _ in range(2))
        #: The rows of the candidates that can still be among the best.
        self.rows = np.zeros(0, np.int64)
        slots[ignored] = IGNORED

    def add(self, read: PostingLists, query: TokenQuery, start: int, *, new: bool) -> None:
        """Count the lists from ``start`` on; ``new`` says whether unseen sets become candidates."""
        stop = start + len(read.lengths)
        if new:
            self._enter(read, query.starts[start:stop])
        at = self._slots[read.sets] - 1
        seen = at >= 0
        at = at[seen]
        np.add.at(self.partial, at, np.repeat(query.weights[start:stop], read.lengths)[seen])
        np.maximum.at(self.latest, at, read.positions[seen])

    def _enter(self, read: PostingLists, starts: Int) -> None:
        """Give a row to each unseen set, in the order of the lists."""
        places = np.flatnonzero(self._slots[read.sets] == UNSEEN)
        if len(places) == 0:
            return
        # Written backwards, so that the first entry of a set in several lists prevails.
        backwards = places[::-1]
        self._slots[read.sets[backwards]] = backwards + 1
        places = places[self._slots[read.sets[places]] == places + 1]
        rows = np.arange(self._count, self._count + len(places))
        sets = read.sets[places]
        self._slots[sets] = rows + 1
        self._count += len(rows)
        self._alive[rows] = True
        self.sets[rows] = sets
        self.first_position[rows] = read.positions[places]
        ends = np.cumsum(read.lengths)
        self.first_in_query[rows] = starts[np.searchsorted(ends, places, side="right")]
        self.rows = np.concatenate([self.rows, rows])

    def sizes(self, rows: Int) -> Int32:
        """Return the sizes of the candidates' sets."""
        return np.asarray(self._sizes[self.sets[rows]])

    def bounds(self, rows: Int, left: int) -> Int:
        """Return the largest possible overlap of each, by the position filter."""
        after = self.sizes(rows) - self.latest[rows] - 1
        return np.asarray(self.partial[rows] + np.minimum(left, after), np.int64)

    def prune(self, left: int, least: int) -> None:
        """Drop candidates that were taken, and those that cannot reach a score."""
        rows = self.rows[self._alive[self.rows]]
        keep = score_of(self.bounds(rows, left), self.sizes(rows)) >= least
        self._slots[self.sets[rows[~keep]]] = IGNORED
        self.rows = rows[keep]

    def take(self, row: int) -> int:
        """Remove a candidate, and return its set."""
        self._alive[row] = False
        return int(self.sets[row])

    def clear(self) -> None:
        """Reset the slots."""
        self._slots[self.sets[: self._count]] = UNSEEN
        self._slots[self._ignored] = UNSEEN
