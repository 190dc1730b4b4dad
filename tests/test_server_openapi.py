"""The OpenAPI document is exact: whatever fits it is answered as it says, and nothing breaks."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

import deepjoin
from tests.support.serving import HIT, Served, serving

pytestmark = pytest.mark.slow

WEB = Path(__file__).parents[1] / "web"
LOCAL = {"host": "127.0.0.1"}
#: Every path of the document; a new route is to be added here, so that it is tried.
PATHS = {
    *("/api/search", "/api/search/stream", "/api/lake", "/api/tables", "/api/find", "/api/table"),
    *("/api/uploads", "/api/uploads/values", "/api/uploads/{token}"),
    "/api/uploads/{token}/download",
    *("/api/join/preview", "/api/join/download", "/api/join/save", "/api/join/keep"),
    *("/api/graph", "/api/graph/similar", "/api/graph/paths", "/healthz", "/metrics"),
    *("/api/relations", "/api/feedback", "/api/join/path"),
    *("/api/enrich", "/api/enrich/stream"),
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve tables with awkward names."""
    folder = tmp_path_factory.mktemp("openapi") / "data"
    folder.mkdir()
    (folder / "a.csv").write_text("k,v\n" + "".join(f"{n}x,{n}\n" for n in range(9)))
    (folder / "b <script>.csv").write_text("k,=w\n" + "".join(f"{n}x,-{n}\n" for n in range(9)))
    out = folder.parent / "out"
    out.mkdir()
    with serving(folder, deepjoin.index(folder, encoder="none"), out=out) as one:
        yield one


def document(served: Served) -> Any:
    """Read the document as a client does."""

    async def running(scope: Any, receive: Any, send: Any) -> None:
        # Each call would start and stop the service, which runs already.
        if scope["type"] == "http":
            await served.client.app(scope, receive, send)
        else:
            for _ in range(2):
                await send({"type": f"{(await receive())['type']}.complete"})

    return schemathesis.openapi.from_asgi("/api/openapi.json", running, headers=LOCAL)


def test_every_path_is_tried(served: Served) -> None:
    assert set(served.get("/api/openapi.json")["paths"]) == PATHS


def test_the_types_of_the_page_are_those_of_the_document(served: Served) -> None:
    """The page's TypeScript types are generated; `make page` writes them again."""
    script = runpy.run_path(str(WEB / "generate_types.py"))
    schemas = served.get("/api/openapi.json")["components"]["schemas"]
    assert script["TARGET"].read_text("utf-8") == script["typescript"](schemas)


def _has_input(operation: Any) -> bool:
    return bool(operation.query or operation.path_parameters or operation.body)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("path", sorted(PATHS))
def test_the_document_is_kept(served: Served, path: str, mode: GenerationMode) -> None:
    """Nothing breaks, and no status or body comes that the document does not have.

    That valid requests are answered is left out: names that are made up are of no table.
    """
    for operation in document(served)[path].values():
        if mode is GenerationMode.NEGATIVE and not _has_input(operation):
            continue
        cases = operation.as_strategy(generation_mode=mode)

        @settings(max_examples=10, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(case=cases)
        def answered(case: Case) -> None:
            case.call_and_validate(headers=LOCAL, excluded_checks=[positive_data_acceptance])

        answered()


@pytest.mark.parametrize("join", ["equi", "semantic", None])
@pytest.mark.parametrize("many", ["expand", "first", "aggregate"])
def test_joins_that_succeed_are_as_the_document_says(
    served: Served, join: str | None, many: str
) -> None:
    """What is made up rarely names a table that is there; so some that are."""
    hit = HIT | {"table": "b <script>.csv", "column": "k"}
    asked = {"left": {"table": "a.csv"}, "on": "k", "hit": hit, "join": join, "many": many}
    for path in ("/api/join/preview", "/api/join/download", "/api/join/save"):
        case = document(served)[path]["POST"].Case(body=asked, media_type="application/json")
        answer = case.call_and_validate(headers=LOCAL)
        assert answer.status_code == 200


def test_reading_that_succeeds_is_as_the_document_says(served: Served) -> None:
    api = document(served)
    upload = served.upload(b"k\n1x\n2x\n", "x.csv")["upload"]
    query = {"upload": upload, "column": "k"}
    known: list[tuple[str, str, dict[str, Any]]] = [
        ("/api/table", "GET", {"query": {"name": "a.csv"}}),
        ("/api/find", "GET", {"query": {"text": "1X"}}),
        ("/api/graph", "GET", {"query": {"table": "a.csv", "depth": 2}}),
        ("/api/graph/paths", "GET", {"query": {"from": "a.csv", "to": "b <script>.csv"}}),
        ("/api/uploads/{token}/download", "GET", {"path_parameters": {"token": upload}}),
        ("/api/uploads/{token}", "GET", {"path_parameters": {"token": upload}}),
        ("/api/search", "POST", {"body": {"query": query, "group": "tables"}}),
        ("/api/search", "POST", {"body": {"query": query, "method": "exact-equi"}}),
        ("/api/uploads/{token}", "DELETE", {"path_parameters": {"token": upload}}),
    ]
    for path, method, given_ in known:
        if "body" in given_:
            given_["media_type"] = "application/json"
        case = api[path][method].Case(**given_)
        answer = case.call_and_validate(headers=LOCAL)
        assert answer.status_code in (200, 204), path
