"""The app: all routes behind the guard, the page, and the document that describes them."""

from __future__ import annotations

import asyncio
import mimetypes
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import xxhash
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi

from deepjoin._version import __version__
from deepjoin.errors import IndexUnusable
from deepjoin.lake import Lake
from deepjoin.serve.http.answers import (
    PROBLEMS,
    SCHEMAS,
    Health,
    answer,
    documented,
    handle_problems,
    problem,
)
from deepjoin.serve.http.enriching import enrich_routes
from deepjoin.serve.http.guard import Guard
from deepjoin.serve.http.joins import join_routes
from deepjoin.serve.http.problems import NotFound
from deepjoin.serve.http.relating import relation_routes
from deepjoin.serve.http.routes import graph_routes, lake_routes, search_routes
from deepjoin.serve.http.service import METRICS_TYPE, Service
from deepjoin.serve.http.settings import ServerSettings
from deepjoin.serve.http.uploads import upload_routes

#: Every request is matched against these in order, so the most frequent come first.
_SECTIONS = (
    *(search_routes, lake_routes, upload_routes, join_routes, graph_routes),
    relation_routes,
    enrich_routes,
)

PAGE = Path(__file__).parent / "page"
#: Names of assets change with their content, so browsers may keep them.
_FOR_A_YEAR = "public, max-age=31536000, immutable"
_TYPES = {".js": "text/javascript", ".webmanifest": "application/manifest+json"}


def create_app(settings: ServerSettings, lake: Lake | None = None) -> FastAPI:
    """Make the app of one worker; it opens the index, or serves the lake that is given."""
    service = Service(settings, lake)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(service.watch())
        try:
            yield
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            service.close()

    app = FastAPI(
        title="deepjoin",
        version=__version__,
        # The usual documentation pages load scripts from other hosts.
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.state.service = service
    api = APIRouter(prefix="/api", responses=PROBLEMS)
    for section in _SECTIONS:
        api.include_router(section(service))
    app.include_router(api)
    app.include_router(_own_routes(service))
    app.include_router(page_routes(PAGE))
    style = next((f"assets/{path.name}" for path in PAGE.glob("assets/*.css")), "")
    handle_problems(app, style)
    app.add_middleware(Guard, settings=settings, metrics=service.metrics)
    app.openapi = lambda: openapi_document(app)  # type: ignore[method-assign]
    return app


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """Write the OpenAPI document, with the token where one is needed."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, routes=app.routes)
        components = document["components"]
        components["schemas"] = dict(sorted((components["schemas"] | SCHEMAS).items()))
        if app.state.service.settings.token:
            components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            document["security"] = [{"token": []}]
            document["paths"]["/healthz"]["get"]["security"] = []
        app.openapi_schema = document
    return app.openapi_schema


def _own_routes(service: Service) -> APIRouter:
    router = APIRouter(tags=["service"])

    @router.get("/healthz", responses=documented(Health) | {503: PROBLEMS[503]})
    async def health() -> Response:
        """Tell that the service is up, and the state of its index."""
        try:
            service.current.check_files()
        except IndexUnusable:  # named to clients with a token only
            return problem("The files of the index were changed; searches fail.", 503)
        return answer(Health("ok", service.current.state))

    @router.get("/metrics", response_class=Response, responses={401: PROBLEMS[401]})
    async def metrics() -> Response:
        """Return the counters of all workers, in the format of Prometheus."""
        return Response(service.metrics.text(), media_type=METRICS_TYPE)

    return router


def page_routes(folder: Path) -> APIRouter:
    """Make a route for each file of the built page; no other file can be requested."""
    router = APIRouter(include_in_schema=False)
    files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    for path in files:
        name = path.relative_to(folder).as_posix()
        place = "/" if name == "index.html" else f"/{name}"
        router.add_api_route(place, _file_route(name, path.read_bytes()), methods=["GET", "HEAD"])
    if not (folder / "index.html").is_file():

        async def missing() -> Response:
            raise NotFound("The page is not built in this installation; the API is at /api/lake.")

        router.add_api_route("/", missing, methods=["GET", "HEAD"])
    return router


def _file_route(name: str, content: bytes) -> Callable[[Request], Awaitable[Response]]:
    """Serve a file from memory: what the folder holds later cannot be requested."""
    tag = f'"{xxhash.xxh3_64_hexdigest(content)}"'
    headers = {
        "etag": tag,
        "cache-control": _FOR_A_YEAR if name.startswith("assets/") else "no-cache",
    }
    kind = _TYPES.get(Path(name).suffix) or mimetypes.guess_type(name)[0]

    async def send(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=kind or "application/octet-stream")

    return send
