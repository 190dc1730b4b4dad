"""The cell vectors of a segment: one for each distinct value, from one encoder, in its folder."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deepjoin.arrays import load_array, load_strings
from deepjoin.embed.cells import CellEncoder
from deepjoin.embed.list_build import FROM as LISTS_FROM
from deepjoin.embed.list_build import write_value_lists
from deepjoin.embed.scan import CandidatePairs
from deepjoin.embed.value_vectors import LIST_FILES, ValueLists, ValueVectors, write_vectors
from deepjoin.store.copying import copy_vectors, same_rotation
from deepjoin.store.values.index import ValueIndex

Int = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Hashes = npt.NDArray[np.uint64]
#: Told how many values are done, of how many.
Told = Callable[[int, int], None]

#: Where they are in the folder of a segment.
FOLDER = Path("vectors") / "cells"
_ABOUT = "about.json"
#: Values encoded at a time: words that occur again are looked up once.
_BLOCK = 1 << 17


class CellVectors:
    """The stored vectors of a segment, mapped at once: its folder may go while it is open."""

    def __init__(self, folder: Path, name: str, digest: str) -> None:
        self.folder, self.name, self.digest = folder, name, digest
        self.vectors = ValueVectors.open(folder)
        there = (folder / LIST_FILES[0]).exists()
        self._lists = ValueLists(folder, self.vectors) if there else None

    @classmethod
    def open(cls, segment: Path) -> CellVectors | None:
        """Open those of a segment; None if it has none."""
        folder = segment / FOLDER
        try:
            about = json.loads((folder / _ABOUT).read_bytes())
        except FileNotFoundError:
            return None
        return cls(folder, str(about["name"]), str(about["digest"]))

    @property
    def has_lists(self) -> bool:
        """Whether near values can be found without looking at all."""
        return self._lists is not None

    def near(self, queries: Floats, floor: float, threads: int, complete: bool) -> CandidatePairs:
        """Find the values near each query: all of them if that is asked for or easy."""
        if complete or self._lists is None:
            return self.vectors.near(queries, floor, threads)
        return self._lists.near(queries, floor, threads)


def write_cell_vectors(
    segment: Path, encoder: CellEncoder, threads: int, told: Told = lambda done, total: None
) -> None:
    """Encode the values of a segment folder, in their order."""
    folder = _prepared(segment)
    values = load_strings(segment, "values")
    write_vectors(folder, _encoded(values, encoder, threads, told), encoder.dimension)
    _finish(folder, encoder, threads)


def merge_cell_vectors(
    parts: Sequence[tuple[ValueIndex, CellVectors | None]],
    out: Path,
    encoder: CellEncoder,
    threads: int,
) -> None:
    """Give a merged segment its vectors: copied from its parts, encoded where none has them."""
    known = [(values, one.vectors) for values, one in parts
             if one is not None and one.digest == encoder.digest]  # fmt: skip
    if not known or not same_rotation([vectors for _, vectors in known]):
        write_cell_vectors(out, encoder, threads)
        return
    folder = _prepared(out)
    hashes = load_array(out / "value_hashes.npy")
    missing = np.ones(len(hashes), bool)
    sources = []
    for values, vectors in known:
        old, new = _same_values(values.hashes, hashes)
        new_here = missing[new]
        sources.append((vectors, old[new_here], new[new_here]))
        missing[new] = False
    left = np.flatnonzero(missing)
    if len(left) > _BLOCK:  # more than is to be held at once
        write_cell_vectors(out, encoder, threads)
        return
    strings = load_strings(out, "values").take(pa.array(left))
    copy_vectors(folder, len(hashes), encoder.dimension, sources, (left, encoder.encode(strings)))
    _finish(folder, encoder, threads)


def _same_values(old: Hashes, new: Hashes) -> tuple[Int, Int]:
    """Find the numbers that values of one index have in another, those with a hash of their own."""
    if len(old) == 0 or len(new) == 0:
        return (np.zeros(0, np.int64),) * 2
    at = np.minimum(np.searchsorted(old, new), len(old) - 1)
    same = (old[at] == new) & _alone(new) & _alone(old)[at]
    return at[same].astype(np.int64), np.flatnonzero(same)


def _alone(hashes: Hashes) -> npt.NDArray[np.bool_]:
    """Mark the hashes, in ascending order, that no other value has."""
    repeated = hashes[1:] == hashes[:-1]
    alone: npt.NDArray[np.bool_] = ~(np.append(repeated, False) | np.insert(repeated, 0, False))
    return alone


def _prepared(segment: Path) -> Path:
    folder = segment / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _finish(folder: Path, encoder: CellEncoder, threads: int) -> None:
    """Put many values into lists, and say who made the vectors, which makes them whole."""
    vectors = ValueVectors.open(folder)
    if len(vectors) >= LISTS_FROM:
        write_value_lists(folder, vectors, threads)
    about = {"name": encoder.name, "digest": encoder.digest}
    (folder / _ABOUT).write_text(json.dumps(about), "utf-8")


def _encoded(values: pa.Array, encoder: CellEncoder, threads: int, told: Told) -> Iterator[Floats]:
    """Encode block after block, some ahead of the one that is stored."""
    running: deque[Future[Floats]] = deque()
    done = 0
    with ThreadPoolExecutor(threads) as pool:
        for start in range(0, len(values), _BLOCK):
            running.append(pool.submit(encoder.encode, values.slice(start, _BLOCK)))
            if len(running) > threads:
                block = running.popleft().result()
                done += len(block)
                yield block
                told(done, len(values))
        while running:
            yield running.popleft().result()
