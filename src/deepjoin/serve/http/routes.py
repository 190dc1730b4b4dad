"""Routes that read the lake: what it holds, search, and the map of joins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from time import monotonic
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from deepjoin._version import __version__
from deepjoin.model import (
    Column,
    ColumnPlace,
    JoinPaths,
    Neighbourhood,
    Results,
    SimilarJoins,
    TableDescription,
)
from deepjoin.read.frames import columns_by_name
from deepjoin.relating.neighbourhood import similar_joins
from deepjoin.search.methods import check_method, joins_of
from deepjoin.serve.current import Opened
from deepjoin.serve.http.answers import (
    LakeSummary,
    Limits,
    Lines,
    LookedUp,
    Section,
    TableList,
    ValueHolders,
    WorkerPool,
    answer,
    documented,
    documented_lines,
    encoded,
    wording,
)
from deepjoin.serve.http.describing import describe_table
from deepjoin.serve.http.problems import Refused
from deepjoin.serve.http.requests import (
    LakeColumn,
    LakeKey,
    LakeTable,
    SearchRequest,
    UploadColumn,
    UploadKey,
    UploadTable,
    ValueList,
)
from deepjoin.serve.http.service import Service
from deepjoin.serve.http.settings import ServerSettings
from deepjoin.settings import SearchSettings
from deepjoin.store.directory import best_keys, column_facts
from deepjoin.store.manifest import DEFAULT

Text = Annotated[str, Query(max_length=1000)]
TableName = Annotated[str, Query(max_length=20_000)]
Share = Annotated[float, Query(ge=0, le=1, allow_inf_nan=False)]

#: Share of a request's time after which a search sends what it has.
_ANSWERED = 0.8
#: A query with more values takes so long that it must not hold up quick requests, one with
#: even more so long that it must not hold up uploads and joins either.
_MANY, _VERY_MANY = 512, 5_000
#: Cells of an upload that are all read for one search, to suggest a longer key.
_BESIDE = 200_000
#: Seconds that a search has at least, however long it waited for its turn: equal values are found.
_LEAST = 1e-9
#: Columns of a map whose joins by meaning are searched for, and hits of each.
_SIMILAR, _SIMILAR_HITS = 40, 10


def lake_routes(service: Service) -> APIRouter:
    """Make the routes that describe the lake and its tables."""
    router = Section(tags=["lake"])

    @router.get("/lake", responses=documented(LakeSummary))
    async def lake() -> Response:
        """Return what the lake holds, and what it can answer."""
        return answer(_summary(service.current.opened, service.settings))

    @router.on_lake("/tables", service.quickly)
    def tables(
        opened: Opened,
        text: Text = "",
        offset: Annotated[int, Query(ge=0, le=1 << 31)] = 0,
        limit: Annotated[int, Query(ge=0, le=500)] = 50,
    ) -> TableList:
        """List tables by name, or those with a text in their name or a column's name."""
        return TableList(*opened.directory.tables(text.strip(), offset, limit))

    @router.on_lake("/find", service.quickly)
    def find(
        opened: Opened, text: Text = "", limit: Annotated[int, Query(ge=0, le=500)] = 20
    ) -> LookedUp:
        """Find tables and columns by part of their name, and columns by a cell they hold."""
        sought, directory = text.strip(), opened.directory
        tables = directory.tables(sought, 0, limit)[1] if sought else []
        total, holders = directory.holders(sought, limit)
        values = [ValueHolders(sought, holders, total)] if total else []
        return LookedUp(tables, directory.columns(sought, limit), values)

    @router.on_lake("/table", service.quickly)
    def table(opened: Opened, name: TableName) -> TableDescription:
        """Describe a table: its columns, best keys and first rows."""
        opened.check_table(name)
        return describe_table(opened.lake, name)

    return router


