"""The commands as scripts use them: results on stdout, all else on stderr, exit 0, 1 or 2."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest

import deepjoin
from deepjoin.search.methods import all_methods
from deepjoin.show.text import one_line
from tests.support.command_line import Answer, Run, call

SEARCH_KEYS = {"query", "hits", "seconds"}
HIT_KEYS = {
    *("rank", "table", "column", "column_id", "type", "join", "score", "joinability", "equi"),
    *("semantic", "query_size", "target_size", "cardinality", "matches", "unmatched", "found_by"),
}
EXTRA_HIT_KEYS = {"probability", "generic", "brings"}
COUNTRIES = "geo/countries.csv"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return partial(call, capsys)


@pytest.fixture
def data(lake_folder: Path) -> Path:
    """Index the three small tables beforehand."""
    deepjoin.index(lake_folder)
    return lake_folder


@pytest.fixture
def orders(lake_folder: Path) -> Path:
    """Name the user's own table."""
    return lake_folder.parent / "orders.csv"


def typed_in(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", stdin)


def test_search_json_has_every_promised_key(run: Run, data: Path, orders: Path) -> None:
    answer = run("search", data, orders, "-c", "customer_country", "--format", "json")
    assert (answer.status, answer.err) == (0, "")
    found = answer.json
    assert set(found) == SEARCH_KEYS
    assert found["query"] == {
        **{"table": None, "column": "customer_country", "cells": 6, "size": 5},
    }
    assert set(found["seconds"]) == {"encode", "candidates", "verify", "total"}
    for rank, hit in enumerate(found["hits"], 1):
        assert set(hit) == HIT_KEYS | EXTRA_HIT_KEYS
        assert hit["rank"] == rank
        assert {"joinability", "reverse", "matched", "join_size"} <= set(hit["equi"])
        assert all(
            set(match) == {"query", "target", "similarity", "how"} for match in hit["matches"]
        )


def test_search_proves_its_hits(run: Run, data: Path, orders: Path) -> None:
    best, second, *_ = run(
        *("search", data, orders, "-c", "customer_country", "--join", "equi", "--format", "json")
    ).json["hits"]
    assert (best["table"], best["column"], best["type"]) == (COUNTRIES, "country", "text")
    assert (best["joinability"], best["query_size"], best["target_size"]) == (0.8, 5, 6)
    assert best["score"] == 0.8
    assert best["join"] == "equi"
    equi = best["equi"]
    assert (equi["matched"], equi["join_size"]) == (4, 5)
    assert equi["reverse"] == pytest.approx(4 / 6)
    assert best["cardinality"] == "n:1"
    assert best["unmatched"] == ["Atlantis"]
    assert {(m["query"].strip(), m["target"]) for m in best["matches"]} == {
        *(("france", "France"), ("Germany", "Germany"), ("Italy", "Italy"), ("Peru", "Peru")),
    }
    assert best["brings"]["columns"] == ["capital", "population"]
    assert (second["table"], second["column"], second["cardinality"]) == (
        *("geo/cities.csv", "nation"),
        "n:m",
    )


def test_search_as_csv(run: Run, data: Path, orders: Path) -> None:
    answer = run("search", data, orders, "-c", "customer_country", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(answer.out)))
    assert [(row["table"], row["column"]) for row in rows][:2] == [
        (COUNTRIES, "country"),
        ("geo/cities.csv", "nation"),
    ]
    first = rows[0]
    assert (first["query_column"], first["rank"], first["matched"]) == (
        "customer_country",
        "1",
        "4",
    )
    assert float(first["joinability"]) == 0.8


def test_search_as_csv_has_a_header_even_without_hits(run: Run, data: Path) -> None:
    some = run("search", data, "--values", "Peru,Japan", "--format", "csv")
    none = run("search", data, "--values", "nowhere", "--format", "csv")
    assert none.status == 0
    assert none.out.splitlines() == some.out.splitlines()[:1]


