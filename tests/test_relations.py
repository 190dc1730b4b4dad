"""Keys, foreign keys, their probabilities, exports and paths."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deepjoin
from deepjoin.__main__ import main
from deepjoin.errors import DeepJoinError
from deepjoin.lab.made_up import make_database
from deepjoin.lake import Lake
from deepjoin.matching import names
from deepjoin.matching.names import (
    NameTable,
    letters_of,
    shared_letters,
    short_name,
    split_key,
)
from deepjoin.matching.sense import BoostedTrees
from deepjoin.model import Relation, TableKey
from deepjoin.relating import relations as relations_module
from deepjoin.relating.diagram import lay_out, to_svg
from deepjoin.relating.output import to_dbml, to_dbt, to_mermaid, to_sql
from deepjoin.relating.relations import CONTAINED, RelationFinder
from deepjoin.relating.self_join import SelfJoin
from deepjoin.settings import Vectors
from deepjoin.store.manifest import RELATION_PAIRS
from tests.support.postgres import execute

NO_VECTORS = Vectors(cells="none")


def shop(path: Path, declared: bool = True) -> Path:
    """Make a small shop: customers, orders with two orphans, a lookup table of three values."""
    keys = "REFERENCES customers(customer_id)" if declared else ""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE customers (customer_id INTEGER PRIMARY KEY, name TEXT, city TEXT)")
        db.execute(
            "CREATE TABLE orders (order_id INTEGER PRIMARY KEY, "
            f"customer_id INTEGER {keys}, status TEXT)"
        )
        db.execute("CREATE TABLE statuses (status TEXT PRIMARY KEY, label TEXT)")
        db.execute("CREATE TABLE empty (id INTEGER, blank TEXT)")
        rows = [(1000 + 7 * n, f"Name {n}", f"City {n % 9}") for n in range(40)]
        db.executemany("INSERT INTO customers VALUES (?, ?, ?)", rows)
        orders = [(n, 1000 + 7 * (n % 35), "abc"[n % 3]) for n in range(1, 120)]
        orders += [(200, 5555, "a"), (201, 5555, "b")]
        db.executemany("INSERT INTO orders VALUES (?, ?, ?)", orders)
        db.executemany(
            "INSERT INTO statuses VALUES (?, ?)",
            [*zip("abc", ("open", "paid", "sent"), strict=True)],
        )
        db.execute("CREATE VIEW recent AS SELECT * FROM orders WHERE order_id > 100")
    return path


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("shop")
    return deepjoin.index(str(shop(folder / "shop.sqlite")), folder / "index", vectors=NO_VECTORS)


def ends(relations: Sequence[Any]) -> set[tuple[str, ...]]:
    return {
        (one.child_table, *one.child_columns, one.parent_table, *one.parent_columns)
        for one in relations
    }


def test_a_foreign_key_is_found_with_its_orphans_and_evidence(lake: Lake) -> None:
    found = lake.relations()
    (one,) = [r for r in found if (r.child_table, r.child_columns) == ("orders", ("customer_id",))]
    assert (one.parent_table, one.parent_columns) == ("customers", ("customer_id",))
    assert one.probability > 0.5 and one.declared is True and one.cardinality == "n:1"
    assert one.orphans == 2 and one.orphan_values == ("5555",)
    assert one.containment == pytest.approx(35 / 36)
    assert one.evidence["name"] == "both columns have the same name"
    assert found.check() == [one] or one in found.check()


def test_small_lookup_tables_are_related_and_not_searched(lake: Lake) -> None:
    assert ("orders", "status", "statuses", "status") in ends(lake.relations())
    with pytest.raises(DeepJoinError, match="fewer than 5 distinct values"):
        lake.column("statuses", "status")
    assert not lake.search(["a", "b", "c"], join="equi")


@pytest.mark.slow
def test_small_columns_survive_merges_and_leave_with_their_tables(tmp_path: Path) -> None:
    lake = deepjoin.index(
        {"kinds": {"kind": ["x", "y", "z"]}, "things": {"kind": ["x", "y", "z", "x"]}},
        tmp_path / "index",
        vectors=NO_VECTORS,
    )
    wanted = ("things", "kind", "kinds", "kind")
    lake.add({"more": {"other": ["x", "y"]}})
    lake.compact()
    assert len(lake.index.segments) == 1
    names = {RelationFinder(lake.index).place(c)[0] for c in range(3)}
    assert names == {"kinds", "things", "more"}
    assert wanted in ends(lake.relations(least=0))
    lake.remove("kinds")
    assert wanted not in ends(lake.relations(least=0))


def test_keys_have_a_probability(lake: Lake) -> None:
    keys = {(key.table, key.columns): key.probability for key in lake.relations().keys}
    assert keys[("customers", ("customer_id",))] > 0.5
    assert ("orders", ("status",)) not in keys


@pytest.mark.slow
def test_declared_keys_never_change_the_probability(tmp_path: Path, lake: Lake) -> None:
    plain = deepjoin.index(
        str(shop(tmp_path / "shop.sqlite", declared=False)), tmp_path / "index", vectors=NO_VECTORS
    )
    with_keys, without = lake.relations(least=0), plain.relations(least=0)
    assert [r.probability for r in with_keys] == [r.probability for r in without]
    assert not any(r.declared for r in without)


def test_exports_hold_hostile_names(lake: Lake) -> None:
    """A name is text, whatever reads the file: SQL, dbt (which runs Jinja), DBML or Mermaid."""
    relations = lake.relations()
    one, kind = next(iter(relations)), relations.kind
    table, column = 'a"; DROP\nTABLE b; -- %%%{init: {}}%% #', "c\nd #: e"
    odd = replace(one, parent_table=table, parent_columns=(column,), child_columns=("x y",))
    runs = replace(one, parent_columns=("{{ run_query('DROP TABLE b') }}",))
    written = to_dbt([odd], [])
    assert 'field: "\\"c\\nd #: e\\""' in written
    assert '- name: "x y"\n        quote: true' in written
    assert "to: " + json.dumps(f"ref('{short_name(table)}')") in written
    assert "run_query" not in to_dbt([odd, runs], [])
    assert "# 1 left out: a name has braces, which dbt would run." in to_dbt([odd, runs], [])
    for text in (to_dbml([odd], [], kind), to_mermaid([odd], [], kind)):
        assert "\nd #" not in text and "DROP\n" not in text
    assert "%%" not in to_mermaid([odd], [], kind)
    assert all(line.startswith(("--", "ALTER", 'd #: e"', "TABLE b"))
               for line in to_sql([odd], []).splitlines())  # fmt: skip


def test_exports_name_every_relation(lake: Lake) -> None:
    found = lake.relations()
    assert 'ALTER TABLE "orders" ADD FOREIGN KEY ("customer_id")' in found.to_sql()
    assert "relationships:" in found.to_dbt() and "to: ref('customers')" in found.to_dbt()
    assert 'Ref: "orders"."customer_id" > "customers"."customer_id"' in found.to_dbml()
    assert (
        found.to_mermaid().startswith("erDiagram\n")
        and '"orders" }o--|| "customers"' in found.to_mermaid()
    )
    shown = json.loads(json.dumps(found.to_dict()))
    assert set(shown) >= {"keys", "relations", "seconds"}
    assert shown["relations"][0].keys() >= {"child_columns", "parent_columns", "probability"}
    assert "orders.customer_id -> customers.customer_id" in repr(found)


def test_the_sql_runs(lake: Lake, tmp_path: Path) -> None:
    import duckdb

    with duckdb.connect() as db:
        db.execute("CREATE TABLE customers (customer_id INTEGER)")
        # DuckDB has no ALTER TABLE for foreign keys, but parses and adds primary keys.
        line = next(
            t for t in lake.relations().to_sql().splitlines() if '"customers" ADD PRIMARY' in t
        )
        db.execute(line)


def test_paths_lead_through_relations_best_first(lake: Lake) -> None:
    found = lake.relations()
    best = found.paths("customers", "statuses")[0]
    assert best.tables == ("customers", "orders", "statuses")
    assert best.probability == pytest.approx(np.prod([r.probability for r in best.relations]))
    with pytest.raises(DeepJoinError, match="No relation leads to a table 'nowhere'"):
        found.paths("customers", "nowhere")


def test_a_probability_out_of_range_is_refused(lake: Lake) -> None:
    with pytest.raises(DeepJoinError, match="`least` is 2; it must be a probability from 0 to 1"):
        lake.relations(least=2)


@pytest.mark.slow
def test_sources_are_apart_unless_asked_across(tmp_path: Path) -> None:
    for name in ("one", "two"):
        shop(tmp_path / f"{name}.sqlite")
    files = [str(tmp_path / f"{name}.sqlite") for name in ("one", "two")]
    lake = deepjoin.index(files, tmp_path / "index", vectors=NO_VECTORS)
    inside = lake.relations(least=0)
    assert all(r.child_table.split(".")[0] == r.parent_table.split(".")[0] for r in inside)
    across = ends(lake.relations(least=0, across=True))
    assert ("one.orders", "customer_id", "two.customers", "customer_id") in across


def test_bad_tables_are_passed_over(tmp_path: Path) -> None:
    wide = {f"c{n}": [str(n), str(n + 1)] for n in range(300)}
    lake = deepjoin.index(
        {
            "empty": {"id": []},
            "nulls": {"id": [None, None], "x": ["", " "]},
            "no_key": {"x": ["a", "a", "b", "b"]},
            "self": {
                "id": ["1", "2", "3", "4", "5", "6"],
                "parent_id": ["", "1", "1", "2", "2", "3"],
            },
            "ring": {"id": ["p", "q", "r"], "next": ["q", "r", "p"]},
            "wide": wide,
        },
        tmp_path / "index",
        vectors=NO_VECTORS,
    )
    found = ends(lake.relations(least=0))
    assert ("self", "parent_id", "self", "id") in found
    assert ("ring", "next", "ring", "id") in found


def test_an_index_is_not_taken_for_that_of_another_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two addresses may give an index one name, in the working directory."""
    monkeypatch.chdir(tmp_path)
    for name, table in (("a-b", "first"), ("a.b", "second")):
        with closing(sqlite3.connect(f"{name}.sqlite")) as db, db:
            db.execute(f"CREATE TABLE {table} (id TEXT PRIMARY KEY)")
            db.executemany(
                f"INSERT INTO {table} VALUES (?)", [(f"{n} {table}",) for n in range(50)]
            )
    for _ in range(2):
        for name, table in (("a-b", "first"), ("a.b", "second")):
            assert (
                main(["relations", f"sqlite:///{name}.sqlite", "--least", "0", "--format", "json"])
                == 0
            )
            keys = json.loads(capsys.readouterr().out)["keys"]
            assert [key["table"] for key in keys] == [table]
    assert len(list(tmp_path.glob("sqlite-a-b-sqlite*.deepjoin"))) == 2
    # The index of a database that is gone still answers, and for no other one.
    for name in ("a-b", "a.b"):
        (tmp_path / f"{name}.sqlite").unlink()
    assert main(["relations", "sqlite:///a-b.sqlite", "--least", "0", "--format", "json"]) == 0
    assert [key["table"] for key in json.loads(capsys.readouterr().out)["keys"]] == ["first"]
    assert main(["relations", "sqlite:///a.b.sqlite", "--least", "0", "--format", "json"]) == 0
    assert [key["table"] for key in json.loads(capsys.readouterr().out)["keys"]] == ["second"]
    assert main(["relations", "sqlite:///a+b.sqlite"]) != 0


