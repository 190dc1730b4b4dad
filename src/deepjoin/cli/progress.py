"""A bar on stderr for work that takes long: how much is done, how fast, how long it will take."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from deepjoin.show.terminal import printable

#: Told how many tables are done, of how many, and what is being worked on.
Show = Callable[[int, int, str], None]
#: What is counted when vectors are made, by the name of that work.
_UNITS = {"values": "values", "columns": "columns", "sketches": "columns", "vectors": "vectors"}


@contextmanager
def progress_bar() -> Iterator[Show]:
    """Show tables (or values, or columns) done, rate and time left; nothing if nobody watches.

    The bar begins with the first call and moves with every other, also where no more tables
    are done but the name says something new, as that of a large table being read does.
    """
    bar: Any = None

    def show(done: int, total: int, name: str) -> None:
        nonlocal bar
        if bar is not None and done < bar.n:  # other work has begun
            bar.close()
            bar = None
        if bar is None:
            bar = _bar(done, total, _UNITS.get(name, "tables"))
        bar.total = total
        bar.set_postfix_str(shortened(printable(name), _room()), refresh=False)
        bar.update(done - bar.n)

    try:
        yield show if _is_watched() else _show_nothing
    finally:
        if bar is not None:
            bar.close()


def _show_nothing(done: int, total: int, name: str) -> None:
    pass


def _is_watched() -> bool:
    """Whether somebody looks at stderr, on a terminal that can write over a line."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _bar(done: int, total: int, unit: str) -> Any:
    from tqdm import tqdm

    # Without smoothing the rate is that of all so far: a table may take longer than thousands
    # before it. With miniters 0 time alone decides when to draw, whether or not more is done.
    return tqdm(
        initial=done,
        total=total,
        unit=f" {unit}",
        leave=False,
        dynamic_ncols=True,
        smoothing=0,
        miniters=0,
    )


def _room() -> int:
    """How wide a name may be, so that a bar remains."""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        columns = 80
    return max(columns // 3, 12)


def shortened(text: str, width: int) -> str:
    """Keep the end of a text, which tells most of a path, within so many columns.

    >>> shortened("geo/cities.csv", 9), shortened("日本/地名.csv", 9)
    ('…ties.csv', '…地名.csv')
    """
    if sum(map(_columns, text)) <= width:
        return text
    room, start = width - 1, len(text)
    while start and room >= _columns(text[start - 1]):
        start -= 1
        room -= _columns(text[start])
    while start < len(text) and not _columns(text[start]):  # an accent whose letter is cut off
        start += 1
    return "…" + text[start:]


def _columns(character: str) -> int:
    """How many columns of a terminal a character takes."""
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
