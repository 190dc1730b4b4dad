"""Exact search on a GPU: compare a query with every row in one recorded call.

`GpuStore` is the vector store of a lake opened with a device. Needs torch, the extra ``train``.
Everything runs on the CPU too, unrecorded, which is slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from deepjoin.arrays import Array, Float, Int, Integers, Marks, Rows
from deepjoin.embed.devices import device_named
from deepjoin.embed.recorder import Recorder
from deepjoin.embed.vector_build import check_metric, checked
from deepjoin.embed.vector_index import Nearest, VectorIndex, nearest_first
from deepjoin.errors import DeepJoinError

if TYPE_CHECKING:
    from deepjoin.store.column_vectors import ColumnVectors
    from deepjoin.store.segment import Segment

#: Rows sent to the device at a time.
_BLOCK = 1 << 16
#: Searches for more hits than the first are not recorded; the second is the least searched for.
_RECORDED_HITS, _LEAST = 1024, 64
#: Bound on the rounding error of a product in single precision, for vectors of length 1.
_SLACK = 3e-5
#: The second half of a query is scaled by this: unscaled it would underflow half precision.
_LIFT = 2048.0
#: Divisor for a query of zeros.
_TINY = 1e-30
#: Tensor cores multiply by at least this many columns; rows are padded to a multiple of it.
_TILE = 8


class GpuStore:
    """The column vectors of a lake in one space, held on a device; threads share it.

    Every vector is compared, whatever kind of index was built; distances are then measured
    exactly on the rows of the index, so hits are those of an exact search on the processor.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        vectors: Sequence[ColumnVectors],
        space: str,
        *,
        device: str,
    ) -> None:
        self._orders = [np.asarray(segment.catalog.column_order) for segment in segments]
        self._indexes = [DeviceIndex(one.index, device) for one in vectors]

    @property
    def metric(self) -> str:
        """The metric of the vectors: "cosine" or "euclidean"."""
        return self._indexes[0].metric if self._indexes else "cosine"

    def nearest(
        self, vector: Float, k: int | None, excluded: Sequence[Marks | None]
    ) -> list[Nearest]:
        """Search the segments one after the other."""
        return [
            index.search(vector, len(index) if k is None else k, marks, order)
            for index, marks, order in zip(self._indexes, excluded, self._orders, strict=True)
        ]


class DeviceIndex:
    """A vector index whose rows are searched on a device."""

    def __init__(self, index: VectorIndex, device: str) -> None:
        self._index, self.metric = index, index.metric
        self._search = DeviceSearch(index.rows, index.metric, device)

    def __len__(self) -> int:
        return len(self._index)

    def search(
        self,
        query: npt.ArrayLike,
        k: int,
        excluded: Marks | None = None,
        order: Integers | None = None,
    ) -> Nearest:
        """Return the nearest k ids, as `VectorIndex.search` does."""
        if k < 1:
            return Nearest(np.zeros(0, np.int64), np.zeros(0))
        ids = self._search.near(query, k, excluded)
        return nearest_first(ids, self._index.measured(query, ids), k, order)


