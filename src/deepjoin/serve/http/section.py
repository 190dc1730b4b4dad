"""Routes that work on the lake: each is a function of the open lake and what a request holds."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from fastapi import APIRouter, Response

from deepjoin.serve.current import Opened
from deepjoin.serve.http.answers import answer, documented

Done = TypeVar("Done")
Work = TypeVar("Work", bound=Callable[..., Any])


class WorkerPool(Protocol):
    """Runs work on the lake in some thread."""

    def __call__(self, work: Callable[[Opened], Done], /) -> Awaitable[Done]:
        """Wait for a thread, run the work there, and return what it returns."""


class Section(APIRouter):
    """The routes of one part of the service."""

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
