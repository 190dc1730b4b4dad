"""What the service refuses, each with its status and one line that says why."""

from __future__ import annotations

from deepjoin.errors import DeepJoinError, IndexUnusable


class Refused(DeepJoinError):
    """A request that is not answered."""

    status = 400


class NotFound(Refused):
    """Nothing is there."""

    status = 404


class Forbidden(Refused):
    """The service was not started for this."""

    status = 403


class TooLarge(Refused):
    """More bytes or rows than the service takes."""

    status = 413


class TooSlow(Refused):
    """The time of a request is over."""

    status = 408


class Busy(Refused):
    """As many requests wait as may."""

    status = 503


def status_of(error: DeepJoinError) -> int:
    """Give the HTTP status of an error."""
    if isinstance(error, Refused):
        return error.status
    return 503 if isinstance(error, IndexUnusable) else 400
