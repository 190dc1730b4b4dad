"""The command line: parses, calls the lake, prints. Results go to stdout, messages to stderr."""

from __future__ import annotations

import argparse
import io
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from deepjoin.cli.interrupts import MESSAGE, Interrupts
from deepjoin.cli.output import say
from deepjoin.errors import DeepJoinError, IndexUnusable, resource_limit

#: Bytes of address space that are enough for the defaults of all libraries.
_AMPLE = 8 << 30
#: Bytes in which the libraries that a search needs fit, and no others.
_TIGHT = 1 << 30
_SPARING = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
#: Commands that give frames to other libraries, or to the code of callers.
_WITH_PANDAS = ("enrich", "evaluate", "mcp", "serve", "train")
#: The number of this parameter in malloc.h.
_ARENA_MAX = -8


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0 success, 1 error, 2 usage, 130 interrupted.

    Without ``arguments`` the process belongs to the command, and a signal ends it.
    """
    interrupts = Interrupts()
    try:
        if arguments is None:
            _fit_limits()
        if arguments is None and threading.current_thread() is threading.main_thread():
            interrupts.watch()
        for stream in (sys.stdout, sys.stderr):
            # A terminal that cannot show a character shows ? instead of failing.
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")
        try:
            return interrupts.finish(_run(arguments))
        except Exception as error:
            # Some libraries turn the interruption into an error of theirs.
            if interrupts.is_raised:
                raise KeyboardInterrupt from None
            if isinstance(error, DeepJoinError):
                # Without memory, modules cannot be loaded, which reads as damage.
                say(f"deepjoin: {resource_limit(error) or error}")
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
    except BaseException as error:  # panics of Rust libraries are no Exceptions
        limit = resource_limit(error)
        if limit is None:
            raise
        say(f"deepjoin: {limit}")
        return 1


def _fit_limits() -> None:
    """Let libraries reserve less where the address space of the process is limited.

    By default Arrow reserves a gigabyte, and the C library 128 MB for every thread, of which they
    use little. None of them is imported yet.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY or limit > _AMPLE:
        return
    for name, value in _SPARING.items():
        os.environ.setdefault(name, value)
    if limit <= _TIGHT:
        sys.meta_path.insert(0, _WithoutPandas())
    with suppress(OSError, AttributeError):  # a C library without it
        import ctypes

        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)


def _spare_pandas(options: argparse.Namespace) -> None:
    """Let Arrow settle that there is no pandas: importing it takes longer than most commands."""
    command = options.run.__module__.rpartition(".")[2]
    if command in _WITH_PANDAS or getattr(options, "engine", None) == "ray":
        return
    finder = _WithoutPandas()
    sys.meta_path.insert(0, finder)
    import pyarrow as pa

    pa.array([None])  # with the first Python value, Arrow looks for pandas, once
    sys.meta_path.remove(finder)


class _WithoutPandas:
    """Hides pandas from Arrow, which imports it to recognise its missing values; we hold none."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Find nothing, and let other finders look for other modules."""
        if name == "pandas":
            raise ModuleNotFoundError("there is too little memory for pandas", name=name)


def _run(given: Sequence[str] | None) -> int:
    from deepjoin.cli.config import parse
    from deepjoin.cli.parser import make_parser

    arguments = sys.argv[1:] if given is None else given
    # People who know other tools type `deepjoin help search`.
    if list(arguments[:1]) == ["help"]:
        arguments = [*arguments[1:], "--help"]
    options = parse(make_parser(), arguments)
    if given is None:
        _spare_pandas(options)
        from deepjoin.memory import COMMAND_SPACE, check_address_space

        check_address_space("deepjoin", COMMAND_SPACE)
        import pyarrow as pa

        # While Arrow reads CSV it handles signals, and forgets one if the file has an error.
        pa.enable_signal_handlers(False)
    try:
        status = options.run(options) or 0
    except (DeepJoinError, BrokenPipeError):
        raise
    except Exception as error:
        if resource_limit(error):
            raise
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
