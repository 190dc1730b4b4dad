"""What a search returns: hits with their evidence, as objects, JSON and Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, overload

if TYPE_CHECKING:
    import pyarrow as pa


class Match(NamedTuple):
    """A cell of the query and the cell of the target it meets, both as their tables spell them."""

    query: str
    target: str
    similarity: float = 1.0


class EquiEvidence(NamedTuple):
    """What was measured of the equi-join of two columns."""

    #: Share of the query's distinct values found in the target, and the other way round.
    joinability: float
    reverse: float
    matched: int
    #: Rows of the inner join, and that number over |Q| times |X| with duplicates.
    join_size: int
    multiset: float


class SemanticEvidence(NamedTuple):
    """What was measured of the semantic join of two columns; equal cells match as well."""

    #: Share of the query's distinct values with a match in the target, and the other way round.
    joinability: float
    reverse: float
    matched: int
    #: The cosine that makes two cells match.
    tau: float


@dataclass(frozen=True)
class Brings:
    """What joining the hit would add: the target's other columns and its first rows."""

    columns: tuple[str, ...]
    sample: tuple[dict[str, str | None], ...]


@dataclass(frozen=True)
class Hit:
    """A column of the lake that joins with the query, and why."""

    rank: int
    table: str
    column: str
    column_id: str
    type: str
    #: Empty, or why the key says little: "run" (1..n), "year" or "flag".
    generic: str
    join: str
    #: What the method ranks by; for most it is the joinability.
    score: float
    #: The joinability of the join kind that was asked for.
    joinability: float
    equi: EquiEvidence
    #: None where cells are compared as strings alone.
    semantic: SemanticEvidence | None
    query_size: int
    target_size: int
    cardinality: str
    matches: tuple[Match, ...]
    unmatched: tuple[str, ...]
    found_by: tuple[str, ...]
    #: Reads `brings` from the index when it is asked for; a wide table's is large.
    bring: Callable[[], Brings] = field(repr=False, compare=False)
    #: Other columns of the same table that match too, when hits are grouped by table.
    also: tuple[Hit, ...] = ()

    @property
    def matched(self) -> int:
        """How many of the query's distinct values have a match, equal or similar."""
        return self.equi.matched if self.semantic is None else self.semantic.matched

    @property
    def reverse(self) -> float:
        """Share of the target's distinct values that have a match in the query."""
        return self.equi.reverse if self.semantic is None else self.semantic.reverse

    @cached_property
    def brings(self) -> Brings:
        """What the join would add."""
        return self.bring()

    def to_dict(self) -> dict[str, Any]:
        """Give the hit as the JSON of the command line and the service."""
        semantic = None if self.semantic is None else self.semantic._asdict()
        return {
            "rank": self.rank,
            "table": self.table,
            "column": self.column,
            "column_id": self.column_id,
            "type": self.type,
            "generic": self.generic or None,
            "join": self.join,
            "score": self.score,
            "joinability": self.joinability,
            "equi": self.equi._asdict(),
            "semantic": semantic,
            "query_size": self.query_size,
            "target_size": self.target_size,
            "cardinality": self.cardinality,
            "matches": [match._asdict() for match in self.matches],
            "unmatched": list(self.unmatched),
            "found_by": list(self.found_by),
            "brings": {"columns": list(self.brings.columns), "sample": list(self.brings.sample)},
            **({"also": [hit.to_dict() for hit in self.also]} if self.also else {}),
        }

    def _repr_html_(self) -> str:
        from deepjoin.show.cards import hit_html

        return hit_html(self)


@dataclass(frozen=True)
class Results(Sequence[Hit]):
    """The hits of one query, best first."""

    query: dict[str, Any]
    hits: tuple[Hit, ...]
    seconds: dict[str, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.hits)

    @overload
    def __getitem__(self, i: int) -> Hit: ...
    @overload
    def __getitem__(self, i: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, i: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[i]

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def to_dict(self) -> dict[str, Any]:
        """Give the results as the JSON of the command line and the service."""
        hits = [hit.to_dict() for hit in self.hits]
        return {"query": self.query, "hits": hits, "seconds": self.seconds}

    def to_arrow(self) -> pa.Table:
        """Give the hits as an Arrow table, one row a hit, evidence as its own columns."""
        import pyarrow as pa

        return pa.Table.from_pylist([flat_row(hit) for hit in self.hits], _flat_schema())

    def to_pandas(self) -> Any:
        """Give the hits as a pandas data frame."""
        return self.to_arrow().to_pandas()

    def __repr__(self) -> str:
        from deepjoin.show.render import render_table

        return render_table(self)

    def _repr_html_(self) -> str:
        from deepjoin.show.cards import results_html

        return results_html(self)


#: The fields of a flat row, in order.
FLAT = (
    *("rank", "table", "column", "column_id", "type", "generic", "join", "score"),
    *("joinability", "query_size", "target_size", "cardinality"),
    *("reverse", "matched", "join_size", "multiset"),
    *("equi_joinability", "semantic_joinability", "found_by"),
)


def flat_row(hit: Hit) -> dict[str, Any]:
    """Flatten a hit to one level, as CSV and Arrow want it."""
    found = {name: getattr(hit, name, None) for name in FLAT}
    return found | {
        "generic": hit.generic or None,
        "join_size": hit.equi.join_size,
        "multiset": hit.equi.multiset,
        "equi_joinability": hit.equi.joinability,
        "semantic_joinability": None if hit.semantic is None else hit.semantic.joinability,
        "found_by": ",".join(hit.found_by),
    }


_TEXT = ("table", "column", "column_id", "type", "generic", "join", "cardinality", "found_by")
_REAL = (
    *("score", "joinability", "reverse", "multiset"),
    *("equi_joinability", "semantic_joinability"),
)


def _flat_schema() -> pa.Schema:
    import pyarrow as pa

    kinds = dict.fromkeys(_TEXT, pa.string()) | dict.fromkeys(_REAL, pa.float64())
    return pa.schema([(name, kinds.get(name, pa.int64())) for name in FLAT])