class DeviceSearch:
    """Rows on a device, compared as half precision holds them; threads may share it."""

    def __init__(self, rows: Rows, metric: str = "cosine", device: str = "cuda") -> None:
        check_metric(metric)
        self.metric, self.dimension, self.device = metric, rows.shape[1], device_named(device)
        try:
            self._rows = _sent(rows, _format(self.device), self.device)
            self._squares = _squares(self._rows)
        except torch.OutOfMemoryError:
            raise DeepJoinError(
                f"The device '{device}' has no room for {len(rows)} vectors of {rows.shape[1]} "
                "numbers. Free some of its memory, or search without a device."
            ) from None
        self._longest = float(self._squares.max()) if len(rows) else 0.0
        # A row of zeros has no direction; its cosine counts as 0.
        self._scales = torch.where(self._squares > 0, self._squares.rsqrt(), 0)
        self._recorder = Recorder(self.device)

    def __len__(self) -> int:
        return len(self._rows)

    def near(self, vector: npt.ArrayLike, k: int, excluded: Marks | None = None) -> Int:
        """Return the nearest k rows that are not excluded, and all that may be as near."""
        query = self._checked(vector)
        # Rows whose scores differ by less than rounding may be in either order.
        slack = _SLACK * (1 + self._longest + float(query @ query))
        wanted = k + (0 if excluded is None else int(excluded.sum()))
        count = _rounded_up(wanted + 1, len(self))
        while True:
            scores, rows = _unpacked(self._packed(query, count))
            # The recording has a fixed size and cannot skip rows, so they are dropped here.
            live = np.ones(count, bool) if excluded is None else ~excluded[rows]
            kept = scores[live]
            least = kept[k - 1] - slack if len(kept) >= k else -np.inf
            if count == len(self) or scores[-1] < least:
                return rows[live & (scores >= least)]
            count = _rounded_up(4 * count, len(self))

    def nearest(self, vector: torch.Tensor, count: int) -> torch.Tensor:
        """Return scores and row numbers in one array of 32-bit integers, so one copy brings both.

        The scores are bits of single precision: the cosine, or the negative squared distance.
        """
        length = vector.norm()
        unit = vector / length.clamp_min(_TINY)
        scores = self._products(torch.nn.functional.pad(unit, (0, -self.dimension % _TILE)))
        if self.metric == "cosine":
            scores = scores * self._scales
        else:
            scores = 2 * length * scores - self._squares - length * length
        best, rows = scores.topk(count)
        return torch.cat([best.contiguous().view(torch.int32), rows.to(torch.int32)])

    def _products(self, unit: torch.Tensor) -> torch.Tensor:
        """Multiply with every row.

        A half holds 11 bits of a number. The query is split into its nearest half and a scaled
        half of what that left over, so nothing of its single precision is lost.
        """
        if self._rows.dtype == torch.float32:
            return self._rows @ unit
        first = unit.half()
        second = ((unit - first.float()) * _LIFT).half()
        rest = first.new_zeros(_TILE - 2, len(first))
        both = _wide_product(self._rows, torch.cat([torch.stack([first, second]), rest]).T)
        return both[:, 0] + both[:, 1] / _LIFT

    def _packed(self, query: Float, count: int) -> Array:
        if count == 0:
            return np.zeros(0, np.int32)
        # Each recording keeps memory on the device, and long answers are rare.
        key = count if count <= _RECORDED_HITS else None
        return self._recorder.run(key, partial(self.nearest, count=count), query)

    def _checked(self, vector: npt.ArrayLike) -> Float:
        row: Float = checked(np.asarray(vector, np.float32).reshape(1, -1), self.dimension)[0]
        return row


def _format(device: torch.device) -> torch.dtype:
    """Choose how rows are held: only GPUs have `_wide_product`."""
    return torch.float16 if device.type == "cuda" else torch.float32


def _wide_product(halves: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Multiply matrices of half precision with sums, and results, in single precision."""
    return torch.mm(halves, others, out_dtype=torch.float32)


def _unpacked(packed: Array) -> tuple[Float, Int]:
    """Split the result of `DeviceSearch.nearest` into scores and numbers of rows."""
    scores, rows = packed.reshape(2, -1)
    return scores.view(np.float32), rows.astype(np.int64)


def _rounded_up(count: int, most: int) -> int:
    """Return the next power of 2, so that few different sizes are recorded.

    >>> _rounded_up(70, 1000), _rounded_up(5, 1000), _rounded_up(5, 30)
    (128, 64, 30)
    """
    return min(most, max(_LEAST, 1 << (count - 1).bit_length()))


def _sent(rows: Rows, kind: torch.dtype, device: torch.device) -> torch.Tensor:
    """Copy rows to a device, as half precision holds them, padded with zeros."""
    width = rows.shape[1] + -rows.shape[1] % _TILE
    held = torch.zeros((len(rows), width), dtype=kind, device=device)
    for start in range(0, len(rows), _BLOCK):
        with np.errstate(over="ignore"):
            block = np.array(rows[start : start + _BLOCK], np.float16)
        bad = np.flatnonzero(~np.isfinite(block).all(axis=1))
        if len(bad):
            raise DeepJoinError(
                f"Row {start + bad[0]} holds NaN or a number over 65504; half precision has "
                "neither. Use an encoder with smaller outputs."
            )
        held[start : start + len(block), : rows.shape[1]] = torch.from_numpy(block).to(device)
    return held


def _squares(rows: torch.Tensor) -> torch.Tensor:
    """Return the squared length of each row."""
    squares = torch.zeros(len(rows), device=rows.device)
    for start in range(0, len(rows), _BLOCK):
        squares[start : start + _BLOCK] = rows[start : start + _BLOCK].float().square().sum(1)
    return squares
