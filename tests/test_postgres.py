"""A real PostgreSQL server as a source of tables: types, stamps, snapshots, secrets."""

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest

import deepjoin
from deepjoin.__main__ import main
from deepjoin.build.listing import list_items
from deepjoin.errors import DeepJoinError, MissingExtra, UnreadableTable
from deepjoin.model import Table
from deepjoin.normalise.cells import REPAIRED_NOTE, as_strings
from deepjoin.read import Source
from deepjoin.read.database import DatabaseSource, postgres, reopen
from deepjoin.read.database.postgres import CopiedColumn, copied_batches
from deepjoin.settings import Settings
from tests.support.postgres import PASSWORD, ROLE, execute


def rows(table: Table) -> list[dict[str, Any]]:
    return [row for batch in table.open() for row in batch.to_pylist()]


def stamps(source: DatabaseSource) -> dict[str, str]:
    return {item.name: item.stamp for item in source.items()}


def digests(source: DatabaseSource) -> dict[str, str]:
    return {item.name: item.digest() for item in source.items() if item.digest}


TYPED = {
    "small": ("7::int2", "7", pa.int16()),
    "long": ("7::int8", "7", pa.int64()),
    "single": ("0.1::float4", "0.1", pa.float32()),
    "double": ("2.5::float8", "2.5", pa.float64()),
    "nan": ("'NaN'::float8", None, pa.float64()),
    "bool": ("true", "true", pa.bool_()),
    "day": ("date '2020-01-05'", "2020-01-05", pa.date32()),
    "time": ("time '10:00:00.5'", "10:00:00.5", pa.time64("us")),
    "moment": ("timestamp '2020-01-05 10:00'", "2020-01-05 10:00:00", pa.timestamp("us")),
    "zoned": (
        *("timestamptz '2020-01-05 10:00+02'", "2020-01-05 08:00:00Z"),
        pa.timestamp("us", "UTC"),
    ),
    "price": ("1.50::numeric(10, 2)", "1.50", pa.decimal128(10, 2)),
    "number": ("123.456::numeric", "123.456", pa.decimal128(38, 3)),
    "no_number": ("'NaN'::numeric", None, pa.decimal128(38, 0)),
    "endless": ("'Infinity'::numeric", "Infinity", pa.string()),
    "long_number": ("(10::numeric ^ 50)::numeric(60, 0)", "1" + "0" * 50, pa.string()),
    "domain": ("7.25::amount", "7.25", pa.decimal128(10, 2)),
    "mood": ("'sad'::mood", "sad", pa.string()),
    "array": ("'{1,2}'::int[]", "{1,2}", pa.string()),
    "json": ("""'{"a": "b"}'::jsonb""", '{"a": "b"}', pa.string()),
    "uuid": (
        *("'6e5792f5-8d2a-4289-a3e9-8b959c7b7e61'::uuid", "6e5792f5-8d2a-4289-a3e9-8b959c7b7e61"),
        pa.string(),
    ),
    "inet": ("'10.0.0.1'::inet", "10.0.0.1", pa.string()),
    "span": ("interval '1 day 2 hours'", "1 day 02:00:00", pa.string()),
    "padded": ("'ab'::char(5)", "ab", pa.string()),
    "text": ("E'line\\nbreak \"q\", \\\\.'", 'line\nbreak "q", \\.', pa.string()),
    "blank": ("''", "", pa.string()),
    "missing": ("null::int4", None, pa.int32()),
    "forever": ("'infinity'::date", "infinity", pa.string()),
    "zoned_forever": ("'-infinity'::timestamptz", "-infinity", pa.string()),
    "caesar": ("timestamptz '0044-03-15 12:00+00 BC'", "0044-03-15 12:00:00Z BC", pa.string()),
}


@pytest.mark.slow
def test_every_type_keeps_its_value(postgres_uri: str) -> None:
    cells = ", ".join(f'{sql} AS "{name}"' for name, (sql, _, _) in TYPED.items())
    execute(
        postgres_uri,
        "CREATE TYPE mood AS ENUM ('sad')",
        "CREATE DOMAIN amount AS numeric(10, 2)",
        f"CREATE TABLE t AS SELECT {cells}, '\\x01'::bytea AS raw",
        "INSERT INTO t (small) VALUES (null)",
    )
    reading = DatabaseSource(postgres_uri).table("public.t").open()
    (batch,) = reading
    assert dict(zip(batch.schema.names, batch.schema.types, strict=True)) == {
        name: kind for name, (_, _, kind) in TYPED.items()
    }
    found = {name: as_strings(batch[name]).to_pylist() for name in batch.schema.names}
    assert found == {name: [text, None] for name, (_, text, _) in TYPED.items()}
    assert reading.notes == ["Column 'raw' is left out: it holds bytes."]


