"""The page: the built files of its folder, held in memory, and nothing else that is on disk."""

from __future__ import annotations

import mimetypes
from collections.abc import Awaitable, Callable
from pathlib import Path

import xxhash
from fastapi import APIRouter, Request, Response

from deepjoin.serve.http.problems import NotFound

PAGE = Path(__file__).parent / "page"
#: Names of assets change with their content.
_FOR_A_YEAR = "public, max-age=31536000, immutable"
_TYPES = {".js": "text/javascript", ".webmanifest": "application/manifest+json"}
_INDEX = "index.html"


def page_routes(folder: Path | None = None) -> APIRouter:
    """Make a route for each file that is in the folder now, and one for the page itself."""
    folder = PAGE if folder is None else folder
    router = APIRouter(include_in_schema=False)
    files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    for path in files:
        name = path.relative_to(folder).as_posix()
        place = "/" if name == _INDEX else f"/{name}"
        router.add_api_route(place, _sent(name, path.read_bytes()), methods=["GET", "HEAD"])
    if not (folder / _INDEX).is_file():
        router.add_api_route("/", _missing, methods=["GET", "HEAD"])
    return router


async def _missing() -> Response:
    raise NotFound("The page is not built in this installation; the API is at /api/lake.")


def _sent(name: str, content: bytes) -> Callable[[Request], Awaitable[Response]]:
    tag = f'"{xxhash.xxh3_64_hexdigest(content)}"'
    kept = _FOR_A_YEAR if name.startswith("assets/") else "no-cache"
    headers = {"etag": tag, "cache-control": kept}
    kind = _TYPES.get(Path(name).suffix) or mimetypes.guess_type(name)[0]

    async def send(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=kind or "application/octet-stream")

    return send
