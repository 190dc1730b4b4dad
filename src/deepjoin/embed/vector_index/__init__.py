"""Vectors on disk and their Faiss indexes: built for a segment, opened by mapping, searched."""

from deepjoin.embed.vector_index.build import build_vectors, index_rows
from deepjoin.embed.vector_index.index import Nearest, VectorIndex
from deepjoin.embed.vector_index.kinds import KINDS, METRICS

__all__ = ["KINDS", "METRICS", "Nearest", "VectorIndex", "build_vectors", "index_rows"]
