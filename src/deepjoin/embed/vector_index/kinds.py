"""The kinds of vector index by name: what Faiss builds, and how hard it searches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from deepjoin.errors import unknown_name

METRICS = ("cosine", "euclidean")


@dataclass(frozen=True)
class Kind:
    """One way to search the stored rows, which are there in any case."""

    #: Faiss's name for it, empty for a scan of the rows; ``{lists}`` are the inverted lists,
    #: ``{quarter}`` a quarter of the dimension.
    factory: str
    #: Which knob says how much is searched ("efSearch", "nprobe" or none), and its setting.
    effort_of: str = ""
    effort: int = 0
    #: Inverted lists; 0 for as many as suit the number of vectors.
    lists: int = 0
    #: Where they are to suit it, how many times its root they are.
    roots: int = 4
    #: How many times k candidates are ranked again on the rows; 0 to trust Faiss's distances.
    rerank: int = 2
    #: Whether Faiss leaves out excluded vectors itself.
    marks: bool = True

    def list_count(self, vectors: int) -> int:
        """Return the number of inverted lists, each with enough vectors to train on."""
        return max(1, min(self.lists or int(self.roots * vectors**0.5), vectors // 39))


# Of 8-bit and coarser codes, only those that Faiss trains without comparing codes with codes,
# which are never compared and would take minutes: "np".
KINDS = {
    "flat": Kind(""),
    "flat16": Kind("SQfp16"),
    "flat8": Kind("SQ8"),
    "hnsw": Kind("HNSW32,Flat", "efSearch", 64),
    "hnsw8": Kind("HNSW32,SQ8", "efSearch", 64),
    "ivf8": Kind("IVF{lists}_HNSW32,SQ8", "nprobe", 32),
    # Every vector is looked at, four numbers as one code of four bits, 32 vectors at a time.
    "scan4": Kind("PQ{quarter}x4fs", rerank=128, marks=False),
    # The same, of the lists nearest to the query alone. Codes are so cheap to look at that few and
    # long lists will do, which are quick to learn, and to compare with a query one and all.
    "ivf4": Kind("IVF{lists},PQ{quarter}x4fs", "nprobe", 192, roots=1, rerank=256, marks=False),
    # The preset of the paper's authors: 1000 lists, 16 bytes a vector.
    "ivfpq": Kind("IVF{lists}_HNSW32,PQ16np", "nprobe", 32, lists=1000, rerank=16),
    "ivfpq-plain": Kind("IVF{lists}_HNSW32,PQ16np", "nprobe", 32, lists=1000, rerank=0),
}
#: Up to here a scan takes a few milliseconds and is exact.
FLAT_UP_TO = 20_000
#: Up to here all codes of a larger segment are scanned, beyond only those of the nearest lists.
SCANNED_UP_TO = 600_000
_SCAN, _LISTS = "scan4", "ivf4"
#: Fewer different vectors are too few to train lists and codes on.
TRAINABLE = 1_000
#: Vectors are padded with zeros to a multiple of this, for codes of 16 bytes or of a quarter.
PAD = 16


def chosen(kind: str, vectors: int, clustered: bool = True) -> str:
    """Return the kind to build: by size for "auto", and flat for a handful of vectors.

    Lists are chosen for vectors of which like ones lie together: a model's do, sketches do not.
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
    """Tell whether an index of a kind is what was asked for, by this version or one before."""
    once = {_SCAN} if kind == "auto" and vectors > SCANNED_UP_TO else set()
    return built in {chosen(kind, vectors), *once}


def check_metric(metric: str) -> None:
    """Refuse a metric that does not exist."""
    if metric not in METRICS:
        raise unknown_name("metric", metric, "this version", METRICS)


@contextmanager
def faiss_threads(threads: int) -> Iterator[Any]:
    """Lend Faiss with so many threads, and put its own number back."""
    import faiss

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(threads)
    try:
        yield faiss
    finally:
        faiss.omp_set_num_threads(before)
