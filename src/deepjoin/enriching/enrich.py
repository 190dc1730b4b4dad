"""Enrich a table: walk the joins of a lake, choose columns that tell the target, measure the gain.

Without a target, list what the lake could add.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa

from deepjoin.enriching.features import Feature, Gain, Scorer, as_feature, chosen_features
from deepjoin.enriching.joins import (
    BroughtColumns,
    EnrichableLake,
    JoinChoice,
    RepeatableJoin,
    find_joins,
    is_copy,
    joined_rows,
    make_join,
)
from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.joining.store import read_typed
from deepjoin.model import EnrichStep, Offer, RejectedJoin
from deepjoin.optional import FRAMES, as_frame
from deepjoin.progress import Progress
from deepjoin.read.frames import file_table, frame_table
from deepjoin.settings import EnrichSettings

#: Joins in a row, at most.
_DEEPEST = 3


@dataclass(frozen=True)
class Enrichment:
    """A table with what the lake adds to it, and what that is worth.

    Without a target there are ``offers`` instead: the columns that could be added.
    """

    #: Your rows, in their order, with the new columns: a frame of the kind that was given.
    table: Any = field(repr=False)
    steps: tuple[EnrichStep, ...] = ()
    rejected: tuple[RejectedJoin, ...] = ()
    offers: tuple[Offer, ...] = ()
    #: Cross-validated scores without and with the new columns, higher is better.
    score_before: float | None = None
    score_after: float | None = None
    #: 95% interval of the gain; the columns were chosen without the rows they are judged on.
    interval: tuple[float, float] | None = None
    #: "accuracy" or "R²".
    metric: str = ""
    seconds: float = 0.0
    #: The joins as they can be made for other rows, see `apply_plan`.
    plan: tuple[RepeatableJoin, ...] = field(default=(), repr=False)

    @property
    def gain(self) -> float | None:
        """How much the score rises."""
        if self.score_before is None or self.score_after is None:
            return None
        return self.score_after - self.score_before

    @property
    def sql(self) -> str:
        """The joins as SQL, one statement for each step."""
        return "\n\n".join(
            f"-- {step.via} = {step.table}: {step.column}\n{step.sql};" for step in self.steps
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the table as JSON."""
        low, high = self.interval or (None, None)
        return {
            "metric": self.metric or None,
            "score_before": self.score_before,
            "score_after": self.score_after,
            "gain": self.gain,
            "gain_low": low,
            "gain_high": high,
            "steps": [step.to_dict() for step in self.steps],
            "rejected": [one.to_dict() for one in self.rejected],
            "offers": [one.to_dict() for one in self.offers],
            "seconds": self.seconds,
        }

    def __repr__(self) -> str:
        from deepjoin.show.text import render_enrichment

        return render_enrichment(self.to_dict())


@dataclass(frozen=True)
class _Made:
    """A join that was made, and where it starts."""

    choice: JoinChoice
    brought: BroughtColumns


def enrich(
    lake: EnrichableLake,
    given: object,
    target: str | None,
    depth: int,
    settings: EnrichSettings,
    progress: Progress,
) -> Enrichment:
    """Enrich a table; see `Lake.enrich`."""
    started = perf_counter()
    if not 1 <= depth <= _DEEPEST:
        raise DeepJoinError(f"`depth` is {depth}; it must be between 1 and {_DEEPEST}.")
    table, name = own_table(lake, given)
    scorer = None
    if target is not None:
        if target not in table.column_names:
            raise unknown_name("column", target, name or "the table", table.column_names)
        scorer = Scorer(table[target], target, settings.sample, settings.seed)
    rest = table.drop_columns([target]) if target else table
    rejected: list[RejectedJoin] = []
    walk = _walked(lake, (rest, table, name), depth, settings, rejected, progress)
    made = list(walk)
    if scorer is None:
        offers = [
            Offer(column, one.choice.hit.table, _via(one, made), one.choice.hit.column, c, t)
            for one in made
            for column in one.brought.table.column_names
            for c, t in [(one.brought.coverage, one.choice.trust)]
        ]
        offers.sort(key=lambda one: (-one.coverage * one.trust, one.table))
        kind = _like(given, table)
        took = perf_counter() - started
        return Enrichment(kind, rejected=tuple(rejected), offers=tuple(offers), seconds=took)
    base = list(_features(rest, scorer))
    new: list[Feature] = []
    owner: dict[str, int] = {}
    for number, one in enumerate(made):
        for feature in _features(one.brought.table, scorer):
            if scorer.leaks(feature):
                rejected.append(_rejected(one, feature.name, "is nearly a copy of the target"))
                continue
            new.append(feature)
            owner[feature.name] = number
    gain = scorer.gain(base, new, settings.columns)
    rated = scorer.relevant(new)
    chosen = chosen_features(new, rated, settings.columns) if gain.after > gain.before else []
    steps, plan = _steps(scorer, base, chosen, owner, made, gain)
    used = {one.table for one in steps}
    for one in made:
        if one.choice.hit.table not in used:
            rejected.append(_rejected(one, one.choice.hit.column, "tells nothing of the target"))
    added = [(f.name, made[owner[f.name]].brought.table[f.name]) for f in chosen]
    enriched = table
    for column, cells in sorted(added, key=lambda pair: owner[pair[0]]):
        enriched = enriched.append_column(column, cells)
    return Enrichment(
        _like(given, enriched),
        tuple(steps),
        tuple(rejected),
        score_before=gain.before,
        score_after=gain.after if chosen else gain.before,
        interval=(gain.low, gain.high),
        metric=scorer.metric,
        seconds=perf_counter() - started,
        plan=plan,
    )


