"""What can go wrong with a vector store is told in one line: what, where, and what mends it."""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any

import pytest

import deepjoin
from deepjoin import DeepJoinError
from deepjoin.engines.postgres import schema
from deepjoin.engines.postgres.publishing import _SharedProgress, search_new, withdraw
from deepjoin.engines.postgres.schema import VectorTable
from deepjoin.engines.postgres.server import Extension, Server
from deepjoin.errors import MissingExtra, StoreUnreachable, StoreUnusable
from deepjoin.indexing import publish
from deepjoin.progress import no_progress
from deepjoin.settings import PublishSettings
from tests.support.options import index_options
from tests.support.vector_stores import execute, frames, fresh, hits, table_of, towns


def test_what_is_there_must_be_of_the_same_encoder(own_lake: Path, store_url: str) -> None:
    publish(own_lake, store_url, spaces=["columns"])
    for change, says in [
        ("encoder = 'mpnet', digest = '0'", r"with encoder mpnet \(0\), .*lake has .* \("),
        ("metric = 'euclidean'", "with metric euclidean, .*lake has cosine"),
        ("dimension = 5", "with dimension 5, .*lake has 384. Publish it with: deepjoin publish"),
    ]:
        execute(store_url, f"UPDATE deepjoin.parts SET {change} WHERE space = 'columns'")
        with pytest.raises(StoreUnusable, match=f"has vectors 'columns' of segment .* {says}"):
            deepjoin.open(own_lake, vector_store=store_url)
        done = publish(own_lake, store_url, spaces=["columns"])
        assert (done.sent, done.removed) == (1, 1)
        there = deepjoin.open(own_lake, vector_store=store_url)
        assert hits(there) == hits(deepjoin.open(own_lake))


def test_lakes_that_differ_in_their_encoder_alone_are_kept_apart(
    own_lake: Path, store_url: str
) -> None:
    truth = hits(deepjoin.open(own_lake))
    publish(own_lake, store_url, spaces=["columns"])
    ((digest,),) = execute(store_url, "SELECT digest FROM deepjoin.parts")
    execute(store_url, "UPDATE deepjoin.parts SET digest = 'another'")
    publish(own_lake, store_url, spaces=["columns"], name="ours")
    assert execute(store_url, "SELECT count(*) FROM deepjoin.parts WHERE ready") == [(2,)]
    assert hits(deepjoin.open(own_lake, vector_store=store_url)) == truth
    # Nor does it matter which came first.
    change = "UPDATE deepjoin.parts SET digest = '{}' WHERE digest = '{}'"
    swap = [("third", digest), (digest, "another"), ("another", "third")]
    execute(store_url, *(change.format(*names) for names in swap))
    assert hits(deepjoin.open(own_lake, vector_store=store_url)) == truth


def test_a_space_that_was_left_out_is_named(own_lake: Path, store_url: str) -> None:
    assert publish(own_lake, store_url, spaces=["columns"]).parts == 1
    there = deepjoin.open(own_lake, vector_store=store_url)
    assert hits(there)
    with pytest.raises(StoreUnusable, match="has no vectors 'both' of 1 of 1 segments"):
        hits(there, "deepjoin-sketch")
    with pytest.raises(DeepJoinError, match="No space 'rows' in an index. Spaces: columns, sketc"):
        publish(own_lake, store_url, spaces=["rows"])
    with pytest.raises(DeepJoinError, match="No vector index 'ivf' in a vector store. Known: auto"):
        publish(own_lake, store_url, settings=PublishSettings(index="ivf"))
    with pytest.raises(DeepJoinError, match="`effort` is 2000; a search keeps 1 to 1000 cand"):
        publish(own_lake, store_url, settings=PublishSettings(effort=2000, index="hnsw"))


