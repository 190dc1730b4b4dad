"""Search: a query column in, ranked hits with their evidence out."""

from __future__ import annotations

from fastapi import APIRouter, Response

from deepjoin.lake import Lake
from deepjoin.model import Column
from deepjoin.search.methods import check_method
from deepjoin.serve.current import Opened
from deepjoin.serve.http.answers import encoded
from deepjoin.serve.http.models import SearchAnswer
from deepjoin.serve.http.problems import Refused
from deepjoin.serve.http.requests import LakeColumn, SearchRequest, UploadColumn
from deepjoin.serve.http.service import Service
from deepjoin.serve.http.uploads import Uploads
from deepjoin.settings import SearchSettings

#: A query of more values takes longer than others should wait for.
_MANY = 5_000


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
            return encoded(_searched(opened.lake, asked, service.uploads))

        long = await _is_long(service, asked)
        run = service.heavily if long else service.quickly
        return Response(await run(work), media_type="application/json")

    return router


async def _is_long(service: Service, asked: SearchRequest) -> bool:
    """Tell a search that would keep others waiting: with many values, or a file to be read."""
    query = asked.query
    if isinstance(query, LakeColumn):
        return await service.quickly(lambda opened: _is_long_column(opened, query))
    return isinstance(query, UploadColumn) or len(query.values) > _MANY


def _is_long_column(opened: Opened, query: LakeColumn) -> bool:
    opened.check_table(query.table)
    lake = opened.lake
    # A lake of hashes has to read the table again.
    return lake.settings.hash_only or lake.index.column_size(query.table, query.column) > _MANY


def _searched(lake: Lake, asked: SearchRequest, uploads: Uploads) -> dict[str, object]:
    results = lake.search(
        _query(lake, asked, uploads),
        asked.k,
        join=asked.join,
        method=asked.method,
        settings=SearchSettings(tau=asked.tau, group=asked.group, matches=asked.matches),
        min_joinability=asked.min_joinability,
        exclude_table=asked.exclude_table,
    )
    return results.to_dict()


def _query(lake: Lake, asked: SearchRequest, uploads: Uploads) -> Column:
    query = asked.query
    if isinstance(query, LakeColumn):
        return lake.column(query.table, query.column)
    if isinstance(query, UploadColumn):
        return uploads.get(query.upload).column(query.column)
    return Column(query.values, query.name)
