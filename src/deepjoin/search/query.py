"""A query: its distinct cells, looked up once in each segment, and what a search asks for."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from deepjoin.arrays import Float, Int, Marks
from deepjoin.embed.cells import CellEncoder
from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.lazy import cached_property
from deepjoin.model import Column
from deepjoin.normalise.canonical import CellType, cell_type
from deepjoin.normalise.cells import distinct_cells
from deepjoin.normalise.private import hidden
from deepjoin.read.formats import format_of
from deepjoin.read.frames import (
    as_columns,
    columns_by_name,
    file_tables,
    key_names,
    read_columns,
)
from deepjoin.settings import SearchSettings
from deepjoin.store.feedback import Decided
from deepjoin.store.open_index import OpenIndex
from deepjoin.store.segment import Segment
from deepjoin.store.values.profile import Generic, generic_of, numbers_around

#: How many matched and unmatched cells a hit lists by default.
SHOWN = 20


@dataclass(frozen=True)
class SearchOptions:
    """What a search asks for; ``k`` None means everything that reaches ``threshold``."""

    k: int | None
    threshold: float = 0.0
    #: A table whose columns are never among the hits: the query's own.
    exclude: str | None = None
    #: How many matched and unmatched cells a hit lists; None for all.
    show: int | None = SHOWN
    #: Whether a hit is a table, with its best column, rather than a column.
    by_table: bool = False
    #: When `time.monotonic` reaches this, the answer so far is returned, marked as partial.
    deadline: float | None = None
    #: Whether the caller wants answers before the last one: equal cells first.
    in_stages: bool = False
    #: Whether columns that match by a program are looked for.
    programs: bool = True
    #: Hits with a lower probability are set apart; None: see `SearchSettings`.
    least: float | None = 0.0
    #: Nearest columns that deepjoin-exact verifies.
    verified: int = SearchSettings.verified
    #: Entered while the index is read after the search: it says which file is damaged.
    reading: Callable[[], AbstractContextManager[None]] = nullcontext
    #: Returns what people said of joins of a query; None: nothing.
    feedback: Callable[[Sequence[Column]], Decided] | None = None

    @classmethod
    def of(
        cls,
        k: int | None,
        least: float | None,
        exclude: str | None,
        settings: SearchSettings,
        **others: Any,
    ) -> SearchOptions:
        """Check what a caller passes; without ``k``, 10 hits, or all that reach ``least``."""
        if k is not None and (not isinstance(k, int | np.integer) or k < 0):
            raise DeepJoinError(f"`k` is {k!r}; it must be a whole number of at least 0.")
        if not 0 <= (least or 0.0) <= 1:
            raise DeepJoinError(f"`min_joinability` is {least}; it must be between 0 and 1.")
        limit = settings.time_limit
        return cls(
            *(10 if k is None and least is None else k, least or 0.0, exclude, settings.matches),
            by_table=settings.group is not None,
            deadline=None if limit is None else monotonic() + limit,
            in_stages=settings.on_partial is not None,
            programs=settings.programs,
            least=settings.least,
            verified=settings.verified,
            **others,
        )

    @property
    def columns(self) -> int | None:
        """How many columns to rank: all for tables, whose best column may be far down the list."""
        return None if self.by_table else self.k

    def decided(self, *query: Column) -> Decided:
        """Return what people said of joins of a query's columns."""
        return {} if self.feedback is None else self.feedback(query)

    @property
    def is_late(self) -> bool:
        """Whether the time limit has passed."""
        return self.deadline is not None and monotonic() >= self.deadline


def query_columns(index: OpenIndex, query: object, on: str | Sequence[str] | None) -> list[Column]:
    """Make columns of what a search is given: a file or a table of the lake, or else `as_columns`.

    Plain text without ``on`` names a file or table only if there is one: it may be a lone value.
    """
    if isinstance(query, str) and on is None and not os.path.isfile(query) and query not in index:
        return as_columns(query)
    if not isinstance(query, str | os.PathLike):
        return as_columns(query, on)
    name = os.fsdecode(query)
    if on is None or isinstance(on, str):
        return named_columns(index, name, on)
    return key_columns(index, name, key_names(on))


