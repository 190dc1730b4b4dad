"""The encoders of a lake by the names its manifest has for them, loaded once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from deepjoin.embed.cells import CellEncoder, load_cell_encoder
from deepjoin.embed.columns import load_encoder
from deepjoin.embed.columns.cache import VectorCache
from deepjoin.embed.columns.encoder import ColumnEncoder
from deepjoin.embed.columns.loading import split_kind
from deepjoin.embed.vector_build import check_metric, chosen
from deepjoin.files import cache_root
from deepjoin.settings import Settings, Vectors
from deepjoin.store.sketch import check_dimension

#: Fields of `TextSettings` with other values than the encoder's own.
TextChoice = tuple[tuple[str, str | int], ...]

#: Columns that the default encoder encodes a second, on two cores.
_COLUMNS_A_SECOND = 380


def stored(spec: str, folder: Path | None) -> str:
    """Write an encoder as a manifest does: a path as it is seen from the index folder.

    An index in a bucket has no folder; then the path is of this machine.

    >>> stored("default", Path("index"))
    'default'
    """
    kind, where = split_kind(spec)
    path = Path(where)
    if where in ("default", "none", "") or not path.exists():
        return spec
    if folder is None:
        return _named(kind, path.resolve().as_posix())
    return _named(kind, Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix())


def shown(spec: str, folder: Path) -> str:
    """Write an encoder of an index as a user here would."""
    kind, path = split_kind(located(spec, folder))
    return spec if _named(kind, path) == spec else _named(kind, os.path.relpath(path))


def encode_command(location: object, **vectors: object) -> str:
    """Write the command that encodes an index with these fields of `Vectors`.

    >>> encode_command("lake", encoder="default", sketch=768)
    'deepjoin index lake --encoder default --sketch 768'
    """
    options = (f"--{name} {value}" for name, value in vectors.items())
    return " ".join(["deepjoin index", str(location), *options])


def encoding_seconds(encoder: object, columns: int) -> float | None:
    """Estimate how long columns take to encode; None for an encoder that was not measured.

    >>> encoding_seconds("default", 38_000)
    100.0
    """
    return columns / _COLUMNS_A_SECOND if encoder == "default" else None


def _named(kind: str, where: str) -> str:
    return f"{kind}:{where}" if kind else where


def identified(
    vectors: Vectors,
    settings: Settings,
    folder: Path,
    threads: int | None = None,
    device: str | None = None,
) -> Vectors:
    """Load the encoders, so that a build fails before it reads tables; note their digests."""
    cells = cell_encoder(vectors.cells, folder)
    columns = column_encoder(
        vectors.encoder, folder, settings.profile, threads, device, vectors.text
    )
    if vectors.sketch:
        check_dimension(vectors.sketch)
    chosen(vectors.index, 0)
    check_metric(vectors.metric)
    return replace(
        vectors,
        cells_digest="" if cells is None else cells.digest,
        encoder_digest="" if columns is None else columns.digest,
    )


def located(spec: str, folder: Path) -> str:
    """Find an encoder that a manifest names."""
    # Resolved as text, since the folder of a new index does not exist yet.
    kind, where = split_kind(spec)
    seen = Path(os.path.normpath(folder.resolve() / where))
    there = where not in ("default", "none", "") and seen.exists()
    return _named(kind, str(seen)) if there else spec


def column_encoder(
    spec: str,
    folder: Path,
    profile: str,
    threads: int | None = None,
    device: str | None = None,
    text: TextChoice = (),
) -> ColumnEncoder | None:
    """Load the column encoder of an index; None if it has none.

    ``text`` says how columns become texts, where the encoder's own settings do not hold.
    """
    return _loaded_columns(located(spec, folder), profile, threads, device, text)


@lru_cache(maxsize=2)
def _loaded_columns(
    spec: str, profile: str, threads: int | None, device: str | None, text: TextChoice
) -> ColumnEncoder | None:
    return load_encoder(
        spec, settings=dict(text) or None, profile=profile, threads=threads, device=device
    )


@contextmanager
def vector_cache() -> Iterator[VectorCache | None]:
    """Open the vectors this user has encoded before, in any lake; None where nothing is kept."""
    place = cache_root()
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError:  # without a writable home, nothing is cached
        yield None
        return
    with VectorCache(place / "vectors.sqlite") as cache:
        yield cache


def cell_encoder(spec: str, folder: Path) -> CellEncoder | None:
    """Load the cell encoder of an index; None if it has none."""
    return None if spec == "none" else _loaded(located(spec, folder))


@lru_cache(maxsize=2)
def _loaded(spec: str) -> CellEncoder:
    return load_cell_encoder(spec)
