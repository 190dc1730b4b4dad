"""The HTTP API: what each route answers, and that it is what the library says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import deepjoin
from deepjoin.settings import SearchSettings
from deepjoin.store.directory import Directory
from tests.support.serving import COUNTRIES, HIT, Served, serving


@pytest.fixture
def served(lake_folder: Path) -> Iterator[Served]:
    with serving(lake_folder) as one:
        yield one


@pytest.mark.slow
def test_the_lake_says_what_it_holds_and_what_can_be_asked(served: Served) -> None:
    info = served.get("/api/lake")
    assert (info["name"], info["tables"], info["columns"]) == ("data", 3, 7)
    assert info["joins"] == ["any", "equi", "semantic"]
    assert [method["name"] for method in info["methods"]] == [
        *("hybrid", "exact-equi", "exact-semantic")
    ]
    assert info["generation"] == served.service.current.lake.index.generation
    assert info["limits"]["seconds"] == 30
    assert not info["can_write"]
    assert not info["needs_token"]


@pytest.mark.slow
def test_a_lake_of_hashes_offers_equal_values_alone(lake_folder: Path) -> None:
    lake = deepjoin.index(lake_folder, settings=deepjoin.Settings(hash_only=True))
    with serving(lake_folder, lake) as served:
        info = served.get("/api/lake")
        assert info["hash_only"]
        assert info["joins"] == ["any", "equi"]
        assert "exact-semantic" not in [method["name"] for method in info["methods"]]
        detail = served.get("/api/table", name=COUNTRIES)
        assert {tuple(column["samples"]) for column in detail["columns"]} == {()}
        asked = {"query": {"table": COUNTRIES, "column": "country"}}
        assert served.post("/api/search", asked)["hits"]
        served.service._heavy.held = 1000
        assert "busy" in served.post("/api/search", asked, 503)["error"], "it reads the table"
        assert served.get("/api/find", text=" FRANCE ")["values"][0]["total"] == 2


def test_tables_are_listed_by_name_and_found_by_parts_of_names(served: Served) -> None:
    everything = served.get("/api/tables")
    assert [table["name"] for table in everything["tables"]] == [
        *("geo/cities.csv", COUNTRIES, "numbers.csv")
    ]
    assert everything["tables"][1]["names"] == ["country", "capital", "population"]
    page = served.get("/api/tables", offset=1, limit=1)
    assert (page["total"], [one["name"] for one in page["tables"]]) == (3, [COUNTRIES])
    found = served.get("/api/tables", text="CIT")
    assert [table["name"] for table in found["tables"]] == ["geo/cities.csv"]
    # The name of the first has the text, a column of the other has it.
    found = served.get("/api/tables", text="n")
    assert [table["name"] for table in found["tables"]][-1] == "geo/cities.csv"


def test_one_box_finds_names_and_cells(served: Served) -> None:
    found = served.get("/api/find", text="countr")
    assert [table["name"] for table in found["tables"]] == [COUNTRIES]
    assert [column["column"] for column in found["columns"]] == ["country"]
    assert found["values"] == []
    (value,) = served.get("/api/find", text="GERMANY")["values"]
    assert value["total"] == 2
    assert {"table": "geo/cities.csv", "column": "nation", "rows": 2} in value["columns"]
    assert served.get("/api/find") == {"tables": [], "columns": [], "values": []}


def test_what_was_removed_is_not_found(lake_folder: Path) -> None:
    lake = deepjoin.index(lake_folder)
    lake.remove("geo/cities.csv")
    directory = Directory(lake.index)
    assert directory.tables("", 0, 9)[0] == 2
    assert directory.columns("nation", 9) == []
    assert directory.holders("France", 9)[0] == 1


def test_a_table_is_described_best_keys_first(served: Served) -> None:
    detail = served.get("/api/table", name=COUNTRIES)
    assert detail["rows"] == 6
    assert detail["best_keys"] == ["country", "capital", "population"]
    country = detail["columns"][0]
    assert (country["type"], country["distinct"], country["filled"]) == ("text", 6, 1.0)
    assert country["samples"] == ["France", "Germany", "Italy", "Spain", "Peru"]
    assert detail["sample"][0]["capital"] == "Paris"
    numbers = {one["name"]: one for one in served.get("/api/table", name="numbers.csv")["columns"]}
    assert numbers["n"]["generic"] == "run"
    assert not numbers["flag"]["indexed"]
    assert numbers["flag"]["left_out"].startswith("fewer than 5 distinct values")


def test_an_unknown_table_is_refused_with_the_nearest(served: Served) -> None:
    refused = served.get("/api/table", 400, name="geo/country.csv")
    assert "Did you mean 'geo/countries.csv'?" in refused["error"]


@pytest.mark.slow
def test_a_large_lake_is_not_searched_for_the_nearest_name(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepjoin.serve.current._MANY", 2)
    query = {"table": "x", "column": "y"}
    join = {"left": {"table": "x"}, "on": "y", "hit": query}
    for refused in (
        served.get("/api/table", 400, name="x"),
        served.get("/api/graph", 400, table="x"),
        served.get("/api/graph/paths", 400, **{"from": "x", "to": COUNTRIES}),
        served.post("/api/search", {"query": query}, 400),
        served.post("/api/join/preview", join, 400),
    ):
        assert refused["error"].startswith("No table 'x' among 3. Find it by part of its name")


def test_a_search_is_that_of_the_library(served: Served) -> None:
    lake = served.service.current.lake
    query = {"table": "geo/cities.csv", "column": "nation"}
    found = served.post("/api/search", {"query": query, "matches": 12})
    expected = lake.search(
        lake.column("geo/cities.csv", "nation"), settings=SearchSettings(matches=12)
    ).to_dict()
    found.pop("seconds"), expected.pop("seconds")
    assert found == json.loads(json.dumps(expected))
    assert found["hits"][0]["table"] == COUNTRIES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "many", "busy"),
    [
        ({"values": ["Peru", "Italy"]}, 2, "_quick"),
        ({"values": ["Peru", "Italy", "x"]}, 2, "_heavy"),
        ({"table": COUNTRIES, "column": "country"}, 6, "_quick"),
        ({"table": COUNTRIES, "column": "country"}, 5, "_heavy"),
    ],
)
def test_long_queries_do_not_keep_quick_ones_waiting(
    served: Served, monkeypatch: pytest.MonkeyPatch, query: dict[str, object], many: int, busy: str
) -> None:
    monkeypatch.setattr("deepjoin.serve.http.routes._MANY", many)
    assert served.post("/api/search", {"query": query})["hits"]
    getattr(served.service, busy).held = 1000
    assert "The service is busy" in served.post("/api/search", {"query": query}, 503)["error"]


@pytest.mark.slow
def test_values_and_options_reach_the_search(served: Served) -> None:
    query = {"values": ["france", None, "Peru", "Atlantis"], "name": "land"}
    asked = {"query": query, "join": "equi", "group": "tables", "k": 1, "matches": 1}
    found = served.post("/api/search", asked)
    assert found["query"] == {"table": None, "column": "land", "cells": 4, "size": 3}
    (hit,) = found["hits"]
    assert hit["matches"] == [
        {"query": "france", "target": "France", "similarity": 1.0, "how": "equal"}
    ]
    assert served.post("/api/search", asked | {"exclude_table": COUNTRIES, "k": 9})["hits"]
    assert served.post("/api/search", asked | {"min_joinability": 0.9})["hits"] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "status", "text"),
    [
        ({"method": "josie"}, 400, "No method 'josie' in this service"),
        ({"join": "semantic", "method": "exact-equi"}, 400, "answers join equi, not semantic"),
        ({"k": 201}, 400, "k is 201; this service returns at most 200 hits."),
        ({"k": -1}, 422, "greater than or equal to 0"),
        ({"tau": 0.0}, 422, "greater than 0"),
        ({"query": {"column": "x"}}, 422, "Field required"),
        ({"query": {"table": "x"}}, 400, "No table 'x' in "),
        ({"query": {"upload": "../../etc/passwd", "column": "x"}}, 404, "No such upload"),
        ({"min_joinability": False}, 422, "Input should be a valid number"),
        ({"k": "9"}, 422, "Input should be a valid integer"),
        ({"paths": 1}, 422, "Extra inputs are not permitted"),
    ],
)
def test_a_search_that_cannot_be_is_refused(
    served: Served, change: dict[str, object], status: int, text: str
) -> None:
    refused = served.post("/api/search", {"query": {"values": ["a"]}} | change, status)
    assert set(refused) == {"error"}
    assert text in refused["error"]


def test_the_map_shows_neighbours_and_ways(served: Served) -> None:
    around = served.get("/api/graph", table="geo/cities.csv")
    assert {node["table"] for node in around["nodes"]} == {"geo/cities.csv", COUNTRIES}
    (edge,) = around["edges"]
    assert edge["b"] == {"table": COUNTRIES, "column": "country", "column_id": f"{COUNTRIES}#0"}
    ways = served.get("/api/graph/paths", **{"from": COUNTRIES, "to": "geo/cities.csv"})
    assert [len(way) for way in ways["paths"]] == [1]
    assert "No table 'x'" in served.get("/api/graph", 400, table="x")["error"]


def test_health_and_counters(served: Served) -> None:
    assert served.get("/healthz") == {"status": "ok", "index": "current"}
    served.get("/api/tables", text="secret-of-a-client")
    counters = served.client.get("/metrics").text
    assert 'deepjoin_requests_total{method="GET",route="/healthz",status="200"} 1.0' in counters
    assert "secret-of-a-client" not in counters


def test_an_overview_shows_all_tables_and_their_joins(served: Served) -> None:
    around = served.get("/api/graph")
    assert [node["table"] for node in around["nodes"]] == [
        *("geo/cities.csv", COUNTRIES, "numbers.csv")
    ]
    assert {node["distance"] for node in around["nodes"]} == {0}
    assert ["join" in edge for edge in around["edges"]] == [False]
    assert not around["truncated"]
    assert served.get("/api/graph", limit=2)["truncated"]


@pytest.mark.slow
def test_the_map_shows_joins_by_meaning(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    folder.mkdir()
    lands = ["France", "Germany", "Italy", "Spain", "Portugal", "Poland"]
    (folder / "a.csv").write_text("\n".join(["land", *lands]) + "\n")
    (folder / "b.csv").write_text(
        "\n".join(["state", *(f"Republic of {land}" for land in lands)]) + "\n"
    )
    with serving(folder) as served:
        assert served.get("/api/graph")["edges"] == []
        for query in ({}, {"table": "b.csv"}):
            found = served.get("/api/graph/similar", **query)
            (edge,) = found["edges"]
            assert {edge["a"]["column"], edge["b"]["column"]} == {"land", "state"}
            assert (edge["join"], edge["matched"]) == ("semantic", 6)
            assert not found["truncated"]
        assert "No table 'x'" in served.get("/api/graph/similar", 400, table="x")["error"]


def test_people_read_a_page_where_scripts_read_json(served: Served) -> None:
    browser = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    answer = served.client.get("/no/page<b>", headers=browser)
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/html")
    assert "Page not found" in answer.text
    assert "<b>" not in answer.text
    assert 'href="../"' in answer.text
    style = re.search(r'stylesheet" href="\.\./(assets/[^"]+)"', answer.text)
    assert style is not None
    assert served.client.get(f"/{style[1]}").status_code == 200
    assert served.get("/nopage", 404)["error"].startswith("Nothing is at /nopage.")
    answer = served.client.get("/api/nopage", headers=browser)
    assert answer.json()["error"].startswith("Nothing is at /api/nopage.")
    answer = served.client.get("/", headers=browser | {"host": "elsewhere.example"})
    assert answer.status_code == 400
    assert "This service answers only at the address it was started on" in answer.text
    assert "deepjoin serve" not in answer.text


#: Requests that the page makes, each with what makes it fail, and a part of the message.
REFUSED: dict[str, tuple[str, dict[str, object], str]] = {
    "too many hits": ("search", {"k": 201}, "“Hits” is 201"),
    "more hits than any service gives": ("search", {"k": 10_001}, "“Hits”: Input should be"),
    "similar for equal": ("search", {"join": "equi", "tau": 0.8}, "use “Similar in meaning”"),
    "no similarity": ("search", {"tau": 0.0}, "“Minimum similarity”: Input should be"),
    "unknown method": ("search", {"method": "x"}, "No method 'x' in this service"),
    "method of another join": (
        *("search", {"method": "exact-equi", "join": "semantic"}),
        "Methods that do: hybrid, deepjoin",
    ),
    "unknown column": (
        "search",
        {"query": {"table": COUNTRIES, "column": "x"}},
        "No indexed column",
    ),
    "unknown table": (
        "search",
        {"query": {"table": "x", "column": "x"}},
        "No table 'x' in the lake",
    ),
    "expired upload": (
        "search",
        {"query": {"upload": "x", "column": "x"}},
        "Upload the file again",
    ),
    "similar for an equi-join": ("join", {"tau": 0.8, "join": "equi"}, "use “Equal or similar”"),
    "unknown key": ("join", {"on": "x"}, "No column 'x' in geo/cities.csv"),
    "rows that multiply": ("join", {}, "keep the first (“keep first”)"),
    "empty file": ("upload", {"content": ""}, "The uploaded file is empty."),
    "broken workbook": ("upload", {"content": "PK\x03\x04xxx"}, "is not a readable workbook"),
    "no values": ("paste", {"values": []}, "“Values, one per line”: "),
    "long name": ("paste", {"values": ["a"], "name": "x" * 20_001}, "“Column name”: "),
}
#: Words that only the shell, HTTP or Python have.
NOT_OF_THE_PAGE = re.compile(
    r"--[a-z]|\b\w+=\w|`|min_joinability|\btau\b|/api/|\bdeepjoin [a-z]|\bbody\.|send the bytes"
)


@pytest.mark.slow
@pytest.mark.parametrize("case", REFUSED)
def test_the_page_reads_messages_in_its_own_words(lake_folder: Path, case: str) -> None:
    kind, change, text = REFUSED[case]
    values: dict[str, object] = {"query": {"values": ["a"]}}
    join = {"left": {"table": "geo/cities.csv"}, "on": "nation", "hit": HIT}
    paths = {"search": "search", "join": "join/download", "paste": "uploads/values"}
    with serving(lake_folder, max_rows=2) as served:
        served.client.headers["deepjoin-words"] = "page"
        if kind == "upload":
            content = str(change["content"]).encode("latin-1")
            answer = served.client.post("/api/uploads?filename=x.csv", content=content)
        else:
            body = {"search": values, "join": join, "paste": {}}[kind] | change
            answer = served.client.post(f"/api/{paths[kind]}", json=body)
        assert answer.status_code >= 400
        error = answer.json()["error"]
        assert text in error
        assert not NOT_OF_THE_PAGE.search(error), error
        assert str(lake_folder) not in error


@pytest.mark.slow
def test_the_page_reads_warnings_in_its_own_words(served: Served) -> None:
    cities = {"table": "geo/cities.csv", "column": "nation"}
    join = {"left": {"table": COUNTRIES}, "on": "country", "hit": cities}
    for words, text in {"page": "Use “keep first” or “summarise”", "": "Use many=first or"}.items():
        served.client.headers["deepjoin-words"] = words
        warnings = served.post("/api/join/preview", join)["warnings"]
        assert any(text in warning for warning in warnings)


def test_what_is_not_there_and_what_is_not_answered(served: Served) -> None:
    assert served.get("/api/nothing", 404)["error"].startswith("Nothing is at /api/nothing.")
    assert served.get("/api/search", 405)["error"] == "GET is not answered at /api/search."
    answer = served.client.delete("/api/lake")
    assert answer.json() == {"error": "DELETE is not answered at /api/lake."}
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
    assert served.client.head("/api/lake").status_code == 405


def test_an_answer_that_fails_unexpectedly_tells_nothing(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        try:
            raise KeyError("a cell of theirs")
        except KeyError as error:
            raise RuntimeError("a value of someone's") from error

    monkeypatch.setattr("deepjoin.serve.http.routes.describe_table", fails)
    answer = served.client.get("/api/table", params={"name": "secret"})
    assert answer.status_code == 500
    assert answer.json() == {"error": "The service failed unexpectedly; its log has the details."}
    assert "content-security-policy" in answer.headers
    assert "GET /table failed: RuntimeError" in caplog.text
    assert "because of KeyError" in caplog.text
    assert "in fails" in caplog.text
    for word in ("secret", "a value of someone's", "a cell of theirs"):
        assert word not in caplog.text


def lines(served: Served, body: object) -> list[dict[str, Any]]:
    answer = served.client.post("/api/search/stream", json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-ndjson")
    return [json.loads(line) for line in answer.text.splitlines()]


def test_a_stream_sends_equal_hits_first_and_the_answer_last(served: Served) -> None:
    body = {"query": {"values": ["France", "Italy", "Peru"], "name": "nation"}, "k": 3}
    first, last = lines(served, body)
    assert first["partial"] == {
        "text": "similar values of 0 of 3 were looked up",
        "done": 0,
        "total": 3,
    }
    assert {hit["table"] for hit in first["hits"]} == {COUNTRIES, "geo/cities.csv"}
    assert "partial" not in last
    assert last["hits"] == served.post("/api/search", body)["hits"]


def test_a_stream_that_cannot_start_is_an_ordinary_error(served: Served) -> None:
    body = {"query": {"values": ["a"]}, "method": "josie"}
    answer = served.client.post("/api/search/stream", json=body)
    assert answer.status_code == 400
    assert "josie" in answer.json()["error"]


def test_a_stream_that_fails_later_says_so_in_its_last_line(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise deepjoin.DeepJoinError("The disk is gone.")

    monkeypatch.setattr("deepjoin.search.hybrid.SemanticSearch._ranked", fail)
    first, last = lines(served, {"query": {"values": ["France", "Italy"]}})
    assert first["hits"]
    assert last == {"error": "The disk is gone."}


def test_a_whole_table_is_searched_best_key_first(served: Served) -> None:
    upload = served.orders()
    found = served.post("/api/search", {"query": {"upload": upload}})
    names = [found["query"]["column"], *(one["query"]["column"] for one in found["others"])]
    assert len(set(names)) == len(names) > 1
    *partial, last = lines(served, {"query": {"upload": upload}})
    assert [one["partial"]["total"] for one in partial] == [len(names)] * len(partial)
    assert [one["query"] for one in last["others"]] == [one["query"] for one in found["others"]]
    own = served.post("/api/search", {"query": {"table": COUNTRIES}})
    assert all(hit["table"] != COUNTRIES for one in (own, *own["others"]) for hit in one["hits"])


def test_a_search_past_its_time_returns_what_it_has(served: Served) -> None:
    body = {"query": {"values": ["France", "Italy", "Peru"]}, "time_limit": 1e-9}
    found = served.post("/api/search", body)
    assert found["hits"] and found["partial"]["done"] == 0
    (line,) = lines(served, body)
    assert line["partial"] == found["partial"]
    served.post("/api/search", body | {"time_limit": 0}, 422)


def test_doubtful_pairs_of_a_preview_come_back_decided(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    folder.mkdir()
    (folder / "a.csv").write_text("name,x\nAcme Trading,1\nPeru,2\nChile,3\n")
    (folder / "b.csv").write_text("land,y\nAcme Holdings Ltd,m\nPeru,p\nChile,c\n")
    lake = deepjoin.index(folder, settings=deepjoin.Settings(min_distinct=1))
    join: dict[str, Any] = {
        "left": {"table": "a.csv"},
        "on": "name",
        "hit": {"table": "b.csv", "column": "land"},
        "columns": ["y"],
    }
    pair = {"query": "Acme Trading", "target": "Acme Holdings Ltd"}
    with serving(folder, lake) as served:
        strict = served.post("/api/join/preview", join | {"precision": 1.0})
        assert [row[-1] for row in strict["rows"]] == [None, "p", "c"]
        assert "JoinSettings(precision=1.0)" in strict["python"]
        doubtful = {(one["query"], one["target"]): one["chance"] for one in strict["doubtful"]}
        assert 0.1 <= doubtful[tuple(pair.values())] < 0.9
        accepted = join | {"precision": 1.0, "decisions": [pair | {"accepted": True}]}
        taken = served.post("/api/join/preview", accepted)
        assert [row[-1] for row in taken["rows"]] == ["m", "p", "c"]
        assert taken["doubtful"] == []
        assert "decisions='decisions.csv'" in taken["python"]
        assert "--decisions=decisions.csv" in taken["shell"]
        rejected = join | {"decisions": [pair | {"accepted": False}]}
        refused = served.post("/api/join/preview", rejected)
        assert [row[-1] for row in refused["rows"]] == [None, "p", "c"]
        assert refused["doubtful"] == []
        literal = served.post("/api/join/preview", rejected | {"tau": 0.8}, 400)
        assert "are for joins" in literal["error"]