def own_table(lake: EnrichableLake, given: object) -> tuple[pa.Table, str | None]:
    """Read your table into memory; also return its name, if it is a file or a table of the lake."""
    if isinstance(given, str | os.PathLike):
        path = Path(given).expanduser()
        if not path.exists() and isinstance(given, str) and given in lake.index:
            return read_typed(lake.index.origin(given).table()), given
        return read_typed(file_table(path)), path.name
    return read_typed(frame_table(given)), None


def _like(given: object, table: pa.Table) -> Any:
    library = type(given).__module__.partition(".")[0]
    return as_frame(table, library if library in FRAMES else "arrow")


def _features(table: pa.Table, scorer: Scorer) -> Iterator[Feature]:
    for name in table.column_names:
        feature = as_feature(name, table[name])
        if feature is not None:
            yield scorer.taken(feature)


def _walked(
    lake: EnrichableLake,
    tables: tuple[pa.Table, pa.Table, str | None],
    depth: int,
    settings: EnrichSettings,
    rejected: list[RejectedJoin],
    progress: Progress,
) -> Iterator[_Made]:
    """Join table after table, nearest and most likely first, until a bound is reached."""
    rest, whole, name = tables
    deadline = perf_counter() + settings.seconds
    seen: dict[str, bool] = {name: True} if name else {}
    taken = list(whole.column_names)

    def is_left_out(table: str) -> bool:
        if table not in seen:
            seen[table] = is_copy(lake, whole.column_names, whole.num_rows, table)
        return seen[table]

    level: list[tuple[int, pa.Table]] = [(-1, rest)]
    count = 0
    for _ in range(depth):
        choices: list[JoinChoice] = []
        keys: dict[int, pa.Table] = dict(level)
        for parent, columns in level:
            found, why_not = find_joins(lake, columns, parent, is_left_out, settings)
            choices += found
            rejected += why_not
        level = []
        for choice in sorted(choices, key=lambda one: -one.trust):
            table = choice.hit.table
            if seen[table]:
                continue
            if count == settings.tables or perf_counter() > deadline:
                reason = "the bound on tables" if count == settings.tables else "time"
                rejected.append(
                    RejectedJoin(
                        *(table, choice.hit.column, choice.via), f"was not tried: {reason} is up"
                    )
                )
                continue
            seen[table] = True
            progress(count, settings.tables, table)
            cells = keys[choice.parent][choice.via]
            brought = make_join(lake, choice, cells, taken)
            if isinstance(brought, str):
                rejected.append(RejectedJoin(table, choice.hit.column, choice.via, brought))
                continue
            taken += brought.table.column_names
            if brought.keys is not None:
                level.append((count, brought.keys))
            count += 1
            yield _Made(choice, brought)


def _via(one: _Made, made: Sequence[_Made]) -> str:
    """Return the column of yours that a chain of joins starts with."""
    while one.choice.parent >= 0:
        one = made[one.choice.parent]
    return one.choice.via


def _rejected(one: _Made, column: str, reason: str) -> RejectedJoin:
    return RejectedJoin(one.choice.hit.table, column, one.choice.via, reason)


def _steps(
    scorer: Scorer,
    base: Sequence[Feature],
    chosen: Sequence[Feature],
    owner: dict[str, int],
    made: Sequence[_Made],
    gain: Gain,
) -> tuple[list[EnrichStep], tuple[RepeatableJoin, ...]]:
    """List the joins that bring chosen columns, or lead to them, and what each gains."""
    wanted = {owner[feature.name] for feature in chosen}
    for number in sorted(wanted):
        parent = made[number].choice.parent
        while parent >= 0:
            wanted.add(parent)
            parent = made[parent].choice.parent
    order = sorted(wanted)
    steps, plan = [], []
    known, score = list(base), gain.before
    for number in order:
        choice, brought = made[number].choice, made[number].brought
        mine = [feature for feature in chosen if owner[feature.name] == number]
        known += mine
        before, score = score, scorer.cross_validated(known) if mine else score
        columns = tuple(feature.name for feature in mine)
        step = EnrichStep(
            table=choice.hit.table,
            column=choice.hit.column,
            via=choice.via,
            cardinality=brought.cardinality,
            coverage=brought.coverage,
            trust=choice.trust,
            columns=columns,
            gain=score - before if mine else None,
            sql=brought.sql,
        )
        steps.append(step)
        parent = order.index(choice.parent) if choice.parent >= 0 else -1
        plan.append(replace(brought.join, parent=parent, columns=columns))
    return steps, tuple(plan)


def apply_plan(lake: EnrichableLake, given: object, plan: Sequence[RepeatableJoin]) -> Any:
    """Make the joins of an enrichment for other rows; unknown keys give missing values."""
    table, _ = own_table(lake, given)
    enriched, brought = table, list[pa.Table]()
    for join in plan:
        keys = table if join.parent < 0 else brought[join.parent]
        if join.via not in keys.column_names:
            raise unknown_name("column", join.via, "the table", keys.column_names)
        rows, _ = joined_rows(lake, join, keys[join.via])
        names = dict(join.names)
        # A table of the lake that has changed may lack a column, or have more.
        found = {names[name]: rows[name] for name in rows.column_names if name in names}
        brought.append(pa.table(found))
        for column in join.columns:
            cells = found.get(column, pa.nulls(table.num_rows))
            enriched = enriched.append_column(column, cells)
    return _like(given, enriched)
