"""Search methods, one meaning each, behind one protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from deepjoin.errors import unknown_name
from deepjoin.lab.josie.method import josie
from deepjoin.lab.lsh.lsh_ensemble import lsh_ensemble
from deepjoin.lab.pexeso.method import pexeso
from deepjoin.model import Column
from deepjoin.search.base import Searching
from deepjoin.search.by_column import deepjoin, deepjoin_sketch, encoded_by, sketch
from deepjoin.search.exact_equi import exact_equi
from deepjoin.search.exact_semantic import exact_semantic
from deepjoin.search.ground import Ground
from deepjoin.search.hybrid import hybrid
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
    #: What of the index it needs: "values", "cell vectors", "column vectors", "sketches".
    needs: tuple[str, ...]
    summary: str
    #: The kind of encoder its column vectors are to be of; nothing for the models of `deepjoin`.
    kind: str = ""
    #: What of the index it also uses where it is there.
    also: tuple[str, ...] = ()


def _compared(kind: str, summary: str) -> Method:
    """Make the row of a method that is the paper's with another encoder."""
    return Method(encoded_by(kind), ("equi", "semantic"), ("column vectors",), summary, kind)


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
        "column vector, sketch and what cells mean, if they have vectors, as one, never verified",
        also=("cell vectors",),
    ),
    "exact-equi": Method(
        exact_equi, ("equi",), ("values",), "exact |Q ∩ X| / |Q| from the postings, nothing else"
    ),
    "josie": Method(
        josie,
        ("equi",),
        ("values",),
        "the same by JOSIE's filters and cost model, sets held in memory",
    ),
    "lsh-ensemble": Method(
        lsh_ensemble,
        ("equi", "semantic"),
        ("values",),
        "containment estimated by datasketch (extra baselines), tables in memory, never verified",
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
    "fasttext": _compared("fasttext", "mean of the fastText vectors of a column's cells"),
    "bert": _compared("bert", "mean of BERT's vectors of a column's cells, not fine-tuned"),
    "mpnet": _compared("mpnet", "the same by MPNet"),
    "tabert": _compared("tabert", "TaBERT's column vector, by its published input"),
    "turl": _compared("turl", "TURL's column vector, by its published input"),
    "mlp": _compared("mlp", "last hidden layer of a perceptron trained to tell joinability"),
    "sherlock": _compared("sherlock", "Sherlock's statistics of a column's cells, for numbers"),
}


def method_named(name: str) -> Method:
    """Return a method, or raise with the nearest name."""
    if name not in METHODS:
        raise unknown_name("method", name, "deepjoin", METHODS)
    return METHODS[name]
