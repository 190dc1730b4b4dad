"""The server of the tools: mistakes, bounds, newer indexes, and the command over stdio."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult

import deepjoin
from deepjoin import Column, Lake
from deepjoin.cli import main
from deepjoin.serve.mcp.answers import CELL, LINE, NAME
from deepjoin.serve.mcp.server import TOOLS, answered
from deepjoin.serve.mcp.tools import AgentSession
from tests.support.agents import COUNTRIES, ask, refused, text_of, with_client

#: The most characters that an answer about the oddest of tables may have.
LONGEST = 600_000


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("serch", {}, "No tool 'serch' in this server.*Did you mean 'search'?"),
        ("search", {}, "Pass the query column"),
        ("explain", {"table": "geo/countries.csv", **COUNTRIES}, "Pass the query column"),
        ("read_table", {"table": "geo/countries.csv", "column": "x"}, "No indexed column 'x' in"),
        ("read_table", {"table": "geo/countries.csv", "limit": 51}, "limit: Input should be less"),
        ("read_table", {"table": "/etc/passwd"}, "No table '/etc/passwd' in "),
        ("find_paths", {"start": "geo/countries.csv", "end": "x"}, "No table 'x' in "),
        ("search", {"table": "x", "column": "y", "values": ["a"]}, "Pass the query column"),
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
def test_what_is_wrong_is_reported_in_one_line(
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


@pytest.mark.slow
@pytest.mark.parametrize("cell", HOSTILE, ids=range(len(HOSTILE)))
def test_odd_values_come_back_as_text(demo: Lake, cell: str) -> None:
    desk = AgentSession(demo)
    for name in ("search", "explain", "preview_join"):
        more = {} if name == "search" else COUNTRIES
        result = answered(desk, name, {"values": [cell, "France"], "column": cell, **more})
        assert not result.is_error, text_of(result)
        sent = result.model_dump_json()
        assert len(sent) < 60_000


@pytest.mark.slow
def test_answers_are_bounded(tmp_path: Path) -> None:
    words = [f"{'word' * 80} {n}" for n in range(110)]
    names = [f"{'name' * 150} {n}" for n in range(110)]
    wide = [Column(words, name, "wide.csv") for name in names]
    lake = deepjoin.index(
        wide,
        tmp_path / "index",
        encoder="none",
        vectors={"cells": "none"},
        settings=deepjoin.Settings(max_mean_length=1000),
    )
    desk, query = AgentSession(lake), {"table": "wide.csv", "column": names[0]}
    target = {"target_table": "wide.csv", "target_column": names[0]}
    for tool, arguments in (
        ("find_tables", {"text": "name", "limit": 100}),
        ("describe_table", {"table": "wide.csv", "rows": 50}),
        ("search", {"values": words, "k": 50}),
        ("explain", {**query, **target, "cells": 100}),
        ("preview_join", {**query, **target, "rows": 50}),
        ("read_table", {"table": "wide.csv", "limit": 50}),
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


def test_a_bug_is_reported_without_its_trace(
    demo: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("secret\nof the house")

    monkeypatch.setattr(Lake, "search", broken)
    with caplog.at_level(logging.ERROR, "deepjoin.serve.mcp"):
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


def test_a_newer_index_that_is_damaged_is_reported_once(
    lake_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The old one serves on, until there is one that can be opened."""
    desk = AgentSession(deepjoin.index(lake_folder))
    manifest = desk.lake.path / "manifest.json"
    sound = manifest.read_bytes()
    for content in (b"{}", None):
        caplog.clear()
        manifest.unlink() if content is None else manifest.write_bytes(content)
        for _ in range(3):
            told = answered(desk, "lake_info", {}).structured_content
            assert told is not None and told["tables"] == 3
        (said,) = caplog.messages
        assert said.startswith("The newer index cannot be opened; the old one is still served:")
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


@pytest.mark.slow
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
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert main(["mcp", str(tmp_path)]) == 1
    assert "pip install 'deepjoin[mcp]'" in capsys.readouterr().err


def test_an_output_folder_that_cannot_be(
    demo: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["mcp", str(demo.path), "--out", str(tmp_path / "file")]) == 1
    assert "Cannot write joins to" in capsys.readouterr().err
