"""Which values mean the same, and how likely: from their vectors, on a GPU if there is one.

Without a GPU one scan of 8-bit vectors finds every value that can be near, which is then decided
with the vectors themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deepjoin.embed.cells import CellEncoder
from deepjoin.embed.cells.score import match_chance
from deepjoin.errors import DeepJoinError
from deepjoin.lab.training.columns import Int, TrainingColumns
from deepjoin.lab.training.self_join import Told, unheard
from deepjoin.matching.joinability import ONE, least, similarities
from deepjoin.normalise.canonical import canonical_array

if TYPE_CHECKING:
    from deepjoin.embed.scan import Rows

Float = npt.NDArray[np.float32]
#: Places of values in a list, the values near each, and their cosines.
Found = tuple[Int, Int, Float]

#: Values compared with all others at a time, without a GPU and with one.
_ASKED, _ASKED_OF_GPU = 1024, 4096
#: Cosines a GPU holds at a time.
_PRODUCTS = 1 << 32
#: Near values kept of one value: one that has more tells nothing.
_MOST = 64
#: Vectors rounded, and pairs of vectors multiplied, at a time.
_VECTORS = 1 << 16


def value_vectors(
    columns: TrainingColumns, encoder: CellEncoder, profile: str = "default"
) -> Float:
    """Encode each value once, in the form a lake of this profile compares it."""
    values, places = np.unique(columns.values, return_index=True)
    vectors = np.zeros((values.max(initial=-1) + 1, encoder.dimension), np.float32)
    cells = columns.cells.take(pa.array(places))
    vectors[values] = encoder.encode(canonical_array(cells, profile))
    return vectors


def near_values(
    vectors: Float, floor: float, tau: float, device: str = "cpu", told: Told = unheard
) -> Any:
    """Return the sparse matrix of values and the chances that they mean the same.

    A value has a chance of 1 with itself, one half with others whose cosine is tau, and none
    with those below the floor, which is less than tau.
    """
    from scipy.sparse import csr_array

    # Cosines are whole millionths, and so are the bounds: at tau itself values match.
    floor, tau = (least(bound) / ONE for bound in (floor, tau))
    _check(vectors, floor, tau)
    find = _on_gpu if device.startswith("cuda") else _by_scan
    size = len(vectors)
    found = [(np.arange(size), np.arange(size), np.ones(size, np.float32))]
    for asked, (places, others, cosines) in find(vectors, floor, device):
        others_only = places + asked.start != others
        places = places[others_only] + asked.start
        found.append((places, others[others_only], cosines[others_only]))
        told(asked.stop, size, "values compared")
    places, others, cosines = (np.concatenate(parts) for parts in zip(*found, strict=True))
    chances = np.where(places == others, 1, match_chance(cosines, floor, tau))
    return csr_array((chances.astype(np.float32), (places, others)), shape=(size, size))


def _check(vectors: Float, floor: float, tau: float) -> None:
    if not 0 < floor < tau <= 1:
        raise DeepJoinError(
            f"The cosine bound tau is {tau}, the floor {floor}; 0 < floor < tau <= 1 is allowed. "
            "Give a --tau such as 0.7."
        )
    if vectors.ndim != 2:
        raise DeepJoinError(f"Vectors of shape {vectors.shape} came. Give one row for each value.")


def _parts(size: int, length: int) -> Iterator[range]:
    return (range(start, min(start + length, size)) for start in range(0, size, length))


def _on_gpu(vectors: Float, floor: float, device: str) -> Iterator[tuple[range, Found]]:
    """Compare in half precision: cosines are off by a thousandth."""
    import torch

    rows = torch.from_numpy(vectors).to(device, torch.float16)
    for asked in _parts(len(rows), min(_ASKED_OF_GPU, max(1, _PRODUCTS // len(rows)))):
        products = rows[asked.start : asked.stop] @ rows.T
        cosines, others = products.topk(min(_MOST, len(rows)))
        place, rank = torch.nonzero(cosines >= floor, as_tuple=True)
        chosen = (place, others[place, rank], cosines[place, rank].float())
        places, values, near = (one.cpu().numpy() for one in chosen)
        yield asked, (places, values, near)


def _by_scan(vectors: Float, floor: float, device: str) -> Iterator[tuple[range, Found]]:
    near = NearValues(vectors, floor)
    for asked in _parts(len(vectors), _ASKED):
        yield asked, near.to(np.array(asked))


class NearValues:
    """Finds all values whose cosine with some others reaches a floor."""

    def __init__(self, vectors: Float, floor: float, threads: int = 2) -> None:
        from deepjoin.embed.quantised import new_rotation

        self._vectors, self._floor, self._threads = vectors, floor, threads
        self._rotation = new_rotation(vectors.shape[1])
        self._rows = self._rounded()

    def _rounded(self) -> Rows:
        from deepjoin.embed.quantised import quantised
        from deepjoin.embed.scan import Rows

        starts = range(0, max(1, len(self._vectors)), _VECTORS)
        some = (self._vectors[start : start + _VECTORS] for start in starts)
        parts = [quantised(rows, self._rotation) for rows in some]
        return Rows(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def to(self, asked: Int) -> Found:
        """Find the nearest values of each one asked about."""
        places, values = self._possible(asked)
        cosines = self._cosines(asked[places], values)
        order = np.lexsort((values, -cosines, places))
        order = order[cosines[order] >= self._floor]
        starts = np.flatnonzero(np.diff(places[order], prepend=-1))
        rank = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
        kept = order[rank < _MOST]
        return places[kept], values[kept], cosines[kept]

    def _possible(self, asked: Int) -> tuple[Int, Int]:
        from deepjoin.embed.quantised import rotated
        from deepjoin.embed.scan import Scan

        vectors = np.asarray(self._vectors[asked], np.float32)
        there = np.flatnonzero(vectors.any(axis=1))
        if len(there) == 0:
            return there, there
        turned = rotated(vectors[there], self._rotation)
        pairs = Scan(turned, self._floor, self._threads).run(self._rows)
        return there[pairs.cells], np.asarray(pairs.values, np.int64)

    def _cosines(self, some: Int, others: Int) -> Float:
        cosines = np.zeros(len(some), np.float32)
        for start in range(0, len(some), _VECTORS):
            here = slice(start, start + _VECTORS)
            products = similarities(self._vectors[some[here]], self._vectors[others[here]])
            cosines[here] = products / ONE
        return cosines
