"""The joins that an enrichment tries: found by search, made row by row of your table."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.enriching.features import MARKS, NUMBER, is_near_number
from deepjoin.enriching.ordered import KEY, ORDER, ROW, OrderedKey, key_in, key_name
from deepjoin.enriching.row_order import RowOrders
from deepjoin.joining.entry import JoinWarning
from deepjoin.joining.plan import JoinPlan
from deepjoin.joining.session import Session
from deepjoin.joining.store import read_typed
from deepjoin.joining.tables import joined_names
from deepjoin.matching.names import names_one_key, split_key
from deepjoin.model import Column, Hit, RejectedJoin, Results
from deepjoin.normalise.canonical import canonical
from deepjoin.read.frames import as_columns
from deepjoin.read.sql import duckdb_scan, identifier
from deepjoin.settings import EnrichSettings, JoinSettings, SearchSettings
from deepjoin.store.open_index import OpenIndex

IS_YOURS = "is your table, or one that holds it with the target"
#: A join that brings rows to fewer of your rows than this share is not tried.
_LEAST_COVERAGE = 0.1
#: Rows that a join may have before they are summarised.
_MOST_ROWS = 20_000_000
#: A column with fewer distinct values joins nearly everything, and tells nothing apart.
_LEAST_DISTINCT = 5
#: Similar values are looked for where equal ones cover less than this share of a text column.
_WELL_COVERED = 0.5
#: Numbers that stand out from others near them prove a join, if a key holds this share of yours.
_STANDS_OUT = 0.3
#: A join that values alone do not prove is tried if a key holds nearly all your values, as many of
#: them, and few others: these shares, and the least number of values.
_CONTAINED, _FILLED, _LEAST_TRIED = 0.95, 0.5, 20
#: Rows of yours, and of theirs that meet them in order, among which yours are looked for.
_LEAST_SOUGHT, _MOST_SOUGHT, _MOST_MET = 20, 500, 2_000_000
#: Of more rows than this, as many are searched with: a search takes as long as its values are many.
_SEARCHED_ROWS = 50_000


class EnrichableLake(Protocol):
    """What an enrichment needs of a lake."""

    index: OpenIndex

    def search(
        self,
        query: object,
        k: int | None = None,
        *,
        join: str = "any",
        settings: SearchSettings | None = None,
    ) -> Results:
        """Find the columns that join with a column."""

    def plan_join(
        self,
        left: object,
        on: str | Sequence[str],
        hit: Hit | tuple[str, str | Sequence[str]],
        *,
        how: str,
        many: str,
        join: str | None,
        settings: JoinSettings | None,
    ) -> JoinPlan:
        """Prepare a join."""


@dataclass(frozen=True)
class KeyCells:
    """The cells of your rows that a join compares: those of a key, those that are ordered."""

    key: pa.ChunkedArray
    order: pa.ChunkedArray | None = None
    #: The further columns of a key of several.
    also: tuple[pa.ChunkedArray, ...] = ()

    def __len__(self) -> int:
        return len(self.key)

    def table(self) -> pa.Table:
        """Return them as a table, with the numbers of the rows."""
        cells = {ROW: pa.array(range(len(self)), pa.int64())}
        cells |= {key_name(at): one for at, one in enumerate((self.key, *self.also))}
        return pa.table(cells if self.order is None else cells | {ORDER: self.order})


@dataclass(frozen=True)
class JoinKey:
    """Which columns a join compares, and how: one that is there already, and one that it meets."""

    via: str
    #: The step that brings the key column; -1 for your own table.
    parent: int
    table: str
    #: Its key column; "" for a join on order alone, which looks for one.
    column: str
    #: "equi", "any" with the threshold of similar values, or "ordered".
    join: str = "equi"
    tau: float | None = None
    #: The further columns of a key of several, yours and theirs.
    also: tuple[tuple[str, str], ...] = ()

    @property
    def shown(self) -> tuple[str, str]:
        """The key as people read it, yours and theirs."""
        pairs = ((self.via, self.column), *self.also)
        return ", ".join(mine for mine, _ in pairs), ", ".join(theirs for _, theirs in pairs)


@dataclass(frozen=True)
class JoinChoice(JoinKey):
    """A join that may be worth trying."""

    #: How likely the join makes sense, from 0 to 1.
    probability: float = 1.0
    #: Whether only the target can tell if it makes sense, as among keys that all number rows.
    is_tentative: bool = False
    #: Whether a key meets several rows.
    is_many: bool = False

    @property
    def doubt(self) -> str:
        """Why it is not made, if it is improbable."""
        return f"looks like a coincidence (probability {self.probability:.2f})"


@dataclass(frozen=True)
class RepeatableJoin(JoinKey):
    """A join that can be made again for other rows."""

    #: Whether a key meets several rows, so that they are summarised.
    is_summarised: bool = False
    #: Columns that are compared by order, to choose among the rows of a key, or in place of a key.
    ordered: OrderedKey | None = None
    #: Columns of text that are read as numbers; words in them are missing values.
    numbers: tuple[str, ...] = ()
    #: Names of the new columns: as joined, and as the enriched table has them.
    names: tuple[tuple[str, str], ...] = ()
    #: Those that were chosen.
    columns: tuple[str, ...] = ()

    @property
    def how(self) -> str:
        """What is compared: "equal" or "similar" values, "as-of" or "range"."""
        if self.ordered is not None:
            return self.ordered.how
        return "equal" if self.join == "equi" else "similar"


@dataclass(frozen=True)
class BroughtColumns:
    """What a join brings: columns aligned with the rows of your table."""

    join: RepeatableJoin
    table: pa.Table
    coverage: float
    cardinality: str
    sql: str

    @property
    def keys(self) -> pa.Table | None:
        """The columns that may lead to further tables: those that are not summaries."""
        return None if self.join.is_summarised else self.table


def find_joins(
    lake: EnrichableLake,
    table: pa.Table,
    parent: int,
    is_left_out: Callable[[str], bool],
    settings: EnrichSettings,
    orders: RowOrders,
    listed: Mapping[str, tuple[str, str]],
    is_copy: Callable[[str], bool] = lambda table: False,
) -> tuple[list[JoinChoice], list[RejectedJoin]]:
    """Search with every column of a table; return the best join with each table, and why not.

    Joins that are tentative come last, and there may be several with a table. ``listed`` says of
    columns that a join brought which table and column of the lake lists them in their own order;
    for your own columns, that is a copy of your table, of which you may have drawn some rows.
    """
    best: dict[str, tuple[float, JoinChoice]] = {}
    tentative: list[JoinChoice] = []
    rejected: dict[str, RejectedJoin] = {}
    given = _given_pairs(settings)
    # A table that was all target has no columns, and one of nested cells none to search with.
    searchable = [field.name for field in table.schema if not pa.types.is_nested(field.type)]
    if parent < 0:
        # A column that is compared by order has equal values too, and would be taken for the key.
        ordered = settings.as_of or settings.ranges
        searchable = [name for name in searchable if name != ordered]
    table = table.select(searchable)
    if table.num_rows > _SEARCHED_ROWS:
        drawn = np.random.default_rng(settings.seed)
        table = table.take(np.sort(drawn.choice(table.num_rows, _SEARCHED_ROWS, replace=False)))
    columns = as_columns(table) if searchable else []
    for column in columns:
        if given:
            if canonical(column.name) not in {mine for mine, _ in given}:
                continue
        elif _is_no_key(table[column.name], column, is_own=parent < 0):
            continue
        is_proven, maybe = False, list[JoinChoice]()
        hits = list(_searched(lake, column, columns, settings.tables, is_own=parent < 0))
        at = listed.get(column.name)
        for hit in hits if parent < 0 else ():
            if canonical(hit.column) == canonical(column.name) and is_copy(hit.table):
                at = hit.table, hit.column
                break
        ours: Sequence[str] | None = None
        for hit in hits:
            if is_left_out(hit.table):
                continue
            if given and (canonical(column.name), canonical(hit.column)) not in given:
                continue
            probability = 1.0 if given else _probability(column.name, hit)
            if probability < settings.least and hit.joinability >= _STANDS_OUT:
                if ours is None:
                    ours = orders.of(*at) if at else orders.read(column.cells)
                if _order_proves(orders, ours, hit):
                    probability = 0.9 * hit.joinability
            found = _choice(column.name, parent, hit, probability, is_given=bool(given))
            probability = found.probability
            reason = ""
            if hit.joinability < _LEAST_COVERAGE:
                reason = f"covers {hit.joinability:.0%} of your values"
            elif probability < settings.least:
                reason = found.doubt
                if parent < 0 and _may_be_key(hit):
                    maybe.append(replace(found, is_tentative=True))
            elif (
                not (given or found.also)
                and hit.cardinality == "n:m"
                and canonical(column.name) != canonical(hit.column)
            ):
                reason = "is joined on columns that are a key of neither table"
            if reason:
                rejected.setdefault(
                    hit.table, RejectedJoin(hit.table, hit.column, column.name, reason)
                )
                continue
            is_proven = True
            # Of keys that meet several rows, one of more values meets fewer.
            worth = probability
            if found.is_many:
                worth *= np.log(1 + hit.query_size) / np.log(2 + table.num_rows)
            if hit.table not in best or best[hit.table][0] < worth + 0.01 * len(found.also):
                best[hit.table] = worth, found
        tentative += () if is_proven else maybe
    chosen = [one for _, one in best.values()]
    choices = sorted(chosen, key=lambda one: (-one.probability, one.table))
    choices += [one for one in tentative if one.table not in best]
    found_tables = {one.table for one in choices}
    return choices, [one for name, one in rejected.items() if name not in found_tables]


def _order_proves(orders: RowOrders, ours: Sequence[str], hit: Hit) -> bool:
    """Check whether both columns list the same keys, each of your rows one: once or repeated."""
    is_key = hit.cardinality.startswith("1:") and hit.joinability >= _WELL_COVERED
    if is_key and orders.agree(ours, hit.table, hit.column):
        return True
    return not hit.generic and orders.stand_out(ours, hit.table, hit.column)


def _choice(via: str, parent: int, hit: Hit, probability: float, is_given: bool) -> JoinChoice:
    """Join on the columns of a hit, or on a longer key where there is one that multiplies no rows.

    Columns of a longer key that are called alike prove it together, also a year.
    """
    if hit.better is not None and not is_given:
        pairs = tuple(zip(hit.better.on, hit.better.columns, strict=True))
        if all(canonical(mine) == canonical(theirs) for mine, theirs in pairs):
            probability = max(probability, 0.9 * hit.joinability)
        return JoinChoice(
            via, parent, hit.table, hit.column, also=pairs[1:], probability=probability
        )
    kind, tau = ("equi", None) if hit.semantic is None else (hit.join, hit.semantic.tau)
    key = via, parent, hit.table, hit.column, kind, tau
    return JoinChoice(*key, probability=probability, is_many=hit.multiplies)


def _may_be_key(hit: Hit) -> bool:
    """Check whether a column may be the key that yours refers to, by its values alone."""
    return (
        not hit.multiplies
        and hit.query_size >= _LEAST_TRIED
        and hit.joinability >= _CONTAINED
        and hit.reverse >= _FILLED
    )


def _is_no_key(cells: pa.ChunkedArray, column: Column, is_own: bool) -> bool:
    """Check whether a column cannot be a key: a measure, or one of few values.

    Of a table that was joined, which may be wide, numbers must also differ in most rows.
    """
    known = [cell for cell in column.cells if cell]
    distinct = len(set(known))
    if pa.types.is_floating(cells.type) and not all(_is_whole(cell) for cell in known[:1000]):
        return True
    if not is_own and not pa.types.is_string(cells.type) and 3 * distinct < len(known):
        return True
    return distinct < _LEAST_DISTINCT


def _is_whole(cell: str) -> bool:
    return float(cell).is_integer()


def _searched(
    lake: EnrichableLake, column: Column, beside: Sequence[Column], count: int, is_own: bool
) -> Iterable[Hit]:
    """Search for equal values; for similar ones too if few of your own text column's are found."""
    found = lake.search(column, count, join="equi", settings=SearchSettings(beside=beside))
    if not is_own or any(hit.joinability >= _WELL_COVERED for hit in found):
        return found
    if all(_is_number(cell) for cell in column.cells[:1000] if cell):
        return found
    return lake.search(column, count, settings=SearchSettings(least=0))


