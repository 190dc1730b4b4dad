"""`deepjoin publish`."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from deepjoin.cli.opening import human_size, open_index, say
from deepjoin.cli.progress import progress_bar
from deepjoin.engines.postgres.connections import addresses
from deepjoin.engines.postgres.publishing import lake_name, withdraw
from deepjoin.indexing import publish
from deepjoin.read.database.url import Address
from deepjoin.settings import PublishSettings


def run(options: argparse.Namespace) -> None:
    """Copy column vectors to a vector store, or take them out."""
    places = " ".join(Address.of(url).shown() for url in addresses(options.vector_store))
    if options.remove:
        name = options.name or lake_name(open_index(options.index).index)
        dropped = withdraw(options.vector_store, name)
        say(f"Took '{name}' out of {places}: {dropped:,} tables dropped.")
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
