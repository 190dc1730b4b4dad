"""`deepjoin mcp`."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

from deepjoin.cli.opening import open_or_index, say, vector_store
from deepjoin.errors import DeepJoinError, MissingExtra


def run(options: argparse.Namespace) -> None:
    """Serve the lake to an agent until it leaves."""
    if find_spec("mcp") is None:
        raise MissingExtra(
            "deepjoin mcp needs the Python SDK of the Model Context Protocol: "
            "pip install 'deepjoin[mcp]'."
        )
    from deepjoin.serve.mcp.server import serve

    out = None if options.out is None else _folder(options.out)
    lake = open_or_index(options.index, vector_store=vector_store(options))
    if sys.stdin.isatty():
        say("Waiting for a client on stdin; an agent's client starts this command by itself.")
    say(
        f"Serving {lake.report.tables:,} tables of {lake.location} to an agent; "
        + ("nothing is written." if out is None else f"joins are written to {out}.")
    )
    serve(lake, out)


def _folder(path: str) -> Path:
    """Make the folder for joins, or use the one that is there."""
    folder = Path(path).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DeepJoinError(
            f"Cannot write joins to {path}: {error.strerror}. Name a folder with --out."
        ) from None
    return folder.resolve()