def test_search_as_table_has_one_line_a_hit(run: Run, data: Path, orders: Path) -> None:
    answer = run("search", data, orders, "-c", "customer_country")
    lines = answer.out.splitlines()
    assert lines[0] == "customer_country: 5 distinct values"
    assert lines[1].split()[:4] == ["#", "table", "column", "coverage"]
    assert lines[2].split()[:6] == ["1", COUNTRIES, "country", "80%", "4/5", "67%"]
    assert lines[3].split()[:4] == ["2", "geo/cities.csv", "nation", "60%"]
    assert f"not in {COUNTRIES}: Atlantis" in lines
    assert f"{COUNTRIES} would bring: capital, population" in lines


@pytest.mark.slow
def test_a_table_is_named_by_its_ending(run: Run, data: Path, orders: Path) -> None:
    (data / "old" / "geo").mkdir(parents=True)
    for name in ("cities.csv", "lakes.csv"):
        (data / "old" / "geo" / name).write_text("lake\nComo\nBled\nTana\nErie\nEyre\n")
    deepjoin.index(data)
    left = ("join", data, orders, "-c", "customer_country")
    for name in ("countries.csv", "geo/countries.csv"):
        assert "5 of 6 rows match" in run(*left, "--with", f"{name}:country").err
    assert run("info", data, "countries.csv", "--format", "json").json["name"] == COUNTRIES
    assert run("search", data, "countries.csv", "--format", "json").json["query"]["table"] == (
        COUNTRIES
    )
    mine = run("join", data, "countries.csv", "-c", "country", "--with", "numbers.csv:n")
    assert "0 of 6 rows match" in mine.err
    several = "end in 'cities.csv': geo/cities.csv, old/geo/cities.csv. Type more of the name."
    for command in (
        [*left, "--with", "cities.csv:nation"],
        ["search", data, "cities.csv"],
        ["info", data, "cities.csv"],
        ["remove", data, "cities.csv"],
    ):
        run(*command).refused(several)
    run("info", data, "ntries.csv").refused("Did you mean 'geo/countries.csv'?")
    assert run("remove", data, "lakes.csv").out == "old/geo/lakes.csv\n"


def test_table_names_can_be_read_whole(run: Run, tmp_path: Path) -> None:
    name = "a" * 30 + "/" + "b" * 30 + "/" + "cities-of-the-world.csv"
    path = tmp_path / "lake" / name
    path.parent.mkdir(parents=True)
    path.write_text("city\n" + "\n".join("vwxyz"))
    answer = run("search", tmp_path / "lake", "--values", "v,w")
    row = next(line for line in answer.out.splitlines() if line.startswith("1 "))
    assert name in row, "it is typed next"


def test_without_column_the_best_key_comes_first(run: Run, data: Path, orders: Path) -> None:
    found = run("search", data, orders, "--format", "json").json
    assert set(found) == SEARCH_KEYS | {"others"}
    assert found["query"]["column"] == "customer_country"
    assert {other["query"]["column"] for other in found["others"]} == {"order", "population"}
    assert all(set(other) == SEARCH_KEYS for other in found["others"])
    table = run("search", data, orders).out
    assert "other columns of yours" in table
    rows = run("search", data, orders, "--format", "csv").out
    assert {row["query_column"] for row in csv.DictReader(io.StringIO(rows))} == {
        *("order", "customer_country", "population"),
    }


def test_a_table_of_the_lake_never_finds_itself(run: Run, data: Path) -> None:
    for column in ([], ["-c", "country"]):
        answer = run("search", data, COUNTRIES, *column, "--format", "json")
        assert answer.json["query"] == {
            **{"table": COUNTRIES, "column": "country", "cells": 6, "size": 6}
        }
        assert answer.hits[0] == ("geo/cities.csv", "nation")
        assert COUNTRIES not in {table for table, _ in answer.hits}


