"""The lake: build, open, search and join over one index folder."""

from deepjoin.lake.indexing import index, open_lake
from deepjoin.lake.lake import Lake

__all__ = ["Lake", "index", "open_lake"]
