"""Columns measured by meaning, in one order, as hits with their evidence."""

from __future__ import annotations

from collections.abc import Sequence

from deepjoin.model import Hit
from deepjoin.search.base import Ranking, Wanted
from deepjoin.search.evidence import hits_by_meaning
from deepjoin.search.measured import Measured
from deepjoin.search.question import Question
from deepjoin.store.segment import Segment


class Meant(Ranking):
    """Columns in the order of what was measured; a pair is (which segment, which row of it)."""

    def __init__(
        self, question: Question, measured: list[Measured], pairs: list[tuple[int, int]]
    ) -> None:
        self.distinct, self._question = question.distinct, question
        self._measured, self._pairs = measured, pairs

    @classmethod
    def of(
        cls, question: Question, measured: list[Measured], wanted: Wanted, demote: bool
    ) -> Meant:
        """Put all that was measured in one order, and keep what was asked for."""
        size = len(question)
        pairs = [
            (number, row)
            for number, one in enumerate(measured)
            for row in one.rows(size, wanted.threshold)
        ]
        pairs.sort(key=lambda pair: measured[pair[0]].key(pair[1], size, wanted.name, demote))
        return cls(question, measured, pairs[: wanted.k])

    @property
    def places(self) -> list[tuple[Segment, int]]:
        """The segment and the number of each column."""
        measured = self._measured
        return [(measured[n].segment, int(measured[n].columns[row])) for n, row in self._pairs]

    def hits(self, chosen: Sequence[int], show: int | None) -> list[Hit]:
        """Say of some columns what matches what."""
        size, tau = len(self.distinct), self._question.count.tau
        pairs = [self._pairs[place] for place in chosen]
        meanings = [self._measured[which].meaning(row, size, tau) for which, row in pairs]
        return hits_by_meaning(self.distinct, meanings, show)
