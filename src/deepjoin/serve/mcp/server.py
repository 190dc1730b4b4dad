"""The tools served by the Model Context Protocol, over stdin and stdout."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    ToolAnnotations,
)
from mcp.types import Tool as Listed
from pydantic import ValidationError

from deepjoin._version import __version__
from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.lake import Lake
from deepjoin.serve.mcp.bounds import one_line
from deepjoin.serve.mcp.desk import Desk
from deepjoin.serve.mcp.telling import told
from deepjoin.serve.mcp.tools import INSTRUCTIONS, Tool, offered

Context = ServerRequestContext[Any]

_LOG = logging.getLogger("deepjoin.serve.mcp")


def make_server(lake: Lake, out: Path | None = None) -> Server[Any]:
    """Make a server of the tools over a lake; joins are written to ``out`` if that is given."""
    desk = Desk(lake, out)
    # The lake moves on between calls, so they come one after the other.
    turn = anyio.CapacityLimiter(1)

    async def list_tools(_: Context, asked: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[_listed(*one) for one in offered(desk).items()])

    async def call_tool(_: Context, asked: CallToolRequestParams) -> CallToolResult:
        work = partial(answered, desk, asked.name, asked.arguments or {})
        return await anyio.to_thread.run_sync(work, limiter=turn)

    return Server(
        "deepjoin",
        title="deepjoin: joinable tables of a data lake",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def serve(lake: Lake, out: Path | None = None) -> None:
    """Serve one client over stdin and stdout until it leaves."""
    server = make_server(lake, out)

    async def run() -> None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(run)


def _listed(name: str, tool: Tool) -> Listed:
    return Listed(
        name=name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.asked.model_json_schema(),
        output_schema=tool.answer.model_json_schema(mode="serialization"),
        annotations=ToolAnnotations(
            title=tool.title,
            read_only_hint=not tool.writes,
            destructive_hint=False,
            idempotent_hint=not tool.writes,
            open_world_hint=False,
        ),
    )


def answered(desk: Desk, name: str, arguments: Mapping[str, Any]) -> CallToolResult:
    """Answer a call; whatever goes wrong is one line, for the agent to read."""
    try:
        tools = offered(desk)
        if name not in tools:
            raise unknown_name("tool", name, "this server", tools)
        asked = tools[name].asked.model_validate(dict(arguments))
        desk.renew()
        with desk.lake.index.reporting_damage():
            answer = tools[name].run(desk, asked)
        text, content = told(answer), answer.model_dump(mode="json")
    except ValidationError as error:
        return _failed(_wrong_arguments(name, error))
    except DeepJoinError as error:
        return _failed(str(error))
    except Exception as error:
        # What went wrong inside goes to who runs the server, not to who calls it.
        said = one_line(f"{type(error).__name__}: {error}")
        _LOG.error("deepjoin: tool %s failed: %s", name, said)
        return _failed(f"{name} failed inside deepjoin ({type(error).__name__}); this is a bug.")
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=content)


def _failed(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=one_line(text))], is_error=True)


def _wrong_arguments(name: str, error: ValidationError) -> str:
    """Say which arguments are wrong, and why."""
    wrong = [
        f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg']}"
        for one in error.errors(include_url=False, include_context=False)
    ]
    more = f" and {len(wrong) - 3:,} more" if len(wrong) > 3 else ""
    return f"Wrong arguments for {name}: {'; '.join(wrong[:3])}{more}."
