"""Build a vector index: equal vectors collapsed, then stored as Faiss likes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deepjoin.errors import DeepJoinError
from deepjoin.vectors.kinds import KINDS, PAD, Kind, check_metric, chosen, faiss_threads

Float = npt.NDArray[np.float32]
Int = npt.NDArray[np.int64]

#: What is stored, in the folder of a segment.
ABOUT, INDEX, ROWS = "column_vectors.json", "column_vectors.faiss", "column_vectors.npy"
OFFSETS, MEMBERS = "column_vector_offsets.npy", "column_vector_members.npy"
FORMAT = 1
_SEED = 20221


def build_vectors(
    vectors: npt.ArrayLike, folder: Path, kind: str = "auto", metric: str = "cosine"
) -> str:
    """Index vectors, the row number being the id, and return the kind that was built.

    The same vectors give the same files. A handful of vectors is always stored flat.
    """
    check_metric(metric)
    rows = checked(vectors)
    dimension = rows.shape[1]
    different, offsets, members = _collapsed(prepared(rows, metric))
    name = chosen(kind, len(different))
    if len(different):
        _write(different, folder, KINDS[name], metric)
    np.save(folder / OFFSETS, offsets)
    np.save(folder / MEMBERS, members)
    about = {
        "format": FORMAT,
        "kind": name,
        "metric": metric,
        "dimension": dimension,
        "vectors": len(rows),
        "different": len(different),
    }
    (folder / ABOUT).write_text(json.dumps(about))
    return name


def checked(vectors: npt.ArrayLike, dimension: int | None = None) -> Float:
    """Refuse what is not a matrix of finite numbers, of this dimension if one is given."""
    rows = np.ascontiguousarray(vectors, np.float32)
    if rows.ndim != 2 or rows.shape[1] == 0 or dimension not in (None, rows.shape[1]):
        wanted = "two dimensions" if dimension is None else f"{dimension} numbers a row"
        raise DeepJoinError(
            f"Vectors of shape {rows.shape} came; {wanted} are needed. "
            "Encode with the encoder of the index."
        )
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(bad):
        raise DeepJoinError(
            f"Vector {bad[0]} holds NaN or infinity; only finite numbers can be compared. "
            "Check the encoder that made it."
        )
    return rows


def prepared(rows: Float, metric: str) -> Float:
    """Pad rows to what codes need and, for the cosine, scale a copy to length 1."""
    padded = np.pad(rows, ((0, 0), (0, -rows.shape[1] % PAD)))
    if metric == "euclidean":
        return padded
    lengths = np.linalg.norm(padded.astype(np.float64), axis=1, keepdims=True)
    return (padded / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def _collapsed(rows: Float) -> tuple[Float, Int, Int]:
    """Return the different rows in order of first appearance, and which ids each stands for."""
    # Adding zero makes -0.0 the same bytes as 0.0.
    whole = np.ascontiguousarray(rows + np.float32(0))
    keys = whole.view(np.dtype((np.void, whole.shape[1] * 4))).ravel()
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    by_place = np.argsort(first)
    place = np.empty(len(first), np.int64)
    place[by_place] = np.arange(len(first))
    groups = place[group.ravel()]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(groups, minlength=len(first)))])
    return rows[first[by_place]], offsets, np.argsort(groups, kind="stable")


def _write(rows: Float, folder: Path, kind: Kind, metric: str) -> None:
    # One thread: Faiss's graphs depend on the order in which threads insert.
    with faiss_threads(1) as faiss:
        index = _trained(faiss, rows, kind, metric)
        index.add(rows)
        faiss.write_index(index, str(folder / INDEX))
    if kind.rerank:
        np.save(folder / ROWS, rows.astype(np.float16))


def _trained(faiss: Any, rows: Float, kind: Kind, metric: str) -> Any:
    measure = faiss.METRIC_INNER_PRODUCT if metric == "cosine" else faiss.METRIC_L2
    factory = kind.factory.format(lists=kind.list_count(len(rows)))
    index = faiss.index_factory(rows.shape[1], factory, measure)
    if kind.effort_of == "nprobe":
        index.cp.seed = _SEED
        index.cp.min_points_per_centroid = 1  # or it complains on stderr
        if hasattr(index, "pq"):
            index.pq.cp.seed = _SEED
            index.pq.cp.min_points_per_centroid = 1
    with_training = rows[np.sort(_sample(len(rows), 256 * kind.list_count(len(rows))))]
    index.train(with_training if kind.effort_of == "nprobe" else rows)
    return index


def _sample(count: int, most: int) -> Int:
    """Choose rows to train on, the same at every build."""
    if count <= most:
        return np.arange(count)
    return np.random.default_rng(_SEED).choice(count, most, replace=False)
