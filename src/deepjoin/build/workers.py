"""Work that an engine runs for a build: read tables into parts of a segment, encode texts.

A worker shares no disk with the index: the files of a part travel as rows of an Arrow table, in
pieces, but the worker must see the tables as this machine does. Columns become texts on this
machine, which has the index, the frequencies and the vectors encoded before; only texts without
a vector travel. Writing a text takes a fraction of the time of encoding it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh3_128

from deepjoin.arrays import Float, Int
from deepjoin.build.engine import BuildResources, Engine, Step, node_name
from deepjoin.build.listing import ListedItem, tried
from deepjoin.build.segment_builder import SegmentBuilder
from deepjoin.embed.columns.cache import VectorCache, text_key
from deepjoin.embed.columns.encoder import ColumnEncoder, TextEncoder
from deepjoin.embed.columns.text import Frequency
from deepjoin.errors import DeepJoinError, MissingExtra
from deepjoin.files import TemporaryFolder
from deepjoin.settings import Settings, TableWords, Vectors
from deepjoin.store.cell_vectors import write_cell_vectors
from deepjoin.store.column_vectors import Encoded, column_blocks, segment_columns
from deepjoin.store.models import TextChoice, cell_encoder, column_encoder
from deepjoin.store.segment import Segment
from deepjoin.store.sketch import FrequencySnapshot

#: Groups of items that a lake is cut into, and more where they would be too large.
_GROUPS = 64
#: Bounds of a group: items, and bytes to read.
_ITEMS = (64, 1024)
_BYTES = (4 << 20, 64 << 20)
#: Bytes of a file that travel at a time.
_PIECE = 16 << 20
#: Texts that a GPU gets at a time.
_GPU_TEXTS = 1 << 14
_PART_ROWS = pa.schema(
    {
        "part": pa.int64(),
        #: Of all files of the part: built twice, it is the same unless a table has changed.
        "digest": pa.string(),
        #: '' for the note about the part, which comes last.
        "file": pa.string(),
        "content": pa.large_binary(),
    }
)


class ItemGroup(NamedTuple):
    """Items of one source that one worker reads together."""

    number: int
    listed: list[ListedItem]

    def __str__(self) -> str:
        first, last = self.listed[0].item.name, self.listed[-1].item.name
        return f"'{first}'" if first == last else f"the tables from '{first}' to '{last}'"


@dataclass(frozen=True)
class PartJob:
    """What all parts of a build have in common; encoders are named as on this machine."""

    settings: Settings
    vectors: Vectors
    memory: int
    #: Titles and contexts of tables that are read again, or given now.
    titles: Mapping[str, TableWords]
    excluded: Collection[str]


class BuiltPart(NamedTuple):
    """A part that has arrived: its folder, how many items it has, the name of the last."""

    folder: Path
    items: int
    last: str


def grouped(listed: Sequence[ListedItem]) -> list[ItemGroup]:
    """Put items into groups, in order; the same items make the same groups.

    An item of unknown size is a group by itself.
    """
    known = [one.item.size or 0 for one in listed]
    most_items = min(max(len(listed) // _GROUPS, _ITEMS[0]), _ITEMS[1])
    most_bytes = min(max(sum(known) // _GROUPS, _BYTES[0]), _BYTES[1])
    groups: list[list[ListedItem]] = []
    held = most_bytes
    for one in listed:
        size = most_bytes if one.item.size is None else one.item.size
        if not groups or held + size > most_bytes or len(groups[-1]) >= most_items:
            groups.append([])
            held = 0
        groups[-1].append(one)
        held += size
    return [ItemGroup(number, group) for number, group in enumerate(groups)]


def built_parts(
    engine: Engine, job: PartJob, groups: Sequence[ItemGroup], folder: Callable[[], Path]
) -> Generator[BuiltPart]:
    """Let an engine read groups; each part arrives, in order, in a new folder."""
    advice = "Leave these out with `exclude`, or give nodes more memory."
    tables = engine.flow(groups, Step(partial(read_part, job), advice=advice))
    return received_parts(tables, groups, folder)


def received_parts(
    tables: Generator[pa.Table], groups: Sequence[ItemGroup], folder: Callable[[], Path]
) -> Generator[BuiltPart]:
    """Write the files that workers send to new folders; yield each part when it is complete."""
    place: Path | None = None
    with closing(tables):
        for row in (row for table in tables for row in table.to_pylist()):
            if place is None:
                place, digest = folder(), row["digest"]
            if row["digest"] != digest:
                raise DeepJoinError(
                    "A worker was lost, and a table it was reading has changed since. Run the "
                    "same command again: it resumes where it stopped."
                )
            if row["file"]:
                path = place / row["file"]
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("ab") as file:
                    file.write(row["content"])
                continue
            listed = groups[row["part"]].listed
            check_readable(listed, **json.loads(row["content"]))
            yield BuiltPart(place, len(listed), listed[-1].item.name)
            place = None


def read_part(job: PartJob, group: ItemGroup) -> Iterator[pa.Table]:
    """Build the part of a group on a worker, and send its files."""
    resources = BuildResources(job.memory, threads=1)
    with TemporaryFolder("deepjoin-part-") as place:
        out, scratch = place / "segment", place / "spill"
        with SegmentBuilder(out, scratch, job.settings, resources) as build:
            for one in group.listed:
                build.read(one.key, one.item, job.titles.get, job.excluded)
            build.finish()
        with loading(job.vectors.cells):
            encoder = cell_encoder(job.vectors.cells, Path())
        if encoder is not None:
            check_same("cells", job.vectors.cells, encoder.digest, job.vectors.cells_digest)
            write_cell_vectors(out, encoder, threads=1, memory=job.memory)
        names = sorted(
            path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()
        )
        digest = xxh3_128()
        for name in names:
            digest.update(name.encode() + b"\0")
            for piece in _pieces(out / name):
                digest.update(piece)
        row = partial(_part_row, group.number, digest.hexdigest())
        for name in names:
            for piece in _pieces(out / name):
                yield row(name, piece)
        unread = [
            (number, skipped.name, skipped.reason)
            for number, entry in enumerate(build.entries)
            for skipped in entry.skipped
            if skipped.passing
        ]
        yield row("", json.dumps({"node": node_name(), "unread": unread}).encode())


def _part_row(part: int, digest: str, file: str, content: bytes) -> pa.Table:
    columns = {"part": [part], "digest": [digest], "file": [file], "content": [content]}
    return pa.table(columns, _PART_ROWS)


def _pieces(path: Path) -> Iterator[bytes]:
    """Read a file in pieces; an empty file is one piece."""
    with path.open("rb") as file:
        yield file.read(_PIECE)
        while piece := file.read(_PIECE):
            yield piece


def check_readable(
    listed: Sequence[ListedItem], node: str, unread: Sequence[tuple[int, str, str]]
) -> None:
    """Refuse to leave out what a worker could not read, for no fault of the table, and we can."""
    for number, name, reason in unread:
        if tried(listed[number].item) is None:
            raise DeepJoinError(
                f"{name} can be read here, and not on the node {node}: {reason.rstrip('.')}. "
                "Workers read the tables themselves: give all nodes the same files under one path, "
                "or a bucket, and the same permissions, credentials and extras."
            )


@contextmanager
def loading(name: str) -> Iterator[None]:
    """Name the node on which an encoder cannot be loaded that could where the build began."""
    try:
        yield
    except DeepJoinError as error:
        text = f"The node {node_name()} cannot load the encoder '{name}': {error}"
        if isinstance(error, MissingExtra):
            raise MissingExtra(text) from None
        raise DeepJoinError(f"{text} Put it where all nodes see it.") from None


def check_same(what: str, name: str, digest: str, wanted: str) -> None:
    """Refuse a different encoder that another machine has under the same name."""
    if digest != wanted:
        raise DeepJoinError(
            f"The node {node_name()} has a different encoder of {what} under the name '{name}'. "
            "Put it where all nodes see it, and name it by that place."
        )


@dataclass(frozen=True)
class TextModel:
    """A text encoder by its name, which must be the same everywhere."""

    spec: str
    profile: str
    digest: str
    text: TextChoice = ()

    def load(self, device: str) -> TextEncoder:
        """Load it for one thread, once a process; only encoders on torch use the device."""
        with loading(self.spec):
            encoder = column_encoder(self.spec, Path(), self.profile, 1, device, self.text)
        assert isinstance(encoder, TextEncoder)
        check_same("columns", self.spec, encoder.digest, self.digest)
        return encoder


@dataclass(frozen=True)
class TextJob:
    """Where the columns are, how often values occur, and the vectors encoded before.

    The paths are absolute: a worker has another working directory, even on this machine.
    """

    model: TextModel
    segment: Path
    frequency: Path
    cache: Path | None


@dataclass(frozen=True)
class EncodeElsewhere:
    """Encodes the columns of a segment with an engine, and caches the vectors as they arrive."""

    engine: Engine
    model: TextModel
    frequency: Path
    cache: VectorCache | None
    #: Whether to use GPUs, where the engine has any.
    on_gpu: bool = False

    def __call__(
        self, segment: Segment, columns: Int, encoder: ColumnEncoder, frequency: Frequency
    ) -> Encoded:
        """Yield numbers of columns with their vectors."""
        tasks = list(column_blocks(segment.values.sizes(columns), columns, encoder))
        if not tasks:
            return
        with closing(self.engine.flow(tasks, *self.steps(segment.folder))) as tables:
            for table in tables:
                vectors = _from_lists(table["vector"], encoder.dimension)
                new = np.flatnonzero(np.asarray(table["key"].is_valid()))
                if self.cache is not None and len(new):
                    keys = table["key"].take(pa.array(new))
                    self.cache.put(keys.to_pylist(), vectors[new])
                yield np.asarray(table["column"]), vectors

    def steps(self, segment: Path) -> tuple[Step, Step]:
        """Return the steps from columns of a segment to vectors."""
        cache = None if self.cache is None else self.cache.path.absolute()
        job = TextJob(self.model, segment.absolute(), self.frequency.absolute(), cache)
        gpu = self.on_gpu and self.engine.gpus > 0
        encode = partial(encode_texts, self.model, "cuda" if gpu else "cpu")
        return (
            Step(partial(write_texts, job), here=True, named=_columns_named),
            Step(encode, gpu_rows=_GPU_TEXTS if gpu else 0, named=_columns_named),
        )


def write_texts(job: TextJob, columns: Int) -> Iterator[pa.Table]:
    """Write columns as texts, with the vectors of those that are cached."""
    encoder = job.model.load("cpu")
    found = list(segment_columns(_open_segment(job.segment), columns, encoder.counted))
    texts = encoder.texts(found, FrequencySnapshot(job.frequency))
    known = np.zeros(len(texts), bool)
    vectors: Float = np.zeros((len(texts), encoder.dimension), np.float32)
    if job.cache is not None:
        keys = [text_key(encoder.digest, text) for text in texts]
        with VectorCache(job.cache) as cache:
            known, vectors = cache.get(keys, encoder.dimension)
    written = [text.encode("utf-8", "surrogatepass") for text in texts]
    yield pa.table(
        {
            "column": pa.array(columns, pa.int64()),
            "text": pa.array(written, pa.binary()),
            "known": known,
            "vector": _as_lists(vectors),
        }
    )


def encode_texts(model: TextModel, device: str, table: pa.Table) -> Iterator[pa.Table]:
    """Encode the texts that have no vector; equal texts once."""
    encoder = model.load(device)
    known = np.asarray(table["known"])
    vectors = _from_lists(table["vector"], encoder.dimension).copy()
    texts = [text.decode("utf-8", "surrogatepass") for text in table["text"].to_pylist()]
    # Batches as in a build without an engine: rounding may depend on what is encoded together.
    for start in range(0, len(texts), encoder.block):
        rows = start + np.flatnonzero(~known[start : start + encoder.block])
        distinct = list(dict.fromkeys(texts[row] for row in rows))
        if distinct:
            place = {text: number for number, text in enumerate(distinct)}
            encoded = encoder.encode_texts(distinct)
            vectors[rows] = encoded[[place[texts[row]] for row in rows]]
    keys = [None if known[row] else text_key(model.digest, text) for row, text in enumerate(texts)]
    yield pa.table(
        {
            "column": table["column"],
            "key": pa.array(keys, pa.binary()),
            "vector": _as_lists(vectors),
        }
    )


def _columns_named(some: Int | pa.Table) -> str:
    return f"the texts of {len(some):,} columns"


def _as_lists(vectors: npt.NDArray[np.floating]) -> pa.Array:
    flat = pa.array(np.ascontiguousarray(vectors, np.float32).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])


def _from_lists(vectors: pa.ChunkedArray, dimension: int) -> Float:
    flat = vectors.combine_chunks().flatten()
    rows: Float = np.asarray(flat, np.float32).reshape(len(vectors), dimension)
    return rows


@lru_cache(maxsize=2)
def _open_segment(folder: Path) -> Segment:
    return Segment(folder)
