"""The first searches of a process on an index that the system holds in memory no more.

INDEX is an index folder. Its files are dropped from the page cache (Linux, no privileges needed),
then a new process opens it and searches. Seconds and bytes read from the disk are those of
each step; other programs that map the files keep their pages, so stop them first.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import deepjoin
from common import emit, machine, show

QUERIES = (["Germany", "France", "Peru", "Oslo"], ["Berlin", "Rome", "Lima", "Tokyo"])
_SHOWN = ("step", "seconds", "mb_read")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("index", type=Path)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        searched(options.index)
        return
    drop(options.index)
    child = subprocess.run(
        [sys.executable, __file__, str(options.index), "--child"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    rows = [json.loads(line) for line in child.stdout.splitlines()]
    for row in rows:
        emit("cold_search", index=options.index.name, **row)
    emit("machine", **machine())
    show([_SHOWN, *([row[name] for name in _SHOWN] for row in rows)])


def drop(folder: Path) -> None:
    """Drop the files of a folder from the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def searched(index: Path) -> None:
    """Open an index and search it; print each step as a line of JSON."""
    lake = step("open", lambda: deepjoin.open(index))
    for number, query in enumerate(QUERIES, 1):
        for join in ("equi", "any"):
            found = step(f"{join} {number}", lambda q=query, j=join: lake.search(q, 10, join=j))
            step(f"{join} {number}: what hits bring", lambda hits=found: [h.brings for h in hits])


def step(name: str, work: Callable[[], Any]) -> Any:
    """Run a step, and print its seconds and the bytes that came from the disk."""
    before, started = bytes_read(), perf_counter()
    done = work()
    row = {"step": name, "seconds": perf_counter() - started}
    print(json.dumps(row | {"mb_read": (bytes_read() - before) / 1e6}))
    return done


def bytes_read() -> int:
    """Return how many bytes this process has caused to be read from disks."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("read_bytes")).split()[1])


if __name__ == "__main__":
    main()
