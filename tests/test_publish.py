"""Publishing a lake: only what is new is sent, all or nothing, and searches ask what is there."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import deepjoin
from deepjoin import DeepJoinError
from deepjoin.arrays import Half
from deepjoin.cli import main
from deepjoin.engines.postgres.binary import EqualRows
from deepjoin.engines.postgres.publishing import withdraw
from deepjoin.errors import StoreUnusable
from deepjoin.indexing import publish
from deepjoin.serve.current import CurrentLake
from deepjoin.settings import PublishSettings, SearchSettings
from deepjoin.store.column_vectors import ColumnVectors
from tests.support.vector_stores import execute, frames, fresh, hits, table_of, towns

METHODS = ("deepjoin", "sketch", "deepjoin-sketch")
TABLES = "SELECT count(*) FROM pg_tables WHERE schemaname = 'deepjoin' AND tablename ~ '^vectors_'"


@pytest.fixture(autouse=True)
def separate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small lakes have several segments, as large ones do."""
    monkeypatch.setattr("deepjoin.build.update.worth_merging", lambda sizes, shares: len(sizes))


@pytest.mark.parametrize("ann", ["exact", "hnsw", "codes"])
def test_hits_and_their_evidence_are_the_same(own_lake: Path, store_url: str, ann: str) -> None:
    embedded = deepjoin.open(own_lake)
    done = deepjoin.publish(embedded, store_url, settings=deepjoin.PublishSettings(index=ann))
    assert (done.lake, done.parts, done.sent, done.removed) == ("lake", 3, 3, 0)
    assert done.bytes > 0
    there = deepjoin.open(own_lake, vector_store=store_url)
    for method in METHODS:
        assert hits(there, method) == hits(embedded, method)
        tables = [
            [
                hit.table
                for hit in one.search(
                    ["city 3"], 4, method=method, settings=SearchSettings(group="tables")
                )
            ]
            for one in (there, embedded)
        ]
        assert tables[0] == tables[1]
    own = embedded.column("t03", "city")
    assert [hit.table for hit in there.search(own, 6, method="deepjoin")] == [
        hit.table for hit in embedded.search(own, 6, method="deepjoin")
    ]


def test_only_new_segments_are_sent_and_old_ones_dropped(own_lake: Path, store_url: str) -> None:
    assert publish(own_lake, store_url).sent == 3
    assert publish(own_lake, store_url).sent == 0
    changing = deepjoin.open(own_lake)
    changing.add(frames(towns(30, 32)))
    segments = len(changing.index.segments)
    with pytest.raises(
        StoreUnusable,
        match=rf"has no vectors 'columns' of 1 of {segments} segments of .*Publish it with: "
        "deepjoin publish .*lake postgresql://",
    ):
        deepjoin.open(own_lake, vector_store=store_url)
    done = publish(own_lake, store_url)
    assert (done.sent, done.removed, done.parts) == (3, 0, 3 * segments)
    changing.remove("t03", "t30")
    there = deepjoin.open(own_lake, vector_store=store_url)  # the segments are the same
    assert hits(there, k=20) == hits(changing, k=20)
    assert {hit[0] for hit in hits(there, k=100)} == set(changing.tables)
    changing.compact()
    done = publish(own_lake, store_url)
    assert (done.sent, done.removed) == (3, 3 * segments)
    assert execute(store_url, TABLES) == [(3,)]
    with pytest.raises(StoreUnusable, match="no longer holds vectors .* Open the index again"):
        hits(there, k=3)
    assert there.reopen()
    assert hits(there) == hits(changing)


# The 34 vectors of the first space are done before 40 are.
@pytest.mark.parametrize(("at", "left"), [(1, 3), (14, 3), (30, 3), (40, 2)])
def test_a_run_that_is_killed_leaves_what_was_there(
    own_lake: Path, store_url: str, at: int, left: int
) -> None:
    publish(own_lake, store_url)
    before = deepjoin.open(own_lake, vector_store=store_url)
    answers = {method: hits(before, method) for method in METHODS}
    copy = Path(shutil.copytree(own_lake, own_lake.parent / "other"))
    changing = deepjoin.open(copy)
    changing.add(frames(towns(40, 45)))
    changing.compact()
    script = (
        "import os, sys; from deepjoin.indexing import publish\n"
        "def kill(done, total, what):\n"
        f"    if done >= {at}: os.kill(os.getpid(), 9)\n"
        "publish(sys.argv[1], sys.argv[2], name='lake', replace=True, progress=kill)"
    )
    run = subprocess.run([sys.executable, "-c", script, str(copy), store_url], check=False)
    assert run.returncode == -9
    with pytest.raises(StoreUnusable, match="has no vectors of .*other. Publish it with"):
        deepjoin.open(copy, vector_store=store_url)
    assert {method: hits(before, method) for method in METHODS} == answers
    done = publish(copy, store_url, name="lake", replace=True)
    assert (done.sent, done.removed) == (left, 3)
    assert hits(deepjoin.open(copy, vector_store=store_url)) == hits(changing)


