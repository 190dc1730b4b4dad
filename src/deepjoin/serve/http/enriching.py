"""Enrichment over HTTP: what a lake could add to a table, or what helps to predict a column."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Request, Response
from pydantic import Field

from deepjoin.enriching.own import OwnTable
from deepjoin.errors import DeepJoinError
from deepjoin.joining.store import read_typed
from deepjoin.joining.tables import table_suffix
from deepjoin.model import AsJson, EnrichStep, Offer, RejectedJoin
from deepjoin.serve.current import Opened
from deepjoin.serve.http.answers import (
    Lines,
    answer,
    documented,
    documented_lines,
    wording,
)
from deepjoin.serve.http.joins import without_paths
from deepjoin.serve.http.problems import Busy
from deepjoin.serve.http.requests import LakeTable, Name, RequestPart, UploadTable
from deepjoin.settings import EnrichSettings, fields_of

if TYPE_CHECKING:
    from deepjoin.progress import Progress
    from deepjoin.serve.http.service import Service

#: Share of a request's time that an enrichment may take, so that it ends by itself.
_SHARE = 0.6
#: Tables that are joined, and rows on which is measured: less than elsewhere, to answer in time.
_TABLES, _SAMPLE = 25, 5_000
#: Offers that are sent.
_OFFERS = 500


class EnrichRequest(RequestPart):
    """A table to enrich, and the column to predict; without one, a list of what could be added."""

    left: LakeTable | UploadTable
    target: Name | None = None
    depth: Literal[1, 2, 3] = 2
    about: Name = Field("", description="Words that offers are ordered by")
    keys: list[Name] = Field([], max_length=100, description="Join only on these columns")
    as_of: Name = Field("", description="Column of yours: take the latest row that is not later")
    ranges: Name = Field("", description="Column of yours: take the row whose bounds hold it")


@dataclass(frozen=True)
class EnrichProgress:
    """How far an enrichment is."""

    done: int
    total: int
    what: str
    """The table that is being joined, or "measuring"."""


@dataclass(frozen=True)
class EnrichAnswer:
    """What joins add and gain, or could add; `progress` while it is being found out."""

    progress: EnrichProgress | None = None
    metric: str = ""
    score_before: float | None = None
    score_after: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    steps: Sequence[EnrichStep] = ()
    rejected: Sequence[RejectedJoin] = ()
    offers: Sequence[Offer] = ()
    total_offers: int = 0
    sql: str = ""
    upload: str = ""
    """The enriched table as an upload: to download, to search and to join on with; "" if nothing
    was added, or the service has no room for it."""
    stopped: Annotated[str, AsJson(type=Literal["", "time", "interrupted"])] = ""
    seconds: float = 0.0


def enrich_routes(service: Service) -> APIRouter:
    """Make the routes."""
    router = APIRouter(prefix="/enrich", tags=["enrich"])

    def limit() -> float:
        return monotonic() + _SHARE * service.settings.seconds

    @router.post("", responses=documented(EnrichAnswer))
    async def enrich(request: EnrichRequest) -> Response:
        """Find the joins that help to predict a column, or list what could be added."""
        until = limit()
        return answer(
            await service.in_turn(lambda opened: _enriched(service, opened, request, until))
        )

    @router.post("/stream", response_class=Response, responses=documented_lines(EnrichAnswer))
    async def stream(request: EnrichRequest, asked: Request) -> Response:
        """Enrich, and send a line for each table that is tried; the last line is the answer."""
        until, lines = limit(), Lines(wording(asked))

        def tell(done: int, total: int, what: str) -> None:
            lines.send(EnrichAnswer(EnrichProgress(done, total, what)))

        def work(opened: Opened) -> None:
            lines.send(_enriched(service, opened, request, until, tell))

        return await lines.response(service.in_turn(work))

    return router


def _enriched(
    service: Service,
    opened: Opened,
    request: EnrichRequest,
    until: float,
    progress: Progress | None = None,
) -> EnrichAnswer:
    lake = opened.lake
    if request.about and request.target is not None:
        raise DeepJoinError("`about` looks through what could be added. Leave out `target`.")
    upload = None
    if isinstance(request.left, UploadTable):
        upload = service.uploads.get(request.left.upload)
        own = OwnTable(read_typed(upload.table))
    else:
        # Never by a path: a client names tables of the lake, and nothing else is opened.
        opened.check_table(request.left.table)
        own = OwnTable(
            read_typed(lake.index.origin(request.left.table).table()), request.left.table
        )
    bounds = {"tables": _TABLES, "sample": _SAMPLE, "seconds": max(0.0, until - monotonic())}
    given = fields_of(EnrichSettings, request) | {"keys": tuple(request.keys)}
    settings = EnrichSettings(**given | bounds)
    with nullcontext() if upload is None else upload.called():
        found = lake.enrich(
            own, request.target, depth=request.depth, settings=settings, progress=progress
        )
        offers = found.about(request.about) if request.about else found.offers
    files = opened.files({one.table for one in found.steps} | {one.table for one in found.rejected})
    named = partial(without_paths, files=files)
    low, high = found.interval or (None, None)
    changed = {
        **{"gain_low": low, "gain_high": high},
        "steps": [replace(step, sql=named(step.sql)) for step in found.steps],
        "rejected": [replace(one, reason=named(one.reason)) for one in found.rejected],
        **{"offers": offers[:_OFFERS], "total_offers": len(offers)},
        "sql": named(found.sql),
    }
    if found.steps:
        name = f"{table_suffix(own.name or (upload.name if upload else 'table'))}-enriched.parquet"
        with suppress(Busy):
            kept = service.uploads.describe(service.uploads.of_table(found.table, name))
            changed["upload"] = kept.upload
    return EnrichAnswer(**fields_of(EnrichAnswer, found) | changed)
