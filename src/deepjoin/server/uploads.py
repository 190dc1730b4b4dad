"""Tables that clients bring: private files, shared by all workers, gone after an hour.

Nothing of a name that a client sends becomes part of a path: files are named by random tokens.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.parquet as pq

from deepjoin.columns import Column, Table
from deepjoin.errors import DeepJoinError
from deepjoin.join import Side
from deepjoin.server.describing import Described
from deepjoin.server.problems import Busy, NotFound, Refused, TooLarge, TooSlow
from deepjoin.server.profiling import read_detail
from deepjoin.server.settings import ServerSettings
from deepjoin.sources import title_of
from deepjoin.sources.formats import format_of, read_file, suffixes
from deepjoin.sources.quote import literal
from deepjoin.sources.reading import read_columns
from deepjoin.sources.scan import duckdb_scan

_TOKEN = re.compile("[0-9a-f]{32}")
_LONGEST_NAME = 200
#: All uploads together may take so many times what one may.
_HELD = 20
#: A file may take so many times the seconds of a request to come.
_PATIENCE = 20


@dataclass(frozen=True)
class Upload:
    """A file that was brought, and what its owner calls it."""

    token: str
    name: str
    path: Path

    @property
    def table(self) -> Table:
        """The file as a table, under its owner's name for it."""
        kind = format_of(self.path.name) or "delimited"
        return Table(self.name, partial(read_file, self.path, kind), title_of(self.name))

    def column(self, name: str) -> Column:
        """Read one column, to search with it."""
        with self.called():
            (column,) = read_columns(self.table, name)
        return Column(column.cells, column.name, title=column.title)

    def side(self, key: str) -> Side:
        """Give the file as one side of a join."""
        return Side(self.table, key, duckdb_scan(self.path))

    def named(self, text: str) -> str:
        """Put the owner's name into a text that has ours."""
        # In SQL the path is a literal, and a name may have quotes in it.
        text = text.replace(literal(str(self.path)), literal(self.name))
        return text.replace(str(self.path), self.name).replace(self.path.name, self.name)

    @contextmanager
    def called(self) -> Iterator[None]:
        """Let errors speak of the file as its owner does."""
        try:
            yield
        except Refused:
            raise
        except DeepJoinError as error:
            raise Refused(self.named(str(error))) from None


class Uploads:
    """The files of all clients, in one folder that every worker sees."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._folder = settings.folder / "uploads"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def receive(self, filename: str, blocks: AsyncIterator[bytes]) -> Upload:
        """Write what comes to a file of its own, and stop when it is too much."""
        upload = self._new(filename, _suffix(filename))
        size, most = 0, self._settings.max_upload
        try:
            with open(upload.path, "xb", opener=_private) as file:
                async for block in _in_time(blocks, _PATIENCE * self._settings.seconds):
                    size += len(block)
                    if size > most:
                        raise too_large(most)
                    file.write(block)
        except BaseException:
            self._remove(upload.token)
            raise
        if size == 0:
            self._remove(upload.token)
            raise Refused("The body is empty; send the bytes of a file.")
        return upload

    def of_values(self, values: Sequence[str | None], name: str) -> Upload:
        """Store pasted values as a table of one column."""
        upload = self._new(name, ".parquet")
        with open(upload.path, "xb", opener=_private) as file:
            pq.write_table(pa.table({name: pa.array(values, pa.string())}), file)
        return upload

    def describe(self, upload: Upload) -> Described:
        """Read a new upload to its end and keep what it is; one that cannot be read is removed."""
        try:
            with upload.called():
                detail = read_detail(upload.table, self._settings.max_rows)
        except BaseException:
            self._remove(upload.token)
            raise
        about = {"name": upload.name, "file": upload.path.name, "detail": detail}
        aside = self._folder / f"{upload.token}.new"
        with open(aside, "x", encoding="utf-8", opener=_private) as file:
            json.dump(about, file)
        aside.rename(self._about(upload.token))
        return self._told(upload.token, detail, self._settings.expires)

    def detail(self, token: str) -> Described:
        """Describe an upload again."""
        about, left = self._read(token)
        return self._told(token, about["detail"], left)

    def get(self, token: str) -> Upload:
        """Find an upload by the token its owner was given."""
        about, _ = self._read(token)
        return Upload(token, about["name"], self._folder / about["file"])

    def remove(self, token: str) -> None:
        """Forget an upload."""
        self._read(token)
        self._remove(token)

    def expire(self) -> None:
        """Remove what is older than it may be."""
        oldest = time.time() - self._settings.expires
        for path in self._folder.iterdir():
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < oldest:
                    path.unlink()

    def _new(self, filename: str, suffix: str) -> Upload:
        held = sum(_size(path) for path in self._folder.iterdir())
        if held >= _HELD * self._settings.max_upload:
            raise Busy("The service holds as many uploads as it may. Remove some, or wait an hour.")
        token = secrets.token_hex(16)
        return Upload(token, _shown(filename), self._folder / f"{token}{suffix}")

    def _read(self, token: str) -> tuple[Described, float]:
        """Read what is known of an upload, and how many seconds it is still kept."""
        try:
            if not _TOKEN.fullmatch(token):
                raise FileNotFoundError
            about = self._about(token)
            left = about.stat().st_mtime + self._settings.expires - time.time()
            if left <= 0:
                raise FileNotFoundError
            found: Described = json.loads(about.read_text("utf-8"))
        except FileNotFoundError:
            raise NotFound(
                "No such upload, or its hour is over. Bring the file again: POST /api/uploads"
            ) from None
        return found, left

    def _about(self, token: str) -> Path:
        return self._folder / f"{token}.about"

    def _remove(self, token: str) -> None:
        for path in self._folder.glob(f"{token}.*"):
            path.unlink(missing_ok=True)
        (self._folder / token).unlink(missing_ok=True)

    def _told(self, token: str, detail: Described, left: float) -> Described:
        return detail | {"upload": token, "expires_in": int(left)}


async def _in_time(blocks: AsyncIterator[bytes], seconds: float) -> AsyncIterator[bytes]:
    """Pass on what comes until the time is over."""
    over = time.monotonic() + seconds
    async for block in blocks:
        if time.monotonic() > over:
            raise TooSlow(f"The file was not here after {seconds:g} seconds. Send it compressed.")
        yield block


def too_large(most: int) -> TooLarge:
    """Build the error for a body that is too large."""
    return TooLarge(
        f"The body is larger than {most:,} bytes, the limit of this service. Send less, or start "
        "it with a higher --max-upload."
    )


def _suffix(filename: str) -> str:
    """Keep of a client's file name the ending, if it is one we know."""
    return suffixes(filename) if format_of(filename) else ""


def _shown(filename: str) -> str:
    """Keep the last part of a client's file name, to be shown."""
    return PurePosixPath(filename.replace("\\", "/")).name[:_LONGEST_NAME] or "upload"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _size(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return 0
