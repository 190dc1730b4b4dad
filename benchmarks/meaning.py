"""The default search by meaning (join "any"): time, and agreement with the full comparison.

INDEX has cell vectors; CORPUS is a folder with queries.parquet, or a file of values, one a line.
Processes with other sources of deepjoin (--against SRC) answer the same queries in turn, one query
at a time, so that other load on the machine meets all of them alike. Of the first --full queries,
hits are compared with those of a search that looks at all values and measures every column that
holds a similar one, instead of the most promising (agreement, of ten).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from common import K, Row, command_line, emit, machine, memory, percentiles, say


def answer(index: Path, corpus: Path, join: str, method: str) -> None:
    """Answer the queries whose numbers come on stdin, with their times."""
    import deepjoin
    from deepjoin.read.corpus import CorpusSource
    from deepjoin.search.query import SearchOptions, SearchQuery

    if corpus.is_dir():
        columns = list(CorpusSource(corpus).columns("queries.parquet"))
    else:
        columns = [deepjoin.Column(corpus.read_text("utf-8").splitlines())]
    lake = deepjoin.open(index)
    every = deepjoin.SearchSettings(least=0)
    print(json.dumps(len(columns)), flush=True)
    for line in sys.stdin:
        what, number = line.split()
        column = columns[int(number)]
        started, used = perf_counter(), process_time()
        steps: dict[str, float] = {}
        if what == "full":
            # The lake's own searcher, told to compare all values and to measure all columns.
            searcher: Any = lake._searcher("hybrid", join, None)
            options = SearchOptions(None, exclude=column.table)
            query = SearchQuery(column, searcher._profile, encoder=searcher._encoder)
            ranking = searcher._ranked(query, options, complete=True)
            best = ranking.places[:K]
            ids = [segment.catalog.column_ids[number] for segment, number in best]
        else:
            # Also hits that would be set apart: the full comparison lists them in place.
            found = lake.search(column, k=K, join=join, method=method, settings=every)
            # Some evidence is measured when it is read.
            for hit in found:
                _ = (*hit.equi, hit.matches, hit.unmatched, hit.probability, hit.brings)
            ids, steps = [hit.column_id for hit in found], dict(found.seconds)
        seconds = {"wall": perf_counter() - started, "cpu": process_time() - used}
        print(json.dumps({"ids": ids, "steps": steps} | seconds | memory()), flush=True)


class Answerer:
    """A process that answers queries with one version of the source."""

    def __init__(self, source: str | None, given: argparse.Namespace) -> None:
        place = os.environ | ({} if source is None else {"PYTHONPATH": source})
        command = [sys.executable, __file__, str(given.index), str(given.corpus)]
        self._process = subprocess.Popen(
            [*command, "--join", given.join, "--method", given.method, "--answer"],
            **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": place, "text": True},
        )
        self.queries = int(self._line())

    def ask(self, what: str, number: int) -> Row:
        """Have one query answered."""
        assert self._process.stdin is not None
        print(what, number, file=self._process.stdin, flush=True)
        row: Row = self._line()
        return row

    def _line(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


def main() -> None:
    """Run the benchmark."""
    parser = command_line(__doc__)
    add = parser.add_argument
    add("index", type=Path, metavar="INDEX")
    add("corpus", type=Path, metavar="CORPUS")
    add("--queries", type=int, default=120, metavar="N", help="the first N queries (120)")
    add("--passes", type=int, default=5, metavar="N", help="how often each query is asked (5)")
    add("--join", default="any", help="any (default), semantic or equi")
    add("--method", default="hybrid", help="hybrid (default), or another method")
    add("--full", type=int, default=0, metavar="N", help="queries compared with all values")
    add("--against", metavar="SRC", help="source folder of another version of deepjoin")
    add("--answer", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.answer:
        answer(given.index, given.corpus, given.join, given.method)
        return
    emit("meaning", machine=machine(), load=os.getloadavg()[0])
    sources = {"this": None} | ({} if given.against is None else {"other": given.against})
    asked = {name: Answerer(source, given) for name, source in sources.items()}
    count = asked["this"].queries
    numbers = range(min(given.queries, count))
    # Other queries warm up, so that the first pass meets each query for the first time.
    for number in list(range(count))[len(numbers) :][:50] or numbers:
        for one in asked.values():
            one.ask("search", number)
    rows: dict[str, list[list[Row]]] = {name: [] for name in asked}
    for turn in range(given.passes):
        say(f"pass {turn + 1} of {given.passes}")
        found: dict[str, list[Row]] = {name: [] for name in asked}
        for number in numbers:
            for name in asked if number % 2 else reversed(asked):
                found[name].append(asked[name].ask("search", number))
        for name in asked:
            rows[name].append(found[name])
    for name, passes in rows.items():
        _report(name, passes, given)
    ids = {name: [row["ids"] for row in passes[-1]] for name, passes in rows.items()}
    if "other" in ids:
        emit(
            "meaning", what="same hits as the other source", of_ten=_same(ids["this"], ids["other"])
        )
    reference = asked.get("other", asked["this"])
    full = [reference.ask("full", number)["ids"] for number in numbers[: given.full]]
    for name in asked if full else ():
        emit(
            "meaning",
            what="agreement",
            source=name,
            queries=len(full),
            of_ten=_same(ids[name], full),
        )


def _report(name: str, passes: list[list[Row]], given: argparse.Namespace) -> None:
    """Print percentiles of all passes, the spread of their medians, and the steps."""
    every = [row for one in passes for row in one]
    medians = [float(np.median([1e3 * row["wall"] for row in one])) for one in passes]
    used = percentiles([row["cpu"] for row in every])
    steps = {step: 1e3 * float(np.median([row["steps"][step] for row in every]))
             for step in every[0]["steps"]}  # fmt: skip
    emit(
        "meaning",
        **{"what": "search", "source": name, "method": given.method, "join": given.join},
        **{"queries": len(passes[0])},
        **percentiles([row["wall"] for row in every]),
        **{
            "first_p50_ms": medians[0],
            "lowest_p50_ms": min(medians),
            "highest_p50_ms": max(medians),
        },
        **{f"cpu_{key}": value for key, value in used.items()},
        **{"first_cpu_p50_ms": 1e3 * float(np.median([row["cpu"] for row in passes[0]]))},
        **{"steps_ms": {step: round(value, 3) for step, value in steps.items()}},
        **{"anonymous_mb": every[-1]["anonymous_mb"], "load": os.getloadavg()[0]},
    )


def _same(found: list[list[str]], wanted: list[list[str]]) -> float:
    """Return how many of ten wanted hits were found, on average over queries that have hits."""
    shares = [len(set(a) & set(b)) / len(b) for a, b in zip(found, wanted, strict=False) if b]
    return 10 * float(np.mean(shares)) if shares else 0.0


if __name__ == "__main__":
    main()
