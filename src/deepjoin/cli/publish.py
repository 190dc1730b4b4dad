"""`deepjoin publish`."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from deepjoin.cli.arguments import FORMAT, INDEX, Argument, size, whole
from deepjoin.cli.output import human_size, print_json, progress_bar, say

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


ARGUMENTS = (
    INDEX,
    Argument("vector_store URL...", "PostgreSQL with pgvector"),
    Argument("--name NAME", "name of the lake there; default: its folder"),
    Argument(
        "--space",
        "which vectors: for the methods deepjoin, sketch, deepjoin-sketch; default: all",
        ("columns", "sketch", "both"),
        action="append",
    ),
    Argument(
        "--ann",
        "search a graph (hnsw), bits (codes) or all vectors (exact); default: by their number",
        ("auto", "hnsw", "codes", "exact"),
        "auto",
    ),
    Argument(
        "--effort N",
        "candidates a search keeps; default: as before, or 200 of a graph, 1,000 of codes",
        whole(1),
    ),
    Argument("--memory SIZE", "memory a server may use to build a graph", size, "1G"),
    Argument("--replace", "replace another lake of that name"),
    Argument("--remove", "remove the lake from the store"),
    FORMAT,
)


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
        print_json({"stores": places.split(), **asdict(done)})
    say(
        f"Published {lake.location} as '{done.lake}' to {places}: {done.parts:,} tables, "
        f"{done.sent:,} of them new with {done.vectors:,} vectors, {done.removed:,} dropped; "
        f"{human_size(done.bytes)} there."
    )
