"""`deepjoin add`."""

from __future__ import annotations

import argparse

from deepjoin.cli.opening import open_index, say_names
from deepjoin.cli.progress import progress_bar


def run(options: argparse.Namespace) -> None:
    """Index more tables into a lake."""
    lake = open_index(options.index)
    source = options.source if len(options.source) > 1 else options.source[0]
    with progress_bar() as progress:
        names = lake.add(source, progress=progress)
    say_names("Added", names, lake, options.format)
