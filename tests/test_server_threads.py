"""Threads that search one lake at once get what one alone gets, also while it is renewed."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import deepjoin
from deepjoin import Column, Lake
from deepjoin.errors import DeepJoinError
from deepjoin.search.searcher import Searcher, SearcherCache
from deepjoin.serve.current import CurrentLake
from deepjoin.settings import Vectors
from tests.support.serving import serving

#: Every kind of searcher: by postings, by cell vectors, by column vectors, exactly by meaning.
WAYS: list[dict[str, Any]] = [
    {"join": "equi"},
    {"join": "any"},
    {"join": "any", "settings": deepjoin.SearchSettings(group="tables")},
    {"join": "semantic", "settings": deepjoin.SearchSettings(tau=0.7)},
    {"method": "deepjoin"},
    {"method": "deepjoin", "join": "semantic"},
    {"method": "exact-semantic", "join": "semantic"},
    {"method": "sketch"},
]
WORDS = [
    "oslo",
    "lima",
    "rome",
    "paris",
    "tokyo",
    "berlin",
    "madrid",
    "cairo",
    "delhi",
    "quito",
    "bern",
    "riga",
    "minsk",
    "sofia",
]


def columns() -> list[Column]:
    """Make columns that overlap, some in other spellings."""
    made = []
    for number in range(24):
        cells = [WORDS[(number * step) % len(WORDS)] for step in range(1, 9)]
        spelled = [cell.title() if number % 3 else f"City of {cell.title()}" for cell in cells]
        made.append(Column(spelled, f"city{number % 4}", f"t{number}.csv"))
    return made


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Index the columns with vectors of every kind."""
    folder = tmp_path_factory.mktemp("threads") / "index"
    vectors = Vectors(encoder="default", sketch=64)
    deepjoin.index(columns(), folder, settings=deepjoin.Settings(min_distinct=1), vectors=vectors)
    return folder


def answers(lake: Lake, query: Column, way: dict[str, Any]) -> list[dict[str, Any]]:
    return [hit.to_dict() for hit in lake.search(query, 5, **way)]


@pytest.mark.slow
def test_threads_get_the_answers_of_one(path: Path) -> None:
    asked = [(query, way) for way in WAYS for query in columns()[:6]] * 3
    alone = deepjoin.open(path)
    expected = [answers(alone, *one) for one in asked]
    # None of its searchers, encoders and maps is there yet when all threads start.
    shared, start = deepjoin.open(path), threading.Barrier(8)
    with ThreadPoolExecutor(8, initializer=start.wait) as pool:
        found = list(pool.map(lambda one: answers(shared, *one), asked))
    assert found == expected


def test_a_searcher_is_made_once_for_all_that_wait_for_it() -> None:
    searchers, go, made = SearcherCache(), threading.Event(), []

    def make() -> Searcher:
        go.wait()
        made.append(object())
        return made[-1]  # type: ignore[return-value]

    with ThreadPoolExecutor(4) as pool:
        got = [pool.submit(searchers.get, "key", make) for _ in range(4)]
        go.set()
        assert {id(one.result()) for one in got} == {id(made[0])}
    assert len(made) == 1


def test_a_searcher_that_could_not_be_made_is_tried_again() -> None:
    searchers = SearcherCache()

    def fails() -> Searcher:
        raise DeepJoinError("not now")

    with pytest.raises(DeepJoinError, match="not now"):
        searchers.get("key", fails)
    assert searchers.get("key", lambda: "made") == "made"  # type: ignore[arg-type,return-value]


def test_searchers_of_many_taus_do_not_pile_up() -> None:
    searchers = SearcherCache(2)
    for key in (1, 2, 1, 3):
        searchers.get(key, lambda key=key: f"first {key}")  # type: ignore[misc]
    kept = {key: searchers.get(key, lambda: "second") for key in (1, 3)}  # type: ignore[arg-type,return-value]
    assert kept == {1: "first 1", 3: "first 3"}
    assert searchers.get(2, lambda: "second") == "second"  # type: ignore[arg-type,return-value]


@pytest.mark.slow
def test_a_renewed_lake_leaves_the_old_one_as_it_was(lake_folder: Path) -> None:
    old = deepjoin.index(lake_folder)
    assert old.renewed() is old
    (lake_folder / "more.csv").write_text("country\nFrance\nPeru\nItaly\nSpain\nJapan\n")
    generation = old.index.generation
    deepjoin.index(lake_folder)
    new = old.renewed()
    assert ("more.csv" in new, "more.csv" in old) == (True, False)
    assert (old.index.generation, new.index.generation != generation) == (generation, True)
    found = [{hit.table for hit in lake.search(["Peru", "Italy"])} for lake in (old, new)]
    assert found[1] - found[0] == {"more.csv"}
    deepjoin.open(new.path).remove("more.csv")
    newest = new.renewed()
    assert "more.csv" not in newest
    assert newest.index.segments[0].values is new.index.segments[0].values, (
        "what is the same is shared"
    )


