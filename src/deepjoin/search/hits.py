"""Hits made of what was measured: who it is, how well it joins, what it would bring."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from deepjoin.model import Brings, Hit, Match, SemanticEvidence
from deepjoin.search.verify import Verified
from deepjoin.store.catalog import Catalog


@dataclass(frozen=True)
class Judged:
    """How a method ranked a column, and what it measured beside the equi-join."""

    join: str
    score: float
    joinability: float
    found_by: tuple[str, ...]
    semantic: SemanticEvidence | None = None
    #: Matches by meaning and what has none; None leaves those of the equi-join.
    matches: tuple[Match, ...] | None = None
    unmatched: tuple[str, ...] = ()


def hit(
    rank: int, catalog: Catalog, column: int, query_size: int, measured: Verified, judged: Judged
) -> Hit:
    """Put together all that is known of one column as an answer to one query."""
    of_equi = judged.matches is None
    return Hit(
        rank=rank,
        table=catalog.table_names[int(catalog.column_tables[column])],
        column=catalog.column_names[column],
        column_id=catalog.column_ids[column],
        type=catalog.type_name(column),
        generic=catalog.generic_name(column),
        join=judged.join,
        score=judged.score,
        joinability=judged.joinability,
        equi=measured.equi,
        semantic=judged.semantic,
        query_size=query_size,
        target_size=measured.target_size,
        cardinality=measured.cardinality,
        matches=measured.matches if judged.matches is None else judged.matches,
        unmatched=measured.unmatched if of_equi else judged.unmatched,
        found_by=judged.found_by,
        bring=partial(_brings, catalog, column),
    )


def _brings(catalog: Catalog, column: int) -> Brings:
    return Brings(*catalog.others_and_sample(column))
