"""Columns to train on: their words, their distinct cells, and which cells are equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deepjoin.embed.columns.reasons import reason
from deepjoin.errors import DeepJoinError
from deepjoin.model import Column

Int = npt.NDArray[np.int64]

_WORDS = ("name", "title", "context")


@dataclass(frozen=True)
class TrainingColumns:
    """Columns in memory; the distinct cells of all lie one after the other.

    Cells are equal, by the profile of the lake they come from, when their values are.

    >>> columns = TrainingColumns.of([Column(["GE", "ge", "IBM"]), Column(["IBM"])], [0, 1])
    >>> len(columns), columns.values.tolist(), columns.column(0).cells
    (2, [0, 1, 1], ['GE', 'IBM'])
    """

    #: Name, title and context of each column.
    words: pa.Table
    #: The table of each column, as a number.
    tables: Int
    #: Where the cells of each column begin, and where the last ones end.
    offsets: Int
    #: The cells as they are spelled, and the number of the value that each is.
    cells: pa.LargeStringArray
    values: Int

    @classmethod
    def of(
        cls, columns: Sequence[Column], tables: Sequence[int], profile: str = "default"
    ) -> TrainingColumns:
        """Give each value of columns a number; ``tables`` says which columns are of one table."""
        from deepjoin.normalise.distinct import distinct_cells

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
        """In how many columns each value is."""
        return np.bincount(self.values)

    def places(self, number: int) -> Int:
        """Return where the cells of a column are."""
        return np.arange(self.offsets[number], self.offsets[number + 1])

    def column(self, number: int, places: Int | None = None, named: bool = True) -> Column:
        """Give a column, with the cells at some places only, or without its words."""
        if places is None:
            places = self.places(number)
        words = {word: self.words[word][number].as_py() for word in _WORDS} if named else {}
        return Column(self.cells.take(pa.array(places)).to_pylist(), **words)

    def take(self, numbers: Int) -> TrainingColumns:
        """Keep some columns, in this order; values keep their numbers."""
        places = np.concatenate([np.zeros(0, np.int64), *(self.places(one) for one in numbers)])
        return TrainingColumns(
            self.words.take(pa.array(numbers)),
            self.tables[numbers],
            np.concatenate([[0], np.cumsum(self.sizes[numbers], dtype=np.int64)]),
            self.cells.take(pa.array(places)),
            self.values[places],
        )

    def write(self, path: Path) -> None:
        """Write all to one Arrow file."""
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
        try:
            with pa.OSFile(str(path)) as file:
                return cls._of_table(pa.ipc.open_file(file).read_all().combine_chunks())
        except (pa.ArrowException, OSError, LookupError, AttributeError) as error:
            raise DeepJoinError(
                f"The columns to train on, {path}, cannot be read: {reason(error)} "
                "Remove the folder and train again."
            ) from None

    @classmethod
    def _of_table(cls, table: Any) -> TrainingColumns:
        table.validate()
        cells, values = (table[name].chunk(0) for name in ("cells", "values"))
        return cls(
            table.select(_WORDS),
            table["table"].to_numpy(),
            cells.offsets.to_numpy(),
            cells.values,
            values.values.to_numpy().astype(np.int64),
        )
