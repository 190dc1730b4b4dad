"""The first searches of a process on an index that the system holds in memory no more.

    python benchmarks/cold_search.py INDEX
    python benchmarks/cold_search.py INDEX --checksums 12 --queries 40

INDEX is an index folder. Its files are dropped from the page cache (Linux, no privileges needed),
then a new process opens it and searches. Seconds and bytes read from the disk are those of
each step; other programs that map the files keep their pages, so stop them first.

With `--checksums PAIRS` it measures what checksums cost: new processes in turn on INDEX and on the
same files without their checksums, first cold, then both open in one process and warm. Ratios of
sums come with a 95% interval over the pairs; seconds are of the clock and of the processor.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import Any

import numpy as np
import pyarrow as pa

import deepjoin
from common import command_line, emit, folder_bytes, machine, show

QUERIES = (["Germany", "France", "Peru", "Oslo"], ["Berlin", "Rome", "Lima", "Tokyo"])
_SHOWN = ("step", "seconds", "processor", "mb_read")
_COMPARED = ("step", "without_ms", "with_ms", "ratio", "from", "to", "processor", "from", "to")
#: Searches after which a process verifies the rest of the index; openings that are timed.
_SETTLED, _OPENED = 20, 40
#: Tenths of a second to wait for that.
_SETTLING = 300
#: By step, the (clock, processor) seconds of pairs: without checksums and with them.
Pairs = dict[str, list[tuple[Any, Any]]]


def main() -> None:
    """Run the benchmark."""
    parser = command_line(__doc__)
    parser.add_argument("index", type=Path)
    parser.add_argument("--checksums", type=int, metavar="PAIRS", help="compare without them")
    parser.add_argument("--queries", type=int, default=40, help="warm: own columns of the lake")
    parser.add_argument("--passes", type=int, default=6, help="warm: times each, in turn")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        searched(options.index)
    elif options.checksums is None:
        rows = in_new_process(options.index)
        for row in rows:
            emit("cold_search", index=options.index.name, **row)
        emit("machine", **machine())
        show([_SHOWN, *([row[name] for name in _SHOWN] for row in rows)])
    else:
        compare(options)


def in_new_process(index: Path) -> list[dict[str, Any]]:
    """Search an index that nobody holds in memory; return the steps."""
    drop(index)
    child = subprocess.run(
        [sys.executable, __file__, str(index), "--child"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return [json.loads(line) for line in child.stdout.splitlines()]


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
    step("import", imported)
    lake = step("open", lambda: deepjoin.open(index))
    for number, query in enumerate(QUERIES, 1):
        for join in ("equi", "any"):
            found = step(f"{join} {number}", lambda q=query, j=join: lake.search(q, 10, join=j))
            step(f"{join} {number}: what hits bring", lambda hits=found: [h.brings for h in hits])


def imported() -> None:
    """Import what opening needs; with its first Python value, Arrow imports pandas."""
    import_module("deepjoin.lake")
    pa.array([None])


def step(name: str, work: Callable[[], Any]) -> Any:
    """Run a step, and print its seconds and the bytes that came from the disk."""
    before, started, used = bytes_read(), perf_counter(), process_time()
    done = work()
    row = {"step": name, "seconds": perf_counter() - started, "processor": process_time() - used}
    print(json.dumps(row | {"mb_read": (bytes_read() - before) / 1e6}))
    return done


def bytes_read() -> int:
    """Return how many bytes this process has caused to be read from disks."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("read_bytes")).split()[1])


