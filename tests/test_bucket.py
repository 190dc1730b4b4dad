"""Tables in buckets: what is listed, how it is read, and what is said when it cannot be."""

from __future__ import annotations

import gc
import gzip
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deepjoin.errors import DeepJoinError, MissingExtra, UnknownName, UnreadableTable
from deepjoin.read import Source, bucket, remote_files
from deepjoin.read.bucket import BucketSource, reopen
from deepjoin.read.remote_files import BucketUrl, Downloads, RemoteFiles, explained
from deepjoin.read.source import Skipped
from deepjoin.settings import Settings
from tests.support.buckets import BUCKET, Store, answering, running_store, use

pytestmark = pytest.mark.slow

CSV = "city,people\nParis,2\nRome,3\n"
ROWS = [{"city": "Paris", "people": "2"}, {"city": "Rome", "people": "3"}]


def parquet(cells: dict[str, list[Any]]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(cells), file)
    return file.getvalue()


def workbook() -> bytes:
    import openpyxl

    book = openpyxl.Workbook()
    book.active.title = "Towns"
    for row in (["city", "people"], ["Paris", "2"], ["Rome", "3"]):
        book.active.append(row)
    book.create_sheet("Other").append(["x"])
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


CONTENTS: dict[str, str | bytes] = {
    "geo/world_cities.csv": CSV,
    "geo/eu/packed.csv.gz": gzip.compress(CSV.encode()),
    "geo/eu/towns.parquet": parquet({"city": ["Paris", "Rome"], "people": ["2", "3"]}),
    "geo/rows.json": json.dumps(ROWS),
    "geo/book.xlsx": workbook(),
    "geo/conf.json": '{"a": 1}',
    "geo/readme.pdf": b"%PDF",
    "geo/empty/": b"",
    "geo/.hidden/a.csv": CSV,
    "geo/~$book.xlsx": b"",
    "geo/index/manifest.json": '{"product": "deepjoin index"}',
    "geo/index/segments/0123456789abcdef/a.csv": CSV,
    "geo/segments/year.csv": CSV,
    "geo/hive/year=2020/part-0.csv": CSV,
    "geo/hive/year=2021/part-0.csv": CSV,
    "geo/spark/_SUCCESS": b"",
    "geo/spark/part-00000.csv": CSV,
    "geo/spark/part-00001.csv": b"",
    "geo/delta/_delta_log/00000.json": "{}",
    "geo/delta/part-1.parquet": parquet({"a": [1]}),
    "geo/twice//a.csv": CSV,
    "geo/a b#ü?.csv": CSV,
    "geology.csv": CSV,
    "broken/no.parquet": b"PAR1 and nothing else",
    "broken/no.xlsx": b"PK\x03\x04 and nothing else",
    "plain/part-00007": CSV,
}
TABLES = [
    "a b#ü?.csv",
    "book.xlsx#Other",
    "book.xlsx#Towns",
    "eu/packed.csv.gz",
    "eu/towns.parquet",
    "hive",
    "rows.json",
    "segments/year.csv",
    "spark",
    "world_cities.csv",
]


@pytest.fixture(scope="module")
def server() -> Iterator[Store]:
    with pytest.MonkeyPatch.context() as patch, running_store() as store:
        use(patch, store.address)
        store.client.create_bucket(Bucket=BUCKET)
        store.put(**CONTENTS)
        yield store


