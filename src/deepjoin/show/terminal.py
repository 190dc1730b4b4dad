"""Texts from tables made fit for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""Replace whatever would break, colour or turn round a line.

    >>> printable("new\nline \x1b[31m")
    'new line  [31m'
    """
    return "".join(character if character.isprintable() else " " for character in text)
