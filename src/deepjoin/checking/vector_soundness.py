"""Whether the vectors of a segment fit together, told from themselves: nothing is encoded.

Every stage relies on what the stages before it have seen, as with the arrays of the values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import load_array
from deepjoin.checking.contents import MISREAD
from deepjoin.checking.soundness import (
    Array,
    Arrays,
    ascends,
    ascends_within,
    is_array,
    spans,
    within,
)
from deepjoin.checking.vector_index_soundness import index_problems
from deepjoin.embed.scan import SLACK, ZERO_POINT
from deepjoin.embed.value_vectors import FILES, LARGEST_CODE, LIST_FILES, ORDER_FILES
from deepjoin.embed.vector_build import KINDS, METRICS, ROWS, load_rows
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

Stage = Callable[[], Iterator[str]]


def vector_problems(
    folder: Path, named: Collection[str], values: int, columns: int
) -> Iterator[str]:
    """Say what is wrong with the vectors of a segment of so many values and columns.

    ``named`` are the files that the manifest says the segment has.
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
    """Name the arrays whose header is not that of an array of their kind."""
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
    """See that the rotation is one, and that scales and errors can be those of unit vectors."""
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
    """See that every row of codes uses its whole range, and has the length of a vector."""
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
    """See that rows and values name each other."""
    values, rows = arrays[_VALUES], arrays[_ROWS]
    bad = [name for name in ORDER_FILES if not within(arrays[name], 0, len(values))]
    yield from (f"{name} has numbers that cannot be" for name in bad)
    parts = spans(len(values))
    if not bad and not all((values[rows[a:b]] == np.arange(a, b)).all() for a, b in parts):
        yield f"{_VALUES} and {_ROWS} do not say the same"


def _lists(arrays: Arrays) -> Iterator[str]:
    """See that lists hold rows in order, and that every vector is in one."""
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

    def told() -> Iterator[str]:
        if about is None or about["dimension"] < 1 or not _is_whose(folder, about):
            yield f"{ABOUT} is not what was written"

    def rows() -> Iterator[str]:
        if about is None or not is_array(folder / ROWS, np.float16, about["dimension"]):
            yield f"{ROWS} is not the array that belongs there"
        else:
            yield from _row_numbers(load_rows(folder), about, columns)

    stages: list[Stage] = [
        lambda: _missing(folder, (ABOUT, ROWS)),
        told,
        rows,
        lambda: _index(folder, about) if about and about["complete"] else iter(()),
        lambda: _is_both(folder) if folder.name == "both" else iter(()),
    ]
    return _first_found(stages)


def _index(folder: Path, about: Mapping[str, Any]) -> Iterator[str]:
    return index_problems(folder, about["kind"], about["metric"])


def _is_whose(folder: Path, about: Mapping[str, Any]) -> bool:
    """Tell whether vectors are said to be of whom those of their space are."""
    stored = about["kind"] in ("auto", *KINDS) and about["metric"] in METRICS
    if about["space"] != folder.name or not stored:
        return False
    whose = about["name"], about["digest"]
    if folder.name == "sketch":
        return whose == ("sketch", sketch_digest(about["dimension"]))
    if folder.name != "both":
        return True
    parts = [ColumnVectors.open(folder.parent.parent, space) for space in ("columns", "sketch")]
    if parts[0] is None or parts[1] is None:
        return False
    cells = CellVectors.open(folder.parent.parent)
    meant = None if cells is None else meaning_about(cells.digest, cells.vectors.dimension)
    both = both_about(parts[0].about, parts[1].about, meant)
    return (*whose, about["dimension"]) == (both.name, both.digest, both.dimension)


def _row_numbers(
    rows: npt.NDArray[np.float16], about: Mapping[str, Any], columns: int
) -> Iterator[str]:
    """See that there is a row a column, of numbers; NaN only where one is still to come."""
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
    """See that columns and sketches are what both are made of, and meanings of length 1."""
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
    """See that the snapshot of frequencies holds values in order, each in several columns."""
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
