"""Check that the files of a segment agree with one another; no table is read.

Stages run in order and may assume that earlier ones passed, so damage is reported instead of
raising. Each yields what is wrong, file by file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.arrays import (
    HEADER,
    Array,
    Int,
    Offsets,
    Strings,
    array_header,
    load_array,
    load_strings,
)
from deepjoin.normalise.canonical import CellType, canonical_array, hash_array
from deepjoin.packing import PackedArray, is_packed, load_numbers
from deepjoin.settings import Settings
from deepjoin.store.catalog import ColumnEntry, TableEntry
from deepjoin.store.ledger import LEDGER, entries_of, read_ledger
from deepjoin.store.report import REPORT, BuildReport
from deepjoin.store.values.index import AS_VALUE, FORWARD, PACKED
from deepjoin.store.values.profile import Generic
from deepjoin.store.values.rows import (
    CODES,
    COUNTS,
    NOT_STORED,
    OFFSETS,
    PADDING,
    ROW_FILES,
    WIDTHS,
    RowCodes,
)
from deepjoin.store.values.signatures import SIGNATURE_FILES, signature_blocks
from deepjoin.store.values.spellings import load_spellings, respelled

Arrays: TypeAlias = Mapping[str, Array]
#: What the stages of a check look at.
Checked = TypeVar("Checked")

#: What JSON of another form than ours makes its readers raise.
MISREAD = (ValueError, TypeError, LookupError, AttributeError, RecursionError)

#: Elements checked at a time, which bounds memory.
_CHUNK = 1 << 22
#: Strings checked at a time: the longest values make them a gigabyte.
_STRINGS = 1 << 16
#: Cells whose spelling is compared with their value.
_SPELLED = 1 << 17

_TYPES = tuple(kind.name.lower() for kind in CellType)
_TEXTS = ("values", "spellings", "column_names", "column_ids", "table_names", "table_entries")
_KINDS: dict[str, npt.DTypeLike] = {
    **{f"{name}.offsets": np.int64 for name in _TEXTS},
    **{f"{name}.bytes": np.uint8 for name in _TEXTS},
    **dict.fromkeys(FORWARD, np.uint32),
    **dict.fromkeys(("value_hashes", "table_name_hashes"), np.uint64),
    **dict.fromkeys(("posting_offsets", "column_offsets", "table_column_offsets"), np.int64),
    **dict.fromkeys(("posting_columns", "column_tables", "column_order"), np.int32),
    **dict.fromkeys(("table_items", "table_columns", "table_by_name"), np.int32),
    **dict.fromkeys(("column_types", "column_generic"), np.uint8),
    "column_cells": np.int64,
}
#: What is stored with as few bytes as its largest number needs; counts and first rows only by
#: format 3.
_NARROW = {
    *(f"{name}.offsets" for name in _TEXTS),
    *("posting_offsets", "posting_columns", "cell_counts", "cell_rows"),
}
_NARROWER = (np.uint8, np.uint16, np.uint32)
#: Offsets that may be stored as two arrays.
_SHORT = {*(f"{name}.offsets" for name in _TEXTS), "posting_offsets", "column_offsets",
          "table_column_offsets", OFFSETS}  # fmt: skip
#: What may be packed, and how much larger each number is stored.
_PACKED = {**PACKED, **dict.fromkeys(SIGNATURE_FILES, 0)}
#: Offsets, and the array that they divide into groups.
_GROUPS = {
    **{f"{name}.offsets": f"{name}.bytes" for name in _TEXTS},
    "posting_offsets": "posting_columns",
    "column_offsets": "cell_values",
    "table_column_offsets": "table_columns",
}


@dataclass(frozen=True)
class SegmentArrays:
    """The mapped arrays of a segment, by name."""

    folder: Path
    arrays: Arrays
    settings: Settings


def array_problems(folder: Path, settings: Settings) -> tuple[Arrays, list[str]]:
    """Load the arrays of a segment and report what is wrong with them, file by file."""
    arrays: dict[str, Array] = {}
    found = []
    kinds = dict(_KINDS)
    # A segment of an earlier version has no rows and no signatures.
    for added in (ROW_FILES, SIGNATURE_FILES):
        if any((folder / f"{name}.npy").exists() for name in added):
            kinds |= added
    for name, kind in kinds.items():
        path = folder / f"{name}.npy"
        bases = Offsets.bases_of(path)
        if name in _SHORT and bases.exists():
            if not path.exists() or not is_array(path, np.uint16):
                found.append(f"{name}.npy is not the array that belongs there")
            elif (short := _short_offsets(path, bases)) is None:
                found.append(f"{bases.name} is not the array that belongs there, or {path.name}")
            else:
                arrays[name] = short
            continue
        others = (*(_NARROWER if name in _NARROW else ()), *([np.uint64] * (name in _PACKED)))
        if not path.exists() or not any(is_array(path, one) for one in (kind, *others)):
            found.append(f"{name}.npy is not the array that belongs there")
            continue
        try:
            arrays[name] = (
                load_numbers(path, _PACKED[name]) if name in _PACKED else load_array(path)
            )
        except ValueError:
            found.append(f"{name}.npy is not the array that belongs there")
            continue
        if isinstance(arrays[name], PackedArray) and not is_packed(path):
            found.append(f"{name}.npy is not the array that belongs there")
    return arrays, found or first_found(ARRAY_STAGES, SegmentArrays(folder, arrays, settings))


def _short_offsets(path: Path, bases: Path) -> Any:
    """Load offsets that share numbers in full; None if these are not what was written."""
    kinds = (*_NARROWER, np.uint64)
    if not any(is_array(bases, kind) for kind in kinds):
        return None
    whole, more = load_array(bases), load_array(path)
    firsts = np.asarray(more[:: 1 << 6])
    sound = 0 < len(whole) == len(firsts) and not firsts.any()
    sound = sound and whole.dtype == np.min_scalar_type(int(whole[-1]))
    return Offsets(whole, more) if sound else None


def first_found(stages: Iterable[Callable[[Checked], Iterator[str]]], on: Checked) -> list[str]:
    """Run stages in order, and return what the first that fails has found."""
    return next((found for stage in stages if (found := list(stage(on)))), [])


def is_array(path: Path, kind: npt.DTypeLike, width: int | None = None) -> bool:
    """Check whether a file is a plain array of this kind, by the very bytes of its header.

    ``width`` is the length of each row of a matrix.
    """
    each = np.dtype(kind).itemsize * (width or 1)
    length, rest = divmod(path.stat().st_size - HEADER, each)
    shape = (length,) if width is None else (length, width)
    with path.open("rb") as file:
        return rest == 0 and file.read(HEADER) == array_header(kind, shape)


def check_lengths(segment: SegmentArrays) -> Iterator[str]:
    """Check that arrays that belong together have matching lengths."""
    arrays = segment.arrays
    values, columns = len(arrays["value_hashes"]), len(arrays["column_tables"])
    tables, entries = len(arrays["table_items"]), len(arrays["cell_values"])
    wanted = {
        **dict.fromkeys(("values.offsets", "posting_offsets"), values + 1),
        **dict.fromkeys(("posting_columns", *FORWARD), entries),
        **dict.fromkeys(
            ("column_offsets", "column_names.offsets", "column_ids.offsets"), columns + 1
        ),
        **dict.fromkeys(("column_types", "column_generic", "column_cells"), columns),
        **dict.fromkeys(("column_order", "table_columns"), columns),
        **dict.fromkeys(("table_names.offsets", "table_entries.offsets"), tables + 1),
        **dict.fromkeys(("table_column_offsets",), tables + 1),
        **dict.fromkeys(("table_name_hashes", "table_by_name"), tables),
    }
    for name, length in wanted.items():
        if len(arrays[name]) != length:
            yield f"{name}.npy has {len(arrays[name])} elements where {length} belong"
    if len(arrays["spellings.offsets"]) == 0:
        yield "spellings.offsets.npy is empty"


def spans(length: int, size: int = _CHUNK) -> Iterator[tuple[int, int]]:
    """Cut ``length`` elements into pieces: where each starts and where it stops."""
    return ((at, min(at + size, length)) for at in range(0, length, size))


def ascends(array: Array) -> bool:
    """Check whether no element is smaller than the one before it."""
    parts = spans(max(0, len(array) - 1))
    return all(bool(np.all(array[a:b] <= array[a + 1 : b + 1])) for a, b in parts)


def check_offsets(segment: SegmentArrays) -> Iterator[str]:
    """Check that offsets start at 0, ascend, and end with the array they divide."""
    arrays = segment.arrays
    for name, of in _GROUPS.items():
        offsets = arrays[name]
        if offsets[0] != 0 or offsets[-1] != len(arrays[of]) or not ascends(offsets):
            yield f"{name}.npy does not divide {of}.npy"


def check_ranges(segment: SegmentArrays) -> Iterator[str]:
    """Check that numbers point at something that exists."""
    arrays = segment.arrays
    values, columns = len(arrays["value_hashes"]), len(arrays["column_tables"])
    tables, most = len(arrays["table_items"]), np.iinfo(np.int64).max
    limits = {
        "posting_columns": (0, columns),
        "cell_values": (0, values),
        "cell_counts": (1, most),
        "column_tables": (0, tables),
        "column_types": (0, len(CellType)),
        "column_generic": (0, len(Generic)),
        "column_order": (0, columns),
        "table_columns": (0, columns),
        "table_by_name": (0, tables),
        "table_items": (0, most),
    }
    for name, (least, limit) in limits.items():
        if not within(arrays[name], least, limit):
            yield f"{name}.npy has numbers out of range"
    spelled = arrays["cell_spellings"]
    count = len(arrays["spellings.offsets"]) - 1
    parts = (spelled[a:b] for a, b in spans(len(spelled)))
    if not all(bool(np.all((part < count) | (part == AS_VALUE))) for part in parts):
        yield "cell_spellings.npy has numbers out of range"


def within(array: Array, least: float, limit: float) -> bool:
    """Check whether all elements are at least the one and below the other; NaN is not."""
    parts = (array[a:b] for a, b in spans(len(array)))
    return all(bool(part.min() >= least) and bool(part.max() < limit) for part in parts)


def check_texts(segment: SegmentArrays) -> Iterator[str]:
    """Check that texts are valid, and that values have the hashes they are looked up by."""
    folder, arrays = segment.folder, segment.arrays
    # Spellings are not texts: they are checked with their values.
    for name in (name for name in _TEXTS if name != "spellings"):
        hashes = arrays["value_hashes"] if name == "values" else None
        strings = load_strings(folder, name)
        for start, stop in spans(len(strings), _STRINGS):
            part = strings[start:stop]
            try:
                part.validate(full=True)
            except pa.ArrowInvalid:
                yield f"{name}.bytes.npy is not text"
                break
            if hashes is not None and not np.array_equal(hash_array(part), hashes[start:stop]):
                yield "value_hashes.npy and values.bytes.npy do not belong together"
                break


def check_orders(segment: SegmentArrays) -> Iterator[str]:
    """Check that values and groups are sorted: look-ups rely on it."""
    arrays = segment.arrays
    if not ascends(arrays["value_hashes"]):
        yield "value_hashes.npy is not in order"
    for offsets, name in (
        ("posting_offsets", "posting_columns"),
        ("column_offsets", "cell_values"),
    ):
        if not ascends_within(arrays[name], arrays[offsets]):
            yield f"{name}.npy is not in order"


def ascends_within(array: Array, offsets: Array) -> bool:
    """Check whether every element is larger than the one before it in its group."""
    for start, stop in spans(max(0, len(array) - 1)):
        larger = array[start:stop] < array[start + 1 : stop + 1]
        first, last = np.searchsorted(offsets, (start + 1, stop + 1))
        larger[offsets[first:last] - start - 1] = True  # the first of a group follows nothing
        if not larger.all():
            return False
    return True


def check_postings(segment: SegmentArrays) -> Iterator[str]:
    """Check that columns and postings hold the same pairs, and that cells are counted right."""
    arrays = segment.arrays
    columns = len(arrays["column_tables"])
    cells = np.zeros(columns, np.int64)
    forward = inverted = 0
    for start, stop in spans(len(arrays["cell_values"])):
        column = _groups(arrays["column_offsets"], start, stop)
        counts = np.bincount(column, arrays["cell_counts"][start:stop], columns)
        cells += counts.astype(np.int64)
        forward += _sum_of_pairs(arrays["cell_values"][start:stop], column)
        value = _groups(arrays["posting_offsets"], start, stop)
        inverted += _sum_of_pairs(value, arrays["posting_columns"][start:stop])
    if (forward - inverted) % (1 << 64):
        yield "cell_values.npy and posting_columns.npy contradict each other"
    if not np.array_equal(cells, arrays["column_cells"]):
        yield "cell_counts.npy and column_cells.npy contradict each other"


def _groups(offsets: Array, start: int, stop: int) -> Int:
    """Return the group of each element from ``start`` to ``stop``."""
    first = int(np.searchsorted(offsets, start, side="right")) - 1
    last = int(np.searchsorted(offsets, stop))
    sizes = np.diff(np.clip(offsets[first : last + 1], start, stop))
    return np.repeat(np.arange(first, last), sizes)


def _sum_of_pairs(values: Array, columns: Array) -> int:
    """Hash a set of pairs: the order does not matter, and other sets have other sums."""
    # A sum of mixed bits needs no memory, where comparing sorted pairs would need all of them.
    pairs = (values.astype(np.uint64) << np.uint64(32)) | columns.astype(np.uint64)
    for factor in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9):
        pairs *= np.uint64(factor)
        pairs ^= pairs >> np.uint64(29)
    return int(pairs.sum(dtype=np.uint64))


def check_names(segment: SegmentArrays) -> Iterator[str]:
    """Check that tables are found by their names, and columns by their tables."""
    folder, arrays = segment.folder, segment.arrays
    tables = np.asarray(arrays["column_tables"])
    names = load_strings(folder, "table_names")
    sizes = np.bincount(tables, minlength=len(names))
    if not np.array_equal(np.diff(arrays["table_column_offsets"]), sizes):
        yield "table_column_offsets.npy and column_tables.npy contradict each other"
    if not np.array_equal(arrays["table_columns"], np.argsort(tables, kind="stable")):
        yield "table_columns.npy and column_tables.npy contradict each other"
    hashes = hash_array(names)
    by_name = np.argsort(hashes, kind="stable")
    if not np.array_equal(arrays["table_name_hashes"], hashes[by_name]):
        yield "table_name_hashes.npy and table_names.bytes.npy do not belong together"
    elif not np.array_equal(arrays["table_by_name"], by_name):
        yield "table_by_name.npy is not in order"
    if not _ranks(arrays["column_order"], names, tables):
        yield "column_order.npy is not in order"


def _ranks(order: Array, names: pa.Array, tables: Array) -> bool:
    """Check whether an order is that of the tables' names, and of the columns in each table."""
    ranked = np.full(len(order), -1)
    ranked[order] = np.arange(len(order))
    if len(order) == 0 or ranked.min() < 0:
        return len(order) == 0
    owners = tables[ranked]
    same = owners[1:] == owners[:-1]
    named = names.take(pa.array(owners))
    rising = np.asarray(pc.less_equal(named[:-1], named[1:]).cast(pa.uint8())) == 1
    return bool(np.all(np.where(same, ranked[1:] > ranked[:-1], rising)))


