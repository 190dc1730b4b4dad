"""`deepjoin check`."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from deepjoin.checking.check import Check, check_index
from deepjoin.cli.opening import human_size, open_index, say
from deepjoin.cli.progress import progress_bar
from deepjoin.show.terminal import printable
from deepjoin.store.manifest import DEFAULT, is_index
from deepjoin.store.remote import is_remote

#: How many tables of a kind are named.
_SHOWN = 5


def run(options: argparse.Namespace) -> int:
    """Look for damage; 1 if there is any."""
    folder = _folder(options.index)
    place = options.index if is_remote(options.index) else folder
    with progress_bar() as progress:
        found = check_index(folder, None if options.all else options.tables, progress, place)
    if options.format == "json":
        print(json.dumps({"index": str(place), "ok": found.ok} | asdict(found), ensure_ascii=False))
    else:
        for problem in found.problems:
            print(printable(problem))
    _say_all(found, str(place))
    return 0 if found else 1


def _folder(path: str) -> Path:
    """Find the folder of an index, also of one that cannot be opened."""
    for folder in (Path(path), Path(path) / DEFAULT):
        if not is_remote(path) and is_index(folder):
            return folder
    return open_index(path).path


def _say_all(found: Check, place: str) -> None:
    for note in found.notes:
        say(note)
    if found.changed:
        say(f"Changed since being indexed: {_named(found.changed)}. Run: deepjoin index")
    if found.unreachable:
        say(f"Not to be opened any more: {_named([one.name for one in found.unreachable])}.")
        for reason in dict.fromkeys(one.reason for one in found.unreachable[:_SHOWN]):
            say(f"  {reason}")
    problems = f"{len(found.problems):,} {'problem' if len(found.problems) == 1 else 'problems'}"
    say(
        f"{place}: {'sound' if found else problems}; {found.files:,} files read "
        f"({human_size(found.bytes)}), {found.tables_compared:,} tables compared."
    )


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
