"""What people accept and reject: kept beside the index, first in every ranking."""

from __future__ import annotations

import json
import multiprocessing
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import deepjoin
from deepjoin.__main__ import main
from deepjoin.errors import DeepJoinError, IndexUnusable
from deepjoin.lake import Lake
from deepjoin.model import Column, Decision
from deepjoin.settings import BuildSettings, Settings, Vectors
from deepjoin.store.feedback import Feedback
from deepjoin.store.manifest import FEEDBACK

NO_VECTORS = Vectors(cells="none")
ORDERS = ("orders", "customer_id")
CUSTOMERS = ("customers", "customer_id")


def shop(path: Path) -> Path:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE customers (customer_id INTEGER, name TEXT)")
        db.execute("CREATE TABLE orders (order_id INTEGER, customer_id INTEGER, agent TEXT)")
        db.execute("CREATE TABLE staff (login TEXT, room TEXT)")
        customers = [(1000 + 7 * n, f"Name {n}") for n in range(40)]
        db.executemany("INSERT INTO customers VALUES (?, ?)", customers)
        orders = [(n, 1000 + 7 * (n % 35), f"agent{n % 20}") for n in range(120)]
        db.executemany("INSERT INTO orders VALUES (?, ?, ?)", orders)
        # A fifth of the agents: too few for a relation that is found.
        staff = [(f"agent{n}" if n < 4 else f"other{n}", f"r{n}") for n in range(30)]
        db.executemany("INSERT INTO staff VALUES (?, ?)", staff)
    return path


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return deepjoin.index(str(shop(tmp_path / "shop.sqlite")), tmp_path / "i", vectors=NO_VECTORS)


def ends(lake: Lake, least: float = 0.5) -> dict[tuple[str, ...], Any]:
    return {
        (one.child_table, *one.child_columns, one.parent_table, *one.parent_columns): one
        for one in lake.relations(least=least)
    }


def test_a_rejected_relation_is_gone_and_an_accepted_one_is_sure(lake: Lake) -> None:
    pair = (*ORDERS, *CUSTOMERS)
    (relation,) = [one for key, one in ends(lake).items() if key == pair]
    lake.reject(relation)
    assert pair not in ends(lake)
    found = ends(lake, least=0)[pair]
    assert found.probability == 0 and found.decided == "rejected"
    assert "rejected by a person" in found.evidence["person"]
    lake.accept(ORDERS, CUSTOMERS)
    found = ends(lake, least=1)[pair]
    assert found.probability == 1 and found.decided == "accepted"
    assert "accepted by a person" in repr(lake.relations())
    assert lake.forget(relation) and not lake.forget(relation)
    assert ends(lake)[pair].decided == ""


def test_a_relation_that_was_not_found_can_be_accepted(lake: Lake) -> None:
    pair = ("orders", "agent", "staff", "login")
    assert pair not in ends(lake)
    lake.accept(("orders", "agent"), ("staff", "login"))
    found = ends(lake)[pair]
    assert (found.probability, found.containment, found.orphans) == (1, 0.2, 96)
    assert json.loads(json.dumps(lake.relations().to_dict()))["decisions"] == [
        lake.feedback[0].to_dict()
    ]


def test_decisions_survive_changes_of_the_index(lake: Lake, tmp_path: Path) -> None:
    lake.accept(ORDERS, CUSTOMERS)
    with closing(sqlite3.connect(tmp_path / "shop.sqlite")) as db, db:
        db.execute("INSERT INTO customers VALUES (9999, 'New')")
    lake.refresh()
    lake.add({"other": ["a", "b", "c", "d", "e"]})
    lake.compact()
    source, again = str(tmp_path / "shop.sqlite"), BuildSettings(rebuild=True)
    deepjoin.index(source, tmp_path / "i", vectors=NO_VECTORS, build=again)
    later = deepjoin.open(tmp_path / "i")
    assert [one.text for one in later.feedback] == ["accepted"]
    assert ends(later)[(*ORDERS, *CUSTOMERS)].decided == "accepted"
    assert later.check()