def check_spellings(segment: SegmentArrays) -> Iterator[str]:
    """Check, for a sample of the cells, that their spellings normalise to their values."""
    folder, arrays = segment.folder, segment.arrays
    spelled = arrays["cell_spellings"]
    # Normalising is slow beside the other checks, so every n-th cell stands for all.
    every = max(1, len(spelled) // _SPELLED)
    values, spellings = load_strings(folder, "values"), load_spellings(folder)
    for start, stop in spans(len(spelled), every * _STRINGS):
        own = spelled[start:stop:every] != AS_VALUE
        numbers = spelled[start:stop:every][own]
        held = values.take(pa.array(arrays["cell_values"][start:stop:every][own]))
        try:
            cells = respelled(held, spellings.take(pa.array(numbers)))
            cells.validate(full=True)
        except ValueError:
            yield "spellings.bytes.npy is not text"
            return
        cells = cells.cast(pa.string())
        if not canonical_array(cells, segment.settings.profile).equals(held.cast(pa.string())):
            yield "spellings.bytes.npy has cells that are not spelled as their values"
            return


def check_rows(segment: SegmentArrays) -> Iterator[str]:
    """Check that the rows of each column hold its values as often as the forward index says."""
    arrays = segment.arrays
    if CODES not in arrays:
        return
    columns, codes = len(arrays["column_tables"]), arrays[CODES]
    offsets, rows, widths = (arrays[name] for name in (OFFSETS, COUNTS, WIDTHS))
    for name, length in ((OFFSETS, columns + 1), (COUNTS, columns), (WIDTHS, columns)):
        if len(arrays[name]) != length:
            yield f"{name}.npy has {len(arrays[name])} elements where {length} belong"
            return
    stored = widths != NOT_STORED
    present = np.asarray(arrays["column_cells"])
    sizes = np.diff(arrays["column_offsets"])
    if np.any(rows[stored] < present[stored]):
        yield f"{COUNTS}.npy has columns with fewer rows than cells"
        return
    wanted = np.where(stored, -(-rows * np.where(stored, widths, 0).astype(np.int64) // 8), 0)
    if offsets[0] != 0 or not np.array_equal(np.diff(offsets), wanted):
        yield f"{OFFSETS}.npy does not divide {CODES}.npy into rows of these widths"
        return
    if len(codes) != offsets[-1] + PADDING:
        yield f"{CODES}.npy has {len(codes)} elements where {offsets[-1] + PADDING} belong"
        return
    used = rows * np.where(stored, widths, 0).astype(np.int64) % 8
    last = codes[np.maximum(0, offsets[1:] - 1)]
    if np.any(codes[offsets[-1] :]) or np.any((used > 0) & (last >> used != 0)):
        yield f"{CODES}.npy has bits between the rows of columns"
        return
    read = RowCodes(segment.folder)
    for column in np.flatnonzero(stored).tolist():
        start, stop = arrays["column_offsets"][column : column + 2]
        ranks = read.ranks(column, int(present[column]))
        found = np.bincount(ranks + 1, minlength=int(sizes[column]) + 1)
        wanted = np.append(rows[column] - present[column], arrays["cell_counts"][start:stop])
        # Of values that share a hash, the first one stands for all.
        if not np.array_equal(found, wanted) and not _share_hashes(arrays, start, stop):
            yield f"{CODES}.npy does not agree with cell_counts.npy"
            return


def _share_hashes(arrays: Arrays, start: int, stop: int) -> bool:
    """Check whether two values of a column have one hash."""
    hashes = arrays["value_hashes"][arrays["cell_values"][start:stop]]
    return bool(np.any(hashes[1:] == hashes[:-1]))


def check_signatures(segment: SegmentArrays) -> Iterator[str]:
    """Check that signatures are those of the values, in order."""
    if not SIGNATURE_FILES.keys() <= segment.arrays.keys():
        return
    hashes, values = (segment.arrays[name] for name in SIGNATURE_FILES)
    if len(hashes) != len(values):
        yield f"signature_values.npy has {len(values)} elements where {len(hashes)} belong"
        return
    if not ascends(hashes):
        yield "signature_hashes.npy is not in order"
        return
    stored = (
        hashes[a:b].astype(np.uint64) << np.uint64(32) | values[a:b].astype(np.uint64)
        for a, b in spans(len(hashes))
    )
    if _digest_unordered(stored) != _digest_unordered(signature_blocks(segment.folder)):
        yield "signature_hashes.npy does not agree with values.bytes.npy"


def _digest_unordered(parts: Iterable[npt.NDArray[np.uint64]]) -> tuple[int, int, int]:
    """Sum up numbers so that their order does not matter: how many, two sums of them mixed."""
    count, sums = 0, [0, 0]
    for part in parts:
        count += len(part)
        with np.errstate(over="ignore"):
            mixed = (part ^ (part >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)
            sums[0] += int(mixed.sum())
            sums[1] += int((mixed ^ (mixed >> np.uint64(32))).sum())
    return count, sums[0] % 2**64, sums[1] % 2**64


#: From the shape of single files to what several say together; each relies on those before.
ARRAY_STAGES: tuple[Callable[[SegmentArrays], Iterator[str]], ...] = (
    check_lengths,
    check_offsets,
    check_ranges,
    check_texts,
    check_orders,
    check_postings,
    check_names,
    check_spellings,
    check_rows,
    check_signatures,
)


def content_problems(
    folder: Path, arrays: Arrays, removed: Collection[int], kinds: Sequence[str]
) -> Iterator[str]:
    """Report where entries, ledger and report of a segment with sound arrays disagree.

    ``removed`` are the tables that left, ``kinds`` are the kinds of the lake's sources.
    """
    tables = len(arrays["table_items"])
    if not all(0 <= number < tables for number in removed):
        yield "removed tables, in the manifest, are not there"
    yield from _ledger_problems(folder, arrays["table_items"], len(kinds))
    counted = BuildReport(
        tables, len(arrays["column_tables"]), cells=int(arrays["column_cells"].sum())
    )
    columns = _StoredColumns(folder, arrays)
    names, texts = (Strings.load(folder, of) for of in ("table_names", "table_entries"))
    differing = []
    try:
        for number in range(len(names)):
            entry = TableEntry.from_json(names[number], texts[number])
            # JSON that was changed may parse to other types, which later code would trip over.
            kinds_of_text = {type(entry.title), type(entry.context), *map(type, entry.notes)}
            samples = {*map(type, entry.sample)}
            if kinds_of_text != {str} or type(entry.rows) is not int or samples - {dict}:
                raise TypeError("not an entry")
            counted.rows += entry.rows
            counted.notes += [(entry.name, note) for note in entry.notes]
            if not entry.columns:  # a corpus stores nothing about columns beyond those it holds
                continue
            counted.left_out.update(c.left_out.split(" (")[0] for c in entry.columns if c.left_out)
            if not columns.match(number, entry):
                differing.append(f"table_entries.bytes.npy has other columns of {entry.name}")
    except MISREAD:
        yield "table_entries.bytes.npy is not what was written"
        return
    yield from differing
    yield from _report_problems(folder, counted, exact="corpus" not in kinds)


def _ledger_problems(folder: Path, items: Array, sources: int) -> Iterator[str]:
    try:
        ledger = read_ledger(folder)
        ledger.validate(full=True)
        whole = not any(column.null_count for column in ledger.columns)
        keys = [entry.key for entry in entries_of(ledger)] if whole else []
    except (*MISREAD, pa.ArrowException, OSError):
        whole = False
    if not whole:
        yield f"{LEDGER} is not what was written"
    elif not all(0 <= key.source < sources for key in keys):
        yield f"{LEDGER} names sources that are not there"
    elif len(items) and int(items.max()) >= len(keys):
        yield f"table_items.npy names items that {LEDGER} does not have"


class _StoredColumns:
    """The columns of each table, as the arrays have them."""

    def __init__(self, folder: Path, arrays: Arrays) -> None:
        self._arrays = arrays
        self._names = Strings.load(folder, "column_names")
        self._ids = Strings.load(folder, "column_ids")
        self._sizes = np.diff(arrays["column_offsets"])

    def match(self, table: int, entry: TableEntry) -> bool:
        """Check whether an entry has these columns as indexed ones, and none of them elsewhere."""
        start, stop = self._arrays["table_column_offsets"][table : table + 2]
        numbers = self._arrays["table_columns"][start:stop]
        stored = [
            (self._ids[i], ColumnEntry(self._names[i], _TYPES[kind], size))
            for i, kind, size in zip(
                numbers.tolist(),
                self._arrays["column_types"][numbers].tolist(),
                self._sizes[numbers].tolist(),
                strict=True,
            )
        ]
        named = ((f"{entry.name}#{i}", one) for i, one in enumerate(entry.columns))
        if [pair for pair in named if not pair[1].left_out] != stored:
            return False
        if len(numbers) == 0:
            return True
        # The columns are neighbours, so their values are one run: none may lie behind the rows.
        offsets, rows = self._arrays["column_offsets"], self._arrays["cell_rows"]
        start, stop = offsets[numbers.min()], offsets[numbers.max() + 1]
        return int(rows[start:stop].max()) < entry.rows


def _report_problems(folder: Path, counted: BuildReport, exact: bool) -> Iterator[str]:
    """Compare the report with the entries; what a corpus left out is only in its report."""
    try:
        report = BuildReport.load(folder)
        same = all(
            getattr(report, name) == getattr(counted, name)
            for name in ("tables", "columns", "rows", "cells")
        )
        same = same and Counter(report.notes) == Counter(counted.notes)
        same = same and (not exact or report.left_out == counted.left_out)
    except (*MISREAD, OSError):
        yield f"{REPORT} is not what was written"
        return
    if not same:
        yield f"{REPORT} does not count what the segment holds"
