"""``python -m benchmarks.paper``: list, run and render the paper's experiments."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.paper.experiments import SIZES, names, read_experiment
from benchmarks.paper.hits import take
from benchmarks.paper.places import Places
from benchmarks.paper.plots import write_plots
from benchmarks.paper.results import Results
from benchmarks.paper.running import run
from benchmarks.paper.tables import document

from deepjoin.errors import DeepJoinError

DOCS = Path(__file__).parents[2] / "docs"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _list(options: argparse.Namespace) -> int:
    for name in names():
        experiment = read_experiment(name)
        settings = len(experiment.settings("reduced"))
        print(f"{name:14} {experiment.title} ({settings} settings)")
    return 0


def _models(options: argparse.Namespace) -> int:
    """Print the commands that train the models an experiment needs."""
    places = _places(options)
    commands = [
        places.options(setting | {"train": row["train"]})["train"]
        for name in _chosen(options.name)
        for setting, row in read_experiment(name).settings(options.size)
        if "train" in row and places.missing(setting)
    ]
    for command in dict.fromkeys(commands):
        print(command)
    return 0


def _run(options: argparse.Namespace) -> int:
    places = _places(options)
    places.cache.mkdir(parents=True, exist_ok=True)
    failed: list[str] = []
    try:
        for name in _chosen(options.name):
            experiment = read_experiment(name)
            results = Results(experiment)
            failed += run(experiment, options.size, places, results, options.again, options.row)
    except KeyboardInterrupt:
        _say("Stopped. Finished settings are kept; run the same command to resume.")
        return 130
    for text in failed:
        _say(f"failed: {text}")
    return 1 if failed else 0


def _hits(options: argparse.Namespace) -> int:
    places = _places(options)
    for name in _chosen(options.name):
        experiment = read_experiment(name)
        take(experiment, options.size, places, Results(experiment), options.folder)
    return 0


def _render(options: argparse.Namespace) -> int:
    (DOCS / "benchmarks.md").write_text(document(), "utf-8")
    paths = write_plots(DOCS / "plots")
    _say(f"{DOCS / 'benchmarks.md'} and {len(paths)} plots written")
    return 0


def _chosen(name: str) -> list[str]:
    return names() if name == "all" else [name]


def _places(options: argparse.Namespace) -> Places:
    cache = options.cache or Path.home() / ".cache" / "deepjoin-paper"
    models = options.models or cache / "models"
    return Places(options.data, cache, models, _say)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper", description=__doc__)
    commands = parser.add_subparsers(required=True)
    add = commands.add_parser
    add("list", help="name the experiments").set_defaults(function=_list)
    add("render", help="write docs/benchmarks.md and plots").set_defaults(function=_render)
    for name, function, text in (
        ("run", _run, "run one experiment, or all; finished settings are not run again"),
        ("hits", _hits, "measure hits that another machine found (see hits.py)"),
        ("models", _models, "print the commands that train the models of an experiment"),
    ):
        command = add(name, help=text)
        command.set_defaults(function=function)
        command.add_argument("name", metavar="NAME", help="a name from list, or all")
        if function is _hits:
            command.add_argument("folder", type=Path, metavar="FOLDER", help="what came back")
        command.add_argument("--data", type=Path, required=True, metavar="DIR", help="corpora")
        command.add_argument("--cache", type=Path, metavar="DIR", help="kept between runs")
        command.add_argument("--models", type=Path, metavar="DIR", help="default: CACHE/models")
        command.add_argument("--size", choices=SIZES, default="reduced")
        if function is _run:
            command.add_argument(
                "--again", action="store_true", help="also run finished settings again"
            )
            text = "only this row of the tables; may be given several times"
            command.add_argument("--row", action="append", default=[], metavar="LABEL", help=text)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.function(options))
    except DeepJoinError as error:
        _say(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