@pytest.mark.slow
def test_the_command_checks_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = shop(tmp_path / "shop.sqlite")
    assert main(["relations", str(file), "--check"]) == 1
    shown = capsys.readouterr()
    assert (
        "2 rows of orders refer to nothing: customer_id is not in customers.customer_id (5555)"
        in shown.err
    )
    assert (tmp_path / "shop.sqlite.deepjoin" / "manifest.json").exists()
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("DELETE FROM orders WHERE customer_id = 5555")
    # The check reads what has changed.
    assert main(["relations", str(file), "--check", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["relations"]
    out = tmp_path / "schema.sql"
    assert main(["relations", str(file), "--format", "sql", "-o", str(out)]) == 0
    assert "FOREIGN KEY" in out.read_text()
    assert main(["relations", str(file), "-o", str(tmp_path / "nowhere" / "x.sql")]) == 1
    assert "x.sql: No such file or directory. Choose a folder" in capsys.readouterr().err


cells = st.lists(st.sampled_from(["1", "2", "3", "4", "a", "b", "c", "x", "y"]), max_size=8)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(cells, cells), min_size=1, max_size=3))
def test_candidates_are_all_inclusions(
    tmp_path_factory: pytest.TempPathFactory, tables: list[tuple[list[str], list[str]]]
) -> None:
    """Every pair whose child is contained and whose parent is nearly unique, and no other."""
    frames: dict[str, Mapping[str, list[str | None]]] = {}
    columns: dict[tuple[str, str], list[str]] = {}
    for n, (a, b) in enumerate(tables):
        length = max(len(a), len(b))
        frames[f"t{n}"] = {
            "a": a + [None] * (length - len(a)),
            "b": b + [None] * (length - len(b)),
        }
        columns |= {(f"t{n}", "a"): a, (f"t{n}", "b"): b}
    folder = tmp_path_factory.mktemp("lake")
    lake = deepjoin.index(dict(frames), folder / "index", vectors=NO_VECTORS)
    expected = {}
    for child, mine in columns.items():
        for parent, theirs in columns.items():
            shared = len(set(mine) & set(theirs))
            if child == parent or not shared or shared / len(set(mine)) < CONTAINED:
                continue
            if len(set(theirs)) / len(theirs) >= 0.8:
                expected[child, parent] = shared
    finder = RelationFinder(lake.index)
    pairs, left_out = finder.candidates()
    places = {
        c: (finder.place(c)[0], finder.place(c)[1][0]) for c in range(len(finder.columns.sizes))
    }
    found = {
        (places[c], places[p]): m for c, p, m in zip(*(of.tolist() for of in pairs), strict=True)
    }
    assert found == expected and left_out == 0


