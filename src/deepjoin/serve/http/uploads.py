"""Tables that clients upload: private files, shared by all workers, deleted after an hour.

Nothing of a name that a client sends becomes part of a path: files are named by random tokens.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Annotated, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as InPath
from fastapi.responses import StreamingResponse

from deepjoin.errors import DeepJoinError
from deepjoin.joining import JoinPlan, JoinSide
from deepjoin.joining.output import JoinTooLarge, file_stem, write_table
from deepjoin.joining.store import read_typed
from deepjoin.model import Column, Table, UploadDescription, to_json
from deepjoin.read import title_of
from deepjoin.read.formats import format_of, read_file, suffixes
from deepjoin.read.frames import read_columns
from deepjoin.read.sql import duckdb_scan, literal
from deepjoin.serve.http.answers import (
    TABLE_FILES,
    Neutralise,
    Section,
    TableFormat,
    answer,
    check_format,
    documented,
    table_file,
)
from deepjoin.serve.http.describing import describe_file
from deepjoin.serve.http.problems import Busy, NotFound, Refused, TooLarge
from deepjoin.serve.http.requests import PastedValues
from deepjoin.serve.http.settings import ServerSettings
from deepjoin.serve.http.trial import try_to_read

if TYPE_CHECKING:
    from deepjoin.serve.http.service import Service

_TOKEN = re.compile("[0-9a-f]{32}")
_LONGEST_NAME = 200
_GONE = "No such upload, or it has expired. Upload the file again."
#: All uploads together may take this many times what one may.
_HELD = 20
#: While a file is written, the space of all uploads is checked this many times.
_CHECKS = 16


@dataclass(frozen=True)
class Upload:
    """An uploaded file, and its owner's name for it."""

    token: str
    name: str
    path: Path
    #: Of pasted values, what their owner calls them, "" for nothing; None for a file.
    label: str | None = None

    @property
    def table(self) -> Table:
        """The file as a table, under its owner's name for it."""
        kind = format_of(self.path.name) or "delimited"
        return Table(self.name, partial(read_file, self.path, kind), title_of(self.name))

    def columns(self, only: str | None = None) -> list[Column]:
        """Read all columns, or the one that is named, to search with them."""
        with self.called():
            found = read_columns(self.table, only)
        if self.label is not None:
            # Names take part in the ranking, and the file has one even where its owner gave none.
            return [Column(one.cells, self.label) for one in found]
        return [Column(one.cells, one.name, title=one.title) for one in found]

    def side(self, key: str | tuple[str, ...]) -> JoinSide:
        """Return the file as one side of a join."""
        with self.called():
            return JoinSide(self.table, key, duckdb_scan(self.path))

    def named(self, text: str) -> str:
        """Replace our path by the owner's name in a text."""
        # In SQL the path is a literal, and a name may have quotes in it.
        text = text.replace(literal(str(self.path)), literal(self.name))
        return text.replace(str(self.path), self.name).replace(self.path.name, self.name)

    @contextmanager
    def called(self) -> Iterator[None]:
        """Let errors name the file as its owner does."""
        try:
            yield
        except (Refused, JoinTooLarge) as error:
            raise type(error)(self.named(str(error))) from None
        except DeepJoinError as error:
            if not self.path.exists():
                raise NotFound(_GONE) from None
            raise Refused(self.named(str(error))) from None


