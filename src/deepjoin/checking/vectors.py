"""Check that the vectors of a segment and their index agree; nothing is encoded.

Stages run in order and may assume that earlier ones passed, as for the arrays of a segment.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import Array, Float, Half, load_array
from deepjoin.checking.segments import (
    MISREAD,
    Arrays,
    ascends,
    ascends_within,
    first_found,
    is_array,
    spans,
    within,
)
from deepjoin.embed.packed import BOUNDS, PARTS, ZERO_POINT, PackedRows, code_bytes
from deepjoin.embed.scan import SLACK
from deepjoin.embed.value_vectors import (
    FILES,
    LARGEST_CODE,
    LARGEST_GAP,
    LIST_FILES,
    NO_ROW,
    OLD_FILES,
    OLD_ROWS,
    ORDER_FILES,
    rows_of_gaps,
)
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
    collapsed,
    faiss_threads,
    load_rows,
    may_be,
    prepared,
)
from deepjoin.packing import PackedArray, is_packed, load_numbers
from deepjoin.store.cell_vectors import FOLDER as CELLS
from deepjoin.store.cell_vectors import CellVectors
from deepjoin.store.column_vectors import (
    SPACES,
    About,
    ColumnVectors,
    both_about,
    both_rows,
    meaning_about,
    unknown,
)
from deepjoin.store.sketch import MEANING_VERSION, SNAPSHOT, sketch_digest

ABOUT = "about.json"

_KINDS: dict[str, npt.DTypeLike] = {
    **dict(zip(FILES, (*3 * (np.uint8,), np.float32, np.float32), strict=True)),
    **dict.fromkeys(ORDER_FILES, np.int32),
    **dict(zip(LIST_FILES, (np.uint8, np.int64, np.uint16), strict=True)),
    OLD_ROWS: np.int32,
}
_CODES, _FINER, _BOUNDS, _ERRORS, _ROTATION = FILES
#: A file that only the vectors of earlier versions have: the scale of each row.
_SCALES = OLD_FILES[1]
_VALUES, _ROWS = ORDER_FILES
_MIDDLES, _STARTS, _GAPS = LIST_FILES
_INDEX_FIELDS: dict[str, type] = {
    **dict.fromkeys(("kind", "metric"), str),
    **dict.fromkeys(("format", "dimension", "vectors", "different"), int),
}
_SNAPSHOT = dict(zip(SNAPSHOT, (np.uint64, np.uint32, np.int64), strict=True))
#: What single precision leaves of an orthogonal matrix, with room to spare.
_ORTHOGONAL = 1e-6
#: Half precision rounds numbers by up to 2**-11 of themselves, and so their length.
_HALF = 2.0**-10
#: Numbers below this lose more than that; as long a row as there is has 2048 of them.
_TINY = 2048**0.5 * 2.0**-24
#: How much scales and errors change when they are rounded to half precision.
_WIDER = 1.01
#: How much larger errors are than rounding makes them, where 8 bits were rounded again.
_AGAIN = 1.5
#: Vectors checked at a time.
_BLOCK = 1 << 14
#: Vectors compared with what the index has of them.
_COMPARED = 1000
#: Of rows searched in their own lists, the least share found among this many nearest.
_FOUND, _NEAREST = 0.9, 100
#: How much farther a code may be from its vector than the best one.
_FARTHER = 1e-3


class CellFiles:
    """The vectors of a segment's values, in their folder."""

    def __init__(self, folder: Path, values: int) -> None:
        self.folder, self.values = folder, values

    @cached_property
    def is_old(self) -> bool:
        """Whether a version before format 4 wrote them, in 8 bits."""
        return (self.folder / _SCALES).exists() and not (self.folder / _BOUNDS).exists()

    @cached_property
    def kinds(self) -> dict[str, npt.DTypeLike]:
        """What files there may be, and what they hold."""
        if not self.is_old:
            return _KINDS
        # The earliest wrote them in single precision.
        wide = {name: np.float32 for name in (_SCALES, _ERRORS)
                if is_array(self.folder / name, np.float32)}  # fmt: skip
        halves = dict.fromkeys((_SCALES, _ERRORS), np.float16)
        return {**_KINDS, **dict.fromkeys(OLD_FILES, np.uint8), **halves, **wide,
                _ROTATION: np.float32}  # fmt: skip

    @cached_property
    def arrays(self) -> Arrays:
        """The arrays that are there, by the names of their files."""
        there = [name for name in self.kinds if (self.folder / name).exists()]
        return {name: self._load(name) for name in there}

    def _load(self, name: str) -> Array:
        if name not in ORDER_FILES:
            return load_array(self.folder / name)
        numbers = load_numbers(self.folder / name, NO_ROW)
        # Packed ones have no sign.
        return np.asarray(numbers).view(np.int32) if isinstance(numbers, PackedArray) else numbers

    @property
    def rows(self) -> int:
        """How many vectors there are."""
        return len(self.arrays[_SCALES if self.is_old else _BOUNDS])

    @property
    def listed(self) -> Any:
        """Marks the rows that are in lists; earlier versions stored rows without a vector."""
        return np.asarray(self.arrays[_SCALES]) > 0 if self.is_old else np.ones(self.rows, bool)


