"""Walk from your table to the tables that it joins with, and from those to others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import TIMEOUT_MAX, Timer
from time import perf_counter

import pyarrow as pa

from deepjoin.enriching.features import Feature
from deepjoin.enriching.joins import (
    IS_YOURS,
    BroughtColumns,
    EnrichableLake,
    JoinChoice,
    KeyCells,
    find_joins,
    make_join,
)
from deepjoin.enriching.ordered import ordered_tables
from deepjoin.enriching.own import OwnTable
from deepjoin.enriching.row_order import RowOrders
from deepjoin.enriching.scoring import Scorer
from deepjoin.errors import DeepJoinError
from deepjoin.model import RejectedJoin
from deepjoin.progress import Progress, Stopped, StopSignal, stop_signal
from deepjoin.settings import EnrichSettings

#: The part of the time that goes to joins; the rest is for measuring what they gain.
_FOR_JOINS = 0.5
#: Most joins that are tentative, with those that rest on them.
_MOST_TENTATIVE = 20


@dataclass(frozen=True)
class MadeJoin:
    """A join that was made, and its columns as a model sees them; none without a target."""

    choice: JoinChoice
    brought: BroughtColumns
    features: tuple[Feature, ...] = ()


@dataclass
class EnrichWalk:
    """The joins that were made and those that were not, with the reason."""

    lake: EnrichableLake
    own: OwnTable
    settings: EnrichSettings
    scorer: Scorer | None
    made: list[MadeJoin] = field(default_factory=list)
    rejected: list[RejectedJoin] = field(default_factory=list)
    #: Why it ended early: "" if it did not, "time" or "interrupted".
    stopped: str = ""

    def run(self, depth: int, progress: Progress) -> None:
        """Join table after table, nearest and most likely first, until a bound is reached.

        Ctrl-C ends the walk; what was joined by then is kept.
        """
        until = perf_counter() + self.settings.seconds * (_FOR_JOINS if self.scorer else 1)
        level: list[tuple[int, pa.Table]] = [(-1, self.own.rest)]
        seen: dict[str, bool] = {}
        orders = RowOrders(self.lake.index)
        try:
            for _ in range(depth):
                choices = self._choices(level, seen, orders, until)
                level = self._level(choices, dict(level), seen, until, progress)
        except KeyboardInterrupt:
            self.stopped = "interrupted"

    def start_of(self, one: MadeJoin) -> str:
        """Return the column of yours that a chain of joins starts with."""
        while one.choice.parent >= 0:
            one = self.made[one.choice.parent]
        return one.choice.shown[0]

    def chain(self, number: int) -> list[int]:
        """Return the joins that lead from your own table to a join, and that join."""
        found = [number]
        while (parent := self.made[found[0]].choice.parent) >= 0:
            found.insert(0, parent)
        return found

    def _rests_on(self, parent: int, table: str) -> bool:
        """Check whether a chain of joins has a table already, or one that it leads to."""
        if parent < 0:
            return False
        root = self.chain(parent)[0]
        return any(
            one.choice.table == table and self.chain(number)[0] == root
            for number, one in enumerate(self.made)
        )

    def reject(self, choice: JoinChoice, reason: str, column: str = "") -> None:
        """Note why a join, or a column of it, is not used."""
        via, theirs = choice.shown
        self.rejected.append(RejectedJoin(choice.table, column or theirs, via, reason))

    def _choices(
        self,
        level: list[tuple[int, pa.Table]],
        seen: dict[str, bool],
        orders: RowOrders,
        until: float,
    ) -> list[JoinChoice]:
        """Search with the columns of all tables of a level."""

        def is_left_out(table: str) -> bool:
            if table not in seen:
                seen[table] = self.own.is_in(self.lake, table)
            return seen[table]

        def is_copy(table: str) -> bool:
            return is_left_out(table) or (
                len(self.own.rest.column_names) > 1 and self.own.is_cut_from(self.lake, table)
            )

        choices: list[JoinChoice] = []
        for parent, columns in level:
            listed: dict[str, tuple[str, str]] = {}
            is_tentative = False
            if parent >= 0:
                join = self.made[parent].brought.join
                listed = {given: (join.table, name) for name, given in join.names}
                is_tentative = self.made[parent].choice.is_tentative
            try:
                with _limited(until):
                    found = find_joins(
                        *(self.lake, columns, parent, is_left_out, self.settings),
                        *(orders, listed, is_copy),
                    )
            except _OutOfTimeError:
                self.stopped = "time"
                break
            for one in found[0]:
                if is_tentative or one.is_tentative:
                    # Only a target can tell, and a copy of your table would not be told by it.
                    if self.scorer is None or self.own.is_cut_from(self.lake, one.table):
                        self.reject(one, one.doubt)
                        continue
                    one = replace(one, is_tentative=True)
                choices.append(one)
            self.rejected += found[1]
        if level and level[0][0] < 0 and self.own.order(self.settings) is not None:
            choices += self._ordered_choices(is_left_out, {one.table for one in choices})
        # Those that multiply rows take longest, and tell less of each.
        return sorted(choices, key=lambda one: (one.is_tentative, one.is_many, -one.probability))

    def _ordered_choices(
        self, is_left_out: Callable[[str], bool], found: Collection[str]
    ) -> Iterator[JoinChoice]:
        """Choose tables to join on order alone, those without a key."""
        name, count = self.settings.as_of or self.settings.ranges, 0
        for table in ordered_tables(self.lake.index, self.settings, self.own.table[name].type):
            if table in found or is_left_out(table):
                continue
            yield JoinChoice(name, -1, table, "", "ordered", probability=self.settings.least)
            count += 1
            if count == self.settings.tables:
                break

    def _level(
        self,
        choices: list[JoinChoice],
        keys: dict[int, pa.Table],
        seen: dict[str, bool],
        until: float,
        progress: Progress,
    ) -> list[tuple[int, pa.Table]]:
        """Make the joins of a level; return the tables that may lead to others."""
        level = []
        for choice in choices:
            if choice.is_tentative:
                tried = [one.choice for one in self.made if one.choice.is_tentative]
                if seen[choice.table] or self._rests_on(choice.parent, choice.table):
                    continue
                if len(tried) >= _MOST_TENTATIVE:
                    self.reject(choice, choice.doubt)
                    continue
            elif seen[choice.table]:
                continue
            if len(self.made) == self.settings.tables:
                self.reject(choice, "was not tried: the bound on tables is reached")
                continue
            if not choice.is_tentative:
                seen[choice.table] = True
            progress(len(self.made), self.settings.tables, choice.table)
            taken = [*self.own.table.column_names]
            taken += [name for one in self.made for name in one.brought.table.column_names]
            try:
                with _limited(until):
                    known = keys[choice.parent]
                    also = tuple(known[mine] for mine, _ in choice.also)
                    cells = KeyCells(known[choice.via], self.own.order(self.settings), also)
                    one = self._tried(choice, cells, taken)
            except _OutOfTimeError:
                self.stopped = "time"
                self.reject(choice, "was not tried: time is up")
                continue
            except DeepJoinError as error:
                self.reject(choice, f"cannot be joined: {error}")
                continue
            if isinstance(one, str):
                self.reject(choice, one)
                continue
            if one.brought.keys is not None:
                level.append((len(self.made), one.brought.keys))
            self.made.append(one)
        return level

    def _tried(self, choice: JoinChoice, keys: KeyCells, taken: Collection[str]) -> MadeJoin | str:
        """Make a join and look for leaks; return why it is not used if it is not."""
        brought = make_join(self.lake, choice, keys, taken, self.settings, self.own.is_among)
        if isinstance(brought, str):
            return brought
        if self.scorer is None:
            return MadeJoin(choice, brought)
        features: list[Feature] = []
        leaks: list[Feature] = []
        for feature in self.scorer.features(brought.table):
            is_leak = not self.settings.leaks and self.scorer.leaks(feature)
            (leaks if is_leak else features).append(feature)
        if leaks and self.own.is_cut_from(self.lake, choice.table):
            return IS_YOURS
        if not self.settings.leaks and features:
            score = self.scorer.leak_together(features)
            if score:
                metric = self.scorer.metric
                return f"gives the target away: its columns together reach {metric} {score:.3f}"
        for feature in leaks:
            self.reject(choice, "is nearly a copy of the target", feature.name)
        if choice.is_tentative:
            rival = choice.table, len(self.made)
            features = [replace(feature, rival=rival) for feature in features]
        return MadeJoin(choice, brought, tuple(features))


class _OutOfTimeError(Exception):
    """Raised where the time for joins has run out."""


@contextmanager
def _limited(until: float) -> Iterator[None]:
    """Stop searches and joins in the block when the time is up, or the work around it stops."""
    left = until - perf_counter()
    if left <= 0:
        raise _OutOfTimeError
    outer, signal = stop_signal(), StopSignal()
    timer = Timer(min(left, TIMEOUT_MAX), signal.stop)
    timer.daemon = True
    timer.start()
    try:
        with outer.interrupting(signal.stop), signal.watched():
            yield
    except Stopped:
        outer.check()
        raise _OutOfTimeError from None
    finally:
        timer.cancel()
