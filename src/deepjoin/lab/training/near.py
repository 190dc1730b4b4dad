"""Which values mean the same, and how likely: from their vectors, on a GPU if there is one.

Without a GPU one scan of 8-bit vectors finds every value that can be near, which is then decided
with the vectors themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deepjoin.embed.cells import CellEncoder
from deepjoin.embed.cells.score import match_chance
from deepjoin.errors import DeepJoinError
from deepjoin.lab.training.columns import Int, TrainingColumns
from deepjoin.lab.training.self_join import Told, unheard
from deepjoin.matching.joinability import ONE, least
from deepjoin.matching.similar import SimilarValues
from deepjoin.normalise.canonical import canonical_array

Float = npt.NDArray[np.float32]
#: Places of values in a list, the values near each, and their cosines.
Found = tuple[Int, Int, Float]

#: Values compared with all others at a time, without a GPU and with one.
_ASKED, _ASKED_OF_GPU = 1024, 4096
#: Cosines a GPU holds at a time.
_PRODUCTS = 1 << 32
#: Near values kept of one value: one that has more tells nothing.
_MOST = 64


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
    """Finds the values whose cosine with some others reaches a floor, the nearest of each."""

    def __init__(self, vectors: Float, floor: float, threads: int = 2) -> None:
        self._vectors, self._least = vectors, least(floor)
        self._similar = SimilarValues(vectors, eight_bit=True, threads=threads)

    def to(self, asked: Int) -> Found:
        """Find the nearest values of each one asked about."""
        rows = np.asarray(self._vectors[asked], np.float32)
        found = self._similar.nearest(rows, _MOST, self._least)
        return found.mine, found.theirs, (found.similarities / ONE).astype(np.float32)
