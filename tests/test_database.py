"""SQLite and DuckDB files, and SQLAlchemy, as sources of tables; addresses and their secrets."""

from __future__ import annotations

import datetime
import os
import sqlite3
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import closing, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import deepjoin
from deepjoin.errors import DeepJoinError, MissingExtra, UnknownName, UnreadableTable, first_line
from deepjoin.joining import JoinSide, plan_join
from deepjoin.joining.database_sql import database_sql
from deepjoin.model import Table
from deepjoin.normalise.cells import REPAIRED_NOTE, as_strings
from deepjoin.read import Source
from deepjoin.read.database import (
    DatabaseSource,
    duckdb_file,
    is_database,
    relation,
    reopen,
    shown,
    sqlite,
)
from deepjoin.read.database.relation import Batcher, as_text
from deepjoin.read.database.sqlalchemy_engine import SqlalchemyDatabase
from deepjoin.read.database.url import Address, dialect_of, from_environment
from deepjoin.read.source import Skipped
from deepjoin.read.sql import check_version_query
from deepjoin.settings import Settings, Vectors

Execute = Callable[..., None]
ODD_NAMES = ['say "hi"', "a.b", "a'b; DROP TABLE x", "Größe %s {x}", "select", " ", "x" * 10_000]


def age(path: Path) -> None:
    """Make a file a minute older, for one changed just now has no stamp."""
    for file in path.parent.glob(f"{path.name}*"):
        status = file.stat()
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns - 60_000_000_000))


def run_sqlite(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)
    age(path)


def run_duckdb(path: Path, *statements: str) -> None:
    with duckdb.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    age(path)


