"""`deepjoin remove`."""

from __future__ import annotations

import argparse

from deepjoin.cli.opening import open_index, say_names


def run(options: argparse.Namespace) -> None:
    """Take tables out of a lake."""
    lake = open_index(options.index)
    say_names("Removed", lake.remove(*options.tables), lake, options.format)
