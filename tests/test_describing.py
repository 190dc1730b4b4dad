"""Columns as the index knows them: of any source, also where several have one name."""

from __future__ import annotations

from pathlib import Path

import deepjoin
from deepjoin import Column, Lake
from deepjoin.read.corpus import write_corpus
from deepjoin.serve.http.describing import describe_table
from deepjoin.serve.mcp.server import answered
from deepjoin.serve.mcp.tools import AgentSession
from deepjoin.store.directory import SAMPLES, best_keys, column_facts


def corpus(folder: Path) -> Lake:
    """Index a corpus whose only table has two columns of one name."""
    cities = [f"city {number}" for number in range(20)]
    columns = [Column(cities, "name", "t"), Column([*"abcde", "a"], "name", "t")]
    write_corpus(folder / "corpus", columns)
    return deepjoin.index(folder / "corpus", folder / "index", vectors={"cells": "none"})


def test_columns_of_one_name_are_distinguished(tmp_path: Path) -> None:
    lake = corpus(tmp_path)
    facts = list(column_facts(lake.index, "t"))
    assert [(one.name, one.distinct) for one in facts] == [("name", 20), ("name", 5)]
    assert [one.samples for one in facts] == [
        [f"city {number}" for number in range(SAMPLES)],
        [*"abcde"],
    ]
    assert best_keys(facts) == facts, "the second repeats a value"


def test_service_and_agents_say_the_same(tmp_path: Path) -> None:
    lake = corpus(tmp_path)
    told = answered(AgentSession(lake), "describe_table", {"table": "t"}).structured_content
    assert told is not None
    for field in ("distinct", "type", "samples"):
        of_agents = [one[field] for one in told["columns"]]
        assert of_agents == [getattr(one, field) for one in describe_table(lake, "t").columns]


def test_left_out_columns_have_no_number(lake_folder: Path) -> None:
    lake = deepjoin.index(lake_folder)
    facts = {one.name: one for one in column_facts(lake.index, "numbers.csv")}
    assert (facts["n"].indexed, facts["n"].left_out) == (True, "")
    assert not facts["flag"].indexed and facts["flag"].key == 0
    assert facts["flag"].left_out.startswith("fewer than 5 distinct values")