@pytest.fixture(params=["sqlite", "duckdb", "sqlalchemy"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Execute, str]:
    """Make a small database of each kind: its address, how to write to it, its schema's prefix."""
    path = tmp_path / "shop 100%.db"
    run = run_duckdb if request.param == "duckdb" else run_sqlite
    run(
        path,
        "CREATE TABLE orders (id INTEGER, customer VARCHAR, total DOUBLE)",
        "INSERT INTO orders VALUES (1, 'Ann', 2.5), (2, 'Bob', NULL), (3, NULL, 4.0)",
        "CREATE TABLE empties (id INTEGER, name VARCHAR)",
        "CREATE VIEW big_orders AS SELECT id FROM orders WHERE total > 3",
    )
    scheme = {"sqlalchemy": "sqlite+pysqlite"}.get(request.param, request.param)
    prefix = "main." if request.param == "duckdb" else ""
    return f"{scheme}:///{path}", lambda *sql: run(path, *sql), prefix


def rows(table: Table) -> list[dict[str, Any]]:
    return [row for batch in table.open() for row in batch.to_pylist()]


def listed(source: DatabaseSource, name: str) -> Table:
    return next(table for table in source.tables() if table.name == name)


def stamps(source: DatabaseSource) -> dict[str, str]:
    return {item.name: item.stamp for item in source.items()}


def digests(source: DatabaseSource) -> dict[str, str]:
    return {item.name: item.digest() for item in source.items() if item.digest}


@pytest.mark.slow
def test_tables_and_views_are_items_in_the_order_of_their_names(
    shop: tuple[str, Execute, str],
) -> None:
    url, _, prefix = shop
    source = DatabaseSource(url)
    assert isinstance(source, Source)
    names = [f"{prefix}{name}" for name in ("big_orders", "empties", "orders")]
    assert [item.name for item in source.items()] == names
    assert [table.name for table in source.tables()] == names
    table = source.table(f"{prefix}orders")
    assert rows(table) == [
        {"id": 1, "customer": "Ann", "total": 2.5},
        {"id": 2, "customer": "Bob", "total": None},
        {"id": 3, "customer": None, "total": 4.0},
    ]
    assert rows(source.table(f"{prefix}big_orders")) == [{"id": 3}]
    assert table.title == "orders"
    assert table.context == prefix.removesuffix(".")


def test_tables_without_rows_still_have_columns(shop: tuple[str, Execute, str]) -> None:
    url, _, prefix = shop
    (batch,) = DatabaseSource(url).table(f"{prefix}empties").open()
    assert (batch.num_rows, batch.schema.names) == (0, ["id", "name"])


@pytest.mark.parametrize(
    ("include", "exclude", "names"),
    [
        (("*orders",), (), ["big_orders", "orders"]),
        ((), ("big_*", "empties"), ["orders"]),
        (("orders", "empties"), ("empties",), ["orders"]),
    ],
)
def test_patterns_choose_tables(
    shop: tuple[str, Execute, str],
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    names: list[str],
) -> None:
    url, _, prefix = shop
    source = DatabaseSource(url, Settings(include=include, exclude=exclude))
    assert [table.name for table in source.tables()] == [prefix + name for name in names]


def test_unknown_tables_are_named_with_the_nearest(shop: tuple[str, Execute, str]) -> None:
    url, _, prefix = shop
    with pytest.raises(UnknownName, match=f"No table 'oders' in .*Did you mean '{prefix}orders'"):
        DatabaseSource(url).table("oders")


def test_only_the_first_rows_are_read_where_a_sample_is_asked_for(
    shop: tuple[str, Execute, str],
) -> None:
    url, _, prefix = shop
    source = DatabaseSource(url, Settings(sample_rows=2))
    reading = listed(source, f"{prefix}orders").open()
    assert [row["id"] for batch in reading for row in batch.to_pylist()] == [1, 2]
    assert len(reading.notes) == 1
    assert reading.notes[0].startswith("Only the first 2 rows")
    assert len(rows(source.table(f"{prefix}orders"))) == 3
    whole = listed(DatabaseSource(url, Settings(sample_rows=3)), f"{prefix}orders").open()
    assert sum(batch.num_rows for batch in whole) == 3
    assert whole.notes == []


def test_a_table_dropped_after_the_listing_is_unreadable(shop: tuple[str, Execute, str]) -> None:
    url, execute, prefix = shop
    table = DatabaseSource(url).table(f"{prefix}empties")
    execute("DROP TABLE empties")
    assert "empties" not in "".join(digests(DatabaseSource(url)))
    with pytest.raises(UnreadableTable, match=r"empties (is no longer|cannot be read)") as caught:
        rows(table)
    assert "\n" not in str(caught.value)


def test_an_altered_table_is_read_as_it_is_now(shop: tuple[str, Execute, str]) -> None:
    url, execute, prefix = shop
    table = DatabaseSource(url).table(f"{prefix}empties")
    execute(
        "ALTER TABLE empties ADD COLUMN extra INTEGER", "INSERT INTO empties VALUES (1, 'a', 2)"
    )
    assert rows(table) == [{"id": 1, "name": "a", "extra": 2}]


def test_a_broken_view_is_unreadable(shop: tuple[str, Execute, str]) -> None:
    url, execute, prefix = shop
    source = DatabaseSource(url)
    table = source.table(f"{prefix}big_orders")
    execute("DROP TABLE orders")
    with pytest.raises(UnreadableTable, match=r"big_orders cannot be read: .*orders|big_orders is"):
        rows(table)
    assert f"{prefix}big_orders" in stamps(source)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_stamps_and_digests_notice_updates_that_keep_the_count(kind: str, tmp_path: Path) -> None:
    path, run = tmp_path / "a.db", run_duckdb if kind == "duckdb" else run_sqlite
    run(path, "CREATE TABLE a (x INTEGER)", "INSERT INTO a VALUES (1)", "CREATE TABLE b (x TEXT)")
    source = DatabaseSource(str(path))
    before, sums = stamps(source), digests(source)
    assert (before, sums) == (stamps(source), digests(source))
    assert all(before.values())
    run(path, "UPDATE a SET x = 2")
    after, changed = stamps(source), digests(source)
    assert all(before[name] != after[name] for name in before)
    assert [name for name in sums if sums[name] != changed[name]] == [next(iter(before))]


def test_changes_in_the_write_ahead_log_of_sqlite_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        writer.execute("CREATE TABLE a (x)")
        writer.commit()
        source = DatabaseSource(str(path))
        assert stamps(source) == {"a": ""}
        age(path)
        before = stamps(source)
        assert before == stamps(source) != {"a": ""}
        writer.execute("INSERT INTO a VALUES (1)")
        writer.commit()
        assert stamps(source) == {"a": ""}
        age(path)
        assert stamps(source) != before
        assert rows(source.table("a")) == [{"x": 1}]


def test_views_have_no_stamp(tmp_path: Path) -> None:
    run_sqlite(tmp_path / "a.db", "CREATE VIEW v AS SELECT 1 AS x")
    (item,) = DatabaseSource(str(tmp_path / "a.db")).items()
    assert (item.stamp, item.digest) == ("", None)


def test_a_version_query_replaces_the_stamp(shop: tuple[str, Execute, str]) -> None:
    url, execute, prefix = shop
    source = DatabaseSource(url, Settings(version_query="SELECT max(total), count(*) FROM {table}"))
    before = stamps(source)
    orders = {item.name: item for item in source.items()}[f"{prefix}orders"]
    assert "(4.0, 3)" in orders.stamp
    assert orders.digest is None
    execute("UPDATE orders SET total = 9 WHERE id = 3")
    after = stamps(source)
    assert {name for name in before if before[name] != after[name]} >= {f"{prefix}orders"}


def test_a_version_query_that_fails_is_noted(shop: tuple[str, Execute, str]) -> None:
    url, _, prefix = shop
    source = DatabaseSource(url, Settings(version_query="SELECT max(total) FROM {table}"))
    items = {item.name: item for item in source.items()}
    own = stamps(DatabaseSource(url))
    assert items[f"{prefix}empties"].stamp == own[f"{prefix}empties"]
    (table,) = items[f"{prefix}empties"].listing().tables
    start = "The version query failed, so the database's own stamp serves; it said: "
    assert table.open().notes[0].startswith(start)
    assert items[f"{prefix}orders"].listing().tables[0].open().notes == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM orders",
        "CREATE TABLE x AS SELECT 1 AS a",
        "COMMIT; DELETE FROM orders",
        "SELECT 1; DELETE FROM orders",
    ],
)
def test_nothing_is_ever_written(shop: tuple[str, Execute, str], statement: str) -> None:
    url, _, prefix = shop
    source = DatabaseSource(url)
    with suppress(DeepJoinError), source.database.session() as ask:
        ask(statement)
    assert len(rows(source.table(f"{prefix}orders"))) == 3
    assert len(source.relations()) == 3


