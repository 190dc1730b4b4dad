"""Plan a join: everything about it is known and checked before a row of it is made."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from deepjoin.embed.cells import load_cell_encoder
from deepjoin.errors import DeepJoinError, UnknownName
from deepjoin.joining.facts import (
    PAIRS,
    NearMiss,
    count_keys,
    is_spelled_alike,
    join_facts,
    link_tuples,
    link_values,
    near_misses,
    semantic_warnings,
    several_matches,
    too_many_values,
    warnings_of,
)
from deepjoin.joining.keys import collect_keys, linked_keys, match_keys
from deepjoin.joining.output import JoinedRows, without_formulas
from deepjoin.joining.session import Session, explained
from deepjoin.joining.sql import HOWS, JoinSql, QuerySide, StoredValues, ValueWriter, pandas_code
from deepjoin.joining.store import make_readable
from deepjoin.joining.tables import (
    MATCHES,
    JoinSide,
    OutputColumn,
    added_column,
    brought,
    left_columns,
)
from deepjoin.lazy import cached_property
from deepjoin.matching.decisions import write_doubtful
from deepjoin.matching.values import SemanticMatching
from deepjoin.model import JoinFacts, NearMatch
from deepjoin.normalise.canonical import PROFILES
from deepjoin.settings import JoinSettings

# Only matches() and near_misses() of an equi-join need pairs; the join itself compares keys.
#: Equal keys as pairs, for joins that have no table of them.
_EQUAL = (
    "(SELECT DISTINCT key AS yours, key AS theirs, CAST(1 AS DOUBLE) AS similarity "
    "FROM left_keys WHERE key IN (SELECT key FROM right_keys))"
)


class JoinPlan(JoinedRows):
    """A join that can be inspected, run and written; close it to free its database.

    ``sql`` and ``pandas_code`` are the join as text, ``facts`` its exact numbers, and
    ``warnings`` what to know before running it. ``query``, ``profile`` and ``session`` are for
    code that writes the same join for others to run.
    """

    def __init__(
        self,
        session: Session,
        query: JoinSql,
        facts: JoinFacts,
        warnings: Sequence[str],
        profile: str,
        semantic: SemanticMatching | None = None,
    ) -> None:
        super().__init__(session, query.joined)
        self.query = query
        self.profile = profile
        self._semantic = semantic
        self.facts = facts
        self.warnings = tuple(warnings)

    @cached_property
    def pandas_code(self) -> str:
        """The join over data frames called `yours` and `theirs`."""
        return pandas_code(self.query, self.profile, self.session)

    @property
    def brought(self) -> frozenset[str]:
        """The columns of the result that the left table does not have."""
        return frozenset(one.name for one in (*self.query.between, *self.query.right_columns))

    def neutralised(self) -> JoinedRows:
        """Return the rows as text, none of which a spreadsheet runs as a formula."""
        return JoinedRows(self.session, without_formulas(self.query).joined)

    def matches(self) -> JoinedRows:
        """Return the pairs of canonical values that match: yours, theirs, their similarity.

        Where matches are ambiguous, a fourth column has the values that are nearly as similar.
        """
        pairs, columns = self.query.pairs, self.query.pair_columns

        def write(typed: bool, writer: ValueWriter | None = None) -> str:
            if pairs is None:
                return f"SELECT * FROM {_EQUAL} ORDER BY yours"
            return f"SELECT {', '.join(columns)} FROM {pairs}"

        return JoinedRows(self.session, write)

    def reading(self, file: str | Path) -> tuple[str, str]:
        """Write the pairs to a .parquet file; return SQL and pandas code that read it."""
        file = Path(file)
        if file.suffix.lower() != ".parquet":
            raise DeepJoinError(
                f"The SQL and the pandas code read pairs from a .parquet file, not {file.name}."
            )
        self.matches().write(file)
        return (
            self.query.joined(True, StoredValues(self.session, file)),
            pandas_code(self.query, self.profile, self.session, file),
        )

    def near_misses(self, count: int = 10) -> list[NearMiss]:
        """List values of yours without a match and the most similar one of theirs, best first.

        They are below the threshold or, with one-to-one matching, taken by a better match. Values
        that the cell encoder does not know are not listed.
        """
        semantic = self._semantic or SemanticMatching(load_cell_encoder())
        with explained():
            return near_misses(self.session, self.query.pairs or _EQUAL, semantic, count)

    def write_doubtful(self, file: str | Path) -> int:
        """Write doubtful pairs to a CSV file for people to decide; return how many.

        Fill in its column decision, and give the file to the next join as ``decisions``.
        """
        found = self._semantic
        if found is None or not found.careful:
            raise DeepJoinError(
                'Only joins of the kind `join="any"` on one column, without `tau` and `matching`, '
                "have doubtful pairs."
            )
        return write_doubtful(self.doubtful(), Path(file).expanduser(), found.decisions)

    def doubtful(self, most: int | None = None) -> list[NearMatch]:
        """Return pairs that are neither clear nor out of the question, likeliest first.

        Values are as the tables spell them, not as they are compared.
        """
        found = self._semantic.doubtful if self._semantic is not None else []
        some = sorted(found, key=lambda pair: -pair[2])[:most]
        if not some:
            return []
        cells = [
            dict(self.session.run(f"SELECT key, arg_min(cell, first) FROM {keys} GROUP BY key"))
            for keys in ("left_keys", "right_keys")
        ]
        return [NearMatch(cells[0][one], cells[1][other], chance) for one, other, chance in some]

    def unmatched(self) -> JoinedRows:
        """Return the left rows that have no match."""
        return JoinedRows(self.session, self.query.unmatched)

    def close(self) -> None:
        """Close the database of the join; this also happens when the plan is deleted."""
        self.session.close()

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
    semantic: SemanticMatching | None = None,
    settings: JoinSettings | None = None,
) -> JoinPlan:
    """Plan the join of two tables on cells that are equal as canonical strings.

    With ``semantic``, cells with similar vectors match too; the result then has a column
    ``similarity`` between yours and theirs, and ``alternatives`` where matches are ambiguous.

    ``how`` is left or inner. Where several rows match, ``many`` takes all of them (expand), the
    first (first), or makes one row of them (aggregate), as ``settings.aggregate`` says.

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
    settings = settings or JoinSettings()
    if settings.aggregates and many == "first":
        raise DeepJoinError('`aggregate` came with `many="first"`; leave one of them out.')
    session = Session(settings.memory_limit)
    try:
        with explained():
            many = "aggregate" if settings.aggregates else many
            return _plan(session, (left, right), (how, many), profile, semantic, settings)
    except BaseException:
        session.close()
        raise