class ColumnFiles:
    """The column vectors of a segment in one space, in their folder."""

    def __init__(self, folder: Path, columns: int) -> None:
        self.folder, self.columns = folder, columns

    @cached_property
    def about(self) -> dict[str, Any]:
        """What the folder says about its rows; nothing if that is not what was written."""
        texts = dict.fromkeys(("space", "name", "digest", "kind", "metric"), str)
        kinds: dict[str, type] = {**texts, "dimension": int, "complete": bool}
        return fields_of(self.folder / ABOUT, kinds) or {}


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
        # The last space is compared with the two it is made of, so these must be sound.
        if place not in places or (place.name == "both" and not sound):
            continue
        if place == CELLS:
            problems = first_found(CELL_STAGES, CellFiles(folder / place, values))
        else:
            problems = first_found(COLUMN_STAGES, ColumnFiles(folder / place, columns))
        sound = sound and not problems
        yield from (f"{place.as_posix()}/{text}" for text in problems)
    if any((folder / name).exists() for name in SNAPSHOT):
        yield from first_found(SNAPSHOT_STAGES, folder)


def fields_of(path: Path, kinds: Mapping[str, type]) -> dict[str, Any] | None:
    """Read fields of these kinds as they were written, to the letter; None if they are not."""
    try:
        text = path.read_bytes()
        fields: dict[str, Any] = json.loads(text)
        # To the letter, so that a changed byte is found even where JSON means the same.
        same = json.dumps(fields).encode() == text
        return fields if same and all(type(fields[n]) is k for n, k in kinds.items()) else None
    except (*MISREAD, FileNotFoundError):
        return None


def _missing(folder: Path, names: Iterable[str]) -> Iterator[str]:
    return (f"{name} is missing" for name in names if not (folder / name).is_file())


def _other(folder: Path, kinds: Mapping[str, npt.DTypeLike]) -> Iterator[str]:
    """Name the files that are not arrays of their kind."""
    for name, kind in kinds.items():
        if (folder / name).exists() and not is_array(folder / name, kind):
            yield f"{name} is not the array that belongs there"


def check_cell_files(cells: CellFiles) -> Iterator[str]:
    """Check that all files of a set are there if one is, and that lists have their order."""
    there = {name for name in cells.kinds if (cells.folder / name).exists()}
    wanted = [ABOUT, *(OLD_FILES if cells.is_old else FILES)]
    if there & {*ORDER_FILES, *LIST_FILES, OLD_ROWS}:
        wanted += ORDER_FILES
    if OLD_ROWS in there:
        wanted += (_MIDDLES, _STARTS)
    elif there & {*LIST_FILES}:
        wanted += LIST_FILES
    return _missing(cells.folder, wanted)


def check_cell_headers(cells: CellFiles) -> Iterator[str]:
    """Check that the files are arrays of their kind, and that the encoder is named."""
    plain = dict(cells.kinds)
    for name in ORDER_FILES:
        path = cells.folder / name
        if path.exists() and is_array(path, np.uint64) and plain.pop(name) and not is_packed(path):
            yield f"{name} is not the array that belongs there"
    yield from _other(cells.folder, plain)
    if fields_of(cells.folder / ABOUT, {"name": str, "digest": str}) is None:
        yield f"{ABOUT} is not what was written"