def compare(options: argparse.Namespace) -> None:
    """Measure an index with and without its checksums, in turn."""
    index = options.index
    pairs: Pairs = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="unsealed-", dir=index.parent) as place:
        plain = without_checksums(index, Path(place) / "index")
        for number in range(options.checksums):
            # Who comes first alternates too.
            ends = [plain, index][:: 1 if number % 2 else -1]
            found = {one: in_new_process(one) for one in ends}
            for one, other in zip(found[plain], found[index], strict=True):
                if ":" not in one["step"]:
                    pairs[f"cold: {one['step']}"].append((_seconds(one), _seconds(other)))
            # A collection of garbage falls now into one search, now into another.
            both = [np.sum([*map(_seconds, found[one][2:])], axis=0) for one in (plain, index)]
            pairs["cold: all searches"].append((both[0], both[1]))
        compare_warm(deepjoin.open(plain), deepjoin.open(index), options, pairs)
        size, sums = folder_bytes(plain), folder_bytes(index)
    rows = [[name, *_judged(found)] for name, found in pairs.items()]
    for row in rows:
        numbers = dict(zip(("without_ms", "with_ms"), row[1:3], strict=True))
        numbers |= {"clock": row[3:6], "processor": row[6:]}
        emit("checksums", index=index.name, step=row[0], pairs=len(pairs[row[0]]), **numbers)
    emit("checksums", index=index.name, step="bytes", without=size, ratio=round(sums / size, 5))
    emit("machine", **machine())
    show([_COMPARED, *rows])


def without_checksums(index: Path, copy: Path) -> Path:
    """Link the files of an index elsewhere, but for its checksums; returns the copy."""
    from deepjoin.checksums import NAME
    from deepjoin.store.manifest import MANIFEST, SEGMENTS, read_manifest

    manifest = read_manifest(index)
    for record in manifest.segments:
        folder = index / SEGMENTS / record.name
        shutil.copytree(folder, copy / SEGMENTS / record.name, copy_function=os.link)
        (copy / SEGMENTS / record.name / NAME).unlink(missing_ok=True)
    records = tuple(
        replace(one, files={name: of for name, of in one.files.items() if name != NAME})
        for one in manifest.segments
    )
    (copy / MANIFEST).write_text(replace(manifest, segments=records).to_json())
    return copy


def compare_warm(plain: Any, sealed: Any, options: argparse.Namespace, pairs: Pairs) -> None:
    """Open and search in turn, where everything is in memory and verified."""
    for number in range(_OPENED):
        work = [lambda p=lake.path: deepjoin.open(p) for lake in (plain, sealed)]
        pairs["warm: open"].append(_in_turn(work, number))
    tables = np.random.default_rng(0).choice(plain.tables, options.queries, replace=False)
    queries = [
        list(plain.column(table, plain.index.indexed_columns(table)[0]).cells[:40])
        for table in map(str, tables)
    ]
    for lake in (plain, sealed):
        for _ in range(_SETTLED):
            lake.search(queries[0], 10)
    for _ in range(_SETTLING):  # an index too large for the memory never is
        if all(isinstance(one.values.hashes, np.ndarray) for one in sealed.index.segments):
            break
        sleep(0.1)
    for join in ("equi", "any"):
        for query in queries:
            work = [
                lambda q=query, of=lake, j=join: of.search(q, 10, join=j)
                for lake in (plain, sealed)
            ]
            times = np.array([_in_turn(work, number) for number in range(options.passes)])
            pairs[f"warm: {join}"].append(tuple(times.min(axis=0)))


def _in_turn(work: Sequence[Callable[[], Any]], number: int) -> Any:
    found = [(0.0, 0.0)] * len(work)
    for at in range(len(work))[:: 1 if number % 2 else -1]:
        started, used = perf_counter(), process_time()
        work[at]()
        found[at] = perf_counter() - started, process_time() - used
    return tuple(found)


def _seconds(row: dict[str, Any]) -> tuple[float, float]:
    return row["seconds"], row["processor"]


def _judged(found: Sequence[Any]) -> list[float]:
    """Summarise pairs: mean milliseconds, then for each clock the ratio and its interval."""
    times = np.array(found)
    draws = np.random.default_rng(0).integers(0, len(times), (2000, len(times)))
    row = (1e3 * times[:, :, 0].mean(axis=0)).tolist()
    for kind in range(2):
        plain, sealed = times[:, 0, kind], times[:, 1, kind]
        ratios = sealed[draws].sum(axis=1) / plain[draws].sum(axis=1)
        row += [sealed.sum() / plain.sum(), *np.percentile(ratios, [2.5, 97.5]).tolist()]
    return row


if __name__ == "__main__":
    main()