def named_columns(index: OpenIndex, name: str, on: str | None) -> list[Column]:
    """Read the columns of a file, or of a table of the lake; those of its own table never match."""
    if os.path.isfile(name):
        path = Path(name)
        found = [one for table in file_tables(path) for one in read_columns(table, on)]
        # A file that is itself part of the lake must not find itself; a sheet keeps what
        # follows the name of its workbook.
        own = index.name_of(path)
        return [
            replace(one, table=own and own + (one.table or "")[len(path.name) :]) for one in found
        ]
    table = index.find_name(name)
    if table is None:
        raise _no_such_table(index, name)
    names = index.indexed_columns(table) if on is None else [on]
    if not names:
        raise DeepJoinError(f"No column of {table} is indexed; see: deepjoin info INDEX {table}")
    return [index.column(table, column) for column in names]


def key_columns(index: OpenIndex, name: str, names: Sequence[str]) -> list[Column]:
    """Read the columns of a key of several: as `named_columns`, with their cells in row order."""
    if os.path.isfile(name):
        own = index.name_of(Path(name))
        tables = [read_columns(table) for table in file_tables(Path(name))]
        # Of a workbook, the first sheet that has them all.
        has_all = (of for of in tables if {one.name for one in of}.issuperset(names))
        found = next(has_all, tables[0])
        if own is not None:
            own += (found[0].table or "")[len(Path(name).name) :]
    else:
        own = index.find_name(name)
        if own is None:
            raise _no_such_table(index, name)
        found = read_columns(index.origin(own).table())
    return [replace(column, table=own) for column in columns_by_name(found, names, name)]


def _no_such_table(index: OpenIndex, name: str) -> DeepJoinError:
    if os.path.isdir(name):
        return DeepJoinError(f"'{name}' is a folder; name a file or a table of the lake.")
    parent = Path(name).parent
    there = parent.iterdir() if os.path.isdir(parent) else ()
    beside = [str(path) for path in there if format_of(path.name) and path.is_file()]
    where = f"this directory or {index.path}"
    return unknown_name("file or table", name, where, [*sorted(beside), *index.tables])


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
        #: What people said of joins of the query.
        self.decided: Decided = {}
        #: Entered around evidence that is measured when a hit is read, after the search.
        self.reading: Callable[[], AbstractContextManager[None]] = nullcontext
        self.cells = distinct_cells(column.cells, profile, key)
        self._key, self._encoder = key, encoder
        dimension = 0 if encoder is None else encoder.dimension
        self._vectors: Float = np.zeros((len(self.cells), dimension), np.float32)
        self._is_encoded = np.zeros(len(self.cells), bool)
        self._looked_up: dict[int, QueryValues] = {}
        self._around_in: dict[int, Int] = {}

    @property
    def vectors(self) -> Float:
        """The vectors of all cells; without an encoder they have no dimensions."""
        self.encode(np.arange(len(self)))
        return self._vectors

    def encode(self, cells: Int) -> Float:
        """Return the vectors of some cells; each is encoded once."""
        new = cells[~self._is_encoded[cells]]
        if self._encoder is not None and len(new):
            # No lake holds lone surrogates, which encoders cannot take.
            values = [self.cells.values[cell] for cell in new.tolist()]
            texts = [value.encode("utf-8", "replace").decode() for value in values]
            self._vectors[new] = self._encoder.encode(texts)
            self._is_encoded[new] = True
        return self._vectors[cells]

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

    @cached_property
    def kind(self) -> CellType:
        """The type that all cells of the query share."""
        # One value that begins with a letter is enough, and found at once in most columns of words.
        if any(value[0].isalpha() for value in self.cells.values):
            return CellType.TEXT
        kinds = set(map(cell_type, self.cells.values))
        if kinds == {CellType.INTEGER, CellType.DECIMAL}:
            return CellType.DECIMAL
        return kinds.pop() if len(kinds) == 1 else CellType.TEXT

    @cached_property
    def generic(self) -> Generic:
        """Whether the query itself is a key that says little."""
        return generic_of(self.cells.values)

    @cached_property
    def around(self) -> list[str]:
        """Whole numbers around the query's, or nothing if it has other values."""
        return numbers_around(self.cells.values)

    def share_around(self, segment: Segment, column: int) -> float:
        """Return the share of the numbers around the query's that a column holds."""
        if not self.around:
            return 0.0
        index = segment.values
        numbers = self._around_in.get(id(segment))
        if numbers is None:
            found = index.look_up(hidden(self.around, self._key) if self._key else self.around)
            numbers = self._around_in[id(segment)] = found[found >= 0]
        held = index.cell_values[slice(*index.cells_of(column))]
        return float(np.isin(numbers, held).sum() / len(self.around))

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
