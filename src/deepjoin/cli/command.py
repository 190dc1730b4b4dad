"""What the descriptions of all commands are made with."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[Intermixed]"


class Intermixed(argparse.ArgumentParser):
    """Takes arguments after options too: ``search INDEX -c COLUMN FILE``."""

    _is_mixing = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse options first, then arguments, wherever they stand."""
        if self._is_mixing:
            return super().parse_known_args(args, namespace)
        self._is_mixing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_mixing = False


def command(
    commands: Commands, name: str, summary: str, examples: str = ""
) -> argparse.ArgumentParser:
    """Add a command whose work is done by the module of its name."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=_loaded(name))
    return parser


def _loaded(name: str) -> Callable[[argparse.Namespace], int | None]:
    def run(options: argparse.Namespace) -> int | None:
        work: Callable[[argparse.Namespace], int | None]
        work = import_module(f"deepjoin.cli.{name}").run
        return work(options)

    return run


def index_argument(parser: argparse.ArgumentParser) -> None:
    """Add the index that a command works on."""
    parser.add_argument(
        "index",
        metavar="INDEX",
        help="an index folder, or a folder of tables (indexed on first use)",
    )


def format_argument(parser: argparse.ArgumentParser, *more: str) -> None:
    """Add the choice between a table for people and JSON for programs."""
    parser.add_argument(
        "--format", choices=("table", "json", *more), default="table", help="form of the result"
    )


def vector_store_argument(parser: argparse.ArgumentParser) -> None:
    """Add where column vectors are searched."""
    parser.add_argument(
        "--vector-store",
        metavar="URL",
        action="append",
        help="search column vectors in PostgreSQL (see: deepjoin publish); again for each of "
        "several servers; default: $DEEPJOIN_VECTOR_STORE, or the index itself",
    )
