"""Plans a join: everything about it is known, and checked, before a row of it is made."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

from deepjoin.canonical import PROFILES
from deepjoin.errors import UnknownName
from deepjoin.join.facts import JoinFacts, count_keys, join_facts, warn
from deepjoin.join.keys import collect_keys, match_keys
from deepjoin.join.output import Rows
from deepjoin.join.pandas_code import pandas_code
from deepjoin.join.select import MATCHES, left_columns, right_columns
from deepjoin.join.session import Session, explained
from deepjoin.join.side import Side
from deepjoin.join.sql import HOWS, JoinSql, Part
from deepjoin.join.store import bring


class JoinPlan(Rows):
    """A join that can be looked at, run and written; close it to free what it has stored.

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
    ) -> None:
        super().__init__(session, join.joined)
        self._join = join
        self._profile = profile
        self.facts = facts
        self.warnings = tuple(warnings)

    @cached_property
    def pandas_code(self) -> str:
        """The join over data frames called `yours` and `theirs`."""
        return pandas_code(self._join, self._profile)

    def unmatched(self) -> Rows:
        """Return the left rows that have no match."""
        return Rows(self._session, self._join.unmatched)

    def close(self) -> None:
        """Close the database behind the join; happens by itself when nothing uses it."""
        self._session.close()

    def __enter__(self) -> JoinPlan:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def plan_join(
    left: Side,
    right: Side,
    *,
    how: str = "left",
    many: str = "expand",
    profile: str = "default",
    memory_limit: str | None = None,
) -> JoinPlan:
    """Plan the join of two tables on cells that are equal as canonical strings.

    ``how`` is left or inner. Where several rows match, ``many`` takes every one (expand), the
    first one (first), or makes one row of them (aggregate): their number, the means of numbers
    and the distinct values of the rest. ``memory_limit``, such as ``4GB``, is DuckDB's.

    >>> import pyarrow as pa
    >>> from deepjoin.columns import Reading, Table
    >>> def table(**cells):
    ...     return Table("t.csv", lambda: Reading(iter([pa.record_batch(cells)])))
    >>> orders = Side(table(country=["Peru", "FRANCE"]), "country")
    >>> countries = Side(table(name=["France"], capital=["Paris"]), "name")
    >>> plan_join(orders, countries).to_arrow()["capital"].to_pylist()
    [None, 'Paris']
    """
    _check("how", how, HOWS)
    _check("many", many, MATCHES)
    _check("profile", profile, PROFILES)
    session = Session(memory_limit)
    try:
        with explained():
            return _plan(session, left, right, how, many, profile)
    except BaseException:
        session.close()
        raise


def _check(option: str, got: str, allowed: Collection[str]) -> None:
    if got not in allowed:
        raise UnknownName(f"Unknown {option} '{got}'. Allowed: {', '.join(allowed)}.")


def _plan(session: Session, left: Side, right: Side, how: str, many: str, profile: str) -> JoinPlan:
    yours, theirs = bring(session, left, "left_rows"), bring(session, right, "right_rows")
    collect_keys(session, yours, "left_keys", profile)
    collect_keys(session, theirs, "right_keys", profile)
    left_key, right_key = match_keys(session, yours, theirs, "left_keys", "right_keys")
    outputs, renamed = right_columns(yours, theirs, many)
    join = JoinSql(
        left=Part("yours", yours, left_key),
        right=Part("theirs", theirs, right_key),
        how=how,
        many=many,
        left_columns=tuple(left_columns(yours)),
        right_columns=tuple(outputs),
    )
    counts = count_keys(session, "left_keys", "right_keys")
    rows = session.count(yours.reads), session.count(theirs.reads)
    facts = join_facts(counts, rows, how, many, renamed)
    warnings = warn(facts, counts.widest, how, yours, theirs)
    return JoinPlan(session, join, facts, warnings, profile)
