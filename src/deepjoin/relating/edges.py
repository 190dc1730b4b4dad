"""A proven equi-join between columns of two tables of the lake: an edge of its graph."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from deepjoin.errors import DeepJoinError
from deepjoin.relating.partners import cardinality
from deepjoin.store.numbering import Numbering


@dataclass(frozen=True)
class End:
    """One end of an edge."""

    table: str
    column: str


@dataclass(frozen=True)
class Edge:
    """Two columns that join, and how well: the share of each one's distinct values in the other."""

    a: End
    b: End
    #: Share of the values of ``a`` found in ``b``, and of ``b`` found in ``a``.
    joinability: float
    reverse: float
    matched: int
    #: How many rows of ``a`` and of ``b`` meet on what is shared: 1:1, 1:n, n:1 or n:m.
    cardinality: str

    def to_dict(self) -> dict[str, Any]:
        """Give the edge as the JSON of the command line and the service."""
        return asdict(self)


def edge(lake: Numbering, a: int, b: int, matched: int) -> Edge:
    """Describe the join of two columns that share so many values."""
    shares = matched / int(lake.sizes[a]), matched / int(lake.sizes[b])
    return Edge(_end(lake, a), _end(lake, b), *shares, matched, cardinality(lake, a, b))


def _end(lake: Numbering, column: int) -> End:
    return End(lake.table_name(int(lake.tables[column])), lake.column_name(column))


def check_share(least: float) -> None:
    """Refuse what is no threshold: every two columns have a joinability of 0."""
    if not 0 < least <= 1:
        raise DeepJoinError(
            f"min_joinability is {least}; it is a share above 0 and at most 1, such as 0.5."
        )