@pytest.fixture
def store(server: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    use(monkeypatch, server.address)
    server.requests.clear()
    return server


@pytest.fixture(autouse=True)
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the copies a folder of their own, so that what is left shows."""
    folder = tmp_path / "copies"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def names(url: str, **settings: Any) -> list[str]:
    return [table.name for table in BucketSource(url, Settings(**settings)).tables()]


def rows(source: BucketSource, name: str) -> list[dict[str, Any]]:
    return [row for batch in source.table(name).open() for row in batch.to_pylist()]


def test_a_folder_lists_its_tables(store: Store) -> None:
    source = BucketSource("s3://lake/geo")
    assert isinstance(source, Source)
    assert [table.name for table in source.tables()] == TABLES
    assert source.skipped == [
        Skipped(
            "conf.json", "holds one JSON object, not rows (an array of objects or an object a line)"
        ),
        Skipped("delta", "a Delta table; copy it to a folder to have it read"),
        Skipped("readme.pdf", "not a table format we read (.pdf)"),
        Skipped("twice//a.csv", "its name has slashes side by side"),
    ]


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("s3://lake/geo/*.csv", ["a b#ü?.csv", "world_cities.csv"]),
        ("s3://lake/geo/**/*.parquet", ["eu/towns.parquet"]),
        ("s3a://lake/geo/eu/", ["packed.csv.gz", "towns.parquet"]),
        ("s3://lake/geo/world_cities.csv", ["world_cities.csv"]),
        ("s3://lake/geo/book.xlsx", ["book.xlsx#Other", "book.xlsx#Towns"]),
        ("s3://lake/geo/conf.json", ["conf.json"]),
        ("s3://lake/geo/*.pdf", ["readme.pdf"]),
        ("s3://lake/plain/part-00007", ["part-00007"]),
        ("s3://lake/geo/hive", ["hive"]),
        ("s3://lake/g*.csv", ["geology.csv"]),
    ],
)
def test_a_url_is_a_folder_an_object_or_a_pattern(store: Store, url: str, found: list[str]) -> None:
    assert names(url) == found


def test_include_exclude_and_parts(store: Store) -> None:
    assert names("s3://lake/geo", include=["eu"]) == ["eu/packed.csv.gz", "eu/towns.parquet"]
    assert names("s3://lake/geo", include=["*.csv"], exclude=["spark", "hive", "segments"]) == [
        "a b#ü?.csv",
        "world_cities.csv",
    ]
    apart = names("s3://lake/geo/spark", parts="never")
    assert apart == ["part-00000.csv", "part-00001.csv"]
    assert names("s3://lake/geo/eu", one_table=["."], parts="never") == ["eu"]


@pytest.mark.parametrize(
    ("url", "chosen", "left_out"),
    [
        ("s3://lake/geo/eu", {"include": ["*.csv"]}, "all 2 tables"),
        ("s3://lake/geo/eu/*.parquet", {"exclude": ["t*"]}, "its one table"),
    ],
)
def test_patterns_that_leave_nothing_are_reported(
    store: Store, url: str, chosen: dict[str, list[str]], left_out: str
) -> None:
    source = BucketSource(url, Settings(**chosen))
    assert not list(source.tables())
    reason = f"the patterns to include and exclude leave out {left_out}"
    assert source.skipped == [Skipped(url, reason)]
    (item,) = source.items()
    assert item.stamp == f"skipped: {reason}"


def test_the_manifests_of_other_programs_make_no_index(store: Store) -> None:
    store.put(**{"video/manifest.json": '["a.ts"]', "video/segments/times.csv": CSV})
    assert names("s3://lake/video") == ["segments/times.csv"]


def test_a_manifest_that_may_not_be_read_makes_an_index(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> None:
        raise UnreadableTable("no permission", passing=True)

    monkeypatch.setattr(RemoteFiles, "read", denied)
    with pytest.raises(DeepJoinError, match="is a deepjoin index, not a folder of tables"):
        names("s3://lake/geo/index")


def test_a_workbook_without_its_extra_may_be_read_later(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fastexcel", None)
    source = BucketSource("s3://lake/geo", Settings(include=("book.xlsx",)))
    assert not list(source.tables())
    (skipped,) = [one for one in source.skipped if one.passing]
    assert skipped.reason.startswith("Reading s3://lake/geo/book.xlsx needs fastexcel: pip")


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_read_and_leaves_nothing_behind(store: Store, copies: Path, name: str) -> None:
    source = BucketSource("s3://lake/geo")
    found = rows(source, name)
    if name == "hive":
        assert found == [{**row, "year": year} for year in ("2020", "2021") for row in ROWS]
    else:
        assert found == ([] if name.endswith("Other") else ROWS)
    del source
    gc.collect()
    assert not list(copies.iterdir())


def test_titles_and_contexts_are_those_of_files(store: Store) -> None:
    tables = {table.name: table for table in BucketSource("s3://lake/geo").tables()}
    assert tables["eu/packed.csv.gz"].title == "packed"
    assert tables["eu/packed.csv.gz"].context == "eu"
    assert tables["book.xlsx#Towns"].title == "book"
    assert tables["book.xlsx#Towns"].context == "Towns"


def test_a_reading_that_is_closed_or_dropped_removes_its_copy(store: Store, copies: Path) -> None:
    table = BucketSource("s3://lake/geo").table("world_cities.csv")
    reading = table.open()
    next(iter(reading))
    assert list(copies.iterdir())
    reading.batches.close()  # type: ignore[attr-defined]
    assert not list(copies.iterdir())
    reading = table.open()
    assert list(copies.iterdir())
    del reading
    gc.collect()
    assert not list(copies.iterdir())


@pytest.mark.parametrize("name", ["no.parquet", "no.xlsx"])
def test_an_unreadable_object_is_named_by_its_url(store: Store, copies: Path, name: str) -> None:
    source = BucketSource("s3://lake/broken")
    assert name in [table.name for table in source.tables()]
    with pytest.raises(
        UnreadableTable, match=rf"s3://lake/broken/{name} is not a readable"
    ) as told:
        list(source.table(name).open())
    assert str(copies) not in str(told.value)
    assert not told.value.passing
    del source, told
    gc.collect()
    assert not list(copies.iterdir())


def test_a_vanished_object_is_unreadable(store: Store) -> None:
    store.put(**{"gone/a.csv": CSV, "gone/b.csv": CSV})
    table, _ = BucketSource("s3://lake/gone").tables()
    store.client.delete_object(Bucket=BUCKET, Key="gone/a.csv")
    with pytest.raises(UnreadableTable, match="s3://lake/gone/a.csv is no longer there.") as told:
        table.open()
    assert told.value.passing


def test_stamps_change_with_the_object(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket, "_LATELY", -(10**18))
    store.put(**{"stamp/a.csv": CSV, "stamp/p/part-0.csv": CSV, "stamp/p/part-1.csv": CSV})

    def stamps() -> dict[str, str]:
        items = list(BucketSource("s3://lake/stamp").items())
        assert all(item.digest is None for item in items)
        return {item.name: item.stamp for item in items}

    before = stamps()
    assert before == stamps()
    assert all(before.values())
    store.put(**{"stamp/a.csv": CSV + "Oslo,4\n", "stamp/p/part-1.csv": CSV + "Oslo,4\n"})
    after = stamps()
    assert after.keys() == before.keys() == {"a.csv", "p"}
    assert after["a.csv"] != before["a.csv"]
    assert after["p"] != before["p"]


def test_an_object_of_this_second_has_no_stamp(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "_LATELY", 10**18)
    assert {item.stamp for item in BucketSource("s3://lake/geo/eu").items()} == {""}


def test_a_source_is_described_and_reopened(store: Store, tmp_path: Path) -> None:
    described = BucketSource("s3://lake/geo/*.csv").describe(tmp_path)
    assert described == {"kind": "bucket", "url": "s3://lake/geo/*.csv"}
    settings = Settings(exclude=("world*",), parts="never", one_table=("x",))
    again = reopen(json.loads(json.dumps(described)), tmp_path, settings)
    assert again.settings == settings  # type: ignore[attr-defined]
    assert [table.name for table in again.tables()] == ["a b#ü?.csv"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("world_citis.csv", "Did you mean 'world_cities.csv'?"),
        ("book.xlsx#Town", "Did you mean 'book.xlsx#Towns'?"),
        (".hidden/a.csv", "No table '.hidden/a.csv' in s3://lake/geo."),
        ("../geology.csv", "No table '../geology.csv'"),
        ("twice//a.csv", "No table 'twice//a.csv'"),
        ("index/segments/0123456789abcdef/b.csv", "No table"),
    ],
)
def test_an_unknown_table_is_reported_with_the_nearest(store: Store, name: str, told: str) -> None:
    with pytest.raises(UnknownName) as error:
        BucketSource("s3://lake/geo").table(name)
    assert told in str(error.value)


def test_one_table_is_found_without_a_listing(store: Store) -> None:
    assert BucketSource("s3://lake/geo/").table("eu/towns.parquet").name == "eu/towns.parquet"
    assert store.requests == ["HEAD /lake/geo/eu/towns.parquet"]


def test_many_objects_are_listed_by_the_thousand(store: Store) -> None:
    from moto.s3.models import s3_backends

    backend = s3_backends["123456789012"]["aws"]
    for number in range(10_000):
        backend.put_object(BUCKET, f"many/{number % 100}/t{number}x.csv", b"a\n1\n")
    source = BucketSource("s3://lake/many/")
    assert sum(1 for _ in source.tables()) == 10_000
    assert 10 <= len(store.requests) <= 12


def many_objects(store: Store) -> BucketSource:
    keys = [f"order/{number:02d}/x{number * 37 % 101}y.csv" for number in range(20)]
    store.put(**dict.fromkeys(keys, CSV))
    return BucketSource("s3://lake/order/")


def test_tables_read_in_order_are_copied_ahead(store: Store, copies: Path) -> None:
    source = many_objects(store)
    tables = list(source.tables())
    store.requests.clear()
    list(tables[0].open())
    source._downloads._pool.shutdown()
    assert sum(one.startswith("GET") for one in store.requests) == 9
    del source, tables
    gc.collect()
    assert not list(copies.iterdir())


def test_tables_read_in_order_are_fetched_once(store: Store) -> None:
    source = BucketSource("s3://lake/geo")
    found = {table.name: sum(batch.num_rows for batch in table.open()) for table in source.tables()}
    assert found["hive"] == 4
    fetched = [one for one in store.requests if one.startswith("GET /lake/geo/")]
    wanted = [
        one for one in fetched if "book.xlsx" in one or "world_cities" in one or "rows" in one
    ]
    assert len(wanted) == len(set(wanted)) == 3


def test_a_single_table_copies_nothing_ahead(store: Store) -> None:
    source = many_objects(store)
    tables = list(source.tables())
    store.requests.clear()
    list(tables[5].open())
    list(source.table(tables[9].name).open())
    assert sum(one.startswith("GET") for one in store.requests) == 2


def test_large_objects_are_not_copied_ahead(store: Store) -> None:
    files = RemoteFiles(BucketUrl.parse("s3://lake/geo/"))
    downloads = Downloads(files)
    downloads.expect({"world_cities.csv": 10, "rows.json": 1 << 30, "eu/packed.csv.gz": 10})
    downloads.take("world_cities.csv").remove()
    assert list(downloads._held) == ["eu/packed.csv.gz"]


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("s3://nowhere/x", r"s3://nowhere/x: there is no such bucket. Check its name, and AWS_END"),
        ("s3://nowhere", r"Cannot list s3://nowhere: there is no such bucket"),
        ("s3://lake/none", r"There is no object s3://lake/none, and none below it."),
        ("s3://lake/geo/*.orc", r"No object matches 's3://lake/geo/\*.orc'."),
        ("s3://lake/geo/index", r"'s3://lake/geo/index' is a deepjoin index, not a folder of"),
    ],
)
def test_a_wrong_url_is_reported(store: Store, url: str, told: str) -> None:
    with pytest.raises(DeepJoinError, match=told):
        list(BucketSource(url).tables())


@pytest.mark.parametrize(
    ("status", "code", "message", "told"),
    [
        (403, "AccessDenied", "", "no permission. Check AWS_ACCESS_KEY_ID and AWS_SECRET"),
        (403, "InvalidAccessKeyId", "", "the credentials were refused. Check AWS_ACCESS_KEY_ID"),
        (403, "SignatureDoesNotMatch", "very-secret", "the credentials were refused"),
        (400, "ExpiredToken", "", "the credentials were refused"),
        (
            400,
            "AuthorizationHeaderMalformed",
            "the region 'us-east-1' is wrong; expecting 'eu-west-3'",
            "the bucket is in another region. Set AWS_REGION to 'eu-west-3'",
        ),
        (
            301,
            "PermanentRedirect",
            "",
            "the bucket is in another region. Set AWS_REGION to its own",
        ),
        (418, "Teapot", "very-secret tea", "Teapot|tea"),
    ],
)
def test_what_a_store_refuses_is_reported_in_one_line(
    monkeypatch: pytest.MonkeyPatch, status: int, code: str, message: str, told: str
) -> None:
    with answering(status, code, message) as address:
        use(monkeypatch, address)
        with pytest.raises(DeepJoinError, match=f"Cannot list s3://lake/x: .*({told})") as error:
            list(BucketSource("s3://lake/x/").tables())
    assert "very-secret" not in str(error.value)
    assert "\n" not in str(error.value)


def test_no_network_is_reported_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_files, "_ATTEMPTS", 1)
    use(monkeypatch, "http://127.0.0.1:9")
    with pytest.raises(
        DeepJoinError, match="s3://lake/x: no answer. Check the network, and AWS_EN"
    ):
        list(BucketSource("s3://lake/x").tables())


def test_one_forbidden_object_is_passed_over_and_no_network_is_not(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = RemoteFiles(BucketUrl.parse("s3://lake/geo"))
    denied = files._object_error(OSError("AWS Error ACCESS_DENIED during GetObject"), "a.csv")
    assert isinstance(denied, UnreadableTable)
    assert str(denied).startswith("Cannot read s3://lake/geo/a.csv: no permission.")
    assert denied.passing
    away = files._object_error(OSError("AWS Error NETWORK_CONNECTION"), "a.csv")
    assert not isinstance(away, UnreadableTable)


def test_a_file_that_is_read_where_it_is_may_fail(store: Store) -> None:
    files = RemoteFiles(BucketUrl.parse("s3://lake/geo"))
    with pytest.raises(UnreadableTable, match="s3://lake/geo/world_cities.csv is not what its na"):
        files.read("world_cities.csv", pq.read_schema)
    with pytest.raises(UnreadableTable, match="s3://lake/geo/none.parquet is no longer there."):
        files.read("none.parquet", pq.read_schema)


def test_a_full_disk_is_reported(
    store: Store, copies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = Path.open

    def full(path: Path, mode: str = "r", **options: Any) -> Any:
        if mode == "wb":
            raise OSError(28, "No space left on device")
        return really(path, mode, **options)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(
        DeepJoinError, match="No space left in .* for a copy of s3://lake/geo/world"
    ):
        BucketSource("s3://lake/geo").table("world_cities.csv").open()
    assert not list(copies.iterdir())


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("s3://AKIA:hunter2@lake/x", "no plain bucket or host name"),
        ("s3://AKIA:hunter/2@lake/x", "no plain bucket or host name"),
        ("s3://hunter2@lake/x", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"),
        ("gs://user:hunter2@lake/x", "set GOOGLE_APPLICATION_CREDENTIALS in the environment"),
        ("sftp://user:hunter2@host/x", "no plain bucket or host name"),
        ("s3://lake/x?secret_key=hunter2", "parameters after a question mark; leave them out"),
        ("s3:///hunter2", "no plain bucket or host name"),
        ("lake", "'lake' is not the URL of a bucket, e.g. s3://bucket/folder."),
    ],
)
def test_a_secret_in_a_url_is_refused_and_not_repeated(url: str, told: str) -> None:
    with pytest.raises(DeepJoinError, match=told) as error:
        BucketSource(url)
    assert "hunter" not in str(error.value)


@pytest.mark.parametrize(
    "url",
    [
        "s3://lake",
        "s3://lake/a/b",
        "gs://anonymous@lake/a",
        "abfss://container@account.dfs.core.windows.net/a/*.csv",
        "sftp://user@host:22/a",
    ],
)
def test_a_url_is_written_as_it_was_given(url: str) -> None:
    assert str(BucketUrl.parse(url)) == url


def test_other_schemes_go_through_fsspec() -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe({"/far/geo/a.csv": CSV.encode(), "/far/geo/b.json": json.dumps(ROWS).encode()})
    source = BucketSource("memory://far/geo")
    assert [table.name for table in source.tables()] == ["a.csv", "b.json"]
    assert rows(source, "a.csv") == rows(source, "b.json") == ROWS
    assert {item.stamp for item in source.items()} == {""}


def test_a_scheme_that_nobody_knows_is_reported() -> None:
    with pytest.raises(DeepJoinError, match="'gopher://x' cannot be read: gopher:// is not known."):
        list(BucketSource("gopher://x").tables())


def test_a_scheme_may_need_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    def missing(_: str) -> None:
        raise ImportError("Install paramiko")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    with pytest.raises(MissingExtra, match="sftp:// URLs needs a package: Install paramiko"):
        list(BucketSource("sftp://host/x").tables())
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(MissingExtra, match=r"needs fsspec: pip install 'deepjoin\[fsspec"):
        list(BucketSource("sftp://host/x").tables())


def test_other_clouds_are_reached_without_asking_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "account")
    google, path = remote_files.file_system(BucketUrl.parse("gs://anonymous@lake/a"))
    assert (google.type_name, path) == ("gcs", "lake/a")
    url = "abfs://container@account.dfs.core.windows.net/a"
    azure, path = remote_files.file_system(BucketUrl.parse(url))
    assert (azure.type_name, path) == ("abfs", "container/a")
    with pytest.raises(DeepJoinError, match="Cannot reach abfs://container/a: "):
        remote_files.file_system(BucketUrl.parse("abfs://container/a"))


def test_the_region_is_asked_for_only_at_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def resolve(name: str) -> str:
        asked.append(name)
        if name == "away":
            raise OSError("curlCode: 6")
        return "eu-west-3"

    monkeypatch.setattr(pa.fs, "resolve_s3_region", resolve)
    use(monkeypatch, "")
    assert remote_files._region("lake") == "us-east-1"
    monkeypatch.delenv("AWS_REGION")
    assert remote_files._region("lake") == "eu-west-3"
    assert remote_files._region("away") is None
    assert asked == ["lake", "away"]
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in str(
        explained(OSError("very-secret"), "Cannot", BucketUrl.parse("s3://lake"))
    )


def test_the_memory_of_dictionaries_is_known(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepjoin.read.parquet._MOST_RISK", 0)
    source = BucketSource("s3://lake/geo", Settings())
    assert source.table("eu/towns.parquet").open().memory > 0