def test_trees_weigh_as_written() -> None:
    """One tree of one split, by hand; its numbers survive JSON."""
    tree = BoostedTrees(
        ("x",),
        np.array([0]),
        np.array([0, 0, 0]),
        np.array([0.5, 0, 0], np.float32),
        np.array([1, 1, 2]),
        np.array([2, 1, 2]),
        np.array([0.0, -1.0, 2.0]),
        *(1, 0.25),
    )
    again = BoostedTrees.from_json(json.loads(json.dumps(tree.to_json())))
    for one in (tree, again):
        assert one.scores(np.array([[0.5], [0.6]])).tolist() == [-0.75, 2.25]


def test_names_are_compared_by_their_stems() -> None:
    assert split_key("CustomerID") == ("customer", True)
    names = NameTable.of(["adresse_id", "adressen", "preis"])
    first, second = names.take(np.array([0, 0])), names.take(np.array([1, 2]))
    share, _ = shared_letters(first.stems, second.letters)
    assert share[0] == 1 and share[1] < 0.3


def test_roles_and_prefixes_of_names_say_what_a_column_refers_to(tmp_path: Path) -> None:
    random = Random(0)
    staff = pa.table(
        {
            "id": list(range(1, 91)),
            "name": [f"person {n}" for n in range(90)],
            "reports_to": [None] + [random.randint(1, 12) for _ in range(89)],
            "age": [random.randint(18, 65) for _ in range(90)],
        }
    )
    buyers = pa.table(
        {"c_custkey": list(range(1, 201)), "c_name": [f"buyer {n}" for n in range(200)]}
    )
    orders = pa.table(
        {
            "o_orderkey": list(range(1, 601)),
            "o_custkey": [random.randint(1, 200) for _ in range(600)],
            "o_priority": [random.randint(1, 5) for _ in range(600)],
        }
    )
    tables = {"employees": staff, "customer": buyers, "orders": orders}
    found = {
        (one.child_table, *one.child_columns): one
        for one in deepjoin.index(tables, tmp_path / "i").relations()
    }
    assert found.keys() >= {("employees", "reports_to"), ("orders", "o_custkey")}
    own, other = found["employees", "reports_to"], found["orders", "o_custkey"]
    assert (own.parent_table, own.parent_columns) == ("employees", ("id",))
    assert "a row of the same table" in own.evidence["name"]
    assert (other.parent_table, other.parent_columns) == ("customer", ("c_custkey",))
    assert "without the prefix that all names of a table have" in other.evidence["name"]
    assert ("employees", "age") not in found and ("orders", "o_priority") not in found


