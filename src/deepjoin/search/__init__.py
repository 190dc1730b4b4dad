"""Search methods, one meaning each, behind one protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from deepjoin.columns import Column
from deepjoin.errors import unknown_name
from deepjoin.search.exact_equi import ExactEqui
from deepjoin.search.hybrid import Hybrid
from deepjoin.search.results import Results


class Searcher(Protocol):
    """Finds the columns most joinable with a query."""

    def search(self, query: Column, k: int, *, exclude_table: str | None = None) -> Results:
        """Return up to k hits, best first; ``exclude_table`` is the query's own table."""
        ...


class ThresholdSearcher(Searcher, Protocol):
    """An exact searcher, which can also return everything above a joinability."""

    def search_above(self, query: Column, threshold: float) -> Results:
        """Return every column whose joinability reaches the threshold."""
        ...


@dataclass(frozen=True)
class Method:
    """A row of the table of methods."""

    searcher: type[ExactEqui]
    joins: tuple[str, ...]
    needs: str
    summary: str


#: The methods by name; `deepjoin methods` prints this table.
METHODS: dict[str, Method] = {
    "hybrid": Method(
        Hybrid,
        ("any", "equi"),
        "values",
        "the default: every candidate verified, row numbers, years and flags ranked last",
    ),
    "exact-equi": Method(
        ExactEqui, ("equi",), "values", "exact |Q ∩ X| / |Q| from the postings, nothing else"
    ),
}


def method_named(name: str) -> Method:
    """Return a method, or raise with the nearest name."""
    if name not in METHODS:
        raise unknown_name("method", name, "deepjoin", METHODS)
    return METHODS[name]