class Uploads:
    """The uploads of all clients, in one folder that every worker sees."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._folder = settings.folder / "uploads"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def receive(self, filename: str, blocks: AsyncIterator[bytes]) -> Upload:
        """Write an upload to its own file; stop when it is too large."""
        # Of a client's file name only a known ending is kept; it says how to read the file.
        upload = self._new(filename, suffixes(filename) if format_of(filename) else "")
        size, most, checked = 0, self._settings.max_upload, 0
        with (
            self.kept_if_whole(upload),
            open(upload.path, "xb", opener=_private, buffering=0) as file,
        ):
            async for block in blocks:
                size += len(block)
                if size > most:
                    raise too_large(most)
                file.write(block)
                if size - checked > most / _CHECKS:
                    self._check_room()
                    checked = size
            if size == 0:
                raise Refused("The uploaded file is empty.")
        return upload

    def of_values(self, values: Sequence[str | None], label: str) -> Upload:
        """Store pasted values as a table of one column."""
        name = label or "values"
        upload = replace(self._new(name, ".parquet"), label=label)
        with open(upload.path, "xb", opener=_private) as file:
            pq.write_table(pa.table({name: pa.array(values, pa.string())}), file)
        return upload

    def of_join(self, plan: JoinPlan, name: str) -> Upload:
        """Store a joined table."""
        return self._written(name, lambda path: plan.write(path, self._settings.max_joined))

    def of_table(self, table: pa.Table, name: str) -> Upload:
        """Store an enriched table."""
        return self._written(name, lambda path: write_table(table, path))

    def _written(self, name: str, write: Callable[[Path], object]) -> Upload:
        upload = self._new(name, ".parquet")
        with self.kept_if_whole(upload):
            write(upload.path)
        return upload

    def file(self, token: str, form: str, neutralise: bool) -> tuple[str, IO[bytes]]:
        """Write an upload in a format; return its name, and a file that goes when it is closed."""
        upload = self.get(token)
        with upload.called(), tempfile.TemporaryDirectory(dir=self._folder.parent) as folder:
            path = Path(folder, f"table.{form}")
            write_table(read_typed(upload.table), path, neutralise)
            return file_stem(upload.name.rpartition(".")[0] or upload.name), path.open("rb")

    def describe(self, upload: Upload) -> UploadDescription:
        """Read a new upload to its end and store its description; discard it if unreadable."""
        settings = self._settings
        with self.kept_if_whole(upload), upload.called():
            if upload.label is None:  # our own files need no trial
                try_to_read(upload.path, settings.max_upload, settings.seconds)
            table = describe_file(upload.table, settings.max_rows, settings.max_upload)
        about = {
            "name": upload.name,
            "file": upload.path.name,
            "label": upload.label,
            "detail": to_json(table),
        }
        # Renamed when complete: another worker may look for the description meanwhile.
        aside = self._folder / f"{upload.token}.new"
        with open(aside, "x", encoding="utf-8", opener=_private) as file:
            json.dump(about, file)
        aside.rename(self._about(upload.token))
        if not upload.path.exists():  # the client gave up meanwhile
            self.discard(upload.token)
        expires = int(settings.expires)
        return UploadDescription(**vars(table), upload=upload.token, expires_in=expires)

    def detail(self, token: str) -> dict[str, Any]:
        """Describe an upload again."""
        about, left = self._read(token)
        described: dict[str, Any] = about["detail"]
        return described | {"upload": token, "expires_in": int(left)}

    def get(self, token: str) -> Upload:
        """Find an upload by its token."""
        about, _ = self._read(token)
        return Upload(token, about["name"], self._folder / about["file"], about["label"])

    def remove(self, token: str) -> None:
        """Delete an upload that must exist."""
        self._read(token)
        self.discard(token)

    def discard(self, token: str) -> None:
        """Delete whatever belongs to a token."""
        for path in self._folder.glob(f"{token}.*"):
            path.unlink(missing_ok=True)
        (self._folder / token).unlink(missing_ok=True)

    @contextmanager
    def kept_if_whole(self, upload: Upload) -> Iterator[None]:
        """Delete an upload if what is done with it fails."""
        try:
            yield
        except BaseException:
            self.discard(upload.token)
            raise

    def expire(self) -> None:
        """Delete uploads that are too old, and remains of failed ones."""
        oldest = time.time() - self._settings.expires
        for path in self._folder.iterdir():
            token = path.name.partition(".")[0]
            with suppress(FileNotFoundError):
                # A slow upload may be old already: its hour starts when it has been described.
                times = [path.stat().st_mtime]
                with suppress(FileNotFoundError):
                    times.append(self._about(token).stat().st_mtime)
                if max(times) < oldest:
                    self.discard(token)

    def _new(self, filename: str, suffix: str) -> Upload:
        self._check_room()
        token = secrets.token_hex(16)
        name = PurePosixPath(filename.replace("\\", "/")).name[:_LONGEST_NAME] or "upload"
        return Upload(token, name, self._folder / f"{token}{suffix}")

    def _check_room(self) -> None:
        held = 0
        for path in self._folder.iterdir():
            with suppress(FileNotFoundError):
                held += path.stat().st_size
        if held >= _HELD * self._settings.max_upload:
            raise Busy(
                "The service has no room for more uploads. Forget files you no longer need, or "
                "try again in an hour."
            )

    def _read(self, token: str) -> tuple[dict[str, Any], float]:
        """Read what is stored about an upload, and in how many seconds it expires."""
        try:
            # A token becomes part of a path, so nothing else may pass.
            if not _TOKEN.fullmatch(token):
                raise FileNotFoundError
            about = self._about(token)
            left = about.stat().st_mtime + self._settings.expires - time.time()
            if left <= 0:
                raise FileNotFoundError
            found: dict[str, Any] = json.loads(about.read_text("utf-8"))
        except FileNotFoundError:
            raise NotFound(_GONE) from None
        return found, left

    def _about(self, token: str) -> Path:
        return self._folder / f"{token}.about"


def too_large(most: int) -> TooLarge:
    """Build the error for a request that is too large."""
    return TooLarge(
        f"The request is larger than {most:,} bytes, the limit of this service. Upload a part of "
        "the file, or ask whoever runs the service to raise the limit."
    )


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


Token = Annotated[str, InPath(description="As the answer to the upload gave it", max_length=100)]
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The bytes of the file, in any format that deepjoin reads: CSV, Parquet, …",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


def upload_routes(service: Service) -> APIRouter:
    """Make the routes."""
    router = Section(prefix="/uploads", tags=["uploads"])
    uploads = service.uploads

    @router.post("", responses=documented(UploadDescription), openapi_extra=_BODY)
    async def upload(
        request: Request, filename: Annotated[str, Query(max_length=1000)] = ""
    ) -> Response:
        """Upload a file; the ending of its name tells its format."""
        received = await uploads.receive(filename, request.stream())
        with uploads.kept_if_whole(received):  # its turn may not come in time
            return answer(await service.heavily(lambda _: uploads.describe(received)))

    @router.on_lake("/values", service.heavily, "POST")
    def values(_: object, pasted: PastedValues) -> UploadDescription:
        """Upload values as a table of one column."""
        return uploads.describe(uploads.of_values(pasted.values, pasted.name.strip()))

    @router.on_lake("/{token}", service.quickly)
    def detail(_: object, token: Token) -> UploadDescription:
        """Describe an upload again."""
        return cast(UploadDescription, uploads.detail(token))

    @router.get("/{token}/download", responses=TABLE_FILES, response_class=StreamingResponse)
    async def download(
        token: Token, form: TableFormat = "csv", neutralise: Neutralise = False
    ) -> Response:
        """Return an upload, such as an enriched table, as a file."""
        check_format(form, neutralise)
        work = partial(uploads.file, form=form, neutralise=neutralise)
        name, file = await service.heavily(lambda _: work(token))
        return table_file(name, form, file)

    @router.delete("/{token}", status_code=204, response_class=Response)
    async def forget(token: Token) -> Response:
        """Delete an upload now."""
        await service.quickly(lambda _: uploads.remove(token))
        return Response(status_code=204)

    return router
