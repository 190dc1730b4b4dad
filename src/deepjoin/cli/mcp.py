"""`deepjoin mcp`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from deepjoin.cli.arguments import INDEX, VECTOR_STORE, Argument
from deepjoin.cli.output import say
from deepjoin.errors import DeepJoinError
from deepjoin.optional import require

SUMMARY = "let an agent find, explain and make joins, by the Model Context Protocol"
EPILOG = """\
The agent's client starts this command and talks to it over stdin and stdout. Put into its
configuration (Claude Desktop, Cursor and others; more in docs/mcp.md):

  {"mcpServers": {"deepjoin": {"command": "deepjoin", "args": ["mcp", "/data/lake"]}}}

tools: lake_info, find_tables, describe_table, read_table, search, explain, find_paths,
preview_join, and with --out: join. The lake is only read; paths that an agent sends are never
opened. Index large folders first (deepjoin index): clients do not wait long for a start.
When the index is refreshed, the next call sees the new state."""


ARGUMENTS = (
    INDEX,
    Argument(
        "--out DIR",
        "let the agent write joined tables into this folder, as new files; default: nowhere",
    ),
    VECTOR_STORE,
)


def run(options: argparse.Namespace) -> None:
    """Serve the lake to an agent until it disconnects."""
    require("mcp", "mcp", "deepjoin mcp")
    from deepjoin.cli.opening import open_or_index, vector_store
    from deepjoin.serve.mcp.server import serve

    # Resolved now: the agent's client may start the server in any working directory.
    out = None
    if options.out is not None:
        out = Path(options.out).expanduser()
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DeepJoinError(
                f"Cannot write joins to {options.out}: {error.strerror}. "
                "Choose another folder with --out."
            ) from None
        out = out.resolve()
    lake = open_or_index(options.index, vector_store=vector_store(options))
    if sys.stdin.isatty():
        say("Waiting for a client on stdin; an agent's client starts this command by itself.")
    say(
        f"Serving {lake.report.tables:,} tables of {lake.location} to an agent; "
        + ("nothing is written." if out is None else f"joins are written to {out}.")
    )
    serve(lake, out)
