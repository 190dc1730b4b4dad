"""Time to keep a lake up to date: refreshes without changes, adds, searches after adds.

    python benchmarks/living_lake.py CORPUS [--adds 1000] [--files 10000]

Prints one JSON object per line.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import deepjoin
from common import emit, folder_bytes, percentiles
from deepjoin import Lake
from deepjoin.read.corpus import CorpusSource


def seconds(work: Any) -> tuple[float, Any]:
    """Time one call."""
    started = perf_counter()
    result = work()
    return perf_counter() - started, result


def search_times(lake: Lake, queries: list[Any], passes: int = 3) -> dict[str, float]:
    """Time the default search with its evidence, the best of some passes a query."""
    best = [min(seconds(lambda q=q: lake.search(q, 10))[0] for _ in range(passes)) for q in queries]
    return percentiles(best)


def small_table(generator: random.Random, corpus: list[Any]) -> dict[str, list[str]]:
    """Make a table of two real columns of a corpus, cut to one length."""
    one, other = (list(column.cells) for column in generator.sample(corpus, 2))
    length = min(len(one), len(other), 30)
    return {"key": one[:length], "value": other[:length]}


def files_lake(folder: Path, number: int, corpus: list[Any]) -> None:
    """Write a folder of many small files."""
    generator = random.Random(1)
    for name in range(number):
        path = folder / f"{name % 100}" / f"{name}-{generator.randrange(1 << 30)}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        table = small_table(generator, corpus)
        rows = [",".join(f'"{cell}"' for cell in row) for row in zip(*table.values(), strict=True)]
        path.write_text("\n".join([",".join(table), *rows]) + "\n")


def run_files(place: Path, number: int, corpus: list[Any]) -> None:
    """Index many files, refresh, change one."""
    folder = place / "files"
    files_lake(folder, number, corpus)
    took, lake = seconds(lambda: deepjoin.index(folder))
    emit("index files", files=number, seconds=took, columns=lake.report.columns)
    for _ in range(3):
        took, lake = seconds(lambda: deepjoin.index(folder))
        emit("unchanged files", files=number, seconds=took)
    path = next(folder.glob("7/*.csv"))
    path.write_text(path.read_text() + "more,more\n")
    took, lake = seconds(lambda: deepjoin.index(folder))
    emit("one file changed", files=number, seconds=took, segments=len(lake.index.segments))
    took, _ = seconds(lambda: lake.add(path))
    emit("add one file", seconds=took)


def run_corpus(place: Path, corpus: CorpusSource, adds: int, columns: list[Any]) -> None:
    """Index a corpus, add tables one by one, compare searches with the compacted lake."""
    queries = corpus.queries()
    took, lake = seconds(lambda: deepjoin.index(corpus.folder, place / "index", profile="basic"))
    emit("index corpus", seconds=took, columns=lake.report.columns)
    for _ in range(3):
        took, lake = seconds(lambda: deepjoin.index(corpus.folder, place / "index"))
        emit("unchanged corpus", seconds=took)
    emit("search before adds", **search_times(lake, queries))
    generator = random.Random(2)
    times, most = [], 0
    for number in range(adds):
        frame = {f"added-{number}": small_table(generator, columns)}
        took, _ = seconds(lambda frame=frame: lake.add(frame))
        times.append(took)
        most = max(most, len(lake.index.segments))
    emit("add one table", adds=adds, **percentiles(times), most_segments=most)
    emit("after adds", segments=len(lake.index.segments), mb=folder_bytes(lake.path) / 1e6)
    after = search_times(lake, queries)
    emit("search after adds", **after)
    took, _ = seconds(lake.compact)
    emit("compact", seconds=took)
    compacted = search_times(lake, queries)
    emit("search compacted", **compacted)
    emit("ratio", p50=after["p50_ms"] / compacted["p50_ms"])


def main() -> None:
    """Run both lakes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--adds", type=int, default=1000)
    parser.add_argument("--files", type=int, default=10_000)
    options = parser.parse_args()
    corpus = CorpusSource(options.corpus)
    columns = [c for _, c in zip(range(5000), corpus.columns(), strict=False)]
    place = Path(tempfile.mkdtemp(prefix="living-lake-"))
    try:
        run_corpus(place, corpus, options.adds, columns)
        run_files(place, options.files, columns)
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
