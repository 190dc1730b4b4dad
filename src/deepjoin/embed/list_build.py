"""Build the lists of near values: k-means in two steps, and every value in up to three lists.

A value's second list is the one nearest to it when the part that its first list does not cover
weighs more, the third likewise: a cell near to the value by another part of it finds it there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from deepjoin.arrays import ArrayWriter, Float, Int, Int32
from deepjoin.embed.packed import ZERO_POINT, Codes, QuantisedRows, VectorRows
from deepjoin.embed.scan import LARGEST_SIGNED, Signed, multiplier
from deepjoin.embed.value_vectors import (
    FILES,
    LARGEST_CODE,
    LIST_FILES,
    OLD_FILES,
    OLD_ROWS,
    ValueVectors,
    gaps_of_rows,
    write_order,
    write_rows,
)
from deepjoin.embed.vector_build import faiss_threads
from deepjoin.memory import DEFAULT, rows_at_once
from deepjoin.progress import Progress, no_progress, worker_threads

#: From this many values on, scanning a few lists is faster than scanning all.
LISTS_FROM = 200_000
#: Values in a list if each were in one, and the most lists.
_PER_LIST, _LISTS = 128, 1 << 16
#: Values trained on for each list, and in all.
_SAMPLE, _SAMPLES = 32, 1 << 20
#: Branches are few, so every eighth of these values is enough to find them.
_OF_SAMPLE = 8
_ROUNDS = 8
_SEED = 20221
#: Lists a value is in, branches searched for each, and the weight of what is not covered yet.
_LISTS_OF_ONE, _BRANCHES, _LEFT = 3, 4, 0.5
_BLOCK = 1 << 16
#: As many rows as stay in the processor's cache while they are changed.
_IN_CACHE = 1 << 11
#: Rows assigned to further lists are multiplied by this and rounded to 8 bits: few of their numbers
#: are above one half.
_ROUGH = np.float32(254)
#: Less than any product.
_LEAST = np.iinfo(np.int32).min


def write_value_lists(
    folder: Path,
    vectors: ValueVectors,
    threads: int = 2,
    progress: Progress = no_progress,
    memory: int = DEFAULT,
) -> int:
    """Write lists of the values, and the vectors again in order of the lists; return how many.

    The vectors may be those of the same folder. The same vectors give the same files,
    unless so little memory is allowed that lists are learnt from fewer values.
    """
    each = 4 * vectors.dimension
    most = rows_at_once(memory, each, 1 << 15, _SAMPLES)
    # A block takes about eight times its rows.
    size = rows_at_once(memory, 8 * each, 1 << 12, _BLOCK, threads)
    stored = vectors.stored
    there = np.arange(stored.size)
    if isinstance(stored, QuantisedRows):  # earlier versions stored values without a vector
        there = np.flatnonzero(stored.scales[:] > 0)
    progress(0, len(there), "lists")
    tree = ListTree.trained(stored, there, most, threads)
    blocks = [there[start : start + size] for start in range(0, len(there), size)]
    found = []
    with worker_threads(threads) as pool:
        for some in pool.map(lambda block: tree.lists_of(stored, block), blocks):
            found.append(some)
            progress(min(len(found) * size, len(there)), len(there), "lists")
    lists = [np.concatenate(of) for of in zip(*found, strict=True)] or [np.zeros(0, np.int32)]
    # Rows without a vector, which earlier versions stored, are left out.
    order = there[np.argsort(lists[0], kind="stable")]
    _write_order(folder, vectors, order)
    _write_lists(folder, tree.leaves, lists, there, order)
    return len(tree.leaves)


class ListTree:
    """Branches, each with its leaves; a list belongs to a leaf.

    Rows are compared with both in 8 bits: five times as fast as in single precision where the
    processor multiplies such numbers, and the same on all machines.
    """

    def __init__(self, branches: Float, leaves: list[Float]) -> None:
        self.leaves = np.concatenate([branches[:0], *leaves])
        self._branches = _signed(branches, branches)
        self._leaves = [_signed(some, self.leaves) for some in leaves]
        self._starts = np.cumsum([0, *map(len, leaves)])

    @classmethod
    def trained(
        cls, stored: VectorRows, there: Int, samples: int = _SAMPLES, threads: int = 1
    ) -> ListTree:
        """Find the middles of the lists, on a sample; threads share the branches."""
        count = min(_LISTS, max(1, len(there) // _PER_LIST))
        most = min(_SAMPLE * count, samples)
        if len(there) > most:
            chosen = np.random.default_rng(_SEED).choice(len(there), most, replace=False)
            there = there[np.sort(chosen)]
        rows = stored.take(there).floats()
        # One thread for each k-means: sums depend on how the work is shared.
        with faiss_threads(1) as faiss:
            branches = _middles(faiss, rows[::_OF_SAMPLE], round(count**0.5))
            index = faiss.IndexFlatIP(rows.shape[1])
            index.add(branches)
            nearest = index.search(rows, 1)[1][:, 0]

        def leaves_of(branch: int) -> Float:
            mine = rows[nearest == branch]
            with faiss_threads(1):
                return _middles(faiss, mine, max(1, round(count * len(mine) / len(rows))))

        with worker_threads(threads) as pool:
            return cls(branches, list(pool.map(leaves_of, range(len(branches)))))

    def nearest(self, codes: Codes) -> Int32:
        """Return the leaf nearest to each row, in the branches nearest to it."""
        multiply, every = multiplier(1), np.arange(len(codes))
        branches = np.empty((min(_BRANCHES, len(self._leaves)), len(codes)), np.int16)
        for start in range(0, len(codes), _IN_CACHE):
            products = multiply(codes[start : start + _IN_CACHE], self._branches)
            for nearest in branches[:, start : start + _IN_CACHE]:
                nearest[:] = products.argmax(axis=1)
                products[every[: len(products)], nearest] = _LEAST
        members = np.argsort(branches, axis=None, kind="stable") % max(1, len(codes))
        ends = np.cumsum(np.bincount(branches.ravel(), minlength=len(self._leaves)))
        best = np.full(len(codes), _LEAST, np.int32)
        leaves = np.zeros(len(codes), np.int32)
        for branch, (signed, end) in enumerate(zip(self._leaves, ends.tolist(), strict=True)):
            mine = members[ends[branch - 1] if branch else 0 : end]
            if len(mine) == 0:
                continue
            products = multiply(codes[mine], signed)
            found = products.argmax(axis=1)
            likeness = products[every[: len(mine)], found]
            better = likeness > best[mine]
            best[mine[better]] = likeness[better]
            leaves[mine[better]] = self._starts[branch] + found[better]
        return leaves

    def lists_of(self, stored: VectorRows, rows: Int) -> list[Int32]:
        """Return the first list of each of some rows, the second of each, and so on."""
        found = stored.take(rows)
        codes, own = found.codes, found.floats()
        towards = own.copy()
        lists = [self.nearest(codes)]
        while len(lists) < _LISTS_OF_ONE:
            for start in range(0, len(rows), _IN_CACHE):
                here = slice(start, start + _IN_CACHE)
                left = own[here] - self.leaves[lists[-1][here]]
                lengths = np.sqrt(np.einsum("ij,ij->i", left, left))
                left *= (_LEFT / np.maximum(lengths, 1e-6))[:, None]
                towards[here] += left
                np.multiply(towards[here], _ROUGH, out=left)
                left += ZERO_POINT + np.float32(0.5)
                codes[here] = np.clip(left, 1, 255, out=left)
            lists.append(self.nearest(codes))
        return lists


def _signed(middles: Float, among: Float) -> Signed:
    """Round middles, with one scale for all they are compared among, and transpose them."""
    step = np.abs(among).max(initial=1e-6) / LARGEST_SIGNED
    return np.ascontiguousarray(np.rint(middles / step).astype(np.int8).T)


def _middles(faiss: Any, rows: Float, count: int) -> Float:
    """Cluster unit vectors; there are never more clusters than vectors."""
    count = min(count, len(rows))
    if count == 0:
        return rows[:0]
    clustering = faiss.Clustering(rows.shape[1], count)
    clustering.niter, clustering.seed, clustering.spherical = _ROUNDS, _SEED, True
    clustering.min_points_per_centroid = 1  # or it complains on stderr
    clustering.max_points_per_centroid = len(rows)
    clustering.train(rows, faiss.IndexFlatIP(rows.shape[1]))
    found: Float = faiss.vector_to_array(clustering.centroids).reshape(count, -1)
    return found


def _write_lists(folder: Path, centres: Float, lists: list[Int32], there: Int, order: Int) -> None:
    """Write the centres and the members of each list, as places in the new order."""
    places = np.empty(int(there.max(initial=-1)) + 1, np.int32)
    places[order] = np.arange(len(order), dtype=np.int32)
    owners, members = [], []
    for i, mine in enumerate(lists):
        new = np.ones(len(mine), bool)  # a row is in a list once
        for before in lists[:i]:
            new &= mine != before
        owners.append(mine[new])
        members.append(places[there[new]])
    owner, member = np.concatenate(owners), np.concatenate(members)
    # One sort of whole numbers is many times faster than one by two keys.
    rows = np.sort(owner.astype(np.int64) << 32 | member) & 0xFFFFFFFF
    starts = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(centres)))])
    gaps, offsets = gaps_of_rows(rows, starts)
    scale = np.abs(centres).max(initial=1e-6) / LARGEST_CODE
    codes = (np.rint(centres / scale) + ZERO_POINT).astype(np.uint8)
    (folder / OLD_ROWS).unlink(missing_ok=True)
    for name, array in zip(LIST_FILES, (codes.ravel(), offsets, gaps), strict=True):
        with ArrayWriter(folder / name, array.dtype) as to:
            to.append(array)


def _write_order(folder: Path, vectors: ValueVectors, order: Int) -> None:
    """Write rows in another order, first beside the files that may hold them now."""
    values = vectors.values_of(order).astype(np.int32)
    beside = [folder / f"{name}.new" for name in FILES]
    starts = range(0, len(order), _BLOCK)
    blocks = (vectors.packed(order[start : start + _BLOCK]) for start in starts)
    write_rows(beside, blocks, vectors.rotation)
    for name in OLD_FILES:
        (folder / name).unlink(missing_ok=True)
    for path, name in zip(beside, FILES, strict=True):
        path.replace(folder / name)
    write_order(folder, values, vectors.count)
