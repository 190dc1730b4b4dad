"""Enrich a table: walk the joins of a lake, choose columns that tell the target, measure the gain.

Without a target, list what the lake could add.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import pyarrow as pa

from deepjoin.enriching.features import Feature
from deepjoin.enriching.joins import EnrichableLake, KeyCells, RepeatableJoin, joined_rows
from deepjoin.enriching.offers import catalogue, offers_about
from deepjoin.enriching.ordered import ORDER, ROW, key_name
from deepjoin.enriching.own import OwnTable
from deepjoin.enriching.scoring import Gain, Scorer, chosen_features, interval_of
from deepjoin.enriching.walk import EnrichWalk, MadeJoin
from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.joining.entry import JoinWarning
from deepjoin.model import EnrichStep, Offer, RejectedJoin
from deepjoin.optional import FRAMES, as_frame
from deepjoin.progress import Progress
from deepjoin.read.sql import identifier
from deepjoin.settings import EnrichSettings
from deepjoin.show.text import printable

#: Joins in a row, at most.
_DEEPEST = 3
_STOPPED = {"time": "time was up", "interrupted": "it was interrupted"}


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
    #: "" if everything was tried, "time" if the time was up, "interrupted" after Ctrl-C: then this
    #: is the best that was found by then.
    stopped: str = ""
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
        """The joins as SQL of DuckDB: a table for each step, then yours with the new columns.

        Your table is called ``your_table``.
        """
        if not self.steps:
            return ""
        parts, selected = [], ["yours.*"]
        joined = f"(SELECT *, row_number() OVER () - 1 AS {ROW} FROM your_table) AS yours"
        for number, (step, join) in enumerate(zip(self.steps, self.plan, strict=True), 1):
            name = f"step_{number}"
            # A name may hold a line break, which would end the comment.
            words = printable(f"{step.via} = {step.table}: {step.column}")
            parts.append(f"-- {words}\n{step.sql};")
            raw = {given: column for column, given in join.names}
            selected += [
                f"{name}.{identifier(raw[given])} AS {identifier(given)}" for given in join.columns
            ]
            joined += f"\nLEFT JOIN {name} ON {name}.{ROW} = yours.{ROW}"
        columns = ",\n  ".join(selected).replace("yours.*", f"yours.* EXCLUDE ({ROW})", 1)
        parts.append(f"SELECT\n  {columns}\nFROM {joined}\nORDER BY yours.{ROW};")
        return "\n\n".join(parts)

    def about(self, words: str) -> tuple[Offer, ...]:
        """Order ``offers`` by what they have to do with words, such as "something on income"."""
        return offers_about(self.offers, words)

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
            "stopped": self.stopped or None,
            "seconds": self.seconds,
        }

    def __repr__(self) -> str:
        from deepjoin.show.text import render_enrichment

        return render_enrichment(self.to_dict())

    def _repr_html_(self) -> str:
        from deepjoin.show.cards import enrichment_html

        return enrichment_html(self.to_dict())


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
    if not isinstance(settings, EnrichSettings):
        raise DeepJoinError(f"`settings` is {settings!r}; it must be an EnrichSettings.")
    if isinstance(depth, bool | float) or depth not in range(1, _DEEPEST + 1):
        raise DeepJoinError(f"`depth` is {depth!r}; it must be between 1 and {_DEEPEST}.")
    target = None if target is None else str(target)  # frames may have numbers as names
    own = OwnTable.read(lake, given, target)
    own.check_keys(settings)
    own.order(settings)  # refuses a column that cannot be ordered
    scorer = None
    if target is not None:
        scorer = Scorer(own.table[target], target, settings.sample, settings.seed)
    walk = EnrichWalk(lake, own, settings, scorer)
    walk.run(depth, progress)
    if scorer is None:
        return Enrichment(
            _like(given, own.table),
            rejected=tuple(walk.rejected),
            offers=catalogue(walk),
            stopped=walk.stopped,
            seconds=perf_counter() - started,
        )
    found = _measured(walk, scorer, started, progress)
    enriched = own.table
    for column, cells in found.cells:
        enriched = enriched.append_column(column, cells)
    gain = found.gain
    return Enrichment(
        _like(given, enriched),
        tuple(found.steps),
        tuple(walk.rejected),
        score_before=gain.before if gain else None,
        score_after=(gain.after if found.steps else gain.before) if gain else None,
        interval=(gain.low, gain.high) if gain else None,
        metric=scorer.metric,
        stopped=found.stopped or walk.stopped,
        seconds=perf_counter() - started,
        plan=tuple(found.plan),
    )


def _like(given: Any, table: pa.Table) -> Any:
    library = type(given).__module__.partition(".")[0]
    frame = as_frame(table, library if library in FRAMES else "arrow")
    # pandas matches rows by their index, so new columns must have that of rows that were shuffled.
    return frame.set_axis(given.index) if library == "pandas" else frame


@dataclass
class _JoinWorth:
    """What the joins of a walk are worth."""

    gain: Gain | None = None
    steps: list[EnrichStep] = field(default_factory=list)
    plan: list[RepeatableJoin] = field(default_factory=list)
    #: The new columns, in the order of the steps.
    cells: list[tuple[str, pa.ChunkedArray]] = field(default_factory=list)
    stopped: str = ""

    def add(
        self,
        walk: EnrichWalk,
        made: MadeJoin,
        parent: int,
        columns: tuple[str, ...],
        gain: float | None,
    ) -> None:
        """Add a step; ``parent`` is the step that brings its key."""
        choice, brought = made.choice, made.brought
        join = replace(brought.join, parent=parent, columns=columns)
        ordered = walk.settings.as_of or walk.settings.ranges
        via, column = join.shown
        step = EnrichStep(
            table=choice.table,
            column=column,
            via=via,
            cardinality=brought.cardinality,
            coverage=brought.coverage,
            probability=choice.probability,
            columns=columns,
            gain=gain,
            sql=_step_sql(len(self.steps) + 1, self.plan, join, brought.sql, ordered),
            parent=parent,
            how=join.how,
        )
        self.steps.append(step)
        self.plan.append(join)
        self.cells += [(name, brought.table[name]) for name in columns]


def _measured(walk: EnrichWalk, scorer: Scorer, started: float, progress: Progress) -> _JoinWorth:
    """Choose columns, measure the gain, and list the joins that bring them or lead to them."""
    base = scorer.features(walk.own.rest)
    new = [feature for one in walk.made for feature in one.features]
    most, until, found = walk.settings.columns, started + walk.settings.seconds, _JoinWorth()
    found.gain, found.stopped = scorer.gain(base, new, most, until, progress)
    chosen: Sequence[Feature] = ()
    if found.gain is not None and found.gain.is_sure:
        try:
            chosen = chosen_features(base, new, scorer.relevant(base, new), most)
        except KeyboardInterrupt:
            found.stopped, chosen = "interrupted", found.gain.chosen
    # By join, best columns first: what a join gains depends on those before it.
    owner = {
        feature.name: number for number, one in enumerate(walk.made) for feature in one.features
    }
    brings: dict[int, list[Feature]] = {}
    for feature in chosen:
        brings.setdefault(owner[feature.name], []).append(feature)
    gains, harmful = _step_gains(scorer, base, brings, found, until)
    order: list[int] = []
    for number in brings:
        if number not in harmful:
            order += [one for one in walk.chain(number) if one not in order]
    for number in order:
        parent = walk.made[number].choice.parent
        place = order.index(parent) if parent >= 0 else -1
        mine = () if number in harmful else brings.get(number, ())
        columns = tuple(one.name for one in mine)
        found.add(walk, walk.made[number], place, columns, gains.get(number))
    reason = "tells nothing of the target beyond what is there"
    if found.gain is None:
        reason = f"was not measured: {_STOPPED[found.stopped]}"
    elif not found.steps and found.gain.after > found.gain.before:
        reason = "may help, but no more than chance explains"
    for number, one in enumerate(walk.made):
        if number not in order:
            said = "lowers the score beside better columns" if number in harmful else reason
            is_unproven = one.choice.is_tentative and found.gain is not None
            said = f"{one.choice.doubt}, and {said}" if is_unproven else said
            walk.reject(one.choice, said)
    return found


def _step_gains(
    scorer: Scorer,
    base: Sequence[Feature],
    brings: Mapping[int, Sequence[Feature]],
    found: _JoinWorth,
    until: float,
) -> tuple[dict[int, float], set[int]]:
    """Measure what joins gain one after the other; also return those that are sure to harm."""
    gains: dict[int, float] = {}
    harmful: set[int] = set()
    if found.gain is None or found.stopped:
        return gains, harmful
    known, score, errors = list(base), found.gain.before, found.gain.errors
    try:
        for number, mine in brings.items():
            after, left = scorer.cross_validated([*known, *mine], until)
            # Forests found them relevant: only what is sure to mislead a model is left out.
            if after < score and interval_of(left - errors)[1] > 0:
                harmful.add(number)
                continue
            gains[number] = after - score
            known, score, errors = [*known, *mine], after, left
    except TimeoutError:
        found.stopped = "time"
    except KeyboardInterrupt:
        found.stopped = "interrupted"
    return gains, harmful


def _step_sql(
    number: int, plan: Sequence[RepeatableJoin], join: RepeatableJoin, sql: str, ordered: str
) -> str:
    """Write a step as a table: its keys are columns of your table, or of an earlier step.

    ``ordered`` is the column of yours that joins on order compare, which all steps carry.
    """
    numbered = f"SELECT row_number() OVER () - 1 AS {ROW}"
    order = f", {identifier(ordered)} AS {ORDER}" if ordered else ""
    raw, parent = {}, ""
    if join.parent >= 0:
        raw, parent = {given: name for name, given in plan[join.parent].names}, "brought."
    via = ", ".join(
        f"{parent}{identifier(raw.get(name, name))} AS {key_name(at)}"
        for at, name in enumerate((join.via, *(mine for mine, _ in join.also)))
    )
    keys = f"{numbered}, {via}{order} FROM your_table"
    if join.parent >= 0:
        via += f", yours.{ORDER}" if ordered else ""
        keys = f"SELECT brought.{ROW}, {via} FROM step_{join.parent + 1} AS brought"
        if ordered:
            keys += f"\nJOIN ({numbered}{order} FROM your_table) AS yours USING ({ROW})"
    return f'CREATE TABLE step_{number} AS\nWITH "query" AS (\n{keys}\n)\nSELECT * FROM (\n{sql}\n)'


def apply_plan(lake: EnrichableLake, given: object, plan: Sequence[RepeatableJoin]) -> Any:
    """Make the joins of an enrichment for other rows; unknown keys give missing values."""
    table = OwnTable.read(lake, given).table
    enriched, brought = table, list[pa.Table]()
    for join in plan:
        keys = table if join.parent < 0 else brought[join.parent]
        also = [mine for mine, _ in join.also]
        needed = [(name, keys) for name in (join.via, *also)]
        needed += [(join.ordered.mine, table)] if join.ordered else []
        for name, where in needed:
            if name not in where.column_names:
                raise unknown_name("column", name, "the table", where.column_names)
        order = table[join.ordered.mine] if join.ordered else None
        cells = KeyCells(keys[join.via], order, tuple(keys[name] for name in also))
        rows = joined_rows(lake, join, cells)
        names = dict(join.names)
        # A table of the lake that has changed may lack a column, or have more.
        found = {names[name]: rows[name] for name in rows.column_names if name in names}
        brought.append(pa.table(found))
        if lost := [column for column in join.columns if column not in found]:
            warnings.warn(
                f"{join.table} has changed and no longer brings {', '.join(lost)}, which is "
                "missing in all rows. Enrich again.",
                JoinWarning,
                stacklevel=3,
            )
        for column in join.columns:
            new = found.get(column, pa.nulls(table.num_rows))
            enriched = enriched.append_column(column, new)
    return _like(given, enriched)
