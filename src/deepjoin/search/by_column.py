"""The methods that look at one vector a column: the paper's, sketches, and all in one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from deepjoin.embed.columns.base import ColumnEncoder
from deepjoin.model import Column
from deepjoin.search.ground import Ground
from deepjoin.search.vector_search import ToVector, VectorSearcher
from deepjoin.store.column_vectors.columns import About
from deepjoin.store.column_vectors.encode import both_about, both_query, meaning_about
from deepjoin.store.column_vectors.sketch import Meaning, Sketcher, sketch_digest

Float = npt.NDArray[np.float32]


def deepjoin(ground: Ground, join: str, tau: float | None) -> VectorSearcher:
    """Search by the model's vector of the column's text: the paper's system."""
    return _by_columns(ground, join, "deepjoin", "")


def encoded_by(ground: Ground, join: str, tau: float | None, kind: str) -> VectorSearcher:
    """Search by the column vectors of an encoder of another kind."""
    return _by_columns(ground, join, kind, kind)


def _by_columns(ground: Ground, join: str, method: str, kind: str) -> VectorSearcher:
    encoder = ground.column_encoder(method, kind)
    return _searcher(ground, join, "columns", method, _encoded(ground, encoder), _about(encoder))


def sketch(ground: Ground, join: str, tau: float | None) -> VectorSearcher:
    """Search by cells alone, summed up in one vector a column."""
    return _searcher(ground, join, "sketch", "sketch", _sketcher(ground), _sketched(ground))


def deepjoin_sketch(ground: Ground, join: str, tau: float | None) -> VectorSearcher:
    """Search by the model's vector, the sketch and what the cells mean as one vector."""
    encoder = ground.column_encoder("deepjoin-sketch")
    cells = ground.cell_encoder() if ground.has_cells else None
    encoded, sketcher = _encoded(ground, encoder), _sketcher(ground)
    meaning, meant = None, None
    if cells is not None:
        meaning = Meaning(ground.segments, ground.frequency(), cells, ground.profile)
        meant = meaning_about(cells.digest, cells.dimension)
    kind = "semantic" if join == "semantic" else "equi"

    def vector(query: Column) -> Float:
        means = None if meaning is None else meaning(query)[None]
        both = both_query(encoded(query)[None], sketcher(query)[None], kind, means)
        return np.asarray(both[0], np.float32)

    about = both_about(_about(encoder), _sketched(ground), meant)
    return _searcher(ground, join, "both", "deepjoin-sketch", vector, about)


def _encoded(ground: Ground, encoder: ColumnEncoder) -> ToVector:
    frequency = ground.frequency()
    return lambda query: encoder.encode_query(query, frequency)


def _sketcher(ground: Ground) -> Sketcher:
    dimension = ground.sketch_dimension()
    return Sketcher(ground.segments, ground.frequency(), dimension, ground.profile, ground.key)


def _about(encoder: ColumnEncoder) -> About:
    return About(encoder.name, encoder.digest, encoder.dimension)


def _sketched(ground: Ground) -> About:
    dimension = ground.sketch_dimension()
    return About("sketch", sketch_digest(dimension), dimension)


def _searcher(
    ground: Ground, join: str, space: str, method: str, vector: ToVector, about: About
) -> VectorSearcher:
    return VectorSearcher(
        *(ground.segments, space, vector, ground.profile, ground.key),
        method=method,
        join="equi" if join == "any" else join,
        about=(about.name, about.digest),
        location=ground.location,
        remedy=ground.remedy(space),
        # Without cell vectors, the evidence of a semantic join is that of equal cells.
        encoder=ground.cell_encoder() if join == "semantic" and ground.has_cells else None,
        store=ground.store,
    )