@pytest.mark.slow
@pytest.mark.parametrize("way", ["absolute", "relative", "dots", "link", "linked folder"])
def test_a_file_of_the_lake_never_finds_itself(
    run: Run, data: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.chdir(data.parent)
    (data.parent / "link.csv").symlink_to(data / COUNTRIES)
    (data.parent / "linked").symlink_to(data)
    path = {
        "absolute": data / COUNTRIES,
        "relative": f"data/{COUNTRIES}",
        "dots": f"data/geo/../{COUNTRIES}",
        "link": "link.csv",
        "linked folder": f"linked/{COUNTRIES}",
    }[way]
    answer = run("search", "data", path, "-c", "country", "--format", "json")
    assert answer.hits == [("geo/cities.csv", "nation")]


def test_a_link_in_the_lake_to_a_file_outside_never_finds_itself(
    run: Run, lake_folder: Path
) -> None:
    outside = lake_folder.parent / "outside.csv"
    (lake_folder / COUNTRIES).rename(outside)
    (lake_folder / COUNTRIES).symlink_to(outside)
    answer = run(
        *("search", lake_folder, lake_folder / COUNTRIES, "-c", "country", "--format", "json")
    )
    assert answer.hits == [("geo/cities.csv", "nation")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [
        b"Peru\nJapan\n",
        b"Peru\r\nJapan\r\n",
        b"\xef\xbb\xbfPeru\nJapan",
        "Peru\nJapan\nCôte".encode("latin-1"),
    ],
    ids=["lines", "crlf", "mark", "latin-1"],
)
def test_values_from_stdin(
    run: Run, data: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    typed_in(monkeypatch, content)
    answer = run("search", data, "-", "--format", "json")
    assert answer.hits[0] == (COUNTRIES, "country")
    assert answer.json["hits"][0]["equi"]["matched"] == 2


def test_table_from_stdin(run: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed_in(monkeypatch, 'id;nation\n1;Peru\n2;"Japan"\n3;Ægir\n'.encode("latin-1"))
    answer = run("search", data, "-", "-c", "nation", "--format", "json")
    assert answer.json["query"]["size"] == 3
    assert answer.hits[0] == (COUNTRIES, "country")


def test_a_table_called_stdin_is_found_from_stdin(
    run: Run, lake_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lake_folder / "stdin.csv").write_text("land\nPeru\nJapan\nChile\nCuba\nFiji\n")
    typed_in(monkeypatch, b"id,nation\n1,Chile\n2,Fiji\n")
    answer = run("search", lake_folder, "-", "-c", "nation", "--format", "json")
    assert answer.hits[0] == ("stdin.csv", "land")


def test_wrong_tables_on_stdin(run: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed_in(monkeypatch, b"id,nation\n1,Peru\n2,Japan\n")
    run("search", data, "-", "-c", "natoin").refused("'natoin'", "Did you mean 'nation'?")
    typed_in(monkeypatch, b"")
    run("search", data, "-", "-c", "nation").refused("stdin", "empty")
    typed_in(monkeypatch, b" \n\n")
    run("search", data, "-").refused("No values on stdin: pipe one value a line")


def test_a_blank_column_is_no_search_without_hits(run: Run, data: Path) -> None:
    (data.parent / "blank.csv").write_text("a,b\n,x\n ,y\n")
    answer = run("search", data, data.parent / "blank.csv", "-c", "a")
    assert answer.out.splitlines()[1:] == ["nothing to search with: every cell is missing or blank"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("Peru,Japan", ["Peru", "Japan"]),
        (" Peru , Japan ", ["Peru", "Japan"]),
        ('"Lima, Peru",Japan', ["Lima, Peru", "Japan"]),
        ('"say ""hi""",x', ['say "hi"', "x"]),
        ("Peru\nJapan", ["Peru", "Japan"]),
        ("O'Hara,it's", ["O'Hara", "it's"]),
        ("Peru,,Peru", ["Peru"]),
        ("-5,3,-1e3", ["-5", "3", "-1e3"]),
        ("-.5,-7 m", ["-.5", "-7 m"]),
    ],
)
def test_values_given_by_hand(
    run: Run, make_lake: Callable[..., Any], values: str, expected: list[str]
) -> None:
    lake = make_lake([deepjoin.Column(expected, "c", table="t")])
    found = run("search", lake.path, "--values", values, "--format", "json").json
    assert found["query"]["size"] == len(expected)
    assert found["hits"][0]["joinability"] == 1
    assert [m["query"].strip() for m in found["hits"][0]["matches"]] == expected


@pytest.mark.slow
@pytest.mark.parametrize(("k", "count"), [(1, 1), (2, 2), (100, 4)])
def test_k(run: Run, data: Path, k: int, count: int) -> None:
    wide = ("search", data, "--values", "Peru,Japan,68,7", "--join", "equi", "--format", "json")
    answer = run(*wide, "-k", k)
    assert len(answer.hits) == count


def test_asking_for_nothing_is_not_finding_nothing(run: Run, data: Path) -> None:
    answer = run("search", data, "--values", "Peru,Japan,Atlantis", "--min-joinability", "1")
    assert "no joinable column found" not in answer.out


def test_min_joinability(run: Run, data: Path, orders: Path) -> None:
    wide = ("search", data, orders, "-c", "customer_country", "--format", "json")
    assert len(run(*wide, "--min-joinability", "0.6").hits) == 2
    assert run(*wide, "--min-joinability", "0.61").hits == [(COUNTRIES, "country")]
    assert run(*wide, "--min-joinability", "1").hits == []
    assert len(run(*wide, "--min-joinability", "0", "-k", 1).hits) == 1


def test_group_by_tables(run: Run, data: Path) -> None:
    wide = (
        "search",
        data,
        "--values",
        "Peru,Lima,Japan,Milan",
        "--join",
        "equi",
        "--format",
        "json",
    )
    assert [column for _, column in run(*wide).hits] == ["country", "nation", "capital", "city"]
    grouped = run(*wide, "--group", "tables")
    assert [table for table, _ in grouped.hits] == [COUNTRIES, "geo/cities.csv"]
    assert [hit["rank"] for hit in grouped.json["hits"]] == [1, 2]
    first, second = ([one["column"] for one in hit["also"]] for hit in grouped.json["hits"])
    assert (first, second) == (["capital"], ["city"])
    assert len(run(*wide, "--group", "tables", "-k", 1).hits) == 1


@pytest.mark.slow
@pytest.mark.parametrize("shown", [0, 2, 20])
def test_matches(run: Run, data: Path, shown: int) -> None:
    values = "Peru,Japan,Italy,Atlantis,Utopia,Oz"
    for hit in run(
        *("search", data, "--values", values, "--matches", shown, "--format", "json")
    ).json["hits"]:
        assert len(hit["matches"]) == min(shown, hit["semantic"]["matched"])
        assert len(hit["unmatched"]) == min(shown, 6 - hit["semantic"]["matched"])
    assert run("search", data, "--values", values, "--matches", shown).status == 0


def test_exact_equi_moves_nothing(run: Run, data: Path) -> None:
    values = "Peru,2,3,4"
    wide = ("search", data, "--values", values, "--format", "json", "-k", 1)
    assert run(*wide).hits == [(COUNTRIES, "country")]
    exact = run(*wide, "--method", "exact-equi")
    assert exact.hits == [("numbers.csv", "n")]
    assert exact.json["hits"][0]["generic"] == "run"
    assert exact.json["hits"][0]["found_by"] == ["exact-equi"]


def test_a_plain_folder_is_indexed_once(run: Run, lake_folder: Path, orders: Path) -> None:
    wide = ("search", lake_folder, orders, "-c", "customer_country", "--format", "json")
    first, second = run(*wide), run(*wide)
    assert "indexing it" in first.err
    assert "Indexed 3 tables" in first.err
    assert second.err == ""
    assert first.hits == second.hits
    assert run("search", lake_folder / ".deepjoin", *wide[2:]).hits == first.hits


@pytest.mark.slow
@pytest.mark.parametrize("method", ["deepjoin", "sketch", "deepjoin-sketch"])
def test_a_folder_is_indexed_for_the_method_it_is_searched_by(
    run: Run, lake_folder: Path, orders: Path, method: str
) -> None:
    wide = ("search", lake_folder, orders, "-c", "customer_country", "--method", method)
    first = run(*wide, "--format", "json")
    assert "indexing it" in first.err and first.hits
    assert run(*wide, "--format", "json").hits == first.hits


def test_an_unknown_method_indexes_nothing(run: Run, lake_folder: Path, orders: Path) -> None:
    run("search", lake_folder, orders, "--method", "deepjion").refused("Did you mean 'deepjoin'?")
    assert not (lake_folder / ".deepjoin").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        (["orders.csv", "-c", "custmer_country"], ["Did you mean 'customer_country'?"]),
        (["geo/countres.csv"], ["Did you mean 'geo/countries.csv'?"]),
        (["geo/countries.csv", "-c", "captal"], ["Did you mean 'capital'?"]),
        (["ordrs.csv"], ["Did you mean 'orders.csv'?"]),
        (["numbers.csv", "-c", "flag"], ["'flag'", "fewer than 5 distinct values"]),
        (["orders.csv", "--method", "hybird"], ["Did you mean 'hybrid'?"]),
        (["orders.csv", "--method", "deepjoin"], ["no column vectors", "--encoder default"]),
        (["orders.csv", "--method", "sketch"], ["no sketches", "--sketch 768"]),
        (["orders.csv", "--tau", "0"], ["--tau is 0.0", "above 0"]),
        (["orders.csv", "--tau", "71%"], ["--tau", "a share of the largest distance below 70%"]),
        (["orders.csv", "--tau", "x%"], ["--tau", "e.g. 6%, got 'x%'"]),
        ([], ["Nothing to search with", "--values"]),
        (["orders.csv", "-k", "-1"], ["-1"]),
        (["orders.csv", "--matches", "-1"], ["-1"]),
        (["data"], ["data", "folder"]),
    ],
)
def test_search_mistakes_are_explained(
    run: Run, data: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], texts: list[str]
) -> None:
    monkeypatch.chdir(data.parent)
    answer = run("search", "data", *arguments)
    usage = "-1" in arguments or any(one.endswith("%") for one in arguments)
    answer.refused(*texts, status=2 if usage else 1)


