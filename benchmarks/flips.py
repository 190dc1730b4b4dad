"""Flip single bits of an index and do everything with it: no answer may change without a word.

    python benchmarks/flips.py INDEX --flips 300

Each flip is tried on a copy of INDEX, made of links beside it: searches of every kind, a join,
listing, `check`, and `compact` followed by searches. An operation either gives what it gave
before or refuses in one line. Anything else is printed with its flip, and the status is 1.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import sys
from collections import Counter
from pathlib import Path

from common import emit, machine, say, show

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.flips import (
    OPERATIONS,
    Outcome,
    flipped_copy,
    flips,
    outcomes,
    own_queries,
    verdict,
)

_VERDICTS = ("same", "told", "silent", "raw", "several lines", "crash", "missed")
#: Seconds after which a process is taken to hang.
_LONGEST = 600


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("index", type=Path)
    parser.add_argument("--flips", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=list(OPERATIONS), choices=list(OPERATIONS))
    options = parser.parse_args()
    index = options.index.resolve()
    copy = index.with_name(f"{index.name}-flips")
    try:
        counts = _run(index, copy, options)
    finally:
        shutil.rmtree(copy, ignore_errors=True)
    rows = [[name, *(counts[name][one] for one in _VERDICTS)] for name in options.only]
    for name, *numbers in rows:
        verdicts = dict(zip(_VERDICTS, numbers, strict=True))
        emit("flips", operation=name, index=index.name, flips=options.flips, **verdicts)
    emit("machine", **machine())
    show([["operation", *_VERDICTS], *rows])
    bad = sum(sum(of[one] for one in _VERDICTS[2:]) for of in counts.values())
    sys.exit(1 if bad else 0)


def _run(index: Path, copy: Path, options: argparse.Namespace) -> dict[str, Counter[str]]:
    queries = own_queries(index, options.seed)
    flipped_copy(index, copy, None)
    before = _apart(copy, queries, options.only)
    assert before is not None, "a sound index is searched without a crash"
    counts: dict[str, Counter[str]] = {name: Counter() for name in options.only}
    for number, flip in enumerate(flips(index, options.flips, options.seed), 1):
        flipped_copy(index, copy, flip)
        after = _apart(copy, queries, options.only)
        for name in options.only:
            given = "crash" if after is None else verdict(before[name], after[name])
            if name == "check" and given == "same" and flip.name.startswith("segments/"):
                given = "missed"
            counts[name][given] += 1
            if given not in ("same", "told"):
                say(f"{given}: {name} after {flip}: {after and after[name].answer}"[:400])
        if number % 20 == 0:
            say(f"{number} of {options.flips} flips")
    return counts


def _apart(copy: Path, queries: list[list[str]], names: list[str]) -> dict[str, Outcome] | None:
    """Run operations in a process of its own; None if it is killed by a signal or hangs."""
    receiving, sending = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_answer, args=(sending, copy, queries, names))
    process.start()
    sending.close()
    try:
        found: dict[str, Outcome] | None = receiving.recv() if receiving.poll(_LONGEST) else None
    except EOFError:
        found = None
    process.kill()
    process.join()
    return found


def _answer(sending: object, copy: Path, queries: list[list[str]], names: list[str]) -> None:
    sending.send(outcomes(copy, queries, names))  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
