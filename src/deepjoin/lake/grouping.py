"""Hits by table: the best column of each, the table's other matching columns beside it."""

from __future__ import annotations

from dataclasses import replace

from deepjoin.columns import Column
from deepjoin.errors import unknown_name
from deepjoin.search.exact_equi import ExactEqui
from deepjoin.search.results import Hit, Results


def by_table(
    searcher: ExactEqui,
    query: Column,
    k: int | None,
    exclude: str | None,
    threshold: float,
    show: int | None,
    group: str,
) -> Results:
    """Search until k tables are found, or all columns are in."""
    if group != "tables":
        raise unknown_name("grouping", group, "deepjoin", ["tables"])
    wanted = k
    while True:
        if wanted is None:
            results = searcher.search_above(query, threshold, exclude_table=exclude, show=show)
        else:
            # Twice the columns each time: the work stays within twice that of the last search.
            wanted = max(1, 2 * wanted)
            results = searcher.search(
                query, wanted, exclude_table=exclude, min_joinability=threshold, show=show
            )
        tables: dict[str, list[Hit]] = {}
        for hit in results:
            tables.setdefault(hit.table, []).append(hit)
        if k is None or wanted is None or len(tables) >= k or len(results) < wanted:
            break
    grouped = [
        replace(of[0], rank=n, also=tuple(of[1:])) for n, of in enumerate(tables.values(), 1)
    ]
    return replace(results, hits=tuple(grouped[:k]))
