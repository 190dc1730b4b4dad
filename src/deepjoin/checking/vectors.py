"""Check that the vectors of a segment and their index agree; nothing is encoded.

Stages run in order and may assume that earlier ones passed, as for the arrays of a segment.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from deepjoin.arrays import load_array
from deepjoin.checking.segments import (
    MISREAD,
    Array,
    Arrays,
    ascends,
    ascends_within,
    is_array,
    spans,
    within,
)
from deepjoin.embed.scan import SLACK, ZERO_POINT
from deepjoin.embed.value_vectors import FILES, LARGEST_CODE, LIST_FILES, ORDER_FILES
from deepjoin.embed.vector_build import ABOUT as INDEX_ABOUT
from deepjoin.embed.vector_build import (
    FORMAT,
    INDEX,
    KINDS,
    MEMBERS,
    METRICS,
    OFFSETS,
    PAD,
    ROWS,
    faiss_threads,
    load_rows,
    may_be,
    prepared,
)
from deepjoin.store.cell_vectors import FOLDER as CELLS
from deepjoin.store.cell_vectors import CellVectors
from deepjoin.store.column_vectors import (
    SPACES,
    ColumnVectors,
    both_about,
    both_rows,
    meaning_about,
    sketch_digest,
)
from deepjoin.store.column_vectors.columns import unknown
from deepjoin.store.column_vectors.sketch import SNAPSHOT

ABOUT = "about.json"

_KINDS: dict[str, npt.DTypeLike] = {
    **dict(zip(FILES, (np.uint8, np.float32, np.float32, np.float32), strict=True)),
    **dict.fromkeys(ORDER_FILES, np.int32),
    **dict(zip(LIST_FILES, (np.uint8, np.int64, np.int32), strict=True)),
}
_CODES, _SCALES, _ERRORS, _ROTATION = FILES
_VALUES, _ROWS = ORDER_FILES
_MIDDLES, _STARTS, _MEMBERS = LIST_FILES
_SNAPSHOT = dict(zip(SNAPSHOT, (np.uint64, np.uint32, np.int64), strict=True))
#: What single precision leaves of an orthogonal matrix, with room to spare.
_ORTHOGONAL = 1e-6
#: Half precision rounds numbers by up to 2**-11 of themselves, and so their length.
_HALF = 2.0**-10
#: Numbers below this lose more than that; as long a row as there is has 2048 of them.
_TINY = 2048**0.5 * 2.0**-24
#: Vectors looked at together.
_BLOCK = 1 << 14
#: Vectors compared with what the index has of them.
_COMPARED = 1000
#: Of rows searched in their own lists, the least share found among this many nearest.
_FOUND, _NEAREST = 0.9, 100
#: How much farther a code may be from its vector than the best one.
_FARTHER = 1e-3

Half = npt.NDArray[np.float16]
Int = npt.NDArray[np.int64]
Stage = Callable[[], Iterator[str]]


def vector_problems(
    folder: Path, named: Collection[str], values: int, columns: int
) -> Iterator[str]:
    """Report what is wrong with the vectors of a segment with this many values and columns.

    ``named`` are the files that the manifest names for the segment.
    """
    there = {path.parent.relative_to(folder) for path in folder.glob(f"vectors/*/{ABOUT}")}
    places = there | {Path(name).parent for name in named if name.startswith("vectors/")}
    sound = True
    for place in (CELLS, *(CELLS.parent / space for space in SPACES)):
        if place not in places or (place.name == "both" and not sound):
            continue
        looked = _of_cells if place == CELLS else _of_columns
        problems = looked(folder / place, values if place == CELLS else columns)
        sound = sound and not problems
        yield from (f"{place.as_posix()}/{text}" for text in problems)
    if any((folder / name).exists() for name in SNAPSHOT):
        yield from _first_found([lambda: _missing(folder, SNAPSHOT), lambda: _counted(folder)])


def fields_of(path: Path, kinds: Mapping[str, type]) -> dict[str, Any] | None:
    """Read fields of these kinds as they were written, to the letter; None if they are not."""
    try:
        text = path.read_bytes()
        fields: dict[str, Any] = json.loads(text)
        same = json.dumps(fields).encode() == text
        return fields if same and all(type(fields[n]) is k for n, k in kinds.items()) else None
    except MISREAD:
        return None


def _first_found(stages: Sequence[Stage]) -> list[str]:
    """Go from stage to stage until one finds something."""
    return next((found for stage in stages if (found := list(stage()))), [])


def _missing(folder: Path, names: Collection[str]) -> Iterator[str]:
    return (f"{name} is missing" for name in names if not (folder / name).is_file())


def _other(folder: Path, kinds: Mapping[str, npt.DTypeLike]) -> Iterator[str]:
    """Name the arrays maker header is not that of an array of their kind."""
    for name, kind in kinds.items():
        if (folder / name).exists() and not is_array(folder / name, kind):
            yield f"{name} is not the array that belongs there"


def _of_cells(folder: Path, values: int) -> list[str]:
    """Look at the vectors of values."""
    arrays: dict[str, Array] = {}

    def load() -> Iterator[str]:
        yield from _other(folder, _KINDS)
        if fields_of(folder / ABOUT, {"name": str, "digest": str}) is None:
            yield f"{ABOUT} is not what was written"

    def lengths() -> Iterator[str]:
        arrays.update({n: load_array(folder / n) for n in _KINDS if (folder / n).exists()})
        return _cell_lengths(arrays, values)

    sets: list[tuple[str, ...]] = [(ABOUT, *FILES)]
    sets += [files for files in (ORDER_FILES, LIST_FILES) if _any(folder, files)]
    if _any(folder, LIST_FILES):
        sets.append(ORDER_FILES)
    stages: list[Stage] = [
        lambda: _missing(folder, dict.fromkeys(name for files in sets for name in files)),
        load,
        lengths,
        lambda: _cell_numbers(arrays),
        lambda: _cell_codes(arrays),
        lambda: _order(arrays) if _VALUES in arrays else iter(()),
        lambda: _lists(arrays) if _MIDDLES in arrays else iter(()),
    ]
    return _first_found(stages)


def _any(folder: Path, names: Collection[str]) -> bool:
    return any((folder / name).exists() for name in names)


def _cell_lengths(arrays: Arrays, values: int) -> Iterator[str]:
    dimension = isqrt(len(arrays[_ROTATION]))
    wanted = {_ROTATION: max(1, dimension) ** 2, _CODES: values * dimension}
    wanted |= dict.fromkeys((_SCALES, _ERRORS, *ORDER_FILES), values)
    if _STARTS in arrays:
        wanted[_MIDDLES] = max(0, len(arrays[_STARTS]) - 1) * dimension
    for name, length in wanted.items():
        if name in arrays and len(arrays[name]) != length:
            yield f"{name} has {len(arrays[name])} elements where {length} belong"


def _cell_numbers(arrays: Arrays) -> Iterator[str]:
    """Check that the rotation is one, and that scales and errors can be those of unit vectors."""
    turn = arrays[_ROTATION].astype(np.float64)
    dimension = isqrt(len(turn))
    turn = turn.reshape(dimension, dimension)
    with np.errstate(over="ignore", invalid="ignore"):
        off = np.abs(turn @ turn.T - np.eye(dimension))
    if not (off < _ORTHOGONAL).all():  # so that NaN fails as well
        yield f"{_ROTATION} is not a rotation"
    for name, limit in ((_SCALES, 1.001 / LARGEST_CODE), (_ERRORS, 0.6 * dimension**0.5)):
        if not within(arrays[name], 0, limit):
            yield f"{name} has numbers that cannot be"


def _cell_codes(arrays: Arrays) -> Iterator[str]:
    """Check that every row of codes uses its whole range, and has the length of a vector."""
    scales, errors = arrays[_SCALES], arrays[_ERRORS]
    codes = arrays[_CODES].reshape(len(scales), isqrt(len(arrays[_ROTATION])))
    for start, stop in spans(len(scales), _BLOCK):
        signed = codes[start:stop].astype(np.float32) - ZERO_POINT
        scale, error = scales[start:stop], errors[start:stop]
        full = np.where(scale > 0, LARGEST_CODE, 0)
        lengths = np.sqrt(np.einsum("ij,ij->i", signed, signed)) * scale
        # What is lost in rounding is at most half a step in each dimension.
        most = scale / 2 * codes.shape[1] ** 0.5 + SLACK
        if not (np.abs(signed).max(axis=1, initial=0) == full).all():
            yield f"{_CODES} has rows that are no vectors"
        elif not ((error > 0) & (error <= most)).all():
            yield f"{_ERRORS} has numbers that cannot be"
        elif not (np.abs(lengths - (scale > 0)) <= error + SLACK).all():
            yield f"{_SCALES} has numbers that cannot be"
        else:
            continue
        return


def _order(arrays: Arrays) -> Iterator[str]:
    """Check that rows and values name each other."""
    values, rows = arrays[_VALUES], arrays[_ROWS]
    bad = [name for name in ORDER_FILES if not within(arrays[name], 0, len(values))]
    yield from (f"{name} has numbers that cannot be" for name in bad)
    parts = spans(len(values))
    if not bad and not all((values[rows[a:b]] == np.arange(a, b)).all() for a, b in parts):
        yield f"{_VALUES} and {_ROWS} do not say the same"


def _lists(arrays: Arrays) -> Iterator[str]:
    """Check that lists hold rows in order, and that every vector is in one."""
    starts, members, scales = arrays[_STARTS], arrays[_MEMBERS], arrays[_SCALES]
    if len(starts) == 0 or starts[0] != 0 or starts[-1] != len(members) or not ascends(starts):
        yield f"{_STARTS} does not divide {_MEMBERS}"
        return
    if not within(members, 0, len(scales)):
        yield f"{_MEMBERS} has numbers that cannot be"
        return
    if not ascends_within(members, starts):
        yield f"{_MEMBERS} is not in order"
    listed = np.zeros(len(scales), bool)
    listed[members] = True
    if not np.array_equal(listed, scales > 0):
        yield f"{_MEMBERS} does not hold every value that has a vector"
    if len(arrays[_MIDDLES]) and int(arrays[_MIDDLES].min()) < ZERO_POINT - LARGEST_CODE:
        yield f"{_MIDDLES} has numbers that cannot be"


def _of_columns(folder: Path, columns: int) -> list[str]:
    """Look at the column vectors of one space."""
    texts = dict.fromkeys(("space", "name", "digest", "kind", "metric"), str)
    kinds: dict[str, type] = {**texts, "dimension": int, "complete": bool}
    about = fields_of(folder / ABOUT, kinds) if (folder / ABOUT).is_file() else None

    def described() -> Iterator[str]:
        if about is None or about["dimension"] < 1 or not _has_right_maker(folder, about):
            yield f"{ABOUT} is not what was written"

    def rows() -> Iterator[str]:
        if about is None or not is_array(folder / ROWS, np.float16, about["dimension"]):
            yield f"{ROWS} is not the array that belongs there"
        else:
            yield from _row_numbers(load_rows(folder), about, columns)

    stages: list[Stage] = [
        lambda: _missing(folder, (ABOUT, ROWS)),
        described,
        rows,
        lambda: _index(folder, about) if about and about["complete"] else iter(()),
        lambda: _is_both(folder) if folder.name == "both" else iter(()),
    ]
    return _first_found(stages)


def _index(folder: Path, about: Mapping[str, Any]) -> Iterator[str]:
    return index_problems(folder, about["kind"], about["metric"])


def _has_right_maker(folder: Path, about: Mapping[str, Any]) -> bool:
    """Tell whether vectors name the encoder that their space must have."""
    stored = about["kind"] in ("auto", *KINDS) and about["metric"] in METRICS
    if about["space"] != folder.name or not stored:
        return False
    maker = about["name"], about["digest"]
    if folder.name == "sketch":
        return maker == ("sketch", sketch_digest(about["dimension"]))
    if folder.name != "both":
        return True
    parts = [ColumnVectors.open(folder.parent.parent, space) for space in ("columns", "sketch")]
    if parts[0] is None or parts[1] is None:
        return False
    cells = CellVectors.open(folder.parent.parent)
    meaning = None if cells is None else meaning_about(cells.digest, cells.vectors.dimension)
    both = both_about(parts[0].about, parts[1].about, meaning)
    return (*maker, about["dimension"]) == (both.name, both.digest, both.dimension)


def _row_numbers(
    rows: npt.NDArray[np.float16], about: Mapping[str, Any], columns: int
) -> Iterator[str]:
    """Check that there is a row a column, of numbers; NaN only where one is not made yet."""
    if len(rows) != columns:
        yield f"{ROWS} has {len(rows)} rows where {columns} belong"
        return
    for start, stop in spans(len(rows), _BLOCK):
        part = rows[start:stop].astype(np.float32)
        absent = unknown(part)
        there = part[~absent]
        whole = np.isfinite(there).all() and np.isnan(part[absent]).all()
        if not whole or (about["complete"] and absent.any()):
            yield f"{ROWS} has numbers that cannot be"
        elif about["space"] == "sketch" and not _are_unit(there):
            yield f"{ROWS} has rows that are no sketches"
        else:
            continue
        return


def _are_unit(rows: npt.NDArray[np.float32]) -> bool:
    """Tell whether rows have length 1 or are zero, rounded as they are."""
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return bool(((np.abs(lengths - 1) < _HALF + _TINY) | (lengths == 0)).all())


def _is_both(folder: Path) -> Iterator[str]:
    """Check that columns and sketches are what both are made of, and meanings of length 1."""
    rows = load_rows(folder)
    columns, sketch = (load_rows(folder.parent / space) for space in ("columns", "sketch"))
    for start, stop in spans(len(rows), _BLOCK):
        wanted = both_rows(columns[start:stop], sketch[start:stop])
        part = rows[start:stop].astype(np.float32)
        off = np.abs(part[:, : wanted.shape[1]] - wanted)
        # Rounded, and the numbers before that may differ in their last bits.
        if not (off <= np.abs(wanted) * 2.0**-11 * 1.01 + 2.0**-24).all():
            yield f"{ROWS} is not the columns' and the sketches' in one"
        elif not _are_unit(part[:, wanted.shape[1] :]):
            yield f"{ROWS} has meanings that cannot be"
        else:
            continue
        return


def _counted(folder: Path) -> Iterator[str]:
    """Check that the snapshot of frequencies holds values in order, each in several columns."""
    other = list(_other(folder, _SNAPSHOT))
    yield from other
    if other:
        return
    hashes, counts, columns = (load_array(folder / name) for name in SNAPSHOT)
    if len(columns) != 1 or columns[0] < 0:
        yield f"{SNAPSHOT[2]} has numbers that cannot be"
    elif len(counts) != len(hashes):
        yield f"{SNAPSHOT[1]} has {len(counts)} elements where {len(hashes)} belong"
    elif not within(counts, 2, int(columns[0]) + 1):
        yield f"{SNAPSHOT[1]} has numbers that cannot be"
    elif not ascends_within(hashes, np.array([0, len(hashes)])):
        yield f"{SNAPSHOT[0]} is not in order"


def index_problems(folder: Path, kind: str, metric: str) -> Iterator[str]:
    """Report what is wrong with the index of sound rows, given the requested kind and metric."""
    rows = load_rows(folder)
    about = _index_about(folder / INDEX_ABOUT, rows)
    if isinstance(about, str):
        yield f"{INDEX_ABOUT} {about}"
    elif not (may_be(about["kind"], kind, about["different"]) and about["metric"] == metric):
        yield f"{INDEX_ABOUT} is not of the index that was requested"
    elif KINDS[about["kind"]].factory:
        yield from _group_problems(folder, rows, about)


def _index_about(path: Path, rows: Half) -> dict[str, Any] | str:
    """Read the description of the index, or return what is wrong with it."""
    try:
        text = path.read_bytes()
        about: dict[str, Any] = json.loads(text)
        counts = about["format"], about["dimension"], about["vectors"]
        known = about["kind"] in KINDS and about["metric"] in METRICS
        known = known and type(about["different"]) is int and json.dumps(about).encode() == text
    except FileNotFoundError:
        return "is missing"
    except MISREAD:
        known = False
    if not known:
        return "is not what was written"
    fits = counts == (FORMAT, rows.shape[1], len(rows)) and 0 <= about["different"] <= len(rows)
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
    """Check that the index has every different row once, and knows the columns of each."""
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
        shape = index.ntotal, index.d, index.metric_type, index.is_trained
        if shape != (len(rows), width, measure, True) or not _leads_inside(faiss, index):
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