def test_a_key_finds_the_columns_that_refer_to_it(tmp_path: Path) -> None:
    numbers = [str(n) for n in range(1000, 1120)]
    tables = {
        "orders": {"order_id": numbers, "day": [f"day {n % 30}" for n in range(120)]},
        "invoices": {"invoice": [f"i{n}" for n in range(40)], "order_ref": numbers[:40]},
        "towns": {
            "town": [f"t{n}" for n in range(40)],
            "height": [str(990 + n) for n in range(40)],
        },
    }
    lake = deepjoin.index(tables, tmp_path / "i")
    query = lake.column("orders", "order_id")
    first, *others = lake.search(query, exclude_table="orders")
    assert (first.table, first.column) == ("invoices", "order_ref") and first.probability > 0.1
    assert all(hit.probability < first.probability for hit in others)


@pytest.mark.parametrize("seed", range(6))
def test_databases_made_up_hold_the_keys_they_say(tmp_path: Path, seed: int) -> None:
    file = tmp_path / f"made{seed}.sqlite"
    keys = make_database(file, seed)
    (tmp_path / "again").mkdir()
    assert make_database(tmp_path / "again" / file.name, seed) == keys and keys
    with closing(sqlite3.connect(file)) as database:

        def cells(table: str, column: str) -> list[object]:
            sql = f'SELECT "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL'
            return [cell for (cell,) in database.execute(sql)]

        for key in keys:
            assert key["db"] == file.stem
            parents = cells(key["ref_table"], key["ref_columns"])
            children = set(cells(key["table"], key["columns"]))
            assert len(parents) == len(set(parents)) and children <= set(parents)
            assert len(children) == int(key["distinct_child"])


