"""MinHash signatures of all columns of a lake at once, the same that datasketch computes.

A signature of a set is, for each of some permutations of all hashes, the smallest hash of its
values; the share of equal places of two signatures estimates the Jaccard similarity.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepjoin.errors import MissingExtra
from deepjoin.normalise.hashing import hash_values
from deepjoin.store.segment import Segment

Hashes = npt.NDArray[np.uint32]
Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]

#: Places of a signature, as many as datasketch has by default, and what permutes them.
PLACES, SEED = 128, 1
#: datasketch's name for permutations of 32 bits by odd factors.
SCHEME = "affine32"
#: Cells hashed at a time: what a processor's cache holds.
_CELLS = 1 << 18


@dataclass(frozen=True)
class Permutations:
    """The permutations h -> factor * h + term of 32-bit hashes, wrapping around."""

    factors: Hashes
    terms: Hashes

    @classmethod
    def of_datasketch(cls) -> Permutations:
        """Take those of a MinHash of datasketch, so that its own objects fit."""
        try:
            from datasketch import MinHash
        except ImportError:
            raise MissingExtra(
                "Method 'lsh-ensemble' needs datasketch: pip install 'deepjoin[baselines]'"
            ) from None
        return cls(*MinHash(PLACES, SEED, scheme=SCHEME).permutations)

    def signature(self, values: Sequence[str]) -> Hashes:
        """Sign one set of distinct values."""
        return np.asarray(self.minima(mixed(hash_values(values)), np.zeros(1, np.int64))[0])

    def minima(self, cells: Hashes, starts: Int) -> Hashes:
        """Give the smallest hashes of the sets that start at some cells, a row for each."""
        found = np.empty((len(self.factors), len(starts)), np.uint32)
        permuted = np.empty_like(cells)
        for place, (factor, term) in enumerate(zip(self.factors, self.terms, strict=True)):
            np.multiply(cells, factor, out=permuted)
            np.add(permuted, term, out=permuted)
            np.minimum.reduceat(permuted, starts, out=found[place])
        return found.T


def mixed(hashes: npt.NDArray[np.uint64]) -> Hashes:
    """Shorten hashes to 32 bits and mix these, as this scheme of datasketch does."""
    short = hashes.astype(np.uint32)
    short ^= short >> np.uint32(16)
    short *= np.uint32(0x85EBCA6B)
    short ^= short >> np.uint32(13)
    short *= np.uint32(0xC2B2AE35)
    short ^= short >> np.uint32(16)
    return short


def sign_columns(
    segment: Segment, permutations: Permutations, rows: Int, signatures: Hashes
) -> None:
    """Write the signature of each column of a segment into its row; -1 is for none."""
    index = segment.values
    hashes, offsets = mixed(np.asarray(index.hashes)), np.asarray(index.column_offsets)
    for first, last in _blocks(offsets):
        cells = hashes[index.cell_values[offsets[first] : offsets[last]]]
        # No column of a lake is empty.
        found = permutations.minima(cells, offsets[first:last] - offsets[first])
        kept = rows[first:last] >= 0
        signatures[rows[first:last][kept]] = found[kept]


def _blocks(offsets: Int) -> Iterator[tuple[int, int]]:
    """Cut columns into runs of so many cells; a larger column is a run of its own."""
    first, columns = 0, len(offsets) - 1
    while first < columns:
        last = int(np.searchsorted(offsets, offsets[first] + _CELLS, side="right")) - 1
        last = max(first + 1, last)
        yield first, last
        first = last


def containment(signature: Hashes, size: int, signatures: Hashes, sizes: Int) -> Float:
    """Estimate the share of a set of this size that each of some others holds."""
    jaccard = (signatures == signature).sum(axis=1) / len(signature)
    shared = jaccard * (size + sizes) / (1 + jaccard)
    return np.asarray(np.minimum(shared, np.minimum(size, sizes)) / size)
