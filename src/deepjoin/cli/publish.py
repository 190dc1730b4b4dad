"""`deepjoin publish`."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from deepjoin.cli.arguments import format_argument, index_argument, size, whole
from deepjoin.cli.output import human_size, progress_bar, say

SUMMARY = "copy the column vectors of an index into PostgreSQL with pgvector"
EPILOG = """\
examples:
  deepjoin index data/ --encoder default
  deepjoin publish data/ postgresql://me@db/vectors
  deepjoin search data/ orders.csv --method deepjoin \\
      --vector-store postgresql://me@db/vectors
  deepjoin publish data/ postgresql://db1/v postgresql://db2/v   half on each

Publishing again sends only new vectors. Prefer PGPASSWORD or ~/.pgpass for passwords.
See docs/vector-store.md."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments and options."""
    index_argument(parser)
    parser.add_argument("vector_store", metavar="URL", nargs="+", help="PostgreSQL with pgvector")
    parser.add_argument(
        "--name", metavar="NAME", help="name of the lake there; default: its folder"
    )
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
        help="search a graph (hnsw), bits (codes) or all vectors (exact); default: by their number",
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
        help="memory a server may use to build a graph (default 1G)",
    )
    parser.add_argument("--replace", action="store_true", help="replace another lake of that name")
    parser.add_argument("--remove", action="store_true", help="remove the lake from the store")
    format_argument(parser)


def run(options: argparse.Namespace) -> None:
    """Copy column vectors to a vector store, or remove them."""
    from deepjoin.cli.opening import open_index
    from deepjoin.engines.postgres.publishing import lake_name, withdraw
    from deepjoin.engines.postgres.server import addresses
    from deepjoin.indexing import publish
    from deepjoin.read.database.url import Address
    from deepjoin.settings import PublishSettings

    # Addresses are printed without their passwords.
    places = " ".join(Address.of(url).shown() for url in addresses(options.vector_store))
    if options.remove:
        name = options.name or lake_name(open_index(options.index).index)
        dropped = withdraw(options.vector_store, name)
        say(f"Removed '{name}' from {places}: {dropped:,} tables dropped.")
        return
    lake = open_index(options.index)
    with progress_bar() as progress:
        done = publish(
            *(lake, options.vector_store),
            name=options.name,
            spaces=options.space,
            replace=options.replace,
            settings=PublishSettings(options.ann, options.effort, options.memory),
            progress=progress,
        )
    if options.format == "json":
        print(json.dumps({"stores": places.split(), **asdict(done)}, ensure_ascii=False))
    say(
        f"Published {lake.location} as '{done.lake}' to {places}: {done.parts:,} tables, "
        f"{done.sent:,} of them new with {done.vectors:,} vectors, {done.removed:,} dropped; "
        f"{human_size(done.bytes)} there."
    )
