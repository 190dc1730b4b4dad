"""The join from a lake and from the command line: which kind is meant, and what is printed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest

import deepjoin
from deepjoin import Lake
from deepjoin.cli import main
from deepjoin.errors import DeepJoinError, UnknownName
from deepjoin.joining.tables import JoinWarning, semantic_or_equi
from deepjoin.settings import JoinSettings

TARGET = ("geo.csv", "name")
COUNTRIES = ["United States", "United Kingdom", "France", "Peru", "Chile", "Norway"]
WITH = ("-c", "country", "--with", "geo.csv:name")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("join")
    (folder / "lake").mkdir()
    codes = {"name": COUNTRIES, "code": list("abcdef")}
    pd.DataFrame(codes).to_csv(folder / "lake" / "geo.csv", index=False)
    orders = {"order": range(5), "country": ["USA", "france", "UK", "Atlantis", "Holland"]}
    pd.DataFrame(orders).to_csv(folder / "orders.csv", index=False)
    deepjoin.index(folder / "lake")
    return folder


@pytest.fixture
def lake(place: Path) -> Lake:
    return deepjoin.open(place / "lake" / ".deepjoin")


@pytest.fixture
def run(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str, str]]]:
    monkeypatch.chdir(place)

    def call(*options: str) -> tuple[int, str, str]:
        status = main(["join", "lake", "orders.csv", *WITH, *options])
        said = capsys.readouterr()
        return status, said.out, said.err

    yield call


@pytest.mark.slow
def test_a_pair_of_names_is_an_equi_join_unless_told(lake: Lake, place: Path) -> None:
    orders = pd.read_csv(place / "orders.csv")
    joined = lake.join(orders, "country", TARGET)
    assert list(joined.columns) == ["order", "country", "name", "code"]
    assert joined["code"].count() == 1
    joined = lake.join(orders, "country", TARGET, join="semantic")
    assert list(joined.columns) == ["order", "country", "similarity", "name", "code"]
    assert joined["code"].tolist()[:3] == ["a", "c", "b"]
    with pytest.warns(JoinWarning, match="`tau` is 0.1: below"):
        joined = lake.join(
            orders, "country", TARGET, join="semantic", settings=JoinSettings(tau=0.1), how="inner"
        )
    assert len(joined) == 5
    joined = lake.join(
        orders, "country", TARGET, join="semantic", settings=JoinSettings(matching="one-to-one")
    )
    assert joined["code"].count() == 3


class Evidence:
    """What a hit of a search says of one kind of join."""

    def __init__(self, joinability: float, tau: float = 0.8) -> None:
        self.joinability, self.tau = joinability, tau


class FakeHit:
    """As much of a hit as decides the kind of join."""

    def __init__(self, join: str, equi: float, semantic: float | None) -> None:
        self.join, self.equi = join, Evidence(equi)
        self.semantic = None if semantic is None else Evidence(semantic)


@pytest.mark.parametrize(
    ("hit", "join", "tau"),
    [
        (FakeHit("equi", 0.5, None), None, None),
        (FakeHit("any", 0.5, None), None, None),
        (FakeHit("any", 0.5, 0.5), None, None),
        (FakeHit("any", 0.5, 0.6), None, 0.8),
        (FakeHit("semantic", 0.0, 0.6), None, 0.8),
        (FakeHit("semantic", 0.0, 0.6), "equi", None),
        (FakeHit("equi", 0.5, None), "semantic", 0.65),
        (FakeHit("any", 0.5, 0.5), "semantic", 0.8),
        (("t", "c"), None, None),
        (("t", "c"), "semantic", 0.65),
    ],
)
def test_which_kind_of_join_a_hit_means(hit: object, join: str | None, tau: float | None) -> None:
    semantic = semantic_or_equi(hit, join, None, "best", None, deepjoin_encoder)
    assert (semantic.bound if semantic else None) == tau


def deepjoin_encoder() -> Any:
    from deepjoin.embed.cells import load_cell_encoder

    return load_cell_encoder()


def test_a_hit_joins_as_it_was_found(lake: Lake, place: Path) -> None:
    orders = pd.read_csv(place / "orders.csv")
    hit = lake.search(orders["country"], 1, join="semantic")[0]
    assert lake.plan_join(orders, "country", hit).facts.join == "semantic"
    assert lake.plan_join(orders, "country", hit, join="equi").facts.join == "equi"
    equal = replace(hit, semantic=None)
    assert lake.plan_join(orders, "country", equal).facts.join == "equi"


@pytest.mark.parametrize("chosen", [JoinSettings(tau=0.5), JoinSettings(matching="all")])
def test_options_of_another_join_are_refused(lake: Lake, place: Path, chosen: JoinSettings) -> None:
    with pytest.raises(DeepJoinError, match='for semantic joins; add `join="semantic"`'):
        lake.plan_join(place / "orders.csv", "country", TARGET, settings=chosen)


def test_an_unknown_kind_of_join(lake: Lake, place: Path) -> None:
    with pytest.raises(UnknownName, match="No join kind 'fuzzy' in a join. Known: equi, semantic"):
        lake.plan_join(place / "orders.csv", "country", TARGET, join="fuzzy")


@pytest.mark.slow
def test_a_lake_without_vectors_joins_by_meaning_too(place: Path, tmp_path: Path) -> None:
    bare = deepjoin.index(
        place / "lake", tmp_path / "bare", settings=deepjoin.Settings(hash_only=True)
    )
    joined = bare.join(place / "orders.csv", "country", TARGET, join="semantic")
    assert joined["code"].to_pylist()[0] == "a"


def test_facts_are_told(run: Callable[..., tuple[int, str, str]]) -> None:
    status, out, err = run("--join", "semantic", "--format", "json")
    assert status == 0
    assert [row["code"] for row in json.loads(out)] == ["a", "c", "b", None, None]
    assert (
        "3 of 5 rows match (1:1), 1 values by equality and 2 by meaning "
        "(similarity >= 0.65, best); 5 rows result"
    ) in err


@pytest.mark.slow
def test_near_misses(run: Callable[..., tuple[int, str, str]]) -> None:
    status, out, err = run("--join", "semantic", "--near-misses", "3", "--tau", "0.979")
    assert status == 0
    assert out.splitlines()[0].split() == ["yours", "theirs", "similarity"]
    assert out.splitlines()[1].split() == ["USA", "United", "States", "0.976884"]
    assert "of 5 values have no match" in err
    status, out, _ = run("--near-misses", "1", "--format", "json")
    assert json.loads(out) == [{"yours": "UK", "theirs": "United Kingdom", "similarity": 0.980238}]


@pytest.mark.slow
def test_sql_and_matches(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    out, pairs = tmp_path / "out.parquet", tmp_path / "pairs.parquet"
    semantic = ("--join", "semantic")
    assert "pairs of values in" in run(*semantic, "-o", str(out), "--matches-out", str(pairs))[2]
    expected = pq.read_table(out).to_pylist()
    assert len(pq.read_table(pairs)) == 3
    pairs.unlink()
    for options in ((), ("--matches-out", str(pairs))):
        status, sql, _ = run(*semantic, "--sql", *options)
        assert status == 0
        assert duckdb.sql(sql).to_arrow_table().to_pylist() == expected
    status, code, _ = run(*semantic, "--pandas", "--matches-out", str(pairs))
    assert f"pd.read_parquet({str(pairs)!r})" in code


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--join", "semantic", "--tau", "0"), "--tau is 0.0; it must be a cosine above 0"),
        (("--tau", "0.5"), "for semantic joins"),
        (("--join", "semantic", "--matches-out", "x.doc"), "its ending must be one of .parquet"),
        (("--join", "semantic", "--sql", "--matches-out", "x.csv"), "from a .parquet file"),
    ],
)
def test_wrong_options(
    run: Callable[..., tuple[int, str, str]], options: tuple[str, ...], says: str
) -> None:
    status, out, err = run(*options)
    assert (status, out) == (1, "")
    assert says in err
