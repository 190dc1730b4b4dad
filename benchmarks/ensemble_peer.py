"""datasketch's LSH Ensemble as a peer: its candidates, scored exactly and sorted."""

from __future__ import annotations

import json
from time import perf_counter

import numpy as np
from datasketch import MinHash, MinHashLSHEnsemble

from common import K, Row, memory, percentiles, query_sets, say
from deepjoin import Column
from deepjoin.lab.evaluation.truth import brute_force
from deepjoin.normalise.distinct import distinct_cells
from deepjoin.read.corpus import CorpusSource

_PERMUTATIONS = 128
_PARTITIONS = 16

Values = frozenset[str]


class Ensemble:
    """The peer, with the values of every column to rank candidates."""

    def __init__(self, columns: list[Column], threshold: float) -> None:
        self.threshold = threshold
        self._values = {column.column_id or "": _values(column) for column in columns}
        self._tables = {column.column_id or "": column.table for column in columns}
        self._index = MinHashLSHEnsemble(threshold, _PERMUTATIONS, _PARTITIONS)
        sketches = zip(self._values, _sketches(list(self._values.values())), strict=True)
        self._index.index([(i, sketch, len(self._values[i])) for i, sketch in sketches])

    def search(self, query: Column) -> tuple[list[tuple[str, float]], int]:
        """Return the best of the candidates, and how many candidates there were."""
        values = _values(query)
        (sketch,) = _sketches([values])
        found = set(self._index.query(sketch, len(values)))
        scored = [
            (one, len(values & self._values[one]) / len(values))
            for one in found
            if self._tables[one] != query.table
        ]
        return sorted(scored, key=lambda pair: (-pair[1], pair[0]))[:K], len(found)


def _values(column: Column) -> Values:
    return frozenset(distinct_cells(column.cells, "basic").values)


def _sketches(sets: list[Values]) -> list[MinHash]:
    encoded = ([value.encode() for value in sorted(values)] for values in sets)
    sketches: list[MinHash] = MinHash.bulk(encoded, num_perm=_PERMUTATIONS)
    return sketches


def main(subset: str, queries_of: str, threshold: str, queries: str) -> None:
    """Index, search with every query, and print all rows as one JSON object."""
    corpus = CorpusSource(subset)
    columns = [column for column in corpus.columns() if _values(column)]
    before = memory()
    started = perf_counter()
    ensemble = Ensemble(columns, float(threshold))
    index_s = perf_counter() - started
    after = memory()
    grown = after["resident_mb"] - before["resident_mb"]
    about = {"columns": len(columns), "threshold": ensemble.threshold, "index_s": index_s}
    about["index_mb"] = grown
    rows = []
    for kind, some in query_sets(CorpusSource(queries_of), int(queries) or None).items():
        say(f"LSH Ensemble: {kind}")
        rows.append({"set": kind} | about | _measured(ensemble, corpus, some))
    print(json.dumps({"rows": rows}))


def _measured(ensemble: Ensemble, corpus: CorpusSource, queries: list[Column]) -> Row:
    seconds, recalls, above, candidates = [], [], [], []
    truth = brute_force(corpus.columns(), queries, "basic")
    for query, right in zip(queries, truth, strict=True):
        started = perf_counter()
        found, count = ensemble.search(query)
        seconds.append(perf_counter() - started)
        candidates.append(count)
        if right.joinability:
            scores = [score for _, score in found]
            best = list(right.joinability.values())[:K]
            recalls.append(_recall(scores, best))
            above.append(_recall(scores, [score for score in best if score >= ensemble.threshold]))
    return percentiles(seconds) | {
        "queries": len(queries),
        "recall_10": _mean(recalls),
        "recall_10_above_threshold": _mean(above),
        "candidates_p50": float(np.median(candidates)),
    }


def _recall(scores: list[float], best: list[float]) -> float | None:
    """Share of the best that was found; a tie with the last of them counts as found."""
    return sum(score >= best[-1] for score in scores[: len(best)]) / len(best) if best else None


def _mean(shares: list[float | None]) -> float:
    return float(np.mean([share for share in shares if share is not None]))
