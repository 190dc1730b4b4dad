"""Tables and values that clients bring: kept for an hour, never part of the lake."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from deepjoin.serve.http.answers import answer
from deepjoin.serve.http.models import UploadDetail
from deepjoin.serve.http.requests import PastedValues
from deepjoin.serve.http.service import Service

Token = Annotated[str, Path(description="As the answer to the upload gave it", max_length=100)]
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The bytes of the file, whatever deepjoin reads: CSV, Parquet, JSON, …",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


def upload_routes(service: Service) -> APIRouter:
    """Make the routes."""
    router = APIRouter(prefix="/uploads", tags=["uploads"])
    uploads = service.uploads

    @router.post("", response_model=UploadDetail, openapi_extra=_BODY)
    async def upload(
        request: Request, filename: Annotated[str, Query(max_length=1000)] = ""
    ) -> Response:
        """Bring a file; its name says what kind it is and how to speak of it."""
        received = await uploads.receive(filename, request.stream())
        try:
            return answer(await service.heavily(lambda _: uploads.describe(received)))
        except BaseException:
            # It may have been refused, or not have had its turn in time.
            uploads.discard(received)
            raise

    @router.post("/values", response_model=UploadDetail)
    async def values(pasted: PastedValues) -> Response:
        """Bring values as a table of one column."""
        name = pasted.name.strip() or "values"

        def work(_: object) -> dict[str, Any]:
            return uploads.describe(uploads.of_values(pasted.values, name))

        return answer(await service.heavily(work))

    @router.get("/{token}", response_model=UploadDetail)
    async def detail(token: Token) -> Response:
        """Describe an upload again."""
        return answer(await service.quickly(lambda _: uploads.detail(token)))

    @router.delete("/{token}", status_code=204, response_class=Response)
    async def forget(token: Token) -> Response:
        """Forget an upload now."""
        await service.quickly(lambda _: uploads.remove(token))
        return Response(status_code=204)

    return router
