"""Who gets in: host, origin, token; what every answer tells the browser; how much may be asked."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import deepjoin
from deepjoin.joining.session import Session
from deepjoin.progress import Stopped, StopSignal, check_stop
from deepjoin.serve.http import app, guard
from deepjoin.serve.http.problems import Busy, TooSlow
from deepjoin.serve.http.service import ThreadPool
from tests.support.serving import COUNTRIES, HIT, Served, serving

TOKEN = "s3cret-token"
POLICY = {
    *("default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:"),
    *("connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"),
}


@pytest.fixture
def served(lake_folder: Path) -> Iterator[Served]:
    with serving(lake_folder) as one:
        yield one


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/", "/healthz", "/api/lake", "/api/table?name=x", "/nothing"])
def test_every_answer_has_the_headers(served: Served, path: str) -> None:
    headers = served.client.get(path).headers
    assert set(headers["content-security-policy"].split("; ")) >= POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


def test_nothing_of_the_api_is_kept_by_the_browser(served: Served) -> None:
    assert served.client.get("/api/lake").headers["cache-control"] == "no-store"


@pytest.mark.slow
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "a@127.0.0.1", "", "["])
def test_other_host_names_are_refused_on_loopback(served: Served, host: str) -> None:
    answer = served.client.get("/api/lake", headers={"host": host})
    assert answer.status_code == 400
    assert "answers only at the address it was started on" in answer.json()["error"]


@pytest.mark.slow
@pytest.mark.parametrize("host", ["localhost:8765", "[::1]:8765", "127.0.0.1"])
def test_this_machine_may_ask(served: Served, host: str) -> None:
    assert served.client.get("/api/lake", headers={"host": host}).status_code == 200


@pytest.mark.slow
def test_other_machines_call_it_as_they_like(lake_folder: Path) -> None:
    with serving(lake_folder, host="0.0.0.0") as served:
        answer = served.client.get("/api/lake", headers={"host": "lake.example"})
        assert answer.status_code == 200


@pytest.mark.slow
def test_the_address_decides_and_not_how_it_was_written(lake_folder: Path) -> None:
    with serving(lake_folder, host="Box.home", bound="127.0.1.1") as served:
        for host, status in {"box.home:8765": 200, "127.0.0.1": 200, "evil.example": 400}.items():
            assert served.client.get("/api/lake", headers={"host": host}).status_code == status
    with serving(lake_folder, host="localhost", bound="192.0.2.1") as served:
        answer = served.client.get("/api/lake", headers={"host": "lake.example"})
        assert answer.status_code == 200


def test_pages_of_other_sites_cannot_post(served: Served) -> None:
    other, own = {"origin": "http://evil.example"}, {"origin": "http://127.0.0.1:8765"}
    body = {"values": ["a"]}
    answer = served.client.post("/api/uploads/values", json=body, headers=other)
    assert answer.status_code == 403
    assert answer.json()["error"] == "Requests from pages of other sites are refused."
    assert served.client.post("/api/uploads/values", json=body, headers=own).status_code == 200


def test_an_origin_that_is_no_address_is_of_another_site(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    answer = served.client.post("/api/search", json={}, headers={"origin": "http://["})
    assert answer.status_code == 403
    assert caplog.text == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "given", ["", TOKEN, "Bearer", "Bearer x", f"Bearer {TOKEN}x", f"bearer {TOKEN}", "Bearer é"]
)
def test_without_the_token_there_is_nothing(lake_folder: Path, given: str) -> None:
    with serving(lake_folder, token=TOKEN) as served:
        headers = {"authorization": given.encode("latin-1")} if given else {}
        for path in ("/api/lake", "/api/openapi.json", "/api/nothing", "/metrics"):
            answer = served.client.get(path, headers=headers)
            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"] == "Bearer"
        assert served.client.get("/healthz").status_code == 200


def test_with_the_token_there_is_all(lake_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(lake_folder, token=TOKEN) as served:
        headers = {"authorization": f"Bearer {TOKEN}"}
        answer = served.client.get("/api/lake", headers=headers)
        assert answer.json()["needs_token"]
        document = served.client.get("/api/openapi.json", headers=headers).json()
        assert document["security"] == [{"token": []}]
        assert TOKEN not in repr(served.service.settings)
    assert TOKEN not in caplog.text


def test_a_body_is_stopped_whatever_length_it_claims(lake_folder: Path) -> None:
    with serving(lake_folder, max_upload=1000) as served:
        parts = (b'{"values": [' + b'"x",' * 100 for _ in range(20))
        answer = served.client.post(
            "/api/uploads/values", content=parts, headers={"content-type": "application/json"}
        )
        assert answer.status_code == 413
        assert "larger than 1,000 bytes" in answer.json()["error"]


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/api/uploads", "/api/search"])
def test_a_body_that_does_not_come_is_not_waited_for(
    lake_folder: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "_PATIENCE", 1)
    with serving(lake_folder, seconds=0.05) as served:
        messages = asyncio.run(stalled(served, path))
        assert messages[0]["status"] == 408
        assert (b"connection", b"close") in messages[0]["headers"]
        assert b"The request did not arrive within 0.05 seconds." in messages[1]["body"]
        assert list(served.service.uploads._folder.iterdir()) == []


async def stalled(served: Served, path: str) -> list[dict[str, Any]]:
    """Send the start of a body and never the rest; return what is answered."""
    blocks, answered = [{"type": "http.request", "body": b"{", "more_body": True}], []

    async def receive() -> dict[str, Any]:
        if not blocks:
            await asyncio.Event().wait()
        return blocks.pop()

    async def send(message: Any) -> None:
        answered.append(message)

    headers = [(b"host", b"127.0.0.1:8765"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
    scope |= {"query_string": b"", "scheme": "http", "server": ("127.0.0.1", 8765)}
    async with asyncio.timeout(20):
        await served.client.app(scope, receive, send)
    return answered


def test_documents_that_load_from_elsewhere_are_not_served(served: Served) -> None:
    assert served.client.get("/docs").status_code == 404
    assert served.client.get("/redoc").status_code == 404
    assert served.client.get("/api/openapi.json").json()["info"]["title"] == "deepjoin"


def test_the_page_is_its_files_and_no_others(
    lake_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = tmp_path / "page"
    (built / "assets").mkdir(parents=True)
    (built / "index.html").write_text("<!doctype html>")
    (built / "assets" / "main-1a2b.js").write_text("1")
    monkeypatch.setattr(app, "PAGE", built)
    with serving(lake_folder) as served:
        index = served.client.get("/?view=search&table=x")
        assert (index.text, index.headers["cache-control"]) == ("<!doctype html>", "no-cache")
        tag = {"if-none-match": index.headers["etag"]}
        assert served.client.get("/", headers=tag).status_code == 304
        script = served.client.get("/assets/main-1a2b.js")
        assert script.headers["content-type"].startswith("text/javascript")
        assert "immutable" in script.headers["cache-control"]
        for path in ("/..%2f..%2fpyproject.toml", "/assets/", "/assets/%2e%2e/index.html", "/x"):
            assert served.client.get(path).status_code == 404, path


def test_without_the_page_the_api_is_reported(
    lake_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "PAGE", tmp_path / "none")
    with serving(lake_folder) as served:
        assert "The page is not built" in served.get("/", 404)["error"]


def test_work_is_bounded_and_ends() -> None:
    work, go = ThreadPool(1, 1, 30), threading.Event()

    async def ask() -> list[object]:
        first, second = (asyncio.create_task(work.run(go.wait)) for _ in range(2))
        await asyncio.sleep(0)
        with pytest.raises(Busy, match="The service is busy: 2 requests wait."):
            await work.run(go.wait)
        go.set()
        done = [await first, await second]
        while work.held:
            await asyncio.sleep(0)
        return [*done, await work.run(lambda: 3)]

    assert asyncio.run(ask()) == [True, True, 3]


def test_work_that_takes_too_long_is_given_up() -> None:
    work, go = ThreadPool(1, 1, 0.01), threading.Event()

    async def ask() -> None:
        with pytest.raises(TooSlow, match="The request took longer than 0.01 seconds"):
            await work.run(go.wait)
        assert work.held == 1, "it holds its place while it runs"
        go.set()
        while work.held:
            await asyncio.sleep(0)
        # What the work itself raises is not taken for the limit.
        with pytest.raises(TimeoutError, match="its own"):
            await work.run(_times_out)

    asyncio.run(ask())


def _times_out() -> None:
    raise TimeoutError("its own")


def test_a_slow_request_is_reported(lake_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    monkeypatch.setattr("deepjoin.serve.http.routes.describe_table", lambda *_: go.wait())
    with serving(lake_folder, seconds=0.01) as served:
        assert "raise the limit" in served.get("/api/table", 408, name="x")["error"]
        go.set()


def test_a_damaged_index_is_reported_as_such(
    lake_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(lake_folder) as served:
        error = deepjoin.store.manifest.IndexUnusable("it is damaged")
        monkeypatch.setattr(type(served.service.current.lake), "search", _raising(error))
        refused = served.post("/api/search", {"query": {"values": ["a"]}}, 503)
        assert refused == {"error": "it is damaged"}


def _raising(error: Exception) -> object:
    def fails(*_: object, **__: object) -> None:
        raise error

    return fails


def test_a_preview_names_no_path_of_the_machine(served: Served, lake_folder: Path) -> None:
    folder = str(lake_folder.resolve())
    for left, on in (
        ({"upload": served.orders()}, "customer_country"),
        ({"table": "geo/cities.csv"}, "nation"),
    ):
        join = {"left": left, "on": on, "hit": HIT, "rows": 3}
        found = served.post("/api/join/preview", join)
        assert folder not in json.dumps(found)
        assert f"deepjoin.open('{lake_folder.name}/.deepjoin')" in found["python"]
        assert f"'{lake_folder.name}/{COUNTRIES}'" in found["sql"]
    (lake_folder / COUNTRIES).write_bytes(b"\x00")
    answer = served.client.post("/api/join/preview", json=join)
    assert answer.status_code >= 400
    assert folder not in answer.text


@pytest.mark.parametrize("client", ["API", "page"])
def test_no_answer_names_a_path_of_the_machine(lake_folder: Path, client: str) -> None:
    out = lake_folder.parent / "joined"
    out.mkdir()
    folders = {str(folder) for folder in (lake_folder, lake_folder.resolve(), out)}
    join = {"left": {"table": "geo/cities.csv"}, "on": "nation", "hit": HIT}
    nowhere = {"table": "nowhere", "column": "x"}
    path = {"path": [{"a": {"table": "geo/cities.csv", "column": "nation"}, "b": HIT}]}
    asked: list[tuple[str, Any]] = [
        *((f"/api/{name}", None) for name in ("lake", "tables", "graph", "relations")),
        *((f"/api/table?name={name}", None) for name in (COUNTRIES, "nowhere")),
        ("/api/graph?table=nowhere", None),
        ("/api/graph/paths?from=nowhere&to=nobody", None),
        ("/api/search", {"query": HIT}),
        ("/api/search", {"query": nowhere}),
        ("/api/search/stream", {"query": nowhere}),
        ("/api/join/preview", join),
        ("/api/join/preview", join | {"hit": nowhere}),
        ("/api/join/download", join | {"hit": nowhere}),
        ("/api/join/save", join),
        ("/api/join/save", join),
        ("/api/join/path", path),
        ("/api/enrich", {"left": {"table": "geo/cities.csv"}, "target": "nation"}),
        ("/api/enrich/stream", {"left": {"table": "nowhere"}, "target": "nation"}),
    ]
    statuses = set()
    with serving(lake_folder, out=out) as served:
        headers = {"deepjoin-words": client} if client == "page" else {}
        for damage in ("none", "changed", "gone"):
            file = lake_folder / COUNTRIES
            if damage == "changed":
                file.write_bytes(b"\x00")
            elif damage == "gone":
                file.unlink()
            for address, body in asked:
                method = "GET" if body is None else "POST"
                answer = served.client.request(method, address, json=body, headers=headers)
                statuses.add(answer.status_code)
                said = [folder for folder in folders if folder in answer.text]
                assert not said, (damage, address, answer.text[:500])
    assert statuses >= {200, 400}


def test_work_past_its_time_stops() -> None:
    work, stopped = ThreadPool(1, 1, 0.05), threading.Event()

    def endless() -> None:
        try:
            while True:
                check_stop()
        except Stopped:
            stopped.set()
            raise

    async def ask() -> None:
        with pytest.raises(TooSlow):
            await work.run(endless)
        while work.held:
            await asyncio.sleep(0.01)

    asyncio.run(ask())
    assert stopped.is_set()


def test_a_query_of_duckdb_past_its_time_stops() -> None:
    work, session = ThreadPool(1, 1, 0.2), Session()
    endless = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range + b.range < 0"

    async def ask() -> None:
        with pytest.raises(TooSlow):
            await work.run(session.run, endless)
        while work.held:
            await asyncio.sleep(0.01)

    asyncio.run(ask())
    assert session.count("range(3)") == 3, "the session can still be used"
    session.close()


def test_work_that_waits_when_its_time_is_over_never_starts() -> None:
    work, go, began = ThreadPool(1, 1, 0.05), threading.Event(), threading.Event()

    async def ask() -> None:
        first, second = (asyncio.create_task(work.run(one)) for one in (go.wait, began.set))
        for task in (first, second):
            with pytest.raises(TooSlow):
                await task
        go.set()
        while work.held:
            await asyncio.sleep(0.01)

    asyncio.run(ask())
    assert not began.is_set()


def test_a_pool_that_closes_stops_its_work() -> None:
    work, began = ThreadPool(1, 1, 30, in_background=True), threading.Event()

    def endless() -> None:
        began.set()
        while True:
            check_stop()

    async def ask() -> None:
        running = asyncio.create_task(work.run(endless))
        await asyncio.to_thread(began.wait)
        work.close()
        with pytest.raises(Stopped, match="nobody waits for it"):
            await running

    asyncio.run(ask())


def test_a_search_stops_between_two_blocks(lake_folder: Path) -> None:
    lake, stop = deepjoin.index(lake_folder), StopSignal()
    settings = deepjoin.SearchSettings(on_partial=lambda _: stop.stop())
    with stop.watched(), pytest.raises(Stopped):
        lake.search(["Peru", "Italy", "Frankreich"], settings=settings)


def test_the_work_of_a_client_that_leaves_stops(lake_folder: Path) -> None:
    began, stopped = threading.Event(), threading.Event()

    def endless(*given: Any, **named: Any) -> None:
        began.set()
        try:
            while True:
                check_stop()
        except Stopped:
            stopped.set()
            raise

    async def ask(path: str) -> list[Any]:
        """Send a search, and leave once it is being worked on."""
        body, sent = json.dumps({"query": {"values": ["Peru"]}}).encode(), []
        messages = [{"type": "http.request", "body": body}]

        async def receive() -> Any:
            if messages:
                return messages.pop()
            await asyncio.to_thread(began.wait)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
        scope |= {"query_string": b"", "http_version": "1.1", "scheme": "http"}
        await served.client.app(scope, receive, send)
        await asyncio.to_thread(stopped.wait)
        return sent

    with serving(lake_folder) as served, pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(served.service.current.lake), "search", endless)
        for path in ("/api/search", "/api/search/stream"):
            began.clear(), stopped.clear()
            assert asyncio.run(asyncio.wait_for(ask(path), 30)) == []
