"""All joins of a lake: from scratch, after changes, and around one table.

LAKE is an index; the benchmark works on a copy of hard links. For each threshold the graph is built
from scratch in a separate process; then some tables are removed and some of their columns added
under other names, and the graph is updated and compared with one from scratch. Finally, the
neighbourhoods of random tables are timed, with a saved graph and without. Prints one JSON object
per line.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

import deepjoin
from common import Row, emit, folder_bytes, in_child, machine, memory, percentiles, say, show
from deepjoin import Lake
from deepjoin.files import link_or_copy
from deepjoin.relating.neighbourhood import neighbourhood

#: How the columns of the table printed at the end are called, and where they come from.
_SHOWN = ("of", "threshold", "edges", "joined", "postings", "candidates", "seconds", "cpu_seconds",
          "anonymous_mb", "peak_mb", "graph_mb")  # fmt: skip


def copied(index: Path, work: Path) -> Path:
    """Copy an index by hard links; segments are immutable."""
    folder = work / "index"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(index, folder, copy_function=link_or_copy)
    for name in ("manifest.json", "lock"):
        (folder / name).unlink(missing_ok=True)
        shutil.copyfile(index / name, folder / name)
    return folder


def joined(index: str, threshold: str, rebuild: str) -> None:
    """Update the graph of an index, and print time and memory."""
    lake = deepjoin.open(index)
    most = 0.0

    def watch(done: int, total: int, name: str) -> None:
        nonlocal most
        most = max(most, memory().get("anonymous_mb", 0.0))

    before, began = process_time(), perf_counter()
    graph = lake.graph(float(threshold), rebuild=rebuild == "yes", progress=watch)
    seconds, cpu = perf_counter() - began, process_time() - before
    work = graph.work
    print(
        json.dumps(
            {
                "threshold": float(threshold),
                **graph.counted._asdict(),
                "joined": work.joined,
                "postings": work.postings,
                "candidates": work.candidates,
                "seconds": seconds,
                "cpu_seconds": cpu,
                "graph_mb": folder_bytes(lake.path / "graph") / 1e6,
                "anonymous_mb": most,
                "peak_mb": memory()["peak_mb"],
            }
        )
    )


def changed(folder: Path, removed: int, added: int, random: np.random.Generator) -> None:
    """Remove tables, and add columns of other tables under new names, without one value."""
    lake = deepjoin.open(folder)
    chosen = [str(name) for name in random.choice(list(lake.tables), removed + added, False)]
    frames = {}
    for number, name in enumerate(chosen[removed:]):
        column = lake.index.indexed_columns(name)[0]
        cells = list(dict.fromkeys(lake.column(name, column).cells))
        frames[f"added-{number}"] = {column or "column": cells[1:]}
    say(f"removing {removed} tables, adding {len(frames)}")
    lake.remove(*chosen[:removed])
    lake.add(frames)


def around(lake: Lake, tables: list[str], threshold: float) -> Row:
    """Compute the neighbourhoods of tables."""
    seconds, cpu, nodes = [], [], []
    for table in tables:
        before, began = process_time(), perf_counter()
        found = neighbourhood(lake.index, table, 2, threshold)
        seconds.append(perf_counter() - began)
        cpu.append(process_time() - before)
        nodes.append(len(found.nodes))
    of_cpu = {f"cpu_{name}": value for name, value in percentiles(cpu).items()}
    return percentiles(seconds) | of_cpu | {"mean_tables": float(np.mean(nodes))}


def neighbourhoods(folder: Path, count: int, threshold: float, random: np.random.Generator) -> None:
    """Time neighbourhoods found on the fly, and read from a saved graph."""
    lake = deepjoin.open(folder)
    tables = [str(name) for name in random.choice(list(lake.tables), count)]
    for saved in (False, True):
        if saved:
            lake.graph(threshold)
        else:
            shutil.rmtree(folder / "graph", ignore_errors=True)
        around(lake, tables[:20], threshold)
        emit("neighbourhood", saved=saved, threshold=threshold, tables=count, depth=2,
             **around(lake, tables, threshold))  # fmt: skip


def run(options: argparse.Namespace) -> None:
    """Run all steps."""
    emit("machine", **machine())
    folder, random = copied(options.lake, options.work), np.random.default_rng(0)
    rows = [
        {"of": "scratch"} | in_child("graph.joined", folder, threshold, "yes")
        for threshold in options.thresholds
    ]
    last = options.thresholds[-1]
    changed(folder, options.removed, options.added, random)
    rows.append({"of": "changes"} | in_child("graph.joined", folder, last, "no"))
    rows.append({"of": "scratch again"} | in_child("graph.joined", folder, last, "yes"))
    if rows[-1]["edges"] != rows[-2]["edges"]:
        raise AssertionError("the graph brought up to date is another")
    rows.append({"of": "no change"} | in_child("graph.joined", folder, last, "no"))
    for row in rows:
        emit("graph", **row)
    neighbourhoods(folder, options.tables, last, random)
    show([_SHOWN, *([row[name] for name in _SHOWN] for row in rows)])


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lake", metavar="LAKE", type=Path)
    parser.add_argument("--work", type=Path, default=Path("graph-work"))
    parser.add_argument("--thresholds", type=float, nargs="+", default=[0.9, 0.7, 0.5])
    parser.add_argument("--removed", type=int, default=1000)
    parser.add_argument("--added", type=int, default=1000)
    parser.add_argument("--tables", type=int, default=300, help="neighbourhoods asked for")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    run(options)


if __name__ == "__main__":
    main()
