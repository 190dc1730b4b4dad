"""Quality and speed of cell vectors: ranking by meaning, typing errors, values a second.

Joins are in `match`.

``python benchmarks/cell_vectors.py rank CORPUS [--encoder default|DIR] [--half 0|1]``
``python benchmarks/cell_vectors.py slips CORPUS`` mistypes words of its columns, by a fixed seed.
``python benchmarks/cell_vectors.py speed CORPUS``.
"""

from __future__ import annotations

import argparse
import random
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common import K, emit, say
from deepjoin.arrays import Float, Int
from deepjoin.embed.cells import CellEncoder, load_cell_encoder, match_chance
from deepjoin.embed.cells.tokens import plain_word
from deepjoin.lab.cell_table.variants import mistype
from deepjoin.lab.evaluation.metrics import (
    hard_recall_labels,
    mean,
    ndcg_labels,
    precision_labels,
    read_labels,
)
from deepjoin.normalise.canonical import canonical
from deepjoin.read.corpus import CorpusSource

FLOORS = (0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8)
_QUERY_CELLS_AT_ONCE = 64
_SCORED_ANEW = 400
_WORDS_DRAWN = 400
_SHORTEST, _LONG = 6, 8
_MEASURES = (precision_labels, ndcg_labels, hard_recall_labels)


@dataclass(frozen=True)
class Columns:
    """Columns as numbers of distinct values, and for each value the columns that hold it."""

    ids: list[str]
    tables: list[str]
    values: list[str]
    columns: list[Int]
    starts: Int
    holders: Int

    @classmethod
    def read(cls, path: Path) -> Columns:
        """Read a corpus; values are lower-cased and stripped, as its labels were made."""
        table = pq.read_table(path, columns=["column_id", "table_id", "cells"])
        numbers: dict[str, int] = {}
        columns = []
        for cells in table["cells"].to_pylist():
            kept = dict.fromkeys(c for cell in cells if (c := canonical(cell, "basic")))
            columns.append(np.array([numbers.setdefault(c, len(numbers)) for c in kept], np.int64))
        flat = np.concatenate(columns)
        owner = np.repeat(np.arange(len(columns)), [len(column) for column in columns])
        starts = np.concatenate([[0], np.cumsum(np.bincount(flat, minlength=len(numbers)))])
        holders = owner[np.argsort(flat, kind="stable")]
        names = table["column_id"].to_pylist(), table["table_id"].to_pylist()
        return cls(*names, list(numbers), columns, starts, holders)


def best_cosines(query: Int, data: Columns, vectors: Float, floor: float) -> Float:
    """Return each query cell's best cosine in every column: 1 if equal, 0 below the floor."""
    best = np.zeros((len(query), len(data.columns)), np.float32)
    for start in range(0, len(query), _QUERY_CELLS_AT_ONCE):
        cells = query[start : start + _QUERY_CELLS_AT_ONCE]
        cosines = vectors[cells] @ vectors.T
        for row, cell in enumerate(cells.tolist()):
            near = np.flatnonzero(cosines[row] >= floor)
            near = near[np.argsort(cosines[row][near])]
            counts = data.starts[near + 1] - data.starts[near]
            # Ascending order: where a column holds several near values the last, best one stays.
            best[start + row, _ranges(data, near, counts)] = np.repeat(
                np.minimum(cosines[row][near], 0.9999), counts
            )
            best[start + row, data.holders[data.starts[cell] : data.starts[cell + 1]]] = 1
    return best


def _ranges(data: Columns, values: Int, counts: Int) -> Int:
    ends = np.cumsum(counts)
    at = np.arange(ends[-1] if len(ends) else 0) + np.repeat(data.starts[values] - ends + counts,
                                                             counts)  # fmt: skip
    return data.holders[at]


def rank(corpus: Path, encoder: CellEncoder, half: int | None) -> None:
    """Rank every column for every query by the soft score, at several floors.

    A half has the queries whose page's checksum is even or odd.
    """
    source = CorpusSource(corpus)
    queries = [
        one
        for one in source.queries()
        if half is None or zlib.crc32(one.title.encode()) % 2 == half
    ]
    labels = read_labels(source, queries)
    assert labels is not None, f"{corpus} has no labels"
    data = Columns.read(corpus / "columns.parquet")
    place = {column: at for at, column in enumerate(data.ids)}
    tables = np.array(data.tables)
    vectors = encoder.encode(data.values)
    judged: dict[str, list[tuple[float | None, ...]]] = {}
    for query, label in zip(queries, labels, strict=True):
        cells = data.columns[place[query.column_id or ""]]
        best = best_cosines(cells, data, vectors, min(FLOORS))
        for way, scores in _ways(cells, data, vectors, best, encoder).items():
            scores[tables == query.table] = 0
            top = np.argsort(-scores, kind="stable")[: K + len(label.easy)]
            found = [data.ids[column] for column in top[scores[top] > 0].tolist()]
            judged.setdefault(way, []).append(tuple(one(found, label, K) for one in _MEASURES))
    for way, figures in judged.items():
        precision, ndcg, recall = (mean(one)[0] for one in zip(*figures, strict=True))
        emit("cell_vectors.rank", encoder=encoder.name, digest=encoder.digest, score=way,
             half=half, queries=len(figures), precision_10=precision, ndcg_10=ndcg,
             hard_recall_10=recall)  # fmt: skip


