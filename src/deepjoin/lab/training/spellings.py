"""Other spellings of values, from a list of surfaces and what they stand for."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from deepjoin.embed.columns.reasons import reason
from deepjoin.errors import DeepJoinError
from deepjoin.lab.training.columns import TrainingColumns
from deepjoin.normalise.canonical import canonical

Int = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Spellings:
    """For each value, the numbers of the strings it could be spelled as instead."""

    strings: list[str]
    numbers: Int
    offsets: Int

    @classmethod
    def of(
        cls, columns: TrainingColumns, pairs: Iterable[tuple[str, str]], profile: str
    ) -> Spellings:
        """Find the values of columns among surfaces; those of one meaning stand for each other."""
        meant: dict[str, dict[str, None]] = defaultdict(dict)
        for surface, meaning in pairs:
            meant[meaning].update(dict.fromkeys((surface, meaning)))
        numbers: dict[str, int] = {}
        known = known_values(columns, profile)
        others: dict[int, set[int]] = defaultdict(set)
        for surfaces in meant.values():
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
        """Write all to one file."""
        strings = np.frombuffer(json.dumps(self.strings).encode(), np.uint8)
        with path.open("wb") as file:
            np.savez(file, strings=strings, numbers=self.numbers, offsets=self.offsets)

    @classmethod
    def read(cls, path: Path) -> Spellings:
        """Read what `write` wrote."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                strings = json.loads(arrays["strings"].tobytes())
                return cls(strings, arrays["numbers"], arrays["offsets"])
        except (OSError, EOFError, ValueError, KeyError, RuntimeError, BadZipFile) as error:
            raise DeepJoinError(
                f"The spellings to train with, {path}, cannot be read: {reason(error)} "
                "Remove the folder and train again."
            ) from None

    def draw(self, values: Int, share: float, random: np.random.Generator) -> Int:
        """Draw another spelling for a share of the values; -1 where one stays as it is."""
        first, last = self.offsets[values], self.offsets[values + 1]
        other = (last > first) & (random.random(len(values)) < share)
        drawn = np.full(len(values), -1)
        drawn[other] = self.numbers[random.integers(first[other], last[other])]
        return drawn


def known_values(columns: TrainingColumns, profile: str) -> dict[str, int]:
    """Give the number of each canonical value."""
    values, places = np.unique(columns.values, return_index=True)
    cells = columns.cells.take(pa.array(places)).to_pylist()
    return {
        canonical(cell, profile) or "": value
        for cell, value in zip(cells, values.tolist(), strict=True)
    }


def read_aliases(path: Path) -> list[tuple[str, str]]:
    """Read surfaces and what they stand for from a Parquet file, columns surface and entity."""
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
