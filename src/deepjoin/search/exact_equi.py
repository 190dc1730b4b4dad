"""Exact equi-join search: the columns with the highest |Q ∩ X| / |Q|, each hit verified."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from deepjoin.catalog import Catalog
from deepjoin.columns import Column
from deepjoin.distinct import DistinctCells, distinct_cells
from deepjoin.search.overlap import Marks
from deepjoin.search.probe import Best, Probe, Rarity, Wanted, merged
from deepjoin.search.results import Brings, Hit, Results
from deepjoin.search.stopwatch import Stopwatch
from deepjoin.search.verify import QueryValues, Verified, verify
from deepjoin.segment import Segment

#: Candidates come from the postings, whichever way they are ranked.
FOUND_BY = ("exact-equi",)

#: How many matched and unmatched cells a hit lists unless told otherwise.
SHOWN = 20


class Found(NamedTuple):
    """Columns of all segments in one order; a pair is (which part, which of its columns)."""

    distinct: DistinctCells
    parts: list[Best]
    pairs: list[tuple[int, int]]


class ExactEqui:
    """Ranks by equi-joinability alone; ties by reverse coverage, rarity, name, then place."""

    def __init__(self, segments: Sequence[Segment], profile: str, key: bytes = b"") -> None:
        self._segments = [segment for segment in segments if segment.values.columns]
        self._profile, self._key = profile, key

    def search(
        self,
        query: Column,
        k: int,
        *,
        exclude_table: str | None = None,
        min_joinability: float = 0.0,
        show: int | None = SHOWN,
    ) -> Results:
        """Return the best k columns; columns that share nothing are never among them."""
        return self._search(query, Wanted(k, min_joinability, exclude_table, query.name), show)

    def search_above(
        self,
        query: Column,
        threshold: float,
        *,
        exclude_table: str | None = None,
        show: int | None = SHOWN,
    ) -> Results:
        """Return every column whose joinability reaches the threshold, best first."""
        return self._search(query, Wanted(None, threshold, exclude_table, query.name), show)

    def search_tables(
        self,
        query: Column,
        k: int | None,
        exclude_table: str | None,
        min_joinability: float,
        show: int | None,
    ) -> Results:
        """Return the best column of each of the best k tables, the table's others beside it."""
        watch = Stopwatch()
        wanted = Wanted(None, min_joinability, exclude_table, query.name)
        found = self._found(watch, query, wanted)
        tables: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for which, row in found.pairs:
            best = found.parts[which]
            owner = which, int(best.probe.segment.catalog.column_tables[best.columns[row]])
            if owner in tables or k is None or len(tables) < k:
                tables.setdefault(owner, []).append((which, row))
        chosen = found._replace(pairs=[pair for of in tables.values() for pair in of])
        hits = iter(self._hits(chosen, show))
        grouped = [[next(hits) for _ in of] for of in tables.values()]
        best_of = [replace(of[0], rank=n, also=tuple(of[1:])) for n, of in enumerate(grouped, 1)]
        return Results(_described(query, found), tuple(best_of), watch.stop("verify"))

    def _search(self, query: Column, wanted: Wanted, show: int | None) -> Results:
        watch = Stopwatch()
        found = self._found(watch, query, wanted)
        hits = self._hits(found, show)
        return Results(_described(query, found), hits, watch.stop("verify"))

    def _found(self, watch: Stopwatch, query: Column, wanted: Wanted) -> Found:
        """Look the query's values up and rank the columns that hold them."""
        distinct = distinct_cells(query.cells, self._profile, self._key)
        probes = list(self._probes(distinct))
        watch.lap("encode")
        columns = sum(segment.live_columns for segment in self._segments)
        rarity = Rarity(probes, len(distinct), columns)
        parts = [probe.best(wanted, self._demoted(probe), rarity) for probe in probes]
        parts = [part for part in parts if len(part.columns)]
        if len(parts) == 1:
            pairs = [(0, row) for row in range(len(parts[0].columns))]
        else:
            pairs = merged(parts, wanted.k) if parts else []
        watch.lap("candidates")
        return Found(distinct, parts, pairs)

    def _probes(self, distinct: DistinctCells) -> Iterator[Probe]:
        for segment in self._segments:
            values = QueryValues.of(distinct, segment.values)
            if len(values.known):
                yield Probe(segment, values)

    def _demoted(self, probe: Probe) -> Marks | None:
        """Mark the columns that rank behind all others: none, by the definition."""
        return None

    def _hits(self, found: Found, show: int | None) -> tuple[Hit, ...]:
        size = len(found.distinct)
        verified = [
            _verified(part, [row for which, row in found.pairs if which == number], show)
            for number, part in enumerate(found.parts)
        ]
        hits = []
        for rank, (which, row) in enumerate(found.pairs, 1):
            part = found.parts[which]
            catalog = part.probe.segment.catalog
            hits.append(_hit(rank, catalog, int(part.columns[row]), verified[which][row], size))
        return tuple(hits)


def _verified(part: Best, rows: list[int], show: int | None) -> dict[int, Verified]:
    """Measure the chosen columns of one segment."""
    if not rows:
        return {}
    columns = part.columns[rows]
    segment = part.probe.segment
    cells = segment.catalog.column_cells[columns].tolist()
    measured = verify(part.probe.values, segment.values, columns, cells, show)
    return dict(zip(rows, measured, strict=True))


def _described(query: Column, found: Found) -> dict[str, Any]:
    return {
        "table": query.table,
        "column": query.name,
        "cells": len(query.cells),
        "size": len(found.distinct),
    }


def _hit(rank: int, catalog: Catalog, column: int, evidence: Verified, query_size: int) -> Hit:
    return Hit(
        rank=rank,
        table=catalog.table_names[int(catalog.column_tables[column])],
        column=catalog.column_names[column],
        column_id=catalog.column_ids[column],
        type=catalog.type_name(column),
        generic=catalog.generic_name(column),
        join="equi",
        score=evidence.equi.joinability,
        equi=evidence.equi,
        query_size=query_size,
        target_size=evidence.target_size,
        cardinality=evidence.cardinality,
        matches=evidence.matches,
        unmatched=evidence.unmatched,
        found_by=FOUND_BY,
        bring=partial(_brings, catalog, column),
    )


def _brings(catalog: Catalog, column: int) -> Brings:
    return Brings(*catalog.others_and_sample(column))
