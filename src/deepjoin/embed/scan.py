"""The scan: every pair of a query's cell and a stored row whose cosine can reach a floor.

For a unit vector q, given as a multiple of small whole numbers with error e_q, the product with
a row's codes is off by at most error + e_q * (1 + error) (Cauchy-Schwarz), so no pair that
reaches the floor is missed. Pairs that may reach it are computed again with q in full, and all
bits of the row: of rows from files, the products are of the first four bits.

Products of 8-bit matrices with 32-bit sums come from ONNX Runtime on all machines. Its graph, a
single ``MatMulInteger`` node, is written here byte by byte, so no library that builds graphs is
needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import Array, Float, Int, Int32
from deepjoin.embed.packed import ZERO_POINT, Codes, Rough, VectorRows
from deepjoin.progress import stop_signal

Signed = npt.NDArray[np.int8]

#: More than single precision loses in a product of two unit vectors, rotated or not.
SLACK = 1e-5

#: Processors without 8-bit dot products add two products in 16 bits: 2 * 255 * 64 < 2**15.
LARGEST_SIGNED = 64
#: Rows a step: codes and sums of one step stay in the cache.
_ROWS, _SUMS = 1 << 13, 1 << 19
#: Fewer products than this take little more time than starting a thread.
_THREADED = 1 << 19
#: The largest number of single precision below 1.
_BELOW_ONE = np.nextafter(np.float32(1), np.float32(0))
#: How many standard deviations of a product may be lost where pairs may be missed.
_DEVIATIONS = 4
#: More than any sum, and exact as a floating-point number.
_NEVER = 1 << 30


@dataclass(frozen=True)
class CandidatePairs:
    """Pairs of a query's cell and a stored value that may be similar; parallel arrays."""

    cells: Int
    values: Int
    #: The cosine is within the error of the similarity; an error of 0 marks equal cells.
    similarities: Float
    errors: Float

    @classmethod
    def none(cls) -> CandidatePairs:
        """Return no pairs."""
        nothing, zero = np.zeros(0, np.int64), np.zeros(0, np.float32)
        return cls(nothing, nothing, zero, zero)

    @classmethod
    def concatenate(cls, parts: Sequence[CandidatePairs]) -> CandidatePairs:
        """Concatenate lists of pairs."""
        names = ("cells", "values", "similarities", "errors")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def __len__(self) -> int:
        return len(self.cells)

    def where(self, chosen: Array) -> CandidatePairs:
        """Keep some of the pairs."""
        return CandidatePairs(
            self.cells[chosen], self.values[chosen], self.similarities[chosen], self.errors[chosen]
        )

    def renumbered(self, cells: Int) -> CandidatePairs:
        """Give the cells, numbered 0, 1, 2, their numbers in the query."""
        return CandidatePairs(cells[self.cells], self.values, self.similarities, self.errors)

    def with_equal(self, numbers: Int) -> CandidatePairs:
        """Pair each cell with the value it equals, whatever its vector; -1 means there is none."""
        other = self.where(self.values != numbers[self.cells])
        # A rounded cosine may pass 1, which only equal cells have.
        other = replace(other, similarities=np.minimum(other.similarities, _BELOW_ONE))
        cells = np.flatnonzero(numbers >= 0)
        one, zero = np.ones(len(cells), np.float32), np.zeros(len(cells), np.float32)
        equal = CandidatePairs(cells, numbers[cells], one, zero)
        return CandidatePairs.concatenate([other, equal])


