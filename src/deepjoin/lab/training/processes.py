"""One run as several processes, one a GPU, as torchrun or accelerate starts them."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import sleep

#: Seconds between two looks whether the first process has prepared the run.
_PAUSE = 0.5


@dataclass(frozen=True)
class Processes:
    """Which of how many processes this is; alone, unless a launcher says otherwise."""

    number: int = 0
    count: int = 1
    #: Which of those on this machine: its GPU has the same number.
    local: int = 0

    @classmethod
    def started(cls) -> Processes:
        """Read what the launcher says."""
        number, count, local = (
            int(os.environ.get(name, usual))
            for name, usual in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))
        )
        return cls(number, count, local)

    @property
    def is_first(self) -> bool:
        """Whether this one mines, saves and speaks for all."""
        return self.number == 0

    def device(self, name: str) -> str:
        """Name the device of this process."""
        return f"cuda:{self.local}" if name == "cuda" and self.count > 1 else name

    def wait_for(self, is_ready: Callable[[], bool]) -> None:
        """Wait for what the first process makes; if that one fails, the launcher ends all."""
        while not is_ready():
            sleep(_PAUSE)

    def first_says(self, make: Callable[[], float]) -> float:
        """Let the first process compute a number, and give it to all."""
        if self.count == 1:
            return make()
        from torch import distributed

        said = [make() if self.is_first else None]
        distributed.broadcast_object_list(said, 0)
        return float(said[0] or 0.0)

    def any_says(self, mine: bool) -> bool:
        """Tell all processes whether it is so in any of them."""
        if self.count == 1:
            return mine
        from torch import distributed

        said: list[bool] = [False] * self.count
        distributed.all_gather_object(said, mine)
        return any(said)


@contextmanager
def taking_leave(processes: Processes) -> Iterator[None]:
    """Leave the others in good order at the end.

    Whatever trained with them must be gone by then. If it were the last to let go of the
    connections, torch would wait for their threads with the interpreter's lock in its hand, and
    these for the lock.
    """
    yield
    if processes.count > 1:
        from torch import distributed

        gc.collect()
        if distributed.is_initialized():
            distributed.destroy_process_group()
