"""A GPU played by the processor: what is recorded is noted step by step and done again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from deepjoin.embed import recorder
from deepjoin.embed.recorder import Recorder
from deepjoin.engines import gpu

#: Steps that look at a number, or send one to the device.
_WAITING = {
    f"aten.{name}"
    for name in (
        "item.default",
        "_local_scalar_dense.default",
        "is_nonzero.default",
        "equal.default",
        "allclose.default",
        "nonzero.default",
        "masked_select.default",
        "lift_fresh.default",
        "where.Scalar",
        "where.ScalarSelf",
        "where.ScalarOther",
    )
}


class Steps(TorchDispatchMode):
    """Notes every step on tensors, and refuses those that no CUDA graph can have."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        if str(function) in _WAITING:
            raise RuntimeError(f"{function} waits for its result")
        result = function(*arguments, **(named or {}))
        self.steps.append((function, arguments, named or {}, result))
        return result


class _Graph:
    """Plays a CUDA graph: the same steps again, into the same memory."""

    def __init__(self) -> None:
        self.noted = Steps()

    def replay(self) -> None:
        for function, arguments, named, before in self.noted.steps:
            again = function(*arguments, **named)
            for old, new in zip(_tensors(before), _tensors(again), strict=True):
                if old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class _Stream:
    def __init__(self, device: Any = None, priority: int = 0) -> None:
        self.device = device

    def synchronize(self) -> None:
        """Do nothing: the processor is never behind."""


@contextmanager
def _recorded(graph: _Graph, pool: Any, stream: Any, capture_error_mode: str) -> Iterator[None]:
    assert capture_error_mode == "thread_local"
    with graph.noted:
        yield


def _tensors(found: Any) -> list[Any]:
    several = found if isinstance(found, tuple | list) else [found]
    return [one for one in several if isinstance(one, torch.Tensor)]


def play_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processor play a GPU that records."""
    for name, played in {
        "CUDAGraph": _Graph,
        "Stream": _Stream,
        "graph": _recorded,
        "stream": lambda stream: nullcontext(),
        "synchronize": lambda device: None,
        "graph_pool_handle": lambda: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, played)
    monkeypatch.setattr(recorder, "_pinned", torch.clone)
    made = Recorder.__init__

    def records(self: Recorder, device: Any) -> None:
        made(self, device)
        self.records, self._stream = True, _Stream()

    monkeypatch.setattr(Recorder, "__init__", records)


def play_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold rows as a GPU does, with its product played."""
    monkeypatch.setattr(gpu, "_format", lambda device: torch.float16)
    monkeypatch.setattr(gpu, "_wide_product", lambda one, two: one.float() @ two.float())