def test_an_effort_beyond_that_of_a_graph_is_refused(
    own_lake: Path, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(
        own_lake, store_url, spaces=["columns"], settings=PublishSettings(effort=5000)
    )  # all are compared
    publish(own_lake, store_url, spaces=["columns"], settings=PublishSettings(index="hnsw"))
    assert execute(store_url, "SELECT indexed, effort FROM deepjoin.parts") == [(True, 200)]
    says = "`effort` is 5000; a search of the vectors 'columns' by a graph keeps 1 to 1000 "
    with pytest.raises(DeepJoinError, match=says):
        publish(own_lake, store_url, spaces=["columns"], settings=PublishSettings(effort=5000))
    withdraw(store_url, "lake")
    monkeypatch.setattr("deepjoin.engines.postgres.publishing.SCANNED_UP_TO", 0)
    with pytest.raises(DeepJoinError, match=says):
        publish(own_lake, store_url, settings=PublishSettings(effort=5000))
    assert (
        publish(own_lake, store_url, spaces=["sketch"], settings=PublishSettings(effort=5000)).sent
        == 1
    )


@pytest.mark.parametrize(
    ("space", "metric", "dimension", "index"),
    [
        ("columns", "cosine", 2000, "hnsw"),
        ("columns", "cosine", 2001, "codes"),
        ("columns", "euclidean", 2000, "hnsw"),
        ("both", "euclidean", 2001, "exact"),
        ("both", "cosine", 2000, "codes"),
    ],
)
def test_what_suits_vectors_depends_on_what_an_index_takes(
    space: str, metric: str, dimension: int, index: str
) -> None:
    rest = (20_000, 20_000, "vector", False, 0, "t")
    part = VectorTable(0, "s", space, 0, 1, "e", "d", metric, dimension, *rest)
    chosen = search_new(part, PublishSettings(), Extension("public", "0.6.0"))
    assert (chosen.coded, chosen.indexed) == (index == "codes", index == "hnsw")


def test_a_server_that_goes_and_comes_back(
    own_lake: Path, store_url: str, vector_server: str
) -> None:
    publish(own_lake, store_url)
    there = deepjoin.open(own_lake, vector_store=store_url)
    truth = hits(there)
    ends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'publishing'"
    execute(vector_server, ends)
    assert hits(there) == truth  # by a new connection
    execute(vector_server, "ALTER DATABASE publishing ALLOW_CONNECTIONS false", ends)
    for _ in range(2):
        with pytest.raises(
            StoreUnusable, match=r"^Cannot connect to postgresql://.*: .*\.$"
        ) as told:
            hits(there)
        assert "\n" not in str(told.value)
    execute(vector_server, "ALTER DATABASE publishing ALLOW_CONNECTIONS true")
    assert hits(there) == truth


@pytest.mark.slow
def test_a_server_that_takes_too_long(
    own_lake: Path, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(own_lake, store_url)
    there = deepjoin.open(own_lake, vector_store=store_url)
    truth = hits(there)
    monkeypatch.setattr("deepjoin.engines.postgres.shards.ANSWERING", 0.1)
    import psycopg

    with psycopg.connect(store_url) as blocking:
        blocking.execute(f"LOCK TABLE deepjoin.parts, {table_of(store_url)}".encode())
        with pytest.raises(StoreUnusable, match="did not answer within 10 seconds. Try again, or"):
            hits(there)
        for module in ("server", "store"):
            monkeypatch.setattr(f"deepjoin.engines.postgres.{module}.ANSWERING", 0.1)
        late = deepjoin.open(own_lake, vector_store=store_url)
        with pytest.raises(StoreUnreachable, match="did not answer within 0.1 seconds. Try again"):
            hits(late)
    assert hits(there) == truth
    assert hits(late) == truth


@pytest.mark.slow
def test_publishing_may_take_longer_than_questions(own_lake: Path, store_url: str) -> None:
    execute(store_url, "ALTER DATABASE publishing SET statement_timeout = '100ms'")
    assert publish(own_lake, store_url, progress=lambda *_: sleep(0.3)).sent == 3
    assert hits(deepjoin.open(own_lake, vector_store=store_url)) == hits(deepjoin.open(own_lake))


def test_connections_notice_that_the_other_end_has_gone(store_url: str) -> None:
    for url, idle in [(store_url, "10"), (f"{store_url}&keepalives_idle=99", "99")]:
        with Server(url).session() as connection:
            known = connection.info.get_parameters()
        names = ("keepalives_idle", "keepalives_interval", "keepalives_count")
        assert [known[name] for name in names] == [idle, "5", "2"]


def test_what_cannot_be_stopped_does_not_hide_what_went_wrong(store_url: str) -> None:
    import psycopg

    asked = []

    class Unreachable:
        def cancel_safe(self, *, timeout: float) -> None:
            asked.append(timeout)
            raise psycopg.OperationalError("no route")

    server = Server(store_url)
    server._working += [Unreachable(), Unreachable()]  # type: ignore[list-item]
    server.interrupt()
    assert asked == [5, 5]


def test_what_is_no_store_is_named(
    own_lake: Path, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for given, says in [
        (
            "mysql://me:secret@h/d",
            r"^mysql://\.\.\. was given as a vector store, which is",
        ),
        ("vectors", "^Text that is not a URL was given as a vector store, which is"),
        ("password=secret", "^Text that is not a URL was given as a vector store, which"),
        ("me:secret@db/vectors", "^Text that is not a URL was given as a vector store, which"),
    ]:
        for use in (
            partial(deepjoin.open, vector_store=given),
            partial(publish, vector_store=given),
        ):
            with pytest.raises(DeepJoinError, match=says) as told:
                use(own_lake)
            assert "secret" not in str(told.value)
    with pytest.raises(DeepJoinError, match="No vector store was given. Give an address, e.g"):
        publish(own_lake, " ")
    with pytest.raises(StoreUnusable, match="has no vectors of") as told:
        deepjoin.open(own_lake, vector_store=store_url.replace("postgres:@", "postgres:hush@"))
    assert "hush" not in str(told.value)
    wrong = store_url.replace("postgres:@", "nobody:hush@")
    with pytest.raises(StoreUnusable, match='Cannot connect to .* role "nobody" does not') as told:
        publish(own_lake, wrong)
    assert "hush" not in str(told.value)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"needs psycopg: pip install 'deepjoin\[postgres"):
        publish(own_lake, store_url)


def test_a_server_without_what_is_needed_says_so(own_lake: Path, store_url: str) -> None:
    execute(store_url, "CREATE ROLE plain LOGIN", "GRANT CREATE ON DATABASE publishing TO plain")
    plain = store_url.replace("postgres:@", "plain:@")
    try:
        with pytest.raises(StoreUnusable, match=r"has no pgvector \(.*\). Have it installed, then"):
            publish(own_lake, plain)
        assert execute(store_url, "SELECT to_regnamespace('deepjoin')") == [(None,)]
        execute(store_url, "CREATE EXTENSION vector")
        publish(own_lake, store_url)
        with pytest.raises(StoreUnusable, match="does not allow it: permission denied .*USAGE on"):
            deepjoin.open(own_lake, vector_store=plain)
        execute(
            store_url,
            "GRANT USAGE ON SCHEMA deepjoin TO plain",
            "GRANT SELECT ON ALL TABLES IN SCHEMA deepjoin TO plain",
        )
        assert hits(deepjoin.open(own_lake, vector_store=plain)) == hits(deepjoin.open(own_lake))
    finally:
        execute(store_url, "DROP OWNED BY plain CASCADE", "DROP ROLE plain")
    (version,) = execute(store_url, "SELECT extversion FROM pg_extension WHERE extname = 'vector'")
    execute(store_url, "UPDATE pg_extension SET extversion = '0.4.4' WHERE extname = 'vector'")
    with pytest.raises(StoreUnusable, match="has pgvector 0.4.4; HNSW needs 0.5 or newer. Update"):
        publish(own_lake, store_url)
    execute(
        store_url, f"UPDATE pg_extension SET extversion = '{version[0]}' WHERE extname = 'vector'"
    )
    execute(store_url, "DROP EXTENSION vector CASCADE")
    with pytest.raises(StoreUnusable, match="has lost pgvector, .* after deepjoin publish --remo"):
        deepjoin.open(own_lake, vector_store=store_url)
    assert withdraw(store_url, "lake") == 3
    publish(own_lake, store_url)
    execute(store_url, "UPDATE deepjoin.store SET format = 9")
    for use in (
        lambda: publish(own_lake, store_url),
        lambda: deepjoin.open(own_lake, vector_store=store_url),
    ):
        with pytest.raises(StoreUnusable, match="have format 9; this version reads up to 1. Inst"):
            use()


@pytest.mark.slow
def test_vectors_that_are_too_wide_or_missing_are_named(tmp_path: Path, store_url: str) -> None:
    wide = tmp_path / "wide"
    deepjoin.index(
        frames(towns(0, 2)),
        wide,
        vectors={"sketch": 4160, "cells": "none"},
        settings=deepjoin.Settings(min_distinct=1),
    )
    with pytest.raises(
        DeepJoinError,
        match=r"'sketch' have 4160 dimensions; an index of pgvector 0.\d.\d takes up to [24]000. "
        'Use `index="codes"` or `index="exact"`, leave them out with `spaces`, or make them',
    ):
        publish(wide, store_url, settings=PublishSettings(index="hnsw"))
    for ann in ("codes", "exact", "auto"):
        assert publish(wide, store_url, settings=PublishSettings(index=ann)).parts == 1
    far = tmp_path / "far"
    options = {"encoder": "default", "metric": "euclidean", "min_distinct": 1}
    deepjoin.index(frames(towns(0, 2)), far, **index_options(**options))
    with pytest.raises(DeepJoinError, match="'columns' are compared by euclidean distance; "):
        publish(far, store_url, settings=PublishSettings(index="codes"))
    bare = tmp_path / "bare"
    deepjoin.index(
        frames(towns(0, 2)),
        bare,
        vectors={"cells": "none"},
        settings=deepjoin.Settings(min_distinct=1),
    )
    with pytest.raises(DeepJoinError, match="has no column vectors .*--encoder default"):
        publish(bare, store_url)


@pytest.mark.parametrize("late", [False, True], ids=["at work", "between two statements"])
def test_a_server_that_fails_stops_the_others(
    own_lake: Path, store_url: str, vector_server: str, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    other = fresh(vector_server, "stuck")
    publish(own_lake, [store_url, other], spaces=["sketch"])
    if late:
        # The request to stop comes before the statement that waits for the lock.
        add_table = schema.add_table

        def delayed(connection: psycopg.Connection[Any], *arguments: Any, **options: Any) -> Any:
            sleep(0 if connection.info.dbname == "stuck" else 1)
            return add_table(connection, *arguments, **options)

        monkeypatch.setattr(schema, "add_table", delayed)
    execute(other, "ALTER TABLE deepjoin.parts ADD CHECK (space <> 'columns') NOT VALID")
    with psycopg.connect(store_url) as blocking:
        blocking.execute("LOCK TABLE deepjoin.parts IN EXCLUSIVE MODE")  # reading goes on
        with pytest.raises(StoreUnusable, match="said: new row for relation .parts. violates che"):
            publish(own_lake, [store_url, other])
    assert execute(store_url, "SELECT count(*) FROM deepjoin.parts") == [(1,)]
    count = _SharedProgress(10, no_progress)
    count.stopped = True
    with pytest.raises(DeepJoinError, match="Another server failed; run the same command again."):
        count.add(1, "vectors")


@pytest.mark.slow
@pytest.mark.parametrize("servers", [1, 2])
def test_an_interrupted_run_stops_at_once(
    own_lake: Path, store_url: str, vector_server: str, servers: int
) -> None:
    import psycopg

    urls = [store_url, fresh(vector_server, "stuck")][:servers]
    publish(own_lake, urls, spaces=["sketch"])
    script = (
        # Tests that run in the background ignore Ctrl-C, and so would what they start.
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from deepjoin.indexing import publish; publish(*sys.argv[1:])"
    )
    with psycopg.connect(store_url) as blocking:
        blocking.execute("LOCK TABLE deepjoin.parts IN EXCLUSIVE MODE")
        arguments = [str(own_lake), " ".join(urls)]
        run = subprocess.Popen(
            [sys.executable, "-c", script, *arguments], stderr=subprocess.PIPE, text=True
        )
        waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        while execute(store_url, waits) != [(1,)]:
            sleep(0.05)
        run.send_signal(signal.SIGINT)
        _, said = run.communicate(timeout=20)
    assert said.rstrip().endswith("KeyboardInterrupt")
