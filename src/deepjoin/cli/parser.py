"""The parser of the command line, made of what the modules of the commands declare.

Importing a command is cheap, so that `--help` answers at once; its `run` imports what it needs.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import textwrap
from importlib import import_module
from itertools import groupby
from typing import Any, NoReturn, Protocol, cast

from deepjoin._version import __version__
from deepjoin.cli.arguments import Argument, suggestion
from deepjoin.cli.output import say
from deepjoin.show.text import Screen

_ABOUT = """\
Find tables of a data lake that join with your column, see why, join them.

  deepjoin demo                                 try it on a small lake
  deepjoin search data/ orders.csv -c customer  which tables have my customers?
  deepjoin join data/ orders.csv -c customer --with clients.csv:name -o out.csv
  deepjoin serve data/ --open                   the same in the browser
"""

_CONFIGURATION = """\
deepjoin COMMAND --help has the options and examples of a command.
Default options can be kept in a file deepjoin.toml, in this folder or above it:
a table for each command, as in [index] source = "data/", and [defaults]
index = "data/" so that INDEX can be left out.
"""


class Command(Protocol):
    """The module of a command; the command has its name."""

    #: One line for the list of commands; the description is made of it.
    SUMMARY: str
    #: Text below the options: examples, and what the options do not say.
    EPILOG: str

    #: The arguments and options; those in a tuple of their own exclude each other.
    ARGUMENTS: tuple[Argument | tuple[Argument, ...], ...]

    def run(self, options: argparse.Namespace, /) -> int | None:
        """Run the command; returns the exit status, None for 0."""


#: The commands by what they are for, in the order of the help; each is a module of this package.
GROUPS = {
    "search and join": "demo search join match enrich bridges relations feedback path graph",
    "make and keep an index": "index info add remove compact check",
    "serve a lake": "serve mcp publish",
    "methods and models": "methods train evaluate",
}
COMMANDS: dict[str, Command] = {
    name: cast(Command, import_module(f"deepjoin.cli.{name}"))
    for names in GROUPS.values()
    for name in names.split()
}


class ExamplesFormatter(argparse.RawDescriptionHelpFormatter):
    """Wraps paragraphs to the terminal; indented lines, which are examples, stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines: list[str] = []
        for is_prose, some in groupby(text.splitlines(), lambda line: line[:1].strip() != ""):
            part = list(some)
            lines += textwrap.wrap(" ".join(part), width) if is_prose else part
        return "\n".join(lines)


class SuggestingParser(argparse.ArgumentParser):
    """A parser with errors of one line, which suggest the choice nearest to a misspelt one."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # No option begins with a digit, so that -5,3 and -1e3 can be values like -5.
        self._negative_number_matcher = re.compile(r"-\.?\d")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            text = error.message
            if isinstance(action, argparse._SubParsersAction):
                text = f"no command '{value}'"
            hint = suggestion(str(value), map(str, action.choices or ()))
            raise argparse.ArgumentError(action, f"{text}{hint}") from None

    def error(self, message: str) -> NoReturn:
        """Write one line and end with status 2."""
        message = message.removeprefix("argument COMMAND: ")
        option = re.fullmatch(r"argument (?:.*/)?(--?[\w-]+): expected one argument", message)
        if option:
            message += f"; a value that begins with - is written {option[1]}=-x"
        if message.startswith("unrecognized arguments: "):
            first = message.partition(": ")[2].split()[0].partition("=")[0]
            message += suggestion(first, self._option_string_actions)
        end = "" if message.endswith(("?", ".")) else "."
        say(f"{self.prog}: {message}{end} See: {self.prog} --help")
        self.exit(2)

    def print_help(self, file: Any = None) -> None:
        """Print the help, headings in bold where there is colour."""
        screen = Screen.of(file or sys.stdout)
        heading = re.compile(r"^[a-z].*:$", re.MULTILINE)
        text = heading.sub(lambda found: screen.paint(found[0], "bold"), self.format_help())
        print(text, end="", file=file or sys.stdout)


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
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return known, unknown


def _listed_commands() -> str:
    """List the commands in their groups, as wide as the terminal."""
    width = shutil.get_terminal_size().columns
    lines = []
    for title, names in GROUPS.items():
        lines.append(f"\n{title}:")
        for name in names.split():
            first, *rest = textwrap.wrap(COMMANDS[name].SUMMARY, max(width - 14, 24))
            lines += [f"  {name:<10}{first}", *(" " * 12 + line for line in rest)]
    return "\n".join(lines)


def make_parser() -> argparse.ArgumentParser:
    """Build the parser of all commands."""
    parser = SuggestingParser(
        "deepjoin",
        usage="deepjoin [--config FILE] COMMAND ...",
        description=_ABOUT + _listed_commands(),
        epilog=_CONFIGURATION,
        formatter_class=ExamplesFormatter,
    )
    parser.add_argument("--version", action="version", version=f"deepjoin {__version__}")
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="read default options from FILE; default: $DEEPJOIN_CONFIG, or the nearest "
        "deepjoin.toml",
    )
    # Without a command, the overview answers.
    parser.set_defaults(run=lambda _: parser.print_help())
    commands = parser.add_subparsers(
        prog="deepjoin", metavar="COMMAND", help=argparse.SUPPRESS, parser_class=CommandParser
    )
    for name, command in COMMANDS.items():
        added = commands.add_parser(
            name,
            description=f"{command.SUMMARY[0].upper()}{command.SUMMARY[1:]}.",
            epilog=command.EPILOG,
            formatter_class=ExamplesFormatter,
        )
        for one in command.ARGUMENTS:
            if isinstance(one, tuple):
                group = added.add_mutually_exclusive_group()
                for each in one:
                    each.add_to(group)
            else:
                one.add_to(added)
        added.set_defaults(run=command.run)
        if is_incomplete := getattr(command, "is_incomplete", None):
            added.set_defaults(incomplete=is_incomplete)
    return parser
