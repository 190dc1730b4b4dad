"""Files as DuckDB reads them itself: faster in a join, and SQL that users can run on."""

from __future__ import annotations

from pathlib import Path

from deepjoin.sources.formats import true_format


def duckdb_scan(path: Path) -> str | None:
    """Return a table expression with the very rows our reader gives, or None if there is none."""
    from deepjoin.sources.delimited import duckdb_scan as scan_delimited

    kind = true_format(path)
    if kind == "delimited":
        return scan_delimited(path)
    if kind == "parquet":
        quoted = str(path).replace("'", "''")
        return f"read_parquet('{quoted}')"
    return None
