"""Small tables, an encoder and a brute-force matching for the tests of the join."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from deepjoin.arrays import Float
from deepjoin.joining import JoinPlan, JoinSide, plan_join
from deepjoin.matching.joinability import ONE, least, similarities
from deepjoin.model import Reading, Table
from deepjoin.read.sql import identifier, literal

Cell = str | None
Columns = dict[str, list[Any]]


def table(name: str, *batches: Columns | pa.RecordBatch) -> Table:
    """Make a table of batches."""
    made = [
        batch if isinstance(batch, pa.RecordBatch) else pa.record_batch(batch) for batch in batches
    ]
    return Table(name, lambda: Reading(iter(made)))


def text_batch(columns: dict[str, Sequence[Cell]]) -> pa.RecordBatch:
    """Make a batch of text."""
    return pa.record_batch({name: pa.array(cells, pa.string()) for name, cells in columns.items()})


def both(left: Columns, right: Columns, on: str = "k", key: str = "k", **options: Any) -> JoinPlan:
    """Plan the join of orders.csv with geo/cities.csv, made of columns."""
    sides = JoinSide(table("orders.csv", left), on), JoinSide(table("geo/cities.csv", right), key)
    return plan_join(*sides, **options)


def scan_of(batch: pa.RecordBatch) -> str:
    """Return a DuckDB table expression with the rows of a batch of text."""
    names = ", ".join(identifier(name) for name in batch.schema.names)
    rows = [
        ", ".join("NULL" if c is None else f"CAST({literal(c)} AS VARCHAR)" for c in row.values())
        for row in batch.to_pylist()
    ]
    empty = ", ".join(["CAST(NULL AS VARCHAR)"] * batch.num_columns)
    listed = ", ".join(f"({row})" for row in [empty, *rows])
    return f"(SELECT * FROM (VALUES {listed}) AS t({names}) OFFSET 1)"


def as_text(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Write every cell as text, since pandas and Arrow differ in their words for nothing."""
    return [["" if pd.isna(cell) else str(cell) for cell in row.values()] for row in rows]


class Dial:
    """An encoder for tests: a value is a place on a dial of 60 minutes, if it begins with one.

    Values of one minute share a vector; others are similar by the angle between them.
    """

    name, digest, dimension, floor, tau = "dial", "dial", 2, 0.9, 0.99

    def encode(self, values: Sequence[str | None] | pa.Array) -> Float:
        """Encode values."""
        texts = values.to_pylist() if isinstance(values, pa.Array) else list(values)
        rows = [self._vector(text or "") for text in texts]
        return np.array(rows, np.float32).reshape(len(rows), 2)

    def _vector(self, text: str) -> tuple[float, float]:
        if not text[:2].isdecimal():
            return 0.0, 0.0
        angle = int(text[:2]) * np.pi / 30
        return float(np.cos(angle)), float(np.sin(angle))


def brute_matches(
    mine: list[str], theirs: list[str], tau: float, way: str
) -> set[tuple[int, int, int]]:
    """Match by looking at every pair."""
    dial = Dial()
    vectors, others = dial.encode(mine), dial.encode(theirs)
    pairs = [
        (mine[i] != theirs[j], -(ONE if mine[i] == theirs[j] else int(similarity)), i, j)
        for i in range(len(mine))
        for j, similarity in enumerate(similarities(vectors[i], others))
    ]
    pairs = sorted(pair for pair in pairs if -pair[1] >= least(tau))
    found: set[tuple[int, int, int]] = set()
    taken: set[tuple[str, int]] = set()
    for _, similarity, i, j in pairs:
        needs = {"best": {("i", i)}, "one-to-one": {("i", i), ("j", j)}, "all": set()}[way]
        if not needs & taken:
            taken |= needs
            found.add((i, j, -similarity))
    return found


#: Column names and cells that break careless SQL.
HOSTILE = [
    '"; DROP TABLE left_rows; --',
    "it's",
    "new\nline",
    "",
    " ",
    "nul\0byte",
    "k",
    "K",
    "_row",
    "_key",
    "key",
    "cell",
    "side",
    "spelling",
    "yours",
    "theirs",
    "matched_rows",
    "{cell}",
    "{value}",
    "%s",
    "select",
    "é",
    "É",
    "*",
    "a.b",
]
