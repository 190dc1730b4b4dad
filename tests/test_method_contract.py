"""One contract for every search method, of the product and of the lab, by the table of methods."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepjoin
from deepjoin import Column, DeepJoinError, Lake, Results
from deepjoin.embed.cells import load_cell_encoder
from deepjoin.lab.encoders.averages import Tower, write_mlp
from deepjoin.lab.evaluation.truth import brute_force
from deepjoin.matching.joinability import semantic_joinability
from deepjoin.model import Hit
from deepjoin.search.methods import all_methods
from deepjoin.settings import Settings
from tests.support.encoder_models import model_folders
from tests.support.table_models import save_tabert, save_turl

pytestmark = pytest.mark.slow

METHODS = all_methods()
EVERY = [(name, join) for name, method in METHODS.items() for join in method.joins]
#: Methods that measure the joinability of their hits; the others only estimate it.
VERIFIED = ("hybrid", "deepjoin-exact", "exact-equi", "exact-semantic", "josie", "pexeso")
#: Among nine columns, all are candidates of deepjoin-exact.
EXACT = [("exact-equi", "equi"), ("josie", "equi"), ("deepjoin-exact", "equi")]
EXACT_BY_MEANING = [
    *(("exact-semantic", "semantic"), ("pexeso", "semantic"), ("deepjoin-exact", "semantic"))
]
CITIES = [
    *("paris", "london", "madrid", "rome", "vienna", "oslo", "bern", "kyiv", "lima", "quito"),
    *("cairo", "tunis", "accra", "dakar", "hanoi", "seoul", "tokyo", "delhi", "dhaka", "doha"),
]
#: Columns of numbers, for methods that read nothing else.
OF_NUMBERS = ("sherlock",)

MakeLake = Callable[[list[Column]], Lake]
Search = Callable[..., Results]


@pytest.fixture(scope="module")
def encoder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Return the --encoder of a kind: a tiny model, made when first asked for."""
    folders = model_folders(tmp_path_factory)
    made: dict[str, str] = {"": "default", "sherlock": "sherlock:"}

    def make(kind: str) -> Path:
        folder = tmp_path_factory.mktemp(kind)
        if kind == "fasttext":
            numbers = np.random.default_rng(0).standard_normal((len(CITIES), 4))
            lines = [
                f"{city} {' '.join(map(str, row))}"
                for city, row in zip(CITIES, numbers.round(3), strict=True)
            ]
            (folder / "words.vec").write_text("\n".join([f"{len(lines)} 4", *lines]) + "\n")
            return folder / "words.vec"
        if kind == "mlp":
            cells = load_cell_encoder("default")
            widths, chance = (cells.dimension, 16, 8), np.random.default_rng(0)
            shapes = {"mean": (0,), "scale": (0,), "first": (0, 1), "first_bias": (1,)}
            shapes |= {"second": (1, 2), "second_bias": (2,)}
            weights = {
                name: chance.standard_normal([widths[axis] for axis in axes])
                for name, axes in shapes.items()
            }
            write_mlp(folder, Tower(weights), "default", cells.digest, {})
            return folder
        if kind in ("tabert", "turl"):
            pytest.importorskip("transformers")
            return (save_tabert if kind == "tabert" else save_turl)(folder)
        return folders(kind)

    def encoder(kind: str) -> str:
        if kind not in made:
            made[kind] = f"{kind}:{make(kind)}"
        return made[kind]

    return encoder


def drawn_columns(numeric: bool, seed: int = 3) -> list[Column]:
    """Draw columns of two subjects for nine tables, with different overlaps."""
    chance = random.Random(seed)
    values = [str(number) for number in range(10, 400, 13)] if numeric else CITIES
    cut = len(values) // 2
    columns = []
    for table in range(9):
        subject = values[:cut] if table % 3 else values[cut:]
        cells = chance.sample(subject, chance.randint(3, len(subject)))
        columns.append(Column(cells, name=f"place {table}", table=f"t{table}"))
    return columns


