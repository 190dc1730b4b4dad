"""Errors for the log: what they are and where they happened, without what they say."""

from __future__ import annotations

import traceback


def traced(error: BaseException) -> str:
    """Name an error, those that led to it, and the lines of code they went through.

    >>> traced(ValueError("a cell of someone's"))
    'ValueError'
    """
    parts, seen = [], set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        kind = type(one)
        name = kind.__qualname__ if kind.__module__ == "builtins" else _full_name(kind)
        parts.append(name + "".join(_frames(one)))
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return "\nbecause of ".join(parts)


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _frames(error: BaseException) -> list[str]:
    return [
        f"\n  {frame.filename}:{frame.lineno} in {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
    ]