@pytest.mark.parametrize(
    "query",
    [
        "COMMIT; DELETE FROM orders",
        "SELECT 1; SELECT 2",
        "DELETE FROM {table}",
        "WITH d AS (DELETE FROM {table} RETURNING 1) SELECT * FROM d",
        "SELECT * INTO OUTFILE '/tmp/x' FROM {table}",
        "SELECT 1 /* one */ DELETE FROM {table}",
        "PRAGMA writable_schema = 1",
        "ATTACH 'other.db' AS other",
        # In MySQL these are code.
        "SELECT 1 /*!50000 INTO OUTFILE '/tmp/x' */",
        r"SELECT '\'', 1 INTO OUTFILE '/tmp/x' -- '",
        "SELECT 1--1 INTO OUTFILE '/tmp/x'",
        "SELECT 1 # '\n INTO OUTFILE 'x' # '",
        "SELECT 1 SHUTDOWN",
        # A table may be called `' || anything() || '`.
        "SELECT at FROM log WHERE name = '{table}'",
    ],
)
def test_version_queries_read(query: str, shop: tuple[str, Execute, str]) -> None:
    with pytest.raises(DeepJoinError, match="it must be one SELECT that writes nothing, such as"):
        DatabaseSource(shop[0], Settings(version_query=query))


@pytest.mark.parametrize(
    "query",
    [
        'SELECT max("delete") FROM {table}; ',
        "-- when;\nSELECT ';' || 'it''s; DELETE' FROM {table}",
        "WITH last AS (SELECT max(updated_at) AS at FROM {table}) SELECT at FROM last",
    ],
)
def test_quoted_words_do_not_count_in_version_queries(query: str) -> None:
    check_version_query(query)


@pytest.mark.parametrize("dialect", ["sqlite", "duckdb"])
@pytest.mark.parametrize("shown", ["x", "count(*)"])
def test_a_view_of_a_file_that_never_ends_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dialect: str, shown: str
) -> None:
    monkeypatch.setattr(relation, "VIEW_SECONDS", 0.3)
    numbers = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
    if dialect == "duckdb":
        numbers = "WITH n(x) AS (SELECT a.range + b.range FROM range(1000000) a, range(1000000) b)"
    path = tmp_path / "a.db"
    made = ("CREATE TABLE t AS SELECT 1 AS x", f"CREATE VIEW v AS {numbers} SELECT {shown} FROM n")
    if dialect == "duckdb":
        run_duckdb(path, *made)
    else:
        with closing(sqlite3.connect(path)) as connection:
            for statement in made:
                connection.execute(statement)
    source = DatabaseSource(str(path))
    *_, view = source.relations()
    match = (
        rf"^{view} cannot be read: the view took longer than 0\.3 s; leave it out with `exclude`"
    )
    with pytest.raises(UnreadableTable, match=match) as caught:
        for _ in source.table(view).open():
            pass
    assert caught.value.passing
    assert rows(source.table(view.replace("v", "t"))) == [{"x": 1}]


def test_views_of_a_duckdb_file_read_no_other_file(tmp_path: Path) -> None:
    path, secret = tmp_path / "a.db", tmp_path / "secret.csv"
    secret.write_text("word\nhidden\n")
    run_duckdb(
        path,
        "CREATE TABLE t AS SELECT 1 AS x",
        f"CREATE VIEW v AS SELECT * FROM read_csv('{secret}')",
    )
    source = DatabaseSource(str(path))
    with pytest.raises(UnreadableTable, match="may read its own tables only, no files or exten"):
        rows(source.table("main.v"))
    assert rows(source.table("main.t")) == [{"x": 1}]
    with source.database.session() as ask:
        for statement in (
            f"COPY (SELECT 1) TO '{tmp_path / 'out.csv'}'",
            f"SELECT * FROM read_text('{secret}')",
            "SET enable_external_access = true",
            f"ATTACH '{tmp_path / 'other.db'}'",
            "SELECT 1; SELECT 2",
        ):
            with pytest.raises(DeepJoinError):
                ask(statement)
    assert {entry.name for entry in tmp_path.iterdir()} == {"a.db", "secret.csv"}