def test_a_misspelt_index_is_explained(
    run: Run, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data.parent)
    for command in (["search", "dta", "orders.csv"], ["info", "dta"]):
        run(*command).refused("'dta'", "Did you mean 'data'?")


def test_a_file_is_no_index(run: Run, data: Path, orders: Path) -> None:
    before = run("info", data, "--format", "json").json
    answer = run("search", data / "numbers.csv", orders, "-c", "order")
    answer.refused("numbers.csv")
    assert run("info", data, "--format", "json").json == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["serch", "data"],
        ["search"],
        ["search", "data", "orders.csv", "--frmat", "json"],
        ["search", "data", "orders.csv", "--format", "xml"],
        ["search", "data", "orders.csv", "-k", "many"],
        ["search", "data", "orders.csv", "--min-joinability", "1.5"],
        ["search", "data", "orders.csv", "--group", "rows"],
        ["join", "data", "orders.csv", "--with", "a:b"],
        ["join", "data", "orders.csv", "-c", "order"],
        ["join", "data", "orders.csv", "-c", "order", "--with", "numbers.csv"],
        ["join", "data", "orders.csv", "-c", "order", "--with", "a:b", "--how", "outer"],
        ["join", "data", "orders.csv", "-c", "order", "--with", "a:b", "--preview", "-1"],
        ["index", "data", "--memory", "lots"],
        ["index", "data", "--min-distinct", "0"],
        ["index", "data", "--profile", "fancy"],
        ["evaluate", "data", "-k", "ten"],
    ],
    ids=" ".join,
)
def test_usage_errors_exit_2(
    run: Run, data: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(data.parent)
    run(*arguments).refused(status=2)


def join(run: Run, data: Path, orders: Path, *options: object) -> Answer:
    target = f"{COUNTRIES}:country"
    return run("join", data, orders, "-c", "customer_country", "--with", target, *options)


@pytest.mark.slow
def test_join_previews_in_every_format(run: Run, data: Path, orders: Path) -> None:
    table = join(run, data, orders)
    assert table.out.splitlines()[0].split() == [
        *("order", "customer_country", "population", "country", "capital"),
        "population_countries",
    ]
    assert len(table.out.splitlines()) == 7
    assert "5 of 6 rows match" in table.err
    assert "renamed: population of geo/countries.csv is population_countries" in table.err
    records = join(run, data, orders, "--preview", 2, "--format", "json").json
    assert [record["capital"] for record in records] == ["Paris", "Berlin"]
    rows = csv.DictReader(io.StringIO(join(run, data, orders, "--format", "csv").out))
    assert [row["capital"] for row in rows] == ["Paris", "Berlin", "Berlin", "Rome", "", "Lima"]
    assert len(join(run, data, orders, "--preview", 0).out.splitlines()) == 1


@pytest.mark.slow
def test_sql_gives_what_the_join_gives(run: Run, data: Path, orders: Path, tmp_path: Path) -> None:
    out = tmp_path / "joined.parquet"
    assert join(run, data, orders, "-o", out).status == 0
    sql = join(run, data, orders, "--sql")
    assert sql.status == 0
    assert duckdb.sql(sql.out).to_arrow_table().to_pylist() == pq.read_table(out).to_pylist()


@pytest.mark.slow
@pytest.mark.parametrize("many", ["expand", "first", "aggregate"])
def test_pandas_gives_what_the_join_gives(
    run: Run, data: Path, orders: Path, tmp_path: Path, many: str
) -> None:
    out = tmp_path / "joined.csv"
    target = ("-c", "customer_country", "--with", "geo/cities.csv:nation", "--many", many)
    run("join", data, orders, *target, "-o", out)
    code = run("join", data, orders, *target, "--pandas").out
    names: dict[str, Any] = {
        "yours": pd.read_csv(orders, dtype=str),
        "theirs": pd.read_csv(data / "geo" / "cities.csv", dtype=str),
    }
    exec(code, names)
    buffer = io.StringIO()
    names["joined"].to_csv(buffer, index=False)
    assert list(csv.reader(io.StringIO(buffer.getvalue()))) == list(
        csv.reader(io.StringIO(out.read_text()))
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["o.csv", "o.tsv", "o.csv.gz", "o.tsv.gz", "o.parquet", "O.CSV"])
def test_join_writes_files(run: Run, data: Path, orders: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    answer = join(run, data, orders, "-o", out)
    assert (answer.status, answer.out) == (0, "")
    assert f"6 rows in {out}" in answer.err
    if name.endswith("parquet"):
        capitals = pq.read_table(out)["capital"].to_pylist()
    else:
        content = out.read_bytes()
        text = (gzip.decompress(content) if name.endswith("gz") else content).decode()
        rows = csv.DictReader(io.StringIO(text), delimiter="\t" if "tsv" in name else ",")
        capitals = [row["capital"] or None for row in rows]
    assert capitals == ["Paris", "Berlin", "Berlin", "Rome", None, "Lima"]
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["data", name, "orders.csv"])


def test_join_refuses_what_it_cannot_write(
    run: Run, data: Path, orders: Path, tmp_path: Path
) -> None:
    join(run, data, orders, "-o", tmp_path / "out.docx").refused("out.docx", ".parquet, .csv")
    join(run, data, orders, "-o", tmp_path / "no" / "out.csv").refused("no/out.csv", "folder")
    join(run, data, orders, "-o", data).refused(".parquet, .csv")


@pytest.mark.slow
def test_how_and_unmatched(run: Run, data: Path, orders: Path) -> None:
    inner = join(run, data, orders, "--how", "inner", "--format", "json")
    assert len(inner.json) == 5
    assert "5 rows result" in inner.err
    unmatched = join(run, data, orders, "--unmatched", "--format", "json")
    assert [row["customer_country"] for row in unmatched.json] == ["Atlantis"]
    assert "6 rows result" not in unmatched.err, "one row is shown"


@pytest.mark.slow
def test_many(run: Run, data: Path, orders: Path) -> None:
    target = ("-c", "customer_country", "--with", "geo/cities.csv:nation", "--format", "json")
    expanded = run("join", data, orders, *target)
    assert "warning: 6 rows become 10" in expanded.err
    assert "--many first" in expanded.err
    assert "warning" not in expanded.out
    assert len(expanded.json) == 10
    for many, name in (("first", "city"), ("aggregate", "city_list")):
        answer = run("join", data, orders, *target, "--many", many)
        assert "warning" not in answer.err
        assert [row["order"] for row in answer.json] == [1, 2, 3, 4, 5, 6]
        assert name in answer.json[0]


def test_with_splits_at_the_last_colon(run: Run, lake_folder: Path, orders: Path) -> None:
    (lake_folder / "a:b.csv").write_text("land,code\nPeru,1\nItaly,2\nChile,3\nCuba,4\nFiji,5\n")
    target = ("-c", "customer_country", "--with", "a:b.csv:land", "--format", "json")
    records = run("join", lake_folder, orders, *target).json
    assert [row["code"] for row in records] == [None, None, None, 2, None, 1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "texts", "status"),
    [
        ("geo/countries.csv", ["TABLE:COLUMN"], 2),
        ("geo/countries.csv:", ["TABLE:COLUMN"], 2),
        (":country", ["TABLE:COLUMN"], 2),
        ("geo/countres.csv:country", ["Did you mean 'geo/countries.csv'?"], 1),
        ("geo/countries.csv:contry", ["Did you mean 'country'?"], 1),
    ],
)
def test_wrong_targets(
    run: Run, data: Path, orders: Path, target: str, texts: list[str], status: int
) -> None:
    answer = run("join", data, orders, "-c", "customer_country", "--with", target)
    answer.refused(*texts, status=status)


