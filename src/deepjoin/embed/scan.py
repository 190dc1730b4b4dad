"""The scan: every pair of a query's cell and a stored row whose cosine can reach a floor.

For a unit vector q, given as a multiple of small whole numbers with error e_q, the product with
a row's codes is off by at most error + e_q * (1 + error) (Cauchy-Schwarz), so no pair that
reaches the floor is missed. Pairs that may reach it are computed again with q in full.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from deepjoin.embed.kernel import LARGEST_SIGNED, ZERO_POINT, Codes, Signed, Sums, multiplier
from deepjoin.embed.pairs import Pairs

Float = npt.NDArray[np.float32]
Int = npt.NDArray[np.int64]

#: More than single precision loses in a product of two unit vectors, rotated or not.
SLACK = 1e-5

#: Rows a step: codes and sums of one step stay in the cache.
_ROWS, _SUMS = 1 << 14, 1 << 19
#: More than any sum, and exact as a floating-point number.
_NEVER = 1 << 30


class Rows(NamedTuple):
    """Stored vectors: each is its scale times (codes - zero point), off by at most its error."""

    codes: Codes
    scales: Float
    errors: Float

    def take(self, rows: npt.NDArray[np.integer]) -> Rows:
        """Copy some rows."""
        return Rows(
            np.take(self.codes, rows, axis=0),
            np.take(self.scales, rows),
            np.take(self.errors, rows),
        )


class Scan:
    """One pass of some queries, rotated as the rows are, over rows; pairs name rows as values."""

    def __init__(self, turned: Float, floor: float, threads: int) -> None:
        self._turned, self._floor, self._threads = turned, floor - SLACK, threads
        # The threads are ours: thresholds take as long as products and are shared as well.
        self._multiply = multiplier(1)
        self._step = float(np.abs(turned).max()) / LARGEST_SIGNED
        rounded = np.rint(turned / self._step)
        self._error = float(np.linalg.norm(turned - rounded * self._step, axis=1).max())
        self._signed: Signed = np.ascontiguousarray(rounded.astype(np.int8).T)

    def run(self, rows: Rows, chosen: Int | None = None) -> Pairs:
        """Collect the pairs of all rows, or of some, given in ascending order."""
        size = max(256, min(_ROWS, _SUMS // len(self._turned)))
        count = len(rows.scales) if chosen is None else len(chosen)
        blocks = [slice(start, min(start + size, count)) for start in range(0, count, size)]
        if chosen is None:
            found = self._mapped(lambda here: self._block(rows, here), blocks)
        else:
            found = self._mapped(lambda here: self._taken(rows, chosen[here]), blocks)
        return Pairs.concatenate([Pairs.none(), *found])

    def _mapped(self, work: Callable[[slice], Pairs], blocks: list[slice]) -> list[Pairs]:
        if self._threads == 1 or len(blocks) < 2:
            return [work(block) for block in blocks]
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(work, blocks))

    def products(self, codes: Codes) -> Sums:
        """Multiply rows of one scale with every query, roughly: good enough to compare."""
        return self._multiply(codes, self._signed)

    def _taken(self, rows: Rows, chosen: Int) -> Pairs:
        found = self._block(rows.take(chosen), slice(0, len(chosen)))
        return Pairs(found.cells, chosen[found.values], found.similarities, found.errors)

    def _block(self, rows: Rows, here: slice) -> Pairs:
        sums = self._multiply(rows.codes[here], self._signed)
        flat = np.flatnonzero(sums >= self._least(rows.scales[here], rows.errors[here])[:, None])
        places, cells = np.divmod(flat, len(self._turned))
        return self._refined(rows, here.start + places, cells)

    def _least(self, scales: Float, errors: Float) -> npt.NDArray[np.int32]:
        """Return the smallest sum of each row that can still mean a cosine at the floor."""
        bound = (self._floor - self._error) - (1 + self._error) * errors
        with np.errstate(divide="ignore"):
            least = np.floor(bound / (scales * np.float32(self._step)))
        return np.where(scales > 0, np.clip(least, -_NEVER, _NEVER), _NEVER).astype(np.int32)

    def _refined(self, rows: Rows, places: Int, cells: Int) -> Pairs:
        """Compute pairs again with the queries in full precision; drop those that fall short."""
        similarities = np.empty(len(places), np.float32)
        for at in range(0, len(places), _ROWS):
            here = slice(at, at + _ROWS)
            signed = rows.codes[places[here]].astype(np.float32) - ZERO_POINT
            similarities[here] = np.einsum("ij,ij->i", signed, self._turned[cells[here]])
        similarities *= rows.scales[places]
        errors = rows.errors[places]
        kept = similarities + errors >= self._floor
        return Pairs(cells[kept], places[kept], similarities[kept], errors[kept])
