"""Relations, decisions and paths over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import deepjoin
from deepjoin.settings import Vectors
from tests.support.serving import Served, serving
from tests.test_feedback import shop

NO_VECTORS = Vectors(cells="none")
CHILD = {"table": "orders", "columns": ["customer_id"]}
PARENT = {"table": "customers", "columns": ["customer_id"]}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    source = str(shop(tmp_path / "shop.sqlite"))
    lake = deepjoin.index(source, tmp_path / "i", vectors=NO_VECTORS)
    with serving(tmp_path / "i", lake) as found:
        yield found


def test_relations_come_with_their_diagram(served: Served) -> None:
    found = served.get("/api/relations")
    (relation,) = [one for one in found["relations"] if one["child_table"] == "orders"][:1]
    assert relation["parent_table"] == "customers" and relation["evidence"]["values"]
    assert {box["table"] for box in found["diagram"]["tables"]} >= {"orders", "customers"}
    assert len(found["diagram"]["lines"]) == len(found["relations"]) == found["total"]
    assert "Input should be" in served.get("/api/relations", 422, least=2)["error"]


def test_a_decision_counts_at_once_and_can_be_taken_back(served: Served) -> None:
    body = {"child": CHILD, "parent": PARENT}
    (said,) = served.post("/api/feedback", body | {"accepted": False})["decisions"]
    assert not said["accepted"] and said["child_table"] == "orders"
    found = served.get("/api/relations")
    assert len(found["rejected"]) == 1
    assert ("orders", "customers") not in {
        (one["child_table"], one["parent_table"]) for one in found["relations"]
    }
    assert len(served.get("/api/feedback")["decisions"]) == 1
    assert served.post("/api/feedback", body | {"accepted": None})["decisions"] == []
    outside = {"child": {"table": "", "columns": ["client"]}, "parent": PARENT, "accepted": True}
    served.post("/api/feedback", outside)
    query = {"values": [str(1000 + 7 * n) for n in range(9)], "name": "client"}
    (hit, *_) = served.post("/api/search", {"query": query})["hits"]
    assert (hit["table"], hit["decided"]) == ("customers", "accepted")


@pytest.mark.parametrize(
    ("change", "status", "text"),
    [
        ({"parent": {"table": "x", "columns": ["y"]}}, 400, "No table 'x'"),
        ({"parent": {"table": "customers", "columns": ["y"]}}, 400, "No column 'y'"),
        ({"accepted": 1}, 422, "valid boolean"),
        ({"child": {"table": "", "columns": [""]}}, 400, "has no name to know it by"),
    ],
)
def test_what_cannot_be_said(
    served: Served, change: dict[str, object], status: int, text: str
) -> None:
    body = {"child": CHILD, "parent": PARENT, "accepted": True} | change
    assert text in served.post("/api/feedback", body, status)["error"]


def test_a_service_for_all_keeps_no_decisions(tmp_path: Path) -> None:
    source = str(shop(tmp_path / "shop.sqlite"))
    lake = deepjoin.index(source, tmp_path / "i", vectors=NO_VECTORS)
    with serving(tmp_path / "i", lake, host="0.0.0.0", bound="0.0.0.0") as served:
        assert not served.get("/api/lake")["can_judge"]
        body = {"child": CHILD, "parent": PARENT, "accepted": True}
        assert "keeps no decisions" in served.post("/api/feedback", body, 403)["error"]


def test_a_path_is_joined_as_one(served: Served) -> None:
    (path, *_) = served.get("/api/graph/paths", **{"from": "orders", "to": "customers"})["paths"]
    ends = [
        {end: {name: edge[end][name] for name in ("table", "column")} for end in "ab"}
        for edge in path
    ]
    found = served.post("/api/join/path", {"path": ends, "rows": 2})
    assert found["total"] == 120 and len(found["rows"]) == 2
    assert "LEFT JOIN" in found["sql"] and "name" in found["columns"]
    refused = served.post("/api/join/path", {"path": []}, 422)
    assert "at least 1 item" in refused["error"]
