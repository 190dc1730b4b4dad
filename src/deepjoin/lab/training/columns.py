"""Columns to train on: taken from a lake, with the other spellings known for their values."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from deepjoin.arrays import Int
from deepjoin.errors import DeepJoinError, reason
from deepjoin.lazy import cached_property
from deepjoin.model import Column
from deepjoin.normalise.canonical import canonical
from deepjoin.store.column_vectors import segment_columns
from deepjoin.store.segment import Segment

if TYPE_CHECKING:
    from deepjoin.lake import Lake

_WORDS = ("name", "title", "context")
#: Two tables to join with each other and one to validate with.
_TABLES = 3


@contextmanager
def readable(path: Path, what: str) -> Iterator[None]:
    """Explain in one line that a file of a training run is missing or damaged."""
    try:
        yield
    # pyarrow, NumPy and zipfile each raise their own errors for a damaged file.
    except (
        *(pa.ArrowException, BadZipFile, OSError, EOFError),
        *(ValueError, TypeError, LookupError, AttributeError, RuntimeError),
    ) as error:
        raise DeepJoinError(
            f"The {what} to train on, {path}, cannot be read: {reason(error)} "
            "Remove the folder and train again."
        ) from None


@contextmanager
def read_arrays(path: Path) -> Iterator[Any]:
    """Open an .npz file."""
    # Opened here, because np.load leaves a file open that it cannot read.
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        yield arrays


@dataclass(frozen=True)
class TrainingColumns:
    """Columns in memory, their distinct cells concatenated.

    Two cells are equal, by the profile of their lake, if their value numbers are.

    >>> columns = TrainingColumns.of([Column(["GE", "ge", "IBM"]), Column(["IBM"])], [0, 1])
    >>> len(columns), columns.values.tolist(), columns.column(0).cells
    (2, [0, 1, 1], ['GE', 'IBM'])
    """

    #: Name, title and context of each column.
    words: pa.Table
    #: The table of each column, as a number.
    tables: Int
    #: Column i has the cells from offsets[i] to offsets[i + 1].
    offsets: Int
    #: The cells as spelled, and the value number of each.
    cells: pa.LargeStringArray
    values: Int

    @classmethod
    def of(
        cls, columns: Sequence[Column], tables: Sequence[int], profile: str = "default"
    ) -> TrainingColumns:
        """Give each value a number; ``tables`` has the table number of each column."""
        from deepjoin.normalise.cells import distinct_cells

        numbers: dict[str, int] = {}
        distinct = [distinct_cells(column.cells, profile) for column in columns]
        values = [
            numbers.setdefault(value, len(numbers)) for one in distinct for value in one.values
        ]
        return cls(
            pa.table({word: [getattr(column, word) for column in columns] for word in _WORDS}),
            np.asarray(tables, np.int64),
            np.concatenate([[0], np.cumsum([len(one) for one in distinct], dtype=np.int64)]),
            pa.array([cell for one in distinct for cell in one.spellings], pa.large_string()),
            np.array(values, np.int64),
        )

    def __len__(self) -> int:
        return len(self.tables)

    @cached_property
    def sizes(self) -> Int:
        """The number of distinct cells of each column."""
        return np.diff(self.offsets)

    @cached_property
    def frequency(self) -> Int:
        """The number of columns that hold each value."""
        return np.bincount(self.values)

    def places(self, number: int) -> Int:
        """Return the places of the cells of a column."""
        return np.arange(self.offsets[number], self.offsets[number + 1])

    def column(self, number: int, places: Int | None = None, named: bool = True) -> Column:
        """Return a column, with all or some of its cells, with or without its words."""
        if places is None:
            places = self.places(number)
        words = {word: self.words[word][number].as_py() for word in _WORDS} if named else {}
        return Column(self.cells.take(pa.array(places)).to_pylist(), **words)

    def take(self, numbers: Int) -> TrainingColumns:
        """Keep some columns, in this order; value numbers do not change."""
        places = np.concatenate([np.zeros(0, np.int64), *(self.places(one) for one in numbers)])
        return TrainingColumns(
            self.words.take(pa.array(numbers)),
            self.tables[numbers],
            np.concatenate([[0], np.cumsum(self.sizes[numbers], dtype=np.int64)]),
            self.cells.take(pa.array(places)),
            self.values[places],
        )

    def write(self, path: Path) -> None:
        """Write the columns to an Arrow file."""
        lists = {
            "cells": pa.LargeListArray.from_arrays(self.offsets, self.cells),
            "values": pa.LargeListArray.from_arrays(
                self.offsets, pa.array(self.values, pa.int32())
            ),
        }
        table = self.words.append_column("table", pa.array(self.tables))
        for name, array in lists.items():
            table = table.append_column(name, array)
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with (
            pa.OSFile(str(path), "wb") as sink,
            pa.ipc.new_file(sink, table.schema, options=options) as file,
        ):
            file.write_table(table)

    @classmethod
    def read(cls, path: Path) -> TrainingColumns:
        """Read what `write` wrote."""
        with readable(path, "columns"):
            with pa.OSFile(str(path)) as file:
                table: Any = pa.ipc.open_file(file).read_all().combine_chunks()
            table.validate()
            cells, values = (table[name].chunk(0) for name in ("cells", "values"))
            return cls(
                table.select(_WORDS),
                table["table"].to_numpy(),
                cells.offsets.to_numpy(),
                cells.values,
                values.values.to_numpy().astype(np.int64),
            )


def gather(lake: Lake, most: int, seed: int) -> TrainingColumns:
    """Take the text columns of a lake, a random sample of ``most`` if there are more."""
    if lake.settings.hash_only:
        raise DeepJoinError(
            f"{lake.location} stores hashes instead of cells, and an encoder learns from cells. "
            "Train on the tables themselves, or on an index made without `hash_only`."
        )
    chosen = [_text_columns(segment) for segment in lake.index.segments]
    ends = np.cumsum([0, *map(len, chosen)])
    # Chosen by number, so that only the cells of the sample are read.
    if ends[-1] > most:
        kept = np.sort(np.random.default_rng(seed).choice(ends[-1], most, replace=False))
        chosen = [
            numbers[kept[(kept >= start) & (kept < start + len(numbers))] - start]
            for numbers, start in zip(chosen, ends, strict=False)
        ]
    columns: list[Column] = []
    tables: list[int] = []
    # Each segment numbers its tables from 0.
    first = 0
    for segment, numbers in zip(lake.index.segments, chosen, strict=True):
        columns += segment_columns(segment, numbers)
        tables += (np.asarray(segment.catalog.column_tables)[numbers] + first).tolist()
        first += len(segment.catalog.table_names)
    if len(set(tables)) < _TABLES:
        raise DeepJoinError(
            f"{lake.location} has {len(columns)} text columns in {len(set(tables))} tables; "
            f"training needs {_TABLES} tables or more, to join them with each other. Add tables."
        )
    return TrainingColumns.of(columns, tables, lake.settings.profile)


def _text_columns(segment: Segment) -> Int:
    catalog = segment.catalog
    size = segment.values.columns
    wanted = np.ones(size, np.bool_) if segment.dead is None else ~segment.dead
    wanted &= np.asarray(catalog.column_generic) == 0
    wanted &= np.array([catalog.type_name(one) == "text" for one in range(size)], np.bool_)
    return np.flatnonzero(wanted)


@dataclass(frozen=True)
class Spellings:
    """For each value, the numbers of its other spellings."""

    strings: list[str]
    numbers: Int
    offsets: Int

    @classmethod
    def of(
        cls, columns: TrainingColumns, pairs: Iterable[tuple[str, str]], profile: str
    ) -> Spellings:
        """Look up values among surfaces; surfaces of one entity can replace each other."""
        surfaces_of: dict[str, dict[str, None]] = defaultdict(dict)
        for surface, entity in pairs:
            surfaces_of[entity].update(dict.fromkeys((surface, entity)))
        numbers: dict[str, int] = {}
        known = known_values(columns, profile)
        others: dict[int, set[int]] = defaultdict(set)
        for surfaces in surfaces_of.values():
            for one in surfaces:
                value = known.get(canonical(one, profile) or "")
                if value is not None:
                    others[value] |= {
                        numbers.setdefault(text, len(numbers)) for text in surfaces if text != one
                    }
        sizes = [len(others.get(value, ())) for value in range(len(columns.frequency))]
        found = [number for value in sorted(others) for number in sorted(others[value])]
        return cls(list(numbers), np.array(found, np.int64), np.cumsum([0, *sizes]))

    def write(self, path: Path) -> None:
        """Write the spellings to a file."""
        strings = np.frombuffer(json.dumps(self.strings).encode(), np.uint8)
        with path.open("wb") as file:
            np.savez(file, strings=strings, numbers=self.numbers, offsets=self.offsets)

    @classmethod
    def read(cls, path: Path) -> Spellings:
        """Read what `write` wrote."""
        with readable(path, "spellings"), read_arrays(path) as arrays:
            strings = json.loads(arrays["strings"].tobytes())
            return cls(strings, arrays["numbers"], arrays["offsets"])

    def draw(self, values: Int, share: float, random: np.random.Generator) -> Int:
        """Draw another spelling for a share of the values; -1 where a value keeps its spelling."""
        first, last = self.offsets[values], self.offsets[values + 1]
        other = (last > first) & (random.random(len(values)) < share)
        drawn = np.full(len(values), -1)
        drawn[other] = self.numbers[random.integers(first[other], last[other])]
        return drawn


def known_values(columns: TrainingColumns, profile: str) -> dict[str, int]:
    """Map each canonical value to its number."""
    values, places = np.unique(columns.values, return_index=True)
    cells = columns.cells.take(pa.array(places)).to_pylist()
    return {
        canonical(cell, profile) or "": value
        for cell, value in zip(cells, values.tolist(), strict=True)
    }


def read_aliases(path: Path) -> list[tuple[str, str]]:
    """Read pairs of surface and entity from a Parquet file with these two columns."""
    try:
        table = pq.read_table(path, columns=["surface", "entity"])
        surfaces, entities = (column.cast(pa.string()).to_pylist() for column in table.columns)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DeepJoinError(
            f"The spellings {path} cannot be read: {reason(error)} Give a Parquet file with the "
            "text columns 'surface' and 'entity'."
        ) from None
    rows = zip(surfaces, entities, strict=True)
    return [(surface, entity) for surface, entity in rows if surface and entity]
