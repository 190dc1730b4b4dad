"""Enrichment over HTTP: offers, what helps a model, progress, limits."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest

from tests.support.serving import Served, serving

pytest.importorskip("sklearn")
TOWNS = [f"{word} {number}" for word in ("north", "south") for number in range(20)]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("towns")
    drawn = np.random.default_rng(0)
    income = drawn.normal(size=40).round(3)
    pd.DataFrame({"town": TOWNS, "income": income}).to_csv(folder / "towns.csv", index=False)
    at = drawn.choice(40, 200)
    houses = pd.DataFrame({"town": np.array(TOWNS)[at], "rooms": drawn.integers(1, 9, 200)})
    houses["price"] = (income[at] + drawn.normal(size=200) / 3).round(3)
    houses.to_csv(folder / "houses.csv", index=False)
    with serving(folder) as one:
        yield one


HOUSES = {"left": {"table": "houses.csv"}}


def test_offers_and_words(served: Served) -> None:
    found = served.post("/api/enrich", HOUSES)
    assert [(one["column"], one["table"], one["via"]) for one in found["offers"]] == [
        ("income", "towns.csv", "town")
    ]
    assert found["total_offers"] == 1 and found["metric"] == "" and found["stopped"] == ""
    found = served.post("/api/enrich", HOUSES | {"about": "earnings"})
    assert found["offers"][0]["column"] == "income"


@pytest.mark.slow
def test_what_helps_comes_with_progress_and_without_paths(served: Served) -> None:
    asked = HOUSES | {"target": "price", "depth": 1}
    lines = served.client.post("/api/enrich/stream", json=asked).text.splitlines()
    *early, last = map(json.loads, lines)
    assert {one["progress"]["what"] for one in early} == {"towns.csv", "measuring"}
    assert last["progress"] is None and last["score_after"] > last["score_before"] + 0.3
    assert last["steps"][0]["columns"] == ["income"]
    assert "read_csv('towns.csv'" in last["sql"] and "/tmp" not in json.dumps(last)
    kept = served.client.get(f"/api/uploads/{last['upload']}").json()
    assert kept["name"] == "houses-enriched.parquet" and kept["rows"] == 200
    address = f"/api/uploads/{last['upload']}/download"
    file = served.client.get(address)
    assert file.headers["content-disposition"] == 'attachment; filename="houses-enriched.csv"'
    rows = pd.read_csv(io.StringIO(file.text))
    assert list(rows.columns) == ["town", "rooms", "price", "income"] and len(rows) == 200
    file = served.client.get(address, params={"format": "parquet"})
    pd.testing.assert_frame_equal(pd.read_parquet(io.BytesIO(file.content)), rows)
    refused = served.client.get(address, params={"format": "parquet", "neutralise": True})
    assert refused.status_code == 400 and "Parquet files hold no formulas" in refused.text
    query = {"upload": last["upload"], "column": "town"}
    found = served.post("/api/search", {"query": query})
    assert found["hits"][0]["table"] in ("houses.csv", "towns.csv")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"target": "prise"}, "No column 'prise' in houses.csv."),
        ({"target": "price", "about": "x"}, "about looks through what could be added"),
        ({"about": "the"}, "about is 'the'; it must say what to look for"),
        ({"as_of": "town"}, "as_of column 'town' holds string; it must hold dates or numbers"),
        ({"keys": ["=b"]}, "keys has '=b'; a key is the name of a column"),
        ({"as_of": "rooms", "ranges": "rooms"}, "as_of and ranges cannot be combined"),
        ({"left": {"table": "/etc/passwd"}}, "No table '/etc/passwd'"),
    ],
)
def test_what_cannot_be_answered(served: Served, change: dict[str, object], text: str) -> None:
    assert text in served.post("/api/enrich", HOUSES | change, 400)["error"]


def test_malformed_and_busy(served: Served) -> None:
    assert "depth" in served.post("/api/enrich", HOUSES | {"depth": 4}, 422)["error"]
    served.service._large.held = 1000
    try:
        assert "busy" in served.post("/api/enrich", HOUSES, 503)["error"]
    finally:
        served.service._large.held = 0


def test_an_upload_is_enriched(served: Served) -> None:
    text = "town,other\n" + "".join(f"{town},{at}\n" for at, town in enumerate(TOWNS))
    upload = served.upload(text.encode(), "mine.csv")["upload"]
    found = served.post("/api/enrich", {"left": {"upload": upload}})
    assert "income" in {one["column"] for one in found["offers"]}
