"""The join as SQL, run in real databases and compared with the join that deepjoin makes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deepjoin.errors import DeepJoinError, UnknownName
from deepjoin.joining import JoinSide, plan_join
from deepjoin.joining.database_sql import MOST_SPELLINGS, database_sql
from deepjoin.matching.values import SemanticMatching
from deepjoin.read.frames import frame_table
from deepjoin.settings import AGGREGATES, JoinSettings
from tests.support.join_tables import Dial
from tests.support.postgres import execute
from tests.support.shops import (
    Shop,
    check,
    run_in_postgres,
    run_in_sqlite,
)

UGLY = [
    *("France", "FRANCE ", " france", "FRANCE", "7", "7.0", "+7", "007", "7.50", ".5", "0.5"),
    *("2020-01-05", "5 Jan 2020", "2020/1/5", "2020-01-05 00:00:00", "January 5, 2020"),
    *("Île  de France", "ÎLE DE FRANCE", "île\tde france", "ﬁsh", "FISH", "Straße", "STRASSE"),
    *("İzmir", "izmir", "ΣΊΣΥΦΟΣ", "σίσυφος", "x\u00a0y", "X Y", "it's", 'say "hi"', "a\\b", "%s"),
    *("", "  ", "nan", "-0", "0", "1e5", "100000", "１２", "12"),
]


def make_ugly(shop: Shop) -> None:
    cells = [(at, cell, f"n{at % 3}") for at, cell in enumerate(UGLY)]
    shop.make("yours", "id integer, cell text, name text", [*cells, (99, None, "none")])
    cells = [(f"r{at}", cell, at * 0.5) for at, cell in enumerate([*UGLY[::2], *UGLY[::3]])]
    columns = '"Name" text, "the key" text, score double precision'
    if shop.source.database.dialect == "duckdb":
        columns = columns.replace("double precision", "double")
    shop.make("theirs", columns, [*cells, ("r", None, None)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "many", "profile"),
    [
        ("left", "expand", "default"),
        ("inner", "first", "default"),
        ("left", "aggregate", "default"),
        ("left", "first", "basic"),
    ],
)
def test_ugly_keys_join_as_they_do_in_deepjoin(
    shop: Shop, how: str, many: str, profile: str
) -> None:
    make_ugly(shop)
    left, right = shop.side("yours", "cell"), shop.side("theirs", "the key")
    if many == "aggregate" and shop.source.database.dialect == "sqlite":
        refused(shop, left, right, 'no aggregate for list .* Use `many="first"`', many=many)
    else:
        check(shop, left, right, how=how, many=many, profile=profile)


TYPED = {
    "integer": [1, 7, 7, None, 100000],
    "numeric(10, 2)": [1, 7.5, 0.5, 7, None],
    "boolean": ["true", "false", None, "true"],
    "date": ["2020-01-05", "2020-01-06", None],
    "timestamp": ["2020-01-05 00:00:00", "2020-01-05 10:00:00.5", None],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", TYPED)
@pytest.mark.parametrize("shop", ["postgresql", "sqlite"], indirect=True)
def test_typed_keys_join_text(shop: Shop, kind: str) -> None:
    cells = [(cell,) for cell in TYPED[kind]]
    if shop.source.database.dialect == "sqlite" and kind.startswith("numeric"):
        cells = cells[1:3]
    shop.make("theirs", f"id {kind}", cells)
    shop.make("yours", "cell text, n integer", [(cell, at) for at, cell in enumerate(UGLY)])
    check(shop, shop.side("yours", "cell"), shop.side("theirs", "id"))
    check(shop, shop.side("theirs", "id"), shop.side("yours", "cell"), many="first")


@pytest.mark.slow
def test_columns_of_text_that_are_numbers_and_dates_are_cast(shop: Shop) -> None:
    shop.make("yours", "k text, n text, d text", [("a", "1", "2020-01-05"), ("b", " ", None)])
    shop.make("theirs", "k text, x text", [("A", "1.50"), ("a ", "2"), ("c", "")])
    for many in ("expand", "first"):
        check(shop, shop.side("yours", "k"), shop.side("theirs", "k"), many=many)
    if shop.source.database.dialect != "sqlite":
        check(shop, shop.side("theirs", "k"), shop.side("yours", "k"), many="aggregate")


@pytest.mark.slow
@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_aggregates_are_those_of_deepjoin(shop: Shop, aggregate: str) -> None:
    kind = "double" if shop.source.database.dialect == "duckdb" else "double precision"
    shop.make("yours", "k text", [("a",), ("B",), ("c",)])
    cells = [("A", "x", 1, 0.5), ("a", " É", 2, None), ("b", "", 3, 2.5), ("a", "X", None, 0.25)]
    shop.make("theirs", f"k text, word text, n integer, f {kind}", cells)
    left, right = shop.side("yours", "k"), shop.side("theirs", "k")
    chosen = JoinSettings(
        aggregate=aggregate, columns=["word", "n"] + ["f"] * (aggregate != "list")
    )
    if shop.source.database.dialect == "sqlite" and aggregate in ("first", "list"):
        refused(shop, left, right, f"no aggregate for {aggregate} ", settings=chosen)
    elif shop.source.database.dialect == "sqlite" and aggregate in ("sum", "mean"):
        check(shop, left, right, settings=replace(chosen, columns=["n", "f"]))
    else:
        check(shop, left, right, settings=chosen)


@pytest.mark.slow
def test_chosen_columns_and_alternatives(shop: Shop) -> None:
    shop.make("yours", "k text", [("10",), ("20",), ("50",)])
    shop.make("theirs", "k text, n integer", [("10a", 1), ("10b", 2), ("20b", 3)])
    sides = shop.side("yours", "k"), shop.side("theirs", "k")
    statement = check(
        shop, *sides, settings=JoinSettings(columns=["n"]), semantic=SemanticMatching(Dial())
    )
    assert "'10b'" in statement


@pytest.mark.slow
@pytest.mark.parametrize("shop", ["postgresql", "duckdb"], indirect=True)
def test_long_lists_of_values_are_cut_alike(shop: Shop) -> None:
    shop.make("yours", "k text", [("a",)])
    shop.make("theirs", "k text, x text, n integer", [("a", f" é{n}", n) for n in range(30)])
    check(shop, shop.side("yours", "k"), shop.side("theirs", "k"), many="aggregate")


@pytest.mark.slow
def test_blank_names_of_columns(shop: Shop) -> None:
    shop.make("yours", 'cell text, " " integer', [("France", 1), ("Peru", 2)])
    shop.make("theirs", '"the key" text, " " integer', [("Peru", 20), ("France", 10)])
    check(shop, shop.side("yours", "cell"), shop.side("theirs", "the key"))


def test_a_table_from_elsewhere_has_a_placeholder(shop: Shop) -> None:
    make_ugly(shop)
    mine = {"cell": UGLY, "id": [str(at) for at in range(len(UGLY))]}
    shop.make("uploaded", "cell text, id text", list(zip(*mine.values(), strict=True)))
    left = JoinSide(frame_table(mine, "my\nfile.csv"), "cell")
    statement = check(shop, left, shop.side("theirs", "the key"), named="")
    first, second, third = statement.splitlines()[:3]
    assert first.startswith("-- my file.csv joined with ")
    assert second == ('-- Put the name of your table, its cells as text, in place of "your_table".')
    assert third.startswith("WITH ")


@pytest.mark.slow
def test_unknown_left_tables_are_reported(shop: Shop) -> None:
    make_ugly(shop)
    plan = plan_join(shop.side("yours", "cell"), shop.side("theirs", "the key"))
    with plan, pytest.raises(UnknownName, match="No table 'nowhere'"):
        database_sql(plan, shop.source, "nowhere")


def refused(shop: Shop, left: JoinSide, right: JoinSide, says: str, **options: Any) -> None:
    plan = plan_join(left, right, **options)
    with plan, pytest.raises(DeepJoinError, match=says) as caught:
        database_sql(plan, shop.source, left.table.name)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_what_sqlite_cannot_say_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    run_in_sqlite(path)("CREATE TABLE other (x)")
    shop = Shop(str(path), "", run_in_sqlite(path))
    many = [(f"É{n}",) for n in range(MOST_SPELLINGS + 1)]
    shop.make("a", "k text", many)
    shop.make("b", "k text", [(cell.lower(),) for (cell,) in many])
    shop.make("fractions", "k text, x", [("a", 0.5), ("b", "text")])
    shop.make("floats", "k real", [(0.1234567890123456,), (1e300,)])
    a, b = shop.side("a", "k"), shop.side("b", "k")
    refused(shop, a, b, r"1,001 keys of a have spellings that SQLite cannot bring together\. Run")
    refused(shop, a, shop.side("fractions", "k"), "column 'x' of fractions mixes text and fract")
    refused(shop, a, shop.side("floats", "k"), "SQLite writes .* keys of floats differently than")


def test_what_postgres_cannot_say_is_refused(postgres_uri: str) -> None:
    shop = Shop(postgres_uri, "public.", run_in_postgres(postgres_uri))
    shop.make("a", "k text, f double precision", [("a", 0.5), ("b", 1e20)])
    execute(postgres_uri, "CREATE VIEW v AS SELECT * FROM a")
    a, v = shop.side("a", "k"), shop.side("v", "k")
    refused(shop, a, v, 'public.v has no order, .* Use `many="aggregate"`', many="first")
    check(shop, a, v, many="aggregate")
    floats = shop.side("a", "f")
    chosen = JoinSettings(aggregate="list", columns=["f"])
    refused(shop, a, floats, "floating point numbers differently", settings=chosen)
    refused(shop, a, floats, "PostgreSQL writes .* keys of public.a differently than deepjoin")


def test_keys_that_have_changed_since_the_plan_are_noticed(postgres_uri: str) -> None:
    shop = Shop(postgres_uri, "public.", run_in_postgres(postgres_uri))
    make_ugly(shop)
    left, right = shop.side("yours", "cell"), shop.side("theirs", "the key")
    with plan_join(left, right) as plan:
        shop.run(
            "DELETE FROM theirs WHERE \"the key\" = 'France'; INSERT INTO theirs VALUES ('', 'new')"
        )
        with pytest.raises(DeepJoinError, match=r"or they have changed \('new'\)"):
            database_sql(plan, shop.source, "public.yours")


@pytest.mark.slow
def test_other_dialects_are_refused(shop: Shop) -> None:
    make_ugly(shop)
    with plan_join(shop.side("yours", "cell"), shop.side("theirs", "the key")) as plan:
        shop.source.database.dialect = "mysql"  # type: ignore[misc]
        with pytest.raises(DeepJoinError, match="for mysql, only for PostgreSQL, SQLite, DuckDB"):
            database_sql(plan, shop.source)
