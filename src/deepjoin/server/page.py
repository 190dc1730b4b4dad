"""The page: the built files of its folder, held in memory, and nothing else that is on disk."""

from __future__ import annotations

import mimetypes
from pathlib import Path

import xxhash
from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from deepjoin.server.answers import problem

PAGE = Path(__file__).parent / "page"
#: Names of assets change with their content.
_FOR_A_YEAR = "public, max-age=31536000, immutable"
_TYPES = {".js": "text/javascript", ".webmanifest": "application/manifest+json"}


def page_routes(folder: Path = PAGE) -> APIRouter:
    """Serve the files that are in the folder now, by their own names."""
    router = APIRouter(include_in_schema=False)
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in _files(folder)}

    @router.api_route("/{path:path}", methods=["GET", "HEAD"])
    async def page(path: str, request: Request) -> Response:
        if path.startswith("api/"):
            raise HTTPException(405 if request.method == "HEAD" else 404)
        name = path or "index.html"
        if path == "index.html" or name not in files:
            what = "" if files else " The page is not built here; the API is at /api."
            return problem(f"There is no page of this name.{what}", 404)
        return _file(name, files[name], request.headers.get("if-none-match", ""))

    return router


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []


def _file(name: str, content: bytes, known: str) -> Response:
    tag = f'"{xxhash.xxh3_64_hexdigest(content)}"'
    kept = _FOR_A_YEAR if name.startswith("assets/") else "no-cache"
    headers = {"etag": tag, "cache-control": kept}
    if known == tag:
        return Response(status_code=304, headers=headers)
    kind = _TYPES.get(Path(name).suffix) or mimetypes.guess_type(name)[0]
    return Response(content, headers=headers, media_type=kind or "application/octet-stream")