class Scan:
    """One pass of some queries, rotated as the rows are; the pairs name rows as values."""

    def __init__(self, turned: Float, floor: float, threads: int, proven: bool = True) -> None:
        self._turned, self._floor, self._threads = turned, floor - SLACK, threads
        # A product is off by its whole error only if what was lost points to the query. After the
        # rotation it points anywhere, so it is off by four times this once in 30,000 pairs.
        self._share = 1.0 if proven else min(1.0, _DEVIATIONS / turned.shape[1] ** 0.5)
        # One thread for each product, since `run` gives each block its thread: comparing sums with
        # their thresholds takes as long as the products, and must run in parallel as well.
        self._multiply = multiplier(1)
        self._step = float(np.abs(turned).max()) / LARGEST_SIGNED
        rounded = np.rint(turned / self._step)
        self._error = float(np.linalg.norm(turned - rounded * self._step, axis=1).max())
        self._signed: Signed = np.ascontiguousarray(rounded.astype(np.int8).T)

    def run(self, rows: VectorRows, chosen: Int | None = None) -> CandidatePairs:
        """Collect the pairs of all rows, or of some, given in ascending order."""
        size = max(256, min(_ROWS, _SUMS // len(self._turned)))
        count = rows.size if chosen is None else len(chosen)
        blocks = [slice(start, min(start + size, count)) for start in range(0, count, size)]

        if chosen is not None:
            rows.prefetch(chosen)
        signal = stop_signal()

        def scan(block: slice) -> CandidatePairs:
            signal.check()
            if chosen is None:
                rows.prefetch(block.start, size * (1 + self._threads))  # the next blocks as well
            return self._block(rows, block, None if chosen is None else chosen[block])

        found = [CandidatePairs.none()] * len(blocks)
        left = iter(range(len(blocks)))

        def scan_some() -> None:
            for number in left:  # which threads may share
                found[number] = scan(blocks[number])

        helpers = min(self._threads, len(blocks)) - 1
        if helpers < 1 or count * len(self._turned) < _THREADED:
            scan_some()
        else:
            with ThreadPoolExecutor(helpers) as pool:
                others = [pool.submit(scan_some) for _ in range(helpers)]
                scan_some()
                for other in others:
                    other.result()
        return CandidatePairs.concatenate([CandidatePairs.none(), *found])

    def products(self, codes: Codes) -> Int32:
        """Multiply rows of one scale with every query, roughly: good enough to compare."""
        return self._multiply(np.asarray(codes), self._signed)

    def _block(self, rows: VectorRows, here: slice, chosen: Int | None) -> CandidatePairs:
        rough = rows.rough(here if chosen is None else chosen)
        # The smallest sum of each row that can still mean a cosine at the floor.
        lost = self._share * (self._error + (1 + self._error) * rough.errors)
        bound = self._floor - lost
        with np.errstate(divide="ignore"):
            sums = np.floor(bound / (rough.scales * np.float32(self._step)))
        least = np.where(rough.scales > 0, np.clip(sums, -_NEVER, _NEVER), _NEVER)
        reached = self._sums(rough) >= least.astype(np.int32)[:, None]
        places, cells = np.divmod(np.flatnonzero(reached), len(self._turned))
        places = places + here.start if chosen is None else chosen[places]
        # Those that may reach the floor again, with queries and rows in full precision.
        similarities, lost = np.empty((2, len(places)), np.float32)
        for at in range(0, len(places), _ROWS):
            some = slice(at, at + _ROWS)
            full = rows.take(places[some])
            signed = full.codes.astype(np.float32) - ZERO_POINT
            found = np.einsum("ij,ij->i", signed, self._turned[cells[some]])
            similarities[some], lost[some] = found * full.scales, full.errors
        kept = similarities + self._share * lost >= self._floor
        return CandidatePairs(cells[kept], places[kept], similarities[kept], lost[kept])

    def _sums(self, rough: Rough) -> Int32:
        """Multiply rows with every query, part by part."""
        width = rough.parts[0].shape[1]
        signed = self._signed
        if len(rough.parts) * width > len(signed):  # what fills up bytes counts nothing
            signed = np.pad(signed, ((0, len(rough.parts) * width - len(signed)), (0, 0)))
        sums = self._multiply(rough.parts[0], signed[:width], rough.zero_point)
        for number, part in enumerate(rough.parts[1:], 1):
            here = slice(number * width, (number + 1) * width)
            sums += self._multiply(part, signed[here], rough.zero_point)
        if rough.offset:
            # Rounded up, so that no pair is missed.
            total = signed.sum(axis=0, dtype=np.int32)
            sums += np.ceil(rough.offset * total).astype(np.int32)
        return sums


class Multiply(Protocol):
    """Multiplies codes, row by row, with the columns of a signed matrix."""

    def __call__(self, codes: Codes, signed: Signed, zero_point: int = ...) -> Int32:
        """Return the sums of (codes - zero point) * signed."""


@cache
def multiplier(threads: int = 2) -> Multiply:
    """Return a function that multiplies codes, row by row, with the columns of a signed matrix."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Waiting threads that spin would take the time of whoever shares the machine.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    graph = multiplication_graph()
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    def multiply(codes: Codes, signed: Signed, zero_point: int = ZERO_POINT) -> Int32:
        zero = np.array(zero_point, np.uint8)
        sums: Int32 = session.run(None, {"codes": codes, "signed": signed, "zero": zero})[0]
        return sums

    return multiply


def multiplication_graph() -> bytes:
    """Write the model sums = (codes - zero) @ signed in the format of ONNX (protocol buffers)."""

    def number(field: int, value: int) -> bytes:
        return bytes([field << 3, value])

    def message(field: int, content: bytes) -> bytes:
        length = len(content)
        size = bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])
        return bytes([field << 3 | 2]) + size + content

    def text(field: int, string: str) -> bytes:
        return message(field, string.encode())

    def tensor(name: str, element: int, dimensions: int) -> bytes:
        shape = b"".join(message(1, text(2, f"{name}_{i}")) for i in range(dimensions))
        return text(1, name) + message(2, message(1, number(1, element) + message(2, shape)))

    uint8, int8, int32 = 2, 3, 6
    node = b"".join(text(1, name) for name in ("codes", "signed", "zero"))
    node += text(2, "sums") + text(4, "MatMulInteger")
    body = message(1, node) + text(2, "multiply")
    for name, element, dimensions in (("codes", uint8, 2), ("signed", int8, 2), ("zero", uint8, 0)):
        body += message(11, tensor(name, element, dimensions))
    body += message(12, tensor("sums", int32, 2))
    operators = text(1, "") + number(2, 13)
    return number(1, 7) + message(7, body) + message(8, operators)
