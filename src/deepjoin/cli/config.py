"""Options from a file `deepjoin.toml`: what the command line leaves open.

It has a table for each command, with the command's own options as keys, checked as those of
the command line are; `[defaults]` goes to every command that has such an option.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepjoin.errors import DeepJoinError, unknown_name

NAME = "deepjoin.toml"
VARIABLE = "DEEPJOIN_CONFIG"
_DEFAULTS = "defaults"
#: What the help calls so is a path, and counts from the folder of the file it stands in.
_PATHS = frozenset(("INDEX", "SOURCE", "OUT", "FILE", "DIR", "CSV", "CORPUS"))
#: So called, it may be a path or a name; it is a path if that is there.
_OR_NAMES = frozenset(("NAME|DIR|KIND:WHERE|none", "NAME|DIR|KIND:WHERE", "NAME|PATH|none"))

Tables = dict[str, dict[str, Any]]
Actions = dict[str, argparse.Action]


@dataclass
class _Given:
    """What the file says for one command: its options, and the argument that comes first."""

    options: dict[str, Any] = field(default_factory=dict)
    first: list[str] = field(default_factory=list)

    def fill(self, options: argparse.Namespace) -> argparse.Namespace:
        """Add what the command line left open."""
        for name, value in self.options.items():
            if not hasattr(options, name):
                setattr(options, name, value)
        return options


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; what it leaves open comes from the configuration file."""
    named, line = _split(arguments)
    path = _located(named) if line and not {"-h", "--help"} & set(line) else None
    if path is None:
        return parser.parse_args(arguments)
    commands = _commands(parser)
    given = _read_for(line[0], commands, path)
    if given.first:
        # The file's argument comes in only where the line alone is no whole command.
        options = _attempt(parser, line, given)
        if options is None:
            options = _attempt(parser, [line[0], *given.first, *line[1:]], given)
        elif _is_incomplete(options):
            _shift(options, _positionals(commands[line[0]]), given.first[0])
        if options is not None:
            return options
    return given.fill(parser.parse_args(arguments))


