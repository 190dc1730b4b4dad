"""Build a vector index over stored rows: equal rows collapsed, then coded as Faiss likes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deepjoin.embed.vector_index.kinds import KINDS, PAD, Kind, check_metric, chosen, faiss_threads
from deepjoin.errors import DeepJoinError

Half = npt.NDArray[np.float16]
Float = npt.NDArray[np.float32]
Int = npt.NDArray[np.int64]
Rows = npt.NDArray[np.float16] | npt.NDArray[np.float32]

#: What is stored, in a folder of its own.
ABOUT, INDEX, ROWS = "index.json", "index.faiss", "rows.npy"
OFFSETS, MEMBERS = "offsets.npy", "members.npy"
FORMAT = 1
_SEED = 20221
#: Rows to train on for each inverted list.
_TRAINED_ON = 64
#: Rows handled at a time.
_BLOCK = 1 << 14


def build_vectors(
    vectors: npt.ArrayLike, folder: Path, kind: str = "auto", metric: str = "cosine"
) -> str:
    """Store vectors in half precision, the row number being the id, and index them."""
    check_metric(metric)
    save_rows(checked(vectors), folder)
    return index_rows(folder, kind, metric)


def save_rows(rows: Rows, folder: Path) -> None:
    """Store rows; what half precision cannot hold is refused."""
    stored = new_rows(folder, *rows.shape)
    for start in range(0, len(rows), _BLOCK):
        some = slice(start, start + _BLOCK)
        stored[some] = narrowed(rows[some])


def new_rows(folder: Path, count: int, dimension: int) -> Half:
    """Map a file for so many rows, to be filled some at a time: they need not fit in memory."""
    path, shape = folder / ROWS, (count, dimension)
    if 0 in shape:  # nothing to map
        np.save(path, np.zeros(shape, np.float16))
        return np.zeros(shape, np.float16)
    return np.lib.format.open_memmap(path, "w+", np.dtype(np.float16), shape)


def narrowed(rows: Rows) -> Half:
    """Turn rows to half precision; what that cannot hold is refused."""
    ends = (np.fmax.reduce(rows, axis=None, initial=0), np.fmin.reduce(rows, axis=None, initial=0))
    largest = max(map(abs, map(float, ends)))
    if largest > float(np.finfo(np.float16).max):
        raise DeepJoinError(
            f"A vector holds {largest:.3g}; numbers up to 65504 can be stored. "
            "Use an encoder with smaller outputs."
        )
    return np.asarray(rows, np.float16)


def index_rows(
    folder: Path, kind: str = "auto", metric: str = "cosine", clustered: bool = True
) -> str:
    """Index the rows stored in a folder and return the kind that was built.

    The same rows give the same files. A handful of rows is always scanned; ``clustered`` is as
    for `chosen`.
    """
    check_metric(metric)
    rows = load_rows(folder)
    name = chosen(kind, len(rows), clustered)
    different = len(rows)
    if KINDS[name].factory:
        first, offsets, members = collapsed(rows)
        different = len(first)
        name = chosen(kind, different, clustered)
    if KINDS[name].factory:
        _write(rows, first, folder, KINDS[name], metric)
        np.save(folder / OFFSETS, offsets.astype(np.int32))
        np.save(folder / MEMBERS, members.astype(np.int32))
    about = {
        "format": FORMAT,
        "kind": name,
        "metric": metric,
        "dimension": rows.shape[1],
        "vectors": len(rows),
        "different": different,
    }
    (folder / ABOUT).write_text(json.dumps(about))
    return name


def load_rows(folder: Path) -> Half:
    """Map the stored rows."""
    # A plain array over the map: maps of NumPy's are slower to take rows from.
    rows: Half = np.asarray(np.load(folder / ROWS, mmap_mode="r"))
    return rows


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


def widened(rows: Rows) -> Float:
    """Turn rows to single precision, several times faster than a cast where they are finite."""
    if rows.dtype != np.float16:
        return np.array(rows, np.float32)
    bits = np.ascontiguousarray(rows).view(np.uint16).astype(np.uint32)
    signs = (bits & np.uint32(0x8000)) << np.uint32(16)
    bits &= np.uint32(0x7FFF)
    bits <<= np.uint32(13)
    wide: Float = bits.view(np.float32)
    wide *= np.float32(2.0**112)  # the exponents of the two are counted from different zeros
    bits |= signs
    return wide


def prepared(rows: Rows, metric: str) -> Float:
    """Pad rows to what codes need and, for the cosine, scale a copy to length 1."""
    padded = widened(rows)
    if rows.shape[1] % PAD:
        padded = np.pad(padded, ((0, 0), (0, -rows.shape[1] % PAD)))
    if metric == "euclidean":
        return padded
    lengths = np.sqrt(np.einsum("ij,ij->i", padded, padded))
    padded /= np.where(lengths > 0, lengths, 1)[:, None]
    return padded


def collapsed(rows: Half) -> tuple[Int, Int, Int]:
    """Return the first of each set of equal rows, in order, and which ids each stands for."""
    keys = _keys(rows)
    order = np.lexsort((keys[:, 1], keys[:, 0]))  # stable: the first of each set comes first
    starts = np.ones(len(rows), bool)
    starts[1:] = (keys[order[1:]] != keys[order[:-1]]).any(axis=1)
    firsts = np.empty(len(rows), np.int64)
    firsts[order] = order[starts][np.cumsum(starts) - 1]
    members = np.argsort(firsts, kind="stable")
    first, sizes = np.unique(firsts, return_counts=True)
    return first, np.append(0, np.cumsum(sizes)), members


def _keys(rows: Half) -> npt.NDArray[np.uint64]:
    """Give each row two numbers that stand for it."""
    from xxhash import xxh3_128_digest

    keys = np.empty((len(rows), 2), np.uint64)
    for start in range(0, len(rows), _BLOCK):
        # Adding zero makes -0.0 the same bytes as 0.0.
        some = rows[start : start + _BLOCK] + np.float16(0)
        digests = b"".join(map(xxh3_128_digest, some))
        keys[start : start + len(some)] = np.frombuffer(digests, np.uint64).reshape(-1, 2)
    return keys


def _write(rows: Half, first: Int, folder: Path, kind: Kind, metric: str) -> None:
    # One thread: Faiss's graphs depend on the order in which threads insert.
    with faiss_threads(1) as faiss:
        index = _trained(faiss, rows, first, kind, metric)
        for start in range(0, len(first), _BLOCK):
            index.add(prepared(rows[first[start : start + _BLOCK]], metric))
        faiss.write_index(index, str(folder / INDEX))


def _trained(faiss: Any, rows: Half, first: Int, kind: Kind, metric: str) -> Any:
    measure = faiss.METRIC_INNER_PRODUCT if metric == "cosine" else faiss.METRIC_L2
    lists, width = kind.list_count(len(first)), rows.shape[1] + -rows.shape[1] % PAD
    factory = kind.factory.format(lists=lists, quarter=width // 4)
    index = faiss.index_factory(width, factory, measure)
    for trained in (index, getattr(index, "pq", index)):
        if hasattr(trained, "cp"):
            trained.cp.seed = _SEED
            trained.cp.min_points_per_centroid = 1  # or it complains on stderr
    if not index.is_trained:
        some = first[np.sort(_sample(len(first), max(_BLOCK, _TRAINED_ON * lists)))]
        index.train(prepared(rows[some], metric))
    return index


def _sample(count: int, most: int) -> Int:
    """Choose rows to train on, the same at every build."""
    if count <= most:
        return np.arange(count)
    return np.random.default_rng(_SEED).choice(count, most, replace=False)