def _given_pairs(settings: EnrichSettings) -> set[tuple[str, str]]:
    """Return the keys that were named as pairs: of the nearer table and of the next."""
    pairs = (key.partition("=") for key in settings.keys)
    return {(canonical(mine), canonical(theirs or mine)) for mine, _, theirs in pairs}


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _probability(name: str, hit: Hit) -> float:
    """Estimate whether a join makes sense.

    The probability of a hit is that of a reference to a key. Where a table has several rows for a
    key, or knows few of your keys, the name of the column tells as much, unless it is one of years
    or flags, which fit everywhere. Row numbers do as well: theirs must say whose they are.
    """
    (mine, is_key), (theirs, is_theirs) = split_key(name), split_key(hit.column)
    if hit.generic and is_key and is_theirs and not mine and not theirs:
        return 0.0  # `id` and `id`: that rows are numbered
    is_named = bool(mine) and mine == theirs and is_key and is_theirs
    is_named = is_named or names_one_key(name, hit.column)
    is_same = is_named or (canonical(name) == canonical(hit.column) and not hit.generic)
    if not is_same or hit.generic in ("year", "flag"):
        return hit.probability
    return max(hit.probability, 0.9 * max(hit.joinability, hit.reverse))


def make_join(
    lake: EnrichableLake,
    choice: JoinChoice,
    keys: KeyCells,
    taken: Collection[str],
    settings: EnrichSettings,
    is_yours: Callable[[pa.Table, Sequence[str]], bool],
) -> BroughtColumns | str:
    """Join the keys of your rows with a table; return the new columns, or why there are none.

    ``taken`` are names that the new columns must not have; ``is_yours`` says whether the rows of a
    table, of which several meet one of yours, are yours themselves.
    """
    planned = RepeatableJoin(*(getattr(choice, one.name) for one in fields(JoinKey)))
    if choice.join == "ordered":
        made = _ordered(lake, planned, keys, settings, is_yours)
        if isinstance(made, str):
            return made
        planned, rows, sql, cardinality = *made, "n:1"
    else:
        with _planned(lake, planned, keys, "expand") as plan:
            facts = plan.facts
            cardinality = facts.cardinality
            several = facts.several_left_rows > 0
            expanded = facts.matched_left_rows * max(1, facts.max_fan_out)
            if several and expanded > _MOST_ROWS:
                return f"would make up to {expanded:,} rows of your {len(keys):,}"
            rows, names = _new_columns(plan, planned)
            if several and is_yours(rows, names):
                return IS_YOURS
            ordered = key_in(settings, keys.order, rows, names) if several else None
            numbers = _near_numbers(rows, names)
            planned = replace(planned, ordered=ordered, numbers=numbers)
            planned = replace(planned, is_summarised=several and ordered is None)
            rows, sql = _reduced(rows, names, planned, plan.sql)
    coverage = rows.num_rows / max(1, len(keys))
    rows = _aligned(rows, len(keys))
    if not rows.column_names:
        return "has no other columns"
    if coverage < _LEAST_COVERAGE:
        return f"covers {coverage:.0%} of your rows"
    given = joined_names(list(taken), rows.column_names, choice.table)
    planned = replace(planned, names=tuple(zip(rows.column_names, given, strict=True)))
    return BroughtColumns(planned, rows.rename_columns(given), coverage, cardinality, sql)