def test_diagrams_name_the_types_of_columns(lake: Lake) -> None:
    found = lake.relations()
    assert (
        '"customer_id" integer' in found.to_dbml() and "integer customer_id" in found.to_mermaid()
    )


def test_an_accepted_relation_to_a_column_without_values_is_named(tmp_path: Path) -> None:
    lake = deepjoin.index({"a": {"x": ["p", "q"]}, "b": {"y": [None, None]}}, tmp_path / "i")
    lake.accept(("a", "x"), ("b", "y"))
    assert "Accepted, but a column is gone or has no values: a.x -> b.y" in lake.relations().notes


def test_the_diagram_is_sound_svg_with_every_table_and_relation(lake: Lake) -> None:
    found = lake.relations()
    drawn = lay_out(found.relations, found.keys)
    places = {box.table: box for box in drawn.tables}
    assert places.keys() >= {"orders", "customers", "statuses"}
    for one, line in zip(found, drawn.lines, strict=True):
        # Children stand to the right of their parents.
        assert places[one.child_table].x > places[one.parent_table].x
        assert one.child_table in line.text and line.path.startswith("M")
    boxes = list(places.values())
    for place, box in enumerate(boxes):
        assert box.x + box.width <= drawn.width and box.y + box.height <= drawn.height
        for other in boxes[place + 1 :]:
            apart = box.x + box.width <= other.x or other.x + other.width <= box.x
            assert apart or box.y + box.height <= other.y or other.y + other.height <= box.y
    root = ElementTree.fromstring(found.to_svg())
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"orders", "customer_id", "PK", "FK"} <= set(texts)


def link(child: str, parent: str, column: str = "id", cardinality: str = "n:1") -> Relation:
    ends = child, (column,), parent, (column,)
    return Relation(*ends, 0.9, 1.0, 0, cardinality, {})


