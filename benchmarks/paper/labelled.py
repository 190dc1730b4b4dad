"""Results by labels: precision, recall and F1 over the pool of all methods, and examples.

The paper's experts labelled what the methods found; here the links of Wikipedia's editors are the
labels. A relevant column not much larger than the query lists the same things and is a near
duplicate; larger ones are attribute enrichment.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.paper.corpora import column_sizes, corpus_folder
from benchmarks.paper.experiments import Options
from benchmarks.paper.lakes import lake_for, prepared, queries_of, search_of
from benchmarks.paper.places import Places

from deepjoin import Column
from deepjoin.lab.evaluation.metrics import (
    RELEVANT,
    Labels,
    Pool,
    mean,
    queries_digest,
    read_labels,
)
from deepjoin.normalise.cells import distinct_cells
from deepjoin.read.corpus import CorpusSource

K = 10
#: Column ids for each query.
Found = list[list[str]]
#: Results of settings in this process: two experiments share them.
_FOUND: dict[str, Found] = {}


@dataclass(frozen=True)
class PooledLabels:
    """For every query, the relevant columns of the pool, and which are near duplicates."""

    labels: list[Labels]
    pool: Pool
    pools: list[frozenset[str]]
    duplicates: list[frozenset[str]]

    @property
    def enriching(self) -> list[frozenset[str]]:
        """The others."""
        return [pool - same for pool, same in zip(self.pools, self.duplicates, strict=True)]


def by_labels(settings: Sequence[Options], places: Places) -> Iterator[tuple[Options, Options]]:
    """Yield a row for each setting; the pool is what all of them found."""
    found = [found_by(setting, places) for setting in settings]
    judged = _judged(settings, places, found)
    for setting, ids in zip(settings, found, strict=True):
        digest = queries_digest(queries_of(setting, places))
        yield setting, measured(ids, judged) | {"queries_digest": digest}


def measured(found: Found, judged: PooledLabels) -> Options:
    """Measure precision, recall and F1 as evaluation does, and recall by case."""
    row: Options = {"queries": len(found)} | judged.pool.measured(found, judged.labels, K)
    for name, pools in (("duplicates", judged.duplicates), ("enriching", judged.enriching)):
        recalls = [
            len(pool.intersection(ids)) / len(pool) if pool else None
            for ids, pool in zip(found, pools, strict=True)
        ]
        row[f"recall_{name}"] = mean(recalls)[0] or 0.0
        row[f"columns_{name}"] = sum(map(len, pools))
        row["per_query"][f"recall_{name}"] = [
            None if one is None else round(one, 4) for one in recalls
        ]
    return row


def _judged(settings: Sequence[Options], places: Places, found: Sequence[Found]) -> PooledLabels:
    labels = labels_of(settings[0], places)
    pools = [
        one.relevant & {column for ids in found for column in ids[number]}
        for number, one in enumerate(labels)
    ]
    pool = Pool(tuple(one["method"] for one in settings), tuple(found))
    return PooledLabels(labels, pool, pools, _near_duplicates(settings[0], places, pools))


def _near_duplicates(
    setting: Options, places: Places, pools: Sequence[frozenset[str]]
) -> list[frozenset[str]]:
    source = CorpusSource(corpus_folder(setting, places))
    ids = [one for b in source.blocks(names=("column_id",)) for one in b["column_id"].to_pylist()]
    sizes = dict(zip(ids, column_sizes(source).tolist(), strict=True))
    asked = [len(distinct_cells(q.cells, "basic").values) for q in queries_of(setting, places)]
    return [
        frozenset(column for column in pool if RELEVANT * sizes[column] <= size)
        for pool, size in zip(pools, asked, strict=True)
    ]


def labels_of(setting: Options, places: Places) -> list[Labels]:
    """Read the labels of the queries of a setting."""
    source = CorpusSource(corpus_folder(setting, places))
    return read_labels(source, queries_of(setting, places)) or []


def found_by(setting: Options, places: Places) -> Found:
    """Search all queries, once per process."""
    key = json.dumps([str(places.cache), setting], sort_keys=True)
    if key not in _FOUND:
        options = prepared(setting, places)
        search = search_of(lake_for(options, places), options)
        queries = queries_of(options, places)
        places.tell(f"{options['method']}: {len(queries)} queries")
        _FOUND[key] = [[hit.column_id for hit in search(query, K)] for query in queries]
    return _FOUND[key]


@dataclass(frozen=True, order=True)
class _Example:
    #: Lower is clearer: shared strings of a win, the rank of a loss.
    worth: float
    query: int
    column: str


def examples(settings: Sequence[Options], places: Places) -> Iterator[tuple[Options, Options]]:
    """Yield what the first setting alone gets right, and what it alone gets wrong."""
    found = [found_by(setting, places) for setting in settings]
    labels = labels_of(settings[0], places)
    wins, losses = [], []
    for number, one in enumerate(labels):
        theirs = {column for ids in found[1:] for column in ids[number]}
        for rank, column in enumerate(found[0][number]):
            if column in one.relevant - theirs:
                wins.append(_Example(one.surface[column], number, column))
            elif one.relevant and column not in theirs and not one.gains.get(column):
                losses.append(_Example(rank, number, column))
    chosen = [("win", one) for one in _few(wins, 3)] + [("lose", one) for one in _few(losses, 2)]
    shown = _shown_examples(settings[0], places, chosen)
    yield settings[0], {"wins": len(wins), "losses": len(losses), "examples": shown}


def _few(some: list[_Example], most: int) -> list[_Example]:
    """Take the clearest example of some queries."""
    best: dict[int, _Example] = {}
    for one in sorted(some):
        best.setdefault(one.query, one)
    return sorted(best.values())[:most]


def _shown_examples(
    setting: Options, places: Places, chosen: Sequence[tuple[str, _Example]]
) -> list[Options]:
    wanted = {one.column for _, one in chosen}
    source = CorpusSource(corpus_folder(setting, places))
    columns = {one.column_id: one for one in source.columns() if one.column_id in wanted}
    queries = queries_of(setting, places)
    return [
        {
            "verdict": verdict,
            "query": _shown(queries[one.query]),
            "found": _shown(columns[one.column]),
        }
        for verdict, one in chosen
    ]


def _shown(column: Column) -> Options:
    cells = list(dict.fromkeys(cell for cell in column.cells if cell and cell.strip()))[:5]
    return {"title": column.title, "name": column.name, "cells": cells}