@pytest.fixture(scope="module")
def lake_of(
    tmp_path_factory: pytest.TempPathFactory, encoder_of: Callable[[str], str]
) -> Callable[[str, bool], Lake]:
    """Return a lake for a method: nine columns, or a single one; one lake for equal needs."""
    made: dict[tuple[object, ...], Lake] = {}

    def lake(method: str, single: bool) -> Lake:
        row = METHODS[method]
        if method == "lsh-ensemble":
            pytest.importorskip("datasketch")
        needs = {*row.needs, *row.also}
        vectors = {
            "encoder": encoder_of(row.kind) if "column vectors" in needs else "none",
            "cells": "default" if "cell vectors" in needs or "semantic" in row.joins else "none",
            "sketch": 64 if "sketches" in needs else 0,
        }
        numeric = method in OF_NUMBERS
        key = (*vectors.values(), numeric, single)
        if key not in made:
            columns = drawn_columns(numeric)[: 1 if single else None]
            tables = {str(one.table): {one.name: one.cells} for one in columns}
            frames = {name: _frame(table) for name, table in tables.items()}
            made[key] = deepjoin.index(
                *(frames, tmp_path_factory.mktemp("index") / "i"),
                settings=Settings(min_distinct=1),
                vectors=vectors,
            )
        return made[key]

    return lake


def _frame(table: dict[str, list[Any]]) -> Any:
    import pyarrow as pa

    return pa.table(table)


@pytest.fixture(params=EVERY, ids="-".join)
def case(
    request: pytest.FixtureRequest, lake_of: Callable[[str, bool], Lake]
) -> tuple[str, Search, Column]:
    """Return a method, its search, and a query of values of its lake and unknown ones."""
    method, join = request.param
    search = partial(lake_of(method, False).search, method=method, join=join)
    return method, search, query_for(method)


def query_for(method: str) -> Column:
    columns = drawn_columns(method in OF_NUMBERS)
    more = ["7", "5000"] if method in OF_NUMBERS else ["atlantis", "Oslo "]
    return Column([*columns[1].cells[:6], *more], name="place")


def comparable(results: Results) -> dict[str, Any]:
    """Return results as JSON, without the times."""
    return {key: one for key, one in results.to_dict().items() if key != "seconds"}


def every(found: Results) -> list[Hit]:
    """Return the hits of an answer, those that were set apart as unlikely in their places."""
    return sorted((*found.hits, *found.unlikely), key=lambda hit: hit.rank)


@pytest.mark.slow
@pytest.mark.parametrize("k", [0, 1, 3, 50])
def test_at_most_k_hits_best_first(case: tuple[str, Search, Column], k: int) -> None:
    method, search, query = case
    hits = every(search(query, k))
    assert len(hits) <= k
    assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
    assert len({hit.column_id for hit in hits}) == len(hits)
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    if method in VERIFIED:
        joinabilities = [hit.joinability for hit in hits]
        assert joinabilities == sorted(joinabilities, reverse=True)
    # Fewer hits are the first of more.
    assert hits == every(search(query, 60))[:k]


@pytest.mark.slow
def test_hits_are_found(case: tuple[str, Search, Column]) -> None:
    _, search, query = case
    assert len(search(query, 5)) > 0


@pytest.mark.slow
def test_the_same_twice(case: tuple[str, Search, Column]) -> None:
    _, search, query = case
    assert comparable(search(query, 5)) == comparable(search(query, 5))


def test_an_excluded_table_is_never_a_hit(case: tuple[str, Search, Column]) -> None:
    _, search, query = case
    every = search(query, 50)
    rest = search(query, 50, exclude_table=every[0].table)
    assert every[0].table not in {hit.table for hit in rest}
    own = Column(query.cells, query.name, table=every[0].table)
    assert [hit.column_id for hit in search(own, 50)] == [hit.column_id for hit in rest]


