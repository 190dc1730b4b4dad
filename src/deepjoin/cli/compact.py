"""`deepjoin compact`."""

from __future__ import annotations

import argparse

from deepjoin.cli.opening import human_size, open_index, say


def run(options: argparse.Namespace) -> None:
    """Merge the segments of a lake into one."""
    lake = open_index(options.index)
    before, segments = lake.info()["bytes"], len(lake.index.segments)
    if not lake.compact():
        say(f"{lake.location} is one segment already.")
        return
    now = lake.info()["bytes"]
    say(
        f"{segments} {'segment' if segments == 1 else 'segments'} made one, "
        f"{human_size(before)} before and {human_size(now)} now, in {lake.location}."
    )
