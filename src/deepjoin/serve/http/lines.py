"""Lines that do the same join elsewhere: in Python, and in a shell."""

from __future__ import annotations

import shlex
from pathlib import Path

from deepjoin.serve.http.requests import JoinRequest


def python_lines(location: str | Path, left: str, asked: JoinRequest, join: str) -> str:
    """Write the join with the library; ``left`` is a file of the user's or a table of the lake."""
    chosen = "".join(f", {name}={value!r}" for name, value in _chosen(asked, join).items())
    hit = (asked.hit.table, asked.hit.column)
    return (
        "import deepjoin\n\n"
        f"lake = deepjoin.open({_index(location)!r})\n"
        f"joined = lake.join({left!r}, on={asked.on!r}, hit={hit!r}{chosen})\n"
    )


def shell_line(location: str | Path, left: str, asked: JoinRequest, join: str) -> str:
    """Write the join as a command; names that start with a dash are kept from being options."""
    words = ["deepjoin", "join", _index(location), f"./{left}" if left.startswith("-") else left]
    words += [f"--column={asked.on}", f"--with={asked.hit.table}:{asked.hit.column}"]
    words += [f"--{name}={value}" for name, value in _chosen(asked, join).items()]
    return " ".join(map(_quoted, [*words, "--out=joined.parquet"]))


def _quoted(word: str) -> str:
    r"""Quote a word for a shell, so that whoever copies it sees all that is in it.

    >>> print(_quoted("it's"), _quoted("it's\x1b[1m"))
    'it'"'"'s' $'it\'s\033[1m'
    """
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(map(_escaped, word)) + "'"


def _escaped(letter: str) -> str:
    if letter.isprintable():
        return f"\\{letter}" if letter in "\\'" else letter
    return "".join(f"\\{byte:03o}" for byte in letter.encode("utf-8", "surrogatepass"))


def _index(location: str | Path) -> str:
    return str(location.resolve()) if isinstance(location, Path) else location


def _chosen(asked: JoinRequest, join: str) -> dict[str, object]:
    """Give the options that are not the default."""
    usual = {"how": "left", "many": "expand", "join": "equi", "tau": None, "matching": "best"}
    given = {"how": asked.how, "many": asked.many, "join": join, "tau": asked.tau}
    given |= {"matching": asked.matching}
    return {name: value for name, value in given.items() if value != usual[name]}