@pytest.mark.parametrize("least", [0.3, 1.0])
def test_a_minimum_is_kept_or_refused(case: tuple[str, Search, Column], least: float) -> None:
    method, search, query = case
    if method not in VERIFIED:
        with pytest.raises(DeepJoinError, match="min_joinability"):
            search(query, 50, min_joinability=least)
        return
    hits = search(query, 50, min_joinability=least)
    assert all(hit.joinability >= least for hit in hits)
    every = [hit.column_id for hit in search(query, 50) if hit.joinability >= least]
    assert [hit.column_id for hit in hits] == every


@pytest.mark.slow
@pytest.mark.parametrize("cells", [[], [None, "", "  "]], ids=["no cells", "empty cells"])
def test_a_query_without_values_finds_nothing(
    case: tuple[str, Search, Column], cells: list[str | None]
) -> None:
    _, search, _ = case
    results = search(Column(cells, name="place"), 5)
    assert (len(results), results.to_dict()["hits"]) == (0, [])


@pytest.mark.slow
@pytest.mark.parametrize(("method", "join"), EVERY)
def test_a_lake_of_one_column(lake_of: Callable[[str, bool], Lake], method: str, join: str) -> None:
    search = partial(lake_of(method, True).search, method=method, join=join)
    (only,) = drawn_columns(method in OF_NUMBERS)[:1]
    found = search(Column(only.cells), 3)
    if method == "sketch" and not found:
        return  # sketches leave out values of a single column: nothing else could share them
    (hit,) = found
    assert (hit.table, hit.column, hit.rank) == ("t0", "place 0", 1)
    assert hit.joinability == pytest.approx(1.0)
    assert len(search(Column(only.cells, table="t0"), 3)) == 0


@pytest.mark.slow
def test_results_are_json(case: tuple[str, Search, Column]) -> None:
    _, search, query = case
    results = search(query, 3)
    read = json.loads(json.dumps(results.to_dict(), allow_nan=False))
    assert [hit["table"] for hit in read["hits"]] == [hit.table for hit in results]
    assert read["query"]["cells"] == len(query.cells)
    for hit in read["hits"]:
        assert hit["found_by"] and 0 <= hit["joinability"] <= 1
        assert hit["query_size"] == read["query"]["size"]


@pytest.mark.parametrize(("method", "join"), EXACT)
@pytest.mark.parametrize("seed", range(5))
def test_exact_methods_equal_brute_force(
    lake_of: Callable[[str, bool], Lake], method: str, join: str, seed: int
) -> None:
    lake, chance = lake_of(method, False), random.Random(seed)
    query = Column(chance.sample([*CITIES, "atlantis", "thule"], 8), name="place")
    columns = [lake.column(f"t{number}", f"place {number}") for number in range(9)]
    (truth,) = brute_force(columns, [query], lake.settings.profile)
    found = lake.search(query, 50, method=method, join=join)
    assert [(hit.column_id, hit.joinability) for hit in found] == list(truth.joinability.items())


@pytest.mark.slow
@pytest.mark.parametrize(("method", "join"), EXACT_BY_MEANING)
@pytest.mark.parametrize("seed", range(3))
def test_exact_methods_by_meaning_equal_the_definition(
    lake_of: Callable[[str, bool], Lake], method: str, join: str, seed: int
) -> None:
    lake, chance = lake_of(method, False), random.Random(seed)
    query = [*chance.sample(CITIES, 6), "Pariss", "City of London"]
    encoder = load_cell_encoder("default")
    right = {
        column.column_id: share
        for number in range(9)
        if (column := lake.column(f"t{number}", f"place {number}"))
        and (share := semantic_joinability(query, column.cells, encoder.encode, encoder.tau))
    }
    found = lake.search(query, 50, method=method, join=join)
    assert {hit.column_id: hit.joinability for hit in found} == pytest.approx(right)
