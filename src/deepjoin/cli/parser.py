"""The parser of the command line: `COMMANDS` lists the modules, one a command.

Importing a command is cheap, so that `--help` answers at once; its `run` imports what it needs.
"""

from __future__ import annotations

import argparse
import difflib
from typing import Any, Protocol

from deepjoin._version import __version__
from deepjoin.cli import (
    add,
    check,
    compact,
    demo,
    evaluate,
    graph,
    index,
    info,
    join,
    mcp,
    methods,
    publish,
    remove,
    search,
    serve,
    train,
)

_ABOUT = """\
Find the tables of a data lake that join with a column of yours, see why, and join them.

  deepjoin demo                                    try it on a small lake, in a minute
  deepjoin index data/                             index a folder of tables
  deepjoin search data/ orders.csv -c customer     which tables have my customers?
  deepjoin join data/ orders.csv -c customer --with crm/clients.csv:name -o enriched.parquet
  deepjoin serve data/ --open                      the same in the browser
"""

_CONFIGURATION = """\
Default options can be kept in a file deepjoin.toml, in this folder or above it: a table for
each command, as in [index] source = "data/", and [defaults] index = "data/" so that INDEX can
be left out. The command line takes precedence over the file.
"""


class Command(Protocol):
    """The module of a command; the command has its name."""

    #: One line for the list of commands; the description is made of it.
    SUMMARY: str
    #: Text below the options: examples, and what the options do not say.
    EPILOG: str

    def add_arguments(self, parser: argparse.ArgumentParser, /) -> None:
        """Add the arguments and options."""

    def run(self, options: argparse.Namespace, /) -> int | None:
        """Run the command; returns the exit status, None for 0."""


#: In the order of the help: first what makes an index, then what uses it.
COMMANDS: dict[str, Command] = {
    "index": index,
    "add": add,
    "remove": remove,
    "compact": compact,
    "check": check,
    "search": search,
    "join": join,
    "info": info,
    "graph": graph,
    "methods": methods,
    "train": train,
    "evaluate": evaluate,
    "demo": demo,
    "serve": serve,
    "mcp": mcp,
    "publish": publish,
}


class SuggestingParser(argparse.ArgumentParser):
    """A parser that suggests the choice nearest to a misspelt one."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            hint = _suggestion(str(value), map(str, action.choices or ()))
            raise argparse.ArgumentError(action, f"{error.message}{hint}") from None


class CommandParser(SuggestingParser):
    """The parser of one command; takes arguments after options: ``search INDEX -c COLUMN FILE``."""

    _is_mixing = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse options first, then the arguments between them."""
        # parse_known_intermixed_args calls this method for each of its two passes.
        if self._is_mixing:
            return super().parse_known_args(args, namespace)
        self._is_mixing = True
        try:
            known, unknown = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_mixing = False
        # Reported here and not by the main parser, which does not know this command's options.
        options = [text for text in unknown if text.startswith("-")]
        if options:
            hint = _suggestion(options[0].partition("=")[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return known, unknown


def _suggestion(text: str, known: Any) -> str:
    near = difflib.get_close_matches(text, list(known), n=1)
    return f". Did you mean '{near[0]}'?" if near else ""


def make_parser() -> argparse.ArgumentParser:
    """Build the parser of all commands."""
    parser = SuggestingParser(
        "deepjoin",
        description=_ABOUT,
        epilog=_CONFIGURATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"deepjoin {__version__}")
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="read default options from FILE; default: $DEEPJOIN_CONFIG, or the nearest "
        "deepjoin.toml",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=CommandParser)
    for name, command in COMMANDS.items():
        added = commands.add_parser(
            name,
            help=command.SUMMARY,
            description=f"{command.SUMMARY[0].upper()}{command.SUMMARY[1:]}.",
            epilog=command.EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(added)
        added.set_defaults(run=command.run)
    return parser