def test_lakes_of_one_database_do_not_get_in_each_others_way(
    own_lake: Path, store_url: str, tmp_path: Path
) -> None:
    with pytest.raises(DeepJoinError, match="has no lake 'lake'. It has: none."):
        withdraw(store_url, "lake")
    publish(own_lake, store_url)
    other = tmp_path / "elsewhere" / "lake"
    deepjoin.index(
        frames(towns(20, 24)), other, encoder="default", settings=deepjoin.Settings(min_distinct=1)
    )
    with pytest.raises(
        DeepJoinError,
        match="has another lake 'lake', published from .*Give this one another name with `name`, "
        "or replace it with `replace=True`",
    ):
        publish(other, store_url)
    assert publish(other, store_url, name="other").parts == 1
    copy = Path(shutil.copytree(own_lake, tmp_path / "copy"))
    assert publish(copy, store_url).sent == 0  # the same segments, wherever they lie
    assert withdraw(store_url, "lake") == 0  # the copy has them still
    assert hits(deepjoin.open(own_lake, vector_store=store_url)) == hits(deepjoin.open(own_lake))
    assert withdraw(store_url, "copy") == 3
    with pytest.raises(DeepJoinError, match="has no lake 'copy'. It has: other."):
        withdraw(store_url, "copy")
    with pytest.raises(StoreUnusable, match="has no vectors of .*Publish it with: deepjoin pub"):
        deepjoin.open(own_lake, vector_store=store_url)
    assert publish(own_lake, store_url, name="other", replace=True).removed == 1