def _summary(opened: Opened, settings: ServerSettings) -> LakeSummary:
    """Describe the lake without its location or any secret."""
    lake, info = opened.lake, opened.info
    place = PurePosixPath(lake.index.url or str(lake.path.resolve()))
    return LakeSummary(
        # An index inside its lake has the same name in every lake, so the lake's is shown.
        name=place.parent.name if place.name == DEFAULT else place.name,
        version=__version__,
        generation=lake.index.generation,
        **{name: info[name] for name in ("tables", "columns", "values", "rows", "cells", "bytes")},
        joins=joins_of(lake.context()),
        methods=opened.methods,
        default_method="hybrid",
        default_join="any",
        hash_only=lake.settings.hash_only,
        limits=Limits(
            upload_bytes=settings.max_upload,
            preview_rows=settings.max_preview,
            rows=settings.max_rows,
            seconds=settings.seconds,
            k=settings.max_hits,
        ),
        can_write=settings.out is not None,
        can_judge=settings.may_judge,
        needs_token=bool(settings.token),
    )


def search_routes(service: Service) -> APIRouter:
    """Make the search routes."""
    router = APIRouter(tags=["search"])

    @router.post("/search", responses=documented(Results))
    async def search(request: SearchRequest) -> Response:
        """Find the columns of the lake that join with a column, a key, or each of a table."""
        run, late = await _pool(service, request), _late(service, request)
        # Encoded in the thread: hits read what they bring from disk on the way.
        found = await run(lambda opened: encoded(_search(service, opened, request, late)))
        return Response(found, media_type="application/json")

    @router.post("/search/stream", response_class=Response, responses=documented_lines(Results))
    async def stream(request: SearchRequest, asked: Request) -> Response:
        """Search, and send every answer as it comes, one a line: equal values first.

        A line with `partial` may be followed by a better one. A search that fails after the first
        line ends with a line `{"error": "…"}`.
        """
        run, late = await _pool(service, request), _late(service, request)
        lines = Lines(wording(asked))

        def work(opened: Opened) -> None:
            results = _search(service, opened, request, late, lines.send)
            if results.partial is None:  # others have been sent
                lines.send(results)

        return await lines.response(run(work))

    return router


def _search(
    service: Service,
    opened: Opened,
    request: SearchRequest,
    late: float,
    on_partial: Callable[[Results], None] | None = None,
) -> Results:
    most = service.settings.max_hits
    if request.k > most:
        raise Refused(f"`k` is {request.k}; this service returns at most {most} hits.")
    check_method(request.method, opened.methods)
    return opened.lake.search(
        _query(service, opened, request),
        request.k,
        join=request.join,
        method=request.method,
        min_joinability=request.min_joinability,
        exclude_table=request.exclude_table,
        settings=SearchSettings(
            tau=request.tau,
            group=request.group,
            keys="together" if isinstance(request.query, LakeKey | UploadKey) else "each",
            beside=_beside(service, request),
            matches=request.matches,
            least=request.least,
            time_limit=max(_LEAST, late - monotonic()),
            on_partial=on_partial,
        ),
    )


def _late(service: Service, request: SearchRequest) -> float:
    """Return when to send what is found: better than an error once the request's time is up."""
    limit = _ANSWERED * service.settings.seconds
    return monotonic() + min(limit, request.time_limit or limit)


async def _pool(service: Service, request: SearchRequest) -> WorkerPool:
    """Choose the threads for a search, so that small ones never wait for large ones."""
    query = request.query

    def measured(opened: Opened) -> tuple[int, bool]:
        """Return how many values a query has at most, and whether a file is read for them."""
        match query:
            case ValueList():
                return len(query.values), False
            case UploadColumn() | UploadTable() | UploadKey():
                return int(service.uploads.detail(query.upload)["rows"]), True
            case LakeColumn():
                opened.check_table(query.table)
                size = opened.lake.index.column_size(query.table, query.column)
                # A lake of hashes has to read the table again.
                return size, opened.lake.settings.hash_only
            case LakeTable() | LakeKey():
                opened.check_table(query.table)
                return opened.lake.table(query.table).rows or 0, True

    if isinstance(query, ValueList):  # needs no thread
        values, reads = measured(service.current.opened)
    else:
        values, reads = await service.quickly(measured)
    if values > _VERY_MANY:
        return service.in_turn
    return service.heavily if reads or values > _MANY else service.quickly


