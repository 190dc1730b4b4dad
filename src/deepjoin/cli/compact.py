"""`deepjoin compact`."""

from __future__ import annotations

import argparse

from deepjoin.cli.arguments import INDEX, MEMORY
from deepjoin.cli.output import human_size, progress_bar, say

SUMMARY = "merge all segments of an index into one, without removed tables"
EPILOG = ""


ARGUMENTS = (
    INDEX,
    MEMORY,
)


def run(options: argparse.Namespace) -> None:
    """Merge the segments of a lake into one."""
    from deepjoin.build.pipeline import compact
    from deepjoin.cli.opening import build_resources, open_index

    lake = open_index(options.index)
    before, records = lake.info()["bytes"], lake.index.records
    with progress_bar() as progress:
        done = compact(lake.location, build_resources(options.memory, progress, lake.device))
    lake.reopen()
    if not done:
        say(f"{lake.location} already has one segment.")
        return
    after = lake.info()["bytes"]
    what = f"Merged {len(records)} segments into one in"
    if len(records) == 1:
        what = "Wrote the segment anew in"
    say(f"{what} {lake.location}: {human_size(before)} before, {human_size(after)} after.")
