"""What an evaluation keeps: built indexes and exact truth, by all that they depend on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from time import perf_counter

import xxhash

from deepjoin._version import __version__
from deepjoin.embed.cells import CellEncoder
from deepjoin.embed.columns import load_encoder
from deepjoin.embed.columns.kinds import split_kind
from deepjoin.errors import DeepJoinError, IndexUnusable
from deepjoin.files import replace_file
from deepjoin.indexing import index
from deepjoin.lab.evaluation.asking import Answers
from deepjoin.lab.evaluation.task import Task
from deepjoin.lab.evaluation.truth import Truth
from deepjoin.lake import Lake
from deepjoin.model import Column
from deepjoin.settings import BuildSettings, Settings, Vectors
from deepjoin.store.manifest import FORMAT, READS
from deepjoin.store.models import cell_encoder, stored

#: The paper's corpora compare lower-cased, stripped cells, and drop no column here.
SETTINGS = Settings(profile="basic", min_distinct=1, max_cell=1 << 30)
#: Where column vectors are kept for all lakes of a user; nowhere if it is empty.
_KEPT = "DEEPJOIN_CACHE"


@dataclass(frozen=True)
class Built:
    """An index with what it took to build, and the encoders it was built with."""

    #: By all that the index depends on.
    name: str
    lake: Lake
    seconds: float
    cells: CellEncoder | None
    #: The names and digests of the encoders.
    encoder: str | None


class Cache:
    """A folder; whatever is cut short in it is made again."""

    def __init__(self, folder: Path, task: Task) -> None:
        self._folder, self._source, self._task = folder, task.source, task
        self._built: dict[Vectors, Built] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DeepJoinError(
                f"Cannot keep indexes in {folder}: {error.strerror}. Choose another --cache."
            ) from None

    def truth(
        self, queries: Sequence[Column], by: object, make: Callable[[], list[Truth]]
    ) -> list[Truth]:
        """Read the truth of queries, or make it; ``by`` is what it depends on beside them."""
        path = self._folder / f"truth-{self._key(by, _asked(queries))}.json"
        try:
            return [Truth(one) for one in json.loads(path.read_text("utf-8"))]
        except (OSError, ValueError):
            pass  # not there yet, or cut short: made anew
        truth = make()
        self._write(path, json.dumps([one.joinability for one in truth]))
        return truth

    def answers(self, built: Built, by: object, make: Callable[[], Answers]) -> Answers:
        """Read what a method answered, and how fast, or ask it; ``by`` is how it is asked.

        The code is part of what an answer depends on, or changes to a method would not be seen.
        """
        key = self._key(by, built.name, _asked(self._task.queries), _code())
        path = self._folder / f"answers-{key}.json"
        try:
            return Answers(**json.loads(path.read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            pass  # not there yet, or cut short: asked anew
        answers = make()
        self._write(path, json.dumps(vars(answers)))
        return answers

    def index(self, vectors: Vectors) -> Built:
        """Open the index that has these vectors, or build it."""
        if vectors not in self._built:
            self._built[vectors] = self._index(vectors)
        return self._built[vectors]

    def _index(self, vectors: Vectors) -> Built:
        cells = cell_encoder(vectors.cells, Path())
        # Loaded to know what it is, and let go: the lake loads its own when it is needed.
        columns = load_encoder(vectors.encoder, profile=SETTINGS.profile)
        names = [f"{one.name}@{one.digest}" for one in (columns, cells) if one is not None]
        del columns
        by = (names, vectors.sketch, vectors.index, vectors.metric, FORMAT, READS)
        path = self._folder / f"index-{self._key(by)}"
        lake, seconds = self._opened(path, vectors) or self._build(path, vectors)
        return Built(path.name, lake, seconds, cells, " + ".join(names) or None)

    def _opened(self, path: Path, vectors: Vectors) -> tuple[Lake, float] | None:
        """Open an index that is whole, was timed, and knows where its encoders are."""
        try:
            seconds, lake = float(_timing(path).read_text("utf-8")), Lake(path)
        except (OSError, ValueError, IndexUnusable):
            return None
        names = (stored(spec, path) for spec in (vectors.encoder, vectors.cells))
        known = (lake.vectors.encoder, lake.vectors.cells)
        return (lake, seconds) if known == tuple(names) else None

    def _build(self, path: Path, vectors: Vectors) -> tuple[Lake, float]:
        of_texts = vectors.encoder != "none" and not split_kind(vectors.encoder)[0]
        if of_texts and os.environ.get(_KEPT, "there"):
            self._task.tell(f"columns encoded before are not again, nor in build_s; all: {_KEPT}=")
        started = perf_counter()
        lake = index(
            self._source.folder,
            path,
            settings=SETTINGS,
            vectors=vectors,
            build=BuildSettings(rebuild=True),
            progress=self._task.progress,
        )
        seconds = perf_counter() - started
        self._write(_timing(path), str(seconds))
        return lake, seconds

    def _write(self, path: Path, text: str) -> None:
        """Write a file whole or not at all."""
        try:
            replace_file(path, text)
        except OSError as error:
            raise DeepJoinError(f"Cannot write {path}: {error.strerror}.") from None

    def _key(self, *by: object) -> str:
        text = repr((self._content, SETTINGS, __version__, by))
        return str(xxhash.xxh3_64_hexdigest(text.encode()))

    @cached_property
    def _content(self) -> str:
        digest = xxhash.xxh3_64()
        with (self._source.folder / "columns.parquet").open("rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
        return str(digest.hexdigest())


def _asked(queries: Sequence[Column]) -> list[object]:
    return [(query.table, query.name, query.cells) for query in queries]


@cache
def _code() -> str:
    """Digest all modules of this package."""
    digest = xxhash.xxh3_64()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return str(digest.hexdigest())


def _timing(path: Path) -> Path:
    return path.with_name(path.name + ".seconds")