def test_wrong_left_sides(run: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data.parent)
    target = ("--with", f"{COUNTRIES}:country")
    run("join", "data", "orders.csv", "-c", "cuntry", *target).refused("'cuntry'", "orders.csv")
    run("join", "data", "ordrs.csv", "-c", "x", *target).refused("Did you mean", "orders.csv'?")
    by_equality = ("--join", "equi", "--tau", "0.5")
    run("join", "data", "orders.csv", "-c", "order", *target, *by_equality).refused(
        "similar values", "--join any"
    )


def test_join_says_what_became_of_the_source(run: Run, data: Path, orders: Path) -> None:
    path = data / COUNTRIES
    path.write_text("land,capital\nPeru,Lima\n")
    join(run, data, orders).refused("'country'", COUNTRIES, "deepjoin index")
    path.unlink()
    join(run, data, orders).refused(COUNTRIES, "deepjoin index")


def test_join_says_that_the_whole_source_is_gone(run: Run, data: Path, orders: Path) -> None:
    out = data.parent / "apart"
    deepjoin.index(data, out)
    data.rename(data.parent / "moved")
    assert run("search", out, "--values", "Peru,Japan").status == 0
    join(run, out, orders).refused("which is gone", "put the folder back")


def test_info(run: Run, data: Path) -> None:
    text = run("info", data)
    assert "3 tables, 7 indexed columns" in text.out
    assert "Columns left out: 1 fewer than 5 distinct values." in text.out
    info = run("info", data, "--format", "json").json
    assert (info["tables"], info["columns"], info["rows"]) == (3, 7, 34)
    assert info["left_out"] == {"fewer than 5 distinct values": 1}
    table = run("info", data, "numbers.csv")
    assert [line.split()[0] for line in table.out.splitlines()[2:]] == ["n", "year", "flag"]
    assert "left out: fewer than 5 distinct values (2)" in table.out
    entry = run("info", data, "numbers.csv", "--format", "json").json
    assert (entry["name"], entry["rows"], len(entry["columns"])) == ("numbers.csv", 20, 3)
    run("info", data, "numbrs.csv").refused("Did you mean 'numbers.csv'?")


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [["methods"], ["info", "data"], ["info", "data", COUNTRIES], ["index", "data"]]
)
def test_every_format_is_what_it_says(
    run: Run, data: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(data.parent)
    for line in run(*command, "--format", "json").out.splitlines():
        assert isinstance(json.loads(line), dict)
    answer = run(*command, "--format", "csv")
    rows = list(csv.reader(io.StringIO(answer.out)))
    assert answer.status == 2 or len({len(row) for row in rows}) == 1 < len(rows[0])


def test_methods(run: Run) -> None:
    table = run("methods").out.splitlines()
    names = [line.split()[0] for line in table if not line.startswith(" ")]
    assert names == ["method", *all_methods()]
    rows = [json.loads(line) for line in run("methods", "--format", "json").out.splitlines()]
    assert [row["method"] for row in rows] == list(all_methods())


@pytest.mark.slow
def test_demo(run: Run, tmp_path: Path) -> None:
    answer = run("demo", tmp_path / "demo")
    assert answer.status == 0
    assert (tmp_path / "demo" / "orders-with-countries.csv").is_file()
    commands = [line[2:] for line in answer.out.splitlines() if line.startswith("$ ")]
    assert len(commands) == 5
    for command in commands:
        assert run(*command.split()[1:]).status == 0


def test_version(run: Run) -> None:
    assert run("--version").out == f"deepjoin {deepjoin.__version__}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\nb\tc", "a b c"),
        ("\x1b[31mred", "[31mred"),
        ("\u202eabc\u200f", "abc"),
        ("café 😀", "café 😀"),
    ],
)
def test_one_line(text: str, expected: str) -> None:
    assert one_line(text) == expected


