"""`deepjoin check`."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from deepjoin.cli.arguments import FORMAT, INDEX, Argument, whole
from deepjoin.cli.output import human_size, print_json, progress_bar, say
from deepjoin.show.text import count, printable, some

SUMMARY = "look for damage in an index, and compare it with its tables"
EPILOG = """\
examples:
  deepjoin check data/
  deepjoin check my.index --all         compare every table, not only a sample"""

#: How many tables of a kind are named.
_NAMED = 5


ARGUMENTS = (
    INDEX,
    Argument("--tables N", "number of tables to read again and compare", whole(0), 100),
    Argument("--all", "read and compare every table"),
    FORMAT,
)


def run(options: argparse.Namespace) -> int:
    """Look for damage; 1 if there is any."""
    from deepjoin.checking.check import check_index
    from deepjoin.cli.opening import open_index
    from deepjoin.store.manifest import DEFAULT, is_index, is_remote

    place: str | Path = options.index
    # The folder itself is checked, since a damaged index may not open.
    places = [] if is_remote(options.index) else [Path(place), Path(place) / DEFAULT]
    folder = next(filter(is_index, places), None) or open_index(options.index).path
    if not is_remote(options.index):
        place = folder
    with progress_bar() as progress:
        found = check_index(folder, None if options.all else options.tables, progress, place)
    if options.format == "json":
        print_json({"index": str(place), "ok": found.ok} | asdict(found))
    else:
        for problem in found.problems:
            print(printable(problem))
    for note in found.notes:
        say(note)
    if found.changed:
        say(f"Changed since they were indexed: {some(found.changed, _NAMED)}. Run: deepjoin index")
    if found.unreachable:
        names = [one.name for one in found.unreachable]
        say(f"Can no longer be opened: {some(names, _NAMED)}.")
        for reason in dict.fromkeys(one.reason for one in found.unreachable[:_NAMED]):
            say(f"  {reason}")
    problems = "no damage" if found else count(len(found.problems), "problem")
    say(
        f"{place}: {problems}; {found.files:,} files read "
        f"({human_size(found.bytes)}), {found.tables_compared:,} tables compared."
    )
    return 0 if found else 1
