"""Kill every change of an index at every step and at many moments, and simulate power cuts.

    python benchmarks/crash.py --moments 200 --seed 0

Prints, as JSON lines, how often each operation was interrupted and which state of the index
that left: the one before, or the one after; "resumed" means that the next run resumed from a
checkpoint. Anything else is a failure: it is printed with the options that reproduce it, and the
status is 1. The short form of all this is ``tests/test_crash.py``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

from common import emit, say

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support import rivals
from tests.support.crash import OPERATIONS, Trial, moments
from tests.support.power import LOSSES

_MEMORY = Path("/dev/shm")


class Tally:
    """Interrupts operations, counts the outcomes, and prints failures."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self.failures = 0

    def run(
        self, how: str, operation: str, cases: Callable[[Trial], Iterable[tuple[object, ...]]]
    ) -> None:
        """Run an operation in cases: the name of a method of `Trial`, and its arguments."""
        trial = Trial(operation, self._place / f"{how} {operation}")
        failed = 0
        for method, *arguments in cases(trial):
            try:
                getattr(trial, str(method))(*arguments)
            except Exception:
                failed += 1
                say(f"{operation}: {method}{tuple(arguments)}\n{traceback.format_exc()}")
        self.failures += failed
        emit(f"crash, {how}", operation=operation, **trial.outcomes, failures=failed)


def _every_step(every: int) -> Callable[[Trial], Iterable[tuple[object, ...]]]:
    return lambda trial: [
        ("killed_at", step) for step in range(1, len(trial.steps()) + 2) if step % every == 0
    ]


def _cuts(every: int) -> Callable[[Trial], Iterable[tuple[object, ...]]]:
    def cases(trial: Trial) -> Iterable[tuple[object, ...]]:
        steps = trial.steps()
        renames = [number + 1 for number, name in enumerate(steps, 1) if name == "os.rename"]
        chosen = {*range(1, len(steps) + 1, every), *renames, len(steps) + 1}
        return [("cut_at", step, loss) for step in sorted(chosen) for loss in LOSSES]

    return cases


def _moments(count: int, seed: int) -> Callable[[Trial], Iterable[tuple[object, ...]]]:
    return lambda trial: [("killed_after", seconds) for seconds in moments(trial, count, seed)]


def _rivals(place: Path, rounds: int) -> None:
    for merge in (True, False):
        changes, reads, seen = rivals.read_meanwhile(place / f"read {merge}", rounds, merge)
        emit("crash, read meanwhile", merge=merge, changes=changes, reads=reads, states=seen)
    added, refused = rivals.write_at_once(place / "written", rounds)
    emit("crash, written at once", rounds=rounds, added=len(added), refused=len(refused))


def main() -> int:
    """Run the selected operations."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--moments", type=int, default=200, help="random moments, over all")
    parser.add_argument("--seed", type=int, default=0, help="chooses the moments")
    parser.add_argument("--every", type=int, default=1, help="kill at every n-th step; 0: at none")
    parser.add_argument("--cuts", type=int, default=10, help="cut power at every n-th; 0: never")
    parser.add_argument("--rounds", type=int, default=50, help="of readers and writers at once")
    parser.add_argument("--operation", choices=OPERATIONS, action="append")
    given = parser.parse_args()
    chosen = given.operation or list(OPERATIONS)
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        tally = Tally(Path(folder))
        for number, operation in enumerate(chosen):
            share = len(range(number, given.moments, len(chosen)))
            tally.run("random moments", operation, _moments(share, given.seed))
            if given.every:
                tally.run("every step", operation, _every_step(given.every))
            if given.cuts:
                tally.run("power cuts", operation, _cuts(given.cuts))
        if given.rounds:
            _rivals(Path(folder), given.rounds)
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
