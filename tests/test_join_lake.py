"""The join from a lake and from the command line: which kind is meant, and what is printed."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
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
from deepjoin.demo import write_demo_lake
from deepjoin.embed.cells import load_cell_encoder
from deepjoin.errors import DeepJoinError, UnknownName
from deepjoin.joining.entry import JoinWarning, matching_of
from deepjoin.matching.linking import LEAST_CHANCE
from deepjoin.model import SemanticEvidence
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
def test_a_pair_of_names_joins_equal_and_similar_values(lake: Lake, place: Path) -> None:
    orders = pd.read_csv(place / "orders.csv")
    joined = lake.join(orders, "country", TARGET)
    assert list(joined.columns) == ["order", "country", "similarity", "name", "code"]
    assert joined["code"].tolist()[:3] == ["a", "c", "b"]
    joined = lake.join(orders, "country", TARGET, join="equi")
    assert list(joined.columns) == ["order", "country", "name", "code"]
    assert joined["code"].count() == 1
    joined = lake.join(orders, "country", TARGET, join="semantic")
    assert joined["code"].tolist()[:3] == ["a", "c", "b"]
    with (
        pytest.warns(JoinWarning, match="`tau` is 0.1: below"),
        pytest.warns(JoinWarning, match="1 of 5 rows is ambiguous: 'Holland' is joined with"),
    ):
        joined = lake.join(
            orders, "country", TARGET, join="semantic", settings=JoinSettings(tau=0.1), how="inner"
        )
    assert len(joined) == 5
    joined = lake.join(orders, "country", TARGET, settings=JoinSettings(matching="one-to-one"))
    assert joined["code"].count() == 3


@pytest.mark.slow
def test_columns_and_aggregates_are_keywords(lake: Lake, place: Path) -> None:
    orders = pd.read_csv(place / "orders.csv")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        joined = lake.join(orders, "country", TARGET, join="equi", columns=["code"])
        assert list(joined.columns) == ["order", "country", "code"]
        joined = lake.join(orders, "country", TARGET, join="equi", aggregate={"code": "first"})
        assert list(joined.columns)[-3:] == ["matched_rows", "name_list", "code_first"]
    with pytest.raises(TypeError, match=r"'colums'\. Did you mean settings=JoinSettings\(columns="):
        lake.join(orders, "country", TARGET, colums=["code"])


@pytest.mark.slow
def test_two_frames_join_without_a_lake(place: Path) -> None:
    orders = pd.read_csv(place / "orders.csv")
    geo = pd.read_csv(place / "lake" / "geo.csv")
    joined = deepjoin.join(orders, geo, on=("country", "name"), columns=["code"])
    assert isinstance(joined, pd.DataFrame)
    assert list(joined.columns) == ["order", "country", "similarity", "code"]
    assert joined["code"].tolist()[:3] == ["a", "c", "b"]
    files = place / "orders.csv", place / "lake" / "geo.csv"
    assert deepjoin.join(*files, on=("country", "name"), join="equi").num_rows == 5
    with pytest.warns(JoinWarning, match=r"^No row of left has a match in right\. Try another col"):
        deepjoin.join({"k": ["a"]}, {"k": ["b"]}, on="k", join="equi")
    with pytest.raises(UnknownName, match=r"^No column 'nam' in right\. .*Did you mean 'name'\?"):
        deepjoin.join(orders, geo, on=("country", "nam"))
    with pytest.raises(DeepJoinError, match=r"^`on` is \['a', 'b', 'c'\]; it must be the name of"):
        deepjoin.join(orders, geo, on=["a", "b", "c"])  # type: ignore[arg-type]
    with pytest.raises(DeepJoinError, match=r"^`on` is 5; it must be the name of a column, or"):
        deepjoin.join(orders, geo, on=5)  # type: ignore[arg-type]
    with pytest.raises(DeepJoinError, match=r"^A table must be a data frame.*got int: 5$"):
        deepjoin.join(orders, 5, on="country")


@pytest.mark.parametrize(
    ("found_by", "has_semantic", "join", "kind", "tau"),
    [
        ("equi", False, None, None, None),
        ("any", False, None, None, None),
        ("any", True, None, "any", 0.8),
        ("semantic", True, None, "semantic", 0.8),
        ("semantic", True, "equi", None, None),
        ("equi", False, "semantic", "semantic", 0.65),
        ("any", True, "semantic", "semantic", 0.8),
        (None, False, None, "any", LEAST_CHANCE),
        (None, False, "semantic", "semantic", 0.65),
        (None, False, "equi", None, None),
    ],
)
def test_which_kind_of_join_a_hit_means(
    lake: Lake,
    found_by: str | None,
    has_semantic: bool,
    join: str | None,
    kind: str | None,
    tau: float | None,
) -> None:
    hit: object = TARGET
    if found_by:
        evidence = SemanticEvidence(0.6, 0.6, 3, 0.8) if has_semantic else None
        found = lake.search(["france"], 1, join="equi")[0]
        hit = replace(found, join=found_by, semantic=evidence)
    semantic = matching_of(hit, join, JoinSettings(), load_cell_encoder)
    assert (semantic and semantic.join, semantic and semantic.bound) == (kind, tau)


def test_any_is_equi_where_an_index_has_no_cell_vectors() -> None:
    assert matching_of(TARGET, None, JoinSettings(), lambda: None) is None
    semantic = matching_of(TARGET, "semantic", JoinSettings(), lambda: None)
    assert semantic and semantic.join == "semantic"


def test_a_hit_joins_as_it_was_found(lake: Lake, place: Path) -> None:
    orders = pd.read_csv(place / "orders.csv")
    hit = lake.search(orders["country"], 1, join="semantic")[0]
    assert lake.plan_join(orders, "country", hit).facts.join == "semantic"
    assert lake.plan_join(orders, "country", hit, join="equi").facts.join == "equi"
    equal = replace(hit, semantic=None)
    assert lake.plan_join(orders, "country", equal).facts.join == "equi"


@pytest.mark.parametrize("chosen", [JoinSettings(tau=0.5), JoinSettings(matching="all")])
def test_options_of_another_join_are_refused(lake: Lake, place: Path, chosen: JoinSettings) -> None:
    with pytest.raises(DeepJoinError, match='Leave them out, or use `join="any"`'):
        lake.plan_join(place / "orders.csv", "country", TARGET, join="equi", settings=chosen)


def test_an_unknown_kind_of_join(lake: Lake, place: Path) -> None:
    with pytest.raises(
        UnknownName, match="No join kind 'fuzzy' in a join. Known: any, equi, semantic"
    ):
        lake.plan_join(place / "orders.csv", "country", TARGET, join="fuzzy")


@pytest.mark.slow
def test_a_lake_without_vectors_joins_by_meaning_too(place: Path, tmp_path: Path) -> None:
    bare = deepjoin.index(
        place / "lake", tmp_path / "bare", settings=deepjoin.Settings(hash_only=True)
    )
    joined = bare.join(place / "orders.csv", "country", TARGET, join="semantic")
    assert joined["code"].to_pylist()[0] == "a"


def test_facts_are_reported(run: Callable[..., tuple[int, str, str]]) -> None:
    status, out, err = run("--join", "semantic", "--format", "json")
    assert status == 0
    assert [row["code"] for row in json.loads(out)] == ["a", "c", "b", None, None]
    assert (
        "3 of 5 rows match (1:1); 1 values by equality and 2 by meaning "
        "(similarity >= 0.65, best); 5 rows result"
    ) in err


def test_a_pair_joins_by_meaning_from_the_shell(
    run: Callable[..., tuple[int, str, str]],
) -> None:
    status, out, err = run("--columns", "code", "--format", "json")
    assert status == 0
    assert [row["code"] for row in json.loads(out)] == ["a", "c", "b", None, None]
    assert "3 of 5 rows match" in err
    assert "1 of 5 rows match (1:1); 5 rows result" in run("--join", "equi")[2]


@pytest.mark.slow
def test_several_matches_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lake").mkdir()
    places = [
        "HOUSTON, MS",
        "HOUSTON, TX",
        "SPRINGFIELD, MO",
        "SPRINGFIELD, MA",
        "Boston",
        "Boston",
    ]
    pd.DataFrame({"place": places, "n": range(6)}).to_csv("lake/places.csv", index=False)
    cities = ["Houston", "Springfield", "Boston", "Houston"]
    pd.DataFrame({"city": cities}).to_csv("cities.csv", index=False)
    command = ["join", "lake", "cities.csv", "-c", "city", "--with", "places.csv:place"]
    assert main([*command, "--many", "first", "--format", "json"]) == 0
    said = capsys.readouterr()
    assert [row["alternatives"] for row in json.loads(said.out)] == [
        *("HOUSTON, TX", "SPRINGFIELD, MA", None, "HOUSTON, TX")
    ]
    assert "1 of 4 rows match (n:m), 3 more are ambiguous; " in said.err
    assert "\nambiguous: Houston is joined with HOUSTON, MS; it may be HOUSTON, TX\n" in said.err
    assert "\n1 row of yours with several matching rows in places.csv: Boston (2)\n" in said.err
    assert "warning: 3 of 4 rows are ambiguous: 'Houston' is joined with 'HOUSTON, MS'" in said.err


@pytest.mark.slow
def test_near_misses(run: Callable[..., tuple[int, str, str]]) -> None:
    status, out, err = run("--join", "semantic", "--near-misses", "3", "--tau", "0.979")
    assert status == 0
    assert out.splitlines()[0].split() == ["yours", "theirs", "similarity"]
    assert out.splitlines()[1].split() == ["USA", "United", "States", "0.976884"]
    assert "of 5 values have no match" in err
    status, out, _ = run("--join", "equi", "--near-misses", "1", "--format", "json")
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
        (("--join", "equi", "--tau", "0.5"), "Leave them out, or use --join any"),
        (("--aggregate", "median"), "No aggregate 'median' in a join. Aggregates: first, count"),
        (("--columns", "cod"), "No column 'cod' in geo.csv. Columns: name, code."),
        (("--many", "first", "--aggregate", "sum"), "--aggregate came with --many first; leave"),
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


@pytest.mark.slow
def test_codes_join_as_the_search_found_them(tmp_path: Path) -> None:
    write_demo_lake(tmp_path)
    lake = deepjoin.index(tmp_path / "lake")
    orders = tmp_path / "orders.csv"
    hits = lake.search(str(orders), on="customer_country")
    hit = next(one for one in hits if one.column == "ISO-2")
    for target in (hit, (hit.table, hit.column)):
        with lake.plan_join(str(orders), "customer_country", target) as plan:
            assert plan.facts.matched_keys == hit.matched == 40
            assert not [text for text in plan.warnings if "tau" in text]
            rows = plan.to_arrow().select(["customer_country", "ISO-2"]).to_pylist()
        codes = {row["customer_country"]: row["ISO-2"] for row in rows}
        assert (codes["Germany"], codes["Ireland"], codes["United States"]) == ("DE", "IE", "US")


NAMES = ("Burma", "Stanford Universty", "Peru", "Kenya")
OTHERS = ("Myanmar", "Stanford University", "Peru", "Chile")
DECIDED = [
    ("BURMA", "Myanmar", True),
    ("Stanford Universty", "Stanford University", False),
    ("Peru", "Peru", False),
]


def names_and_others() -> tuple[dict[str, Sequence[str]], dict[str, Sequence[str]]]:
    return {"name": NAMES}, {"name": OTHERS, "code": ["m", "s", "p", "c"]}


def test_a_join_follows_what_people_decided() -> None:
    left, right = names_and_others()
    plain = deepjoin.join(left, right, "name").to_pydict()
    assert plain["code"] == [None, "s", "p", None]
    decided = JoinSettings(decisions=DECIDED)
    joined = deepjoin.join(left, right, "name", settings=decided).to_pydict()
    assert joined["code"] == ["m", None, None, None]
    # A rejected pair of equal values must not come back where nothing else is similar.
    only = JoinSettings(decisions=DECIDED[2:])
    sides = {"name": ["Peru", "Chile"]}, {"name": ["Peru", "Chile"], "code": ["p", "c"]}
    assert deepjoin.join(*sides, "name", settings=only).to_pydict()["code"] == [None, "c"]


def test_a_join_keeps_a_requested_precision() -> None:
    left, right = names_and_others()
    sure = deepjoin.join(left, right, "name", settings=JoinSettings(precision=1.0))
    assert sure.to_pydict()["code"] == [None, None, "p", None]


@pytest.mark.parametrize(
    "settings",
    [
        {"decisions": DECIDED, "tau": 0.9},
        {"precision": 0.9, "matching": "one-to-one"},
        {"precision": 0.9, "join": "equi"},
        {"decisions": DECIDED, "join": "semantic"},
    ],
)
def test_decisions_are_for_careful_joins(settings: dict[str, Any]) -> None:
    left, right = names_and_others()
    kind = settings.pop("join", "any")
    with pytest.raises(DeepJoinError, match='are for joins of the kind `join="any"`, without'):
        deepjoin.join(left, right, "name", join=kind, settings=JoinSettings(**settings))


def test_decisions_are_about_single_values() -> None:
    left, right = ({"a": ["x"], "b": ["y"]} for _ in range(2))
    with pytest.raises(DeepJoinError, match="single values; this key has 2 columns. Leave them"):
        deepjoin.join(
            left, right, (["a", "b"], ["a", "b"]), settings=JoinSettings(decisions=DECIDED)
        )
    with pytest.raises(DeepJoinError, match="`precision` is 2; it must be above 0 and at most 1"):
        JoinSettings(precision=2)


def test_doubtful_pairs_go_out_and_come_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lake").mkdir()
    _, right = names_and_others()
    (tmp_path / "mine.csv").write_text("name\n" + "\n".join(NAMES) + "\n")
    rows = zip(right["name"], right["code"], strict=True)
    text = "".join(f"{name},{code}\n" for name, code in rows)
    (tmp_path / "lake" / "their.csv").write_text(f"name,code\n{text}")
    file = tmp_path / "check.csv"
    file.write_text("query,target,decision\nBurma,Myanmar,accept\n")
    command = ["join", str(tmp_path / "lake"), str(tmp_path / "mine.csv"), "-c", "name",
               "--with", "their.csv:name", "--format", "csv", "--decisions", str(file)]  # fmt: skip
    assert main([*command, "--doubtful", str(file), "--precision", "1"]) == 0
    out, said = capsys.readouterr()
    assert "Burma,1.0,Myanmar,m" in out and f"doubtful pairs are in {file}" in said
    written = file.read_text().splitlines()
    assert written[0] == "query,target,chance,decision"
    assert written[1] == "Burma,Myanmar,,accept"
    assert main([*command, "--join", "equi"]) == 1
    assert "--precision and --decisions are for joins of the kind --join any" in (
        capsys.readouterr().err
    )
    assert main([*command[:-2], "--join", "equi", "--doubtful", str(file)]) == 1
    assert "have doubtful pairs" in capsys.readouterr().err
