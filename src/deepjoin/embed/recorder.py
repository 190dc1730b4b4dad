"""Run torch functions on a device; on a GPU they are recorded once as CUDA graphs and replayed.

Needs torch, the extra ``train``. On the CPU functions run unrecorded.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any

import numpy as np
import torch

from deepjoin.arrays import Array

Function = Callable[[torch.Tensor], torch.Tensor]

#: Typed as Any because parts of torch.cuda have no types.
_cuda: Any = torch.cuda
#: Runs before a recording: libraries look for their fastest kernels the first time.
_WARM_UPS = 3
#: A process may record one graph at a time.
_RECORDING = Lock()


class Recorder:
    """Runs functions of one small array on a device; each returns one array.

    On a GPU a function is recorded once for each key and then replayed: launching a hundred
    small kernels one by one takes longer than the kernels run. Threads may share it.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        #: Whether functions are recorded, and if one could not be, the reason torch gave.
        self.records, self.refusal = device.type == "cuda", ""
        self._lock = Lock()
        self._recordings: dict[Hashable, _Recording] = {}
        self._stream: Any = _cuda.Stream(device, priority=-1) if self.records else None
        self._pool: Any = torch.cuda.graph_pool_handle() if self.records else None

    def run(self, key: Hashable, function: Function, given: Array) -> Array:
        """Call a function; the key identifies it, and None means not to record it."""
        given = np.require(given, requirements=("C", "W"))
        with self._lock, torch.inference_mode():
            if self.records and key is not None and key not in self._recordings:
                try:
                    made = _Recording(function, given, self.device, self._stream, self._pool)
                    self._recordings[key] = made
                # Torch has no narrower error for what a graph cannot hold; run it unrecorded.
                except RuntimeError as error:
                    self.records, self.refusal = False, str(error)
            if key in self._recordings:
                return self._recordings[key](given)
            found: Array = function(torch.from_numpy(given).to(self.device)).cpu().numpy()
            return found


class _Recording:
    """A function as a CUDA graph, with the memory it reads from and writes to."""

    def __init__(
        self, function: Function, given: Array, device: torch.device, stream: Any, pool: Any
    ) -> None:
        # Keep the function: the graph reads the memory it refers to.
        self._function, self._stream = function, stream
        self._sent = _pinned(torch.from_numpy(given))
        torch.cuda.synchronize(device)
        with torch.cuda.stream(stream):
            self._input = self._sent.to(device)
            for _ in range(_WARM_UPS):
                function(self._input)
            stream.synchronize()
            self._graph = torch.cuda.CUDAGraph()
            # "thread_local" lets other threads use the device while this one records.
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
    """Copy to memory that the device can read and write without blocking."""
    return tensor.pin_memory()
