"""Copy the column vectors of an index to PostgreSQL, where searches may ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deepjoin.engines.postgres.asking import GRAPH_EFFORT
from deepjoin.engines.postgres.connections import Server, addresses
from deepjoin.engines.postgres.how import How
from deepjoin.engines.postgres.pieces import Piece
from deepjoin.engines.postgres.publish import Published
from deepjoin.engines.postgres.publish import publish as publish_pieces
from deepjoin.engines.postgres.publish import withdraw as withdraw_lake
from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.progress import Progress
from deepjoin.search.vectors import opened_vectors
from deepjoin.settings import PublishSettings
from deepjoin.store.column_vectors.columns import SPACES, ColumnVectors
from deepjoin.store.manifest import DEFAULT
from deepjoin.store.open_index import OpenIndex

INDEXES = ("auto", "hnsw", "codes", "exact")
#: The most candidates that a search by codes keeps.
_CODES_EFFORT = 100_000


def publish_index(
    opened: OpenIndex,
    vector_store: str | Sequence[str],
    *,
    name: str | None,
    spaces: Sequence[str] | None,
    replace: bool,
    settings: PublishSettings,
    progress: Progress,
) -> Published:
    """Copy the column vectors of an open index to PostgreSQL; again, only what is new."""
    index, effort = settings.index, settings.effort
    if index not in INDEXES:
        raise unknown_name("vector index", index, "a vector store", INDEXES)
    most = GRAPH_EFFORT if index == "hnsw" else _CODES_EFFORT
    if effort is not None and not 1 <= effort <= most:
        raise DeepJoinError(f"`effort` is {effort}; a search keeps 1 to {most} candidates.")
    servers = [Server(url) for url in addresses(vector_store)]
    pieces = _pieces(opened, spaces)
    how = How(index, effort, settings.memory, replace)
    location = str(opened.url or opened.path.resolve())
    called = (lake_name(opened) if name is None else name, location)
    return publish_pieces(servers, called, pieces, how, progress)


def withdraw(vector_store: str | Sequence[str], name: str) -> int:
    """Take a lake out of a vector store; returns how many tables were dropped there.

    Of several servers, those without the lake are left as they are.
    """
    return withdraw_lake([Server(url) for url in addresses(vector_store)], name)


def lake_name(lake: OpenIndex) -> str:
    """Name a lake after the folder of its index, or the one that has it inside."""
    if lake.url:
        return lake.url.rstrip("/").rpartition("/")[2]
    folder = Path(lake.path).resolve()
    return folder.parent.name if folder.name == DEFAULT else folder.name


def _pieces(lake: OpenIndex, spaces: Sequence[str] | None) -> list[Piece]:
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
