"""`deepjoin train`."""

from __future__ import annotations

import argparse
import shlex
import sys
from contextlib import redirect_stdout
from time import monotonic

from deepjoin.cli.opening import say
from deepjoin.cli.training_options import settings_of
from deepjoin.lab.training import train
from deepjoin.lab.training.delivery import Trained

#: Seconds between two lines that say how far the work is.
_PAUSE = 5.0


def run(options: argparse.Namespace) -> None:
    """Train, and print where the model is."""
    with redirect_stdout(sys.stderr):  # where Ray's nodes tell what went wrong with a worker
        found = _trained(options)
    if found.queries:
        say(
            f"P@10 of held-back columns: {found.precision:.3f}, before training "
            f"{found.before:.3f} ({found.queries:,} queries)."
        )
    if found.queries and found.precision < found.before:
        say("It finds less than its base. Try a lower --learning-rate, more tables, more --steps.")
    if found.agreement is None:
        say(f"There is no small form: {found.why}")
    else:
        say(f"The small form: {found.agreement}.")
    print(found.folder)


def _trained(options: argparse.Namespace) -> Trained:
    return train(
        *(options.source, options.out),
        base=options.base,
        preset=options.preset,
        pattern=options.pattern,
        tokens=options.tokens,
        cells=options.cells,
        aliases=options.aliases,
        device=options.device,
        workers=options.workers,
        command=shlex.join(["deepjoin", *sys.argv[1:]]),
        progress=_Lines(),
        engine=options.engine,
        ray_address=options.ray_address,
        **settings_of(options),
    )


class _Lines:
    """Says on stderr how far the work is, every few seconds, and what is new at once."""

    def __init__(self) -> None:
        self._said, self._precision, self._line = -_PAUSE, "", ""

    def __call__(self, done: int, total: int, text: str) -> None:
        if not total:
            say(text)
            return
        precision, line = text.partition("P@10")[2], f"  {done:,} of {total:,}  {text}"
        is_new = precision != self._precision or "memory" in text or done == total
        if line != self._line and (is_new or monotonic() - self._said >= _PAUSE):
            say(line)
            self._said, self._precision, self._line = monotonic(), precision, line
