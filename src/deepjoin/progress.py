"""Progress of long work: one type of callback for builds, joins, training and publishing."""

from __future__ import annotations

from collections.abc import Callable

#: Called with how much is done, of how much, and what is being done ("values", "columns").
Progress = Callable[[int, int, str], None]
#: Called with one line of text for the user.
Notify = Callable[[str], None]


def no_progress(done: int, total: int, what: str) -> None:
    """Ignore progress."""


def no_notice(text: str) -> None:
    """Ignore a notice."""
