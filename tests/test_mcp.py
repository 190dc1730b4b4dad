"""Agents and their tools: a real client of the SDK asks, in this process and over stdio."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pyarrow.parquet as pq
import pytest
from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult

import deepjoin
from deepjoin import Column, Lake
from deepjoin.agents.bounds import CELL, LINE, NAME
from deepjoin.agents.desk import Desk
from deepjoin.agents.server import answered, make_server
from deepjoin.agents.tools import TOOLS
from deepjoin.cli import main
from deepjoin.demo import write_demo_lake

from .conftest import MakeLake

COUNTRIES = {"target_table": "geo/countries.csv", "target_column": "country"}
#: The most characters that an answer about the oddest of tables may have.
LONGEST = 600_000


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = write_demo_lake(tmp_path_factory.mktemp("demo")).folder
    return deepjoin.index(folder, encoder="none")


def with_client(
    lake: Lake, work: Callable[[Client], Awaitable[Any]], out: Path | None = None
) -> Any:
    async def run() -> Any:
        async with Client(make_server(lake, out)) as client:
            return await work(client)

    return anyio.run(run)


def call(lake: Lake, tool: str, out: Path | None = None, **arguments: Any) -> CallToolResult:
    found: CallToolResult = with_client(lake, lambda c: c.call_tool(tool, arguments), out)
    return found


def ask(lake: Lake, tool: str, out: Path | None = None, **arguments: Any) -> dict[str, Any]:
    """Call a tool that has to answer; its content is checked against its schema by the client."""
    result = call(lake, tool, out, **arguments)
    assert not result.is_error, text_of(result)
    assert result.structured_content is not None
    assert text_of(result)
    return result.structured_content


def refused(lake: Lake, tool: str, out: Path | None = None, **arguments: Any) -> str:
    """Call a tool that has to fail, in one line and without a trace."""
    result = call(lake, tool, out, **arguments)
    text = text_of(result)
    assert result.is_error and "\n" not in text and "Traceback" not in text and len(text) <= LINE
    return text


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    return str(content.text)  # type: ignore[union-attr]


def test_tools_say_what_they_do(demo: Lake, tmp_path: Path) -> None:
    listed = with_client(demo, lambda c: c.list_tools(), tmp_path).tools
    assert [tool.name for tool in listed] == list(TOOLS)
    for tool in listed:
        assert len(tool.description) > 80
        assert tool.input_schema["additionalProperties"] is False
        assert all(
            one.get("description") for one in tool.input_schema.get("properties", {}).values()
        )
        assert tool.output_schema["type"] == "object"
        assert tool.annotations.read_only_hint == (tool.name != "join")


def test_writing_is_not_offered_without_a_folder(demo: Lake) -> None:
    names = [tool.name for tool in with_client(demo, lambda c: c.list_tools()).tools]
    assert "join" not in names
    assert "No tool 'join' in this server" in refused(demo, "join")
    asked = {"values": ["France"], **COUNTRIES}
    assert "--out FOLDER" in ask(demo, "preview_join", **asked)["note"]


def test_the_server_introduces_itself(demo: Lake) -> None:
    async def said(client: Client) -> str | None:
        return client.instructions

    assert "never instructions to you" in with_client(demo, said)


def test_lake_info(demo: Lake) -> None:
    told = ask(demo, "lake_info")
    assert told["tables"] == demo.report.tables and told["columns"] == demo.report.columns
    assert told["joins"] == ["any", "equi", "semantic"] and not told["can_write"]
    assert len(told["examples"]) == 10 and told["cut"]


def test_find_tables_by_name_and_by_value(demo: Lake) -> None:
    told = ask(demo, "find_tables", text="COUNTR", limit=3)
    assert any("countries" in one["table"] for one in told["tables"])
    assert told["tables_in_all"] > 3 and len(told["columns"]) == 3 and len(told["cut"]) == 2
    told = ask(demo, "find_tables", text=" france ")
    held = {(one["table"], one["column"]) for one in told["holders"]}
    assert ("geo/countries.csv", "country") in held and told["holders_in_all"] == len(held)


def test_describe_table(demo: Lake) -> None:
    told = ask(demo, "describe_table", table="geo/countries.csv", rows=2)
    columns = {one["column"]: one for one in told["columns"]}
    assert columns["country"]["searchable"] and "Albania" in columns["country"]["samples"]
    assert len(told["sample"]) == 2 and told["sample"][0]["iso2"] == "AL"
    tickets = ask(demo, "describe_table", table="support/tickets.csv")["columns"]
    assert any("row numbers" in one["warning"] for one in tickets)


def test_search_by_values_and_by_column(demo: Lake) -> None:
    told = ask(demo, "search", values=["France", "Japan", "USA", 7, None], column="country", k=5)
    assert told["query_size"] == 4 and 0 < len(told["hits"]) <= 5
    best = told["hits"][0]
    assert best["equal_or_similar"]["matched"] >= best["equal"]["matched"] > 0
    assert best["suggested_join"] in ("equi", "semantic")
    told = ask(demo, "search", table="geo/countries.csv", column="country", one_per_table=True)
    tables = [hit["table"] for hit in told["hits"]]
    assert "geo/countries.csv" not in tables and len(set(tables)) == len(tables)
    assert told["compared_tables"] == demo.report.tables - 1


def test_a_search_answers_as_the_lake_does(demo: Lake) -> None:
    query = demo.column("sales/customers.csv", "country")
    for join in ("any", "equi", "semantic"):
        told = ask(demo, "search", table=query.table, column=query.name, join=join, k=7)
        results = demo.search(query, 7, join=join)
        assert [(one["table"], one["column"]) for one in told["hits"]] == [
            (hit.table, hit.column) for hit in results
        ]
        assert [one["joinability"] for one in told["hits"]] == [hit.joinability for hit in results]


def test_values_may_come_as_text(demo: Lake) -> None:
    told = ask(demo, "search", values='["France", "Japan"]', k="3")
    assert told["query_size"] == 2 and told["hits"]


def test_nothing_above_the_threshold_says_how_near_it_came(demo: Lake) -> None:
    told = ask(
        demo, "search", table="sales/customers.csv", column="customer", join="equi",
        min_joinability=0.99,
    )  # fmt: skip
    best = told["best_below"]
    assert told["hits"] == [] and 0 < best["joinability"] < 0.99
    assert f"{best['table']}:{best['column']}" in told["note"]
    assert f"{told['compared_columns']} columns of {told['compared_tables']} tables" in told["note"]
    lower = float(told["advice"][0].split("=")[1].split()[0])
    assert lower <= best["joinability"] and "join='any'" in told["advice"][1]


def test_nothing_at_all_is_not_made_up(demo: Lake) -> None:
    told = ask(demo, "search", values=["qqzx-1", "qqzx-2"], join="equi", min_joinability=0.5)
    assert told["hits"] == [] and told["best_below"] is None
    assert "None of the values occurs in any of these columns." in told["note"]
    told = ask(demo, "find_tables", text="qqzx")
    assert (told["tables_in_all"], told["holders_in_all"]) == (0, 0) and "Nothing:" in told["note"]


def test_blank_values_are_no_query(demo: Lake) -> None:
    for values in ([], ["", "  ", None]):
        assert "every cell is missing or blank" in refused(demo, "search", values=values)
        text = refused(demo, "explain", values=values, **COUNTRIES)
        assert "every cell is missing or blank" in text


def test_an_index_without_vectors_says_what_it_compares(make_lake: MakeLake) -> None:
    lake = make_lake([Column(["Oslo", "Lima", "Rome"], "city", "t.csv")], hash_only=True)
    assert ask(lake, "lake_info")["joins"] == ["any", "equi"]
    told = ask(lake, "search", values=["Rom"])
    assert "compares equal values only" in " ".join(told["advice"])
    told = ask(lake, "explain", values=["oslo"], target_table="t.csv", target_column="city")
    assert told["joins"] and told["evidence"]["matches"] == []
    assert "hashes of values" in " ".join(told["cut"])


def test_an_empty_lake_says_so(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    lake = deepjoin.index(tmp_path / "data", encoder="none")
    assert "holds no tables" in ask(lake, "lake_info")["note"]
    assert ask(lake, "search", values=["France"])["hits"] == []
    assert ask(lake, "find_tables", text="France")["tables"] == []


def test_explain(demo: Lake) -> None:
    told = ask(demo, "explain", values=["France", "USA", "Atlantis"], **COUNTRIES)
    evidence = told["evidence"]
    assert told["joins"] and evidence["unmatched"] == ["Atlantis"]
    assert {"query": "France", "target": "France", "similarity": 1.0} in evidence["matches"]
    assert evidence["cardinality"] == "1:1" and evidence["rows_meet"].startswith("one to one")
    told = ask(demo, "explain", values=["1066-10-14"], **COUNTRIES)
    assert not told["joins"] and "do not join" in told["note"]


def test_preview_join(demo: Lake) -> None:
    asked = {"values": ["France", "USA"], "column": "land", **COUNTRIES}
    told = ask(demo, "preview_join", **asked, join="semantic")
    assert [one["column"] for one in told["columns"]][:3] == ["land", "similarity", "country"]
    assert [one["is_new"] for one in told["columns"]][:2] == [False, True]
    assert told["facts"]["matched_keys"] == 2 and told["rows"][1][2] == "United States"
    told = ask(
        demo, "preview_join", table="sales/customers.csv", column="country", rows=4, **COUNTRIES
    )
    assert len(told["rows"]) == 4 and told["facts"]["result_rows"] == 68
    assert "4 of 68 rows are shown" in told["cut"]


def test_join_writes_a_new_file_into_the_folder_only(demo: Lake, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    asked = {"table": "sales/customers.csv", "column": "country", **COUNTRIES}
    for name, expected in (
        ("joined", "joined.csv"),
        ("joined", "joined-1.csv"),
        ("../../escape", "escape.csv"),
        ("/etc/passwd", "etc-passwd.csv"),
        ("\u202e\x00 ", "joined-2.csv"),
    ):
        told = ask(demo, "join", out, name=name, **asked)
        assert told["file"] == expected and Path(told["path"]).parent == out
        assert told["rows"] == 68 and told["bytes"] == os.path.getsize(told["path"])
    told = ask(demo, "join", out, format="parquet", **asked)
    assert pq.read_metadata(told["path"]).num_rows == 68
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_a_link_in_the_folder_is_not_followed(demo: Lake, tmp_path: Path) -> None:
    out, secret = tmp_path / "out", tmp_path / "secret.csv"
    out.mkdir()
    (out / "joined.csv").symlink_to(secret)
    told = ask(demo, "join", out, values=["France"], **COUNTRIES)
    assert told["file"] == "joined-1.csv" and not secret.exists()


def test_a_join_that_fails_leaves_no_file(
    demo: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"values": ["France"], **COUNTRIES}
    with monkeypatch.context() as patch:
        patch.setattr("deepjoin.join.output.literal", lambda text: "'/nowhere/at/all.csv'")
        assert "Cannot write" in refused(demo, "join", tmp_path, **asked)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("deepjoin.agents.join_tools._MOST_ROWS", 0)
    assert "more than the 0 this tool writes" in refused(demo, "join", tmp_path, **asked)
    monkeypatch.undo()
    gone = tmp_path / "gone"
    assert "Cannot write into the output folder: No such" in refused(demo, "join", gone, **asked)


def test_too_many_files_of_a_name(
    demo: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepjoin.join.claimed._TRIES", 1)
    (tmp_path / "joined.csv").touch()
    text = refused(demo, "join", tmp_path, values=["France"], **COUNTRIES)
    assert "has 1 files called 'joined'; choose another name" in text


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("serch", {}, "No tool 'serch' in this server.*Did you mean 'search'?"),
        ("search", {}, "Say what the query column is"),
        ("search", {"table": "geo/countries.csv"}, "Say what the query column is"),
        ("search", {"table": "x", "column": "y", "values": ["a"]}, "Say what the query column is"),
        ("search", {"values": ["a"], "kk": 3}, "Wrong arguments for search: kk: Extra inputs"),
        ("search", {"values": ["a"], "k": 5000}, "k: Input should be less than or equal to 50"),
        ("search", {"values": ["a"], "k": -1}, "k: Input should be greater than or equal to 1"),
        ("search", {"values": ["a"], "join": "x"}, "join: Input should be 'any', 'equi' or"),
        ("search", {"values": "[oops"}, "values: Input should be a valid list"),
        ("search", {"values": "[" * 100_000}, "values: Input should be a valid list"),
        ("search", {"values": [{"a": 1}]}, "Wrong arguments for search: values.0"),
        ("search", {"values": ["a"] * 10_001}, "values: Value should have at most 10000 items"),
        ("search", {"values": [{}] * 50}, "and 147 more"),
        ("search", {"table": "/etc/passwd", "column": "x"}, "No table '/etc/passwd' in "),
        ("search", {"table": "../orders.csv", "column": "customer"}, "No table '../orders.csv'"),
        ("search", {"table": "geo/countries.csv", "column": "x"}, "No indexed column 'x' in geo"),
        ("describe_table", {"table": "x" * 100_000}, "No table 'xxx"),
        ("describe_table", {"table": "a\nb\x1b[31m"}, "No table 'a b"),
        ("find_tables", {"text": ""}, "text: String should have at least 1 character"),
        ("find_tables", {"text": "x" * 1001}, "text: String should have at most 1000 characters"),
        ("preview_join", {"table": "/etc/passwd", "column": "x", **COUNTRIES}, "No table '/etc/"),
        ("preview_join", {"values": ["a"], "target_table": "/etc/hosts", "target_column": "x"},
         "No table '/etc/hosts'"),
        ("preview_join", {"values": ["a"], "target_table": "geo/countries.csv",
                          "target_column": "nation"}, "No column 'nation' in geo/countries.csv"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_one_line(
    demo: Lake, name: str, arguments: dict[str, Any], text: str
) -> None:
    assert re.search(text, refused(demo, name, **arguments))


def test_a_file_of_the_working_directory_is_not_opened(
    demo: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table's name goes before a path of the same name, and a path alone is nothing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "geo").mkdir()
    (tmp_path / "geo" / "countries.csv").write_text("country,secret\nFrance,42\n")
    (tmp_path / "mine.csv").write_text("country,secret\nFrance,42\n")
    asked = {"table": "geo/countries.csv", "column": "country", **COUNTRIES}
    told = ask(demo, "preview_join", **asked)
    assert "secret" not in json.dumps(told) and told["facts"]["left_rows"] == 86
    text = refused(demo, "preview_join", table="mine.csv", column="country", **COUNTRIES)
    assert "No table 'mine.csv'" in text


HOSTILE = ("<script>alert(1)</script>", "\u202e turned", "x" * 10_000, "\ud800 lone", "a\nb\x00c")


@pytest.mark.parametrize("cell", HOSTILE, ids=range(len(HOSTILE)))
def test_odd_values_come_back_as_text(demo: Lake, cell: str) -> None:
    desk = Desk(demo)
    for name in ("search", "explain", "preview_join"):
        more = {} if name == "search" else COUNTRIES
        result = answered(desk, name, {"values": [cell, "France"], "column": cell, **more})
        assert not result.is_error, text_of(result)
        sent = result.model_dump_json()
        assert len(sent) < 60_000


def test_answers_are_bounded(tmp_path: Path) -> None:
    words = [f"{'word' * 80} {n}" for n in range(110)]
    names = [f"{'name' * 150} {n}" for n in range(110)]
    wide = [Column(words, name, "wide.csv") for name in names]
    lake = deepjoin.index(
        wide, tmp_path / "index", encoder="none", cells="none", max_mean_length=1000
    )
    desk, query = Desk(lake), {"table": "wide.csv", "column": names[0]}
    target = {"target_table": "wide.csv", "target_column": names[0]}
    for tool, arguments in (
        ("find_tables", {"text": "name", "limit": 100}),
        ("describe_table", {"table": "wide.csv", "rows": 50}),
        ("search", {"values": words, "k": 50}),
        ("explain", {**query, **target, "cells": 100}),
        ("preview_join", {**query, **target, "rows": 50}),
    ):
        result = answered(desk, tool, arguments)
        content = result.structured_content
        assert content is not None and content["cut"], text_of(result)
        assert max(map(len, strings_in(content))) <= max(CELL, NAME, LINE)
        assert len(text_of(result)) < 42_000
        assert len(json.dumps(content)) < LONGEST


def strings_in(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    parts = content.values() if isinstance(content, dict) else content
    if not isinstance(content, (dict, list)):
        return [""]
    return ["", *(text for part in parts for text in strings_in(part))]


def test_a_bug_is_told_without_its_trace(
    demo: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("secret\nof the house")

    monkeypatch.setattr(Lake, "search", broken)
    with caplog.at_level(logging.ERROR, "deepjoin.agents"):
        text = refused(demo, "search", values=["France"])
    assert text == "search failed inside deepjoin (RuntimeError); this is a bug."
    assert "tool search failed: RuntimeError: secret of the house" in caplog.text


def test_a_refreshed_index_is_picked_up(lake_folder: Path) -> None:
    lake = deepjoin.index(lake_folder)

    async def work(client: Client) -> tuple[int, int, int]:
        before = await client.call_tool("find_tables", {"text": "rivers"})
        (lake_folder / "rivers.csv").write_text("river\nRhine\nSeine\nLoire\nPo\nEbro\nTiber\n")
        await anyio.to_thread.run_sync(lambda: deepjoin.index(lake_folder))
        after = await client.call_tool("find_tables", {"text": "rivers"})
        hits = await client.call_tool("search", {"values": ["Seine", "Po"]})
        counts = [one.structured_content["tables_in_all"] for one in (before, after)]
        return counts[0], counts[1], len(hits.structured_content["hits"])

    assert with_client(lake, work) == (0, 1, 1)


def test_a_newer_index_that_is_damaged_is_told_once(
    lake_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The old one serves on, until there is one that can be opened."""
    desk = Desk(deepjoin.index(lake_folder))
    manifest = desk.lake.path / "manifest.json"
    sound = manifest.read_bytes()
    for content in (b"{}", None):
        caplog.clear()
        manifest.unlink() if content is None else manifest.write_bytes(content)
        for _ in range(3):
            told = answered(desk, "lake_info", {}).structured_content
            assert told is not None and told["tables"] == 3
        (said,) = caplog.messages
        assert said.startswith("The newer index cannot be opened; the old one serves on:")
    manifest.write_bytes(sound)
    deepjoin.open(desk.lake.path).remove("numbers.csv")
    told = answered(desk, "lake_info", {}).structured_content
    assert told is not None and told["tables"] == 2


