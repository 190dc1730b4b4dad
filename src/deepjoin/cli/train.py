"""`deepjoin train`."""

from __future__ import annotations

import argparse
import shlex
import sys
from contextlib import redirect_stdout
from time import monotonic

from deepjoin.cli.arguments import TEXTS, Argument, number, share, whole
from deepjoin.cli.output import say

SUMMARY = "train a column encoder on the tables of a lake"
EPILOG = """\
examples:
  deepjoin train data/ -o mine                  from the shipped model
  deepjoin train data/ --preset paper -o paper  the recipe as published
  deepjoin index data/ --encoder mine           use it (mine/shipped: without torch)

After Ctrl-C, the same command resumes."""

#: Seconds between two lines of progress.
_PAUSE = 5.0


ARGUMENTS = (
    Argument("source SOURCE", "an index, or tables as for index"),
    Argument("-o --out DIR", "folder of the model", required=True),
    Argument("--join", "default: equi", ("equi", "semantic")),
    Argument(
        "--base MODEL",
        "start from: default, a folder, or the name of a public model",
        default="default",
    ),
    Argument("--preset", "all settings at once: default or paper", ("default", "paper"), "default"),
    Argument("--metric", "default: cosine", ("cosine", "euclidean")),
    Argument(
        "--negatives",
        "the others of a batch; also columns without the matching cells; also near ones; these and "
        "the nearest by the model so far",
        ("batch", "removed", "hard", "nearest"),
    ),
    Argument(
        "--target",
        "learn which column is the partner, or how joinable each one is",
        ("partner", "joinability"),
    ),
    Argument(
        "--masked",
        "do not use columns known to be joinable as negatives (the default)",
        action=argparse.BooleanOptionalAction,
    ),
    Argument(
        "--symmetric",
        "partners must find their columns as well",
        action=argparse.BooleanOptionalAction,
    ),
    Argument("--threshold T", "least joinability of a positive pair (default .7)", share),
    Argument("--tau T", "semantic: least cosine at which two values match", share),
    Argument("--columns N", "maximum number of columns taken from the lake", whole(4)),
    Argument("--pairs N", "maximum number of pairs of one column", whole(1)),
    Argument("--shuffle R", "the paper's shuffle rate (default .3)", share),
    Argument("--crops R", "pairs of parts of one column, for each mined pair", number),
    Argument("--nameless R", "how often a column is shown without its name and title", share),
    Argument("--respelled R", "how often a cell is respelled; needs --aliases", share),
    Argument("--prompt TEXT", "prefix of the text of a query (default 'query ')", str),
    Argument("--power P", "exponent of the joinability as a weight (default 2)", number),
    Argument("--plain R", "share of the loss with an exponent of 1 (default 0)", share),
    Argument("--scale S", "factor before the softmax (default 20)", number),
    Argument("--batch N", "pairs in a batch", whole(2)),
    Argument("--learning-rate L", "highest learning rate", number),
    Argument("--warmup N", "steps until the learning rate is reached", whole(0)),
    Argument("--weight-decay D", "weight decay (default .01)", number),
    Argument("--dropout D", "dropout rate (default 0)", share),
    Argument("--epochs N", "maximum number of passes over the pairs", whole(1)),
    Argument("--steps N", "maximum number of steps", whole(1)),
    Argument("--validate N", "steps between two validations", whole(1)),
    Argument("--patience N", "stop after this many validations without improvement", whole(1)),
    Argument("--layers N", "keep the first N layers of the base model: fewer are faster", whole(1)),
    Argument("--seed N", "seed of the random numbers (default 0)", whole(0)),
    *TEXTS,
    Argument("--cells NAME|PATH", "semantic: as for index"),
    Argument("--aliases FILE", "other spellings: surface, entity"),
    Argument("--device NAME", "cpu or cuda; default: a GPU if any"),
    Argument("--workers N", "processes making batches", whole(0)),
    Argument("--engine NAME", "what finds the pairs: local or ray"),
    Argument("--ray-address ADDRESS", "as for index"),
)


def run(options: argparse.Namespace) -> None:
    """Train, and print where the model is."""
    from deepjoin.lab.training import TrainInputs, TrainResources, TrainSettings, preset, train
    from deepjoin.settings import fields_of

    # None, for an option that was not given, leaves the setting of the preset.
    settings = preset(options.preset, **fields_of(TrainSettings, options))
    with redirect_stdout(sys.stderr):  # Ray's nodes write errors of workers to stdout
        found = train(
            *(options.source, options.out),
            base=options.base,
            settings=settings,
            inputs=TrainInputs(**fields_of(TrainInputs, options)),
            resources=TrainResources(**fields_of(TrainResources, options)),
            command=shlex.join(["deepjoin", *sys.argv[1:]]),
            progress=TrainingProgress(),
        )
    if found.queries:
        say(
            f"P@10 on held-back columns: {found.precision:.3f}, before training "
            f"{found.before:.3f} ({found.queries:,} queries)."
        )
    if found.gain is not None:
        bounds = f"{found.gain.low:+.3f} to {found.gain.high:+.3f}"
        verdict = "" if found.gain.sign else ": it contains 0, so the gain is within noise"
        say(f"Gain {found.gain.mean:+.3f}, 95% interval {bounds}{verdict}.")
    if found.queries and found.precision < found.before:
        say("It finds less than its base. Try a lower --learning-rate, more tables, more --steps.")
    if found.agreement is None:
        say(f"There is no small form: {found.why}")
    else:
        say(f"Small form: {found.agreement}.")
    print(found.folder)


class TrainingProgress:
    """Writes a line of progress to stderr every few seconds; a new precision at once."""

    def __init__(self) -> None:
        self._last, self._precision, self._line = -_PAUSE, "", ""

    def __call__(self, done: int, total: int, text: str) -> None:
        """Write a line if it says something new, or the last one is old enough."""
        if not total:
            say(text)
            return
        precision, line = text.partition("P@10")[2], f"  {done:,} of {total:,}  {text}"
        is_new = precision != self._precision or "memory" in text or done == total
        if line != self._line and (is_new or monotonic() - self._last >= _PAUSE):
            say(line)
            self._last, self._precision, self._line = monotonic(), precision, line
