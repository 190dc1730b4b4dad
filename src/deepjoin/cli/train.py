"""`deepjoin train`."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from time import monotonic
from typing import Any

from deepjoin.cli.arguments import number, share, text_arguments, whole
from deepjoin.cli.output import say

SUMMARY = "train a column encoder on the tables of a lake"
EPILOG = """\
examples:
  deepjoin train data/ -o mine                  from the shipped model
  deepjoin train data/ --preset paper -o paper  the recipe as published
  deepjoin index data/ --encoder mine           use it (mine/shipped: without torch)

After Ctrl-C, the same command resumes."""

#: Options of single settings: name, reader, metavar, help.
_SETTINGS: tuple[tuple[str, Callable[[str], Any], str, str], ...] = (
    ("threshold", share, "T", "least joinability of a positive pair (default .7)"),
    ("tau", share, "T", "semantic: least cosine at which two values match"),
    ("columns", whole(4), "N", "maximum number of columns taken from the lake"),
    ("pairs", whole(1), "N", "maximum number of pairs of one column"),
    ("shuffle", share, "R", "the paper's shuffle rate (default .3)"),
    ("crops", number, "R", "pairs of parts of one column, for each mined pair"),
    ("nameless", share, "R", "how often a column is shown without its name and title"),
    ("respelled", share, "R", "how often a cell is respelled; needs --aliases"),
    ("prompt", str, "TEXT", "prefix of the text of a query (default 'query ')"),
    ("power", number, "P", "exponent of the joinability as a weight (default 2)"),
    ("scale", number, "S", "factor before the softmax (default 20)"),
    ("batch", whole(2), "N", "pairs in a batch"),
    ("learning-rate", number, "L", "highest learning rate"),
    ("warmup", whole(0), "N", "steps until the learning rate is reached"),
    ("weight-decay", number, "D", "weight decay (default .01)"),
    ("dropout", share, "D", "dropout rate (default 0)"),
    ("epochs", whole(1), "N", "maximum number of passes over the pairs"),
    ("steps", whole(1), "N", "maximum number of steps"),
    ("validate", whole(1), "N", "steps between two validations"),
    ("patience", whole(1), "N", "stop after this many validations without improvement"),
    ("layers", whole(1), "N", "keep the first N layers of the base model: fewer are faster"),
    ("seed", whole(0), "N", "seed of the random numbers (default 0)"),
)
_SWITCHES = {
    "masked": "do not use columns known to be joinable as negatives (the default)",
    "symmetric": "partners must find their columns as well",
}
#: Seconds between two lines of progress.
_PAUSE = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments and options."""
    parser.add_argument("source", metavar="SOURCE", help="an index, or tables as for index")
    parser.add_argument("-o", "--out", metavar="DIR", required=True, help="folder of the model")
    parser.add_argument("--join", choices=("equi", "semantic"), help="default: equi")
    parser.add_argument(
        "--base",
        metavar="MODEL",
        default="default",
        help="start from: default, a folder, or the name of a public model",
    )
    parser.add_argument(
        "--preset", choices=("default", "paper"), default="default", help="all settings at once"
    )
    parser.add_argument("--metric", choices=("cosine", "euclidean"), help="default: cosine")
    parser.add_argument(
        "--negatives",
        choices=("batch", "removed", "hard"),
        help="the others of a batch; also columns without the matching cells; also near ones",
    )
    parser.add_argument(
        "--target",
        choices=("partner", "joinability"),
        help="learn which column is the partner, or how joinable each one is",
    )
    for name, text in _SWITCHES.items():
        parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, help=text)
    for name, read, metavar, text in _SETTINGS:
        parser.add_argument(f"--{name}", type=read, metavar=metavar, help=text)
    text_arguments(parser)
    parser.add_argument("--cells", metavar="NAME|PATH", help="semantic: as for index")
    parser.add_argument("--aliases", metavar="FILE", help="other spellings: surface, entity")
    parser.add_argument("--device", metavar="NAME", help="cpu or cuda; default: a GPU if any")
    parser.add_argument("--workers", type=whole(0), metavar="N", help="processes making batches")
    parser.add_argument("--engine", metavar="NAME", help="what finds the pairs: local or ray")
    parser.add_argument("--ray-address", metavar="ADDRESS", help="as for index")


def run(options: argparse.Namespace) -> None:
    """Train, and print where the model is."""
    from deepjoin.lab.training import TrainInputs, TrainResources, preset, train

    # None, for an option that was not given, leaves the setting of the preset.
    names = [name.replace("-", "_") for name, *_ in _SETTINGS]
    names += ["join", "metric", "negatives", "target", *_SWITCHES]
    with redirect_stdout(sys.stderr):  # Ray's nodes write errors of workers to stdout
        found = train(
            *(options.source, options.out),
            base=options.base,
            settings=preset(options.preset, **{name: getattr(options, name) for name in names}),
            inputs=TrainInputs(
                *(options.pattern, options.tokens, options.cells, options.aliases),
                *(options.sampling, options.unit),
            ),
            resources=TrainResources(
                options.device, options.workers, options.engine, options.ray_address
            ),
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
