"""Plans a join: everything about it is known, and checked, before a row of it is made."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from deepjoin.embed.cells import load_cell_encoder
from deepjoin.errors import DeepJoinError, UnknownName
from deepjoin.joining.facts import KeyCounts, count_keys, join_facts, short, warn
from deepjoin.joining.keys import collect_keys, linked_keys, match_keys
from deepjoin.joining.linking import (
    PAIRS,
    NearMiss,
    count_links,
    link_values,
    near_misses,
    unknown_values,
)
from deepjoin.joining.neutral import neutral
from deepjoin.joining.output import Rows
from deepjoin.joining.pandas_code import pandas_code
from deepjoin.joining.select import (
    MATCHES,
    OutputColumn,
    left_columns,
    right_columns,
    similarity_column,
)
from deepjoin.joining.session import Session, explained
from deepjoin.joining.shown import Stored
from deepjoin.joining.side import Side, Source
from deepjoin.joining.sql import HOWS, JoinSql, Part, Show
from deepjoin.joining.store import bring
from deepjoin.matching.matching import Semantic
from deepjoin.model import JoinFacts
from deepjoin.normalise.canonical import PROFILES

#: Equal keys as pairs, for joins that have no table of them.
_EQUAL = (
    "(SELECT DISTINCT key AS yours, key AS theirs, CAST(1 AS DOUBLE) AS similarity "
    "FROM left_keys WHERE key IN (SELECT key FROM right_keys))"
)


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
        semantic: Semantic | None = None,
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

    def neutralised(self) -> Rows:
        """Return the rows as text, none of which a spreadsheet takes for a formula."""
        return Rows(self._session, neutral(self._join).joined)

    def matches(self) -> Rows:
        """Return the pairs of canonical values that match: yours, theirs, their similarity."""
        pairs = self._join.pairs or _EQUAL

        def query(typed: bool, show: Show | None = None) -> str:
            order = "" if self._join.pairs else " ORDER BY yours"
            return f"SELECT yours, theirs, similarity FROM {pairs}{order}"

        return Rows(self._session, query)

    def reading(self, file: str | Path) -> tuple[str, str]:
        """Write the pairs to a .parquet file; return SQL and pandas code that read it."""
        file = Path(file)
        if file.suffix.lower() != ".parquet":
            raise DeepJoinError(
                f"The SQL and the pandas code read pairs from a .parquet file, not {file.name}."
            )
        self.matches().write(file)
        return (
            self._query(True, Stored(self._session, file)),
            pandas_code(self._join, self._profile, self._session, file),
        )

    def near_misses(self, count: int = 10) -> list[NearMiss]:
        """List values of yours without a match and the most similar one of theirs, best first.

        It is below the threshold, or a better match of another value where matches are one to
        one. Values that the cell encoder knows nothing of are not listed.
        """
        semantic = self._semantic or Semantic(load_cell_encoder())
        with explained():
            return near_misses(self._session, self._join.pairs or _EQUAL, semantic, count)

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
    semantic: Semantic | None = None,
) -> JoinPlan:
    """Plan the join of two tables on cells that are equal as canonical strings.

    With ``semantic``, cells that mean the same by their vectors match too; the result then has
    a column ``similarity`` between yours and theirs.

    ``how`` is left or inner. Where several rows match, ``many`` takes every one (expand), the
    first one (first), or makes one row of them (aggregate): their number, the means of numbers
    and the distinct values of the rest. ``memory_limit``, such as ``4GB``, is DuckDB's.

    >>> import pyarrow as pa
    >>> from deepjoin.model import Reading, Table
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
            return _plan(session, left, right, how, many, profile, semantic)
    except BaseException:
        session.close()
        raise


def _check(option: str, got: str, allowed: Collection[str]) -> None:
    if got not in allowed:
        raise UnknownName(f"Unknown {option} '{got}'. Allowed: {', '.join(allowed)}.")


def _plan(
    session: Session,
    left: Side,
    right: Side,
    how: str,
    many: str,
    profile: str,
    semantic: Semantic | None,
) -> JoinPlan:
    yours, theirs = bring(session, left, "left_rows"), bring(session, right, "right_rows")
    for source, keys in ((yours, "left_keys"), (theirs, "right_keys")):
        collect_keys(session, source, keys, profile, ordered=semantic is not None)
    outputs, renamed = right_columns(yours, theirs, many)
    columns = tuple(left_columns(yours)), tuple(outputs)
    join, counts = _matched(session, yours, theirs, (how, many), columns, semantic)
    rows = session.count(yours.reads), session.count(theirs.reads)
    facts = join_facts(counts, rows, how, many, renamed)
    if semantic is not None:
        bound, name = semantic.bound, join.between[0].name
        facts = replace(
            facts, join="semantic", tau=bound, matching=semantic.matching, similarity=name
        )
    warnings = [*warn(facts, counts.widest, how, yours, theirs), *_doubts(session, semantic, yours)]
    return JoinPlan(session, join, facts, warnings, profile, semantic)


def _matched(
    session: Session,
    yours: Source,
    theirs: Source,
    options: tuple[str, str],
    columns: tuple[tuple[OutputColumn, ...], tuple[OutputColumn, ...]],
    semantic: Semantic | None,
) -> tuple[JoinSql, KeyCounts]:
    """Match the keys and write the join, by equality or through a table of pairs."""
    keys = "left_keys", "right_keys"
    if semantic is None:
        mine, other = match_keys(session, yours, theirs, *keys)
        sides = Part("yours", yours, mine), Part("theirs", theirs, other)
        return JoinSql(*sides, *options, *columns), count_keys(session, *keys)
    link_values(session, semantic)
    mine, other = linked_keys(session, PAIRS, *keys)
    sides = Part("yours", yours, mine), Part("their_rows", theirs, other)
    join = JoinSql(*sides, *options, *columns, pairs=PAIRS)
    similar = similarity_column(yours, theirs, columns[1], options[1], join.added.similarity)
    return replace(join, between=(similar,)), count_links(session)


def _doubts(session: Session, semantic: Semantic | None, yours: Source) -> list[str]:
    """Say what could be wrong with the matches of a semantic join."""
    if semantic is None:
        return []
    doubts = []
    if semantic.bound < semantic.encoder.floor:
        doubts.append(
            f"tau is {semantic.bound:g}: below {semantic.encoder.floor:g}, what this cell encoder "
            "finds similar is mostly chance. Look at the similarity column."
        )
    if unknown := unknown_values(session, semantic):
        have, their = ("s", "have"), "their equals only, such as"
        if len(unknown) == 1:
            have, their = ("", "has"), "its equal only:"
        doubts.append(
            f"{len(unknown):,} value{have[0]} of {yours.table} {have[1]} no word the cell encoder "
            f"knows and can match {their} '{short(unknown[0])}'."
        )
    return doubts
