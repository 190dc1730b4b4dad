"""Vector indexes made of rows in memory; the product fills the rows of a segment in blocks."""

from __future__ import annotations

from pathlib import Path

import numpy.typing as npt

from deepjoin.arrays import Rows
from deepjoin.embed.vector_build import checked, index_rows, narrowed, new_rows


def build_vectors(
    vectors: npt.ArrayLike, folder: Path, kind: str = "auto", metric: str = "cosine"
) -> str:
    """Store vectors in half precision and index them; ids are row numbers."""
    save_rows(checked(vectors), folder)
    return index_rows(folder, kind, metric)


def save_rows(rows: Rows, folder: Path) -> None:
    """Store rows without an index."""
    new_rows(folder, *rows.shape)[:] = narrowed(rows)
