"""The options of the commands that serve a lake to people and programs."""

from __future__ import annotations

import argparse

from deepjoin.cli.command import (
    Commands,
    command,
    format_argument,
    index_argument,
    vector_store_argument,
)
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
    vector_store_argument(parser)
    parser.add_argument("--open", action="store_true", help="open the page in the browser")


def add_publish(commands: Commands) -> None:
    """Add the command to copy column vectors into PostgreSQL."""
    parser = command(
        commands,
        "publish",
        "copy the column vectors of an index into PostgreSQL with pgvector; again, only new ones",
        "examples:\n"
        "  deepjoin publish data/ postgresql://me@db/vectors\n"
        "  deepjoin search data/ orders.csv --method deepjoin \\\n"
        "      --vector-store postgresql://me@db/vectors\n"
        "  deepjoin publish data/ postgresql://db1/v postgresql://db2/v   half on each\n\n"
        "Passwords are better given by PGPASSWORD or ~/.pgpass. See docs/vector-store.md.",
    )
    index_argument(parser)
    parser.add_argument("vector_store", metavar="URL", nargs="+", help="PostgreSQL with pgvector")
    parser.add_argument("--name", metavar="NAME", help="what the lake is called there; its folder")
    parser.add_argument(
        "--space",
        action="append",
        choices=("columns", "sketch", "both"),
        help="which vectors: for the methods deepjoin, sketch, deepjoin-sketch; default: all",
    )
    parser.add_argument(
        "--ann",
        choices=("auto", "hnsw", "codes", "exact"),
        default="auto",
        help="a graph (hnsw), comparing bits (codes) or all vectors (exact); default: what suits",
    )
    parser.add_argument(
        "--effort",
        metavar="N",
        type=whole(1),
        help="candidates a search keeps; default: as before, or 200 of a graph, 1,000 of codes",
    )
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        type=size,
        default=size("1G"),
        help="what a server may take to build a graph (default 1G)",
    )
    parser.add_argument("--replace", action="store_true", help="replace another lake of that name")
    parser.add_argument("--remove", action="store_true", help="take the lake out of the store")
    format_argument(parser)


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
    vector_store_argument(parser)
