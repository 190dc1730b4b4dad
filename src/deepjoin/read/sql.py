"""Names, cells and files as SQL text that means nothing but themselves."""

from __future__ import annotations

from pathlib import Path

from deepjoin.read.formats import true_format


def identifier(name: str) -> str:
    """Quote a name.

    >>> print(identifier('6" nails'))
    "6"" nails"
    """
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote a string.

    >>> print(literal("it's"))
    'it''s'
    """
    quoted = "'" + text.replace("'", "''") + "'"
    # A NUL inside SQL text ends the statement in some clients.
    return quoted.replace("\0", "' || chr(0) || '")


def duckdb_scan(path: Path) -> str | None:
    """Return a DuckDB expression with exactly the rows that our reader gives, or None."""
    from deepjoin.read import delimited, parquet

    kind = true_format(path)
    # DuckDB would take such a path for a pattern, or for one in the user's home.
    if str(path).startswith("~") or any(character in str(path) for character in "*?[{"):
        return None
    if kind == "delimited":
        return delimited.duckdb_scan(path)
    return parquet.duckdb_scan(path) if kind == "parquet" else None
