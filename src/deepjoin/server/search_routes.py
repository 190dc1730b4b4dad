"""Search: a query column in, ranked hits with their evidence out."""

from __future__ import annotations

from fastapi import APIRouter, Response

from deepjoin.columns import Column
from deepjoin.lake import Lake
from deepjoin.server.answers import encoded
from deepjoin.server.current import Opened
from deepjoin.server.methods import check_method
from deepjoin.server.models import SearchAnswer
from deepjoin.server.problems import Refused
from deepjoin.server.requests import LakeColumn, SearchRequest, UploadColumn
from deepjoin.server.service import Service
from deepjoin.server.uploads import Uploads


def search_routes(service: Service) -> APIRouter:
    """Make the route."""
    router = APIRouter(tags=["search"])

    @router.post("/search", response_model=SearchAnswer)
    async def search(asked: SearchRequest) -> Response:
        """Find the columns of the lake that join with a column."""
        most = service.settings.max_hits
        if asked.k > most:
            raise Refused(f"k is {asked.k}; this service gives {most} hits at most.")

        def work(opened: Opened) -> bytes:
            check_method(asked.method, opened.methods)
            if isinstance(asked.query, LakeColumn):
                opened.check_table(asked.query.table)
            return encoded(_searched(opened.lake, asked, service.uploads))

        # Reading an upload may take a while; what is in the lake is at hand.
        run = service.heavily if isinstance(asked.query, UploadColumn) else service.quickly
        return Response(await run(work), media_type="application/json")

    return router


def _searched(lake: Lake, asked: SearchRequest, uploads: Uploads) -> dict[str, object]:
    results = lake.search(
        _query(lake, asked, uploads),
        asked.k,
        join=asked.join,
        method=asked.method,
        tau=asked.tau,
        min_joinability=asked.min_joinability,
        group=asked.group,
        exclude_table=asked.exclude_table,
        matches=asked.matches,
    )
    return results.to_dict()


def _query(lake: Lake, asked: SearchRequest, uploads: Uploads) -> Column:
    query = asked.query
    if isinstance(query, LakeColumn):
        return lake.column(query.table, query.column)
    if isinstance(query, UploadColumn):
        return uploads.get(query.upload).column(query.column)
    return Column(query.values, query.name)