def test_rows_of_one_text_column_are_all_there(postgres_uri: str) -> None:
    execute(
        postgres_uri, "CREATE TABLE t (x text)", r"INSERT INTO t VALUES (null), (''), ('a'), ('\.')"
    )
    source = DatabaseSource(postgres_uri)
    assert [row["x"] for row in rows(source.table("public.t"))] == [None, "", "a", "\\."]


def test_tables_views_and_comments_are_listed_and_partitions_are_not(postgres_uri: str) -> None:
    execute(
        postgres_uri,
        'CREATE SCHEMA "Geo data"',
        'CREATE TABLE "Geo data".cities (name text)',
        "COMMENT ON TABLE \"Geo data\".cities IS 'Cities of  the world'",
        "COMMENT ON COLUMN \"Geo data\".cities.name IS 'in English'",
        "CREATE VIEW v AS SELECT 7 AS x",
        "CREATE MATERIALIZED VIEW m AS SELECT 8 AS x",
        "CREATE TABLE parted (x int) PARTITION BY RANGE (x)",
        "CREATE TABLE part1 PARTITION OF parted FOR VALUES FROM (0) TO (10)",
        "INSERT INTO parted VALUES (1), (2)",
        "CREATE TABLE no_columns ()",
    )
    source = DatabaseSource(postgres_uri)
    assert isinstance(source, Source)
    names = ["Geo data.cities", "public.m", "public.no_columns", "public.parted", "public.v"]
    assert [table.name for table in source.tables()] == names
    cities = source.table("Geo data.cities")
    assert cities.title == "Cities of the world"
    assert cities.context == "Geo data. name: in English"
    assert rows(source.table("public.parted")) == [{"x": 1}, {"x": 2}]
    assert rows(source.table("public.v")) == [{"x": 7}]
    with pytest.raises(UnreadableTable, match="public.no_columns has no column that can be read"):
        rows(source.table("public.no_columns"))
    only = DatabaseSource(postgres_uri, Settings(include=("Geo data",)))
    assert list(only.relations()) == ["Geo data.cities"]


