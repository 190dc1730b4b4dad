"""Parts of a segment that other processes build: what they are told, and what comes back.

A worker shares no disk with the index: the files of a part travel as rows of an Arrow table, in
pieces. It must see the tables, though, as this machine does.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from xxhash import xxh3_128

from deepjoin.build.build import Means, SegmentBuilder, Words
from deepjoin.build.changes import Found, tried
from deepjoin.build.engine import Engine, Step, node_name
from deepjoin.errors import DeepJoinError, MissingExtra
from deepjoin.files import locked
from deepjoin.settings import Settings, Vectors
from deepjoin.store.cell_vectors import write_cell_vectors
from deepjoin.store.ledger import Entry
from deepjoin.store.models import cell_encoder

#: A lake is cut into so many groups of items, and more where they would be too large.
_GROUPS = 64
#: Bounds of what a group has: items, and bytes to read.
_ITEMS = (16, 1024)
_BYTES = (4 << 20, 64 << 20)
#: What the folders are called that workers build in, and how old one is, in seconds, before it
#: can be a dead worker's: a living one has locked its own by then.
_PLACE, _OLD, _LOCK = "deepjoin-part-", 60.0, "lock"
#: Bytes of a file that travel at a time.
_PIECE = 16 << 20
_SCHEMA = pa.schema(
    {
        "part": pa.int64(),
        #: Of all files of the part: what is built twice is the same, unless a table has changed.
        "digest": pa.string(),
        #: '' for what is said of the part, which comes last.
        "file": pa.string(),
        "content": pa.large_binary(),
    }
)


class Group(NamedTuple):
    """Items of one source that are read together."""

    number: int
    found: list[Found]

    def __str__(self) -> str:
        first, last = self.found[0].item.name, self.found[-1].item.name
        return f"'{first}'" if first == last else f"the tables from '{first}' to '{last}'"


@dataclass(frozen=True)
class PartJob:
    """What all parts have in common; encoders are named as on this machine."""

    settings: Settings
    vectors: Vectors
    memory: int
    #: The words that tables have which are read again, or are given now.
    titles: Mapping[str, Words]
    left_out: Collection[str]


class Part(NamedTuple):
    """A part that has come whole: its folder, how many items it has, the name of the last."""

    folder: Path
    items: int
    last: str


def cut(found: Sequence[Found]) -> list[Group]:
    """Put items into groups, in order; the same items make the same groups.

    An item of unknown size makes a group of its own.
    """
    known = [one.item.size or 0 for one in found]
    most_items = min(max(len(found) // _GROUPS, _ITEMS[0]), _ITEMS[1])
    most_bytes = min(max(sum(known) // _GROUPS, _BYTES[0]), _BYTES[1])
    groups: list[list[Found]] = []
    held = most_bytes
    for one in found:
        size = most_bytes if one.item.size is None else one.item.size
        if not groups or held + size > most_bytes or len(groups[-1]) >= most_items:
            groups.append([])
            held = 0
        groups[-1].append(one)
        held += size
    return [Group(number, group) for number, group in enumerate(groups)]


def built_elsewhere(
    engine: Engine, job: PartJob, groups: Sequence[Group], folder: Callable[[], Path]
) -> Generator[Part]:
    """Have groups read by an engine; each part comes, in order, into a new folder."""
    advice = "Leave these out with --exclude, or give nodes more memory."
    tables = engine.flow(groups, Step(partial(read_part, job), advice=advice))
    return _received(tables, groups, folder)


def read_part(job: PartJob, group: Group) -> Iterator[pa.Table]:
    """Build the part of a group, and send it off."""
    means = Means(job.memory, threads=1)
    with _workplace() as place:
        out, scratch = place / "segment", place / "spill"
        with SegmentBuilder(out, scratch, job.settings, means) as build:
            for one in group.found:
                build.read(one.key, one.item, job.titles.get, job.left_out)
            build.finish()
        _dress(out, job)
        yield from _sent(out, group, build.entries)


@contextmanager
def _workplace() -> Iterator[Path]:
    """Lend a temporary folder, after those are gone that killed workers left."""
    here = Path(tempfile.gettempdir())
    for left in here.glob(f"{_PLACE}*"):
        with suppress(OSError):  # another user's, or in use
            if time.time() - left.stat().st_mtime > _OLD:
                with locked(left / _LOCK, BlockingIOError()):
                    shutil.rmtree(left)
    made = tempfile.TemporaryDirectory(prefix=_PLACE, dir=here, ignore_cleanup_errors=True)
    with made as place, locked(Path(place, _LOCK), BlockingIOError()):
        yield Path(place)


def _dress(out: Path, job: PartJob) -> None:
    with loading(job.vectors.cells):
        encoder = cell_encoder(job.vectors.cells, Path())
    if encoder is not None:
        check_same("cells", job.vectors.cells, encoder.digest, job.vectors.cells_digest)
        write_cell_vectors(out, encoder, threads=1)


@contextmanager
def loading(name: str) -> Iterator[None]:
    """Say on which node an encoder cannot be loaded that could be where the build began."""
    try:
        yield
    except DeepJoinError as error:
        text = f"The node {node_name()} cannot load the encoder '{name}': {error}"
        if isinstance(error, MissingExtra):
            raise MissingExtra(text) from None
        raise DeepJoinError(f"{text} Put it where all nodes see it.") from None


def check_same(what: str, name: str, digest: str, wanted: str) -> None:
    """Refuse an encoder that another machine has under the same name."""
    if digest != wanted:
        raise DeepJoinError(
            f"The encoder of {what} '{name}' is another one on the node {node_name()}. "
            "Put it where all nodes see it, and name it by that place."
        )


def _sent(out: Path, group: Group, entries: Sequence[Entry]) -> Iterator[pa.Table]:
    names = sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())
    digest = xxh3_128()
    for name in names:
        digest.update(name.encode() + b"\0")
        for piece in _pieces(out / name):
            digest.update(piece)
    row = partial(_row, group.number, digest.hexdigest())
    for name in names:
        for piece in _pieces(out / name):
            yield row(name, piece)
    unread = [
        (number, skipped.name, skipped.reason)
        for number, entry in enumerate(entries)
        for skipped in entry.skipped
        if skipped.passing
    ]
    yield row("", json.dumps({"node": node_name(), "unread": unread}).encode())


def _pieces(path: Path) -> Iterator[bytes]:
    """Read a file in pieces; an empty one is one piece as well."""
    with path.open("rb") as file:
        yield file.read(_PIECE)
        while piece := file.read(_PIECE):
            yield piece


def _row(part: int, digest: str, name: str, content: bytes) -> pa.Table:
    return pa.table(
        {"part": [part], "digest": [digest], "file": [name], "content": [content]}, _SCHEMA
    )


def _received(
    tables: Generator[pa.Table], groups: Sequence[Group], folder: Callable[[], Path]
) -> Generator[Part]:
    """Write what comes to new folders, and say when one is whole."""
    arriving: _Arriving | None = None
    with closing(tables):
        for row in (row for table in tables for row in table.to_pylist()):
            if arriving is None:
                arriving = _Arriving(folder(), row["digest"])
            if arriving.take(row["digest"], row["file"], row["content"]):
                found = groups[row["part"]].found
                check_readable(found, **json.loads(row["content"]))
                yield Part(arriving.folder, len(found), found[-1].item.name)
                arriving = None


@dataclass
class _Arriving:
    """A part of which some files, or pieces, may be missing still."""

    folder: Path
    digest: str

    def take(self, digest: str, name: str, content: bytes) -> bool:
        """Take a piece; True if it was the last."""
        if digest != self.digest:
            raise DeepJoinError(
                "A worker was lost, and a table it was reading has changed since. Give the same "
                "command again: it goes on where it stopped."
            )
        if not name:
            return True
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(content)
        return False


def check_readable(
    found: Sequence[Found], node: str, unread: Sequence[tuple[int, str, str]]
) -> None:
    """Refuse to leave out what a worker could not read, for no fault of the table, and we can."""
    for number, name, reason in unread:
        if tried(found[number].item) is None:
            raise DeepJoinError(
                f"{name} can be read here, and not on the node {node}: {reason.rstrip('.')}. "
                "Workers read the tables themselves: give all nodes the same files under one path, "
                "or a bucket, and the same permissions, credentials and extras."
            )