def test_an_open_lake_sees_decisions_of_others(lake: Lake) -> None:
    other = deepjoin.open(lake.path)
    other.reject(ORDERS, CUSTOMERS)
    assert (*ORDERS, *CUSTOMERS) not in ends(lake)


CODES = [f"code {n}" for n in range(30)]


def two_targets(folder: Path, vectors: Vectors | None, **settings: Any) -> Lake:
    tables = {
        "first": {"code": CODES},
        "second": {"key": CODES[:20] + [f"z{n}" for n in range(10)]},
    }
    return deepjoin.index(tables, folder / "i", vectors=vectors, settings=Settings(**settings))


@pytest.mark.parametrize("vectors", [None, NO_VECTORS])
def test_hits_are_ranked_by_decisions_at_once(tmp_path: Path, vectors: Vectors | None) -> None:
    lake = two_targets(tmp_path, vectors)
    query = Column(CODES, "code")
    assert [hit.table for hit in lake.search(query)] == ["first", "second"]
    results = lake.search(query)
    lake.accept(results.query, results[1])
    assert [hit.table for hit in lake.search(query)] == ["second", "first"]
    assert [hit.table for hit in lake.search(query, 1)] == ["second"]
    assert (lake.search(query)[0].probability, lake.search(query)[0].decided) == (1, "accepted")
    assert lake.search(query)[0].to_dict()["decided"] == "accepted"
    lake.forget("code", ("second", "key"))
    lake.reject("code", ("first", "code"))
    assert [hit.table for hit in lake.search(query)] == ["second", "first"]
    assert (lake.search(query)[1].probability, lake.search(query)[1].decided) == (0, "rejected")
    # The order of equi-joins is that of their definition.
    assert [hit.table for hit in lake.search(query, join="equi")] == ["first", "second"]
    assert lake.search(query, join="equi")[0].decided == "rejected"
    assert lake.explain(query, ("first", "code")).decided == "rejected"
    # A column of another name is another query.
    assert [hit.decided for hit in lake.search(Column(CODES, "other"))] == ["", ""]


def test_hits_of_a_table_of_the_lake_follow_its_relations(tmp_path: Path) -> None:
    lake = two_targets(tmp_path, NO_VECTORS)
    lake.reject(("second", "key"), ("first", "code"))
    (hit,) = lake.search(lake.column("first", "code"))
    assert hit.decided == "rejected"


def test_keys_of_several_columns_are_decided_in_any_order(tmp_path: Path) -> None:
    tables = {
        "teams": {"year": [str(1990 + n % 9) for n in range(40)], "team": [*map(str, range(40))]}
    }
    lake = deepjoin.index(tables, tmp_path / "i", vectors=NO_VECTORS)
    games = {"y": tables["teams"]["year"][:10], "t": tables["teams"]["team"][:10]}
    results = lake.search(games)
    assert results[0].columns == ("year", "team")
    lake.accept(results.query, results[0])
    hit = lake.search(games)[0]
    assert (hit.decided, hit.probability) == ("accepted", 1)
    turned = lake.search({"t": games["t"], "y": games["y"]})[0]
    assert (turned.columns, turned.decided) == (("team", "year"), "accepted")


def test_a_lake_of_hashes_holds_no_values_through_it(tmp_path: Path) -> None:
    lake = two_targets(tmp_path, NO_VECTORS, hash_only=True)
    lake.accept("code", ("second", "key"))
    assert [hit.table for hit in lake.search(Column(CODES, "code"))] == ["second", "first"]
    assert "code 1" not in (lake.path / FEEDBACK).read_text()