def check_cell_lengths(cells: CellFiles) -> Iterator[str]:
    """Check that arrays that belong together have matching lengths."""
    arrays, values = cells.arrays, cells.values
    dimension = isqrt(len(arrays[_ROTATION]))
    rows = len(arrays[_VALUES]) if _VALUES in arrays else values
    wanted = {_ROTATION: max(1, dimension) ** 2, _ROWS: values}
    if cells.is_old:
        wanted |= {_CODES: rows * dimension, **dict.fromkeys((_SCALES, _ERRORS), rows)}
    else:
        coarse, finer = code_bytes(dimension)
        wanted |= {_CODES: rows * coarse, _FINER: rows * finer, _BOUNDS: rows, _ERRORS: 2}
    if _STARTS in arrays:
        wanted[_MIDDLES] = max(0, len(arrays[_STARTS]) - 1) * dimension
    for name, length in wanted.items():
        if name in arrays and len(arrays[name]) != length:
            yield f"{name} has {len(arrays[name])} elements where {length} belong"


def check_cell_numbers(cells: CellFiles) -> Iterator[str]:
    """Check that the rotation is one, and that scales and errors can be those of unit vectors."""
    turn = cells.arrays[_ROTATION].astype(np.float64)
    dimension = isqrt(len(turn))
    turn = turn.reshape(dimension, dimension)
    with np.errstate(over="ignore", invalid="ignore"):
        off = np.abs(turn @ turn.T - np.eye(dimension))
    if not (off < _ORTHOGONAL).all():  # so that NaN fails as well
        yield f"{_ROTATION} is not a rotation"
    if cells.is_old:
        # A unit vector has no number above 1, and rounding costs half a step in each dimension.
        limits = {_SCALES: 1.001 / LARGEST_CODE, _ERRORS: 0.6 * dimension**0.5}
        bad = [name for name, limit in limits.items() if not within(cells.arrays[name], 0, limit)]
        yield from (f"{name} has numbers out of range" for name in bad)
        return
    for error, parts in zip(np.asarray(cells.arrays[_ERRORS]), (PARTS, PARTS >> 2), strict=True):
        if not 0 < error <= _AGAIN * dimension**0.5 / parts + SLACK / BOUNDS[-1]:
            yield f"{_ERRORS} has numbers out of range"
            return


def check_cell_codes(cells: CellFiles) -> Iterator[str]:
    """Check that every row of codes uses its whole range, and has the length of a vector."""
    check = _check_old_codes if cells.is_old else _check_packed_codes
    for start, stop in spans(cells.rows, _BLOCK):
        if problem := check(cells.arrays, start, stop):
            yield problem
            return


def _check_packed_codes(arrays: Arrays, start: int, stop: int) -> str:
    """Check some rows; return what is wrong with them, if anything."""
    dimension, errors = isqrt(len(arrays[_ROTATION])), np.asarray(arrays[_ERRORS])
    codes, finer = (
        arrays[name].reshape(-1, size)[start:stop]
        for name, size in zip((_CODES, _FINER), code_bytes(dimension), strict=True)
    )
    packed = PackedRows(codes, finer, arrays[_BOUNDS][start:stop], errors, dimension)
    rows = packed.take(np.arange(stop - start))
    values, bounds = rows.floats(), BOUNDS[packed.bounds]
    lengths = np.sqrt(np.einsum("ij,ij->i", values, values))
    # The middles of the parts that the first bits make.
    step = bounds[:, None] / 8
    coarse = np.floor(values / step) * step + step / 2
    off = np.linalg.norm(values - coarse, axis=1) / bounds
    largest = np.abs(rows.codes.astype(np.int16) - ZERO_POINT).max(axis=1, initial=0)
    if not (largest == PARTS - 1).all() or not packed.is_filled():
        return f"{_CODES} has rows that are not vectors"
    if not (np.abs(lengths - 1) <= errors[0] * bounds + SLACK).all():
        return f"{_BOUNDS} has numbers out of range"
    if not (off <= errors[0] + errors[1] + SLACK).all():
        return f"{_ERRORS} has numbers out of range"
    return ""