def test_describe_and_reopen_follow_the_index_folder(
    shop: tuple[str, Execute, str], tmp_path: Path
) -> None:
    url, _, prefix = shop
    index = tmp_path / "deep" / "index"
    described = DatabaseSource(url, Settings(version_query="SELECT 1")).describe(index)
    assert set(described) == {"kind", "url"}
    assert described["kind"] == "database"
    assert described["url"].endswith(":///../../shop 100%.db")
    again = reopen(described, index, Settings(sample_rows=1, version_query="SELECT 1"))
    assert again.settings.version_query == "SELECT 1"
    assert len(rows(listed(again, f"{prefix}orders"))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "sqlite+pysqlite"])
@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_survive(kind: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.db"
    quoted = '"' + name.replace('"', '""') + '"'
    run = run_duckdb if kind == "duckdb" else run_sqlite
    run(path, f"CREATE TABLE {quoted} ({quoted} INTEGER)", f"INSERT INTO {quoted} VALUES (7)")
    source = DatabaseSource(f"{kind}:///{path}")
    (table,) = source.tables()
    (batch,) = source.table(table.name).open()
    assert batch.to_pydict() == {name if name.strip() else "column_1": [7]}
    assert name in table.name.replace('""', '"')


def test_names_that_dots_make_ambiguous_are_quoted(tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    run_duckdb(
        path,
        'CREATE SCHEMA "a.b"',
        "CREATE SCHEMA a",
        'CREATE TABLE "a.b".c (x INTEGER)',
        'CREATE TABLE a."b.c" (y INTEGER)',
    )
    source = DatabaseSource(str(path))
    assert list(source.relations()) == ['"a.b".c', 'a."b.c"']
    (batch,) = source.table('a."b.c"').open()
    assert batch.schema.names == ["y"]


def test_a_schema_named_like_its_duckdb_file_is_no_hindrance(tmp_path: Path) -> None:
    path = tmp_path / "sales.duckdb"
    run_duckdb(path, "CREATE SCHEMA sales", "CREATE TABLE sales.sales.t AS SELECT 7 AS x")
    assert rows(DatabaseSource(str(path)).table("sales.t")) == [{"x": 7}]


def test_duckdb_types_comments_and_blobs(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    run_duckdb(
        path,
        """CREATE TABLE t AS SELECT 1::TINYINT AS small, 7::HUGEINT AS huge,
        1.5::DECIMAL(5, 2) AS d,
        DATE '2020-01-05' AS day, TIMESTAMPTZ '2020-01-05 10:00:00+02' AS moment, [1, 2] AS list,
        {'a': 1} AS struct, 'x'::ENUM('x') AS mood, '\\x01'::BLOB AS raw, INTERVAL 1 DAY AS span,
        '6e5792f5-8d2a-4289-a3e9-8b959c7b7e61'::UUID AS id, '{"a":1}'::JSON AS json""",
        "COMMENT ON TABLE t IS 'Every  type'",
        "COMMENT ON COLUMN t.small IS 'a small one'",
    )
    table = DatabaseSource(str(path)).table("main.t")
    assert (table.title, table.context) == ("Every type", "main. small: a small one")
    (batch,) = table.open()
    texts = {name: as_strings(batch[name]) for name in batch.schema.names}
    assert {name: cells and cells.to_pylist()[0] for name, cells in texts.items()} == {
        **{"small": "1", "huge": "7", "d": "1.50", "day": "2020-01-05", "list": "[1, 2]"},
        **{"moment": "2020-01-05 08:00:00Z", "struct": "{'a': 1}", "mood": "x", "raw": None},
        **{"span": "1 day", "id": "6e5792f5-8d2a-4289-a3e9-8b959c7b7e61", "json": '{"a":1}'},
    }
    assert batch.schema.field("d").type == pa.decimal128(5, 2)


def test_a_duckdb_file_open_for_writing_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    with duckdb.connect(path), pytest.raises(DeepJoinError, match="Close it where it is open"):
        list(DatabaseSource(str(path)).items())


def test_sqlite_types_follow_the_cells(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "CREATE TABLE t (i INTEGER, r REAL, n DECIMAL(9, 2), m, b BLOB, d DATE, e TEXT, big)"
        )
        cells = [
            (1, 1.5, 2, 7, b"\x00", "2020-01-05", None, 2**60),
            (None, 2.0, 2.5, "seven", None, "2020-01-06", None, 0.5),
        ]
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?, ?)", cells)
    (batch,) = DatabaseSource(str(path)).table("t").open()
    kinds = [pa.int64(), pa.float64(), pa.float64(), pa.string(), pa.binary(), pa.string()]
    assert batch.schema.types == [*kinds, pa.string(), pa.string()]
    assert batch["m"].to_pylist() == ["7", "seven"]
    assert batch["big"].to_pylist() == ["1152921504606846976", "0.5"]


def test_sqlite_text_that_is_not_utf8_is_mended(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    run_sqlite(
        path,
        "CREATE TABLE t (x TEXT)",
        "INSERT INTO t VALUES ('a'), (CAST(X'FF41' AS TEXT)), ('c')",
    )
    reading = DatabaseSource(str(path)).table("t").open()
    assert [cell for batch in reading for cell in batch["x"].to_pylist()] == ["a", "�A", "c"]
    assert reading.notes == [REPAIRED_NOTE]


def test_the_tables_behind_a_virtual_one_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    run_sqlite(
        path, "CREATE VIRTUAL TABLE docs USING fts5(body)", "INSERT INTO docs VALUES ('hello')"
    )
    source = DatabaseSource(str(path))
    assert list(source.relations()) == ["docs"]
    assert rows(source.table("docs")) == [{"body": "hello"}]


def test_a_damaged_file_is_reported_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(b"SQLite format 3\0" + b"x" * 4096)
    with pytest.raises(DeepJoinError, match=r"sqlite:///.*a\.db: file is not a database\."):
        list(DatabaseSource(str(path)).items())


DAY = datetime.date(2020, 1, 5)
MOMENT = datetime.datetime(2020, 1, 5, 10, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([1, None], pa.int64()),
        ([1, 2.5], pa.float64()),
        ([2**60, 2.5], pa.string()),
        ([2**70], pa.string()),
        ([True, False], pa.bool_()),
        ([True, 1], pa.string()),
        ([DAY], pa.date32()),
        ([MOMENT], pa.timestamp("us", "UTC")),
        ([MOMENT.replace(tzinfo=None)], pa.timestamp("us")),
        ([Decimal("1.50"), Decimal("2")], pa.decimal128(38, 2)),
        ([Decimal("NaN")], pa.string()),
        ([b"x", memoryview(b"y")], pa.binary()),
        ([b"x", "y"], pa.string()),
        ([{"a": 1}], pa.string()),
        ([None], pa.string()),
    ],
)
def test_values_of_a_driver_get_their_type(cells: list[Any], kind: pa.DataType) -> None:
    batch = Batcher(["x"], [None]).batch([(cell,) for cell in cells])
    assert batch.schema.types == [kind]


def test_a_column_that_changes_its_type_is_text_from_there_on() -> None:
    batcher = Batcher(["x", "x"], [None, None])
    kinds = [
        [str(kind) for kind in batcher.batch([(cell, cell)]).schema.types]
        for cell in (1, 2.5, 3, "a", 4)
    ]
    assert [first for first, _ in kinds] == ["int64", "double", "double", "string", "string"]
    assert batcher.names == ["x", "x_2"]


@given(st.lists(st.none() | st.integers() | st.floats() | st.text() | st.binary(), max_size=8))
def test_any_cells_make_a_column(cells: list[Any]) -> None:
    batch = Batcher(["x"], [None]).batch([(cell,) for cell in cells])
    assert batch.num_rows == (len(cells) if cells else 0)
    assert len(as_text(cells)) == len(cells)


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("postgresql://h/d", True),
        ("postgres://h/d", True),
        ("mysql+pymysql://h/d", True),
        ("mssql://h/d", True),
        ("newsql+driver://h/d", True),
        ("s3://bucket/a", False),
        ("git+https://h/d", False),
        ("https://h/a.csv", False),
        ("no/such/file.db", False),
        ("a\0b", False),
    ],
)
def test_databases_are_recognised_by_their_scheme(location: str, expected: bool) -> None:
    assert is_database(location) is expected