def _check(option: str, got: str, allowed: Collection[str]) -> None:
    if got not in allowed:
        raise UnknownName(f"Unknown {option} '{got}'. Allowed: {', '.join(allowed)}.")


def _plan(
    session: Session,
    sides: tuple[JoinSide, JoinSide],
    kind: tuple[str, str],
    profile: str,
    semantic: SemanticMatching | None,
    settings: JoinSettings,
) -> JoinPlan:
    how, many = kind
    yours = make_readable(session, sides[0], "left_rows")
    theirs = make_readable(session, sides[1], "right_rows")
    keys = "left_keys", "right_keys"
    for source, stored in zip((yours, theirs), keys, strict=True):
        collect_keys(session, source, stored, profile, ordered=semantic is not None)
    pairs, skipped, by_program = None, "", False
    if semantic is not None and yours.more:
        if semantic.precision is not None or semantic.decisions.pairs:
            raise DeepJoinError(
                "`precision` and `decisions` are about pairs of single values; this key has "
                f"{len(yours.keys)} columns. Leave them out, or join on one column."
            )
        # Careful similarity pairs single values; parts match by their cosine, or by a program.
        by_program = semantic.careful
        semantic = replace(semantic, careful=False)
    if semantic is not None and semantic.join == "any":
        skipped = too_many_values(session, len(yours.keys))
        semantic = None if skipped else semantic
    if semantic is not None:
        if yours.more:
            link_tuples(session, semantic, len(yours.keys), programs=by_program)
        else:
            link_values(session, semantic)
        # Where "any" has found equal values only, the join is the simpler one of equal keys.
        # Pairs of equal values may have been rejected.
        simple = semantic.join == "any" and not semantic.decisions.pairs
        if not simple or session.count(f"{PAIRS} WHERE yours <> theirs"):
            pairs = PAIRS
    counts = count_keys(session, pairs)
    right = brought(yours, theirs, many, settings, with_key=not is_spelled_alike(session))
    if pairs is None:
        name, parts = "theirs", match_keys(session, yours, theirs, *keys)
    else:
        name, parts = "their_rows", linked_keys(session, pairs, keys, len(yours.keys))
    (mine, *more), (other, *others) = zip(*parts, strict=True)
    query = JoinSql(
        QuerySide("yours", yours, mine, tuple(more)),
        QuerySide(name, theirs, other, tuple(others)),
        *(how, many, left_columns(yours), right.columns, right.aggregates, pairs),
    )
    if pairs is not None:
        between: list[OutputColumn] = []
        for word in ("similarity", "alternatives")[: 2 if counts.ambiguous_keys else 1]:
            cell = f"{MATCHES[many]}.{getattr(query.added, word)}"
            outputs = (*right.columns, *between)
            between.append(added_column(word, yours, theirs, outputs, cell))
        query = replace(query, between=tuple(between))
    shown = [column.name for column in query.between] + [None, None]
    rows = session.count(yours.reads), session.count(theirs.reads)
    facts = replace(
        join_facts(counts, rows, how, many, right.renamed),
        join=semantic.join if semantic else "equi",
        tau=semantic.bound if semantic else None,
        matching=semantic.matching if semantic else None,
        similarity=shown[0],
        alternatives=shown[1],
        several=several_matches(session),
    )
    warnings = [skipped] if skipped else []
    for program in semantic.programs if semantic else ():
        shared = f" {program.merged:,} of them lead to the match of another value."
        warnings.append(
            f"{program.covers:,} values match by a program ({program.text})."
            f"{shared if program.merged else ''} "
            'Use `join="equi"` to compare cells as they are.'
        )
    warnings += warnings_of(facts, counts.widest, how, yours, theirs)
    if semantic is not None and pairs is not None:
        warnings += semantic_warnings(session, semantic, yours)
    return JoinPlan(session, query, facts, warnings, profile, semantic)
