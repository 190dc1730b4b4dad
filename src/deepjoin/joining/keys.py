"""Find SQL for both join columns that is equal exactly where the canonical strings are.

All distinct cells are canonicalised once. The simplest expression that gives most of them their
canonical string is chosen; cells for which it is wrong, if that could change the result, are
listed with their keys in a table of exceptions: the side's spelling.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.errors import DeepJoinError
from deepjoin.joining.session import Session
from deepjoin.joining.tables import SideTable
from deepjoin.normalise.canonical import canonical_array
from deepjoin.normalise.cells import as_strings
from deepjoin.read.sql import identifier

#: From simple to complex; ties go to the first.
_EXPRESSIONS = (
    "{cell}",
    "lower({cell})",
    "trim({cell})",
    "lower(trim({cell}))",
    r"regexp_replace({cell}, '\.0+$', '')",
    r"regexp_replace({cell}, ' 00:00:00$', '')",
    r"regexp_replace(lower(trim({cell})), '\s+', ' ', 'g')",
    r"regexp_replace(lower(trim({cell})), '^(-?(?:0|[1-9][0-9]*))(?:\.0+|(\.[0-9]*[1-9])0+)$', "
    r"'\1\2')",
)
#: Between the parts of a key of several columns; no part has it.
SEPARATOR_SQL = "chr(31)"
_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")


@dataclass(frozen=True)
class KeySql:
    """How cells of a side become keys; ``spelling`` is the table of exceptions, if any."""

    expression: str
    spelling: str | None = None
    drops_blanks: bool = False
    as_text: bool = True

    def key(self, source: SideTable, table: str = "", spelling: str = "spelling") -> str:
        """Return SQL for the key of a row; ``table`` is the prefix of its columns.

        ``spelling`` is what the table of exceptions is called in the query.
        """
        cell = cell_text(source, table) if self.as_text else table + identifier(source.key.name)
        key = self.expression.replace("{cell}", cell)
        if self.spelling:
            key = f"coalesce({spelling}.key, {key})"
        return f"nullif({key}, '')" if self.drops_blanks else key


def cell_text(source: SideTable, table: str = "") -> str:
    """Return SQL for the text of a key cell."""
    cell = table + identifier(source.key.name)
    if source.key.kind == "VARCHAR":
        return cell
    if source.key.kind == "TIMESTAMP WITH TIME ZONE":
        cell += " AT TIME ZONE 'UTC'"
    return f"CAST({cell} AS VARCHAR)"


def collect_keys(
    session: Session, source: SideTable, store: str, profile: str, ordered: bool = False
) -> None:
    """Store the distinct cells of a key column, their canonical strings and their row counts.

    ``ordered`` also stores the first row of each. A key of several columns is stored part by part,
    numbered from 1, and then as a whole.
    """
    if source.more:
        for number, part in enumerate(source.parts(), 1):
            collect_keys(session, part, f"{store}_{number}", profile, ordered)
        _collect_tuples(session, source, store)
        return
    session.run(f"CREATE TABLE {store} (cell VARCHAR, key VARCHAR, number BIGINT, first BIGINT)")
    name = identifier(source.key.name)
    first = ("min(place)", ", row_number() OVER () AS place") if ordered else ("0", "")
    distinct = session.reader(
        f"SELECT value, cell, count(*) AS number, {first[0]} AS first "
        f"FROM (SELECT {name} AS value, {cell_text(source)} AS cell{first[1]} "
        f"FROM {source.reads}) WHERE value IS NOT NULL GROUP BY value, cell"
    )
    for batch in distinct:
        # Lists and bytes are not indexed; they can still be joined, as DuckDB writes them.
        texts = as_strings(batch["value"])
        keys = canonical_array(batch["cell"] if texts is None else texts, profile)
        keys = pc.if_else(pc.equal(keys, ""), None, keys)
        columns = {"cell": batch["cell"], "key": keys}
        rows = pa.table(columns | {name: batch[name] for name in ("number", "first")})
        session.run(f"INSERT INTO {store} SELECT * FROM batch", rows)


def _collect_tuples(session: Session, source: SideTable, store: str) -> None:
    """Store the distinct tuples of a key of several columns, whose parts are stored already."""
    numbers = range(1, len(source.keys) + 1)
    texts = [
        f"{cell_text(part)} AS cell_{n}" for n, part in zip(numbers, source.parts(), strict=True)
    ]
    # Cells of different types may be written alike; their keys are the same then.
    parts = "".join(
        f" LEFT JOIN (SELECT cell, min(key) AS key FROM {store}_{n} GROUP BY cell) AS part_{n} "
        f"ON part_{n}.cell = cell_{n}"
        for n in numbers
    )
    key = f" || {SEPARATOR_SQL} || ".join(f"part_{n}.key" for n in numbers)
    cell = ", ".join(f"cell_{n}" for n in numbers)
    keys = ", ".join(f"part_{n}.key AS key_{n}" for n in numbers)
    session.run(
        f"CREATE TABLE {store} AS SELECT concat_ws(' · ', {cell}) AS cell, {key} AS key, "
        f"count(*) AS number, min(place) AS first, {keys} "
        f"FROM (SELECT {', '.join(texts)}, row_number() OVER () AS place FROM {source.reads})"
        f"{parts} GROUP BY ALL"
    )
    if any(session.count(f"{store}_{n} WHERE contains(cell, {SEPARATOR_SQL})") for n in numbers):
        raise DeepJoinError(
            f"The key columns of {source.table} hold the control character 31, which separates "
            "the parts of a key. Remove it, or join on one column."
        )


def match_keys(
    session: Session, left: SideTable, right: SideTable, left_keys: str, right_keys: str
) -> list[tuple[KeySql, KeySql]]:
    """Choose the SQL of both sides, given the tables that `collect_keys` made: of each part."""
    if not left.more:
        return [_match_part(session, left, right, left_keys, right_keys)]
    parts = zip(left.parts(), right.parts(), strict=True)
    return [
        _match_part(session, mine, theirs, f"{left_keys}_{n}", f"{right_keys}_{n}", as_text=True)
        for n, (mine, theirs) in enumerate(parts, 1)
    ]


def _match_part(
    session: Session,
    left: SideTable,
    right: SideTable,
    left_keys: str,
    right_keys: str,
    *,
    as_text: bool = False,
) -> tuple[KeySql, KeySql]:
    # Integers are equal exactly where their canonical strings are, and compare faster as such.
    if left.key.kind in _INTEGERS and right.key.kind in _INTEGERS and not as_text:
        return KeySql("{cell}", as_text=False), KeySql("{cell}", as_text=False)
    of_left = _best(session, left_keys, _held(right_keys))
    of_right = _best(session, right_keys, _held(left_keys))
    # Blank cells match nothing; only where both sides have some could they match each other.
    drops_blanks = _has_blanks(session, left_keys) and _has_blanks(session, right_keys)
    return (
        KeySql(of_left, _spelling(session, left_keys, of_left, right_keys, of_right), drops_blanks),
        KeySql(
            of_right, _spelling(session, right_keys, of_right, left_keys, of_left), drops_blanks
        ),
    )


def linked_keys(
    session: Session, pairs: str, stored: tuple[str, str], parts: int = 1
) -> list[tuple[KeySql, KeySql]]:
    """Choose the SQL of both sides of a semantic join: their keys must be those of the pairs."""
    found = []
    for number in range(1, parts + 1):
        sides = []
        for keys, column in zip(stored, ("yours", "theirs"), strict=True):
            wanted = f"SELECT {column} FROM {pairs}"
            if parts > 1:
                wanted = f"SELECT key_{number} FROM {keys} WHERE key IN ({wanted})"
                keys = f"{keys}_{number}"
            expression = _best(session, keys, wanted)
            exceptions = _exceptions(session, keys, expression, wanted, wanted)
            sides.append(KeySql(expression, exceptions))
        found.append((sides[0], sides[1]))
    return found


def _best(session: Session, keys: str, wanted: str) -> str:
    """Return the expression that is wrong for the fewest of the cells that match."""
    matching = f"key IN ({wanted})"
    fewest, best = -1, ""
    # Cells that match nothing are ignored here: most are never compared with an equal text.
    for expression in _EXPRESSIONS:
        wrong = session.count(f"{keys} WHERE {matching} AND {_of_cell(expression)} <> key")
        if fewest < 0 or wrong < fewest:
            fewest, best = wrong, expression
        if not wrong:
            break
    return best


def _of_cell(expression: str) -> str:
    return expression.replace("{cell}", "cell")


def _has_blanks(session: Session, keys: str) -> bool:
    return session.count(f"{keys} WHERE key IS NULL") > 0


def _held(keys: str) -> str:
    return f"SELECT key FROM {keys} WHERE key IS NOT NULL"


def _spelling(
    session: Session, keys: str, expression: str, other_keys: str, other_expression: str
) -> str | None:
    """Store the cells whose expression is wrong and could miss or make a match."""
    # A wrong text matters if the true key matches, or if the other side has or makes that text.
    held = _held(other_keys)
    made = f"{held} UNION ALL SELECT {_of_cell(other_expression)} FROM {other_keys}"
    return _exceptions(session, keys, expression, held, made)


def _exceptions(session: Session, keys: str, expression: str, held: str, made: str) -> str | None:
    """Store the cells with a wrong expression whose key, or whose expression, may match."""
    spelling = f"{keys}_spelling"
    wrong = _of_cell(expression)
    session.run(
        f"CREATE TABLE {spelling} AS SELECT cell, coalesce(key, '') AS key FROM {keys} "
        f"WHERE {wrong} <> coalesce(key, '') AND (key IN ({held}) OR {wrong} IN ({made}))"
    )
    return spelling if session.count(spelling) else None