def test_shares_on_several_servers(
    own_lake: Path, vector_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = [fresh(vector_server, f"share{n}") for n in range(3)]
    embedded = deepjoin.open(own_lake)
    looked, find = [], EqualRows.of

    def noting(rows: Half) -> EqualRows:
        looked.append(len(rows))
        return find(rows)

    monkeypatch.setattr(EqualRows, "of", noting)
    # A server that lags behind by more than is remembered groups again; here none may.
    monkeypatch.setattr("deepjoin.engines.postgres.publishing._REMEMBERED", 3)
    done = publish(own_lake, urls)
    assert (done.parts, done.sent) == (9, 9)
    assert looked == [24, 24, 24]  # for equal vectors, once for all servers
    assert hits(deepjoin.open(own_lake, vector_store=urls[::-1])) == hits(embedded)
    with pytest.raises(
        StoreUnusable, match=r"has no vectors of .*lake, but some for 3 servers: name all of them.$"
    ):
        deepjoin.open(own_lake, vector_store=urls[:2])
    with pytest.raises(StoreUnusable, match="do not hold one share each of .* was one named twi"):
        deepjoin.open(own_lake, vector_store=[*urls[:2], urls[0]])
    publish(own_lake, urls[:2], spaces=["columns"], name="two")
    with pytest.raises(
        StoreUnusable, match=r"'columns' of 1 of 1 .*, but some for 3 servers: name "
    ):
        deepjoin.open(own_lake, vector_store=[urls[0], urls[2]])
    alone = fresh(vector_server, "alone")
    publish(own_lake, alone)
    with pytest.raises(StoreUnusable, match="but some for 1 server: name only as many.$"):
        deepjoin.open(own_lake, vector_store=[alone, fresh(vector_server, "empty")])
    with pytest.raises(DeepJoinError, match="is named twice; name each server once."):
        publish(own_lake, [alone, alone])


def test_servers_keep_their_shares_in_whatever_order_they_are_named(
    own_lake: Path, vector_server: str
) -> None:
    urls = [fresh(vector_server, f"share{n}") for n in range(3)]
    truth = hits(deepjoin.open(own_lake))
    publish(own_lake, urls[:2])
    done = publish(own_lake, urls[1::-1])
    assert (done.sent, done.removed) == (0, 0)
    # A lake with the same segments on one of them and another one.
    assert publish(own_lake, urls[1:], name="other").sent == 3
    assert hits(deepjoin.open(own_lake, vector_store=urls[:2])) == truth
    assert hits(deepjoin.open(own_lake, vector_store=urls[1:])) == truth
    assert withdraw(urls, "other") == 3
    assert withdraw(urls, "lake") == 6
    with pytest.raises(DeepJoinError, match="share0.*share2.* has no lake 'lake'. It has: none."):
        withdraw(urls, "lake")


def test_an_index_can_be_asked_for_later_and_given_up(own_lake: Path, store_url: str) -> None:
    graphs = "SELECT count(*) FROM pg_indexes WHERE schemaname = 'deepjoin' AND indexdef ~ 'hnsw'"
    publish(own_lake, store_url, spaces=["columns"])
    assert execute(store_url, graphs) == [(0,)]
    publish(
        own_lake, store_url, spaces=["columns"], settings=PublishSettings(index="hnsw", effort=77)
    )
    publish(own_lake, store_url, spaces=["columns"])
    assert execute(store_url, graphs) == [(1,)]
    assert execute(store_url, "SELECT indexed, effort FROM deepjoin.parts") == [(True, 77)]
    assert hits(deepjoin.open(own_lake, vector_store=store_url)) == hits(deepjoin.open(own_lake))
    publish(own_lake, store_url, spaces=["columns"], settings=PublishSettings(index="exact"))
    assert execute(store_url, graphs) == [(0,)]
    done = publish(own_lake, store_url, spaces=["columns"], settings=PublishSettings(index="codes"))
    assert (done.sent, done.removed) == (1, 1)
    assert execute(store_url, "SELECT kind, effort FROM deepjoin.parts") == [("bit", 1000)]
    assert (
        publish(own_lake, store_url, spaces=["columns"], settings=PublishSettings(effort=50)).sent
        == 0
    )
    assert execute(store_url, "SELECT kind, effort FROM deepjoin.parts") == [("bit", 50)]


def test_a_service_moves_on_when_the_store_has_what_is_new(
    own_lake: Path, store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    publish(own_lake, store_url)
    current = CurrentLake(deepjoin.open(own_lake, vector_store=store_url), every=0.0)
    current.renew()
    deepjoin.open(own_lake).add(frames(towns(50, 52)))
    for _ in range(3):
        assert current.is_due()
        assert not current.renew()
    assert caplog.text.count("the old one is still served: postgresql://") == 1
    assert "t50" not in current.lake.tables
    assert hits(current.lake)
    publish(own_lake, store_url)
    assert current.is_due()
    assert current.renew()
    assert "t50" in current.lake.tables
    assert hits(current.lake) == hits(deepjoin.open(own_lake))


def test_the_service_asks_the_store(own_lake: Path, store_url: str, vector_server: str) -> None:
    from starlette.testclient import TestClient

    from deepjoin.serve.http.app import create_app
    from deepjoin.serve.http.settings import ServerSettings

    publish(own_lake, store_url)
    private = own_lake.parent / "private"
    private.mkdir(mode=0o700)
    settings = ServerSettings(str(own_lake), private, vector_store=(store_url,))
    assert store_url not in repr(settings)
    body = {"query": {"values": ["city 3"]}, "method": "deepjoin", "join": "equi", "k": 3}
    with TestClient(create_app(settings), base_url="http://127.0.0.1:8765") as client:
        found = client.post("/api/search", json=body).json()["hits"]
        assert [(hit["table"], hit["column"]) for hit in found] == [
            (hit.table, hit.column)
            for hit in deepjoin.open(own_lake).search(["city 3"], 3, method="deepjoin")
        ]
        execute(vector_server, "DROP DATABASE publishing WITH (FORCE)")
        answer = client.post("/api/search", json=body)
        assert answer.status_code == 503
        assert answer.json()["error"].startswith("Cannot connect to postgresql://postgres@/publ")


def test_the_command_line(
    own_lake: Path,
    store_url: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search = ["search", str(own_lake), "--values", "city 3,city 4", "--method", "deepjoin"]
    search += ["--format", "json"]

    def found(*more: str) -> list[object]:
        assert main([*search, *more]) == 0
        return list(json.loads(capsys.readouterr().out)["hits"])

    truth = found()
    assert main([*search, "--vector-store", store_url]) == 1
    assert "has no vectors of" in capsys.readouterr().err
    assert main(["publish", str(own_lake), store_url, "--format", "json", "--effort", "99"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["sent"] == 3
    assert "as 'lake' to postgresql://postgres@/publishing" in told.err
    assert "3 tables, 3 of them new with" in told.err
    assert found("--vector-store", store_url) == truth
    monkeypatch.setenv("DEEPJOIN_VECTOR_STORE", store_url)
    assert found() == truth
    assert main(["publish", "no index", store_url, "--remove", "--name", "lake"]) == 0
    assert "Removed 'lake' from postgresql://" in capsys.readouterr().err
    assert main(["publish", str(own_lake), store_url, "--remove"]) == 1
    assert "has no lake 'lake'. It has: none." in capsys.readouterr().err
    assert main(search) == 1
    assert "has no vectors of" in capsys.readouterr().err


def test_rows_are_stored_as_they_are(own_lake: Path, store_url: str) -> None:
    publish(own_lake, store_url)
    (segment,) = deepjoin.open(own_lake).index.segments
    found = ColumnVectors.open(segment.folder, "columns")
    assert found is not None
    stored = dict(execute(store_url, f"SELECT first, v::text FROM {table_of(store_url)}"))
    for number, text in stored.items():
        np.testing.assert_array_equal(
            np.array(json.loads(str(text)), np.float16), found.rows[number]
        )
