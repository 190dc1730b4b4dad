"""Default options from a file `deepjoin.toml`.

It has a table for each command, with the command's own options as keys, checked in the same way
as those of the command line; `[defaults]` applies to every command that has such an option.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from deepjoin.cli.arguments import suggestion
from deepjoin.cli.output import say
from deepjoin.errors import DeepJoinError, unknown_name

NAME = "deepjoin.toml"
VARIABLE = "DEEPJOIN_CONFIG"
_DEFAULTS = "defaults"
#: Options with these metavars are paths, relative to the folder of the file.
_PATHS = frozenset(("INDEX", "SOURCE", "OUT", "FILE", "DIR", "CSV", "CORPUS"))
#: Options with these metavars are paths if such a path exists, and names otherwise.
_PATHS_OR_NAMES = frozenset(("NAME|DIR|KIND:WHERE|none", "NAME|DIR|KIND:WHERE", "NAME|PATH|none"))

#: Options that decide who is let in, what is written where, what a database runs, what people are
#: taken to have said, or which server is given tables or queries. The file may be in a folder
#: above, where somebody else put it, so it is named when it sets them.
_TOLD = {
    *("host", "token", "vector_store", "version_query", "ray_address", "import_file"),
    *("out", "matches_out", "doubtful", "decisions"),
}
#: Options whose values may hold secrets.
_HIDDEN = ("token", "vector_store")

Tables = dict[str, dict[str, Any]]
Actions = dict[str, argparse.Action]
Parsed = TypeVar("Parsed")


@dataclass
class FileOptions:
    """Options that the file sets for one command, and the command's first argument."""

    path: Path
    command: str
    options: dict[str, Any] = field(default_factory=dict)
    first: list[str] = field(default_factory=list)

    def fill(self, options: argparse.Namespace) -> argparse.Namespace:
        """Add the options that the command line does not have; say which open a door."""
        shown_options = []
        for name, value in self.options.items():
            if not hasattr(options, name):
                setattr(options, name, value)
                # An index is written over nothing else.
                if name in _TOLD and (name, self.command) != ("out", "index"):
                    shown = "" if name in _HIDDEN else f" {value}"
                    shown_options.append(f"--{name.replace('_', '-')}{shown}")
        if shown_options:
            say(f"{self.path} sets {', '.join(shown_options)}.")
        return options


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; take missing options from the configuration file."""
    # The main parser cannot run yet: without the file, required arguments may be missing.
    early = argparse.ArgumentParser(add_help=False)
    early.add_argument("--config")
    early.add_argument("line", nargs=argparse.REMAINDER)
    known, unknown = _quietly(early.parse_known_args, arguments) or (argparse.Namespace(), [])
    line: list[str] = [] if unknown else getattr(known, "line", [])
    path = _located(known.config) if line and not {"-h", "--help"} & set(line) else None
    if path is None:
        return parser.parse_args(arguments)
    (subparsers,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    commands: dict[str, argparse.ArgumentParser] = dict(subparsers.choices)
    given = _read_for(line[0], commands, path)
    if given.first:
        # The file's argument is used only where the line alone is not a complete command.
        options = _quietly(parser.parse_args, line)
        if options is None:
            options = _quietly(parser.parse_args, [line[0], *given.first, *line[1:]])
        elif hasattr(options, "incomplete") and options.incomplete(options):
            # The line parses but has nothing to work on: its arguments move one place on.
            names = _positionals(commands[line[0]])
            values = [given.first[0], *(getattr(options, name) for name in names)]
            for name, value in zip(names, values, strict=False):
                setattr(options, name, value)
        if options is not None:
            return given.fill(options)
    return given.fill(parser.parse_args(arguments))


def _quietly(parse: Callable[[Sequence[str]], Parsed], line: Sequence[str]) -> Parsed | None:
    """Parse a line, or return None without an error message."""
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            return parse(line)
        except SystemExit:
            return None


def _located(named: str | None) -> Path | None:
    """Find the file: the named one, or the nearest upwards from the working directory."""
    named = named or os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser()
    try:
        here = Path.cwd()
    except OSError:
        return None
    # A file above the home folder or the repository may belong to somebody else.
    for folder in (here, *here.parents):
        if (folder / NAME).is_file():
            return folder / NAME
        if folder == Path(os.path.expanduser("~")) or (folder / ".git").exists():
            break
    return None


def _read_for(
    command: str, commands: Mapping[str, argparse.ArgumentParser], path: Path
) -> FileOptions:
    """Read and check the whole file; return what it sets for a command."""
    known = {name: _actions(parser) for name, parser in commands.items()}
    general = {key: action for actions in known.values() for key, action in actions.items()}
    tables = _read(path)
    for name, table in tables.items():
        if name != _DEFAULTS and name not in known:
            raise unknown_name("table", name, str(path), [_DEFAULTS, *known])
        keys = general if name == _DEFAULTS else known[name]
        for key in table:
            if key.replace("_", "-") not in keys:
                raise unknown_name("key", key, f"[{name}] of {path}", keys)
    # Every command's options are checked, so that a mistake shows at once, not months later.
    given = {name: FileOptions(path, name) for name in known}
    for name, actions in known.items():
        for heading in (_DEFAULTS, name):
            for key, value in tables.get(heading, {}).items():
                action = actions.get(key.replace("_", "-"))
                if action is None:
                    continue
                checked = FileValue(value, action, f"{path}, [{heading}] {key}", path.parent)
                if action.option_strings:
                    given[name].options[action.dest] = checked.read()
                    # The parser must accept lines without it.
                    action.default, action.required = argparse.SUPPRESS, False
                else:
                    given[name].first = checked.texts()
    return given.get(command, FileOptions(path, command))


def _read(path: Path) -> Tables:
    import tomllib

    try:
        # With a line end added, an error in the last line is reported with its number too.
        tables = tomllib.loads(path.read_bytes().decode("utf-8-sig") + "\n")
    except OSError as error:
        raise DeepJoinError(
            f"Cannot read the configuration file {path}: {error.strerror}. "
            f"Name another with --config or {VARIABLE}, or neither to use the nearest {NAME}."
        ) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DeepJoinError(f"{path} is not UTF-8 in line {line}; save it as UTF-8.") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise DeepJoinError(f"{path} is not valid TOML: {error}.") from None
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise DeepJoinError(
                f"{path}: '{name}' is outside every table; move it under a command, as in "
                f"[search], or under [{_DEFAULTS}]."
            )
    return tables


def _positionals(parser: argparse.ArgumentParser) -> list[str]:
    return [action.dest for action in parser._actions if not action.option_strings]


def _actions(parser: argparse.ArgumentParser) -> Actions:
    """Return what the file may set for a command: its options, and its first argument."""
    first = _positionals(parser)[:1]
    actions = {}
    for action in parser._actions:
        is_option = action.option_strings and action.dest != "help"
        if is_option or (action.dest in first and action.required):
            names = action.option_strings or [action.dest]
            long = next((name for name in names if name.startswith("--")), names[0])
            actions[long.lstrip("-")] = action
    return actions


@dataclass(frozen=True)
class FileValue:
    """A value of the file, with the option it sets and its place in the file."""

    value: Any
    action: argparse.Action
    where: str
    folder: Path

    def read(self) -> Any:
        """Return what the command line would have made of it."""
        if self.action.nargs == 0:
            if not isinstance(self.value, bool):
                raise self._error(f"expected true or false, got {self.value!r}")
            if self.action.const is None:
                return self.value
            return self.action.const if self.value else self.action.default
        values = [self._converted(text) for text in self.texts()]
        return values if self._takes_list() else values[0]

    def texts(self) -> list[str]:
        """Return it as words of a command line."""
        many = self.value if isinstance(self.value, list) else [self.value]
        if not many:
            raise self._error("the list is empty")
        if isinstance(self.value, list) and not self._takes_list():
            raise self._error("expected one value, got a list")
        expected = "a quoted string" + (" or a number" if self.action.type else "")
        texts = []
        for value in many:
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not isinstance(value, str) and not (is_number and self.action.type is not None):
                raise self._error(f"expected {expected}, got {str(value).lower()}")
            texts.append(self._path(str(value)))
        return texts

    def _takes_list(self) -> bool:
        several = self.action.nargs not in (None, 0, "?", 1)
        return several or isinstance(self.action, argparse._AppendAction)

    def _path(self, text: str) -> str:
        """Make a path relative to the folder of the file; leave URLs as they are."""
        if self.action.metavar not in _PATHS | _PATHS_OR_NAMES or "://" in text:
            return text
        from deepjoin.embed.columns.loading import split_kind

        # fasttext:vectors.bin is a path after the kind of encoder.
        kind, where = split_kind(text)
        path = self.folder.absolute() / os.path.expanduser(where)
        if self.action.metavar in _PATHS_OR_NAMES and not (where and path.exists()):
            return text
        return f"{kind}:{path}" if kind else str(path)

    def _converted(self, text: str) -> Any:
        try:
            value = self.action.type(text) if callable(self.action.type) else text
        except argparse.ArgumentTypeError as error:
            raise self._error(str(error)) from None
        except (TypeError, ValueError):
            raise self._error(f"'{text}' is not allowed") from None
        choices = self.action.choices
        if choices is not None and value not in choices:
            listed = list(map(str, choices))
            hint = suggestion(text, listed) or "."
            raise DeepJoinError(f"{self.where}: '{text}' is not one of {', '.join(listed)}{hint}")
        return value

    def _error(self, what: str) -> DeepJoinError:
        return DeepJoinError(f"{self.where}: {what}.")
