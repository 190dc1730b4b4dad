"""Search a vector index for the nearest rows, without those removed from the lake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import Double, Float, Half, Int, Integers, Marks, load_array
from deepjoin.checksums import read_verified, verify_file
from deepjoin.embed.vector_build import (
    ABOUT,
    FORMAT,
    INDEX,
    KINDS,
    MEMBERS,
    OFFSETS,
    checked,
    faiss_threads,
    load_rows,
    prepared,
    widened,
)
from deepjoin.errors import DeepJoinError, IndexUnusable
from deepjoin.lazy import cached_property

#: Digits of a distance; closer ones count as equal, since rows have half precision.
_DIGITS = 6
#: The most candidates that are reranked, unless k is larger.
_RERANKED = 4096
#: Bound on the error of single precision, relative to the largest distance.
_SLACK = 1e-5
#: Rows compared at a time: few enough for the L1 cache.
_BLOCK = 1 << 8


class Nearest(NamedTuple):
    """Ids, nearest first; the cosine distance is 1 minus the cosine."""

    ids: Int
    distances: Double


def nearest_first(ids: Int, distances: Double, k: int | None, order: Integers | None) -> Nearest:
    """Return the nearest k; ``order`` ranks equal distances, without it the lower id is first."""
    best = np.lexsort((ids if order is None else order[ids], distances))[:k]
    return Nearest(ids[best], distances[best])


class VectorIndex:
    """The vectors of one segment, mapped from their folder when first searched."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            about = json.loads(read_verified(folder / ABOUT))
        except (OSError, ValueError) as error:
            raise IndexUnusable(
                f"{folder} has no vector index that can be read ({error}). Build the index again."
            ) from None
        if about["format"] > FORMAT:
            raise IndexUnusable(
                f"The vector index in {folder} has format {about['format']}; this version reads "
                f"up to {FORMAT}. Install a newer deepjoin."
            )
        if about["kind"] not in KINDS:
            raise IndexUnusable(
                f"The vector index in {folder} is of the kind '{about['kind']}', which this "
                "version does not know. Install a newer deepjoin."
            )
        self.kind, self.metric = str(about["kind"]), str(about["metric"])
        self.dimension, self._count = int(about["dimension"]), int(about["vectors"])
        self._different, self._how = int(about["different"]), KINDS[self.kind]

    def __len__(self) -> int:
        return self._count

    @cached_property
    def _faiss(self) -> Any:
        with faiss_threads(1) as faiss:
            path = verify_file(self._folder / INDEX)
            return faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)

    @cached_property
    def rows(self) -> Half:
        """The stored rows, mapped."""
        return load_rows(self._folder)

    @cached_property
    def _offsets(self) -> Int:
        return np.asarray(load_array(self._folder / OFFSETS), np.int64)

    @cached_property
    def _members(self) -> Int:
        return np.asarray(load_array(self._folder / MEMBERS), np.int64)

    @cached_property
    def _whole(self) -> tuple[Float, Float]:
        """All rows of an index that is scanned, held in memory, and their squared lengths."""
        rows = widened(self.rows)
        return rows, np.einsum("ij,ij->i", rows, rows)

    def search(
        self,
        query: npt.ArrayLike,
        k: int,
        excluded: Marks | None = None,
        order: Integers | None = None,
    ) -> Nearest:
        """Return the nearest k ids, or all there are, without those marked as excluded.

        ``order`` ranks the ids where distances are equal; without it, the lower comes first.
        """
        if k < 0:
            raise DeepJoinError(f"k is {k}; it is 0 or more.")
        if excluded is not None and len(excluded) != self._count:
            raise DeepJoinError(
                f"{len(excluded)} marks came for {self._count} vectors. Give one for each."
            )
        row = checked(np.asarray(query, np.float32).reshape(1, -1), self.dimension)
        if k == 0 or self._count == 0:
            return Nearest(np.zeros(0, np.int64), np.zeros(0))
        return nearest_first(*self._candidates(row, k, excluded), k, order)

    def _candidates(self, row: Float, k: int, excluded: Marks | None) -> tuple[Int, Double]:
        """Return the nearest k and all as near as the k-th, in any order."""
        if not self._how.factory:
            return self._scanned(row, k, excluded)
        live = self._live(excluded)
        wanted = min(k, self._different if live is None else int(live.sum()))
        found = self._groups(prepared(row, self.metric), wanted, live) if wanted else None
        if found is None:
            return self._scanned(row, k, excluded)
        groups, distances = found
        if self._how.rerank:
            at = self._members[self._offsets[groups]]
            near = self._near(self._rough(row, at), wanted)
            groups, distances = groups[near], self.measured(row, at[near])
        sizes = self._offsets[groups + 1] - self._offsets[groups]
        starts = np.repeat(self._offsets[groups] - np.cumsum(sizes) + sizes, sizes)
        ids, each = self._members[starts + np.arange(sizes.sum())], np.repeat(distances, sizes)
        return (ids, each) if excluded is None else (ids[~excluded[ids]], each[~excluded[ids]])

    @cached_property
    def _group_of(self) -> Int:
        groups = np.empty(self._count, np.int64)
        groups[self._members] = np.repeat(np.arange(self._different), np.diff(self._offsets))
        return groups

    def _live(self, excluded: Marks | None) -> Marks | None:
        """Mark the distinct vectors that have an id still in the lake; None for all."""
        if excluded is None:
            return None
        groups, dead = np.unique(self._group_of[np.flatnonzero(excluded)], return_counts=True)
        gone = groups[dead == self._offsets[groups + 1] - self._offsets[groups]]
        live = np.ones(self._different, bool)
        live[gone] = False
        return live if len(gone) else None

    def _groups(self, row: Float, wanted: int, live: Marks | None) -> tuple[Int, Double] | None:
        """Search with growing effort until enough were found; None if the index cannot."""
        how = self._how
        again = min(wanted * how.rerank, max(_RERANKED, 2 * wanted))
        if live is not None and not how.marks:  # most of those found may be excluded
            again = again * self._different // int(live.sum())
        fetched = max(wanted, min(self._different, again))
        effort = max(how.effort, fetched if how.effort_of == "efSearch" else 0)
        most = self._faiss.nlist if how.effort_of == "nprobe" else self._different
        while True:
            groups, distances = self._ask(row, fetched, live if how.marks else None, effort)
            if live is not None and not how.marks:
                groups, distances = groups[live[groups]], distances[live[groups]]
            if len(groups) >= wanted:
                return groups, distances
            if not how.effort_of or effort >= most:
                return None
            effort *= 4

    def _ask(self, row: Float, k: int, live: Marks | None, effort: int) -> tuple[Int, Double]:
        """Search once; Faiss pads with -1 what it does not find."""
        effort_of = self._how.effort_of
        with faiss_threads(1) as faiss:
            how = None
            if self._how.marks or effort_of:
                packed = None if live is None else np.packbits(live, bitorder="little")
                kind = {
                    "efSearch": faiss.SearchParametersHNSW,
                    "nprobe": faiss.SearchParametersIVF,
                    "": faiss.SearchParameters,
                }[effort_of]
                how = kind(
                    sel=None if packed is None else faiss.IDSelectorBitmap(packed),
                    **({effort_of: effort} if effort_of else {}),
                )
            values, groups = self._faiss.search(row, k, params=how)
        found = groups[0] >= 0
        exact = values[0][found].astype(np.float64)
        distances = 1 - exact if self.metric == "cosine" else np.sqrt(np.maximum(exact, 0))
        return groups[0][found], np.round(distances, _DIGITS)

    def nearest_of(self, query: npt.ArrayLike, ids: Int, k: int) -> tuple[Int, Double]:
        """Return where the nearest k of some ids are, with all as near, and their distances."""
        row = checked(np.asarray(query, np.float32).reshape(1, -1), self.dimension)
        near = self._near(self._rough(row, ids), k)
        return near, self.measured(row, ids[near])

    def measured(self, query: npt.ArrayLike, ids: Int) -> Double:
        """Return exact distances; each is independent of the other ids."""
        row = checked(np.asarray(query, np.float32).reshape(1, -1), self.dimension)
        rows, wanted = self.rows[ids].astype(np.float64), row[0].astype(np.float64)
        if self.metric == "euclidean":
            rows -= wanted
            return np.asarray(np.round(np.sqrt(np.einsum("ij,ij->i", rows, rows)), _DIGITS))
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows) * (wanted @ wanted))
        products = np.einsum("ij,j->i", rows, wanted)
        return np.asarray(np.round(1 - products / np.where(lengths > 0, lengths, 1), _DIGITS))

    def _scanned(self, row: Float, k: int, excluded: Marks | None) -> tuple[Int, Double]:
        """Compare with every row in single precision, then with the nearest exactly."""
        ids = np.arange(self._count) if excluded is None else np.flatnonzero(~excluded)
        if self._how.factory:
            rough = self._rough(row, ids)
        else:
            rough = self._compared(*self._whole, row[0])[ids]
        ids = ids[self._near(rough, k)]
        return ids, self.measured(row, ids)

    def _rough(self, row: Float, ids: Int) -> Float:
        """Compare with some rows in single precision: 1 minus the cosine, or squared distances."""
        parts = [ids[start : start + _BLOCK] for start in range(0, len(ids), _BLOCK)]
        blocks = (widened(self.rows[part]) for part in parts)
        found = [self._compared(b, np.einsum("ij,ij->i", b, b), row[0]) for b in blocks]
        return np.concatenate([np.zeros(0, np.float32), *found])

    def _compared(self, rows: Float, squares: Float, query: Float) -> Float:
        # Not BLAS: its threads keep spinning afterwards and slow the next query's encoding down.
        products = np.einsum("ij,j->i", rows, query)
        if self.metric == "euclidean":
            return np.asarray(squares + query @ query - 2 * products, np.float32)
        lengths = np.sqrt(squares * (query @ query))
        return np.asarray(1 - products / np.where(lengths > 0, lengths, 1), np.float32)

    def _near(self, rough: Float, k: int) -> Int:
        """Return where the nearest k are, with all that may be as near."""
        if k >= len(rough):
            return np.arange(len(rough))
        # Rounding errors grow with the lengths of the vectors, and so with their distances.
        slack = _SLACK * (1 + float(rough.max()))
        return np.flatnonzero(rough <= np.partition(rough, k - 1)[k - 1] + slack)