def joined_rows(lake: EnrichableLake, join: RepeatableJoin, keys: KeyCells) -> pa.Table:
    """Make a join again; return the new columns, in the order of the keys."""
    if join.join == "ordered":
        made = _ordered(lake, join, keys)
        return pa.table({}) if isinstance(made, str) else _aligned(made[1], len(keys))
    has_many = join.is_summarised or join.ordered is not None
    with _planned(lake, join, keys, "expand" if has_many else "first") as plan:
        if not has_many and plan.facts.several_left_rows:
            warnings.warn(
                f"{join.column} of {join.table} has several rows for a value, unlike when the "
                "join was chosen; the first is taken. Enrich again.",
                JoinWarning,
                stacklevel=4,
            )
        rows, names = _new_columns(plan, join)
        return _aligned(_reduced(rows, names, join, plan.sql)[0], len(keys))


def _ordered(
    lake: EnrichableLake,
    join: RepeatableJoin,
    keys: KeyCells,
    settings: EnrichSettings | None = None,
    is_yours: Callable[[pa.Table, Sequence[str]], bool] | None = None,
) -> tuple[RepeatableJoin, pa.Table, str] | str:
    """Join a table on order alone; ``settings`` say by which column, unless the join does.

    Return why it cannot be joined if it cannot.
    """
    origin = lake.index.origin(join.table)
    theirs = read_typed(origin.table())
    if settings is not None:
        found = key_in(settings, keys.order, theirs, theirs.column_names)
        numbers = _near_numbers(theirs, theirs.column_names)
        join = replace(join, ordered=found, column=found.low if found else "", numbers=numbers)
    ordered = join.ordered
    if ordered is None or ordered.low not in theirs.column_names:
        return "has no column to compare by order"
    path = origin.path()
    shown = (duckdb_scan(path) if path else None) or identifier(join.table)
    session = Session()
    try:
        session.run('CREATE TABLE "query" AS SELECT * FROM batch', keys.table())
        session.run("CREATE TABLE stored AS SELECT * FROM batch", theirs)
        if is_yours is not None:
            most = min(_MOST_SOUGHT, max(_LEAST_SOUGHT, _MOST_MET // max(1, theirs.num_rows)))
            sought = f'(SELECT * FROM "query" USING SAMPLE {most} (reservoir, 0)) AS sought'
            if is_yours(session.table(ordered.meeting(sought, "stored")), theirs.column_names):
                return IS_YOURS
        rows = session.table(ordered.alone("stored", theirs.column_names))
    finally:
        session.close()
    typed = ", ".join(
        f"CAST({identifier(name)} AS {kind}) AS {identifier(name)}"
        for name, kind in _sql_types(theirs).items()
    )
    sql = ordered.alone(f"(SELECT {typed} FROM {shown}) AS stored", theirs.column_names)
    names = [name for name in theirs.column_names if name in rows.column_names]
    return join, *_reduced(rows, names, replace(join, ordered=None), sql)


def _sql_types(table: pa.Table) -> dict[str, str]:
    """Return the types of columns as DuckDB names them."""
    session = Session()
    try:
        return session.columns("batch", table.slice(0, 0))
    finally:
        session.close()


def _planned(lake: EnrichableLake, join: RepeatableJoin, keys: KeyCells, many: str) -> JoinPlan:
    left = keys.table()
    settings = None if join.tau is None else JoinSettings(tau=join.tau)
    on: str | list[str] = KEY
    columns: str | list[str] = join.column
    if join.also:
        on = [key_name(at) for at in range(1 + len(join.also))]
        columns = [join.column, *(theirs for _, theirs in join.also)]
    hit = join.table, columns
    return lake.plan_join(left, on, hit, how="inner", many=many, join=join.join, settings=settings)


def _new_columns(plan: JoinPlan, join: RepeatableJoin) -> tuple[pa.Table, list[str]]:
    """Run a join; also return the names of the columns that are neither keys nor about matches."""
    facts, rows = plan.facts, plan.to_arrow()
    ours = {ROW, KEY, ORDER, facts.similarity, facts.alternatives}
    ours |= {key_name(at) for at in range(1, 1 + len(join.also))}
    for theirs in (join.column, *(one for _, one in join.also)):
        ours |= {theirs, facts.renamed.get(theirs)}
    return rows, [name for name in rows.column_names if name not in ours]


def _near_numbers(rows: pa.Table, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in names if is_near_number(rows[name]))


def _reduced(
    rows: pa.Table, names: Sequence[str], join: RepeatableJoin, sql: str
) -> tuple[pa.Table, str]:
    """Turn near-numbers into numbers and several rows of a key into one; return rows and SQL.

    A key that meets several rows gets their count, the mean, least and largest of numbers, and the
    most frequent of other values with the share of rows that have it.
    """
    numbers = [name for name in join.numbers if name in names]
    if numbers:
        casts = ", ".join(f"{number_sql(cell)} AS {cell}" for cell in map(identifier, numbers))
        query = f"SELECT * REPLACE ({casts})\nFROM"
        rows, sql = _selected(rows, f"{query} joined"), f"{query} (\n{sql}\n) AS joined"
    if join.ordered is not None:
        rows = _selected(rows, join.ordered.nearest("joined", names))
        sql = join.ordered.nearest(f"(\n{sql}\n) AS joined", names)
    if join.is_summarised and names:
        selected = _summaries(rows, names)
        query = f"SELECT {ROW}, {', '.join(sql for _, sql in selected)}\nFROM"
        rows = _selected(rows, f"{query} joined GROUP BY {ROW}")
        sql = f"{query} (\n{sql}\n) AS joined\nGROUP BY {ROW}"
        names = [name for name, _ in selected]
    return rows.select([ROW, *names]), sql


def number_sql(cell: str) -> str:
    """Write the number that a cell of text holds, as `numbers_in` reads it."""
    digits = f"regexp_replace(regexp_extract({cell}, '{NUMBER}'), '{MARKS}', '', 'g')"
    return f"TRY_CAST({digits} AS DOUBLE)"


def _aligned(rows: pa.Table, count: int) -> pa.Table:
    """Put rows in the order of your table; those without a match get missing values."""
    places = pc.index_in(pa.array(range(count), pa.int64()), rows[ROW].combine_chunks())
    return rows.drop_columns([ROW]).take(places)


def _summaries(rows: pa.Table, columns: Sequence[str]) -> list[tuple[str, str]]:
    """List the summaries of columns: the name and SQL of each."""
    found = [("matched_rows", "count(*) AS matched_rows")]
    for name in columns:
        kind, cell = rows.schema.field(name).type, identifier(name)
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            values = {"mean": f"avg({cell})", "min": f"min({cell})", "max": f"max({cell})"}
        else:
            # Of equally frequent values the least, so that the result is the same twice.
            values = {
                "most_frequent": f"mode({cell} ORDER BY {cell})",
                "share": f"list_max(map_values(histogram({cell}))) / count({cell})",
            }
        for word, value in values.items():
            found.append((f"{name}_{word}", f"{value} AS {identifier(f'{name}_{word}')}"))
    return found


def _selected(rows: pa.Table, query: str) -> pa.Table:
    session = Session()
    try:
        session.run("CREATE TABLE joined AS SELECT * FROM batch", rows)
        return session.table(query)
    finally:
        session.close()
