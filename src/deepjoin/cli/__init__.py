"""The command line: parses, calls the lake, prints. Results to stdout, all else to stderr."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from deepjoin.cli.config import parse
from deepjoin.cli.parser import make_parser
from deepjoin.cli.wording import in_options
from deepjoin.errors import DeepJoinError, IndexUnusable
from deepjoin.show.terminal import printable


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0 fine, 1 our error, 2 usage, 130 interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a poor terminal shows ? for what it lacks
            stream.reconfigure(errors="replace")
    try:
        options = parse(make_parser(), sys.argv[1:] if arguments is None else arguments)
        status = _run(options)
        sys.stdout.flush()
    except DeepJoinError as error:
        print(f"deepjoin: {printable(in_options(str(error)))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "deepjoin: Interrupted; what was done is whole; run the same command to go on.",
            file=sys.stderr,
        )
        return 130
    except BrokenPipeError:
        # The reader of our output has gone (as `head` does): not an error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def _run(options: argparse.Namespace) -> int:
    """Run a command; a failure that damage in the index explains is told as that."""
    try:
        return options.run(options) or 0
    except (DeepJoinError, BrokenPipeError):
        raise
    except Exception:
        problems = _damage(getattr(options, "index", None))
        if not problems:
            raise
        raise IndexUnusable(problems[0]) from None


def _damage(index: str | None) -> list[str]:
    from deepjoin.store.checksums import file_problems
    from deepjoin.store.manifest import DEFAULT, MANIFEST

    places = [Path(index), Path(index) / DEFAULT] if index else []
    there = (place for place in places if (place / MANIFEST).exists())
    return [problem for place in there for problem in file_problems(place)]
