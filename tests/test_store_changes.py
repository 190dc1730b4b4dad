"""A vector store that others change, or that is down: nothing is lost, and searches go on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread

import pytest

import deepjoin
from deepjoin import DeepJoinError
from deepjoin.cli import main
from deepjoin.engines.postgres.publishing import withdraw
from deepjoin.errors import StoreChanged, StoreUnreachable, StoreUnusable
from deepjoin.indexing import publish
from deepjoin.serve.current import CurrentLake
from deepjoin.settings import PublishSettings
from tests.support.vector_stores import execute, frames, fresh, hits, table_of, towns

DOCS = Path(__file__).parent.parent / "docs"
#: Nothing listens there.
DOWN = "postgresql://me@127.0.0.1:1/vectors"


@pytest.fixture(autouse=True)
def separate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small lakes have several segments, as large ones do."""
    monkeypatch.setattr("deepjoin.build.update.worth_merging", lambda sizes, shares: len(sizes))


@pytest.mark.slow
@pytest.mark.parametrize("servers", [1, 2])
def test_one_run_at_a_time_publishes_a_lake(
    own_lake: Path, store_url: str, vector_server: str, servers: int
) -> None:
    urls = [store_url, fresh(vector_server, "beside")][:servers]
    publish(own_lake, urls)
    deepjoin.open(own_lake).add(frames(towns(30, 32)))
    begun, go_on, done = Event(), Event(), []

    def wait(*_: object) -> None:
        begun.set()
        assert go_on.wait(30)

    first = Thread(target=lambda: done.append(publish(own_lake, urls, progress=wait)))
    first.start()
    try:
        assert begun.wait(30)
        for second in (
            lambda: publish(own_lake, urls[::-1], settings=PublishSettings(index="codes")),
            lambda: withdraw(urls, "lake"),
        ):
            with pytest.raises(DeepJoinError, match="Another run is publishing 'lake' to postgres"):
                second()
        # Another lake does not wait for it.
        assert publish(own_lake, urls, name="other", spaces=["sketch"]).parts
    finally:
        go_on.set()
        first.join()
    assert done
    assert publish(own_lake, urls).sent == 0
    for method in ("deepjoin", "sketch", "deepjoin-sketch"):
        there = deepjoin.open(own_lake, vector_store=urls)
        assert hits(there, method) == hits(deepjoin.open(own_lake), method)


def test_lakes_may_be_published_at_the_same_time(own_lake: Path, store_url: str) -> None:
    """To a database without any tables, and of the same segments, which are sent once."""
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda name: publish(own_lake, store_url, name=name), "abcd"))
    assert sum(one.sent for one in done) == 3
    assert hits(deepjoin.open(own_lake, vector_store=store_url)) == hits(deepjoin.open(own_lake))
    assert [withdraw(store_url, name) for name in "abcd"] == [0, 0, 0, 3]


def test_what_is_taken_by_another_lake_is_not_dropped(own_lake: Path, store_url: str) -> None:
    import psycopg

    publish(own_lake, store_url, spaces=["columns"])
    key = "deepjoin part " + " ".join(
        map(str, execute(store_url, "SELECT segment, space, shard, shards FROM deepjoin.parts")[0])
    )
    with psycopg.connect(store_url) as taking:
        taking.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [key])
        assert withdraw(store_url, "lake") == 0
        taking.execute("INSERT INTO deepjoin.lakes VALUES ('taker', 'there', '1')")
        taking.execute("INSERT INTO deepjoin.uses SELECT 'taker', id FROM deepjoin.parts")
    assert hits(deepjoin.open(own_lake, vector_store=store_url)) == hits(deepjoin.open(own_lake))
    assert withdraw(store_url, "taker") == 1


@pytest.mark.slow
def test_an_open_lake_finds_the_tables_that_took_the_place_of_others(
    own_lake: Path, store_url: str, vector_server: str
) -> None:
    publish(own_lake, store_url)
    there = deepjoin.open(own_lake, vector_store=store_url)
    truth = hits(there)
    publish(own_lake, store_url, settings=PublishSettings(index="codes"))
    assert hits(there) == truth
    withdraw(store_url, "lake")
    with pytest.raises(StoreChanged, match="no longer holds vectors .* publish it with: deepjoin"):
        hits(there)
    publish(own_lake, store_url)
    assert hits(there) == truth
    publish(own_lake, [store_url, fresh(vector_server, "beside")])
    with pytest.raises(StoreChanged, match="no longer holds vectors"):
        hits(there)
    # In a database that was made anew the numbers begin again; no name is the same.
    before = table_of(store_url)
    fresh(vector_server, "publishing")
    publish(own_lake, store_url)
    assert hits(there) == truth
    assert table_of(store_url) != before


@pytest.fixture
def as_documented(vector_server: str) -> Iterator[str]:
    """Make a database by what the documentation says, word by word."""
    text = (DOCS / "vector-store.md").read_text("utf-8")
    found = re.search(r"```sql\n(.*?)\\c vectors\n(.*?)```", text, re.DOTALL)
    assert found is not None
    url = vector_server.replace("/postgres?", "/vectors?")
    try:
        execute(vector_server, found[1])
        execute(url, found[2])
        yield url
    finally:
        execute(vector_server, "DROP DATABASE IF EXISTS vectors WITH (FORCE)")
        execute(vector_server, "DROP ROLE IF EXISTS publisher", "DROP ROLE IF EXISTS reader")


