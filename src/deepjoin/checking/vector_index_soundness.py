"""Whether the index of column vectors is one of the rows beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from deepjoin.arrays import load_array
from deepjoin.checking.contents import MISREAD
from deepjoin.checking.soundness import is_array
from deepjoin.embed.vector_build import (
    ABOUT,
    FORMAT,
    INDEX,
    KINDS,
    MEMBERS,
    METRICS,
    OFFSETS,
    PAD,
    faiss_threads,
    load_rows,
    may_be,
    prepared,
)

Half = npt.NDArray[np.float16]
Int = npt.NDArray[np.int64]

#: Vectors compared with what the index has of them.
_COMPARED = 1000
#: Of rows looked for in their own lists, the share that is among so many nearest, at least.
_FOUND, _NEAREST = 0.9, 100
#: How much farther a code may be from its vector than the best one.
_FARTHER = 1e-3


def index_problems(folder: Path, kind: str, metric: str) -> Iterator[str]:
    """Say what is wrong with the index, asked for as this, of rows that are sound."""
    rows = load_rows(folder)
    about = _about(folder / ABOUT, rows)
    if isinstance(about, str):
        yield f"{ABOUT} {about}"
    elif not (may_be(about["kind"], kind, about["different"]) and about["metric"] == metric):
        yield f"{ABOUT} is of another index than was asked for"
    elif KINDS[about["kind"]].factory:
        yield from _group_problems(folder, rows, about)


def _about(path: Path, rows: Half) -> dict[str, Any] | str:
    """Read what the index says of itself, or say what is wrong with that."""
    try:
        text = path.read_bytes()
        about: dict[str, Any] = json.loads(text)
        told = about["format"], about["dimension"], about["vectors"]
        known = about["kind"] in KINDS and about["metric"] in METRICS
        known = known and type(about["different"]) is int and json.dumps(about).encode() == text
    except FileNotFoundError:
        return "is missing"
    except MISREAD:
        known = False
    if not known:
        return "is not what was written"
    fits = told == (FORMAT, rows.shape[1], len(rows)) and 0 <= about["different"] <= len(rows)
    if fits and about["different"] < len(rows):
        fits = about["different"] == len(_groups(rows)[0]) - 1
    return about if fits else f"does not count what {path.parent.name} holds"


def _groups(rows: Half) -> tuple[Int, Int]:
    """Put equal rows together, in order of the first of each."""
    # Adding zero makes -0.0 the same bytes as 0.0.
    keys = np.array([xxh3_64_intdigest(row + np.float16(0)) for row in rows], np.uint64)
    first, group = np.unique(keys, return_index=True, return_inverse=True)[1:]
    ranks = np.argsort(np.argsort(first))
    group = ranks[group]
    sizes = np.bincount(group, minlength=len(first))
    return np.append(0, np.cumsum(sizes)), np.argsort(group, kind="stable")


def _group_problems(folder: Path, rows: Half, about: dict[str, Any]) -> Iterator[str]:
    """See that the index has every different row once, and knows the columns of each."""
    missing = [name for name in (OFFSETS, MEMBERS, INDEX) if not (folder / name).is_file()]
    yield from (f"{name} is missing" for name in missing)
    if missing:
        return
    wanted = dict(zip((OFFSETS, MEMBERS), _groups(rows), strict=True))
    found = False
    for name, array in wanted.items():
        if not is_array(folder / name, np.int32):
            yield f"{name} is not the array that belongs there"
        elif not np.array_equal(load_array(folder / name), array):
            yield f"{name} does not tell which rows are equal"
        else:
            continue
        found = True
    offsets, members = wanted.values()
    if not found and not _holds(folder / INDEX, rows[members[offsets[:-1]]], about):
        yield f"{INDEX} is not the index of the rows"


def _holds(path: Path, rows: Half, about: dict[str, Any]) -> bool:
    """Tell whether Faiss can read an index, and what it has of some rows is near to them."""
    with faiss_threads(1) as faiss:
        try:
            index = faiss.read_index(str(path))
        except (RuntimeError, MemoryError):
            return False
        measure = faiss.METRIC_INNER_PRODUCT if about["metric"] == "cosine" else faiss.METRIC_L2
        width = rows.shape[1] + -rows.shape[1] % PAD
        told = index.ntotal, index.d, index.metric_type, index.is_trained
        if told != (len(rows), width, measure, True) or not _leads_inside(faiss, index):
            return False
        some = np.linspace(0, len(rows) - 1, min(_COMPARED, len(rows))).astype(np.int64)
        compared = prepared(rows[some], about["metric"])
        if isinstance(index, faiss.IndexIVFPQFastScan):
            return _finds_itself(faiss, index, some, compared)
        return _codes_are_best(faiss, index, some, compared)


def _leads_inside(faiss: Any, index: Any) -> bool:
    """Tell whether what an index points at is in it: nothing else may be looked up."""
    graph = getattr(index, "hnsw", None)
    if graph is not None:
        neighbours = faiss.vector_to_array(graph.neighbors)
        inside = neighbours.min(initial=-1) >= -1 and neighbours.max(initial=-1) < index.ntotal
        return bool(inside and 0 <= graph.entry_point < index.ntotal)
    lists = getattr(index, "invlists", None)
    if lists is None:
        return True
    sizes = [lists.list_size(i) for i in range(index.nlist)]
    pointed = [faiss.rev_swig_ptr(lists.get_ids(i), n) for i, n in enumerate(sizes) if n]
    numbers = np.sort(np.concatenate([np.zeros(0, np.int64), *pointed]))
    whole = np.array_equal(numbers, np.arange(index.ntotal))
    return whole and _leads_inside(faiss, faiss.downcast_index(index.quantizer))


def _finds_itself(faiss: Any, index: Any, some: Int, rows: npt.NDArray[np.float32]) -> bool:
    """Tell whether rows are found in their own lists; Faiss cannot give back these codes."""
    found = index.search(rows, _NEAREST, params=faiss.SearchParametersIVF(nprobe=1))[1]
    return bool((found == some[:, None]).any(axis=1).mean() >= _FOUND)


def _codes_are_best(faiss: Any, index: Any, some: Int, rows: npt.NDArray[np.float32]) -> bool:
    """Tell whether the codes of some rows are as near to them as codes made now."""
    if hasattr(index, "make_direct_map"):
        index.make_direct_map()
    coder = faiss.downcast_index(index.storage) if hasattr(index, "hnsw") else index
    stored = np.stack([index.reconstruct(int(number)) for number in some])
    best = coder.sa_decode(coder.sa_encode(rows))
    with np.errstate(over="ignore", invalid="ignore"):
        lost, least = (np.linalg.norm(one - rows, axis=1) for one in (stored, best))
        # Written so that NaN fails as well.
        return bool((lost <= least * (1 + _FARTHER) + _FARTHER).all())
