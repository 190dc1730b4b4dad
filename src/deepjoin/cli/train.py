"""`deepjoin train`."""

from __future__ import annotations

import argparse
import shlex
import sys
from contextlib import redirect_stdout
from time import monotonic

from deepjoin.cli.opening import say
from deepjoin.cli.training_options import settings_of
from deepjoin.lab.training import TrainInputs, TrainResources, preset, train

#: Seconds between two lines that say how far the work is.
_PAUSE = 5.0


def run(options: argparse.Namespace) -> None:
    """Train, and print where the model is."""
    with redirect_stdout(sys.stderr):  # where Ray's nodes tell what went wrong with a worker
        found = train(
            *(options.source, options.out),
            base=options.base,
            settings=preset(options.preset, **settings_of(options)),
            inputs=TrainInputs(options.pattern, options.tokens, options.cells, options.aliases),
            resources=TrainResources(
                options.device, options.workers, options.engine, options.ray_address
            ),
            command=shlex.join(["deepjoin", *sys.argv[1:]]),
            progress=_Lines(),
        )
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