@pytest.mark.slow
def test_a_service_takes_up_a_newer_index_between_requests(
    lake_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The service itself would look, and be first on a slow machine.
    monkeypatch.setattr("deepjoin.serve.http.service._TICK", 3600)
    with serving(lake_folder) as served:
        before = served.get("/api/lake")
        asked = {"query": {"values": ["Peru", "Italy"]}}
        assert len(served.post("/api/search", asked)["hits"]) == 2
        assert served.get("/api/tables", text="more")["total"] == 0
        deepjoin.open(lake_folder / ".deepjoin").add({"more": {"c": ["Peru", "Italy", *"abc"]}})
        current = served.service.current
        current._looked = float("-inf")
        assert current.is_due()
        assert current.renew()
        after = served.get("/api/lake")
        assert after["generation"] != before["generation"]
        assert len(served.post("/api/search", asked)["hits"]) == 3
        assert served.get("/api/tables", text="more")["total"] == 1
        assert not current.is_due(), "looked a moment ago"
        assert not current.renew(), "nothing is newer"


@pytest.mark.slow
def test_what_the_old_index_has_lost_is_asked_of_the_new(lake_folder: Path) -> None:
    """A request that started on an index whose files went meanwhile is answered by the next."""
    current = CurrentLake(deepjoin.index(lake_folder))
    deepjoin.open(lake_folder / ".deepjoin").remove("numbers.csv")

    def work(opened: Any) -> int:
        if "numbers.csv" in opened.lake:
            raise deepjoin.store.manifest.IndexUnusable("what this needs is gone")
        return int(opened.lake.report.tables)

    assert current.use(work) == 2
    assert current.renewals == 1


@pytest.mark.slow
def test_a_newer_lake_that_another_thread_has_opened_is_asked(lake_folder: Path) -> None:
    current = CurrentLake(deepjoin.index(lake_folder))
    deepjoin.open(lake_folder / ".deepjoin").remove("numbers.csv")

    def work(opened: Any) -> int:
        if "numbers.csv" in opened.lake:
            assert current.renew(), "the watcher is faster"
            raise deepjoin.store.manifest.IndexUnusable("what this needs is gone")
        return int(opened.lake.report.tables)

    assert current.use(work) == 2
    assert current.renewals == 1


def test_a_newer_index_that_is_damaged_does_not_end_the_service(
    lake_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    current = CurrentLake(deepjoin.index(lake_folder))
    (lake_folder / ".deepjoin" / "manifest.json").write_text("{}")
    assert not current.renew()
    assert "The newer index cannot be opened; the old one is still served:" in caplog.text
    assert current.lake.search(["Peru", "Italy"], join="equi")
    current._looked = float("-inf")
    assert not current.is_due(), "it is told of once"
    with pytest.raises(deepjoin.store.manifest.IndexUnusable, match="as before"):
        current.use(_unusable)


def _unusable(_: object) -> None:
    raise deepjoin.store.manifest.IndexUnusable("as before")


@pytest.mark.slow
def test_searches_run_on_while_the_index_is_renewed(lake_folder: Path) -> None:
    current = CurrentLake(deepjoin.index(lake_folder))
    stop, failures, counts = threading.Event(), [], set()

    def ask() -> None:
        while not stop.is_set():
            try:
                hits = current.use(lambda opened: opened.lake.search(["Peru", "Italy"], join="any"))
                counts.add(len(hits))
            except Exception as error:
                failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    writer = deepjoin.open(lake_folder / ".deepjoin")
    try:
        for number in range(4):
            writer.add({f"more{number}": {"c": ["Peru", "Italy", *"abc"]}})
            assert current.renew()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert max(counts) <= 6
    assert len(current.lake.search(["Peru", "Italy"])) == 6


def test_health_tells_the_state_of_the_index(lake_folder: Path) -> None:
    with serving(lake_folder) as served:
        manifest = lake_folder / ".deepjoin" / "manifest.json"
        content = manifest.read_text()
        manifest.write_text(content[:-9])
        served.service.current.renew()
        assert served.get("/healthz")["index"] == "old"
        manifest.unlink()
        assert served.get("/healthz")["index"] == "gone"
        manifest.write_text(content)
        served.service.current.renew()
        assert served.get("/healthz")["index"] == "current"


@pytest.mark.slow
def test_a_file_that_was_cut_is_reported_instead_of_read(lake_folder: Path) -> None:
    with serving(lake_folder) as served:
        asked = {"query": {"values": ["Peru", "Italy"]}}
        assert served.post("/api/search", asked)["hits"]
        assert served.get("/healthz")["status"] == "ok"
        (folder,) = (lake_folder / ".deepjoin" / "segments").iterdir()
        cut = folder / "cell_rows.npy"
        os.truncate(cut, cut.stat().st_size - 1)
        served.service.current._measured = float("-inf")
        error = served.post("/api/search", asked, 503)["error"]
        assert "cell_rows.npy has" in error
        assert "bytes where" in error
        error = served.get("/healthz", 503)["error"]
        assert error == "The files of the index were changed; searches fail."


@pytest.mark.slow
def test_a_file_that_is_gone_is_still_mapped(lake_folder: Path) -> None:
    current = CurrentLake(deepjoin.index(lake_folder))
    for path in (lake_folder / ".deepjoin" / "segments").rglob("*.npy"):
        path.unlink()
    current._measured = float("-inf")
    assert current.use(lambda opened: opened.lake.search(["Peru", "Italy"], join="equi"))
