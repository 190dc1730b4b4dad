"""The map: what a table joins with, and the ways from one table to another."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from deepjoin.relating.neighbourhood import neighbourhood, paths
from deepjoin.serve.current import Opened
from deepjoin.serve.http.answers import answer
from deepjoin.serve.http.models import Neighbourhood, Paths
from deepjoin.serve.http.service import Service

Table = Annotated[str, Query(max_length=20_000)]
Share = Annotated[float, Query(ge=0, le=1, allow_inf_nan=False)]


def graph_routes(service: Service) -> APIRouter:
    """Make the routes."""
    router = APIRouter(prefix="/graph", tags=["graph"])

    @router.get("", response_model=Neighbourhood)
    async def around(
        table: Table,
        depth: Annotated[int, Query(ge=0, le=3)] = 1,
        min_joinability: Share = 0.5,
        limit: Annotated[int, Query(ge=1, le=300)] = 60,
    ) -> Response:
        """Give a table's neighbourhood: tables as nodes, proven equi-joins as edges."""

        def work(opened: Opened) -> dict[str, Any]:
            opened.check_table(table)
            return neighbourhood(opened.lake.index, table, depth, min_joinability, limit).to_dict()

        return answer(await service.heavily(work))

    @router.get("/paths", response_model=Paths)
    async def between(
        start: Annotated[str, Query(alias="from", max_length=20_000)],
        end: Annotated[str, Query(alias="to", max_length=20_000)],
        min_joinability: Share = 0.5,
        longest: Annotated[int, Query(ge=1, le=6)] = 4,
    ) -> Response:
        """Find chains of joins from one table to another, shortest first."""

        def work(opened: Opened) -> dict[str, Any]:
            opened.check_table(start)
            opened.check_table(end)
            return paths(opened.lake.index, start, end, min_joinability, longest).to_dict()

        return answer(await service.heavily(work))

    return router