def test_one_line_is_short() -> None:
    assert len(one_line("x" * 50)) == 40
    assert "…" in one_line("x" * 50)
    assert one_line("x" * 40) == "x" * 40


def python(*arguments: object, **options: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False, timeout=60, **options)


@pytest.mark.slow
def test_module_runs_and_keeps_streams_apart(data: Path, orders: Path) -> None:
    answer = python("-m", "deepjoin", "search", data, orders, "--format", "json")
    assert answer.returncode == 0
    assert json.loads(answer.stdout)["hits"][0]["table"] == COUNTRIES
    assert answer.stderr == b""


@pytest.mark.slow
def test_names_that_the_terminal_cannot_show(data: Path) -> None:
    (data / "東京.csv").write_text("駅\n" + "\n".join("日本東京駅"))
    deepjoin.index(data)
    poor = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    answer = python("-m", "deepjoin", "search", data, "--values", "日,本", env=poor)
    assert b"Traceback" not in answer.stderr
    assert answer.returncode == 0


@pytest.mark.slow
def test_a_closed_pipe_is_no_error(data: Path, orders: Path) -> None:
    command = [sys.executable, "-m", "deepjoin", "search", str(data), str(orders)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


@pytest.mark.slow
def test_arguments_may_follow_options(run: Run, lake_folder: Path) -> None:
    orders = lake_folder.parent / "orders.csv"
    answer = run("search", lake_folder, "-c", "customer_country", orders, "--format", "json")
    assert answer.json["hits"][0]["table"] == "geo/countries.csv"
    assert run("info", lake_folder, "--format", "json", "geo/countries.csv").json["rows"] > 0
