"""Search methods, one meaning each, behind one protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from deepjoin.columns import Column
from deepjoin.errors import unknown_name
from deepjoin.search.base import Searching
from deepjoin.search.by_column import deepjoin, deepjoin_sketch, sketch
from deepjoin.search.exact_equi import exact_equi
from deepjoin.search.exact_semantic import exact_semantic
from deepjoin.search.ground import Ground
from deepjoin.search.hybrid import hybrid
from deepjoin.search.pexeso_search import pexeso
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

    #: Makes a searcher for a lake, a join kind and a tau, None being the encoder's.
    make: Callable[[Ground, str, float | None], Searching]
    joins: tuple[str, ...]
    #: What of the index it uses: "values", "cell vectors", "column vectors", "sketches".
    needs: tuple[str, ...]
    summary: str


#: The methods by name; `deepjoin methods` prints this table.
METHODS: dict[str, Method] = {
    "hybrid": Method(
        hybrid,
        ("any", "equi", "semantic"),
        ("values", "cell vectors"),
        "the default: all candidates, every hit verified, row numbers, years and flags last",
    ),
    "deepjoin": Method(
        deepjoin,
        ("equi", "semantic"),
        ("column vectors",),
        "the paper's system: nearest vectors of column texts, never verified",
    ),
    "sketch": Method(
        sketch,
        ("equi",),
        ("sketches",),
        "cells summed up in one vector a column, no model, never verified",
    ),
    "deepjoin-sketch": Method(
        deepjoin_sketch,
        ("equi", "semantic"),
        ("column vectors", "sketches"),
        "column vector and sketch as one vector, never verified",
    ),
    "exact-equi": Method(
        exact_equi, ("equi",), ("values",), "exact |Q ∩ X| / |Q| from the postings, nothing else"
    ),
    "exact-semantic": Method(
        exact_semantic,
        ("semantic",),
        ("values", "cell vectors"),
        "exact share of cells with a match of cosine tau or more, nothing else",
    ),
    "pexeso": Method(
        pexeso,
        ("semantic",),
        ("values", "cell vectors"),
        "the same by PEXESO's pivots, grid and lemmas, all vectors held in memory",
    ),
}


def method_named(name: str) -> Method:
    """Return a method, or raise with the nearest name."""
    if name not in METHODS:
        raise unknown_name("method", name, "deepjoin", METHODS)
    return METHODS[name]
