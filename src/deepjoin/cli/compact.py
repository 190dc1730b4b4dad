"""`deepjoin compact`."""

from __future__ import annotations

import argparse

from deepjoin.cli.arguments import index_argument
from deepjoin.cli.output import human_size, say

SUMMARY = "merge all segments of an index into one, without removed tables"
EPILOG = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    index_argument(parser)


def run(options: argparse.Namespace) -> None:
    """Merge the segments of a lake into one."""
    from deepjoin.cli.opening import open_index

    lake = open_index(options.index)
    before, records = lake.info()["bytes"], lake.index.records
    if not lake.compact():
        say(f"{lake.location} already has one segment.")
        return
    after = lake.info()["bytes"]
    done = f"Merged {len(records)} segments into one in"
    if len(records) == 1:
        done = "Wrote the segment anew in"
    say(f"{done} {lake.location}: {human_size(before)} before, {human_size(after)} after.")