def _split(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the file named before the command, and the command with all that follows it."""
    early = argparse.ArgumentParser(add_help=False)
    early.add_argument("--config")
    early.add_argument("line", nargs=argparse.REMAINDER)
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            known, unknown = early.parse_known_args(arguments)
        except SystemExit:
            return None, []
    return known.config, [] if unknown else known.line


def _attempt(
    parser: argparse.ArgumentParser, line: Sequence[str], given: _Given
) -> argparse.Namespace | None:
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            return given.fill(parser.parse_args(line))
        except SystemExit:
            return None


def _is_incomplete(options: argparse.Namespace) -> bool:
    """Whether a line that the parser takes leaves the command with nothing to work on."""
    return hasattr(options, "incomplete") and bool(options.incomplete(options))


def _shift(options: argparse.Namespace, names: Sequence[str], first: str) -> None:
    """Put an argument before those of the line."""
    values = [first, *(getattr(options, name) for name in names)]
    for name, value in zip(names, values, strict=False):
        setattr(options, name, value)


def _located(named: str | None) -> Path | None:
    """Find the file: the one named, or the nearest upwards from the working directory."""
    named = named or os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser()
    try:
        here = Path.cwd()
    except OSError:
        return None
    for folder in (here, *here.parents):
        if (folder / NAME).is_file():
            return folder / NAME
        if folder == Path(os.path.expanduser("~")) or (folder / ".git").exists():
            break
    return None


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return dict(commands.choices)


def _read_for(command: str, commands: Mapping[str, argparse.ArgumentParser], path: Path) -> _Given:
    """Read and check the whole file; return what it says for a command."""
    known = {name: _actions(parser) for name, parser in commands.items()}
    tables = _read(path)
    _refuse_unknown(tables, known, path)
    given = {name: _for_command(name, actions, tables, path) for name, actions in known.items()}
    return given.get(command, _Given())


def _read(path: Path) -> Tables:
    try:
        # With a line end after it, a mistake in the last line is told with its number too.
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
                f"{path}: '{name}' stands outside every table; put it under the command it is "
                f"for, as in [search], or under [{_DEFAULTS}]."
            )
    return tables


def _positionals(parser: argparse.ArgumentParser) -> list[str]:
    return [action.dest for action in parser._actions if not action.option_strings]


def _actions(parser: argparse.ArgumentParser) -> Actions:
    """Return what the file may say for a command: its options, and the argument it needs first."""
    first = _positionals(parser)[:1]
    return {
        _key(action): action
        for action in parser._actions
        if (action.option_strings and action.dest != "help")
        or (action.dest in first and action.required)
    }


def _key(action: argparse.Action) -> str:
    names = action.option_strings or [action.dest]
    return next((name for name in names if name.startswith("--")), names[0]).lstrip("-")


def _refuse_unknown(tables: Tables, known: Mapping[str, Actions], path: Path) -> None:
    general = {key: action for actions in known.values() for key, action in actions.items()}
    for name, table in tables.items():
        if name != _DEFAULTS and name not in known:
            raise unknown_name("table", name, str(path), [_DEFAULTS, *known])
        keys = general if name == _DEFAULTS else known[name]
        for key in table:
            if key.replace("_", "-") not in keys:
                raise unknown_name("key", key, f"[{name}] of {path}", keys)


def _for_command(name: str, actions: Actions, tables: Tables, path: Path) -> _Given:
    """Check what is said for a command, and let its parser do without."""
    given = _Given()
    for table in (_DEFAULTS, name):
        for key, value in tables.get(table, {}).items():
            action = actions.get(key.replace("_", "-"))
            if action is None:
                continue
            checked = _Value(value, action, f"{path}, [{table}] {key}", path.parent)
            if action.option_strings:
                given.options[action.dest] = checked.read()
                action.default, action.required = argparse.SUPPRESS, False
            else:
                given.first = checked.texts()
    return given


@dataclass(frozen=True)
class _Value:
    """A value of the file, the option it is for, and where it stands."""

    value: Any
    action: argparse.Action
    where: str
    folder: Path

    def read(self) -> Any:
        """Give what the command line would have made of it."""
        if self.action.nargs == 0:
            return self._switch()
        values = [self._one(text) for text in self.texts()]
        return values if self._is_list() else values[0]

    def texts(self) -> list[str]:
        """Write it as it would stand on the command line."""
        many = self.value if isinstance(self.value, list) else [self.value]
        if not many:
            raise self._wrong("the list is empty")
        if isinstance(self.value, list) and not self._is_list():
            raise self._wrong("a list came where one value belongs")
        return [self._path(self._text(value)) for value in many]

    def _is_list(self) -> bool:
        several = self.action.nargs not in (None, 0, "?", 1)
        return several or isinstance(self.action, argparse._AppendAction)

    def _switch(self) -> Any:
        if not isinstance(self.value, bool):
            raise self._wrong(f"{self.value!r} is neither true nor false")
        if self.action.const is None:
            return self.value
        return self.action.const if self.value else self.action.default

    def _text(self, value: Any) -> str:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if isinstance(value, str) or (number and self.action.type is not None):
            return str(value)
        wanted = "a text in quotes" + (" or a number" if self.action.type else "")
        raise self._wrong(f"{str(value).lower()} is not {wanted}")

    def _path(self, text: str) -> str:
        """Let a path count from the file's own folder; addresses stay as they are."""
        if self.action.metavar not in _PATHS | _OR_NAMES or "://" in text:
            return text
        from deepjoin.embed.columns.kinds import split_kind

        kind, where = split_kind(text)
        path = self.folder.absolute() / os.path.expanduser(where)
        if self.action.metavar in _OR_NAMES and not (where and path.exists()):
            return text
        return f"{kind}:{path}" if kind else str(path)

    def _one(self, text: str) -> Any:
        try:
            value = self.action.type(text) if callable(self.action.type) else text
        except argparse.ArgumentTypeError as error:
            raise self._wrong(str(error)) from None
        except (TypeError, ValueError):
            raise self._wrong(f"'{text}' is not allowed") from None
        choices = self.action.choices
        if choices is not None and value not in choices:
            raise self._wrong(f"'{text}' is not one of {', '.join(map(str, choices))}", choices)
        return value

    def _wrong(self, what: str, choices: Any = ()) -> DeepJoinError:
        near = difflib.get_close_matches(str(self.value), [str(choice) for choice in choices], n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        return DeepJoinError(f"{self.where}: {what}.{hint}")
