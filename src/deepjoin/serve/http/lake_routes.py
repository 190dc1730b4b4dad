"""The lake and its tables, as numbers and by name."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from deepjoin._version import __version__
from deepjoin.lake import Lake
from deepjoin.model import to_json
from deepjoin.search.methods import joins_of
from deepjoin.serve.current import Opened
from deepjoin.serve.http.answers import answer
from deepjoin.serve.http.describing import table_detail
from deepjoin.serve.http.models import Found, LakeInfo, TableDetail, TableList
from deepjoin.serve.http.service import Service
from deepjoin.serve.http.settings import ServerSettings
from deepjoin.store.manifest import DEFAULT

Text = Annotated[str, Query(max_length=1000)]
_NUMBERS = ("tables", "columns", "values", "rows", "cells", "bytes")


def lake_routes(service: Service) -> APIRouter:
    """Make the routes."""
    router = APIRouter(tags=["lake"])

    @router.get("/lake", response_model=LakeInfo)
    async def lake() -> Response:
        """Say what the lake holds, and what can be asked of it."""
        return answer(lake_info(service.current.opened, service.settings))

    @router.get("/tables", response_model=TableList)
    async def tables(
        text: Text = "",
        offset: Annotated[int, Query(ge=0, le=1 << 31)] = 0,
        limit: Annotated[int, Query(ge=0, le=500)] = 50,
    ) -> Response:
        """List tables by name, or those with a text in their name or a column's."""

        def work(opened: Opened) -> dict[str, Any]:
            total, rows = opened.directory.tables(text.strip(), offset, limit)
            return {"total": total, "tables": [to_json(row) for row in rows]}

        return answer(await service.quickly(work))

    @router.get("/find", response_model=Found)
    async def find(text: Text = "", limit: Annotated[int, Query(ge=0, le=500)] = 20) -> Response:
        """Find tables and columns by a part of their name, and columns by a cell they hold."""
        return answer(await service.quickly(lambda opened: _found(opened, text.strip(), limit)))

    @router.get("/table", response_model=TableDetail)
    async def table(name: Annotated[str, Query(max_length=20_000)]) -> Response:
        """Describe a table: its columns, best keys first, and its first rows."""
        return answer(await service.quickly(lambda opened: _table(opened, name)))

    return router


def lake_info(opened: Opened, settings: ServerSettings) -> dict[str, Any]:
    """Describe the lake without where it is or any secret."""
    lake = opened.lake
    info = opened.info
    return {
        "name": _name(lake),
        "version": __version__,
        "generation": lake.index.generation,
        **{name: info[name] for name in _NUMBERS},
        "joins": joins_of(lake.context()),
        "methods": to_json(opened.methods),
        "default_method": "hybrid",
        "default_join": "any",
        "hash_only": lake.settings.hash_only,
        "limits": {
            "upload_bytes": settings.max_upload,
            "preview_rows": settings.max_preview,
            "rows": settings.max_rows,
            "seconds": settings.seconds,
            "k": settings.max_hits,
        },
        "can_write": settings.out is not None,
        "needs_token": bool(settings.token),
    }


def _name(lake: Lake) -> str:
    """Call a lake by its folder; an index inside it has no name of its own."""
    place = PurePosixPath(lake.index.url or str(lake.path.resolve()))
    return place.parent.name if place.name == DEFAULT else place.name


def _table(opened: Opened, name: str) -> dict[str, Any]:
    opened.check_table(name)
    return table_detail(opened.lake, name)


def _found(opened: Opened, text: str, limit: int) -> dict[str, Any]:
    directory = opened.directory
    tables = directory.tables(text, 0, limit)[1] if text else []
    total, holders = directory.holders(text, limit)
    held = {"value": text, "columns": [to_json(one) for one in holders], "total": total}
    return {
        "tables": [to_json(one) for one in tables],
        "columns": [to_json(one) for one in directory.columns(text, limit)],
        "values": [held] if total else [],
    }
