"""How vectors are to be searched in a store: by a graph, by codes, or all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from deepjoin.engines.postgres.asking import GRAPH_EFFORT
from deepjoin.engines.postgres.extension import Extension
from deepjoin.engines.postgres.schema import Part
from deepjoin.errors import DeepJoinError

#: Up to here all vectors of a segment are compared in a few milliseconds, and none is missed.
SCANNED_UP_TO = 10_000
#: Candidates that a search keeps unless told otherwise, of vectors and of codes.
_EFFORT, _CODES = 200, 1_000


@dataclass(frozen=True)
class How:
    """How vectors are to be searched there."""

    #: "hnsw", "codes", "exact", or "auto": what suits the space and the number of vectors.
    index: str = "auto"
    #: Candidates that a search keeps; None for as before, or the default.
    effort: int | None = None
    #: The most memory, in bytes, that the server may take to build a graph.
    memory: int = 1 << 30
    #: Whether a lake of this name may take the place of another one.
    replaces: bool = False

    def chosen(self, part: Part, extension: Extension) -> Part:
        """Say how a part that is new is to be searched."""
        index = _suiting(part, extension) if self.index == "auto" else self.index
        kind = "bit" if index == "codes" else part.kind
        effort = self.effort or (_CODES if index == "codes" else _EFFORT)
        return replace(part, kind=kind, indexed=index == "hnsw", effort=effort)

    def suits(self, part: Part) -> bool:
        """Tell whether a part that is there holds what is asked for."""
        return self.index == "auto" or part.coded == (self.index == "codes")

    def renewed(self, part: Part) -> Part:
        """Say how a part that is there is to be searched; what is not asked for stays."""
        indexed = part.indexed if self.index == "auto" else self.index == "hnsw"
        effort = self.effort or part.effort
        if self.effort is None and indexed and effort > GRAPH_EFFORT:
            effort = _EFFORT  # what it had was for comparing all of them
        return replace(part, indexed=indexed, effort=effort)


def _suiting(part: Part, extension: Extension) -> str:
    """Choose how a part is searched."""
    if part.vectors <= SCANNED_UP_TO:
        return "exact"
    # A model's vectors lie together where they are alike, sketches do not.
    if part.metric == "cosine" and part.space != "columns":
        return "codes"
    if part.dimension <= extension.most:
        return "hnsw"
    return "codes" if part.metric == "cosine" else "exact"


def check(part: Part, extension: Extension) -> None:
    """Refuse what neither an index of vectors nor codes can hold."""
    if part.indexed and part.dimension > extension.most:
        raise DeepJoinError(
            f"The vectors '{part.space}' have {part.dimension} dimensions, and an index of "
            f"pgvector {extension.version} takes {extension.most}. Use --ann codes or exact, "
            "leave them out with --space, or make them smaller: deepjoin index INDEX --sketch N"
        )
    if part.indexed and part.effort > GRAPH_EFFORT:
        raise DeepJoinError(
            f"effort is {part.effort}, and a search of the vectors '{part.space}' by a graph keeps "
            f"1 to {GRAPH_EFFORT} candidates. Give less, use --ann codes, or leave them out with "
            "--space."
        )
    if part.coded and part.metric != "cosine":
        raise DeepJoinError(
            f"The vectors '{part.space}' are compared by their {part.metric} distance, and "
            "codes hold angles alone. Use --ann hnsw or exact."
        )
