"""The options of the commands that serve a lake to people and programs."""

from __future__ import annotations

import argparse

from deepjoin.cli.command import Commands, command, index_argument
from deepjoin.cli.values import seconds, size, whole


def add_serve(commands: Commands) -> None:
    """Add the command to serve an index."""
    parser = command(
        commands,
        "serve",
        "serve the page and the HTTP API of an index",
        "examples:\n"
        "  deepjoin serve data/ --open\n"
        "  DEEPJOIN_TOKEN=... deepjoin serve data/ --host 0.0.0.0 --workers 4",
    )
    index_argument(parser)
    parser.add_argument(
        "--host", metavar="ADDRESS", default="127.0.0.1", help="default: this machine alone"
    )
    parser.add_argument(
        "--port", metavar="N", type=whole(0), default=8765, help="default 8765; 0: any free one"
    )
    parser.add_argument(
        "--workers", metavar="N", type=whole(1), help="processes (default: one a core, up to 4)"
    )
    parser.add_argument(
        "--token", metavar="T", help="what clients have to send; better set in $DEEPJOIN_TOKEN"
    )
    _serve_limits(parser)
    parser.add_argument(
        "--out", metavar="DIR", help="a folder that joined tables may be saved in; default: none"
    )
    parser.add_argument("--open", action="store_true", help="open the page in the browser")


def _serve_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-upload",
        metavar="SIZE",
        type=size,
        default=size("100MB"),
        help="the largest file taken from a client (default 100MB)",
    )
    parser.add_argument(
        "--max-rows",
        metavar="N",
        type=whole(1),
        default=5_000_000,
        help="the most rows of such a file, and of a joined table (default 5,000,000)",
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=seconds,
        default=30.0,
        help="how long a request may take (default 30)",
    )


def add_mcp(commands: Commands) -> None:
    """Add the command to serve a lake to agents."""
    parser = command(
        commands,
        "mcp",
        "let an agent find, explain and make joins, by the Model Context Protocol",
        "The agent's client starts this command and talks to it over stdin and stdout. Put into\n"
        "its configuration (Claude Desktop, Cursor and others; more in docs/mcp.md):\n\n"
        '  {"mcpServers": {"deepjoin": {"command": "deepjoin", "args": ["mcp", "/data/lake"]}}}\n\n'
        "tools: lake_info, find_tables, describe_table, search, explain, preview_join,\n"
        "and with --out: join. The lake is only read; no path that an agent sends is opened.\n"
        "Index large folders first (deepjoin index): clients wait only so long for a start.\n"
        "An index that is refreshed meanwhile is picked up with the next call.",
    )
    index_argument(parser)
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="let the agent write joined tables into this folder, as new files; default: nowhere",
    )
