"""Names, cells and files as SQL text that means nothing but themselves."""

from __future__ import annotations

import re
from pathlib import Path

from deepjoin.errors import DeepJoinError
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


def postgres_literal(text: str) -> str:
    r"""Quote a string for PostgreSQL, whatever its standard_conforming_strings is.

    >>> print(postgres_literal("it's"), postgres_literal("C:\\temp"))
    'it''s' E'C:\\temp'
    """
    escaped = text.replace("\\", "\\\\")
    return f"E{literal(escaped)}" if escaped != text else literal(text)


#: What is not code: strings, quoted names, comments.
_QUOTED = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/", re.DOTALL
)
#: What some databases read as the end of a string or a comment, or as code, and others do not.
_AMBIGUOUS = re.compile(r"[\\#]|--(?!\s)|/\*M?!")
_READS = re.compile(r"(?:select|with|values|table)\b", re.IGNORECASE)
#: Words of statements that write, run procedures or end a transaction.
_WRITES = re.compile(
    r"\b(?:insert|update|delete|merge|into|create|alter|drop|truncate|grant|revoke|copy|attach|"
    r"exec|execute|call|begin|commit|rollback|shutdown|backup|restore|kill|dbcc|deny|reconfigure|"
    r"bulk|openrowset|opendatasource|openquery)\b",
    re.IGNORECASE,
)


def check_version_query(sql: str) -> None:
    """Refuse a version query that is not one statement that reads.

    Databases refuse writes in the read-only sessions that we open; some have no such sessions.
    """
    code = _QUOTED.sub(" ", sql).strip().removesuffix(";")
    # The name of a table, which somebody else may have chosen, would end a string that it is in.
    named_in_quotes = sql.count("{table}") > code.count("{table}")
    starts_well = _READS.match(code)
    if _AMBIGUOUS.search(sql):
        code = sql
    if sql and (named_in_quotes or ";" in code or not starts_well or _WRITES.search(code)):
        given = " ".join(sql.split())
        raise DeepJoinError(
            f"`version_query` is '{given[:80]}'; it must be one SELECT that writes nothing, such "
            "as: SELECT max(updated_at) FROM {table}"
        )


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