def test_databases_are_recognised_by_their_first_bytes(tmp_path: Path) -> None:
    run_sqlite(tmp_path / "a.xyz", "CREATE TABLE t (x)")
    run_duckdb(tmp_path / "b.xyz", "CREATE TABLE t (x INTEGER)")
    (tmp_path / "c.db").write_text("id,name\n")
    files = ("a.xyz", "b.xyz", "c.db", "")
    assert [is_database(str(tmp_path / name)) for name in files] == [True, True, False, False]
    assert dialect_of(str(tmp_path / "b.xyz")) == ("duckdb", "")
    with pytest.raises(DeepJoinError, match="neither a SQLite nor a DuckDB file"):
        DatabaseSource(str(tmp_path / "c.db"))
    with pytest.raises(DeepJoinError, match="is not a duckdb file by its first bytes"):
        DatabaseSource(f"duckdb:///{tmp_path / 'a.xyz'}")


@pytest.mark.parametrize("url", ["sqlite:///no/such.db", "duckdb:///no/such.db", "sqlite://"])
def test_missing_files_are_reported(url: str) -> None:
    with pytest.raises(DeepJoinError, match=r"No (SQLite|DuckDB) file '.*three slashes"):
        DatabaseSource(url)


def test_sqlalchemy_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(DeepJoinError, match="No SQLite file"):
        DatabaseSource(f"sqlite+pysqlite:///{tmp_path / 'new.db'}")
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@db/shop",
        "postgresql://me:hunter2@db/shop?sslmode=require&sslpassword=hunter2",
        "postgresql://db/shop?user=me&password=hunter2",
        "postgresql+psycopg://:hunter2@/shop",
        "mssql+pyodbc:///?odbc_connect=DRIVER%3D%7BX%7D%3BPWD%3Dhunter2",
        "snowflake://me:hunter2@account/db?token=hunter2",
        "postgresql://db/shop?pass=hunter2&sslmode=require",
        "mysql+pymysql://db/shop?passcode=hunter2",
        "databricks://db/shop?pat=hunter2",
        "trino://db/shop?anything=hunter2",
        "postgresql://db/shop?options=-c%20my.key%3Dhunter2",
        "postgresql://db/shop?sslmode=require;password=hunter2",
        "postgresql://db/shop?sslmode=require#hunter2",
    ],
)
def test_addresses_are_shown_without_secrets(url: str) -> None:
    address = Address.of(url)
    assert "hunter2" not in f"{address!r} {address.shown()} {shown(url)}"
    said = first_line(ValueError(f"cannot use '{url}'\nDETAIL: more"), address.secrets())
    assert "hunter2" not in said
    assert "\n" not in said


