"""Exact equi-join search: the columns with the highest |Q ∩ X| / |Q|, each hit verified."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from deepjoin.catalog import Catalog
from deepjoin.columns import Column
from deepjoin.distinct import distinct_cells
from deepjoin.search.overlap import Overlap
from deepjoin.search.ranking import Key, best_rows, name_similarity
from deepjoin.search.results import Brings, Hit, Results
from deepjoin.search.stopwatch import Stopwatch
from deepjoin.search.verify import QueryValues, Verified, verify
from deepjoin.values.index import ValueIndex

Columns = npt.NDArray[np.int32]

#: Candidates come from the postings, whichever way they are ranked.
FOUND_BY = ("exact-equi",)

#: How many matched and unmatched cells a hit lists unless told otherwise.
SHOWN = 20


class ExactEqui:
    """Ranks by equi-joinability alone; ties by reverse coverage, rarity, name, column number."""

    def __init__(self, values: ValueIndex, catalog: Catalog, profile: str) -> None:
        self._values = values
        self._catalog = catalog
        self._profile = profile

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
        return self._search(query, k, exclude_table, min_joinability, show)

    def search_above(
        self,
        query: Column,
        threshold: float,
        *,
        exclude_table: str | None = None,
        show: int | None = SHOWN,
    ) -> Results:
        """Return every column whose joinability reaches the threshold, best first."""
        return self._search(query, None, exclude_table, threshold, show)

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
        values, columns = self._found(watch, query, None, exclude_table, min_joinability)
        tables: dict[int, list[int]] = {}
        owners = self._catalog.column_tables[columns].tolist()
        for column, table in zip(columns.tolist(), owners, strict=True):
            if table in tables or k is None or len(tables) < k:
                tables.setdefault(table, []).append(column)
        chosen = np.array([c for of in tables.values() for c in of], np.int32)
        hits = iter(self._hits(chosen, values, show))
        grouped = [[next(hits) for _ in of] for of in tables.values()]
        best = [replace(of[0], rank=n, also=tuple(of[1:])) for n, of in enumerate(grouped, 1)]
        return Results(self._described(query, values), tuple(best), watch.stop("verify"))

    def _search(
        self, query: Column, k: int | None, exclude: str | None, threshold: float, show: int | None
    ) -> Results:
        watch = Stopwatch()
        values, columns = self._found(watch, query, k, exclude, threshold)
        hits = self._hits(columns, values, show)
        return Results(self._described(query, values), hits, watch.stop("verify"))

    def _found(
        self,
        watch: Stopwatch,
        query: Column,
        k: int | None,
        exclude: str | None,
        threshold: float,
    ) -> tuple[QueryValues, Columns]:
        """Look the query's values up and rank the columns that hold them."""
        values = QueryValues.of(distinct_cells(query.cells, self._profile), self._values)
        watch.lap("encode")
        columns = self._ranked(query, values, k, exclude, threshold)
        watch.lap("candidates")
        return values, columns

    @staticmethod
    def _described(query: Column, values: QueryValues) -> dict[str, Any]:
        return {
            "table": query.table,
            "column": query.name,
            "cells": len(query.cells),
            "size": len(values.distinct),
        }

    def _ranked(
        self,
        query: Column,
        values: QueryValues,
        k: int | None,
        exclude: str | None,
        threshold: float,
    ) -> Columns:
        overlap = Overlap(self._values, values.numbers[values.known])
        demoted = self._demoted(values)
        own, own_columns = self._own_table(exclude)
        found = overlap.all() if k is None else overlap.best(k + own_columns, demoted)
        if own is not None:
            found = found.where(self._catalog.column_tables[found.columns] != own)
        if threshold > 0:
            found = found.where(found.overlaps / len(values.distinct) >= threshold)
        if k == 0 or len(found.columns) == 0:
            return np.zeros(0, np.int32)
        sizes = self._values.sizes(found.columns)
        primary = (len(values.distinct) - found.overlaps << 32) | sizes
        if demoted is not None:
            primary |= (demoted[found.columns] != 0).astype(np.int64) << 62
        keys: list[Key] = [
            lambda rows: primary[rows],
            lambda rows: -overlap.rarity(found.columns[rows]),
            lambda rows: self._name_keys(query.name, found.columns[rows]),
        ]
        return found.columns[best_rows(len(found.columns), k, keys)]

    def _demoted(self, values: QueryValues) -> npt.NDArray[np.uint8] | None:
        """Mark the columns that rank behind all others: none, by the definition."""
        return None

    def _own_table(self, name: str | None) -> tuple[int | None, int]:
        number = None if name is None else self._catalog.find_table(name)
        return number, 0 if number is None else len(self._catalog.columns_of(number))

    def _name_keys(self, name: str, columns: Columns) -> npt.NDArray[np.float64]:
        names = self._catalog.column_names
        if not name:
            return np.zeros(len(columns))
        return np.array([-name_similarity(name, names[c]) for c in columns.tolist()])

    def _hits(self, columns: Columns, values: QueryValues, show: int | None) -> tuple[Hit, ...]:
        if len(columns) == 0:
            return ()
        catalog = self._catalog
        target_cells = catalog.column_cells[columns].tolist()
        verified = verify(values, self._values, columns, target_cells, show)
        tables = catalog.column_tables[columns].tolist()
        numbered = enumerate(zip(columns.tolist(), tables, verified, strict=True), 1)
        return tuple([self._hit(rank, *of, len(values.distinct)) for rank, of in numbered])

    def _hit(self, rank: int, column: int, table: int, evidence: Verified, query_size: int) -> Hit:
        catalog = self._catalog
        return Hit(
            rank=rank,
            table=catalog.table_names[table],
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
