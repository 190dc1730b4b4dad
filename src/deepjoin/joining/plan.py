"""Plan a join: everything about it is known and checked before a row of it is made."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from deepjoin.embed.cells import load_cell_encoder
from deepjoin.errors import DeepJoinError, UnknownName
from deepjoin.joining.columns import MATCHES, left_columns, right_columns, similarity_column
from deepjoin.joining.facts import (
    PAIRS,
    NearMiss,
    count_keys,
    count_links,
    join_facts,
    link_values,
    near_misses,
    semantic_warnings,
    warnings_of,
)
from deepjoin.joining.keys import collect_keys, linked_keys, match_keys
from deepjoin.joining.output import JoinedRows, without_formulas
from deepjoin.joining.pandas_code import pandas_code
from deepjoin.joining.session import Session, explained
from deepjoin.joining.sql import HOWS, JoinSql, QuerySide, StoredValues, ValueWriter
from deepjoin.joining.store import make_readable
from deepjoin.joining.tables import JoinSide
from deepjoin.matching.values import SemanticMatching
from deepjoin.model import JoinFacts
from deepjoin.normalise.canonical import PROFILES

# Only matches() and near_misses() of an equi-join need pairs; the join itself compares keys.
#: Equal keys as pairs, for joins that have no table of them.
_EQUAL = (
    "(SELECT DISTINCT key AS yours, key AS theirs, CAST(1 AS DOUBLE) AS similarity "
    "FROM left_keys WHERE key IN (SELECT key FROM right_keys))"
)


class JoinPlan(JoinedRows):
    """A join that can be inspected, run and written; close it to free its database.

    ``sql`` and ``pandas_code`` are the join as text, ``facts`` its exact numbers, and
    ``warnings`` what to know before running it.
    """

    def __init__(
        self,
        session: Session,
        join: JoinSql,
        facts: JoinFacts,
        warnings: Sequence[str],
        profile: str,
        semantic: SemanticMatching | None = None,
    ) -> None:
        super().__init__(session, join.joined)
        self._join = join
        self._profile = profile
        self._semantic = semantic
        self.facts = facts
        self.warnings = tuple(warnings)

    @cached_property
    def pandas_code(self) -> str:
        """The join over data frames called `yours` and `theirs`."""
        return pandas_code(self._join, self._profile, self._session)

    @property
    def brought(self) -> frozenset[str]:
        """The columns of the result that the left table does not have."""
        return frozenset(one.name for one in (*self._join.between, *self._join.right_columns))

    def neutralised(self) -> JoinedRows:
        """Return the rows as text, none of which a spreadsheet runs as a formula."""
        return JoinedRows(self._session, without_formulas(self._join).joined)

    def matches(self) -> JoinedRows:
        """Return the pairs of canonical values that match: yours, theirs, their similarity."""
        pairs = self._join.pairs or _EQUAL

        def query(typed: bool, writer: ValueWriter | None = None) -> str:
            order = "" if self._join.pairs else " ORDER BY yours"
            return f"SELECT yours, theirs, similarity FROM {pairs}{order}"

        return JoinedRows(self._session, query)

    def reading(self, file: str | Path) -> tuple[str, str]:
        """Write the pairs to a .parquet file; return SQL and pandas code that read it."""
        file = Path(file)
        if file.suffix.lower() != ".parquet":
            raise DeepJoinError(
                f"The SQL and the pandas code read pairs from a .parquet file, not {file.name}."
            )
        self.matches().write(file)
        return (
            self._query(True, StoredValues(self._session, file)),
            pandas_code(self._join, self._profile, self._session, file),
        )

    def near_misses(self, count: int = 10) -> list[NearMiss]:
        """List values of yours without a match and the most similar one of theirs, best first.

        They are below the threshold or, with one-to-one matching, taken by a better match. Values
        that the cell encoder does not know are not listed.
        """
        semantic = self._semantic or SemanticMatching(load_cell_encoder())
        with explained():
            return near_misses(self._session, self._join.pairs or _EQUAL, semantic, count)

    def unmatched(self) -> JoinedRows:
        """Return the left rows that have no match."""
        return JoinedRows(self._session, self._join.unmatched)

    def close(self) -> None:
        """Close the database of the join; this also happens when the plan is deleted."""
        self._session.close()

    def __enter__(self) -> JoinPlan:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def plan_join(
    left: JoinSide,
    right: JoinSide,
    *,
    how: str = "left",
    many: str = "expand",
    profile: str = "default",
    memory_limit: str | None = None,
    semantic: SemanticMatching | None = None,
) -> JoinPlan:
    """Plan the join of two tables on cells that are equal as canonical strings.

    With ``semantic``, cells with similar vectors match too; the result then has
    a column ``similarity`` between yours and theirs.

    ``how`` is left or inner. Where several rows match, ``many`` takes all of them (expand), the
    first (first), or makes one row of them (aggregate): their number, the means of numbers and
    the distinct values of the rest. ``memory_limit``, such as ``4GB``, is DuckDB's.

    >>> import pyarrow as pa
    >>> from deepjoin.model import Reading, Table
    >>> def table(**cells):
    ...     return Table("t.csv", lambda: Reading(iter([pa.record_batch(cells)])))
    >>> orders = JoinSide(table(country=["Peru", "FRANCE"]), "country")
    >>> countries = JoinSide(table(name=["France"], capital=["Paris"]), "name")
    >>> plan_join(orders, countries).to_arrow()["capital"].to_pylist()
    [None, 'Paris']
    """
    _check("how", how, HOWS)
    _check("many", many, MATCHES)
    _check("profile", profile, PROFILES)
    session = Session(memory_limit)
    try:
        with explained():
            return _plan(session, left, right, how, many, profile, semantic)
    except BaseException:
        session.close()
        raise


def _check(option: str, got: str, allowed: Collection[str]) -> None:
    if got not in allowed:
        raise UnknownName(f"Unknown {option} '{got}'. Allowed: {', '.join(allowed)}.")


def _plan(
    session: Session,
    left: JoinSide,
    right: JoinSide,
    how: str,
    many: str,
    profile: str,
    semantic: SemanticMatching | None,
) -> JoinPlan:
    yours = make_readable(session, left, "left_rows")
    theirs = make_readable(session, right, "right_rows")
    keys = "left_keys", "right_keys"
    for source, stored in zip((yours, theirs), keys, strict=True):
        collect_keys(session, source, stored, profile, ordered=semantic is not None)
    outputs, renamed = right_columns(yours, theirs, many)
    columns = tuple(left_columns(yours)), tuple(outputs)
    rows = session.count(yours.reads), session.count(theirs.reads)
    if semantic is None:
        mine, other = match_keys(session, yours, theirs, *keys)
        sides = QuerySide("yours", yours, mine), QuerySide("theirs", theirs, other)
        join, counts = JoinSql(*sides, how, many, *columns), count_keys(session, *keys)
        facts = join_facts(counts, rows, how, many, renamed)
        warnings = warnings_of(facts, counts.widest, how, yours, theirs)
        return JoinPlan(session, join, facts, warnings, profile)
    link_values(session, semantic)
    mine, other = linked_keys(session, PAIRS, *keys)
    sides = QuerySide("yours", yours, mine), QuerySide("their_rows", theirs, other)
    join, counts = JoinSql(*sides, how, many, *columns, pairs=PAIRS), count_links(session)
    similar = similarity_column(yours, theirs, outputs, many, join.added.similarity)
    join = replace(join, between=(similar,))
    facts = replace(
        join_facts(counts, rows, how, many, renamed),
        join="semantic",
        tau=semantic.bound,
        matching=semantic.matching,
        similarity=similar.name,
    )
    warnings = warnings_of(facts, counts.widest, how, yours, theirs)
    warnings += semantic_warnings(session, semantic, yours)
    return JoinPlan(session, join, facts, warnings, profile, semantic)
