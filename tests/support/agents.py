"""An agent of the lake in this process: what the tests of its tools share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from mcp import Client
from mcp.types import CallToolResult

from deepjoin import Lake
from deepjoin.serve.mcp.answers import LINE
from deepjoin.serve.mcp.server import make_server

COUNTRIES = {"target_table": "geo/countries.csv", "target_column": "country"}


def with_client(
    lake: Lake, work: Callable[[Client], Awaitable[Any]], out: Path | None = None
) -> Any:
    async def run() -> Any:
        async with Client(make_server(lake, out)) as client:
            return await work(client)

    return anyio.run(run)


def call(lake: Lake, tool: str, out: Path | None = None, **arguments: Any) -> CallToolResult:
    found: CallToolResult = with_client(lake, lambda c: c.call_tool(tool, arguments), out)
    return found


def ask(lake: Lake, tool: str, out: Path | None = None, **arguments: Any) -> dict[str, Any]:
    """Call a tool that has to answer; its content is checked against its schema by the client."""
    result = call(lake, tool, out, **arguments)
    assert not result.is_error, text_of(result)
    assert result.structured_content is not None
    assert text_of(result)
    return result.structured_content


def refused(lake: Lake, tool: str, out: Path | None = None, **arguments: Any) -> str:
    """Call a tool that has to fail, in one line and without a trace."""
    result = call(lake, tool, out, **arguments)
    text = text_of(result)
    assert result.is_error and "\n" not in text and "Traceback" not in text and len(text) <= LINE
    return text


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    return str(content.text)  # type: ignore[union-attr]