def _check_old_codes(arrays: Arrays, start: int, stop: int) -> str:
    """Check some rows of an earlier version; return what is wrong with them, if anything."""
    scales, errors = arrays[_SCALES], arrays[_ERRORS]
    codes = arrays[_CODES].reshape(len(scales), isqrt(len(arrays[_ROTATION])))
    signed = codes[start:stop].astype(np.float32) - ZERO_POINT
    scale, error = (one[start:stop].astype(np.float32) for one in (scales, errors))
    full = np.where(scale > 0, LARGEST_CODE, 0)
    lengths = np.sqrt(np.einsum("ij,ij->i", signed, signed)) * scale
    # What is lost in rounding is at most half a step in each dimension.
    most = _WIDER * scale / 2 * codes.shape[1] ** 0.5 + SLACK
    if not (np.abs(signed).max(axis=1, initial=0) == full).all():
        return f"{_CODES} has rows that are not vectors"
    if not ((error > 0) & (error <= most)).all():
        return f"{_ERRORS} has numbers out of range"
    if not (np.abs(lengths - (scale > 0)) <= error + SLACK).all():
        return f"{_SCALES} has numbers out of range"
    return ""


def check_cell_order(cells: CellFiles) -> Iterator[str]:
    """Check that rows and values name each other, where rows are in the order of lists."""
    if _VALUES not in cells.arrays:
        return
    values, rows = cells.arrays[_VALUES], cells.arrays[_ROWS]
    limits = {_VALUES: (0, len(rows)), _ROWS: (-1, len(values))}
    bad = [name for name, limit in limits.items() if not within(cells.arrays[name], *limit)]
    yield from (f"{name} has numbers out of range" for name in bad)
    parts = spans(len(values))
    same = bad or all((rows[values[a:b]] == np.arange(a, b)).all() for a, b in parts)
    if not same or (not bad and np.count_nonzero(np.asarray(rows) >= 0) != len(values)):
        yield f"{_VALUES} and {_ROWS} contradict each other"


def check_cell_lists(cells: CellFiles) -> Iterator[str]:
    """Check that lists, if any, hold rows in order, and that every vector is in one."""
    if _MIDDLES not in cells.arrays:
        return
    name = OLD_ROWS if OLD_ROWS in cells.arrays else _GAPS
    starts, members = (cells.arrays[one] for one in (_STARTS, name))
    if len(starts) == 0 or starts[0] != 0 or starts[-1] != len(members) or not ascends(starts):
        yield f"{_STARTS} does not divide {name}"
        return
    if name == _GAPS:
        gaps, sizes = np.asarray(members), np.diff(starts)
        members = rows_of_gaps(gaps, sizes)
        starts = np.append(0, np.cumsum(gaps < LARGEST_GAP))[np.asarray(starts)]
    if not within(members, 0, cells.rows):
        yield f"{name} has numbers out of range"
        return
    if not ascends_within(members, starts):
        yield f"{name} is not in order"
    listed = np.zeros(cells.rows, bool)
    listed[members] = True
    if not np.array_equal(listed, cells.listed):
        yield f"{name} does not hold every value that has a vector"
    middles = cells.arrays[_MIDDLES]
    if len(middles) and int(middles.min()) < ZERO_POINT - LARGEST_CODE:
        yield f"{_MIDDLES} has numbers out of range"


CELL_STAGES: tuple[Callable[[CellFiles], Iterator[str]], ...] = (
    check_cell_files,
    check_cell_headers,
    check_cell_lengths,
    check_cell_numbers,
    check_cell_codes,
    check_cell_order,
    check_cell_lists,
)


def check_column_files(columns: ColumnFiles) -> Iterator[str]:
    """Check that the rows and their description are there."""
    return _missing(columns.folder, (ABOUT, ROWS))


