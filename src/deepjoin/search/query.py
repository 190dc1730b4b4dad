"""A query: its distinct cells, looked up once in each segment, and what a search asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepjoin.embed.cells import CellEncoder
from deepjoin.model import Column
from deepjoin.normalise.distinct import distinct_cells
from deepjoin.store.segment import Segment

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float32]
Marks = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class SearchOptions:
    """What a search asks for; ``k`` None means everything that reaches ``threshold``."""

    k: int | None
    threshold: float = 0.0
    #: A table whose columns are never among the hits: the query's own.
    exclude: str | None = None


class QueryValues(NamedTuple):
    """The numbers that a query's cells have in the value index of one segment."""

    #: One number for each cell; -1 where no column holds it.
    numbers: Int
    #: The cells that are known there, in ascending order of their numbers.
    known: Int


class SearchQuery:
    """A query as a set: its distinct cells and, for semantic joins, their vectors.

    Looking cells up takes a good part of a search, so it is done once for each segment:
    candidates and evidence share the numbers.
    """

    def __init__(
        self, column: Column, profile: str, key: bytes = b"", encoder: CellEncoder | None = None
    ) -> None:
        self.column, self.name = column, column.name
        self.cells = distinct_cells(column.cells, profile, key)
        self.vectors: Float = np.zeros((len(self.cells), 0), np.float32)
        if encoder is not None:
            # No lake holds lone surrogates, which encoders cannot take.
            texts = [value.encode("utf-8", "replace").decode() for value in self.cells.values]
            self.vectors = encoder.encode(texts)
        self._looked_up: dict[int, QueryValues] = {}

    def __len__(self) -> int:
        return len(self.cells)

    def values_in(self, segment: Segment) -> QueryValues:
        """Look the cells up in a segment, or their hashes in a lake of hashes."""
        found = self._looked_up.get(id(segment))
        if found is None:
            held = self.cells.values if self.cells.hidden is None else self.cells.hidden
            numbers = segment.values.look_up(held)
            # Ascending, so that the numbers can be searched for in sorted arrays.
            order = np.argsort(numbers, kind="stable")
            found = QueryValues(numbers, order[numbers[order] >= 0])
            self._looked_up[id(segment)] = found
        return found

    def described(self) -> dict[str, Any]:
        """Describe the query as results show it."""
        column = self.column
        return {
            "table": column.table,
            "column": column.name,
            "cells": len(column.cells),
            "size": len(self),
        }


def excluded_columns(segment: Segment, table: str | None) -> Marks | None:
    """Mark the columns that were removed from the lake, and those of the query's own table."""
    own = None if table is None else segment.catalog.find_table(table)
    if own is None:
        return segment.dead
    marks = np.zeros(segment.values.columns, bool) if segment.dead is None else segment.dead.copy()
    marks[segment.catalog.columns_of(own)] = True
    return marks
