"""The cell vectors of a segment: one for each distinct value, from one encoder, in its folder."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deepjoin.arrays import Float, Hashes, Int, Marks, find_sorted, load_array, load_strings
from deepjoin.checksums import read_verified
from deepjoin.embed.cells import CellEncoder, encode_many, has_meaning
from deepjoin.embed.list_build import LISTS_FROM, write_value_lists
from deepjoin.embed.packed import PackedRows
from deepjoin.embed.scan import CandidatePairs
from deepjoin.embed.value_vectors import (
    LIST_FILES,
    ValueLists,
    ValueRows,
    ValueVectors,
    new_rotation,
    packed,
    write_in_order,
)
from deepjoin.errors import DeepJoinError
from deepjoin.memory import DEFAULT, rows_at_once
from deepjoin.progress import Progress, no_progress, worker_threads
from deepjoin.store.values.index import ValueIndex

#: Stored vectors, the numbers of some of their values, and these values' numbers in a copy.
CopiedFrom = tuple[ValueVectors, Int, Int]

#: Where they are in the folder of a segment.
FOLDER = Path("vectors") / "cells"
_ABOUT = "about.json"
#: Values encoded at a time: words that occur again are looked up once, yet a block takes only two
#: seconds, for which Ctrl-C in a notebook waits.
_BLOCK = 1 << 16
#: Bytes that a number of a vector takes while it is encoded, rotated and rounded.
_NUMBER_BYTES = 20
#: The most values that a merge encodes because no part has them; beyond, all are encoded.
_MISSING = 1 << 17
#: Vectors copied at a time.
_COPIED = 1 << 16


class CellVectors:
    """The stored vectors of a segment, mapped at once: a merge may remove its folder."""

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
            about = json.loads(read_verified(folder / _ABOUT))
        except FileNotFoundError:
            return None
        return cls(folder, str(about["name"]), str(about["digest"]))

    @property
    def parts(self) -> list[ValueVectors | ValueLists]:
        """What holds mapped files."""
        return [self.vectors] if self._lists is None else [self.vectors, self._lists]

    @property
    def has_lists(self) -> bool:
        """Whether near values can be found without scanning all values."""
        return self._lists is not None

    def near(
        self, queries: Float, floor: float, threads: int, probes: int | None
    ) -> CandidatePairs:
        """Find the values near each query in ``probes`` lists; None compares all values."""
        if probes is None or self._lists is None:
            return self.vectors.near(queries, floor, threads)
        return self._lists.near(queries, floor, threads, probes)


def write_cell_vectors(
    segment: Path,
    encoder: CellEncoder,
    threads: int,
    progress: Progress = no_progress,
    memory: int = DEFAULT,
) -> None:
    """Encode the values of a segment folder, in their order."""
    values, encode = load_strings(segment, "values"), encode_many(encoder, memory)
    each = _NUMBER_BYTES * encoder.dimension
    size = rows_at_once(memory, each, 1 << 12, _BLOCK, threads + 1)

    rotation = new_rotation(encoder.dimension)

    def made(some: pa.Array) -> ValueRows:
        return packed(encode(some), rotation)

    def blocks() -> Iterator[ValueRows]:
        """Encode block after block, some ahead of the one that is stored."""
        running: deque[Future[ValueRows]] = deque()
        ahead = 0
        with worker_threads(threads) as pool:
            for start in range(0, len(values), size):
                progress(start, len(values), "values")
                while ahead < len(values) and len(running) <= threads:
                    running.append(pool.submit(made, values.slice(ahead, size)))
                    ahead += size
                yield running.popleft().result()
        progress(len(values), len(values), "values")

    folder = segment / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    write_in_order(folder, blocks(), rotation)
    _finish(folder, encoder, threads, progress, memory)


def merge_cell_vectors(
    parts: Sequence[tuple[ValueIndex, CellVectors | None]],
    out: Path,
    encoder: CellEncoder,
    threads: int,
    progress: Progress = no_progress,
    memory: int = DEFAULT,
) -> None:
    """Give a merged segment its vectors: copied from its parts, encoded where none has them."""
    known = [(values, one.vectors) for values, one in parts
             if one is not None and one.digest == encoder.digest]  # fmt: skip
    hashes = load_array(out / "value_hashes.npy")
    strings = load_strings(out, "values")
    meant = np.concatenate([np.zeros(0, bool), *(has_meaning(strings.slice(start, _BLOCK))
                            for start in range(0, len(hashes), _BLOCK))])  # fmt: skip
    missing = meant.copy()
    sources = []
    for values, vectors in known:
        old, new = _same_values(values.hashes, hashes)
        new_here = missing[new]
        sources.append((vectors, old[new_here], new[new_here]))
        missing[new] = False
    left = np.flatnonzero(missing)
    most = rows_at_once(memory, _NUMBER_BYTES * encoder.dimension, 1 << 12, _MISSING)
    # Vectors under several rotations cannot be mixed, and what is missing is held at once.
    if not known or not same_rotation([one for _, one in known]) or len(left) > most:
        write_cell_vectors(out, encoder, threads, progress, memory)
        return
    folder = out / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    encoded = left, encoder.encode(strings.take(pa.array(left)))
    copy_vectors(folder, len(hashes), encoder.dimension, sources, encoded, np.flatnonzero(~meant))
    _finish(folder, encoder, threads, progress, memory)


def _same_values(old: Hashes, new: Hashes) -> tuple[Int, Int]:
    """Match the values of two indexes by their hashes: their numbers in both.

    A hash that several values share identifies none of them.
    """

    def shared(hashes: Hashes) -> Marks:
        repeated = np.zeros(len(hashes) + 1, bool)
        repeated[1:-1] = hashes[1:] == hashes[:-1]  # they are in ascending order
        return repeated[1:] | repeated[:-1]

    at = find_sorted(old, new)
    same = (at >= 0) & ~shared(new)
    same[same] = ~shared(old)[at[same]]
    return at[same], np.flatnonzero(same)


def _finish(
    folder: Path, encoder: CellEncoder, threads: int, progress: Progress, memory: int
) -> None:
    """Sort many values into lists, and write which encoder made the vectors."""
    vectors = ValueVectors.open(folder)
    if len(vectors) >= LISTS_FROM:
        write_value_lists(folder, vectors, threads, progress, memory)
    # Last, because vectors without this file count as not there.
    about = {"name": encoder.name, "digest": encoder.digest}
    (folder / _ABOUT).write_text(json.dumps(about), "utf-8")


def same_rotation(vectors: Sequence[ValueVectors]) -> bool:
    """Check whether vectors of all of these can be copied into one segment."""
    return all(np.array_equal(one.rotation, vectors[0].rotation) for one in vectors)


def copy_vectors(
    out: Path,
    count: int,
    dimension: int,
    sources: Sequence[CopiedFrom],
    encoded: tuple[Int, npt.ArrayLike] | None = None,
    without: Int | None = None,
) -> None:
    """Write the vectors of ``count`` values, those of the sources as they are stored there.

    Where two sources have a value, the later counts; ``encoded`` are the numbers of values that
    no source has, and their vectors; values ``without`` meaning get none.
    """
    stored = [vectors for vectors, _, _ in sources]
    if stored and (stored[0].dimension != dimension or not same_rotation(stored)):
        found = sorted({one.dimension for one in stored})
        raise DeepJoinError(
            f"Vectors of dimensions {found} came, where one rotation of dimension {dimension} "
            "is allowed. Encode the values again."
        )
    rotation = stored[0].rotation if stored else new_rotation(dimension)
    parts: list[tuple[Callable[[Int], ValueRows], Int, Int]] = [
        (one.copy, old, new) for one, old, new in sources
    ]
    if encoded is not None:
        numbers, vectors = encoded
        fresh = np.asarray(vectors, np.float32)

        def encode(rows: Int) -> ValueRows:
            return packed(fresh[rows], rotation)

        parts.append((encode, np.arange(len(numbers)), numbers))
    if without is not None:

        def nothing(rows: Int) -> ValueRows:
            return ValueRows(np.zeros(len(rows), bool), PackedRows.none(dimension))

        parts.append((nothing, np.zeros(len(without), np.int64), without))
    #: For every value of the copy: the part that has it, and its place there.
    owner, row = np.full(count, -1, np.int32), np.zeros(count, np.int64)
    for number, (_, places, values) in enumerate(parts):
        owner[values], row[values] = number, places
    missing = np.flatnonzero(owner < 0)
    if len(missing):
        raise DeepJoinError(
            f"{len(missing)} of {count} values have no vector, the first is {missing[0]}. "
            "Give a vector for every value no source has."
        )

    def blocks() -> Iterator[ValueRows]:
        for start in range(0, count, _COPIED):
            owners, places = owner[start : start + _COPIED], row[start : start + _COPIED]
            there, found = np.zeros(len(owners), bool), []
            values = [np.zeros(0, np.int64)]
            for number, (copy, _, _) in enumerate(parts):
                mine = np.flatnonzero(owners == number)
                if len(mine):
                    block = copy(places[mine])
                    there[mine] = block.there
                    values.append(mine[block.there])
                    found.append(block.rows)
            rows = PackedRows.concatenate(found, dimension)
            yield ValueRows(there, rows.some(np.argsort(np.concatenate(values))))

    write_in_order(out, blocks(), rotation)
