"""Every command and option, with the help that teaches them.

Commands load their work when they run, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse

from deepjoin._version import __version__
from deepjoin.cli import making_options as making
from deepjoin.cli import serving_options as serving
from deepjoin.cli import using_options as using
from deepjoin.cli.command import Intermixed
from deepjoin.cli.training_options import add_train

_ABOUT = """\
Find the tables of a data lake you can join with a column of yours, see why, and join them.

  deepjoin demo                                    a lake to play with, in a minute
  deepjoin index data/                             index a folder of tables
  deepjoin search data/ orders.csv -c customer     who has my customers?
  deepjoin join data/ orders.csv -c customer --with crm/clients.csv:name -o enriched.parquet
  deepjoin serve data/ --open                      the same in the browser
"""

_CONFIGURED = """\
Options used again and again can be kept in a file deepjoin.toml, in this folder or above it:
a table for each command, as in [index] source = "data/", and [defaults] index = "data/" so
that INDEX can be left out. The command line goes before the file.
"""


def make_parser() -> argparse.ArgumentParser:
    """Build the parser of all commands."""
    parser = argparse.ArgumentParser(
        "deepjoin",
        description=_ABOUT,
        epilog=_CONFIGURED,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"deepjoin {__version__}")
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="options from FILE; default: $DEEPJOIN_CONFIG, or the nearest deepjoin.toml",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Intermixed)
    for add in (
        *(making.add_index, making.add_add, making.add_remove, making.add_compact),
        *(making.add_check, using.add_search, using.add_join, using.add_info),
        *(using.add_graph, using.add_methods, add_train, using.add_evaluate, using.add_demo),
        *(serving.add_serve, serving.add_mcp, serving.add_publish),
    ):
        add(commands)
    return parser
