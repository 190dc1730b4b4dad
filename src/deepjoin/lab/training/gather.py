"""Columns of a lake to train on: text that says something, a sample if there are many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from deepjoin.errors import DeepJoinError
from deepjoin.lab.training.columns import TrainingColumns
from deepjoin.model import Column
from deepjoin.store.column_vectors import segment_columns
from deepjoin.store.segment import Segment

if TYPE_CHECKING:
    from deepjoin.lake import Lake

Int = npt.NDArray[np.int64]

#: Tables, at least: two to join with each other and one to validate with.
_TABLES = 3


def gather(lake: Lake, most: int, seed: int) -> TrainingColumns:
    """Take columns of text from a lake, ``most`` of them at random if there are more."""
    if lake.settings.hash_only:
        raise DeepJoinError(
            f"{lake.location} keeps hashes instead of cells, and an encoder learns from cells. "
            "Train on the tables themselves, or on an index made without --hash-only."
        )
    chosen = [_text_columns(segment) for segment in lake.index.segments]
    chosen = _sampled(chosen, most, seed)
    columns, tables = (
        zip(*_read(lake.index.segments, chosen), strict=True) if _any(chosen) else ((), ())
    )
    if len(set(tables)) < _TABLES:
        raise DeepJoinError(
            f"{lake.location} has {len(columns)} columns of text in {len(set(tables))} tables, and "
            "training joins tables with each other. Give more tables."
        )
    return TrainingColumns.of(columns, tables, lake.settings.profile)


def _any(chosen: list[Int]) -> bool:
    return any(len(numbers) for numbers in chosen)


def _text_columns(segment: Segment) -> Int:
    catalog = segment.catalog
    size = segment.values.columns
    wanted = np.ones(size, np.bool_) if segment.dead is None else ~segment.dead
    wanted &= np.asarray(catalog.column_generic) == 0
    wanted &= np.array([catalog.type_name(one) == "text" for one in range(size)], np.bool_)
    return np.flatnonzero(wanted)


def _sampled(chosen: list[Int], most: int, seed: int) -> list[Int]:
    sizes = [len(numbers) for numbers in chosen]
    if sum(sizes) <= most:
        return chosen
    kept = np.sort(np.random.default_rng(seed).choice(sum(sizes), most, replace=False))
    starts = np.cumsum([0, *sizes])
    return [
        numbers[kept[(kept >= start) & (kept < start + len(numbers))] - start]
        for numbers, start in zip(chosen, starts, strict=False)
    ]


def _read(segments: Sequence[Segment], chosen: list[Int]) -> Iterator[tuple[Column, int]]:
    first = 0
    for segment, numbers in zip(segments, chosen, strict=True):
        tables = np.asarray(segment.catalog.column_tables)[numbers] + first
        yield from zip(segment_columns(segment, numbers), tables.tolist(), strict=True)
        first += len(segment.catalog.table_names)
