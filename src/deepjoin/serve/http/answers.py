"""Answers as bytes: made once, by plain JSON; their models are documented, and tested, not run."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from deepjoin.errors import DeepJoinError
from deepjoin.serve.http.models import Problem
from deepjoin.serve.http.problems import status_of

#: What every route may answer beside what it is for.
PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "Cannot be answered: unknown names, unfit options"},
    401: {"model": Problem, "description": "The token is missing or wrong"},
    403: {"model": Problem, "description": "From another site, or not what the service does"},
    404: {"model": Problem, "description": "No such thing"},
    408: {"model": Problem, "description": "Took longer than the limit"},
    413: {"model": Problem, "description": "Too large"},
    422: {"model": Problem, "description": "Malformed"},
    503: {"model": Problem, "description": "Busy, or the index cannot be used"},
}


def encoded(content: Any) -> bytes:
    """Write JSON."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "replace")


def answer(content: Any, status: int = 200) -> Response:
    """Answer with JSON."""
    return Response(encoded(content), status, media_type="application/json")


def problem(text: str, status: int, headers: dict[str, str] | None = None) -> Response:
    """Answer with the one line that says what is wrong."""
    line = " ".join(text.split())
    return Response(encoded({"error": line}), status, headers, media_type="application/json")


def handle_problems(app: FastAPI) -> None:
    """Give every error of an app the one shape."""

    @app.exception_handler(DeepJoinError)
    async def _known(request: Request, error: DeepJoinError) -> Response:
        return problem(str(error), status_of(error))

    @app.exception_handler(RequestValidationError)
    async def _malformed(request: Request, error: RequestValidationError) -> Response:
        return problem(_first(error), 422)

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        text = str(error.detail)
        if error.status_code == 404:
            text = f"Nothing is at {request.url.path}. What there is: /api/openapi.json"
        if error.status_code == 405:
            text = f"{request.method} is not answered at {request.url.path}."
        return problem(text, error.status_code, dict(error.headers or {}))


def _first(error: RequestValidationError) -> str:
    """Say of the first thing that is malformed where it is and what is wrong."""
    one = error.errors()[0]
    where = ".".join(str(part) for part in one["loc"])
    more = len(error.errors()) - 1
    return f"{where}: {one['msg']}." + (f" And {more} more." if more else "")
