"""Joins: looked at, downloaded, or saved where the service may write."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO, Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from deepjoin.serve.http.answers import answer
from deepjoin.serve.http.models import Preview, Saved
from deepjoin.serve.http.problems import Refused
from deepjoin.serve.http.requests import JoinRequest, PreviewRequest
from deepjoin.serve.http.service import Service

Form = Annotated[Literal["csv", "parquet"], Query(alias="format")]
Neutralise = Annotated[
    bool, Query(description="Put ' before cells that a spreadsheet would run; CSV only")
]
_TYPES = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}
_FILES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The joined table",
        "content": {
            kind.partition(";")[0]: {"schema": {"type": "string", "format": "binary"}}
            for kind in _TYPES.values()
        },
    }
}
_BLOCK = 1 << 18


def join_routes(service: Service) -> APIRouter:
    """Make the routes."""
    router = APIRouter(prefix="/join", tags=["join"])
    joining = service.joining

    @router.post("/preview", response_model=Preview)
    async def preview(asked: PreviewRequest) -> Response:
        """Show the first rows of a join, its facts, and code that does the same."""
        return answer(await service.heavily(lambda opened: joining.preview(opened, asked)))

    @router.post("/download", responses=_FILES, response_class=StreamingResponse)
    async def download(
        asked: JoinRequest, form: Form = "csv", neutralise: Neutralise = False
    ) -> Response:
        """Give the joined table as a file."""
        _check(form, neutralise)
        file = await service.heavily(lambda opened: joining.answer(opened, asked, form, neutralise))
        headers = {
            "content-disposition": f'attachment; filename="joined.{form}"',
            "content-length": str(os.fstat(file.fileno()).st_size),
        }
        return StreamingResponse(_blocks(file), headers=headers, media_type=_TYPES[form])

    @router.post("/save", response_model=Saved)
    async def save(
        asked: JoinRequest,
        form: Form = "csv",
        neutralise: Neutralise = False,
        name: Annotated[str, Query(max_length=1000)] = "joined",
    ) -> Response:
        """Write the joined table into the output folder, where the service has one."""
        _check(form, neutralise)
        return answer(
            await service.heavily(
                lambda opened: joining.save(opened, asked, form, neutralise, name)
            )
        )

    return router


def _check(form: str, neutralise: bool) -> None:
    if neutralise and form != "csv":
        raise Refused("neutralise is for format=csv; Parquet has no formulas. Leave it out.")


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while block := file.read(_BLOCK):
            yield block
