"""The app: all routes behind the guard, and the document that describes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import APIRouter, FastAPI, Response
from fastapi.openapi.utils import get_openapi

from deepjoin._version import __version__
from deepjoin.lake import Lake
from deepjoin.serve.http.answers import PROBLEMS, answer, handle_problems
from deepjoin.serve.http.graph_routes import graph_routes
from deepjoin.serve.http.guard import Guard
from deepjoin.serve.http.join_routes import join_routes
from deepjoin.serve.http.lake_routes import lake_routes
from deepjoin.serve.http.metrics import CONTENT_TYPE
from deepjoin.serve.http.models import Health
from deepjoin.serve.http.page import page_routes
from deepjoin.serve.http.search_routes import search_routes
from deepjoin.serve.http.service import Service
from deepjoin.serve.http.settings import ServerSettings
from deepjoin.serve.http.upload_routes import upload_routes

#: Looked through in this order for every request: the most frequent first.
_SECTIONS = (search_routes, lake_routes, upload_routes, join_routes, graph_routes)


def create_app(settings: ServerSettings, lake: Lake | None = None) -> FastAPI:
    """Make the app of one worker; it opens the index, or serves the lake that is given."""
    service = Service(settings, lake)
    app = FastAPI(
        title="deepjoin",
        version=__version__,
        # The usual pages of documentation load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        lifespan=_lifespan(service),
        redirect_slashes=False,
    )
    app.state.service = service
    api = APIRouter(prefix="/api", responses=PROBLEMS)
    for section in _SECTIONS:
        api.include_router(section(service))
    app.include_router(api)
    app.include_router(_own_routes(service))
    app.include_router(page_routes())
    handle_problems(app)
    app.add_middleware(Guard, settings=settings, metrics=service.metrics)
    app.openapi = lambda: _document(app, bool(settings.token))  # type: ignore[method-assign]
    return app


def _lifespan(service: Service) -> Any:
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

    return lifespan


def _own_routes(service: Service) -> APIRouter:
    router = APIRouter(tags=["service"])

    @router.get("/healthz", response_model=Health)
    async def health() -> Response:
        """Say that the service answers."""
        return answer({"status": "ok"})

    @router.get("/metrics", response_class=Response, responses={401: PROBLEMS[401]})
    async def metrics() -> Response:
        """Give the counters of all workers, as Prometheus reads them."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)

    return router


def _document(app: FastAPI, needs_token: bool) -> dict[str, Any]:
    """Write the OpenAPI document, with the token where one is needed."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, routes=app.routes)
        if needs_token:
            document["components"]["securitySchemes"] = {
                "token": {"type": "http", "scheme": "bearer"}
            }
            document["security"] = [{"token": []}]
            document["paths"]["/healthz"]["get"]["security"] = []
        app.openapi_schema = document
    return app.openapi_schema
