"""Several joins in a row, run as one: the tables of a path, from its start to its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from deepjoin.errors import DeepJoinError
from deepjoin.joining.entry import origin_side, plan_index_join
from deepjoin.joining.output import JoinedRows
from deepjoin.joining.plan import JoinPlan
from deepjoin.model import JoinFacts, Reading, Table
from deepjoin.read.database import DatabaseSource
from deepjoin.read.sql import identifier
from deepjoin.settings import JoinSettings
from deepjoin.store.open_index import OpenIndex

#: Joins in SQL, by how rows without a match are treated.
_JOINS = {"left": "LEFT JOIN", "inner": "JOIN"}


class ChainStep(NamedTuple):
    """One join of a chain: a column of a table that is there already, and one of the next."""

    table: str
    column: str
    next_table: str
    next_column: str


class JoinChain(JoinedRows):
    """Several joins as one; close it to free its databases.

    ``tables`` are their names from the start on, ``facts`` the exact numbers of every join. ``sql``
    is in the dialect of their database if all tables are in one, else DuckDB's.
    """

    def __init__(
        self,
        tables: tuple[str, ...],
        sql: str,
        facts: tuple[JoinFacts, ...],
        warnings: tuple[str, ...],
        last: JoinPlan,
        opened: ExitStack,
    ) -> None:
        super().__init__(last.session, last.query.joined)
        self.tables, self.sql, self.facts, self.warnings = tables, sql, facts, warnings
        #: Close the databases of the joins.
        self.close = opened.close

    @property
    def rows(self) -> int:
        """How many rows the result has."""
        return self.facts[-1].result_rows

    def __enter__(self) -> JoinChain:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def plan_chain(
    index: OpenIndex, steps: Sequence[ChainStep], how: str, many: str, memory: str | None = None
) -> JoinChain:
    """Plan joins on equal values in a row, each with the result of those before it."""
    if not steps:
        raise DeepJoinError("A path without joins has nothing to run; name two different tables.")
    left: object = origin_side(index.origin(steps[0].table), (steps[0].column,))
    #: What the columns of the tables so far are called in the result.
    called = {(steps[0].table, one.name): one.name for one in index.table(steps[0].table).columns}
    facts: list[JoinFacts] = []
    texts: list[str] = []
    warnings: list[str] = []
    brought: list[list[tuple[str, str]]] = []
    with ExitStack() as stack:
        for number, step in enumerate(steps):
            on = called.get((step.table, step.column), step.column)
            columns = [one.name for one in index.table(step.next_table).columns]
            later = {(one.table, one.column) for one in steps[number + 1 :]}
            # Its key is the same cells again, unless the next join starts from it.
            if (step.next_table, step.next_column) not in later:
                columns = [name for name in columns if name != step.next_column]
            plan = stack.enter_context(
                plan_index_join(
                    index,
                    (left, on, (step.next_table, step.next_column)),
                    **{"how": how, "many": many, "join": "equi"},
                    settings=JoinSettings(columns=columns, memory_limit=memory),
                    progress=None,
                )
            )
            renamed: Mapping[str, str] = plan.facts.renamed
            called |= {(step.next_table, name): renamed.get(name, name) for name in columns}
            brought.append([(name, renamed.get(name, name)) for name in columns])
            facts.append(plan.facts)
            warnings += plan.warnings
            texts.append(plan.sql)
            left = Table(f"step_{number + 1}", partial(_rows_of, plan))
        tables = (steps[0].table, *(step.next_table for step in steps))
        database = _one_database(index, tables)
        if database is not None and many == "expand":
            sql = _plain_sql(database, steps, brought, how)
        else:
            sql = _nested(texts)
        warned = tuple(dict.fromkeys(warnings))
        return JoinChain(tables, sql, tuple(facts), warned, plan, stack.pop_all())


def _rows_of(plan: JoinPlan) -> Reading:
    """Read what a join has made, cells as they were: types would rewrite numbers and dates."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield from plan.batches(typed=False)

    return Reading(batches())


def _one_database(index: OpenIndex, tables: Sequence[str]) -> DatabaseSource | None:
    """Return the database that all tables are in, if there is one."""
    origins = [index.origin(table) for table in tables]
    source = origins[0].source
    if source is None or source.as_database is None:
        return None
    same = all(one.described == origins[0].described for one in origins)
    return source.as_database if same else None


def _plain_sql(
    source: DatabaseSource,
    steps: Sequence[ChainStep],
    brought: Sequence[Sequence[tuple[str, str]]],
    how: str,
) -> str:
    """Write the joins for their database, which compares cells in its own way."""
    places = {steps[0].table: "t0"}
    selected, joins = ["t0.*"], []
    for number, (step, columns) in enumerate(zip(steps, brought, strict=True), 1):
        here, there = places[step.table], f"t{number}"
        places[step.next_table] = there
        for name, new in columns:
            named = "" if name == new else f" AS {identifier(new)}"
            selected.append(f"{there}.{identifier(name)}{named}")
        joins.append(
            f"{_JOINS[how]} {source.relation(step.next_table).sql} AS {there}\n"
            f"  ON {here}.{identifier(step.column)} = {there}.{identifier(step.next_column)}"
        )
    return (
        "-- Cells are compared as the database compares them.\n"
        f"SELECT\n  {(',' + chr(10) + '  ').join(selected)}\n"
        f"FROM {source.relation(steps[0].table).sql} AS t0\n" + "\n".join(joins)
    )


def _nested(texts: Sequence[str]) -> str:
    """Put statements that each read the result of the one before into one."""
    if len(texts) == 1:
        return texts[0]
    *before, last = texts
    named = ",\n".join(f"step_{number} AS (\n{text}\n)" for number, text in enumerate(before, 1))
    return f"WITH {named}\nSELECT * FROM (\n{last}\n)"
