"""Evaluation of semantic joins: the truth is brute force, methods get what they need."""

from __future__ import annotations

import json
import math
import random
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deepjoin
from deepjoin import Column, Lake
from deepjoin.arrays import Float
from deepjoin.embed.cells import DEFAULT_TABLE, load_cell_encoder
from deepjoin.lab.evaluation import EvaluationSettings
from deepjoin.lab.evaluation import cache as keeping
from deepjoin.lab.evaluation.truth import Truth, semantic_truth, with_found
from deepjoin.matching.joinability import semantic_joinability
from deepjoin.read.corpus import CorpusSource, write_corpus
from deepjoin.search.exact import exact_equi
from deepjoin.search.methods import METHODS, Method, all_methods
from deepjoin.settings import Vectors
from tests.support.command_line import Run
from tests.support.options import index_options

ENCODER = load_cell_encoder()
WORDS = (
    *("USA", "United States", "UK", "United Kingdom", "Germany", "West Germany", "France", "FRA"),
    *("New York", "New York City", "Apple", "Apple Inc.", "IBM", "QB", "quarterback", "1994"),
)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Write thirty columns of names and abbreviations, and four queries."""
    chance = random.Random(5)
    columns = [
        Column(chance.sample(WORDS, chance.randint(2, 6)), "name", f"t{i // 2}") for i in range(30)
    ]
    queries = [Column(chance.sample(WORDS, 5), "name", f"t{i}") for i in range(3)]
    queries.append(Column(["0x1f", "0x2e"], "name", "elsewhere"))
    write_corpus(tmp_path / "meanings", columns, queries)
    return tmp_path / "meanings"


def rows_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def encode(values: list[str]) -> Float:
    return np.array([vector(value) for value in values]).reshape(-1, ENCODER.dimension)


@cache
def vector(value: str) -> Float:
    return ENCODER.encode([value])[0]


def by_definition(columns: list[Column], query: Column, tau: float) -> dict[str, float]:
    """Compare a query with all columns but those of its own table."""
    every = {
        column.column_id or "": semantic_joinability(
            query.cells, column.cells, encode, tau, "basic"
        )
        for column in columns
        if column.table != query.table
    }
    return {column: share for column, share in every.items() if share > 0}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Index columns of which many tie."""
    chance = random.Random(3)
    tables = [
        Column(chance.sample(WORDS, chance.randint(1, 5)), "name", f"t{i}", column_id=f"t{i}#0")
        for i in range(40)
    ]
    out = tmp_path_factory.mktemp("ties") / "index"
    return deepjoin.index(
        tables, out, settings=deepjoin.Settings(min_distinct=1), profile="basic", encoder="none"
    )


@pytest.mark.slow
@settings(max_examples=40)
@given(
    cells=st.lists(st.sampled_from(WORDS), max_size=6),
    own=st.integers(0, 40),
    depth=st.integers(1, 12),
    tau=st.sampled_from([0.5, 0.65, 0.9]),
)
def test_the_engine_gives_the_truth_of_the_definition(
    lake: Lake, cells: list[str], own: int, depth: int, tau: float
) -> None:
    columns = [lake.column(f"t{i}", "name") for i in range(40)]
    query = Column(cells, "name", f"t{own}")
    (truth,) = semantic_truth(lake, [query], tau, depth)
    every = by_definition(columns, query, tau)
    last = Truth(dict(sorted(every.items(), key=lambda one: -one[1]))).kth(depth)
    assert truth.joinability == {column: share for column, share in every.items() if share >= last}
    assert list(truth.joinability.values()) == sorted(truth.joinability.values(), reverse=True)


@pytest.mark.slow
def test_what_was_found_below_the_truth_is_measured(corpus: Path) -> None:
    source = CorpusSource(corpus)
    columns, queries = list(source.columns()), source.queries()
    every = [by_definition(columns, query, 0.65) for query in queries]
    best = [Truth(dict(sorted(of.items(), key=lambda one: -one[1])[:2])) for of in every]
    found = [[column.column_id or "" for column in columns] for _ in queries]
    whole = with_found(best, found, source, queries, ENCODER, 0.65, "basic")
    for truth, right, query in zip(whole, every, queries, strict=True):
        for column in columns:
            if column.table != query.table:
                assert truth.of(column.column_id or "") == right.get(column.column_id or "", 0.0)
    assert with_found(best, [[]] * 4, source, queries, ENCODER, 0.65, "basic") == best


