"""Vectors on disk and their Faiss indexes: built for a segment, opened by mapping, searched."""

from deepjoin.vectors.build import build_vectors, index_rows
from deepjoin.vectors.index import VectorIndex
from deepjoin.vectors.kinds import KINDS, METRICS

__all__ = ["KINDS", "METRICS", "VectorIndex", "build_vectors", "index_rows"]
