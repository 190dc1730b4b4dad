"""`deepjoin.publish`: the column vectors of an index, copied to where they are to be searched."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from deepjoin.build.build import Progress, no_progress
from deepjoin.engines.postgres.asking import GRAPH_EFFORT
from deepjoin.engines.postgres.connections import Server, addresses
from deepjoin.engines.postgres.how import How
from deepjoin.engines.postgres.pieces import Piece
from deepjoin.engines.postgres.publish import Published
from deepjoin.engines.postgres.publish import publish as publish_pieces
from deepjoin.engines.postgres.publish import withdraw as withdraw_lake
from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.indexing import DEFAULT, open_lake
from deepjoin.lake import Lake
from deepjoin.search.vector_search import opened_vectors
from deepjoin.store.column_vectors.columns import SPACES, ColumnVectors

INDEXES = ("auto", "hnsw", "codes", "exact")
#: The most candidates that a search by codes keeps.
_CODES_EFFORT = 100_000


def publish(
    lake: Lake | str | os.PathLike[str],
    vector_store: str | Sequence[str],
    *,
    name: str | None = None,
    spaces: Sequence[str] | None = None,
    index: str = "auto",
    effort: int | None = None,
    memory: int = 1 << 30,
    replace: bool = False,
    progress: Progress | None = None,
) -> Published:
    """Copy the column vectors of an index to PostgreSQL; again, only what is new.

    Parameters
    ----------
    lake
        An open lake, or where its index is.
    vector_store
        The address of a PostgreSQL database with pgvector; of several, each gets a share.
    name
        What the lake is called there, to tell it from others; its folder's name. Two lakes that
        are found under the same path on different machines need different names.
    spaces
        Which vectors: "columns", "sketch" and "both"; all that the index has.
    index
        "hnsw" for a graph of vectors, "codes" to compare bits in their place, "exact" to compare
        all of them; "auto" for what suits the space and the number of vectors.
    effort
        How many candidates a search keeps, of a graph up to 1,000; more find better and take
        longer.
    memory
        The most bytes that a server may take to build a graph.
    replace
        Let it take the place of another lake of its name.
    progress
        Called with (done, of how many, what).
    """
    if index not in INDEXES:
        raise unknown_name("vector index", index, "a vector store", INDEXES)
    most = GRAPH_EFFORT if index == "hnsw" else _CODES_EFFORT
    if effort is not None and not 1 <= effort <= most:
        raise DeepJoinError(f"effort is {effort}; a search keeps 1 to {most} candidates.")
    lake = lake if isinstance(lake, Lake) else open_lake(lake)
    servers = [Server(url) for url in addresses(vector_store)]
    pieces = _pieces(lake, spaces)
    how = How(index, effort, memory, replace)
    location = str(lake.url or lake.path.resolve())
    called = (lake_name(lake) if name is None else name, location)
    return publish_pieces(servers, called, pieces, how, progress or no_progress)


def withdraw(vector_store: str | Sequence[str], name: str) -> int:
    """Take a lake out of a vector store; returns how many tables were dropped there.

    Of several servers, those without the lake are left as they are.
    """
    return withdraw_lake([Server(url) for url in addresses(vector_store)], name)


def lake_name(lake: Lake) -> str:
    """Name a lake after the folder of its index, or the one that has it inside."""
    if lake.url:
        return lake.url.rstrip("/").rpartition("/")[2]
    folder = Path(lake.path).resolve()
    return folder.parent.name if folder.name == DEFAULT else folder.name


def _pieces(lake: Lake, spaces: Sequence[str] | None) -> list[Piece]:
    """List the vectors there are; of a space that was asked for, or begun, all must be there."""
    segments = [segment for segment in lake.segments if segment.values.columns]
    for space in spaces or ():
        if space not in SPACES:
            raise unknown_name("space", space, "an index", SPACES)
    chosen = spaces or [
        space
        for space in SPACES
        if any(ColumnVectors.open(segment.folder, space) for segment in segments)
    ]
    if not chosen:
        chosen = SPACES[:1]  # which are asked for, and found to be missing
    return [
        Piece(segment.folder.name, space, one)
        for space in chosen
        for segment, one in zip(
            segments, opened_vectors(segments, space, location=lake.location), strict=True
        )
    ]
