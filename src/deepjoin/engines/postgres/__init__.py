"""Where column vectors are searched: in the index itself, or in PostgreSQL with pgvector."""

from deepjoin.search.stores import EmbeddedStore, OpenStore, VectorStore

__all__ = ["EmbeddedStore", "OpenStore", "VectorStore"]
