"""The encoders of a lake by the names its manifest has for them, loaded once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from deepjoin.cells import CellEncoder, load_cell_encoder
from deepjoin.encoders import load_encoder
from deepjoin.encoders.cache import VectorCache
from deepjoin.encoders.text_encoder import TextEncoder


def stored(spec: str, folder: Path) -> str:
    """Write an encoder as a manifest does: a path as it is seen from the index folder.

    >>> stored("default", Path("index"))
    'default'
    """
    path = Path(spec)
    if spec in ("default", "none") or not path.exists():
        return spec
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


def located(spec: str, folder: Path) -> str:
    """Find an encoder that a manifest names."""
    seen = folder / spec
    return str(seen) if spec not in ("default", "none") and seen.exists() else spec


def column_encoder(
    spec: str, folder: Path, profile: str, threads: int | None = None
) -> TextEncoder | None:
    """Load the column encoder of an index; None if it has none."""
    return _loaded_columns(located(spec, folder), profile, threads)


@lru_cache(maxsize=2)
def _loaded_columns(spec: str, profile: str, threads: int | None) -> TextEncoder | None:
    return load_encoder(spec, profile=profile, threads=threads)


@contextmanager
def vector_cache() -> Iterator[VectorCache | None]:
    """Open the vectors this user has encoded before, in any lake; None where nothing is kept.

    DEEPJOIN_CACHE names the folder: ~/.cache/deepjoin unless it is set, and none if it is empty.
    """
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deepjoin"
    place = os.environ.get("DEEPJOIN_CACHE", str(usual))
    try:
        if not place:
            raise FileNotFoundError
        Path(place).mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that cannot be written to: then nothing is kept
        yield None
        return
    with VectorCache(Path(place) / "vectors.sqlite") as cache:
        yield cache


def cell_encoder(spec: str, folder: Path) -> CellEncoder | None:
    """Load the cell encoder of an index; None if it has none."""
    return None if spec == "none" else _loaded(located(spec, folder))


@lru_cache(maxsize=2)
def _loaded(spec: str) -> CellEncoder:
    return load_cell_encoder(spec)