def check_column_encoder(columns: ColumnFiles) -> Iterator[str]:
    """Check that vectors name the encoder that their space must have."""
    about, folder = columns.about, columns.folder
    sound = bool(about) and about["dimension"] >= 1 and about["space"] == folder.name
    sound = sound and about["kind"] in ("auto", *KINDS) and about["metric"] in METRICS
    if sound and folder.name == "sketch":
        made = about["name"], about["digest"]
        sound = made == ("sketch", sketch_digest(about["dimension"]))
    if sound and folder.name == "both":
        segment = folder.parent.parent
        vectors, sketch = (ColumnVectors.open(segment, space) for space in ("columns", "sketch"))
        cells = CellVectors.open(segment)
        # Those of earlier versions are sound, though searches cannot use them.
        meanings = (
            [None]
            if cells is None
            else [
                meaning_about(cells.digest, cells.vectors.dimension, version)
                for version in range(1, MEANING_VERSION + 1)
            ]
        )
        made_of = About(about["name"], about["digest"], about["dimension"])
        sound = (
            vectors is not None
            and sketch is not None
            and made_of
            in [both_about(vectors.about, sketch.about, meaning) for meaning in meanings]
        )
    if not sound:
        yield f"{ABOUT} is not what was written"


def check_column_rows(columns: ColumnFiles) -> Iterator[str]:
    """Check that there is a row a column, of numbers; NaN only where one is not made yet."""
    folder, about = columns.folder, columns.about
    if not is_array(folder / ROWS, np.float16, about["dimension"]):
        yield f"{ROWS} is not the array that belongs there"
        return
    rows = load_rows(folder)
    if len(rows) != columns.columns:
        yield f"{ROWS} has {len(rows)} rows where {columns.columns} belong"
        return
    for start, stop in spans(len(rows), _BLOCK):
        part = rows[start:stop].astype(np.float32)
        absent = unknown(part)
        there = part[~absent]
        whole = np.isfinite(there).all() and np.isnan(part[absent]).all()
        if not whole or (about["complete"] and absent.any()):
            yield f"{ROWS} has numbers out of range"
        elif about["space"] == "sketch" and not _are_unit(there):
            yield f"{ROWS} has rows that are not sketches"
        else:
            continue
        return


def _are_unit(rows: Float) -> bool:
    """Check whether rows have length 1 or are zero, rounded as they are."""
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return bool(((np.abs(lengths - 1) < _HALF + _TINY) | (lengths == 0)).all())


def check_column_index(columns: ColumnFiles) -> Iterator[str]:
    """Check the index of complete rows."""
    about = columns.about
    if about["complete"]:
        yield from index_problems(columns.folder, about["kind"], about["metric"])


def check_combined_rows(columns: ColumnFiles) -> Iterator[str]:
    """Check that combined rows are made of columns and sketches, and of meanings of length 1."""
    folder = columns.folder
    if folder.name != "both":
        return
    rows = load_rows(folder)
    vectors, sketches = (load_rows(folder.parent / space) for space in ("columns", "sketch"))
    for start, stop in spans(len(rows), _BLOCK):
        wanted = both_rows(vectors[start:stop], sketches[start:stop])
        part = rows[start:stop].astype(np.float32)
        off = np.abs(part[:, : wanted.shape[1]] - wanted)
        # Rounded, and the numbers before that may differ in their last bits.
        if not (off <= np.abs(wanted) * 2.0**-11 * 1.01 + 2.0**-24).all():
            yield f"{ROWS} is not the columns' and the sketches' in one"
        elif not _are_unit(part[:, wanted.shape[1] :]):
            yield f"{ROWS} has meanings that are not of length 1"
        else:
            continue
        return


COLUMN_STAGES: tuple[Callable[[ColumnFiles], Iterator[str]], ...] = (
    check_column_files,
    check_column_encoder,
    check_column_rows,
    check_column_index,
    check_combined_rows,
)


def check_snapshot(folder: Path) -> Iterator[str]:
    """Check that the snapshot of frequencies holds values in order, each in several columns."""
    hashes, counts, columns = (load_array(folder / name) for name in SNAPSHOT)
    if len(columns) != 1 or columns[0] < 0:
        yield f"{SNAPSHOT[2]} has numbers out of range"
    elif len(counts) != len(hashes):
        yield f"{SNAPSHOT[1]} has {len(counts)} elements where {len(hashes)} belong"
    elif not within(counts, 2, int(columns[0]) + 1):
        yield f"{SNAPSHOT[1]} has numbers out of range"
    elif not ascends_within(hashes, np.array([0, len(hashes)])):
        yield f"{SNAPSHOT[0]} is not in order"