def test_diagrams_of_circles_and_odd_names() -> None:
    circle = [link("a", "b"), link("b", "c"), link("c", "a"), link("a", "a", "x")]
    odd = [link('<b>&"\x00', "]]>", "\n<script>", "1:1")]
    root = ElementTree.fromstring(to_svg([*circle, *odd], [TableKey("alone", ("k",), 0.9)]))
    assert len(list(root.iter("{http://www.w3.org/2000/svg}clipPath"))) == 6
    many = [link(f"t{n}", "hub") for n in range(30)]
    assert lay_out(many, [], most=10).left_out == 21
    assert "21 tables with fewer" not in to_svg(many, [])
    assert ElementTree.fromstring(to_svg([], [])) is not None


def school(
    path: Path, lessons: Sequence[tuple[Any, ...]], rooms: Sequence[tuple[Any, ...]]
) -> Path:
    """Make rooms with a key of two columns, one of few values, and lessons held in them."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "CREATE TABLE room (building TEXT, room_number INTEGER, seats INTEGER, "
            "PRIMARY KEY (building, room_number))"
        )
        db.execute(
            "CREATE TABLE lesson (lesson_id INTEGER PRIMARY KEY, building TEXT, "
            "room_number INTEGER, FOREIGN KEY (building, room_number) "
            "REFERENCES room (building, room_number))"
        )
        db.executemany("INSERT INTO room VALUES (?, ?, ?)", rooms)
        db.executemany("INSERT INTO lesson VALUES (?, ?, ?)", lessons)
    return path


def test_a_foreign_key_of_several_columns_is_found_with_its_orphans(tmp_path: Path) -> None:
    rooms = [("AB"[n % 2], 100 + n // 2, 20 + n % 3) for n in range(24)]
    lessons = [(900 + n, *rooms[n % 20][:2]) for n in range(80)]
    # Each part is known, the two together are not; a missing part refers to nothing.
    lessons += [(990, "A", 999), (991, "C", 100), (992, None, 100)]
    source = str(school(tmp_path / "s.sqlite", lessons, rooms))
    lake = deepjoin.index(source, tmp_path / "i", vectors=NO_VECTORS)
    found = lake.relations()
    (one,) = [relation for relation in found if len(relation.child_columns) > 1]
    assert (one.child_table, one.parent_table) == ("lesson", "room")
    assert one.child_columns == one.parent_columns == ("building", "room_number")
    assert (one.orphans, one.cardinality, one.declared) == (2, "n:1", True)
    assert one.orphan_values == ("A + 999", "C + 100")
    assert one.containment == pytest.approx(20 / 22, abs=1e-6) and one.matched == 20
    assert not found.undetected
    assert ("room", ("building", "room_number")) in {(key.table, key.columns) for key in found.keys}
    assert 'FOREIGN KEY ("building", "room_number")' in found.to_sql()
    # An index of several segments, and one that was merged, has the same.
    lake.add({"other": ["a", "b", "c", "d", "e"]})
    lake.compact()
    again = [relation for relation in lake.relations() if len(relation.child_columns) > 1]
    assert [(*map(str, of.child_columns), of.orphans) for of in again] == [
        ("building", "room_number", 2)
    ]
    lake.reject(one)
    assert not [of for of in lake.relations() if len(of.child_columns) > 1]
    lake.accept(("lesson", ["room_number", "building"]), ("room", ["room_number", "building"]))
    (sure,) = [of for of in lake.relations() if len(of.child_columns) > 1]
    assert (sure.probability, sure.decided) == (1, "accepted")


def test_a_key_of_several_columns_that_was_not_found_can_be_accepted(tmp_path: Path) -> None:
    tables = {
        "a": {"p": [*"abcdefgh"], "q": [*"12345678"]},
        "b": {"x": [*"abcdefgh"], "y": [*"12345679"]},
    }
    lake = deepjoin.index(tables, tmp_path / "i", vectors=NO_VECTORS)
    assert not [of for of in lake.relations(least=0) if len(of.child_columns) > 1]
    lake.accept(("a", ["p", "q"]), ("b", ["x", "y"]))
    (one,) = [of for of in lake.relations() if len(of.child_columns) > 1]
    assert (one.matched, one.orphans, one.orphan_values) == (7, 1, ("h + 8",))


part = st.sampled_from(["a", "b", "c", None])


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(part, part, part), min_size=1, max_size=12),
    st.lists(st.tuples(part, part, part), min_size=1, max_size=12),
)
def test_tuples_are_compared_as_sets_are(
    tmp_path_factory: pytest.TempPathFactory, mine: list[Any], theirs: list[Any]
) -> None:
    def table(rows: list[Any]) -> dict[str, list[Any]]:
        return {name: [row[at] for row in rows] for at, name in enumerate("xyz")}

    tables = {"mine": table(mine), "theirs": table(theirs)}
    folder = tmp_path_factory.mktemp("tuples")
    lake = deepjoin.index(tables, folder / "i", vectors=NO_VECTORS)
    finder = RelationFinder(lake.index)
    numbers = [finder._key(name, "xyz") for name in ("mine", "theirs")]
    if not all(numbers):
        return  # a column of missing cells alone is not stored
    pair = finder.key_finder.measured(list(zip(*numbers, strict=True)))
    whole, held = ([row for row in rows if None not in row] for rows in (mine, theirs))
    assert (pair.child_rows, pair.child_size) == (len(whole), len(set(whole)))
    assert (pair.parent_rows, pair.parent_size) == (len(held), len(set(held)))
    assert pair.matched == len(set(whole) & set(held))
    assert pair.orphans == sum(row not in held for row in whole)


@given(st.lists(st.text(max_size=12) | st.text(st.characters(max_codepoint=127), max_size=12)))
def test_letters_of_many_names_are_those_of_each(given_names: list[str]) -> None:
    joined = ["".join(names.key_words(name)) for name in given_names]
    one_by_one = [np.frombuffer(names._word_bits(word), "<u8").tolist() for word in joined]
    assert letters_of(given_names).tolist() == one_by_one


def test_pairs_are_kept_and_only_new_columns_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relations_module, "_WORTH_SAVING", -1.0)
    monkeypatch.setattr("deepjoin.build.update.worth_merging", lambda sizes, shares: len(sizes))
    source = tmp_path / "data"
    source.mkdir()

    def write(name: str, start: int) -> None:
        rows = "\n".join(f"{n},{n % 7}" for n in range(start, start + 30))
        (source / f"{name}.csv").write_text(f"code,group\n{rows}\n")

    def compared(lake: Lake) -> tuple[set[tuple[Any, ...]], int]:
        finder = RelationFinder(lake.index)
        joins: list[SelfJoin] = []

        def counted(*given: Any) -> SelfJoin:
            joins.append(SelfJoin(*given))
            return joins[-1]

        monkeypatch.setattr(relations_module, "SelfJoin", counted)
        pairs, _ = finder.candidates()
        rows = zip(*(of.tolist() for of in pairs), strict=True)
        named = {(finder.place(a), finder.place(b), matched) for a, b, matched in rows}
        return named, int(joins[0].new.sum())

    for place, name in enumerate("abcefghijklm"):
        write(name, 3 * place)
    lake = deepjoin.index(source, vectors=NO_VECTORS)
    first, whole = compared(lake)
    again, none = compared(lake)
    assert first == again and whole == 24 and none == 0
    write("b", 12)
    write("d", 3)
    lake.refresh()
    assert len(lake.index.segments) == 2
    changed, new = compared(lake)
    assert new == 4
    fresh = deepjoin.index(source, tmp_path / "fresh", vectors=NO_VECTORS)
    assert changed == compared(fresh)[0]
    # Damage is found out, and everything is compared again.
    path = lake.path / RELATION_PAIRS
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    named, count = compared(lake)
    assert named == changed and count > 4
    assert lake.check()


def test_wide_tables_of_row_numbers_are_cut_and_names_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every column holds every other; of each, few parents are weighed, those of its name too."""
    monkeypatch.setattr(relations_module, "_WEIGHED", 1000)
    numbers = [str(n) for n in range(1, 31)]
    wide = {f"c{n}": numbers for n in range(60)}
    tables = {"wide": wide | {"customer_id": numbers}, "customer": {"customer_id": numbers}}
    lake = deepjoin.index(tables, tmp_path / "i", vectors=NO_VECTORS)
    found = lake.relations()
    assert any("pairs of columns were not weighed" in note for note in found.notes)
    assert ("wide", "customer_id", "customer", "customer_id") in ends(lake.relations(least=0))


