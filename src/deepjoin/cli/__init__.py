"""The command line: parses, calls the lake, prints. Results to stdout, all else to stderr."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from deepjoin.cli.config import parse
from deepjoin.cli.parser import make_parser
from deepjoin.cli.texts import printable
from deepjoin.errors import DeepJoinError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0 fine, 1 our error, 2 usage, 130 interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a poor terminal shows ? for what it lacks
            stream.reconfigure(errors="replace")
    try:
        options = parse(make_parser(), sys.argv[1:] if arguments is None else arguments)
        status: int = options.run(options) or 0
        sys.stdout.flush()
    except DeepJoinError as error:
        print(f"deepjoin: {printable(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "deepjoin: Interrupted; the index is as it was before; run the same command to go on.",
            file=sys.stderr,
        )
        return 130
    except BrokenPipeError:
        # The reader of our output has gone (as `head` does): not an error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status
