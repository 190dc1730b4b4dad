"""Files as DuckDB reads them itself: faster in a join, and SQL that users can run on."""

from __future__ import annotations

from pathlib import Path

from deepjoin.read.formats import true_format


def duckdb_scan(path: Path) -> str | None:
    """Return a table expression with the very rows our reader gives, or None if there is none."""
    from deepjoin.read import delimited, parquet

    kind = true_format(path)
    if _means_other_files(str(path)):
        return None
    if kind == "delimited":
        return delimited.duckdb_scan(path)
    return parquet.duckdb_scan(path) if kind == "parquet" else None


def _means_other_files(path: str) -> bool:
    """Whether DuckDB takes a path for a pattern, or for one in the user's home."""
    return path.startswith("~") or any(character in path for character in "*?[{")