def test_long_lists_are_printed_in_parts(
    lake: Lake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    count = len(lake.relations(least=0.01))
    main(["relations", str(lake.path), "--least", "0.01"])
    whole = capsys.readouterr().out
    monkeypatch.setattr("deepjoin.cli.relations._LINES", 1)
    main(["relations", str(lake.path), "--least", "0.01"])
    parts = capsys.readouterr().out
    assert (whole.count("chance  child"), parts.count("chance  child")) == (1, count)
    assert count > 1

    def words(text: str) -> set[str]:
        return {" ".join(line.split()) for line in text.splitlines()}

    assert words(whole) == words(parts)


def test_tables_that_cannot_be_read_are_named_and_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "shop.sqlite"
    with closing(sqlite3.connect(file)) as database:
        database.executescript(
            """CREATE TABLE maker (maker_id TEXT PRIMARY KEY);
            CREATE TABLE part (part_id TEXT PRIMARY KEY, maker_id TEXT REFERENCES maker);
            CREATE VIRTUAL TABLE text USING fts5 (body);
            CREATE TABLE gone (x TEXT);
            CREATE VIEW broken AS SELECT x FROM gone;
            CREATE VIEW whole AS SELECT maker_id FROM part;
            DROP TABLE gone;"""
        )
        makers = [f"m{n}" for n in range(9)]
        database.executemany("INSERT INTO maker VALUES (?)", [(one,) for one in makers])
        parts = [(f"p{n}", makers[n % 8]) for n in range(40)]
        database.executemany("INSERT INTO part VALUES (?, ?)", parts)
        database.commit()
        # As if another program had made a table with a module of its own.
        database.execute("PRAGMA writable_schema = 1")
        database.execute(
            "UPDATE sqlite_master SET sql = replace(sql, 'fts5', 'missing') WHERE name = 'text'"
        )
        database.commit()
    assert main(["relations", str(file), "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert "broken" in err and "no such module: missing" in err
    found = {
        (one["child_table"], one["parent_table"]): one["declared"]
        for one in json.loads(out)["relations"]
    }
    assert found["part", "maker"] is True
    assert "Constraints" not in err


def test_tables_that_a_role_may_not_read_are_named_and_passed_over(
    postgres_uri: str, tmp_path: Path
) -> None:
    execute(
        postgres_uri,
        "CREATE TABLE maker (maker_id text PRIMARY KEY)",
        "CREATE TABLE part (part_id text, maker_id text REFERENCES maker)",
        "CREATE TABLE secret (secret_id text, maker_id text REFERENCES maker)",
        "INSERT INTO maker SELECT 'm' || i FROM generate_series(1, 9) i",
        "INSERT INTO part SELECT 'p' || i, 'm' || 1 + i % 9 FROM generate_series(1, 40) i",
        "INSERT INTO secret SELECT 's' || i, 'm' || 1 + i % 9 FROM generate_series(1, 40) i",
        "DROP ROLE IF EXISTS reader",
        "CREATE ROLE reader LOGIN",
        "GRANT SELECT ON maker, part TO reader",
    )
    try:
        lake = deepjoin.index(postgres_uri.replace("//postgres:", "//reader:"), tmp_path / "i")
        assert list(lake.tables) == ["public.maker", "public.part"]
        assert "no permission" in str(lake.info())
        (found,) = lake.relations()
        ends = found.child_table, found.parent_table, found.declared
        assert ends == ("public.part", "public.maker", True)
    finally:
        execute(postgres_uri, "DROP OWNED BY reader", "DROP ROLE reader")
