"""Cells of any type to strings, and a column as the set of its values (definition 2.1).

Strings are the form in which cells are normalised and indexed; a set has counts and spellings.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.normalise.canonical import canonical, canonical_array
from deepjoin.normalise.private import hidden

#: The note about a table whose text had to be repaired.
REPAIRED_NOTE = "Characters that are not valid text were replaced by �."

# Floats hold every integer up to here; ids that became floats are written as digits.
_EXACT = {pa.float32(): 2.0**24, pa.float64(): 2.0**53}
#: From here on the array form of `canonical` is faster than the plain one.
_MANY = 512


def left_out(kind: pa.DataType) -> str | None:
    """Return why a column of this type cannot be compared: "binary", "nested", or None if it can.

    >>> left_out(pa.list_(pa.int64())), left_out(pa.binary()), left_out(pa.date32())
    ('nested', 'binary', None)
    """
    types = pa.types
    # Stored as 16 bytes, but everybody writes a UUID as text.
    if isinstance(kind, pa.UuidType):
        return None
    if isinstance(kind, pa.BaseExtensionType):
        return left_out(kind.storage_type)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return left_out(kind.value_type)
    if types.is_nested(kind):
        return "nested"
    binary = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary)
    return "binary" if any(test(kind) for test in (*binary, types.is_binary_view)) else None


def as_strings(array: pa.Array | pa.ChunkedArray) -> pa.Array | None:
    """Turn a column into strings, missing cells into null; None for binary and nested types.

    >>> as_strings(pa.array([7.0, float("nan"), 123456789012.0])).to_pylist()
    ['7', None, '123456789012']
    """
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if left_out(array.type):
        return None
    array = _decoded(array)
    kind, types = array.type, pa.types
    if types.is_floating(kind):
        return _floats(array)
    if types.is_timestamp(kind):
        return _timestamps(array)
    if types.is_time(kind):
        return _without_zeros(array.cast(pa.string()))
    if types.is_duration(kind):
        return _floats(seconds(array))
    if types.is_decimal(kind):
        return _plain_digits(array.cast(pa.string()))
    if types.is_interval(kind):
        return pa.array([None if cell is None else str(cell) for cell in array.to_pylist()])
    return array.cast(pa.string())


def _decoded(array: pa.Array) -> pa.Array:
    kind = array.type
    if isinstance(kind, pa.UuidType):
        texts = [None if cell is None else str(cell) for cell in array.to_pylist()]
        return pa.array(texts, pa.string())
    if isinstance(kind, pa.BaseExtensionType):
        return _decoded(array.storage)
    if pa.types.is_dictionary(kind):
        return _decoded(array.dictionary_decode())
    if pa.types.is_run_end_encoded(kind):
        return _decoded(pc.run_end_decode(array))
    return array


def _floats(array: pa.Array) -> pa.Array:
    """Write the shortest digits that identify each number, without an exponent if not too long."""
    if pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    array = pc.if_else(pc.is_nan(array), None, array)
    # -0.0 equals 0.0 and would be written differently.
    array = pc.if_else(pc.equal(array, 0), pa.scalar(0, array.type), array)
    whole = pc.and_(pc.equal(pc.floor(array), array), pc.less(pc.abs(array), _EXACT[array.type]))
    if pc.all(whole, min_count=0).as_py():
        return array.cast(pa.int64()).cast(pa.string())
    return _plain_digits(array.cast(pa.string()))


def _plain_digits(texts: pa.Array) -> pa.Array:
    """Write out the rare exponent: `1.5e+10` is `15000000000`, `1E-8` is `0.00000001`."""
    exponent = pc.match_substring(texts, "e", ignore_case=True)
    if not pc.any(exponent).as_py():
        return texts
    exponent = pc.fill_null(exponent, False)
    written = [_written_out(text) for text in texts.filter(exponent).to_pylist()]
    return pc.replace_with_mask(texts, exponent, pa.array(written, pa.string()))


def _written_out(text: str) -> str:
    # Beyond 40 digits the exponent stays: a cell such as 1e300 would become a page of zeros.
    number = Decimal(text)
    return f"{number:f}" if abs(number.adjusted()) <= 40 else text.lower()


def _timestamps(array: pa.Array) -> pa.Array:
    """`YYYY-MM-DD HH:MM:SS[.fff]`; moments with a zone are in UTC and end in Z."""
    if array.type.tz is not None:
        array = array.cast(pa.timestamp(array.type.unit, "UTC"))
    texts = array.cast(pa.string())
    # Arrow writes "<value out of range: ...>" for years that no calendar has.
    texts = pc.if_else(pc.starts_with(texts, "<"), None, texts)
    return _without_zeros(texts)


def _without_zeros(times: pa.Array) -> pa.Array:
    trimmed = pc.replace_substring_regex(times, r"(\.[0-9]*?)0+(Z?)$", r"\1\2")
    return pc.replace_substring_regex(trimmed, r"\.(Z?)$", r"\1")


def seconds(durations: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Turn durations into seconds, the numbers by which they are compared.

    >>> seconds(pa.array([1500], pa.duration("ms"))).to_pylist()
    [1.5]
    """
    ticks = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[durations.type.unit]
    return pc.divide(durations.cast(pa.int64()).cast(pa.float64(), safe=False), ticks)


