"""The command that trains, with the help that teaches it."""

from __future__ import annotations

from argparse import BooleanOptionalAction
from collections.abc import Callable
from typing import Any

from deepjoin.cli.command import Commands, command
from deepjoin.cli.values import number, share, whole

#: Single settings: their option, how it is read, and what it says.
_SETTINGS: tuple[tuple[str, Callable[[str], Any], str, str], ...] = (
    ("--threshold", share, "T", "least joinability of a positive pair (default .7)"),
    ("--tau", share, "T", "semantic: the cosine from which on two values match"),
    ("--columns", whole(4), "N", "columns taken from the lake, at most"),
    ("--pairs", whole(1), "N", "pairs taken of one column, at most"),
    ("--shuffle", share, "R", "the paper's shuffle rate (default .3)"),
    ("--crops", number, "R", "pairs of parts of one column, for each mined pair"),
    ("--nameless", share, "R", "how often a column is shown without its name and title"),
    ("--respelled", share, "R", "how often a cell is spelled otherwise; needs --aliases"),
    ("--prompt", str, "TEXT", "what stands before the text of a query (default 'query ')"),
    ("--power", number, "P", "how much more a column counts that joins better (default 2)"),
    ("--scale", number, "S", "factor before the softmax (default 20)"),
    ("--batch", whole(2), "N", "pairs in a batch"),
    ("--learning-rate", number, "L", "highest learning rate"),
    ("--warmup", whole(0), "N", "steps until the learning rate is reached"),
    ("--weight-decay", number, "D", "weight decay (default .01)"),
    ("--dropout", share, "D", "share of activations left out (default 0)"),
    ("--epochs", whole(1), "N", "passes over the pairs, at most"),
    ("--steps", whole(1), "N", "steps, at most"),
    ("--validate", whole(1), "N", "steps between two validations"),
    ("--patience", whole(1), "N", "validations without a better one, then it stops"),
    ("--layers", whole(1), "N", "layers kept of the base model: fewer are faster"),
    ("--seed", whole(0), "N", "another seed gives another run (default 0)"),
)

_SWITCHES = {
    "masked": "columns known to be joinable are no negatives (the default)",
    "symmetric": "partners must find their columns as well",
}


def add_train(commands: Commands) -> None:
    """Add the command to train a column encoder."""
    parser = command(
        commands,
        "train",
        "train a column encoder on the tables of a lake",
        "examples:\n"
        "  deepjoin train data/ -o mine                   on your tables, from the shipped model\n"
        "  deepjoin train data/ --preset paper -o paper   the recipe as published\n"
        "  deepjoin index data/ --encoder mine            and use it (mine/shipped: without torch)"
        "\n\nCtrl-C loses nothing: the same command goes on where it was.",
    )
    parser.add_argument("source", metavar="SOURCE", help="an index, or tables as for index")
    parser.add_argument("-o", "--out", metavar="DIR", required=True, help="where the model goes")
    parser.add_argument("--join", choices=("equi", "semantic"), help="default: equi")
    parser.add_argument(
        "--base",
        metavar="MODEL",
        default="default",
        help="start from: default, a folder, or the name of a public model",
    )
    parser.add_argument("--preset", choices=("default", "paper"), default="default")
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
        parser.add_argument(f"--{name}", action=BooleanOptionalAction, help=text)
    for name, read, shown, text in _SETTINGS:
        parser.add_argument(name, type=read, metavar=shown, help=text)
    parser.add_argument("--pattern", metavar="NAME", help="how columns become texts")
    parser.add_argument("--tokens", type=whole(8), metavar="N", help="tokens of a text, at most")
    parser.add_argument("--cells", metavar="NAME|PATH", help="semantic: as for index")
    parser.add_argument("--aliases", metavar="FILE", help="other spellings: surface, entity")
    parser.add_argument("--device", metavar="NAME", help="cpu or cuda; default: a GPU if there")
    parser.add_argument("--workers", type=whole(0), metavar="N", help="processes making batches")
    parser.add_argument("--engine", metavar="NAME", help="who finds the pairs: local or ray")
    parser.add_argument("--ray-address", metavar="ADDRESS", help="as for index")


def settings_of(options: Any) -> dict[str, Any]:
    """Collect the single settings that were given."""
    names = [name[2:].replace("-", "_") for name, *_ in _SETTINGS]
    names += ["join", "metric", "negatives", "target", *_SWITCHES]
    return {name: getattr(options, name) for name in names}
