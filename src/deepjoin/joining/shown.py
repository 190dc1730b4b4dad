"""What a session has stored, written into a statement so that it runs without the session."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepjoin.errors import DeepJoinError
from deepjoin.joining.session import Session
from deepjoin.read.sql import literal

#: A statement that lists more pairs than this is none to read or to send.
MOST_PAIRS = 10_000

Pair = tuple[str, str, float]


@dataclass(frozen=True)
class Stored:
    """Reads what is stored; pairs are listed, or read from the file they were written to."""

    session: Session
    file: Path | None = None

    def spelling(self, stored: str) -> list[tuple[Any, ...]]:
        """Read the pairs of cell and key of a spelling table."""
        return self.session.run(f"SELECT cell, key FROM {stored} ORDER BY cell")

    def pairs(self, stored: str) -> str:
        """Write SQL for the rows of the table of pairs."""
        if self.file is not None:
            return f"SELECT yours, theirs, similarity FROM read_parquet({literal(str(self.file))})"
        return pair_values(stored_pairs(self.session, stored))


def stored_pairs(session: Session, stored: str) -> list[Pair]:
    """Read the table of pairs, if it is not too long for a statement."""
    count = session.count(stored)
    if count > MOST_PAIRS:
        raise DeepJoinError(
            f"The join goes through {count:,} pairs of values, too many to list in a statement "
            f"({MOST_PAIRS:,} at most). Add --matches-out pairs.parquet, or in Python "
            "plan.reading('pairs.parquet'), to have them read from that file."
        )
    return session.run(f"SELECT yours, theirs, similarity FROM {stored}")


def pair_values(pairs: list[Pair]) -> str:
    """List pairs as SQL.

    >>> print(pair_values([("uk", "united kingdom", 0.8)]))
    VALUES
        ('uk', 'united kingdom', 0.8)
    """
    if not pairs:
        return "SELECT '' AS yours, '' AS theirs, 0.0 AS similarity WHERE 1 = 0"
    rows = (f"({literal(mine)}, {literal(theirs)}, {like!r})" for mine, theirs, like in pairs)
    return "VALUES\n    " + ",\n    ".join(rows)
