"""Answers: what only this service declares, and how every answer is written and documented.

The declarations of `deepjoin.model` and those below are what the OpenAPI document and the page's
TypeScript types are generated from. Answers are written by plain JSON, not by pydantic: a search
spends most of its time elsewhere, and should not spend it on validating what we made ourselves.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import IO, Annotated, Any, Literal, Protocol, TypeVar

from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, StreamingResponse
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from deepjoin.errors import DeepJoinError, IndexUnusable
from deepjoin.joining.output import JoinTooLarge
from deepjoin.model import (
    AsJson,
    ColumnSummary,
    JoinFacts,
    JoinKind,
    NearMatch,
    SearchMethod,
    TableSummary,
    ValueHolder,
    json_schema,
    to_json,
)
from deepjoin.serve.current import Opened
from deepjoin.serve.http.problems import Refused, TooLarge
from deepjoin.show.wording import in_fields, on_page

Done = TypeVar("Done")
Work = TypeVar("Work", bound=Callable[..., Any])


@dataclass(frozen=True)
class Problem:
    """Why a request failed, in one line."""

    error: str


@dataclass(frozen=True)
class Health:
    """Sent when the service is up; says nothing about the lake that a token protects."""

    status: Annotated[str, AsJson(type=Literal["ok"])]
    index: Annotated[str, AsJson(type=Literal["current", "old", "gone"])]
    """Whether the newest index is served, an older one since the newest cannot be opened, or one
    whose files have been removed."""


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
    can_judge: bool
    """Whether joins can be accepted and rejected."""
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
    doubtful: Sequence[NearMatch]
    """Pairs of values that are neither clear nor out of the question, for people to decide."""


@dataclass(frozen=True)
class SavedJoin:
    """A joined table that was written to the server's output folder."""

    file: str
    rows: int
    bytes: int


#: The media type of answers that come as lines of JSON.
LINES = "application/x-ndjson"


def encoded(content: Any) -> bytes:
    """Write a declared object, or plain JSON values, as JSON."""
    text = json.dumps(to_json(content), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "replace")


def answer(content: Any) -> Response:
    """Answer with JSON."""
    return Response(encoded(content), media_type="application/json")


class Lines:
    """Answers that go out one a line while a thread works on the next; made in the event loop."""

    def __init__(self, words: Callable[[str], str]) -> None:
        self._words, self._loop = words, asyncio.get_running_loop()
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._has_left = False

    def send(self, content: Any) -> None:
        """Send an answer, from the thread that works; stop the work if the client has left."""
        if self._has_left:
            raise Refused("The client has left.")
        line = encoded(content) + b"\n"
        self._loop.call_soon_threadsafe(self._queue.put_nowait, line)

    async def response(self, work: Awaitable[None]) -> Response:
        """Run the work; if it fails before the first line, that is an ordinary error."""
        task = asyncio.ensure_future(work)
        task.add_done_callback(lambda _: self._queue.put_nowait(None))
        try:
            first = await self._queue.get()
        except asyncio.CancelledError:
            task.cancel()
            raise
        if first is None:
            task.result()
        return StreamingResponse(self._lines(first, task), media_type=LINES)

    async def _lines(self, line: bytes | None, task: asyncio.Future[None]) -> AsyncIterator[bytes]:
        try:
            while line is not None:
                yield line
                line = await self._queue.get()
            task.result()
        except DeepJoinError as error:
            yield encoded(Problem(self._words(str(error)))) + b"\n"
        finally:
            self._has_left = True
            task.cancel()  # unless it is done, nobody waits for it


#: Schemas of all documented answers by name, for the OpenAPI document.
SCHEMAS: dict[str, Any] = {}
Documented = dict[int | str, dict[str, Any]]


TableFormat = Annotated[Literal["csv", "parquet"], Query(alias="format")]
Neutralise = Annotated[
    bool, Query(description="Put ' before cells that a spreadsheet would run; CSV only")
]
_BLOCK = 1 << 18
_TYPES = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}
TABLE_FILES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The table as a file",
        "content": {
            kind.partition(";")[0]: {"schema": {"type": "string", "format": "binary"}}
            for kind in _TYPES.values()
        },
    }
}


def check_format(form: str, neutralise: bool) -> None:
    """Refuse to neutralise what holds no formulas."""
    if neutralise and form != "csv":
        raise Refused("neutralise works for format=csv only: Parquet files hold no formulas.")


def table_file(name: str, form: str, file: IO[bytes]) -> Response:
    """Send a table as a file, which is closed at the end."""
    headers = {
        "content-disposition": f'attachment; filename="{name}.{form}"',
        "content-length": str(os.fstat(file.fileno()).st_size),
    }

    def blocks() -> Iterator[bytes]:
        with file:
            while block := file.read(_BLOCK):
                yield block

    return StreamingResponse(blocks(), headers=headers, media_type=_TYPES[form])


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


