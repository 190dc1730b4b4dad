"""Columns as a model sees them: numbers, categories that are numbered, and how alike they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Floats = npt.NDArray[np.float64]

#: What a number looks like: plain, with groups of thousands, a currency or a share. How many words,
#: in how many cells, a column of numbers may have.
NUMBER = r"^\s*[-+]?[$€£]?\s?(\d+\.?\d*|\.\d+|\d{1,3}(,\d{3})+(\.\d*)?)([eE][-+]?\d+)?\s?[%€£]?\s*$"
#: What is left out of it to read it.
MARKS = r"[\s,$€£%]"
_MOST_WORDS, _MOST_MISSING = 5, 0.7
#: Text of digits alone: a code and not a number, unless some cells show a point or an exponent.
_CODE = r"^\s*[-+]?(0\d+|\d+|\d+[eE]\d+)\s*$"
#: Text with at most this many values is a category; other text cannot be used by the model.
_MOST_CATEGORIES = 100
#: Whole numbers that differ in as many rows number them, if they fill their range this much.
_LEAST_ROWS, _SPARSEST = 50, 3


@dataclass(frozen=True)
class Feature:
    """A column as numbers; categories are numbered, missing values are NaN."""

    name: str
    values: Floats
    is_category: bool
    #: The table of a tentative join, and which of the joins with it: one of them can be right.
    rival: tuple[str, int] | None = None


def is_near_number(cells: pa.ChunkedArray) -> bool:
    """Check whether text holds numbers but for a few words such as "N/A" or "*".

    Without such words it is text for another reason: digits alone are codes then, as `007` is.
    """
    if not pa.types.is_string(cells.type):
        return False
    counted = pc.value_counts(cells.drop_null())
    words = counted.field("values")
    is_word = pc.invert(pc.match_substring_regex(words, NUMBER))
    count = pc.sum(is_word.cast(pa.int64())).as_py() or 0
    if not count:
        return pc.all(pc.match_substring_regex(words, _CODE)).as_py() is False
    other = pc.sum(counted.field("counts").filter(is_word)).as_py() or 0
    return count <= _MOST_WORDS < len(words) and other <= _MOST_MISSING * len(cells.drop_null())


def numbers_in(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the numbers of a column of text; words are missing values."""
    is_number = pc.match_substring_regex(cells, NUMBER)
    digits = pc.replace_substring_regex(cells, MARKS, "")
    return pc.if_else(is_number, digits, pa.scalar(None, pa.string())).cast(pa.float64())


def as_feature(name: str, cells: pa.ChunkedArray) -> Feature | None:
    """Turn a column into numbers; None if a model can do nothing with it."""
    if is_near_number(cells):
        cells = numbers_in(cells)
    kind = cells.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        values, is_category = cells.cast(pa.float64(), safe=False), False
    elif pa.types.is_decimal(kind):
        values, is_category = cells.cast(pa.float64()), False
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        values, is_category = cells.cast(pa.timestamp("s"), safe=False).cast(pa.int64()), False
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        counted = pc.value_counts(cells.drop_null()).to_pylist()
        if not 1 < len(counted) <= _MOST_CATEGORIES or 2 * len(counted) > len(cells):
            return None
        # The most frequent values first, so that their numbers do not depend on the order of rows.
        known = sorted(counted, key=lambda one: (-one["counts"], one["values"]))
        values = pc.index_in(cells, pa.array([one["values"] for one in known], kind))
        is_category = True
    else:
        return None
    found = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    found = np.where(np.isfinite(found), found, np.nan)
    is_constant = not np.nanstd(found) > 0 if np.isfinite(found).any() else True
    return None if is_constant else Feature(name, found, is_category)


def is_row_number(values: Floats) -> bool:
    """Check whether a column numbers the rows, so that it tells a model nothing of new ones."""
    known = values[np.isfinite(values)]
    if len(known) < _LEAST_ROWS or np.any(known != np.floor(known)):
        return False
    is_dense = float(np.ptp(known)) < _SPARSEST * len(known)
    return is_dense and len(np.unique(known)) == len(known)


def unit_ranks(values: Floats) -> Floats:
    """Return centred ranks of length 1, so that a product is Spearman's correlation."""
    filled = np.where(np.isfinite(values), values, np.nanmedian(values))
    _, place, counts = np.unique(filled, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts + 1) / 2)[place]
    centred = ranks - ranks.mean()
    norm = float(np.linalg.norm(centred))
    found: Floats = centred / norm if norm else centred
    return found


def rank_correlation(some: Floats, other: Floats) -> float:
    """Return how much two columns rank rows alike, from 0 to 1, where both have values."""
    both = np.isfinite(some) & np.isfinite(other)
    if both.sum() < 2:
        return 0.0
    return abs(float(unit_ranks(some[both]) @ unit_ranks(other[both])))
