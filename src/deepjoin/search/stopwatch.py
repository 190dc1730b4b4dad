"""How long each step of a search takes, as every result reports it."""

from __future__ import annotations

from time import perf_counter


class Stopwatch:
    """Starts when it is made; each lap is the time since the one before."""

    def __init__(self) -> None:
        self._started = self._before = perf_counter()
        self._seconds: dict[str, float] = {}

    def lap(self, step: str) -> None:
        """End a step."""
        now = perf_counter()
        self._seconds[step] = now - self._before
        self._before = now

    def stop(self, step: str) -> dict[str, float]:
        """End the last step and return the seconds of all, and the total."""
        self.lap(step)
        self._seconds["total"] = self._before - self._started
        return self._seconds
