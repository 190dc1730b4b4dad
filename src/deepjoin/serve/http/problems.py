"""Errors that the service raises, each with its HTTP status, and what the log says of others."""

from __future__ import annotations

import traceback

from deepjoin.errors import DeepJoinError


class Refused(DeepJoinError):
    """A request that cannot be answered."""

    status = 400


class NotFound(Refused):
    """What the request names does not exist."""

    status = 404


class Forbidden(Refused):
    """The service was not started for this."""

    status = 403


class TooLarge(Refused):
    """More bytes or rows than the service accepts."""

    status = 413


class TooSlow(Refused):
    """The request took longer than allowed."""

    status = 408


class Busy(Refused):
    """Too many requests are waiting already."""

    status = 503


def traced(error: BaseException) -> str:
    """Name an error, those that led to it, and the lines of code they passed.

    Messages are left out: they may quote cells, which do not belong in a log.

    >>> traced(ValueError("a cell of someone's"))
    'ValueError'
    """
    parts, seen = [], set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        kind = type(one)
        name = kind.__qualname__
        if kind.__module__ != "builtins":
            name = f"{kind.__module__}.{name}"
        parts.append(
            name
            + "".join(
                f"\n  {frame.filename}:{frame.lineno} in {frame.name}"
                for frame in traceback.extract_tb(one.__traceback__)
            )
        )
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return "\nbecause of ".join(parts)
