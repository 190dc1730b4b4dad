"""The command line: parses, calls the lake, prints. Results go to stdout, messages to stderr."""

from __future__ import annotations

import errno
import io
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from deepjoin.cli.interrupts import MESSAGE, Interrupts
from deepjoin.cli.output import say
from deepjoin.errors import DeepJoinError, IndexUnusable


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0 success, 1 error, 2 usage, 130 interrupted.

    Without ``arguments`` the process belongs to the command, and a signal ends it.
    """
    interrupts = Interrupts()
    try:
        if arguments is None and threading.current_thread() is threading.main_thread():
            interrupts.watch()
        for stream in (sys.stdout, sys.stderr):
            # A terminal that cannot show a character shows ? instead of failing.
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")
        try:
            return _run(sys.argv[1:] if arguments is None else arguments)
        except Exception as error:
            # Some libraries turn the interruption into an error of theirs.
            if interrupts.is_raised:
                raise KeyboardInterrupt from None
            if isinstance(error, DeepJoinError):
                say(f"deepjoin: {error}")
                return 1
            if isinstance(error, BrokenPipeError):
                # The reader of our output has gone (as `head` does): not an error of ours.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return 0
            raise
    except KeyboardInterrupt:  # also while an error is being reported
        if interrupts.is_first_to_say():
            say(MESSAGE)
        return interrupts.status


def _run(arguments: Sequence[str]) -> int:
    from deepjoin.cli.config import parse
    from deepjoin.cli.parser import make_parser

    # People who know other tools type `deepjoin help search`.
    if list(arguments[:1]) == ["help"]:
        arguments = [*arguments[1:], "--help"]
    options = parse(make_parser(), arguments)
    try:
        status = options.run(options) or 0
    except (DeepJoinError, BrokenPipeError):
        raise
    except Exception as error:
        if isinstance(error, MemoryError):
            raise DeepJoinError(
                "Not enough memory. Close other programs, allow this one more, or use less with "
                "--memory where the command has it."
            ) from None
        if isinstance(error, OSError) and error.errno == errno.EMFILE:
            raise DeepJoinError(
                "Too many open files. Allow more with: ulimit -n 1024, and run the command again."
            ) from None
        # Damaged files can break anything that reads them: report the damage instead.
        problems = _damage(getattr(options, "index", None))
        if not problems:
            raise
        raise IndexUnusable(problems[0]) from None
    sys.stdout.flush()
    return int(status)


def _damage(index: str | None) -> list[str]:
    from deepjoin.store.manifest import DEFAULT, MANIFEST
    from deepjoin.store.storage import file_problems

    places = [Path(index), Path(index) / DEFAULT] if index else []
    there = (place for place in places if (place / MANIFEST).exists())
    return [problem for place in there for problem in file_problems(place)]
