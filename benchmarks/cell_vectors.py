"""Quality and speed of cell vectors: ranking by meaning, typing errors, values a second.

Joins are in `fuzzy_join`.

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

from common import emit, say
from deepjoin.arrays import Float, Int
from deepjoin.embed.cells import CellEncoder, load_cell_encoder, match_chance
from deepjoin.embed.cells.tokens import plain_word
from deepjoin.lab.cell_table.variants import mistype
from deepjoin.normalise.canonical import canonical

RELEVANT, EASY = 0.7, 0.3
FLOORS = (0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8)
_QUERY_CELLS_AT_ONCE = 64
_SCORED_ANEW = 400
_WORDS_DRAWN = 400
_SHORTEST, _LONG = 6, 8


@dataclass(frozen=True)
class Columns:
    """Columns as numbers of distinct values, and for each value the columns that hold it."""

    values: list[str]
    columns: list[Int]
    starts: Int
    holders: Int


@dataclass(frozen=True)
class Query:
    """A query's distinct values, the columns of its table, and its labels by editors' links."""

    cells: Int
    own: Int
    targets: Int
    entity: Float
    surface: Float


def read_columns(path: Path) -> tuple[Columns, list[str], list[str]]:
    """Read a repository; values are lower-cased and stripped, as its labels were made."""
    table = pq.read_table(path, columns=["column_id", "table_id", "cells"])
    numbers: dict[str, int] = {}
    columns = []
    for cells in table["cells"].to_pylist():
        kept = dict.fromkeys(c for cell in cells if (c := canonical(cell, "basic")))
        columns.append(np.array([numbers.setdefault(c, len(numbers)) for c in kept], np.int64))
    flat = np.concatenate(columns)
    owner = np.repeat(np.arange(len(columns)), [len(column) for column in columns])
    counts = np.bincount(flat, minlength=len(numbers))
    starts = np.concatenate([[0], np.cumsum(counts)])
    holders = owner[np.argsort(flat, kind="stable")]
    names = table["column_id"].to_pylist(), table["table_id"].to_pylist()
    return Columns(list(numbers), columns, starts, holders), *names


def read_queries(corpus: Path, ids: list[str], tables: list[str], half: int | None) -> list[Query]:
    """Read the labelled queries, or the half of them whose page's checksum is even or odd."""
    data, _, _ = _columns_of(corpus)
    place = {column: at for at, column in enumerate(ids)}
    own: dict[str, list[int]] = {}
    for at, table in enumerate(tables):
        own.setdefault(table, []).append(at)
    labels = _labels(corpus)
    queries = []
    for row in pq.read_table(
        corpus / "queries.parquet", columns=["column_id", "table_id", "title"]
    ).to_pylist():
        if half is not None and zlib.crc32(str(row["title"]).encode()) % 2 != half:
            continue
        found = labels[row["column_id"]]
        targets = np.array([place[column] for column, _, _ in found])
        entity, surface = (np.array([f[i] for f in found], np.float32) for i in (1, 2))
        cells = data.columns[place[row["column_id"]]]
        queries.append(Query(cells, np.array(own[row["table_id"]]), targets, entity, surface))
    return queries


_READ: dict[Path, tuple[Columns, list[str], list[str]]] = {}


def _columns_of(corpus: Path) -> tuple[Columns, list[str], list[str]]:
    if corpus not in _READ:
        _READ[corpus] = read_columns(corpus / "columns.parquet")
    return _READ[corpus]


def _labels(corpus: Path) -> dict[str, list[tuple[str, float, float]]]:
    labels: dict[str, list[tuple[str, float, float]]] = {}
    for row in pq.read_table(corpus / "labels.parquet").to_pylist():
        triple = (row["column_id"], row["entity_jn"], row["surface_equi_jn"])
        labels.setdefault(row["query_id"], []).append(triple)
    return labels


def best_cosines(query: Query, data: Columns, vectors: Float, floor: float) -> Float:
    """Return each query cell's best cosine in every column: 1 if equal, 0 below the floor."""
    best = np.zeros((len(query.cells), len(data.columns)), np.float32)
    for start in range(0, len(query.cells), _QUERY_CELLS_AT_ONCE):
        cells = query.cells[start : start + _QUERY_CELLS_AT_ONCE]
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


def judge(query: Query, scores: Float) -> tuple[float, float, float]:
    """Compute P@10 over min(10, relevant), NDCG@10 on entity_jn, and hard recall@10."""
    scores[query.own] = 0
    relevant = query.entity >= RELEVANT
    hard = relevant & (query.surface < EASY)
    easy, depth = query.targets[relevant & ~hard], 10 + int((relevant & ~hard).sum())
    top = np.argsort(-scores, kind="stable")[:depth]
    top = top[scores[top] > 0]
    precision = np.isin(top[:10], query.targets[relevant]).sum() / min(10, relevant.sum())
    rest = top[~np.isin(top, easy)][:10]
    recall = np.isin(rest, query.targets[hard]).sum() / min(10, hard.sum())
    return float(precision), _ndcg(query, top[:10]), float(recall)


def _ndcg(query: Query, top: Int) -> float:
    gains = dict(zip(query.targets.tolist(), query.entity.tolist(), strict=True))
    discounts = 1 / np.log2(np.arange(2, 12))
    found = np.array([gains.get(column, 0.0) for column in top.tolist()])
    ideal = np.sort(query.entity)[::-1][:10]
    return float((found * discounts[: len(found)]).sum() / (ideal * discounts[: len(ideal)]).sum())


def rank(corpus: Path, encoder: CellEncoder, half: int | None) -> None:
    """Rank every column for every query by the soft score, at several floors."""
    data, ids, tables = _columns_of(corpus)
    vectors = encoder.encode(data.values)
    judged: dict[str, list[tuple[float, float, float]]] = {}
    for query in read_queries(corpus, ids, tables, half):
        best = best_cosines(query, data, vectors, min(FLOORS))
        for way, scores in _ways(query, data, vectors, best, encoder).items():
            judged.setdefault(way, []).append(judge(query, scores))
    for way, figures in judged.items():
        precision, ndcg, recall = np.mean(figures, axis=0)
        emit("cell_vectors.rank", encoder=encoder.name, digest=encoder.digest, score=way,
             half=half, queries=len(figures), precision_10=precision, ndcg_10=ndcg,
             hard_recall_10=recall)  # fmt: skip


def _ways(
    query: Query, data: Columns, vectors: Float, best: Float, encoder: CellEncoder
) -> dict[str, Float]:
    """Score all columns: mean cosine above a floor, mean chance, chance with places shared."""
    ways = {f"cosine >= {f}": np.where(best >= f, best, 0).mean(axis=0) for f in FLOORS}
    chances = match_chance(best, encoder.floor, encoder.tau)
    chances[best == 1] = 1
    ways["chance"] = chances.mean(axis=0)
    ways["chance, shared"] = _shared(query, data, vectors, ways["chance"], encoder)
    return ways


def _shared(
    query: Query, data: Columns, vectors: Float, scores: Float, encoder: CellEncoder
) -> Float:
    """Rescore the best columns; a target cell matched by several query cells counts less."""
    again = scores.copy()
    for column in np.argsort(-scores, kind="stable")[:_SCORED_ANEW].tolist():
        cells = data.columns[column]
        cosines = vectors[query.cells] @ vectors[cells].T
        chances = match_chance(cosines, encoder.floor, encoder.tau)
        chances[query.cells[:, None] == cells] = 1
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