def _ways(
    query: Int, data: Columns, vectors: Float, best: Float, encoder: CellEncoder
) -> dict[str, Float]:
    """Score all columns: mean cosine above a floor, mean chance, chance with places shared."""
    ways = {f"cosine >= {f}": np.where(best >= f, best, 0).mean(axis=0) for f in FLOORS}
    chances = match_chance(best, encoder.floor, encoder.tau)
    chances[best == 1] = 1
    ways["chance"] = chances.mean(axis=0)
    ways["chance, shared"] = _shared(query, data, vectors, ways["chance"], encoder)
    return ways


def _shared(
    query: Int, data: Columns, vectors: Float, scores: Float, encoder: CellEncoder
) -> Float:
    """Rescore the best columns; a target cell matched by several query cells counts less."""
    again = scores.copy()
    for column in np.argsort(-scores, kind="stable")[:_SCORED_ANEW].tolist():
        cells = data.columns[column]
        cosines = vectors[query] @ vectors[cells].T
        chances = match_chance(cosines, encoder.floor, encoder.tau)
        chances[query[:, None] == cells] = 1
        best, places = chances.max(axis=1), chances.argmax(axis=1)
        order = np.argsort(-best, kind="stable")
        taken = np.zeros(chances.shape[1], np.int64)
        for cell in order:
            taken[places[cell]] += 1
            best[cell] /= taken[places[cell]]
        again[column] = best.mean()
    return again


def slips(corpus: Path, encoder: CellEncoder) -> None:
    """Compare words with mistyped forms of themselves, and with similar real words."""
    counts = _words(corpus)
    common = [word for word, count in counts.items() if count >= 3]
    rare = [word for word, count in counts.items() if count == 1]
    chance = random.Random(7)
    kinds = {
        "one slip": _mistyped(common, 1, chance),
        "one slip, a word of one column": _mistyped(rare, 1, chance),
        "two slips, eight letters and more": _mistyped(
            [word for word in common if len(word) >= _LONG], 2, chance
        ),
        "two real words, one letter apart": _alike(common, chance),
    }
    for kind, pairs in kinds.items():
        mine, theirs = (encoder.encode([pair[side] for pair in pairs]) for side in (0, 1))
        cosines = (mine * theirs).sum(axis=1)
        emit("cell_vectors.slips", encoder=encoder.name, digest=encoder.digest, kind=kind,
             pairs=len(pairs), mean_cosine=float(cosines.mean()),
             at_tau=float((cosines >= encoder.tau).mean()),
             at_floor=float((cosines >= encoder.floor).mean()))  # fmt: skip


def _words(corpus: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    for cells in pq.read_table(corpus / "columns.parquet", columns=["cells"])["cells"].to_pylist():
        words = {word for cell in cells if cell for word in cell.split()}
        plain = {part for word in words for part in plain_word(word).split()}
        counts.update(
            sorted(w for w in plain if len(w) >= _SHORTEST and w.isascii() and w.isalpha())
        )
    return counts


def _mistyped(words: list[str], times: int, chance: random.Random) -> list[tuple[str, str]]:
    pairs = []
    for word in chance.sample(words, min(_WORDS_DRAWN, len(words))):
        typed = word
        for _ in range(times):
            typed = mistype(typed, chance)
        pairs.append((word, typed))
    return [pair for pair in pairs if pair[0] != pair[1]]


def _alike(words: list[str], chance: random.Random) -> list[tuple[str, str]]:
    """Draw pairs of words that differ in one letter, not the first."""
    rests: dict[str, set[str]] = {}
    for word in words:
        for place in range(1, len(word)):
            rests.setdefault(word[:place] + word[place + 1 :], set()).add(word)
    found = sorted({(a, b) for group in rests.values() for a in group for b in group if a < b})
    return chance.sample(found, min(_WORDS_DRAWN, len(found)))


def speed(corpus: Path, encoder: CellEncoder) -> None:
    """Time the encoding of every distinct value of a repository."""
    cells = pq.read_table(corpus / "columns.parquet", columns=["cells"])["cells"]
    distinct = pa.chunked_array([c.flatten() for c in cells.chunks]).unique()
    encoder.encode(distinct.slice(0, 1000))
    began = perf_counter()
    for start in range(0, len(distinct), 1 << 18):
        encoder.encode(distinct.slice(start, 1 << 18))
    seconds = perf_counter() - began
    emit("cell_vectors.speed", encoder=encoder.name, values=len(distinct), seconds=seconds,
         values_per_second=len(distinct) / seconds)  # fmt: skip


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("rank", "slips", "speed"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--encoder", default="default")
    parser.add_argument("--half", type=int, choices=(0, 1))
    options = parser.parse_args()
    encoder = load_cell_encoder(options.encoder)
    say(f"{options.what}: {encoder.name}, digest {encoder.digest}, floor {encoder.floor}")
    if options.what == "rank":
        rank(options.folder, encoder, options.half)
    elif options.what == "slips":
        slips(options.folder, encoder)
    else:
        speed(options.folder, encoder)


if __name__ == "__main__":
    main()
