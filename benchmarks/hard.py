"""Look for what breaks, for a given number of minutes: `make hard MINUTES=10`.

    python benchmarks/hard.py --minutes 10
    python benchmarks/hard.py --only signal,limit --seed 7
    python benchmarks/hard.py --replay tests/hard/promise-1a2b3c4d.json

Every round runs one case of one kind: a writing command killed beside its commit or at a power
cut, a random history against a clean build, the promise of a search against the rows of its join,
a malformed file, an odd request, a command that gets a signal or has too little memory, too few
descriptors or too small a disk, small searches beside large ones, and flipped bits. The case
follows from the seed and the number of its round. One that fails is made smaller while it still
fails, printed, and kept in tests/hard/, where `tests/test_hard.py` runs it again. Prints one JSON
object; the status is 1 if something failed. Ctrl-C ends it with the summary.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random

from common import emit, say
from hard_cases import Case, Files, Histories, Kills, Kind, Promises, Requests
from hard_commands import Fairness, Flips, Limits, Signals

KEPT = Path(__file__).parents[1] / "tests" / "hard"
#: Seconds after which a case counts as hanging, and that making one smaller may take.
_LONGEST = 900
_SHRINKING = 60
#: Failures of one kind after which it is left out: the next ones would be the same.
_ENOUGH = 5


def kinds() -> dict[str, Kind]:
    """Return every kind by name."""
    known: dict[str, Callable[[], Kind]] = {
        "kill": Kills,
        "history": Histories,
        "promise": Promises,
        "file": Files,
        "request": Requests,
        "signal": Signals,
        "limit": Limits,
        "fairness": Fairness,
        "flip": Flips,
    }
    return {name: make() for name, make in known.items()}


def failure(kind: Kind, case: Case) -> str | None:
    """Run a case; return why it failed, or None."""
    place = Path(tempfile.mkdtemp(prefix="hard-"))
    before = signal.signal(signal.SIGALRM, _hangs)
    signal.alarm(_LONGEST)
    try:
        kind.run(case, place)
    except KeyboardInterrupt:
        raise
    except BaseException:  # whatever it is, it is what we look for
        return traceback.format_exc()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        shutil.rmtree(place, ignore_errors=True)
    return None


def _hangs(number: int, frame: object) -> None:
    raise TimeoutError(f"not done within {_LONGEST} s")


def shrunk(kind: Kind, case: Case) -> Case:
    """Return the smallest case found that fails as well."""
    over, found = time.monotonic() + _SHRINKING, True
    while found:
        found = False
        for smaller in kind.smaller(case):
            if time.monotonic() > over:
                return case
            if failure(kind, smaller) is not None:
                case, found = smaller, True
                break
    return case


def keep(folder: Path, name: str, case: Case, why: str) -> Path:
    """Keep a failing case as a file, with the last line of its error."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"kind": name, "case": case}, indent=1)
    path = folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.json"
    last = why.strip().splitlines()[-1][:300]
    path.write_text(json.dumps({"kind": name, "why": last, "case": case}, indent=1) + "\n")
    return path


def replay(path: Path) -> str | None:
    """Run a kept case again; return why it fails, or None."""
    kept = json.loads(path.read_text())
    known = kinds()
    try:
        return failure(known[kept["kind"]], kept["case"])
    finally:
        close(known)


def close(known: dict[str, Kind]) -> None:
    """Let kinds remove what they share between cases."""
    for kind in known.values():
        getattr(kind, "close", lambda: None)()


def cases(known: dict[str, Kind], options: argparse.Namespace) -> Iterator[tuple[str, str, Case]]:
    """Yield what makes each case again, its kind and the case: at random, or every one there is."""
    if options.every:
        for name, kind in known.items():
            yield from ((f"--only {name} --every", name, case) for case in kind.every())
        return
    weights = [kind.weight for kind in known.values()]
    for number in count(options.first):
        random = Random(f"{options.seed}:{number}")
        name = random.choices(list(known), weights)[0]
        yield f"--seed {options.seed} --first {number}", name, known[name].make(random)


def run(options: argparse.Namespace) -> int:
    """Run cases until the time is over; return how many failed."""
    known = kinds()
    if options.only:
        known = {name: known[name] for name in options.only.split(",")}
    rounds, failed, seconds = Counter[str](), Counter[str](), Counter[str]()
    started = time.monotonic()
    try:
        for again, name, case in cases(known, options):
            is_over = time.monotonic() - started > 60 * options.minutes
            if is_over or all(failed[one] >= _ENOUGH for one in known):
                break
            if failed[name] >= _ENOUGH:
                continue
            before = time.monotonic()
            why = failure(known[name], case)
            rounds[name] += 1
            seconds[name] += round(time.monotonic() - before, 3)
            if why is not None:
                failed[name] += 1
                path = keep(options.out, name, shrunk(known[name], case), why)
                say(f"{again}: {name} failed\n{why}kept: {path}")
    except KeyboardInterrupt:
        say("interrupted")
    finally:
        close(known)
    emit(
        "hard",
        seed=options.seed,
        minutes=round((time.monotonic() - started) / 60, 1),
        rounds=sum(rounds.values()),
        by_kind=dict(rounds),
        failed=dict(failed),
        seconds={name: round(of, 1) for name, of in seconds.items()},
    )
    return sum(failed.values())


def main() -> int:
    """Run, or replay."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", default=str(int(time.time())), help="default: the time")
    parser.add_argument("--first", type=int, default=0, help="number of the first round")
    parser.add_argument("--only", help="kinds, separated by commas")
    parser.add_argument("--every", action="store_true", help="every case of a kind, e.g. kill")
    parser.add_argument("--out", type=Path, default=KEPT, help="where failing cases are kept")
    parser.add_argument("--replay", type=Path, help="run a kept case again")
    options = parser.parse_args()
    if options.replay is not None:
        why = replay(options.replay)
        print(why or "passed")
        return int(why is not None)
    say(f"seed {options.seed}")
    # A shell starts what runs in the background with Ctrl-C ignored, and every command inherits it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return int(run(options) > 0)


if __name__ == "__main__":
    sys.exit(main())