@pytest.mark.parametrize("name", ['say "hi"', "a.b", "a'; DROP TABLE x", "Größe %s {x}", "😀"])
def test_odd_names_survive(postgres_uri: str, name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    execute(
        postgres_uri,
        f"CREATE SCHEMA {quoted}",
        f"CREATE TABLE {quoted}.{quoted} ({quoted} int)",
        f"INSERT INTO {quoted}.{quoted} VALUES (7)",
    )
    source = DatabaseSource(postgres_uri, Settings(version_query="SELECT count(*) FROM {table}"))
    (item,) = source.items()
    assert "[(1,)]" in item.stamp
    assert rows(source.table(item.name)) == [{name: 7}]


def test_stamps_and_digests_notice_every_change(postgres_uri: str) -> None:
    execute(
        postgres_uri,
        "CREATE TYPE mood AS ENUM ('sad', 'glad')",
        "CREATE TABLE a AS SELECT 1 AS x, 'sad'::mood AS m",
        "CREATE TABLE b AS SELECT 1 AS x",
        "CREATE TABLE parted (x int) PARTITION BY RANGE (x)",
        "CREATE TABLE part1 PARTITION OF parted FOR VALUES FROM (0) TO (10)",
    )
    source = DatabaseSource(postgres_uri)
    known, sums = stamps(source), digests(source)
    assert (known, sums) == (stamps(source), digests(source))
    assert set(sums) == {"public.a", "public.b", "public.parted"}
    for change, name in [
        ("UPDATE a SET x = 2", "public.a"),
        ("UPDATE a SET x = 2", "public.a"),
        ("ALTER TABLE a ADD COLUMN y int DEFAULT 5", "public.a"),
        ("ALTER TYPE mood RENAME VALUE 'sad' TO 'sadder'", "public.a"),
        ("TRUNCATE b", "public.b"),
        ("INSERT INTO parted VALUES (1)", "public.parted"),
    ]:
        execute(postgres_uri, change)
        now, new = stamps(source), digests(source)
        assert known != now, change
        assert [table for table in sums if sums[table] != new[table]] == [name], change
        known, sums = now, new


def test_what_changes_without_a_trace_has_no_stamp(postgres_uri: str) -> None:
    execute(
        postgres_uri, "CREATE VIEW v AS SELECT random() AS x", "CREATE UNLOGGED TABLE u (x int)"
    )
    assert stamps(DatabaseSource(postgres_uri)) == {"public.u": "", "public.v": ""}
    assert digests(DatabaseSource(postgres_uri)) == {}


def test_a_version_query_that_fails_for_one_table_serves_the_others(postgres_uri: str) -> None:
    execute(
        postgres_uri,
        "CREATE TABLE a AS SELECT 1 AS x",
        "CREATE TABLE b AS SELECT timestamp '2020-01-05' AS updated_at",
    )
    source = DatabaseSource(
        postgres_uri, Settings(version_query="SELECT max(updated_at) FROM {table}")
    )
    items = {item.name: item for item in source.items()}
    assert "2020, 1, 5" in items["public.b"].stamp
    assert items["public.a"].digest is not None
    (note,) = items["public.a"].listing().tables[0].open().notes
    assert note == (
        "The version query failed, so the database's own stamp serves; it said: "
        'column "updated_at" does not exist.'
    )


@pytest.mark.parametrize(
    "statement",
    [
        "COMMIT; DELETE FROM public.a",
        "COMMIT",
        "DELETE FROM public.a RETURNING x",
        "WITH d AS (DELETE FROM public.a RETURNING x) TABLE d",
        "SELECT 1; DELETE FROM public.a",
        "SET TRANSACTION READ WRITE",
    ],
)
def test_nothing_is_ever_written(postgres_uri: str, statement: str) -> None:
    execute(postgres_uri, "CREATE TABLE a AS SELECT 1 AS x")
    source = DatabaseSource(postgres_uri)
    with source.database.session() as ask:
        with pytest.raises(DeepJoinError):
            ask(statement)
        assert ask("SELECT x FROM public.a") == [(1,)]
        with pytest.raises(DeepJoinError, match="read-only transaction"):
            ask("SELECT lo_create(0)")
    assert rows(source.table("public.a")) == [{"x": 1}]


#: A function that a plain role may create, and that fits our call better than the server's own.
_TRAP = """
CREATE FUNCTION public.{name} RETURNS {answer} LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'the trap ran'; END $$
"""


def test_functions_of_other_roles_are_not_run(postgres_uri: str) -> None:
    execute(
        postgres_uri,
        "CREATE TABLE a AS SELECT 1 AS x, 1.5::numeric AS n, 'p'::char(3) AS c",
        _TRAP.format(name="hashtextextended(text, int)", answer="bigint"),
        _TRAP.format(name="concat_ws(text, oid, tid, xid)", answer="text"),
        _TRAP.format(name="has_table_privilege(oid, text)", answer="boolean"),
        _TRAP.format(name="scale(int)", answer="int"),
        "ALTER ROLE CURRENT_USER SET search_path = public, pg_catalog",
    )
    try:
        source = DatabaseSource(postgres_uri)
        assert all(digests(source).values())
        assert rows(source.table("public.a")) == [{"x": 1, "n": Decimal("1.5"), "c": "p"}]
        with source.database.session() as ask:
            path = ask("SELECT current_setting('search_path')")
        assert path == [("pg_catalog, pg_temp",)]
    finally:
        execute(postgres_uri, "ALTER ROLE CURRENT_USER RESET search_path")


def test_a_view_that_never_ends_is_passed_over(
    postgres_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "QUERY_SECONDS", 0.2)
    execute(
        postgres_uri,
        "CREATE VIEW slow AS SELECT pg_sleep(100)::text AS x",
        "CREATE TABLE a AS SELECT 1 AS x",
    )
    source = DatabaseSource(postgres_uri)
    with pytest.raises(
        UnreadableTable,
        match=r"^public.slow cannot be read: canceling statement due to statement timeout; allow "
        r"more with PGOPTIONS='-c statement_timeout=2h', or leave it out with `exclude`\.$",
    ) as caught:
        rows(source.table("public.slow"))
    assert caught.value.passing
    assert rows(source.table("public.a")) == [{"x": 1}]


def test_a_time_limit_of_the_user_stands(
    postgres_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = "SELECT current_setting('statement_timeout')"
    with DatabaseSource(postgres_uri).database.session() as ask:
        assert ask(setting) == [("5min",)]
    monkeypatch.setenv("PGOPTIONS", "-c statement_timeout=0")
    with DatabaseSource(postgres_uri).database.session() as ask:
        assert ask(setting) == [("0",)]


def test_superusers_and_code_of_others_are_warned_of(postgres_uri: str) -> None:
    execute(postgres_uri, "CREATE TABLE a AS SELECT 1 AS x", "CREATE VIEW v AS SELECT 1 AS x")
    source = DatabaseSource(postgres_uri)
    list(source.items())
    place = source.database.place
    assert source.warnings == [
        f"{place} is read as the superuser postgres: functions that views, policies, indexes "
        "and the like call run with all of its rights. Use a role that may only read.",
        f"{place}: reading public.v may run functions of other roles with your rights, those of "
        "a view, row security policy, index, partition key or foreign table. Leave out with "
        "`exclude` what you do not trust.",
    ]
    said: list[str] = []
    list_items({0: source}, Settings(), said.append)
    assert said == [f"warning: {text}" for text in source.warnings]
    quiet = DatabaseSource(postgres_uri, Settings(exclude=("public.v",)))
    list(quiet.items())
    assert len(quiet.warnings) == 1


def test_tables_whose_reading_runs_functions_are_warned_of(postgres_uri: str) -> None:
    execute(
        postgres_uri,
        "CREATE FUNCTION who(int) RETURNS text LANGUAGE plpgsql IMMUTABLE AS "
        "$$ BEGIN IF current_user = 'postgres' THEN RETURN 'me'; END IF; "
        "RAISE EXCEPTION 'ran as %', current_user; END $$",
        "CREATE OPERATOR <-> (rightarg = int, function = who)",
        *(f"CREATE TABLE {name} (x int)" for name in ("plain", "expression", "policy", "parent")),
        "CREATE TABLE child () INHERITS (parent)",
        "CREATE TABLE split (x int) PARTITION BY LIST (x)",
        "CREATE TABLE part PARTITION OF split DEFAULT",
        "CREATE TABLE counted (x int, y text)",
        "CREATE STATISTICS ON x, (y || who(1)) FROM counted",
        "INSERT INTO counted VALUES (1, 'a'), (2, 'b')",
        "ANALYZE counted",
        "CREATE TABLE keyed (x int) PARTITION BY LIST ((who(1) || x::text))",
        "CREATE TABLE of_keyed PARTITION OF keyed DEFAULT",
        "CREATE FOREIGN DATA WRAPPER elsewhere",
        "CREATE SERVER far FOREIGN DATA WRAPPER elsewhere",
        "CREATE FOREIGN TABLE distant (x int) SERVER far",
        "CREATE STATISTICS ON (x + abs(-1)) FROM plain",
        "CREATE INDEX ON plain (lower(x::text)) WHERE x > abs(-1)",
        "CREATE INDEX ON expression ((who(1) || x::text))",
        "CREATE INDEX ON child (x) WHERE who(2) = 'me'",
        "CREATE INDEX ON part ((<-> 1))",
        "ALTER TABLE policy ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY p ON policy USING (who(1) = 'me')",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {ROLE}",
    )
    as_reader = locked(postgres_uri)
    source = DatabaseSource(as_reader)
    running = {name for name, found in source.relations().items() if found.runs_functions}
    names = ("expression", "policy", "counted", "keyed", "parent", "child", "split", "distant")
    assert running == {f"public.{name}" for name in names}
    for name in names[:4]:
        with pytest.raises(UnreadableTable, match=f"ran as {ROLE}"):
            rows(source.table(f"public.{name}"))
    assert rows(source.table("public.plain")) == []
    list(source.items())
    (warning,) = source.warnings
    assert "reading public.child, public.counted, public.distant and 5 more may run" in warning


def test_samples_are_the_same_rows_twice(postgres_uri: str) -> None:
    execute(
        postgres_uri, "CREATE TABLE big AS SELECT generate_series(1, 50000) AS x", "ANALYZE big"
    )
    source = DatabaseSource(postgres_uri, Settings(sample_rows=1000))
    readings = [next(source.tables()).open() for _ in range(2)]
    first, second = (
        [row for batch in reading for row in batch.to_pylist()] for reading in readings
    )
    assert first == second == [{"x": x} for x in range(1, 1001)]
    assert readings[0].notes == ["Only the first 1,000 rows of about 50,000 are read."]
    (sums,) = digests(source).values()
    assert sums.startswith("((1000,")


@pytest.mark.slow
def test_long_tables_come_in_batches_of_one_snapshot(postgres_uri: str) -> None:
    execute(postgres_uri, "CREATE TABLE big AS SELECT generate_series(1, 100000) AS x, 'a b' AS y")
    batches = iter(DatabaseSource(postgres_uri).table("public.big").open())
    first = next(batches)
    execute(postgres_uri, "DELETE FROM big")
    assert first.num_rows + sum(batch.num_rows for batch in batches) == 100_000


def test_a_reading_that_is_given_up_frees_its_connection(postgres_uri: str) -> None:
    execute(postgres_uri, "CREATE TABLE big AS SELECT generate_series(1, 100000) AS x")
    reading = DatabaseSource(postgres_uri).table("public.big").open()
    next(reading.batches)
    reading.batches.close()  # type: ignore[attr-defined]
    execute(postgres_uri, "DROP TABLE big")


def test_a_table_dropped_or_altered_after_the_listing(postgres_uri: str) -> None:
    execute(
        postgres_uri,
        "CREATE TABLE a (x int)",
        "CREATE TABLE b (x int)",
        "CREATE VIEW v AS SELECT 1/0 z",
    )
    source = DatabaseSource(postgres_uri)
    items = {item.name: item for item in source.items()}
    execute(postgres_uri, "DROP TABLE a", "ALTER TABLE b RENAME x TO y")
    gone = items["public.a"]
    with pytest.raises(UnreadableTable, match=r"^public\.a is no longer in the database\.$"):
        rows(gone.listing().tables[0])
    assert gone.digest is not None
    assert gone.digest() == ""
    (batch,) = items["public.b"].listing().tables[0].open()
    assert batch.schema.names == ["y"]
    with pytest.raises(UnreadableTable, match=r"^public\.v cannot be read: division by zero\.$"):
        rows(items["public.v"].listing().tables[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cell", "says"), [("1 / (40000 - x)", "division by zero"), ("fail(x)", "no more")]
)
def test_a_view_that_fails_half_way_is_reported_and_harms_nothing(
    postgres_uri: str, cell: str, says: str
) -> None:
    execute(
        postgres_uri,
        "CREATE FUNCTION fail(x int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN IF x > 40000 THEN "
        "RAISE 'no more' USING ERRCODE = 'ABCDE'; END IF; RETURN x; END $$",
        f"CREATE VIEW v AS SELECT {cell} AS z FROM generate_series(1, 90000) AS x",
    )
    batches = iter(DatabaseSource(postgres_uri).table("public.v").open())
    assert next(batches).num_rows > 0
    with pytest.raises(UnreadableTable, match=rf"^public\.v cannot be read: {says}\.$"):
        list(batches)


def locked(postgres_uri: str, password: str = PASSWORD) -> str:
    credentials = f"{ROLE}:{quote(password, safe='')}" if password else ROLE
    return postgres_uri.replace("postgres:@", f"{credentials}@")


def test_what_may_not_be_read_is_left_out(postgres_uri: str) -> None:
    execute(
        postgres_uri,
        "CREATE TABLE closed AS SELECT 1 AS x",
        "CREATE TABLE half AS SELECT 1 AS x, 2 AS hidden",
        f"GRANT SELECT (x) ON half TO {ROLE}",
    )
    source = DatabaseSource(locked(postgres_uri))
    assert [table.name for table in source.tables()] == ["public.half"]
    assert [(one.name, one.reason) for one in source.skipped] == [
        ("public.closed", "no permission to read it")
    ]
    reading = source.table("public.half").open()
    assert [batch.to_pydict() for batch in reading] == [{"x": [1]}]
    assert reading.notes == ["Column 'hidden' is left out: no permission to read it."]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ((PASSWORD, "wrong secret"), "password authentication failed for user .*PGPASSWORD"),
        (("/fresh", "/no_such_db"), 'database "no_such_db" does not exist'),
    ],
)
def test_refused_connections_are_one_line_without_secrets(
    postgres_uri: str, change: tuple[str, str], says: str
) -> None:
    old, new = (quote(text, safe="/" if "/" in text[:1] else "") for text in change)
    url = locked(postgres_uri).replace(old, new)
    with pytest.raises(DeepJoinError, match=f"Cannot connect to postgresql://.*{says}") as caught:
        list(DatabaseSource(url).items())
    assert_clean(caught.value)


@pytest.mark.parametrize(
    ("place", "says"),
    [("127.0.0.1:1", "refused"), ("no-such-host.invalid", "resolve|name|address")],
)
def test_unreachable_servers_are_one_line_without_secrets(place: str, says: str) -> None:
    source = DatabaseSource(f"postgresql://me:{quote(PASSWORD, safe='')}@{place}/shop")
    with pytest.raises(
        DeepJoinError, match=f"(?i)Cannot connect to .*{place}/shop: .*({says})"
    ) as c:
        source.table("t")
    assert_clean(c.value)
    assert_clean(source)


def assert_clean(value: object) -> None:
    text = f"{value} {value!r}"
    assert "\n" not in text
    for secret in (PASSWORD, quote(PASSWORD, safe=""), "wrong secret", "wrong%20secret"):
        assert secret not in text


def test_an_index_knows_no_password_and_asks_the_environment(
    postgres_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(postgres_uri, "CREATE TABLE a AS SELECT 1 AS x", f"GRANT SELECT ON a TO {ROLE}")
    described = DatabaseSource(locked(postgres_uri)).describe(tmp_path)
    assert set(described) == {"kind", "url"}
    assert_clean(described)
    assert f"{ROLE}@" in described["url"]
    for variable in ("PGPASSWORD", "PGPASSFILE", "DEEPJOIN_DATABASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    without = reopen(described, tmp_path, Settings())
    with pytest.raises(DeepJoinError, match=r"no password.*PGPASSWORD, ~/\.pgpass or a whole URL"):
        list(without.items())
    for variable, value in (
        ("DEEPJOIN_DATABASE_URL", locked(postgres_uri)),
        ("PGPASSWORD", PASSWORD),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(variable, value)
            assert rows(reopen(described, tmp_path, Settings()).table("public.a")) == [{"x": 1}]


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"postgresql://me@db/shop .*'deepjoin\[postgres\]'"):
        DatabaseSource("postgresql://me:secret@db/shop")


def test_text_of_a_database_without_an_encoding_is_mended() -> None:
    notes: list[str] = []
    columns = [CopiedColumn("x", '"x"', pa.string()), CopiedColumn("n", '"n"', pa.int32())]
    (batch,) = copied_batches([b"caf\xe9,1\n", b"b,2\n"], columns, notes)
    assert batch.to_pydict() == {"x": ["caf�", "b"], "n": [1, 2]}
    assert notes == [REPAIRED_NOTE]


@pytest.mark.slow
def test_a_lost_connection_is_reported(postgres_uri: str) -> None:
    execute(postgres_uri, "CREATE TABLE big AS SELECT generate_series(1, 1000000) AS x")
    batches = iter(DatabaseSource(postgres_uri).table("public.big").open())
    next(batches)
    execute(
        postgres_uri,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'deepjoin' AND pid <> pg_backend_pid()",
    )
    with pytest.raises(DeepJoinError, match=r"Lost the connection to postgresql://.*fresh"):
        list(batches)


def test_a_forbidden_table_is_named_and_has_no_relations(
    postgres_uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    execute(
        postgres_uri,
        "CREATE TABLE maker (maker_id text PRIMARY KEY)",
        "CREATE TABLE part (part_id text PRIMARY KEY, maker_id text REFERENCES maker)",
        "CREATE TABLE secret (maker_id text)",
        "INSERT INTO maker SELECT 'm' || n FROM generate_series(1, 9) n",
        "INSERT INTO part SELECT 'p' || n, 'm' || (n % 8 + 1) FROM generate_series(1, 40) n",
        "INSERT INTO secret SELECT maker_id FROM maker",
        f"GRANT SELECT ON maker, part TO {ROLE}",
    )
    password = PASSWORD.replace(" ", "%20").replace("/", "%2F")
    uri = postgres_uri.replace("postgres:@", f"{ROLE}:{password}@")
    assert main(["index", uri, "-o", str(tmp_path / "index"), "--cells", "none"]) == 0
    assert "secret" in capsys.readouterr().err
    found = deepjoin.open(tmp_path / "index").relations()
    tables = [(one.child_table, one.parent_table) for one in found]
    assert tables == [("public.part", "public.maker")]
    assert "Constraints were not read: Cannot connect to" in found.notes[0]