def documented_lines(kind: type) -> Documented:
    """Describe an answer that comes as lines of JSON, each complete in itself."""
    content = {LINES: {"schema": json_schema(kind, SCHEMAS)}}
    return {200: {"description": "One answer a line; the last is the best", "content": content}}


class WorkerPool(Protocol):
    """Runs work on the lake in some thread."""

    def __call__(self, work: Callable[[Opened], Done], /) -> Awaitable[Done]:
        """Wait for a thread, run the work there, and return what it returns."""


class Section(APIRouter):
    """The routes of one part of the service: functions of the open lake and of a request."""

    def on_lake(self, path: str, pool: WorkerPool, method: str = "GET") -> Callable[[Work], Work]:
        """Add a route: a function that ``pool`` runs; its return type documents the answer."""

        def add(function: Work) -> Work:
            signature = inspect.signature(function, eval_str=True)
            _, *parameters = signature.parameters.values()  # all but the lake

            async def endpoint(**given: Any) -> Response:
                return answer(await pool(partial(function, **given)))

            endpoint.__name__, endpoint.__doc__ = function.__name__, function.__doc__
            shown = signature.replace(parameters=parameters, return_annotation=Response)
            endpoint.__signature__ = shown  # type: ignore[attr-defined]
            documents = documented(signature.return_annotation)
            self.add_api_route(path, endpoint, methods=[method], responses=documents)
            return function

        return add


def problem(text: str, status: int, headers: dict[str, str] | None = None) -> Response:
    """Answer with the one line that says what is wrong."""
    body = encoded(Problem(" ".join(text.split())))
    return Response(body, status, headers, media_type="application/json")


#: A page without scripts; its styles are those of the page that is built.
_FOR_PEOPLE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} · deepjoin</title>
<link rel="stylesheet" href="{root}{style}">
<main><section class="notice"><div class="notice-body">
<h1>{title}</h1>
<p>{text}</p>
<p><a class="button primary" href="{root}">Go to the start page</a></p>
</div></section></main>
</html>
"""


def wants_page(path: str, headers: Headers) -> bool:
    """Check whether a person asks, with a browser, for what is not part of the API."""
    return "text/html" in headers.get("accept", "") and not path.startswith("/api")


def problem_page(title: str, text: str, status: int, path: str, style: str = "") -> Response:
    """Answer a person with a page that says what is wrong."""
    # Relative, so that it also works behind a proxy that adds a prefix.
    root = "../" * (path.count("/") - 1) or "./"
    words = {"title": escape(title), "text": escape(text), "root": root, "style": escape(style)}
    return HTMLResponse(_FOR_PEOPLE.format(**words), status)


def _is_page(request: Request) -> bool:
    return request.headers.get("deepjoin-words") == "page"


def wording(request: Request) -> Callable[[str], str]:
    """Return what puts messages in the words of a client: the page names its controls.

    Paths of this machine are left out, whatever a message is about.
    """
    service, words = request.app.state.service, on_page if _is_page(request) else in_fields

    def worded(text: str) -> str:
        for place, name in service.places():
            text = text.replace(place, name)
        return words(text)

    return worded


def handle_problems(app: FastAPI, style: str) -> None:
    """Answer every error of an app in the same shape."""

    @app.exception_handler(DeepJoinError)
    async def _known(request: Request, error: DeepJoinError) -> Response:
        status = 400
        if isinstance(error, Refused):
            status = error.status
        elif isinstance(error, JoinTooLarge):
            status = TooLarge.status
        elif isinstance(error, IndexUnusable):
            status = 503
        return problem(wording(request)(str(error)), status)

    @app.exception_handler(RequestValidationError)
    async def _malformed(request: Request, error: RequestValidationError) -> Response:
        first, *others = error.errors()
        if _is_page(request):
            return problem(on_page(f"`{first['loc'][-1]}`: {first['msg']}."), 422)
        where = ".".join(str(part) for part in first["loc"])
        more = f" And {len(others)} more." if others else ""
        return problem(f"{where}: {first['msg']}.{more}", 422)

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        text, path = str(error.detail), request.url.path
        if error.status_code == 404 and wants_page(path, request.headers):
            text = f"Nothing is at {path}. The address may have been cut when it was copied."
            return problem_page("Page not found", text, 404, path, style)
        if error.status_code == 404:
            text = f"Nothing is at {path}. All addresses: /api/openapi.json"
        if error.status_code == 405:
            text = f"{request.method} is not answered at {path}."
        return problem(text, error.status_code, dict(error.headers or {}))
