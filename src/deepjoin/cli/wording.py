"""Error messages in the words of the shell: options instead of Python's arguments."""

from __future__ import annotations

import re

#: An argument as `deepjoin.errors` writes it, with a value or without.
_ARGUMENT = re.compile(r"`([a-z_]+)(?:=([^`]*))?`")
#: Options whose names differ from those of their arguments.
_OPTIONS = {"out": "-o", "on": "-c", "k": "-k", "spaces": "--space", "index": "--ann"}


def in_options(text: str) -> str:
    """Rewrite the arguments in a message as options of the command line.

    >>> in_options('Leave out `tau`, or use `join="semantic"`; `rebuild=True` reads all again.')
    'Leave out --tau, or use --join semantic; --rebuild reads all again.'
    """

    def option(found: re.Match[str]) -> str:
        name, value = found[1], (found[2] or "True").strip("'\"")
        written = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
        return written if value == "True" else f"{written} {value}"

    return _ARGUMENT.sub(option, text)