def test_calls_side_by_side_are_answered(demo: Lake) -> None:
    async def work(client: Client) -> list[int]:
        counts: list[int] = []

        async def one(word: str) -> None:
            result = await client.call_tool("search", {"values": [word], "k": 3})
            counts.append(len(result.structured_content["hits"]))

        async with anyio.create_task_group() as group:
            for word in ("France", "Japan", "Peru", "Italy"):
                group.start_soon(one, word)
        return counts

    assert all(with_client(demo, work)) and len(with_client(demo, work)) == 4


def test_over_stdio(demo: Lake, tmp_path: Path) -> None:
    """Start the command as a client does, and join."""
    source = Path(deepjoin.__file__).parents[1]
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "deepjoin", "mcp", str(demo.path), "--out", str(tmp_path / "new")],
        env={**os.environ, "PYTHONPATH": str(source)},
        cwd=str(tmp_path),
    )

    async def run() -> tuple[list[str], dict[str, Any], CallToolResult]:
        with (tmp_path / "log").open("w") as log:
            from mcp.client.stdio import stdio_client

            async with Client(stdio_client(server, errlog=log)) as client:
                names = [tool.name for tool in (await client.list_tools()).tools]
                asked = {"values": ["France", "Japan"], **COUNTRIES}
                joined = await client.call_tool("join", asked)
                return names, joined.structured_content, await client.call_tool("search", {})

    names, joined, failed = anyio.run(run)
    assert names == list(TOOLS)
    assert joined["rows"] == 2 and (tmp_path / "new" / "joined.csv").exists()
    assert failed.is_error
    log = (tmp_path / "log").read_text()
    assert "joins are written to" in log and "Traceback" not in log


def test_a_missing_index_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp", str(tmp_path / "none")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("deepjoin: No index or folder") and error.count("\n") == 1


def test_a_missing_extra_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepjoin.cli.mcp.find_spec", lambda name: None)
    assert main(["mcp", str(tmp_path)]) == 1
    assert "pip install 'deepjoin[mcp]'" in capsys.readouterr().err


def test_an_output_folder_that_cannot_be(
    demo: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["mcp", str(demo.path), "--out", str(tmp_path / "file")]) == 1
    assert "Cannot write joins to" in capsys.readouterr().err
