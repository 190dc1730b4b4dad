"""Similar values and the probability that they match, from their vectors.

On a GPU all cosines are computed in half precision. On the CPU a scan of 8-bit vectors finds the
candidates, which are then verified with the vectors themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from deepjoin.arrays import Float, Int
from deepjoin.embed.cells import CellEncoder, match_chance
from deepjoin.errors import DeepJoinError
from deepjoin.lab.training.columns import TrainingColumns
from deepjoin.matching.joinability import ONE, least
from deepjoin.matching.similar import SimilarValues
from deepjoin.normalise.canonical import canonical_array
from deepjoin.progress import Progress, no_progress

#: Places of values in a list, the values near each, and their cosines.
Neighbours = tuple[Int, Int, Float]

#: Values compared with all others at a time, on the CPU and on a GPU.
_ON_CPU, _ON_GPU = 1024, 4096
#: Cosines a GPU holds at a time.
_PRODUCTS = 1 << 32
#: Near values kept of one value; a value with more of them carries no information.
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
    vectors: Float, floor: float, tau: float, device: str = "cpu", progress: Progress = no_progress
) -> Any:
    """Return the sparse matrix of values and the probabilities that they mean the same.

    The probability is 1 for a value and itself, one half at a cosine of tau, and 0 below the
    floor, which is less than tau.
    """
    from scipy.sparse import csr_array

    # Cosines are whole millionths, and so are the bounds: at tau itself values match.
    floor, tau = (least(bound) / ONE for bound in (floor, tau))
    if not 0 < floor < tau <= 1:
        raise DeepJoinError(
            f"`tau` is {tau}, the floor of the cell encoder {floor}; 0 < floor < tau <= 1 is "
            "allowed. Give a `tau` such as 0.7."
        )
    if vectors.ndim != 2:
        raise DeepJoinError(f"Vectors of shape {vectors.shape} came. Give one row for each value.")
    find = _on_gpu if device.startswith("cuda") else _on_cpu
    size = len(vectors)
    found = [(np.arange(size), np.arange(size), np.ones(size, np.float32))]
    for block, (places, others, cosines) in find(vectors, floor, device):
        others_only = places + block.start != others
        places = places[others_only] + block.start
        found.append((places, others[others_only], cosines[others_only]))
        progress(block.stop, size, "values compared")
    places, others, cosines = (np.concatenate(parts) for parts in zip(*found, strict=True))
    chances = np.where(places == others, 1, match_chance(cosines, floor, tau))
    return csr_array((chances.astype(np.float32), (places, others)), shape=(size, size))


def _blocks(size: int, length: int) -> Iterator[range]:
    return (range(start, min(start + length, size)) for start in range(0, size, length))


def _on_gpu(vectors: Float, floor: float, device: str) -> Iterator[tuple[range, Neighbours]]:
    """Compare in half precision: cosines are off by a thousandth."""
    import torch

    rows = torch.from_numpy(vectors).to(device, torch.float16)
    for block in _blocks(len(rows), min(_ON_GPU, max(1, _PRODUCTS // len(rows)))):
        products = rows[block.start : block.stop] @ rows.T
        cosines, others = products.topk(min(_MOST, len(rows)))
        place, rank = torch.nonzero(cosines >= floor, as_tuple=True)
        chosen = (place, others[place, rank], cosines[place, rank].float())
        places, values, near = (one.cpu().numpy() for one in chosen)
        yield block, (places, values, near)


def _on_cpu(vectors: Float, floor: float, device: str) -> Iterator[tuple[range, Neighbours]]:
    similar = SimilarValues(vectors, eight_bit=True, threads=2)
    for block in _blocks(len(vectors), _ON_CPU):
        rows = np.asarray(vectors[block.start : block.stop], np.float32)
        found = similar.nearest(rows, _MOST, least(floor))
        yield block, (found.mine, found.theirs, (found.similarities / ONE).astype(np.float32))