def cell_text(value: object) -> str | None:
    """Turn one Python value into a cell; None, NaN, NaT and NA are missing.

    >>> [cell_text(value) for value in ("a", 7, 7.5, True, float("nan"), None)]
    ['a', '7', '7.5', 'true', None, None]
    """
    if type(value) is str:
        return value
    # By name, because pandas need not be installed.
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return None if np.isnat(value) else str(value)
    if isinstance(value, (float, np.floating)):
        return float_text(value)
    if isinstance(value, np.generic):
        value = value.item()
    # As Arrow writes booleans, not as Python does.
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return None if value.is_nan() else _written_out(str(value))
    if isinstance(value, datetime.timedelta):
        return float_text(value.total_seconds())
    return _moment_text(value) if isinstance(value, datetime.datetime) else str(value)


def float_text(number: float | np.floating[Any]) -> str | None:
    """Write one float as `as_strings` writes a column of them.

    >>> [float_text(number) for number in (7.0, 1e16, 1e-5, -0.0, float("nan"))]
    ['7', '10000000000000000', '0.00001', '0', None]
    """
    if number != number:
        return None
    text = str(np.float32(number) if isinstance(number, np.float16) else number)
    if "e" in text:
        return _written_out(text)
    return text.removesuffix(".0") if number else "0"


def _moment_text(moment: datetime.datetime) -> str:
    if moment.tzinfo is None:
        return _trimmed(moment.isoformat(" "))
    try:
        moment = moment.astimezone(datetime.UTC)
    except OverflowError:
        # In UTC it lies before the year 1 or after 9999.
        return moment.isoformat(" ")
    return _trimmed(moment.replace(tzinfo=None).isoformat(" ")) + "Z"


def _trimmed(time: str) -> str:
    return time.rstrip("0").rstrip(".") if "." in time else time


def text_array(cells: Iterable[str | None]) -> pa.Array:
    r"""Make a string array; half characters, which no UTF-8 text can hold, become `�`.

    >>> text_array(["a", "b\ud800"]).to_pylist()
    ['a', 'b�']
    """
    cells = list(cells)
    try:
        return pa.array(cells, pa.string())
    except UnicodeEncodeError:
        return pa.array([cell and _mended(cell) for cell in cells], pa.string())


def _mended(cell: str) -> str:
    return cell.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def unique_names(names: Iterable[object], taken: Sequence[str] = ()) -> list[str]:
    """Make column names unique, also among ``taken``: blanks by position, repeats numbered.

    >>> unique_names(["id", "id", None, 2020, "id_2"])
    ['id', 'id_3', 'column_3', '2020', 'id_2']
    """
    written = [_name_text(name) for name in names]
    # A made-up name must not take one that a later column has by right.
    known, unique = {*taken, *written}, dict.fromkeys(taken)
    counts: Counter[str] = Counter()
    for position, text in enumerate(written, len(taken) + 1):
        name = plain = text or f"column_{position}"
        while name in unique or (name != text and name in known):
            counts[plain] += 1
            name = f"{plain}_{counts[plain] + 1}"
        unique[name] = None
    return list(unique)[len(taken) :]


def _name_text(given: object) -> str:
    """Write a name as text, joining the levels of a pandas name; blank ones are ''."""
    levels = given if isinstance(given, tuple) else (given,)
    text = " ".join(str(level) for level in levels if level is not None and level != "")
    return _mended(text) if text.strip() else ""


@dataclass(frozen=True)
class DistinctCells:
    """Distinct canonical values in order of first appearance; all lists run in parallel."""

    values: list[str]
    spellings: list[str]
    counts: list[int]
    #: The hashes that a private lake stores instead of the values; None in any other lake.
    hidden: list[str] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.values)


def distinct_cells(
    cells: Iterable[str | None], profile: str = "default", key: bytes = b""
) -> DistinctCells:
    """Reduce cells to distinct values; missing and blank cells vanish.

    With the key of a private lake, the hashes that replace the values there are added.

    >>> distinct_cells(["GE", "Apple", " ge", None, ""])
    DistinctCells(values=['ge', 'apple'], spellings=['GE', 'Apple'], counts=[2, 1])
    """
    raw = Counter(cells)
    spelled = [cell for cell in raw if cell is not None]
    first: dict[str, int] = {}
    spellings: list[str] = []
    counts: list[int] = []
    for cell, value in zip(spelled, canonical_all(spelled, profile), strict=True):
        at = first.setdefault(value, len(spellings))
        if at < len(spellings):
            counts[at] += raw[cell]
        elif value:
            spellings.append(cell)
            counts.append(raw[cell])
        else:
            del first[value]
    values = list(first)
    return DistinctCells(values, spellings, counts, hidden(values, key) if key else None)


def canonical_all(cells: list[str], profile: str) -> list[str]:
    """Return the canonical strings of some cells, "" for blank ones."""
    if len(cells) < _MANY:
        return [canonical(cell, profile) for cell in cells]
    try:
        values: list[str] = canonical_array(pa.array(cells, pa.string()), profile).to_pylist()
    except UnicodeEncodeError:  # lone surrogates fit no Arrow string
        return [canonical(cell, profile) for cell in cells]
    return values
