"""Exact search on a GPU: a query is compared with every row at once, in one recorded call.

Needs torch, the extra ``train``. Everything runs on the CPU too, unrecorded, which is slower.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from deepjoin.embed.devices import device_named
from deepjoin.embed.vector_index.build import Rows, checked
from deepjoin.embed.vector_index.kinds import check_metric
from deepjoin.errors import DeepJoinError

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float32]
Marks = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]
Function = Callable[[torch.Tensor], torch.Tensor]

#: Parts of torch's own are without types.
_cuda: Any = torch.cuda
#: Runs before a recording: libraries look for their fastest kernels the first time.
_WARM_UPS = 3
#: A process may record one graph at a time.
_RECORDING = Lock()
#: Rows sent to the device at a time.
_BLOCK = 1 << 16
#: Results are recorded for so many hits at most, and looked for at so many at least.
_RECORDED, _LEAST = 1024, 64
#: How far a product of single precision may be from the number itself, lengths being 1.
_SLACK = 3e-5
#: The second half of a query is scaled by this: unscaled it would be too small for its format.
_LIFT = 2048.0
#: What a query of zeros is divided by.
_TINY = 1e-30
#: Tensor cores multiply by so many columns at least, and rows are padded to as many numbers.
_TILE = 8


class Recorder:
    """Runs functions of one small array on a device; each gives one array back.

    On a GPU the work of a function is recorded, once for each key, and then replayed: telling a
    GPU a hundred small steps one by one takes longer than the steps. Threads may share it.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        #: Whether work is recorded, and if it could not be, why: a step waited for its result.
        self.records, self.refusal = device.type == "cuda", ""
        self._lock = Lock()
        self._recordings: dict[Hashable, _Recording] = {}
        self._stream: Any = _cuda.Stream(device, priority=-1) if self.records else None
        self._pool: Any = torch.cuda.graph_pool_handle() if self.records else None

    def run(self, key: Hashable, function: Function, given: Array) -> Array:
        """Call a function, which is the same for the same key; None for one not to be recorded."""
        given = np.require(given, requirements=("C", "W"))
        with self._lock, torch.inference_mode():
            recording = self._recording(key, function, given) if key is not None else None
            if recording is not None:
                return recording(given)
            found: Array = function(torch.from_numpy(given).to(self.device)).cpu().numpy()
            return found

    def _recording(self, key: Hashable, function: Function, given: Array) -> _Recording | None:
        if self.records and key not in self._recordings:
            try:
                made = _Recording(function, given, self.device, self._stream, self._pool)
                self._recordings[key] = made
            # Torch has no narrower error for what a graph cannot hold; it is then run unrecorded.
            except RuntimeError as error:
                self.records, self.refusal = False, str(error)
        return self._recordings.get(key)


class _Recording:
    """A function as a CUDA graph, with the memory it reads from and writes to."""

    def __init__(
        self, function: Function, given: Array, device: torch.device, stream: Any, pool: Any
    ) -> None:
        # Kept: the graph reads the memory that the function refers to.
        self._function, self._stream = function, stream
        self._sent = _pinned(torch.from_numpy(given))
        torch.cuda.synchronize(device)
        with torch.cuda.stream(stream):
            self._input = self._sent.to(device)
            for _ in range(_WARM_UPS):
                function(self._input)
            stream.synchronize()
            self._graph = torch.cuda.CUDAGraph()
            # Other threads may go on using the device.
            with (
                _RECORDING,
                torch.cuda.graph(
                    self._graph, pool=pool, stream=stream, capture_error_mode="thread_local"
                ),
            ):
                self._output = function(self._input)
            self._received = _pinned(torch.empty_like(self._output, device="cpu"))

    def __call__(self, given: Array) -> Array:
        self._sent.copy_(torch.from_numpy(given))
        with torch.cuda.stream(self._stream):
            self._input.copy_(self._sent, non_blocking=True)
            self._graph.replay()
            self._received.copy_(self._output, non_blocking=True)
        self._stream.synchronize()
        found: Array = self._received.numpy().copy()
        return found


def _pinned(tensor: torch.Tensor) -> torch.Tensor:
    """Copy to memory that the device reads and writes without waiting."""
    return tensor.pin_memory()


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
        # A row of zeros is like nothing: its cosine is 0.
        self._scales = torch.where(self._squares > 0, self._squares.rsqrt(), 0)
        self._recorder = Recorder(self.device)

    def __len__(self) -> int:
        return len(self._rows)

    def search(self, vector: npt.ArrayLike, k: int) -> tuple[Float, Int]:
        """Return scores and numbers of the nearest k rows, the lower number first where equal.

        A score is the cosine, or the distance below 0.
        """
        if k < 1:
            raise DeepJoinError(f"k is {k}; it is 1 or more.")
        return self.ranked(self._packed(self._checked(vector), min(k, len(self))))

    def ranked(self, packed: Array) -> tuple[Float, Int]:
        """Read what `nearest` gave, the best first."""
        scores, rows = _unpacked(packed)
        order = np.lexsort((rows, -scores))
        if self.metric == "euclidean":
            scores = -np.sqrt(np.maximum(-scores, 0))
        return scores[order], rows[order]

    def near(self, vector: npt.ArrayLike, k: int, excluded: Marks | None = None) -> Int:
        """Return the nearest k rows that are not excluded, and all that may be as near."""
        query = self._checked(vector)
        slack = _SLACK * (1 + self._longest + float(query @ query))
        wanted = k + (0 if excluded is None else int(excluded.sum()))
        count = _rounded_up(wanted + 1, len(self))
        while True:
            scores, rows = _unpacked(self._packed(query, count))
            live = np.ones(count, bool) if excluded is None else ~excluded[rows]
            kept = scores[live]
            least = kept[k - 1] - slack if len(kept) >= k else -np.inf
            if count == len(self) or scores[-1] < least:
                return rows[live & (scores >= least)]
            count = _rounded_up(4 * count, len(self))

    def nearest(self, vector: torch.Tensor, count: int) -> torch.Tensor:
        """Return scores and numbers of rows behind each other, as whole numbers of 32 bits.

        The scores are bits of single precision: the cosine, or the squared distance below 0.
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
        """Multiply with every row; a query in two halves loses nothing of single precision."""
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
        key = count if count <= _RECORDED else None
        return self._recorder.run(key, partial(self.nearest, count=count), query)

    def _checked(self, vector: npt.ArrayLike) -> Float:
        row: Float = checked(np.asarray(vector, np.float32).reshape(1, -1), self.dimension)[0]
        return row


def _format(device: torch.device) -> torch.dtype:
    """Choose how rows are held: `_wide_product` is there for GPUs alone."""
    return torch.float16 if device.type == "cuda" else torch.float32


def _wide_product(halves: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Multiply matrices of half precision with sums, and results, in single precision."""
    return torch.mm(halves, others, out_dtype=torch.float32)


def _unpacked(packed: Array) -> tuple[Float, Int]:
    """Part what `DeviceSearch.nearest` gives into scores and numbers of rows."""
    scores, rows = packed.reshape(2, -1)
    return scores.view(np.float32), rows.astype(np.int64)


def _rounded_up(count: int, most: int) -> int:
    """Return the next power of 2, so that few different numbers are asked for.

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
