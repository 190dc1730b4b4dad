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
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.parquet as pq

from deepjoin.errors import DeepJoinError
from deepjoin.joining import Side
from deepjoin.model import Column, Table
from deepjoin.read import title_of
from deepjoin.read.formats import format_of, read_file, suffixes
from deepjoin.read.frames import read_columns
from deepjoin.read.sql import duckdb_scan, literal
from deepjoin.serve.http.describing import Described
from deepjoin.serve.http.problems import Busy, NotFound, Refused, TooLarge
from deepjoin.serve.http.profiling import read_detail
from deepjoin.serve.http.settings import ServerSettings
from deepjoin.serve.http.trial import try_to_read

_TOKEN = re.compile("[0-9a-f]{32}")
_LONGEST_NAME = 200
_GONE = "No such upload, or its hour is over. Bring the file again: POST /api/uploads"
#: All uploads together may take so many times what one may.
_HELD = 20
#: While a file is written, all of them are counted so many times.
_COUNTED = 16


@dataclass(frozen=True)
class Upload:
    """A file that was brought, and what its owner calls it."""

    token: str
    name: str
    path: Path
    #: Whether a client made the file.
    foreign: bool = True

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
        except Refused as error:
            raise type(error)(self.named(str(error))) from None
        except DeepJoinError as error:
            if not self.path.exists():
                raise NotFound(_GONE) from None
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
        size, most, counted = 0, self._settings.max_upload, 0
        try:
            with open(upload.path, "xb", opener=_private, buffering=0) as file:
                async for block in blocks:
                    size += len(block)
                    if size > most:
                        raise too_large(most)
                    file.write(block)
                    if size - counted > most / _COUNTED:
                        self._check_room()
                        counted = size
        except BaseException:
            self._remove(upload.token)
            raise
        if size == 0:
            self._remove(upload.token)
            raise Refused("The body is empty; send the bytes of a file.")
        return upload

    def of_values(self, values: Sequence[str | None], name: str) -> Upload:
        """Store pasted values as a table of one column."""
        upload = replace(self._new(name, ".parquet"), foreign=False)
        with open(upload.path, "xb", opener=_private) as file:
            pq.write_table(pa.table({name: pa.array(values, pa.string())}), file)
        return upload

    def describe(self, upload: Upload) -> Described:
        """Read a new upload to its end and keep what it is; one that cannot be read is removed."""
        try:
            with upload.called():
                detail = self._read_detail(upload)
        except BaseException:
            self._remove(upload.token)
            raise
        about = {"name": upload.name, "file": upload.path.name, "detail": detail}
        aside = self._folder / f"{upload.token}.new"
        with open(aside, "x", encoding="utf-8", opener=_private) as file:
            json.dump(about, file)
        aside.rename(self._about(upload.token))
        if not upload.path.exists():  # whoever waited for it has given up
            self._remove(upload.token)
        return self._told(upload.token, detail, self._settings.expires)

    def _read_detail(self, upload: Upload) -> Described:
        settings = self._settings
        if upload.foreign:
            try_to_read(upload.path, settings.max_upload, settings.seconds)
        return read_detail(upload.table, settings.max_rows, settings.max_upload)

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

    def discard(self, upload: Upload) -> None:
        """Remove a file whose owner will not be told its token."""
        self._remove(upload.token)

    def expire(self) -> None:
        """Remove uploads that are older than they may be, and what never became one."""
        oldest = time.time() - self._settings.expires
        for path in self._folder.iterdir():
            # A file may have been long in coming: its hour starts when its owner hears of it.
            with suppress(FileNotFoundError):
                if max(path.stat().st_mtime, self._told_at(path)) < oldest:
                    self._remove(path.name.partition(".")[0])

    def _told_at(self, path: Path) -> float:
        with suppress(FileNotFoundError):
            return self._about(path.name.partition(".")[0]).stat().st_mtime
        return 0.0

    def _new(self, filename: str, suffix: str) -> Upload:
        self._check_room()
        token = secrets.token_hex(16)
        return Upload(token, _shown(filename), self._folder / f"{token}{suffix}")

    def _check_room(self) -> None:
        held = sum(_size(path) for path in self._folder.iterdir())
        if held >= _HELD * self._settings.max_upload:
            raise Busy("The service holds as many uploads as it may. Remove some, or wait an hour.")

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
            raise NotFound(_GONE) from None
        return found, left

    def _about(self, token: str) -> Path:
        return self._folder / f"{token}.about"

    def _remove(self, token: str) -> None:
        for path in self._folder.glob(f"{token}.*"):
            path.unlink(missing_ok=True)
        (self._folder / token).unlink(missing_ok=True)

    def _told(self, token: str, detail: Described, left: float) -> Described:
        return detail | {"upload": token, "expires_in": int(left)}


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
