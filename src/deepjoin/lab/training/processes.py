"""One run in several processes, one for each GPU, as torchrun or accelerate start them."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import sleep

#: Seconds between checks whether the first process has prepared the run.
_PAUSE = 0.5


@dataclass(frozen=True)
class Processes:
    """The rank of this process and their number; a single process without a launcher."""

    number: int = 0
    count: int = 1
    #: Its rank on this machine, which is the number of its GPU.
    local: int = 0

    @classmethod
    def started(cls) -> Processes:
        """Read the environment that the launcher sets."""
        number, count, local = (
            int(os.environ.get(name, default))
            for name, default in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))
        )
        return cls(number, count, local)

    @property
    def is_first(self) -> bool:
        """Whether this process mines the pairs, saves the model and reports progress."""
        return self.number == 0

    def device(self, name: str) -> str:
        """Return the device of this process."""
        return f"cuda:{self.local}" if name == "cuda" and self.count > 1 else name

    def wait_for(self, is_ready: Callable[[], bool]) -> None:
        """Wait for the first process; if that one fails, the launcher ends all."""
        while not is_ready():
            sleep(_PAUSE)

    def first_says(self, make: Callable[[], float]) -> float:
        """Compute a number in the first process, and send it to all."""
        if self.count == 1:
            return make()
        from torch import distributed

        sent = [make() if self.is_first else None]
        distributed.broadcast_object_list(sent, 0)
        return float(sent[0] or 0.0)

    def any_says(self, mine: bool) -> bool:
        """Return whether ``mine`` is true in any process."""
        if self.count == 1:
            return mine
        from torch import distributed

        all_of_them: list[bool] = [False] * self.count
        distributed.all_gather_object(all_of_them, mine)
        return any(all_of_them)


@contextmanager
def process_group(processes: Processes) -> Iterator[None]:
    """Destroy the process group at the end of training.

    The trainer must have been garbage-collected by then: if it held the last reference to the
    connections, torch would join their threads while holding the interpreter's lock, and those
    threads need the lock to end.
    """
    yield
    if processes.count > 1:
        from torch import distributed

        gc.collect()
        if distributed.is_initialized():
            distributed.destroy_process_group()
