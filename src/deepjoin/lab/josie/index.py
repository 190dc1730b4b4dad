"""Sets and posting lists as JOSIE stores them: tokens by frequency, equal lists kept once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from deepjoin.lab.josie.order import Ordered, ordered

Int = npt.NDArray[np.int64]
Small = npt.NDArray[np.int32]


class Postings(NamedTuple):
    """Some posting lists, one behind the other: the sets, and where each has the token."""

    sets: Small
    positions: Small
    lengths: Int


@dataclass(frozen=True)
class Asked:
    """A query as tokens, rarest first, and the distinct lists that these have."""

    tokens: Small
    #: The duplicate group of each list, and the query's last token of it.
    groups: Int
    last: Small
    #: How many of the query's tokens each list stands for, and where the first of them is.
    weights: Int
    starts: Int
    lengths: Int
    #: How many tokens are in this list or a later one; 0 behind the last list.
    left: Int

    def __len__(self) -> int:
        return len(self.groups)


@dataclass(frozen=True)
class SetIndex:
    """The columns of a segment as sorted sets of tokens, and the lists of the sets of a token.

    Tokens whose lists are equal have neighbouring numbers and form a duplicate group, which has
    one list. A set holds all of a group or nothing, side by side, so the position of the group's
    first token tells those of the others.
    """

    token_of: Small
    #: The first token of each duplicate group, and one more than the last token of all.
    firsts: Small
    list_offsets: Int
    list_sets: Small
    list_positions: Small
    set_offsets: Int
    set_tokens: Small
    sizes: Small

    @classmethod
    def of(
        cls, offsets: Int, values: npt.NDArray[np.uint32], dead: npt.NDArray[np.bool_] | None = None
    ) -> SetIndex:
        """Index sets given as ranges of distinct value numbers; dead ones count as empty."""
        made = ordered(offsets, values, dead)
        return cls(made.token_of, *_lists(made), made.set_offsets, made.tokens, made.sizes)

    @property
    def nbytes(self) -> int:
        """The memory that the arrays take."""
        return sum(array.nbytes for array in vars(self).values())

    def asked(self, values: Int) -> Asked:
        """Turn the numbers of known values into tokens; what no live set holds is dropped."""
        tokens = np.sort(self.token_of[values])
        groups = np.searchsorted(self.firsts, tokens, side="right") - 1
        lengths = self.list_offsets[groups + 1] - self.list_offsets[groups]
        tokens, groups = tokens[lengths > 0], groups[lengths > 0]
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        bounds = np.append(starts, len(tokens))
        groups, last = groups[starts], tokens[bounds[1:] - 1]
        lengths = self.list_offsets[groups + 1] - self.list_offsets[groups]
        left = len(tokens) - bounds
        return Asked(tokens, groups, last, np.diff(bounds), starts, lengths, left)

    def read(self, asked: Asked, start: int, stop: int) -> Postings:
        """Read some lists of a query, with the positions of the query's last token of each."""
        groups = asked.groups[start:stop]
        bounds = zip(
            self.list_offsets[groups].tolist(), self.list_offsets[groups + 1].tolist(), strict=True
        )
        slices = [slice(*pair) for pair in bounds]
        lengths = asked.lengths[start:stop]
        shifts = asked.last[start:stop] - self.firsts[groups]
        positions = np.concatenate([self.list_positions[one] for one in slices])
        if shifts.any():
            positions += np.repeat(shifts, lengths)
        return Postings(np.concatenate([self.list_sets[one] for one in slices]), positions, lengths)

    def shared(self, number: int, position: int, tokens: Small) -> int:
        """Count the tokens that are in a set from a position on; both are sorted."""
        suffix = self.set_tokens[self.set_offsets[number] + position : self.set_offsets[number + 1]]
        few, many = (suffix, tokens) if len(suffix) < len(tokens) else (tokens, suffix)
        if len(few) == 0:
            return 0
        at = np.minimum(np.searchsorted(many, few), len(many) - 1)
        return int(np.count_nonzero(many[at] == few))


def _lists(made: Ordered) -> tuple[Small, Int, Small, Small]:
    """Make one list for each duplicate group."""
    by_token = np.argsort(made.tokens, kind="stable")
    tokens = made.tokens[by_token]
    sets = np.repeat(np.arange(len(made.sizes), dtype=np.int32), made.sizes)[by_token]
    first = _begins_group(made.frequency, tokens, sets)
    kept = first[tokens]
    firsts = np.flatnonzero(first)
    offsets = np.append(0, np.cumsum(made.frequency[firsts]))
    by_token, sets = by_token[kept], sets[kept]
    positions = (by_token - made.set_offsets[sets]).astype(np.int32)
    return np.append(firsts, len(first)).astype(np.int32), offsets, sets, positions


def _begins_group(frequency: Int, tokens: Small, sets: Small) -> npt.NDArray[np.bool_]:
    """Mark the tokens whose list is not that of the token before, entry by entry."""
    first = np.ones(len(frequency), bool)
    first[1:] = frequency[1:] != frequency[:-1]
    # Of a list as long as the one before, the counterpart of an entry is a list's length back.
    other = sets[np.arange(len(sets)) - frequency[tokens]]
    first[tokens[other != sets]] = True
    first[:1] = True
    return first
