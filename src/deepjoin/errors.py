"""Errors, in the user's words: what came, what was allowed, what to type next.

Messages write arguments in backticks as a Python caller types them, `` `tau` `` or
`` `join="semantic"` ``; `deepjoin.show.wording` turns these into options and fields.
"""

from __future__ import annotations

import difflib
import errno
import re
from collections.abc import Iterable
from itertools import accumulate

_MANY = 10_000
#: Names that a message lists, and their letters in all.
_LISTED, _LISTED_WIDTH = 12, 400
#: Letters of another library's error that ours quote.
_REASON_WIDTH = 160
#: A first sentence shorter than this says too little by itself.
_REASON_LEAST = 40
#: What libraries say that cannot allocate; threads need memory for their stacks. The last is what
#: Arrow says of any text if it fails to make an array of it.
_NO_MEMORY = re.compile(
    "start new thread|launch worker thread|ThreadPoolBuildError|failed to map segment|bad_alloc|"
    "Got unexpected argument type <class 'str'> for compute function"
)


class DeepJoinError(Exception):
    """Base of every error this package raises on purpose; its text is one helpful line."""


class UnreadableTable(DeepJoinError):
    """A file or sheet cannot be read as a table. A run reports it and goes on.

    ``passing`` is true if the reason may pass without the file changing.
    """

    def __init__(self, text: str = "", *, passing: bool = False) -> None:
        super().__init__(text)
        self.passing = passing


class UnknownName(DeepJoinError, KeyError):
    """A table, column, method or option does not exist."""

    # A KeyError would write its text in quotes.
    __str__ = Exception.__str__


class IndexUnusable(DeepJoinError):
    """An index folder is damaged, foreign, newer than this version, or busy."""


class StoreUnusable(IndexUnusable):
    """A vector store cannot be reached, or does not hold what the index has."""


class StoreUnreachable(StoreUnusable):
    """A vector store does not answer; a later try may succeed."""


class StoreChanged(StoreUnusable):
    """A vector store no longer holds what it held when it was opened."""


class MissingExtra(DeepJoinError):
    """A feature needs an optional dependency; the text names the command that installs it."""


class ResourceLimit(DeepJoinError):
    """The process may not open more files, start more threads or use more memory."""


def resource_limit(error: BaseException) -> ResourceLimit | None:
    """Describe an error that a limit of the process caused; None for any other.

    >>> print(resource_limit(MemoryError()))
    Not enough memory: free some, or raise the limit of this process (ulimit -v).
    """
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.EMFILE, errno.ENFILE):
        return ResourceLimit(
            "Too few file descriptors: close programs, or raise the limit, e.g. ulimit -n 1024."
        )
    if number in (errno.ENOSPC, errno.EDQUOT):
        return ResourceLimit("The disk that is written to is full: free some space on it.")
    if isinstance(error, FileNotFoundError) and "usable temporary directory" in str(error):
        return ResourceLimit(
            "No temporary folder can be written to: free some space, or name one with TMPDIR."
        )
    no_memory = _NO_MEMORY.search(str(error))
    if isinstance(error, MemoryError) or number == errno.ENOMEM or no_memory:
        return ResourceLimit(
            "Not enough memory: free some, or raise the limit of this process (ulimit -v)."
        )
    return None


def unknown_name(kind: str, got: str, where: str, known: Iterable[str]) -> UnknownName:
    """Build the error for a misspelt name, with the nearest one that exists.

    >>> print(unknown_name("column", "custmer", "orders.csv", ["customer", "date"]))
    No column 'custmer' in orders.csv. Columns: customer, date. Did you mean 'customer'?
    """
    names = list(known)
    text = f"No {kind} '{got}' in {where}."
    if names:
        # Long names make a line that nobody reads.
        lengths = accumulate(len(name) for name in names[:_LISTED])
        count = max(1, sum(length <= _LISTED_WIDTH for length in lengths))
        more = f" and {len(names) - count:,} more" if len(names) > count else ""
        title = f"{kind.capitalize()}s" if kind.isalpha() else "Known"
        text += f" {title}: {', '.join(names[:count])}{more}."
    lowered = {name.lower(): name for name in reversed(names)}
    for letters in (2, 4, 8, 16, 32):
        if len(lowered) > _MANY:  # comparing letter by letter takes seconds: keep likely ones
            start = got[:letters].lower()
            lowered = {n: name for n, name in lowered.items() if n.startswith(start)}
    nearest = difflib.get_close_matches(got.lower(), lowered, n=1, cutoff=0.6)
    if nearest:
        text += f" Did you mean '{lowered[nearest[0]]}'?"
    return UnknownName(text)


def reason(error: Exception) -> str:
    """Write an error of another library as one line, cut after a sentence or a word if long.

    >>> reason(ValueError("No  such model."))
    'No such model.'
    >>> reason(ValueError("word " * 40))[-11:]
    'word word …'
    """
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    if len(text) <= _REASON_WIDTH:
        return f"{text}."
    head = text[: _REASON_WIDTH + 1]
    end = head.rfind(". ")
    if end >= _REASON_LEAST:
        return head[: end + 1]
    words = head.rpartition(" ")[0] or head[:_REASON_WIDTH]
    return f"{words.rstrip(' ,;:.')} …"


def first_line(error: BaseException, secrets: Iterable[str] = ()) -> str:
    r"""Write the first line of a driver's error, without secrets and without a full stop.

    >>> first_line(ValueError("no user me:pw\nDETAIL: more."), ["pw"])
    'no user me:***'
    """
    # Later lines quote the statement, or cells of the table.
    lines = str(error).strip().splitlines() or [type(error).__name__]
    text = " ".join(lines[0].split())
    for secret in secrets:
        text = text.replace(secret, "***")
    return text.removeprefix("connection failed: ")[:300].rstrip(".:")