@pytest.mark.slow
@pytest.mark.parametrize("method", ["exact-semantic", "hybrid"])
@pytest.mark.parametrize("tau", [None, 0.9])
def test_semantic_methods_are_compared_with_the_exact_answer(
    run: Run, corpus: Path, method: str, tau: float | None
) -> None:
    options = ["--join", "semantic", "-k", "1,3,8", "--candidates"]
    options += [] if tau is None else ["--tau", str(tau)]
    rows = rows_of(run("evaluate", corpus, "--methods", method, *options).out)
    assert [row["k"] for row in rows] == [1, 3, 8]
    for row in rows:
        assert (row["precision_ties"], row["ndcg"], row["join"]) == (1.0, 1.0, "semantic")
        assert method == "hybrid" or row["precision"] == 1.0
        assert (row["candidates_500"], row["queries_ndcg"]) == (1.0, 3)
        assert row["tau"] == (ENCODER.tau if tau is None else tau)
        assert row["encoder"] == f"{ENCODER.name}@{ENCODER.digest}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "join"),
    # Those with an encoder of their own are measured where encoders are tested.
    [(name, join) for name, one in all_methods().items() for join in one.joins if not one.kind],
)
def test_every_method_is_measured(
    run: Run, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, join: str
) -> None:
    monkeypatch.setenv("DEEPJOIN_CACHE", str(tmp_path / "vectors"))
    answer = run("evaluate", corpus, "--methods", method, "--join", join, "-k", "4", "--sketch", 64)
    assert answer.status == 0, answer.err
    (row,) = rows_of(answer.out)
    assert join == "any" or 0 < row["ndcg"] <= 1
    encodes = "column vectors" in all_methods()[method].needs
    assert ("column vectors that are cached" in answer.err) == encodes
    assert (row["encoder"] is None) == (set(all_methods()[method].needs) <= {"values", "sketches"})


@pytest.mark.slow
def test_an_index_has_what_its_method_needs(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[dict[str, Any]] = []
    index = keeping.index

    def noted(*arguments: Any, vectors: Vectors, **options: Any) -> Any:
        built.append({name: getattr(vectors, name) for name in ("encoder", "cells", "sketch")})
        small = replace(vectors, encoder="none", sketch=0)
        return index(*arguments, vectors=small, **options)

    monkeypatch.setattr(keeping, "index", noted)
    for name, needs in (("a", "column vectors"), ("b", "sketches")):
        method = Method(exact_equi, ("equi", "semantic"), ("values", needs), "a test")
        monkeypatch.setitem(METHODS, name, method)
    methods = ["exact-equi", "hybrid", "a", "b"]
    settings = EvaluationSettings(queries=1, sketch=16)
    rows = list(deepjoin.evaluate(corpus, methods, k=[2], settings=settings))
    assert built == [
        {"encoder": "none", "cells": "none", "sketch": 0},
        {"encoder": "none", "cells": "default", "sketch": 0},
        {"encoder": "default", "cells": "none", "sketch": 0},
        {"encoder": "none", "cells": "none", "sketch": 16},
    ]
    encoders = [row["encoder"] for row in rows]
    assert encoders[0] is encoders[3] is None
    assert encoders[1] == f"{ENCODER.name}@{ENCODER.digest}"
    assert encoders[2] not in (None, encoders[1])
    built.clear()
    (row,) = deepjoin.evaluate(corpus, ["b"], join="semantic", k=[8])
    assert [one["sketch"] for one in built] == [0, 768], "the truth has an index of its own"
    assert (row["tau"], row["encoder"]) == (ENCODER.tau, None)
    assert row["ndcg"] < 1, "equal cells alone are not all that match"


@pytest.mark.slow
def test_what_a_method_finds_counts_by_its_exact_joinability(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = Method(exact_equi, ("semantic",), ("values",), "equal cells alone")
    monkeypatch.setitem(METHODS, "poor", method)
    (row,) = deepjoin.evaluate(corpus, ["poor"], join="semantic", k=[3])
    source = CorpusSource(corpus)
    options = {"profile": "basic", "min_distinct": 1, "encoder": "none", "cells": "none"}
    lake = deepjoin.index(corpus, tmp_path / "index", **index_options(**options))
    gains = []
    for query in source.queries()[:3]:
        every = by_definition(list(source.columns()), query, ENCODER.tau)
        hits = lake.search(query, 3, join="equi", method="exact-equi")
        found = [every[hit.column_id] for hit in hits]
        best = sorted(every.values(), reverse=True)[:3]
        gains.append(discounted(found) / discounted(best))
    assert min(gains) < 1
    assert row["ndcg"] == pytest.approx(sum(gains) / 3)


def discounted(gains: list[float]) -> float:
    return sum(gain / math.log2(rank + 2) for rank, gain in enumerate(gains))


@pytest.mark.slow
def test_an_encoder_is_known_by_what_it_is(
    run: Run, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        shutil.copytree(DEFAULT_TABLE, tmp_path / name)
    wide = ("evaluate", corpus, "--join", "any", "-k", "2", "--cache", tmp_path / "cache")
    run(*wide, "--cells", tmp_path / "one")
    before = sorted(path.name for path in (tmp_path / "cache").iterdir())
    shutil.rmtree(tmp_path / "one")
    answer = run(*wide, "--cells", tmp_path / "two")
    assert answer.status == 0, answer.err
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == before
