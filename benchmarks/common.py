"""Shared by all benchmarks: timing, memory, a description of the machine, rows and tables."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from threading import Event, Thread
from time import perf_counter
from typing import Any

import numpy as np

from deepjoin import Column
from deepjoin.read.corpus import CorpusSource

Row = dict[str, Any]
QuerySets = dict[str, list[Column]]
#: Processes timed for a median, and hits asked for.
RUNS = 7
K = 10
_SETS = ("queries", "queries-1000")
_STATUS = Path("/proc/self/status")
_MEMORY = {"peak_mb": "VmHWM", "resident_mb": "VmRSS", "anonymous_mb": "RssAnon"}


def command_line(doc: str | None) -> argparse.ArgumentParser:
    """Make a parser that shows the text at the top of a script as it is."""
    return argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def emit(benchmark: str, **fields: Any) -> Row:
    """Print one result as a line of JSON on stdout, and return it."""
    row = {"benchmark": benchmark} | rounded(fields)
    print(json.dumps(row, ensure_ascii=False), flush=True)
    return row


def rounded(value: Any) -> Any:
    """Round all numbers inside a value to four digits."""
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float | np.floating) else value


def say(text: str) -> None:
    """Print a message to stderr."""
    print(text, file=sys.stderr, flush=True)


def show(rows: Sequence[Sequence[object]]) -> None:
    """Print rows of cells as an aligned table on stderr, with the first row as header."""
    texts = [[_cell(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for row in texts:
        say("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1e4 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def percentiles(seconds: Sequence[float]) -> Row:
    """Summarise times in milliseconds."""
    values = np.percentile(1e3 * np.array(seconds), [50, 90, 99, 100])
    return dict(zip(("p50_ms", "p90_ms", "p99_ms", "max_ms"), map(float, values), strict=True))


def machine() -> Row:
    """Describe the machine."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gb": round(pages / 1e9, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        **versions("deepjoin", "numpy", "pyarrow", "duckdb"),
    }


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    found = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(found, platform.processor() or platform.machine())


def versions(*packages: str) -> Row:
    """Look up the installed version of each package."""
    return {package: _version(package) for package in packages}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def memory() -> Row:
    """Measure the memory of this process: peak, current, and without mapped files.

    Read from the kernel's own account, because ``ru_maxrss`` survives ``exec`` and would
    report the parent's size for a small child.
    """
    if not _STATUS.exists():
        import resource

        return {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6}
    lines = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
    return {ours: int(lines[theirs].split()[0]) * 1024 / 1e6 for ours, theirs in _MEMORY.items()}


@contextmanager
def most_anonymous() -> Iterator[Row]:
    """Track the memory of the process without mapped files, which the kernel can reclaim."""
    row, stop = {"most_anonymous_mb": 0.0}, Event()

    def watch() -> None:
        while not stop.wait(0.05):
            row["most_anonymous_mb"] = max(row["most_anonymous_mb"], memory()["anonymous_mb"])

    watcher = Thread(target=watch)
    watcher.start()
    try:
        yield row
    finally:
        stop.set()
        watcher.join()


def in_child(function: str, *arguments: object) -> Row:
    """Call ``module.function`` in a new process and parse the last line it prints as JSON."""
    module, _, name = function.partition(".")
    code = f"import sys, {module}; {module}.{name}(*sys.argv[1:])"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{function} failed with status {done.returncode}; its error is above.")
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row


def process_seconds(command: Sequence[str], runs: int = RUNS) -> float:
    """Time a whole process, start to exit: the median of some runs."""
    return median(_process_seconds(command) for _ in range(runs))


def _process_seconds(command: Sequence[str]) -> float:
    started = perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return perf_counter() - started


def folder_bytes(folder: Path) -> int:
    """Sum the sizes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def query_sets(corpus: CorpusSource, limit: int | None = None) -> QuerySets:
    """Read the queries of a corpus, by the file they are in."""
    there = [name for name in _SETS if (corpus.folder / f"{name}.parquet").exists()]
    return {name: list(corpus.columns(f"{name}.parquet"))[:limit] for name in there}


def indexed(corpus: Path, folder: Path, rebuild: bool = False) -> Path:
    """Index a corpus without vectors in a separate process, unless a valid index exists."""
    from deepjoin import open as open_lake
    from deepjoin.errors import IndexUnusable
    from deepjoin.lab.evaluation.cache import SETTINGS

    with suppress(IndexUnusable):
        same = open_lake(folder).settings == SETTINGS
        newer = (folder / "manifest.json").stat().st_mtime
        if same and not rebuild and newer > (corpus / "columns.parquet").stat().st_mtime:
            return folder
    say(f"indexing {corpus}")
    emit("index", corpus=corpus.name, **in_child("common.build", corpus, folder))
    return folder


def build(corpus: str, folder: str) -> None:
    """Index a corpus without vectors, and print time and memory."""
    import deepjoin
    from deepjoin.lab.evaluation.cache import SETTINGS

    started = perf_counter()
    with most_anonymous() as held:
        lake = deepjoin.index(corpus, folder, settings=SETTINGS, vectors={"cells": "none"})
    row = {"columns": lake.report.columns, "cells": lake.report.cells, "values": lake.report.values}
    print(json.dumps(row | {"seconds": perf_counter() - started} | held | memory()))


def opening(folder: str) -> None:
    """Open an index, and print how long that took, imports not counted."""
    from deepjoin.lake import open_lake

    started = perf_counter()
    open_lake(folder)
    print(json.dumps({"open_ms": 1e3 * (perf_counter() - started)}))
