"""What an evaluation keeps between runs: indexes, exact answers and the answers of methods."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import xxhash

from deepjoin._version import __version__
from deepjoin.embed.cells import CellEncoder
from deepjoin.embed.columns import load_encoder
from deepjoin.embed.columns.loading import split_kind
from deepjoin.embed.columns.torch_encoder import SETTINGS_FILE
from deepjoin.errors import DeepJoinError, IndexUnusable
from deepjoin.files import replace_file
from deepjoin.indexing import index
from deepjoin.lab.evaluation.task import Answers, EvaluationTask
from deepjoin.lab.evaluation.truth import Truth, brute_force, semantic_truth, with_found
from deepjoin.lake import Lake
from deepjoin.lazy import cached_property
from deepjoin.model import Column
from deepjoin.settings import BuildSettings, Settings, Vectors
from deepjoin.store.manifest import FORMAT, READS
from deepjoin.store.models import cell_encoder, stored

T = TypeVar("T")

#: The paper compares lower-cased, stripped cells; no column is dropped.
SETTINGS = Settings(profile="basic", min_distinct=1, max_cell=1 << 30)
#: The environment variable that names the cache of column vectors; empty for none.
_VECTOR_CACHE = "DEEPJOIN_CACHE"


@dataclass(frozen=True)
class BuiltIndex:
    """An index, how long it took to build, and its encoders."""

    #: Depends on everything that the index depends on.
    name: str
    lake: Lake
    seconds: float
    cells: CellEncoder | None
    #: The names and digests of the encoders.
    encoder: str | None


class EvaluationCache:
    """A folder of indexes and answers, keyed by what they depend on.

    Incomplete entries are made again.
    """

    def __init__(self, folder: Path, task: EvaluationTask) -> None:
        self._folder, self._source, self._task = folder, task.source, task
        self._built: dict[Vectors, BuiltIndex] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DeepJoinError(
                f"Cannot keep indexes in {folder}: {error.strerror}. Choose another `cache`."
            ) from None

    def truth(
        self, queries: Sequence[Column], by: object, make: Callable[[], list[Truth]]
    ) -> list[Truth]:
        """Read the exact answers to queries, or compute them; ``by`` is what defines them."""
        path = self._folder / f"truth-{self._key(by, _content(queries))}.json"
        return self._kept(
            path,
            lambda content: [Truth(one) for one in content],
            make,
            lambda truth: [one.joinability for one in truth],
        )

    def answers(self, built: BuiltIndex, by: object, make: Callable[[], Answers]) -> Answers:
        """Read the answers of a method, or ask it; ``by`` is how it is asked.

        The key includes the code of the package, so that changes to a method are seen.
        """
        key = self._key(by, built.name, _content(self._task.queries), _code())
        path = self._folder / f"answers-{key}.json"

        def read(content: dict[str, Any]) -> Answers:
            return Answers(**content)

        return self._kept(path, read, make, lambda answers: vars(answers))

    def _kept(
        self, path: Path, read: Callable[[Any], T], make: Callable[[], T], write: Callable[[T], Any]
    ) -> T:
        """Read what an earlier run wrote as JSON, or make and write it."""
        with suppress(OSError, ValueError, TypeError):  # missing, incomplete or damaged
            return read(json.loads(path.read_text("utf-8")))
        content = make()
        self._write(path, json.dumps(write(content)))
        return content

    def index(self, vectors: Vectors) -> BuiltIndex:
        """Open the index with these vectors, or build it."""
        if vectors not in self._built:
            cells = cell_encoder(vectors.cells, Path())
            # Loaded for its name and released: the lake loads its own when it needs one.
            text = dict(vectors.text) or None
            columns = load_encoder(vectors.encoder, settings=text, profile=SETTINGS.profile)
            names = [f"{one.name}@{one.digest}" for one in (columns, cells) if one is not None]
            del columns
            by = (names, vectors.sketch, vectors.index, vectors.metric, FORMAT, READS)
            path = self._folder / f"index-{self._key(by)}"
            lake, seconds = self._opened(path, vectors) or self._build(path, vectors)
            encoder = " + ".join(names) or None
            self._built[vectors] = BuiltIndex(path.name, lake, seconds, cells, encoder)
        return self._built[vectors]

    def _opened(self, path: Path, vectors: Vectors) -> tuple[Lake, float] | None:
        """Open an index if it is complete, was timed, and refers to the same encoders."""
        try:
            seconds, lake = float(_timing(path).read_text("utf-8")), Lake(path)
        except (OSError, ValueError, IndexUnusable):
            return None
        names = (stored(spec, path) for spec in (vectors.encoder, vectors.cells))
        known = (lake.vectors.encoder, lake.vectors.cells)
        return (lake, seconds) if known == tuple(names) else None

    def _build(self, path: Path, vectors: Vectors) -> tuple[Lake, float]:
        of_texts = vectors.encoder != "none" and not split_kind(vectors.encoder)[0]
        if of_texts and os.environ.get(_VECTOR_CACHE, "there"):
            self._task.notify(
                "build_s does not count column vectors that are cached; to encode all columns, "
                f"set {_VECTOR_CACHE}="
            )
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
        try:
            replace_file(path, text)
        except OSError as error:
            raise DeepJoinError(f"Cannot write {path}: {error.strerror}.") from None

    def _key(self, *by: object) -> str:
        text = repr((self._corpus, SETTINGS, __version__, by))
        return str(xxhash.xxh3_64_hexdigest(text.encode()))

    @cached_property
    def _corpus(self) -> str:
        digest = xxhash.xxh3_64()
        with (self._source.folder / "columns.parquet").open("rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
        return str(digest.hexdigest())


def _content(queries: Sequence[Column]) -> list[object]:
    return [(query.table, query.name, query.cells) for query in queries]


@cache
def _code() -> str:
    """Digest all modules of deepjoin."""
    digest = xxhash.xxh3_64()
    for path in sorted(Path(__file__).parents[2].rglob("*.py")):
        digest.update(path.read_bytes())
    return str(digest.hexdigest())


def _timing(path: Path) -> Path:
    return path.with_name(path.name + ".seconds")


def truth_name(cells: str = "", digest: str = "", tau: float = 0.0) -> str:
    """Name what makes values match.

    >>> truth_name(), truth_name("cells.bin", "4d2b67555c0bfb19", 0.9)
    ('equal values', 'cells.bin@4d2b67555c0bfb19, tau 0.9')
    """
    return f"{cells}@{digest}, tau {tau:g}" if cells else "equal values"


def trained_by(spec: str) -> str | None:
    """Name the truth that a column encoder was trained by; None if its folder does not say."""
    for folder in (Path(spec), Path(spec).parent):  # the small form lies inside the model's folder
        with suppress(OSError, ValueError, KeyError, TypeError):
            found = json.loads((folder / SETTINGS_FILE).read_text("utf-8"))["trained"]
            if found["join"] == "equi":
                return truth_name()
            return truth_name(found["cells"], found["cells_digest"], found["tau"])
    return None


@dataclass(frozen=True)
class ExactAnswers:
    """The exact answer to every query; empty where a join has none."""

    truth: list[Truth]
    #: The cell encoder and tau that define the answers to a semantic join.
    cells: CellEncoder | None = None
    tau: float = 0.0

    @property
    def name(self) -> str:
        """What makes values match: being equal, or vectors, by name and digest, and tau."""
        cells = self.cells
        return truth_name(*((cells.name, cells.digest, self.tau) if cells else ()))

    def including(self, task: EvaluationTask, found: Sequence[Sequence[str]]) -> list[Truth]:
        """Return the exact answers, with the joinability of everything a method found."""
        if self.cells is None:
            return self.truth
        return with_found(
            *(self.truth, found, task.source, task.queries, self.cells, self.tau),
            profile=SETTINGS.profile,
        )


def exact_answers(task: EvaluationTask, kept: EvaluationCache, vectors: Vectors) -> ExactAnswers:
    """Read or compute the exact answers; ``vectors`` is what a semantic index has."""
    if task.join == "any":
        return ExactAnswers([Truth({}) for _ in task.queries])
    if task.join == "equi":
        task.notify("truth by brute force")
        columns = task.tracked(task.source.columns(), task.source.count, "columns compared")
        return ExactAnswers(
            kept.truth(
                task.queries, "equi", lambda: brute_force(columns, task.queries, SETTINGS.profile)
            )
        )
    if vectors.cells == "none":
        raise DeepJoinError(
            "cells is 'none', and join semantic compares cells by their vectors. Give default, a "
            "folder or fastText vectors."
        )
    task.notify("index with cell vectors")
    built = kept.index(vectors)
    assert built.cells is not None
    tau = built.cells.tau if task.settings.tau is None else task.settings.tau
    task.notify(f"truth by the exact engine, tau {tau:g}")
    best = semantic_truth(built.lake, task.queries, tau, task.exact_depth)
    tracked = task.tracked(best, len(task.queries), "queries answered exactly")
    by = ("semantic", built.cells.digest, tau, task.exact_depth)
    return ExactAnswers(kept.truth(task.queries, by, lambda: list(tracked)), built.cells, tau)
