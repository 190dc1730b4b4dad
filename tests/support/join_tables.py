"""Small tables for the tests of the join."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from deepjoin.joining import JoinPlan, Side, plan_join
from deepjoin.model import Reading, Table

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
    sides = Side(table("orders.csv", left), on), Side(table("geo/cities.csv", right), key)
    return plan_join(*sides, **options)