SNAPSHOT_STAGES: tuple[Callable[[Path], Iterator[str]], ...] = (
    lambda folder: _missing(folder, SNAPSHOT),
    lambda folder: _other(folder, _SNAPSHOT),
    check_snapshot,
)


def index_problems(folder: Path, kind: str, metric: str) -> Iterator[str]:
    """Report what is wrong with the index of sound rows, given the requested kind and metric."""
    missing = list(_missing(folder, [INDEX_ABOUT]))
    about = fields_of(folder / INDEX_ABOUT, _INDEX_FIELDS)
    if missing or about is None or about["kind"] not in KINDS or about["metric"] not in METRICS:
        yield from missing or [f"{INDEX_ABOUT} is not what was written"]
        return
    rows, different = load_rows(folder), about["different"]
    counted = (about["format"], about["dimension"], about["vectors"])
    fits = counted == (FORMAT, rows.shape[1], len(rows)) and 0 <= different <= len(rows)
    has_files = bool(KINDS[about["kind"]].factory)
    # Hashing all rows takes a while, and without repeated rows and files there is no need to.
    first, offsets, members = collapsed(rows if has_files or different < len(rows) else rows[:0])
    if not fits or (different < len(rows) and different != len(first)):
        yield f"{INDEX_ABOUT} does not count what {folder.name} holds"
    elif not (may_be(about["kind"], kind, different) and about["metric"] == metric):
        yield f"{INDEX_ABOUT} is not of the index that was requested"
    elif has_files and (missing := list(_missing(folder, (OFFSETS, MEMBERS, INDEX)))):
        yield from missing
    elif has_files:
        problems = list(_other(folder, dict.fromkeys((OFFSETS, MEMBERS), np.int32)))
        for name, wanted in ((OFFSETS, offsets), (MEMBERS, members)) if not problems else ():
            if not np.array_equal(load_array(folder / name), wanted):
                problems.append(f"{name} does not tell which rows are equal")
        if not problems and not _holds(folder / INDEX, rows[first], about):
            problems.append(f"{INDEX} is not the index of the rows")
        yield from problems


def _holds(path: Path, rows: Half, about: dict[str, Any]) -> bool:
    """Check whether Faiss can read an index, and has codes of some rows as near as new ones."""
    with faiss_threads(1) as faiss:
        try:
            index = faiss.read_index(str(path))
        except (RuntimeError, MemoryError):
            return False
        measure = faiss.METRIC_INNER_PRODUCT if about["metric"] == "cosine" else faiss.METRIC_L2
        width = rows.shape[1] + -rows.shape[1] % PAD
        # Before any search: Faiss follows pointers without checking them.
        shape = index.ntotal, index.d, index.metric_type, index.is_trained
        if shape != (len(rows), width, measure, True) or not _leads_inside(faiss, index):
            return False
        some = np.linspace(0, len(rows) - 1, min(_COMPARED, len(rows))).astype(np.int64)
        compared = prepared(rows[some], about["metric"])
        if isinstance(index, faiss.IndexIVFPQFastScan):
            # Faiss cannot give back these codes, so rows are searched in their own lists.
            how = faiss.SearchParametersIVF(nprobe=1)
            found = index.search(compared, _NEAREST, params=how)[1]
            return bool((found == some[:, None]).any(axis=1).mean() >= _FOUND)
        if hasattr(index, "make_direct_map"):
            index.make_direct_map()
        coder = faiss.downcast_index(index.storage) if hasattr(index, "hnsw") else index
        stored = np.stack([index.reconstruct(int(number)) for number in some])
        best = coder.sa_decode(coder.sa_encode(compared))
        with np.errstate(over="ignore", invalid="ignore"):
            lost, least = (np.linalg.norm(one - compared, axis=1) for one in (stored, best))
            # Written so that NaN fails as well.
            return bool((lost <= least * (1 + _FARTHER) + _FARTHER).all())


def _leads_inside(faiss: Any, index: Any) -> bool:
    """Check whether what an index points at is in it: nothing else may be looked up."""
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
