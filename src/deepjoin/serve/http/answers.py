"""Answers: what only this service declares, and how every answer is written and documented.

The declarations of `deepjoin.model` and those below are what the OpenAPI document and the page's
TypeScript types are generated from. Answers are written by plain JSON, not by pydantic: a search
spends most of its time elsewhere, and should not spend it on validating what we made ourselves.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from deepjoin.errors import DeepJoinError, IndexUnusable
from deepjoin.model import (
    AsJson,
    ColumnSummary,
    JoinFacts,
    JoinKind,
    SearchMethod,
    TableSummary,
    ValueHolder,
    json_schema,
    to_json,
)
from deepjoin.serve.http.problems import Refused, TooLarge
from deepjoin.serve.saving import TooManyRows
from deepjoin.show.wording import in_fields


@dataclass(frozen=True)
class Problem:
    """Why a request failed, in one line."""

    error: str


@dataclass(frozen=True)
class Health:
    """Sent when the service is up."""

    status: Annotated[str, AsJson(type=Literal["ok"])]


@dataclass(frozen=True)
class Limits:
    """How much the service accepts and returns."""

    upload_bytes: int
    preview_rows: int
    rows: int
    """Rows of an upload and of a joined table."""
    seconds: float
    """How long a request may take."""
    k: int
    """Hits of a search."""


@dataclass(frozen=True)
class LakeSummary:
    """The lake in numbers, and what it can answer."""

    name: str
    version: str
    generation: str
    """Changes whenever the index changes."""
    tables: int
    columns: int
    values: int
    rows: int
    cells: int
    bytes: int
    joins: Sequence[JoinKind]
    methods: Sequence[SearchMethod]
    default_method: str
    default_join: JoinKind
    hash_only: bool
    """Whether the index holds hashes of values, so that cells cannot be shown."""
    limits: Limits
    can_write: bool
    """Whether joined tables can be saved on the server."""
    needs_token: bool


@dataclass(frozen=True)
class TableList:
    """Some of the tables, and how many there are."""

    total: int
    tables: Sequence[TableSummary]


@dataclass(frozen=True)
class ValueHolders:
    """A value and the columns that hold it."""

    value: str
    columns: Sequence[ValueHolder]
    total: int


@dataclass(frozen=True)
class LookedUp:
    """Tables and columns with a text in their name, and columns that hold it as a cell."""

    tables: Sequence[TableSummary]
    columns: Sequence[ColumnSummary]
    values: Sequence[ValueHolders]


@dataclass(frozen=True)
class JoinedColumn:
    """A column of the joined table, and the side it comes from."""

    name: str
    side: Annotated[str, AsJson("from", type=Literal["left", "right"])]
    type: Annotated[str, AsJson(type=Literal["text", "integer", "decimal", "date", "boolean"])]


@dataclass(frozen=True)
class JoinPreview:
    """The first rows of a join, its facts, and code that does the same elsewhere."""

    columns: Sequence[JoinedColumn]
    rows: Sequence[Sequence[str | None]]
    facts: JoinFacts
    warnings: Sequence[str]
    sql: str
    python: str
    pandas: str
    shell: str


@dataclass(frozen=True)
class SavedJoin:
    """A joined table that was written to the server's output folder."""

    file: str
    rows: int
    bytes: int


def encoded(content: Any) -> bytes:
    """Write a declared object, or plain JSON values, as JSON."""
    text = json.dumps(to_json(content), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "replace")


def answer(content: Any) -> Response:
    """Answer with JSON."""
    return Response(encoded(content), media_type="application/json")


#: Schemas of all documented answers by name, for the OpenAPI document.
SCHEMAS: dict[str, Any] = {}
Documented = dict[int | str, dict[str, Any]]


def documented(kind: type, description: str = "The answer", status: int = 200) -> Documented:
    """Describe an answer for the ``responses`` of a route."""
    content = {"application/json": {"schema": json_schema(kind, SCHEMAS)}}
    return {status: {"description": description, "content": content}}


#: What every route may answer besides its own answer.
PROBLEMS: Documented = {
    status: documented(Problem, description, status)[status]
    for status, description in {
        400: "Cannot be answered: unknown names, or options that do not fit",
        401: "The token is missing or wrong",
        403: "From another site, or not allowed by this service",
        404: "Not found",
        408: "Took longer than the limit",
        413: "Too large",
        422: "Malformed",
        503: "Busy, or the index cannot be used",
    }.items()
}


def problem(text: str, status: int, headers: dict[str, str] | None = None) -> Response:
    """Answer with the one line that says what is wrong."""
    body = encoded(Problem(" ".join(text.split())))
    return Response(body, status, headers, media_type="application/json")


def handle_problems(app: FastAPI) -> None:
    """Answer every error of an app in the same shape."""

    @app.exception_handler(DeepJoinError)
    async def _known(request: Request, error: DeepJoinError) -> Response:
        if isinstance(error, Refused):
            return problem(str(error), error.status)
        if isinstance(error, TooManyRows):
            return problem(str(error), TooLarge.status)
        text = in_fields(str(error))
        return problem(text, 503 if isinstance(error, IndexUnusable) else 400)

    @app.exception_handler(RequestValidationError)
    async def _malformed(request: Request, error: RequestValidationError) -> Response:
        first, *others = error.errors()
        where = ".".join(str(part) for part in first["loc"])
        more = f" And {len(others)} more." if others else ""
        return problem(f"{where}: {first['msg']}.{more}", 422)

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        text = str(error.detail)
        if error.status_code == 404:
            text = f"Nothing is at {request.url.path}. All addresses: /api/openapi.json"
        if error.status_code == 405:
            text = f"{request.method} is not answered at {request.url.path}."
        return problem(text, error.status_code, dict(error.headers or {}))