def _query(service: Service, opened: Opened, request: SearchRequest) -> Column | list[Column]:
    query = request.query
    match query:
        case LakeColumn():
            return opened.columns(query.table, query.column)
        case LakeTable():
            return opened.columns(query.table, None)
        case LakeKey():
            return opened.columns(query.table, query.columns)
        case UploadKey():
            found = service.uploads.get(query.upload).columns()
            return columns_by_name(found, query.columns, None)
        case UploadColumn():
            return service.uploads.get(query.upload).columns(query.column)[0]
        case UploadTable():
            return service.uploads.get(query.upload).columns()
    return Column(query.values, query.name)


def _beside(service: Service, request: SearchRequest) -> Sequence[Column]:
    """Read all columns of a small upload, from which a longer key may be suggested."""
    query = request.query
    if not isinstance(query, UploadColumn):
        return ()
    detail = service.uploads.detail(query.upload)
    if not 1 < len(detail["columns"]) * int(detail["rows"]) <= _BESIDE:
        return ()
    return service.uploads.get(query.upload).columns()


def graph_routes(service: Service) -> APIRouter:
    """Make the routes of the map: neighbours of a table, and paths between two."""
    router = Section(prefix="/graph", tags=["graph"])

    @router.on_lake("", service.heavily)
    def around(
        opened: Opened,
        table: TableName = "",
        depth: Annotated[int, Query(ge=0, le=3)] = 1,
        min_joinability: Share = 0.5,
        limit: Annotated[int, Query(ge=1, le=300)] = 60,
    ) -> Neighbourhood:
        """Return a table's neighbourhood, or an overview: tables as nodes, equi-joins as edges."""
        if table:
            opened.check_table(table)
        return opened.lake.neighbourhood(
            table, depth=depth, min_joinability=min_joinability, limit=limit
        )

    @router.on_lake("/similar", service.heavily)
    def similar(
        opened: Opened,
        table: TableName = "",
        min_joinability: Share = 0.5,
        limit: Annotated[int, Query(ge=1, le=300)] = 60,
    ) -> SimilarJoins:
        """Find joins by meaning of a table, or of the tables of the overview."""
        lake, tables = opened.lake, [table]
        if table:
            opened.check_table(table)
        else:
            around = lake.neighbourhood(min_joinability=min_joinability, limit=limit)
            tables = [one.table for one in around.nodes]
        columns = [
            ColumnPlace(name, one.name)
            for name in tables
            for one in best_keys(list(column_facts(lake.index, name)))
            if one.type == "text"
        ]

        def search(place: ColumnPlace) -> Results:
            return lake.search(
                lake.column(place.table, place.column),
                _SIMILAR_HITS,
                join="semantic",
                min_joinability=min_joinability,
                settings=SearchSettings(matches=0),
            )

        edges = similar_joins(search, columns[:_SIMILAR])
        return SimilarJoins(edges, len(columns) > _SIMILAR)

    @router.on_lake("/paths", service.heavily)
    def between(
        opened: Opened,
        start: Annotated[str, Query(alias="from", max_length=20_000)],
        end: Annotated[str, Query(alias="to", max_length=20_000)],
        min_joinability: Share = 0.5,
        longest: Annotated[int, Query(ge=1, le=6)] = 4,
    ) -> JoinPaths:
        """Find chains of joins from one table to another, likeliest first."""
        opened.check_table(start)
        opened.check_table(end)
        return opened.lake.paths(start, end, min_joinability=min_joinability, longest=longest)

    return router
