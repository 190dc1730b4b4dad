"""Search a vector index: the nearest vectors, some of them out of the lake."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepjoin.errors import DeepJoinError, IndexUnusable
from deepjoin.vectors.build import ABOUT, FORMAT, INDEX, MEMBERS, OFFSETS, ROWS, checked, prepared
from deepjoin.vectors.kinds import KINDS, faiss_threads

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float32]
Marks = npt.NDArray[np.bool_]


class Nearest(NamedTuple):
    """Ids, nearest first, equal distances by id; cosine distance is 1 less the cosine."""

    ids: Int
    distances: npt.NDArray[np.float64]


class VectorIndex:
    """The vectors of one segment, mapped from its folder when first searched."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            about = json.loads((folder / ABOUT).read_text())
        except (OSError, ValueError) as error:
            raise IndexUnusable(
                f"{folder} has no vector index that can be read ({error}). Build the index again."
            ) from None
        if about["format"] > FORMAT:
            raise IndexUnusable(
                f"The vector index in {folder} has format {about['format']}; this version reads "
                f"up to {FORMAT}. Install a newer deepjoin."
            )
        self.kind, self.metric = str(about["kind"]), str(about["metric"])
        self.dimension, self._count = int(about["dimension"]), int(about["vectors"])
        self._different, self._how = int(about["different"]), KINDS[self.kind]
        self._offsets = np.load(folder / OFFSETS, mmap_mode="r")
        self._members = np.load(folder / MEMBERS, mmap_mode="r")

    def __len__(self) -> int:
        return self._count

    @cached_property
    def _faiss(self) -> Any:
        with faiss_threads(1) as faiss:
            return faiss.read_index(str(self._folder / INDEX), faiss.IO_FLAG_MMAP_IFC)

    @cached_property
    def _rows(self) -> npt.NDArray[np.float16]:
        rows: npt.NDArray[np.float16] = np.load(self._folder / ROWS, mmap_mode="r")
        return rows

    def search(self, query: npt.ArrayLike, k: int, excluded: Marks | None = None) -> Nearest:
        """Return the nearest k ids, or all there are, without those marked as excluded."""
        if k < 0:
            raise DeepJoinError(f"k is {k}; it is 0 or more.")
        given = np.asarray(query, np.float32)
        row = prepared(checked(given.reshape(1, -1), self.dimension), self.metric)
        live = self._live(excluded)
        wanted = min(k, self._different if live is None else int(live.sum()))
        if wanted == 0:
            return Nearest(np.zeros(0, np.int64), np.zeros(0))
        groups, distances = self._groups(row, wanted, live)
        return self._expanded(groups, distances, k, excluded)

    @cached_property
    def _group_of(self) -> Int:
        groups = np.empty(self._count, np.int64)
        groups[self._members] = np.repeat(np.arange(self._different), np.diff(self._offsets))
        return groups

    def _live(self, excluded: Marks | None) -> Marks | None:
        """Mark the different vectors that stand for an id still there; None for all."""
        if excluded is None:
            return None
        if len(excluded) != self._count:
            raise DeepJoinError(
                f"{len(excluded)} marks came for {self._count} vectors. Give one for each."
            )
        groups, dead = np.unique(self._group_of[np.flatnonzero(excluded)], return_counts=True)
        gone = groups[dead == self._offsets[groups + 1] - self._offsets[groups]]
        live = np.ones(self._different, bool)
        live[gone] = False
        return live if len(gone) else None

    def _groups(self, row: Float, wanted: int, live: Marks | None) -> tuple[Int, Any]:
        """Search, harder and harder, until as many were found as there must be."""
        fetched = max(wanted, min(self._different, wanted * self._how.rerank))
        effort = max(self._how.effort, fetched if self._how.effort_of == "efSearch" else 0)
        while True:
            values, groups = self._ask(row, fetched, live, effort)
            if len(groups) >= wanted or not self._how.effort_of:
                break
            if effort >= self._different:
                return self._scanned(row, wanted, live)
            effort *= 4
        if self._how.rerank:
            values = self._measured(row, self._rows[groups].astype(np.float32))
        return groups, values

    def _ask(self, row: Float, k: int, live: Marks | None, effort: int) -> tuple[Any, Int]:
        """Search once; Faiss fills up with -1 what it does not find."""
        with faiss_threads(1) as faiss:
            selector = (
                None
                if live is None
                else faiss.IDSelectorBitmap(np.packbits(live, bitorder="little"))
            )
            effort_of = self._how.effort_of
            parameters = {
                "efSearch": faiss.SearchParametersHNSW,
                "nprobe": faiss.SearchParametersIVF,
                "": faiss.SearchParameters,
            }[effort_of](sel=selector, **({effort_of: effort} if effort_of else {}))
            values, groups = self._faiss.search(row, k, params=parameters)
        found = groups[0] >= 0
        return self._distances(values[0][found]), groups[0][found]

    def _distances(self, values: Float) -> npt.NDArray[np.float64]:
        """Turn what Faiss returns, products or squares, into distances."""
        exact = values.astype(np.float64)
        return np.asarray(1 - exact if self.metric == "cosine" else np.sqrt(np.maximum(exact, 0)))

    def _measured(self, row: Float, rows: Float) -> npt.NDArray[np.float64]:
        if self.metric == "cosine":
            return np.asarray(1 - rows.astype(np.float64) @ row[0].astype(np.float64))
        return np.asarray(np.linalg.norm((rows - row).astype(np.float64), axis=1))

    def _scanned(self, row: Float, wanted: int, live: Marks | None) -> tuple[Int, Any]:
        """Compare with every vector: a graph may not lead to all that are left."""
        groups = np.arange(self._different) if live is None else np.flatnonzero(live)
        if self._how.effort_of == "nprobe":
            self._faiss.make_direct_map()
        rows = np.stack([self._faiss.reconstruct(i) for i in groups.tolist()])
        distances = self._measured(row, rows)
        best = np.lexsort((groups, distances))[:wanted]
        return groups[best], distances[best]

    def _expanded(self, groups: Int, distances: Any, k: int, excluded: Marks | None) -> Nearest:
        """Put the ids in the place of the vectors they share, and cut at k."""
        starts, stops = self._offsets[groups], self._offsets[groups + 1]
        ids = [self._members[start:stop] for start, stop in zip(starts, stops, strict=True)]
        each = np.repeat(distances, stops - starts)
        members = np.concatenate(ids)
        if excluded is not None:
            members, each = members[~excluded[members]], each[~excluded[members]]
        best = np.lexsort((members, each))[:k]
        return Nearest(members[best], each[best])
