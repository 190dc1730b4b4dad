"""The values of options, read and checked: what is wrong is a usage error."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Callable

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def whole(least: int) -> Callable[[str], int]:
    """Read a whole number from a least one on."""

    def read(text: str) -> int:
        if not re.fullmatch(r"-?[0-9]+", text) or int(text) < least:
            raise ArgumentTypeError(f"'{text}' is no whole number from {least} on")
        return int(text)

    return read


def share(text: str) -> float:
    """Read a share between 0 and 1.

    >>> share("0.7")
    0.7
    """
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ArgumentTypeError(f"'{text}' is not a share between 0 and 1")
    return value


def number(text: str) -> float:
    """Read a number from 0 on.

    >>> number("2e-5")
    2e-05
    """
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ArgumentTypeError(f"'{text}' is no number from 0 on")
    return value


def seconds(text: str) -> float:
    """Read a time above 0.

    >>> seconds("0.5")
    0.5
    """
    value = number(text)
    if value == 0:
        raise ArgumentTypeError("0 is no time; give seconds above 0")
    return value


def size(text: str) -> int:
    """Read a size in bytes, such as 500M.

    >>> size("2G") == 2 << 30
    True
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT]?)B?", text.strip(), re.IGNORECASE)
    if match is None:
        raise ArgumentTypeError(f"'{text}' is no size; write it like 500M or 2G")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def depths(text: str) -> list[int]:
    """Read the depths of an evaluation.

    >>> depths("10,20")
    [10, 20]
    """
    read = whole(1)
    try:
        return [read(part.strip()) for part in text.split(",")]
    except ArgumentTypeError:
        raise ArgumentTypeError(f"'{text}' is no list of depths; write it like 10,20") from None


def target(text: str) -> tuple[str, str]:
    """Read TABLE:COLUMN, split at the last colon.

    >>> target("a:b.csv:name")
    ('a:b.csv', 'name')
    """
    table, _, column = text.rpartition(":")
    if not table or not column:
        raise ArgumentTypeError(f"'{text}' is not of the form TABLE:COLUMN")
    return table, column
