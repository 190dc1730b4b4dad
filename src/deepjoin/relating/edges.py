"""A proven equi-join between columns of two tables of the lake: an edge of its graph."""

from __future__ import annotations

from deepjoin.errors import DeepJoinError
from deepjoin.model import ColumnPlace, JoinEdge
from deepjoin.relating.partners import cardinality
from deepjoin.store.numbering import Numbering


def edge(lake: Numbering, a: int, b: int, matched: int) -> JoinEdge:
    """Describe the join of two columns that share so many values."""
    shares = matched / int(lake.sizes[a]), matched / int(lake.sizes[b])
    return JoinEdge(_end(lake, a), _end(lake, b), *shares, matched, cardinality(lake, a, b))


def _end(lake: Numbering, column: int) -> ColumnPlace:
    return ColumnPlace(lake.table_name(int(lake.tables[column])), lake.column_name(column))


def check_share(least: float) -> None:
    """Refuse what is no threshold: every two columns have a joinability of 0."""
    if not 0 < least <= 1:
        raise DeepJoinError(
            f"min_joinability is {least}; it is a share above 0 and at most 1, such as 0.5."
        )
