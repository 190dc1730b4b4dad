"""Build a vector index: store rows in half precision, and index the distinct ones with Faiss."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import Float, Half, Hashes, Int, Rows, create_array, load_array
from deepjoin.errors import DeepJoinError, unknown_name

#: Files of a vector index, which has its own folder.
ABOUT, INDEX, ROWS = "index.json", "index.faiss", "rows.npy"
OFFSETS, MEMBERS = "offsets.npy", "members.npy"
FORMAT = 1
_SEED = 20221
#: Rows to train on for each inverted list.
_TRAINED_ON = 64
#: Rows handled at a time.
_BLOCK = 1 << 14
#: The bits of a single that a half, moved to its place, may have.
_HALF = np.int32(0x8FFFE000 - (1 << 32))
METRICS = ("cosine", "euclidean")


@dataclass(frozen=True)
class IndexKind:
    """A kind of index over the stored rows, which every kind keeps."""

    #: Factory string of Faiss, empty for a scan of the rows; ``{lists}`` is the number of inverted
    #: lists, ``{quarter}`` a quarter of the dimension.
    factory: str
    #: The parameter of search effort ("efSearch", "nprobe" or none), and its value.
    effort_of: str = ""
    effort: int = 0
    #: Inverted lists; 0 to choose by the number of vectors.
    lists: int = 0
    #: If chosen, this many times its square root.
    roots: int = 4
    #: Candidates reranked on the rows, as a multiple of k; 0 to trust the distances of Faiss.
    rerank: int = 2
    #: Whether Faiss skips excluded vectors itself.
    marks: bool = True

    def list_count(self, vectors: int) -> int:
        """Return the number of inverted lists, each with enough vectors to train on."""
        return max(1, min(self.lists or int(self.roots * vectors**0.5), vectors // 39))


# Of 8-bit and coarser codes, only those that Faiss trains without comparing codes with codes,
# which are never compared and would take minutes: "np".
KINDS = {
    "flat": IndexKind(""),
    "flat16": IndexKind("SQfp16"),
    "flat8": IndexKind("SQ8"),
    "hnsw": IndexKind("HNSW32,Flat", "efSearch", 64),
    "hnsw8": IndexKind("HNSW32,SQ8", "efSearch", 64),
    "ivf8": IndexKind("IVF{lists}_HNSW32,SQ8", "nprobe", 32),
    # Scans all vectors: four numbers are one code of four bits, compared 32 vectors at a time.
    "scan4": IndexKind("PQ{quarter}x4fs", rerank=128, marks=False),
    # The same over the nearest lists only. Codes are so cheap to scan that few, long lists do,
    # which are quick to train and to compare with a query.
    "ivf4": IndexKind(
        "IVF{lists},PQ{quarter}x4fs", "nprobe", 192, roots=1, rerank=256, marks=False
    ),
    # The preset of the paper's authors: 1000 lists, 16 bytes a vector.
    "ivfpq": IndexKind("IVF{lists}_HNSW32,PQ16np", "nprobe", 32, lists=1000, rerank=16),
    "ivfpq-plain": IndexKind("IVF{lists}_HNSW32,PQ16np", "nprobe", 32, lists=1000, rerank=0),
}
#: Up to this size a scan takes a few milliseconds and is exact.
FLAT_UP_TO = 20_000
#: Up to this size all codes are scanned, beyond only those of the nearest lists.
SCANNED_UP_TO = 600_000
_SCAN, _LISTS = "scan4", "ivf4"
#: Fewer distinct vectors are too few to train lists and codes.
TRAINABLE = 1_000
#: Vectors are padded with zeros to a multiple of this, for codes of 16 bytes or of a quarter.
PAD = 16


def chosen(kind: str, vectors: int, clustered: bool = True) -> str:
    """Return the kind to build: by size for "auto", and flat for a handful of vectors.

    ``clustered`` says whether similar vectors form clusters, which lists need: a model's do,
    sketches do not.
    """
    if kind != "auto" and kind not in KINDS:
        raise unknown_name("vector index", kind, "this version", ["auto", *KINDS])
    if vectors < TRAINABLE:
        return "flat"
    if kind != "auto":
        return kind
    if vectors <= FLAT_UP_TO:
        return "flat"
    return _LISTS if clustered and vectors > SCANNED_UP_TO else _SCAN


def may_be(built: str, kind: str, vectors: int) -> bool:
    """Check whether an index is of the requested kind, built by this version or an earlier one."""
    once = {_SCAN} if kind == "auto" and vectors > SCANNED_UP_TO else set()
    return built in {chosen(kind, vectors), *once}


def check_metric(metric: str) -> None:
    """Refuse a metric that does not exist."""
    if metric not in METRICS:
        raise unknown_name("metric", metric, "this version", METRICS)


@contextmanager
def faiss_threads(threads: int) -> Iterator[Any]:
    """Import Faiss and set its number of threads for a while."""
    import faiss

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(threads)
    try:
        yield faiss
    finally:
        faiss.omp_set_num_threads(before)


def new_rows(folder: Path, count: int, dimension: int) -> Half:
    """Map a new file of rows that is filled in blocks, so it need not fit in memory."""
    return create_array(folder / ROWS, np.float16, count, dimension)


def narrowed(rows: Rows) -> Half:
    """Convert rows to half precision; numbers beyond it are refused."""
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
    return load_array(folder / ROWS)


def checked(vectors: npt.ArrayLike, dimension: int | None = None) -> Float:
    """Check that vectors are a matrix of finite numbers, of this dimension if one is given."""
    rows = np.ascontiguousarray(vectors, np.float32)
    if rows.ndim != 2 or rows.shape[1] == 0 or dimension not in (None, rows.shape[1]):
        wanted = "two dimensions" if dimension is None else f"{dimension} numbers a row"
        raise DeepJoinError(
            f"Vectors have shape {rows.shape}; {wanted} are needed. "
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
    """Convert finite rows to single precision, several times faster than a cast."""
    if rows.dtype != np.float16:
        return np.array(rows, np.float32)
    # The sign is extended over the bits that the shift moves it to; the mask leaves one of them.
    bits = np.ascontiguousarray(rows).view(np.int16).astype(np.int32)
    bits <<= np.int32(13)
    bits &= _HALF
    wide: Float = bits.view(np.float32)
    wide *= np.float32(2.0**112)  # the two formats have different exponent biases
    return wide


def prepared(rows: Rows, metric: str) -> Float:
    """Pad rows to the width that codes need; for the cosine, scale them to length 1."""
    padded = widened(rows)
    if rows.shape[1] % PAD:
        padded = np.pad(padded, ((0, 0), (0, -rows.shape[1] % PAD)))
    if metric == "euclidean":
        return padded
    lengths = np.sqrt(np.einsum("ij,ij->i", padded, padded))
    padded /= np.where(lengths > 0, lengths, 1)[:, None]
    return padded


def collapsed(rows: Half) -> tuple[Int, Int, Int]:
    """Group equal rows: the first of each group, in order, and offsets into the sorted members."""
    from xxhash import xxh3_128_digest

    # Two numbers stand for a row: comparing them is faster than comparing rows.
    keys: Hashes = np.empty((len(rows), 2), np.uint64)
    for start in range(0, len(rows), _BLOCK):
        # Adding zero makes -0.0 the same bytes as 0.0.
        some = rows[start : start + _BLOCK] + np.float16(0)
        digests = b"".join(map(xxh3_128_digest, some))
        keys[start : start + len(some)] = np.frombuffer(digests, np.uint64).reshape(-1, 2)
    order = np.lexsort((keys[:, 1], keys[:, 0]))  # stable: the first of each set comes first
    starts = np.ones(len(rows), bool)
    starts[1:] = (keys[order[1:]] != keys[order[:-1]]).any(axis=1)
    firsts = np.empty(len(rows), np.int64)
    firsts[order] = order[starts][np.cumsum(starts) - 1]
    members = np.argsort(firsts, kind="stable")
    first, sizes = np.unique(firsts, return_counts=True)
    return first, np.append(0, np.cumsum(sizes)), members


def _write(rows: Half, first: Int, folder: Path, kind: IndexKind, metric: str) -> None:
    """Train an index of Faiss and add the distinct rows; the same rows give the same file."""
    lists, width = kind.list_count(len(first)), rows.shape[1] + -rows.shape[1] % PAD
    # One thread: the graphs of Faiss depend on the order in which threads insert.
    with faiss_threads(1) as faiss:
        measure = faiss.METRIC_INNER_PRODUCT if metric == "cosine" else faiss.METRIC_L2
        factory = kind.factory.format(lists=lists, quarter=width // 4)
        index = faiss.index_factory(width, factory, measure)
        for trained in (index, getattr(index, "pq", index)):
            if hasattr(trained, "cp"):
                trained.cp.seed = _SEED
                trained.cp.min_points_per_centroid = 1  # or it complains on stderr
        if not index.is_trained:
            some, most = first, max(_BLOCK, _TRAINED_ON * lists)
            if len(first) > most:
                drawn = np.random.default_rng(_SEED).choice(len(first), most, replace=False)
                some = first[np.sort(drawn)]
            index.train(prepared(rows[some], metric))
        for start in range(0, len(first), _BLOCK):
            index.add(prepared(rows[first[start : start + _BLOCK]], metric))
        faiss.write_index(index, str(folder / INDEX))