@pytest.mark.parametrize("password", ["p@ss", "pa/ss", "pa?ss", "pa#ss", "a:b/c@d"])
def test_passwords_that_blur_the_address_are_refused_unseen(password: str) -> None:
    with pytest.raises(DeepJoinError, match="write @ as %40") as caught:
        DatabaseSource(f"postgresql://me:{password}@db:5432/shop")
    assert password not in str(caught.value)


@pytest.mark.parametrize("tail", ["shop;password=hunter2", "shop#hunter2", ";hunter2?ssl=1"])
def test_names_of_databases_that_may_hold_parameters_are_refused_unseen(tail: str) -> None:
    with pytest.raises(DeepJoinError, match="write ; as %3B, # as %23, and parameters") as caught:
        DatabaseSource(f"mssql+pyodbc://me@db/{tail}")
    assert "hunter2" not in str(caught.value)


def test_text_without_a_scheme_is_no_address() -> None:
    with pytest.raises(DeepJoinError, match="named by a URL such as postgresql://host/shop"):
        Address.of("shop")


@pytest.mark.parametrize(
    ("given", "is_taken"),
    [
        ("postgres://you:secret@DB:5432/shop?sslmode=require", True),
        ("postgresql://you:secret@db/other", False),
        ("postgresql://you:secret@elsewhere/shop", False),
        ("not a url", False),
    ],
)
def test_the_environment_gives_the_password_of_the_same_database(
    given: str, is_taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPJOIN_DATABASE_URL", given)
    url = "postgresql://me@db/shop"
    assert from_environment(url) == (given if is_taken else url)


def test_missing_libraries_name_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(MissingExtra, match=r"mysql databases .* pip install 'deepjoin\[sql\]'"):
        DatabaseSource("mysql://me:hunter2@db/shop")


@pytest.mark.slow
def test_missing_drivers_are_named() -> None:
    with pytest.raises(MissingExtra, match=r"mysql\+pymysql .* its driver: pip install pymysql"):
        DatabaseSource("mysql+pymysql://me:hunter2@db/shop")
    with pytest.raises(MissingExtra, match=r"mysql databases .* driver: pip install mysqlclient"):
        DatabaseSource("mysql://me:hunter2@db/shop")
    with pytest.raises(MissingExtra, match=r"driver: the package that provides module asyncpg"):
        DatabaseSource("postgresql+asyncpg://me:hunter2@db/shop")


def test_unknown_dialects_are_reported() -> None:
    with pytest.raises(DeepJoinError, match=r"Not a database URL: .*newsql\.driver") as caught:
        DatabaseSource("newsql+driver://me:hunter2@db/shop")
    assert "hunter2" not in str(caught.value)


def test_a_file_that_sqlalchemy_cannot_open_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.write_text("no database at all")
    database = SqlalchemyDatabase(f"sqlite+pysqlite:///{path}")
    with pytest.raises(
        DeepJoinError, match=r"Cannot (connect to|list the tables of) sqlite.* not a"
    ):
        database.relations()
    assert repr(database) == f"SqlalchemyDatabase('sqlite+pysqlite:///{path}')"
    assert database.digest(database_relation()) == ""


def database_relation() -> Any:
    from deepjoin.read.database.relation import DatabaseRelation

    return DatabaseRelation("t", "t", '"t"')


@pytest.mark.parametrize("kind", ["sqlite", "sqlite+pysqlite"])
@pytest.mark.parametrize("harm", ["locked", "gone", "another"])
def test_a_sqlite_file_that_is_lost_is_no_fault_of_a_table(
    kind: str, harm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.0)
    path = tmp_path / "a.db"
    run_sqlite(path, "CREATE TABLE t (x INTEGER)", "INSERT INTO t VALUES (7)")
    source = DatabaseSource(f"{kind}:///{path}{'?timeout=0' if '+' in kind else ''}")
    (item,) = source.items()
    (table,) = item.listing().tables
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        if harm == "locked":
            other.execute("BEGIN EXCLUSIVE")
        elif harm == "gone":
            path.unlink()
        else:
            path.write_bytes(b"no database at all" * 100)
        with pytest.raises(
            DeepJoinError, match=rf"Cannot (open|read|connect to) {re_place(path)}"
        ) as told:
            rows(table)
        assert not isinstance(told.value, UnreadableTable)
        assert path.exists() is (harm != "gone")
        if item.digest:
            with pytest.raises(DeepJoinError, match="Cannot (open|read)"):
                item.digest()


def re_place(path: Path) -> str:
    return rf"sqlite(\+pysqlite)?:///{path}: "


def test_a_locked_sqlite_file_is_reported_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.0)
    path = tmp_path / "a.db"
    run_sqlite(path, "CREATE TABLE t (x INTEGER)")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(DeepJoinError, match="locked. Run it again when the other program is"):
            list(DatabaseSource(str(path)).items())


