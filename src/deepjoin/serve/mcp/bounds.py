"""Answers of bounded size: cells and names are cut, lists end, and each answer says so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

Item = TypeVar("Item")

#: Characters of a cell, and of a name, which is needed whole to ask on.
CELL, NAME = 200, 500
#: Characters of an error or a note.
LINE = 1000


def one_line(text: str, width: int = LINE) -> str:
    r"""Make one line of a text, without what could break it, and not too long.

    >>> one_line("No table\n'x'.", 20)
    "No table 'x'."
    """
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return plain if len(plain) <= width else plain[: width - 1] + "…"


def count(number: int, what: str) -> str:
    """Count in words.

    >>> count(1, "row"), count(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


class Cutter:
    """Cuts what goes into one answer, and remembers what was cut."""

    def __init__(self) -> None:
        self._told: dict[str, None] = {}

    @property
    def cut(self) -> list[str]:
        """What was cut, in words."""
        return list(self._told)

    def cell(self, text: str) -> str:
        """Cut a cell."""
        return self._shortened(text, CELL, f"cells longer than {CELL} characters end in …")

    def name(self, text: str) -> str:
        """Cut a name, which can then not be used to ask on."""
        return self._shortened(text, NAME, f"names longer than {NAME} characters end in …")

    def some(self, items: Iterable[Item], most: int, what: str) -> list[Item]:
        """Keep the first of some items."""
        listed: Sequence[Item] = list(items)
        if len(listed) > most:
            self._told[f"{most:,} of {len(listed):,} {what} are listed"] = None
        return list(listed[:most])

    def tell(self, what: str) -> None:
        """Remember something that was cut elsewhere."""
        self._told[what] = None

    def _shortened(self, text: str, most: int, told: str) -> str:
        if len(text) <= most:
            return text
        self._told[told] = None
        return text[: most - 1] + "…"