def test_export_and_import(lake: Lake, tmp_path: Path) -> None:
    lake.accept(ORDERS, CUSTOMERS)
    lake.reject(("orders", "agent"), ("staff", "login"))
    assert lake.feedback.write(tmp_path / "said.json") == 2
    other = deepjoin.index(str(tmp_path / "shop.sqlite"), tmp_path / "other", vectors=NO_VECTORS)
    assert other.feedback.read(tmp_path / "said.json") == 2
    assert list(other.feedback) == list(lake.feedback)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{", "no JSON with a list of decisions"),
        ('{"decisions": 1}', "its decisions are no list"),
        ('{"decisions": [{"child_table": "a"}]}', "decision 1 lacks one of child_table"),
        (
            '{"decisions": [{"child_table": "a", "child_columns": [], "parent_table": "b", '
            '"parent_columns": [], "accepted": true}]}',
            "decision 1 has fields of another kind",
        ),
    ],
)
def test_other_files_are_not_imported(lake: Lake, tmp_path: Path, content: str, text: str) -> None:
    (tmp_path / "f.json").write_text(content)
    with pytest.raises(DeepJoinError, match=f"holds no decisions .{re.escape(text)}"):
        lake.feedback.read(tmp_path / "f.json")
    with pytest.raises(DeepJoinError, match="Cannot read"):
        lake.feedback.read(tmp_path / "none.json")
    with pytest.raises(DeepJoinError, match="Cannot write"):
        lake.feedback.write(tmp_path / "no folder" / "f.json")


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ((ORDERS,), "Only one end of a join was named"),
        ((ORDERS, ("customers", "nmae")), "nmae"),
        ((("order", "x"), CUSTOMERS), "order"),
        (("", CUSTOMERS), "has no name to know it by"),
        (
            (ORDERS, ("customers", ["customer_id", "name"])),
            "The ends of the join have 1 and 2 columns",
        ),
    ],
)
def test_what_cannot_be_decided(lake: Lake, ends: Any, text: str) -> None:
    with pytest.raises(DeepJoinError, match=re.escape(text)):
        lake.accept(*ends)
    assert not lake.feedback


def test_damage_is_reported_and_nothing_is_overwritten(lake: Lake) -> None:
    lake.accept(ORDERS, CUSTOMERS)
    path = lake.path / FEEDBACK
    path.write_bytes(path.read_bytes().replace(b"true", b"false"))
    before = path.read_bytes()
    for use in (lake.relations, lambda: lake.accept(ORDERS, CUSTOMERS)):
        with pytest.raises(IndexUnusable, match=r"feedback.json is damaged .its checksum differs"):
            use()
    assert path.read_bytes() == before
    assert any(FEEDBACK in one for one in lake.check().problems)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    said = Feedback(tmp_path)
    (tmp_path / "feedback.new").mkdir()
    with pytest.raises(IndexUnusable, match="Cannot write .*feedback.json"):
        said.add([Decision("a", ("x",), "b", ("y",), True)])
    (tmp_path / FEEDBACK).mkdir()
    with pytest.raises(IndexUnusable, match="Cannot read .*feedback.json"):
        len(said)


def _say(folder: Path, number: int) -> None:
    said = Feedback(folder)
    for n in range(10):
        said.add([Decision(f"a{number}", (f"x{n}",), "b", ("y",), True)])


@pytest.mark.slow
def test_decisions_of_several_processes_are_all_kept(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    running = [context.Process(target=_say, args=(tmp_path, n)) for n in range(3)]
    for one in running:
        one.start()
    for one in running:
        one.join()
    assert len(Feedback(tmp_path)) == 30


def test_the_command(lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = str(lake.path)
    main(["feedback", index])
    assert "Nobody has accepted" in capsys.readouterr().out
    main(["feedback", index, "--accept", "orders:customer_id", "customers:customer_id"])
    main(["feedback", index, "--reject", ":customer", "customers:name"])
    out = capsys.readouterr().out
    assert "accepted  orders:customer_id" in out and "rejected  :customer" in out
    main(["feedback", index, "-o", str(tmp_path / "f.json")])
    main(["feedback", index, "--forget", ":customer", "customers:name", "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert [one["accepted"] for one in found["decisions"]] == [True]
    main(["feedback", index, "--forget", ":customer", "customers:name"])
    assert "Nothing was said of :customer" in capsys.readouterr().err
    main(["feedback", index, "--import", str(tmp_path / "f.json"), "--format", "json"])
    assert len(json.loads(capsys.readouterr().out)["decisions"]) == 2
    with pytest.raises(SystemExit):
        main(["feedback", index, "--accept", "orders", "customers:name"])
    assert "must be TABLE:COLUMN" in capsys.readouterr().err