_HOLD = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_released", [True, False])
def test_a_locked_duckdb_file_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_released: bool
) -> None:
    path = tmp_path / "a.duckdb"
    run_duckdb(path, "CREATE TABLE t AS SELECT 7 AS x")
    (table,) = DatabaseSource(str(path)).tables()
    command = [sys.executable, "-c", _HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout and holder.stdout.readline() == b"held\n"
        monkeypatch.setattr(duckdb_file, "BUSY_SECONDS", 60.0 if is_released else 0.0)
        if is_released:
            monkeypatch.setattr(duckdb_file.time, "sleep", lambda _: holder.communicate())
            assert rows(table) == [{"x": 7}]
        else:
            with pytest.raises(DeepJoinError, match="Cannot open duckdb.* lock.* Close it") as told:
                rows(table)
            assert not isinstance(told.value, UnreadableTable)


def test_a_duckdb_file_that_is_lost_is_no_fault_of_a_table(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    run_duckdb(path, "CREATE TABLE t AS SELECT 7 AS x")
    source = DatabaseSource(str(path))
    (table,) = source.tables()
    database, relation = source.database, source.relation("main.t")
    for error in (duckdb.IOException(f"Could not read from {path}"), duckdb.FatalException("no")):
        lost = pytest.raises(DeepJoinError, match=f"Cannot read duckdb:///{path}: ")
        with lost as caught, database.reading(relation):
            raise error
        assert not isinstance(caught.value, UnreadableTable)
    path.unlink()
    with pytest.raises(DeepJoinError, match="Cannot open duckdb") as caught:
        rows(table)
    assert not isinstance(caught.value, UnreadableTable)


@pytest.mark.slow
@pytest.mark.parametrize("prefix", ["db2", "a.b"])
def test_names_may_have_a_prefix(
    shop: tuple[str, Execute, str], tmp_path: Path, prefix: str
) -> None:
    url, _, schema = shop
    before = {"db2": "db2.", "a.b": '"a.b".'}[prefix] + schema
    source = DatabaseSource(url, Settings(exclude=("empties", f"{before}big*")), prefix)
    assert [item.name for item in source.items()] == [f"{before}orders"]
    described = source.describe(tmp_path)
    assert described["prefix"] == prefix
    again = reopen(described, tmp_path, Settings(include=(f"{schema}orders",)))
    assert [table.name for table in again.tables()] == [f"{before}orders"]
    assert again.relation(f"{before}orders").table == "orders"
    assert len(rows(again.table(f"{before}orders"))) == 3
    with pytest.raises(UnknownName, match=f"Did you mean '{before}orders'"):
        again.table(f"{schema}orders")


def test_a_join_in_the_database_knows_tables_by_their_prefix(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    run_sqlite(
        path,
        "CREATE TABLE orders (id INTEGER, city TEXT)",
        "INSERT INTO orders VALUES (1, 'Rome'), (2, 'paris')",
        "CREATE TABLE towns (city TEXT, people INTEGER)",
        "INSERT INTO towns VALUES ('Paris', 2), ('Rome', 3)",
    )
    source = DatabaseSource(str(path), prefix="db2")
    sides = [JoinSide(source.table(f"db2.{name}"), "city") for name in ("orders", "towns")]
    with plan_join(*sides) as plan:
        statement = database_sql(plan, source, "db2.orders")
    with closing(sqlite3.connect(path)) as connection:
        assert [(row[0], row[-1]) for row in connection.execute(statement)] == [(1, 3), (2, 2)]


def test_patterns_that_leave_nothing_are_reported(shop: tuple[str, Execute, str]) -> None:
    url, *_ = shop
    source = DatabaseSource(url, Settings(include=("*.csv",)))
    assert not list(source.tables())
    reason = "the patterns to include and exclude leave out all 3 tables"
    assert source.skipped == [Skipped(source.database.place, reason)]
    (item,) = source.items()
    assert (item.name, item.stamp) == (source.database.place, f"skipped: {reason}")


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_database_without_tables_has_no_items(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "none.db"
    run = run_duckdb if kind == "duckdb" else run_sqlite
    run(path, "CREATE TABLE t (x INTEGER)", "DROP TABLE t")
    assert not list(DatabaseSource(str(path), Settings(include=("x",))).items())


def test_the_key_of_a_file_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    run_sqlite(path, "CREATE TABLE t (x INTEGER)")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SQLAlchemy 2.1 warns that SQLite takes no password
        source = SqlalchemyDatabase(f"sqlite+pysqlite:///{path}?password=hunter2")
    for text in (source.place, repr(source), source.describe(tmp_path)):
        assert "hunter2" not in text
    assert source.message(ValueError("key hunter2 is wrong")) == "key *** is wrong"
    url = f"sqlite+pysqlite://:hunter2@/{path}"
    assert shown(url) == f"sqlite+pysqlite:///{path}"
    with pytest.raises(DeepJoinError, match="Not a database URL") as caught:
        SqlalchemyDatabase(url)
    assert "hunter2" not in str(caught.value)


def test_an_address_without_a_number_for_its_port_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DeepJoinError, match="Not a database URL") as caught:
        SqlalchemyDatabase("sqlite+pysqlite://me:hunter2@db:port/shop")
    assert "hunter2" not in str(caught.value)


@pytest.mark.slow
def test_databases_of_one_lake_are_distinguished(tmp_path: Path) -> None:
    for name, letters in (("one", "abcde"), ("two", "cdefg")):
        with closing(sqlite3.connect(tmp_path / f"{name}.sqlite")) as connection:
            connection.execute("CREATE TABLE users (letter TEXT)")
            connection.executemany("INSERT INTO users VALUES (?)", [(one,) for one in letters])
            connection.commit()
    both = [str(tmp_path / "one.sqlite"), str(tmp_path / "two.sqlite")]
    lake = deepjoin.index(both, tmp_path / "both")
    assert sorted(lake.tables) == ["one.users", "two.users"]
    assert lake.join({"k": ["a"]}, "k", ("one.users", "letter"), how="inner").num_rows == 1
    lake = deepjoin.index(both[0], tmp_path / "first")
    assert lake.add(both[1]) == ["two.users"]
    assert lake.add(both[0]) == ["users"]
    assert sorted(deepjoin.index(lake.path).tables) == ["two.users", "users"]


def test_a_folder_of_databases_is_indexed_each_as_a_source_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)

    def write(path: Path, values: range) -> None:
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("CREATE TABLE people (person_id INTEGER PRIMARY KEY, name TEXT)")
            db.execute("CREATE TABLE visits (visit_id INTEGER PRIMARY KEY, person_id INTEGER)")
            people = [(n, f"Name {n}") for n in values]
            db.executemany("INSERT INTO people VALUES (?, ?)", people)
            visits = [(5000 + n, values[n % len(values)]) for n in range(60)]
            db.executemany("INSERT INTO visits VALUES (?, ?)", visits)

    write(folder / "a.sqlite", range(100, 130))
    write(folder / "sub" / "a.db", range(100, 130))
    (folder / "more.csv").write_text("code\n" + "\n".join(f"c{n}" for n in range(9)) + "\n")
    broken = (folder / "a.sqlite").read_bytes()[:100] + bytes(4000)
    (folder / "broken.sqlite").write_bytes(broken)
    none = Vectors(cells="none")
    lake = deepjoin.index(folder, vectors=none)
    names = ["a.people", "a.visits", "more.csv", "sub/a.people", "sub/a.visits"]
    assert sorted(lake.tables) == names
    (skipped,) = lake.report.skipped
    assert skipped.name == "broken.sqlite" and "a database that cannot be read" in skipped.reason
    # Relations stay inside each database, though both hold the same keys.
    pairs = {(one.child_table, one.parent_table) for one in lake.relations()}
    assert ("a.visits", "a.people") in pairs and ("sub/a.visits", "sub/a.people") in pairs
    assert all(child.rpartition(".")[0] == parent.rpartition(".")[0] for child, parent in pairs)
    assert lake.check()

    # A new file and a changed one are noticed; the others are not read again.
    write(folder / "b.sqlite", range(200, 240))
    with closing(sqlite3.connect(folder / "a.sqlite")) as db, db:
        db.execute("INSERT INTO people VALUES (999, 'Late')")
    for path in (path for path in folder.rglob("*") if path.is_file()):
        os.utime(path, (path.stat().st_mtime - 100,) * 2)  # files of a moment ago have no stamp
    lake = deepjoin.index(folder, vectors=none)
    assert sorted(lake.tables) == sorted([*names, "b.people", "b.visits"])
    assert lake.search(["Late"], join="equi")[0].table == "a.people"
    assert deepjoin.index(folder, vectors=none).index.generation == lake.index.generation
    excluded = {"exclude": ("sub/*", "b.sqlite")}
    some = deepjoin.index(folder, tmp_path / "i", vectors=none, settings=excluded)
    assert sorted(some.tables) == ["a.people", "a.visits", "more.csv"]