def test_the_documented_roles_can_publish_and_search(own_lake: Path, as_documented: str) -> None:
    publisher, reader = (
        as_documented.replace("postgres:@", f"{role}:@") for role in ("publisher", "reader")
    )
    with pytest.raises(StoreUnusable, match="has no vectors of"):
        deepjoin.open(own_lake, vector_store=reader)
    assert publish(own_lake, publisher).sent == 3
    assert publish(own_lake, publisher).sent == 0
    assert hits(deepjoin.open(own_lake, vector_store=reader)) == hits(deepjoin.open(own_lake))
    with pytest.raises(StoreUnusable, match="does not allow it: permission denied"):
        publish(own_lake, reader, spaces=["columns"], settings=PublishSettings(index="codes"))


@pytest.mark.slow
def test_what_needs_no_store_goes_on_without_it(
    own_lake: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    search = ["search", str(own_lake), "--values", "city 3,city 4", "--format", "json", "--method"]
    assert main([*search, "hybrid"]) == 0
    truth = json.loads(capsys.readouterr().out)["hits"]
    monkeypatch.setenv("DEEPJOIN_VECTOR_STORE", DOWN)
    assert main([*search, "hybrid"]) == 0
    told = capsys.readouterr()
    assert (json.loads(told.out)["hits"], told.err) == (truth, "")
    assert main([*search, "deepjoin"]) == 1
    told = capsys.readouterr()
    assert re.fullmatch(r".*Cannot connect to postgresql://me@127.0.0.1:1/vectors: .*\n", told.err)


def test_a_service_starts_without_its_store_and_finds_it_later(
    own_lake: Path, store_url: str, vector_server: str, caplog: pytest.LogCaptureFixture
) -> None:
    publish(own_lake, store_url)
    ends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'publishing'"
    closed = "ALTER DATABASE publishing ALLOW_CONNECTIONS "
    execute(vector_server, closed + "false", ends)
    lake = deepjoin.open(own_lake, vector_store=store_url)
    current = CurrentLake(lake, every=0.0)
    assert caplog.text.count("Cannot connect to") == 1
    assert "Methods with column vectors fail until it answers." in caplog.text
    assert hits(lake, "hybrid") == hits(deepjoin.open(own_lake), "hybrid")
    with pytest.raises(StoreUnreachable, match="Cannot connect to"):
        hits(lake)
    execute(vector_server, closed + "true")
    assert hits(lake) == hits(deepjoin.open(own_lake))
    # What is open stays as it is, for it cannot be known whether the store has what is newer.
    execute(vector_server, closed + "false", ends)
    deepjoin.open(own_lake).add(frames(towns(50, 52)))
    assert not current.renew()
    with pytest.raises(StoreUnreachable, match="Cannot connect to"):
        lake.reopen()
    execute(vector_server, closed + "true")
    publish(own_lake, store_url)
    assert current.renew()


def test_a_space_of_another_lake_is_not_asked_for(own_lake: Path, store_url: str) -> None:
    publish(own_lake, store_url, spaces=["columns"], name="other")
    changing = deepjoin.open(own_lake)
    changing.add(frames(towns(30, 32)))
    assert len(changing.index.segments) == 2
    publish(own_lake, store_url, spaces=["sketch"])
    there = deepjoin.open(own_lake, vector_store=store_url)
    assert hits(there, "sketch") == hits(changing, "sketch")
    with pytest.raises(StoreUnusable, match="has no vectors 'columns' of 1 of 2 segments"):
        hits(there)


@pytest.mark.slow
def test_passwords_are_not_shown(
    own_lake: Path, vector_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    urls = [fresh(vector_server, name) for name in ("shown", "beside")]
    both = " ".join(url.replace("postgres:@", "postgres:hush@") for url in urls)
    for more in ([], ["--format", "json"], ["--remove"]):
        assert main(["publish", str(own_lake), both, *more]) == 0
        told = capsys.readouterr()
        assert "postgresql://postgres@/shown" in told.err
        assert "postgresql://postgres@/beside" in told.err
        assert "hush" not in told.out + told.err
    for wrong in ("password=hush", "me:hush@db/vectors", f"{urls[0]} me:hush@db/vectors"):
        assert main(["publish", str(own_lake), wrong]) == 1
        assert "hush" not in "".join(capsys.readouterr())
        assert main(["search", str(own_lake), "--values", "a", "--vector-store", wrong]) == 1
        assert "hush" not in "".join(capsys.readouterr())


@pytest.mark.slow
def test_a_device_and_a_store_exclude_each_other(
    own_lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    search = ["search", str(own_lake), "--values", "a", "--vector-store", DOWN]
    assert main([*search, "--device", "cuda"]) == 1
    assert "Device cuda came with a vector store; column vectors" in capsys.readouterr().err
