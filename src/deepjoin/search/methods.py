"""The search methods: one row each, in the order of the paper's list.

The product has the rows below. Other packages add theirs, and so does `deepjoin.lab`, through
the entry point group ``deepjoin.methods``: each entry point is a dictionary like `METHODS`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from deepjoin.embed.columns.loading import split_kind
from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.model import SearchMethod

if TYPE_CHECKING:
    from deepjoin.search.context import SearchContext
    from deepjoin.search.searcher import Searcher

    #: Makes a searcher of a lake, a join kind and a tau (None: the cell encoder's own).
    MakeSearcher = Callable[[SearchContext, str, float | None], Searcher]

ENTRY_POINTS = "deepjoin.methods"
JOINS = ("any", "equi", "semantic")


@dataclass(frozen=True)
class Method:
    """A row of the table of methods."""

    make: MakeSearcher
    joins: tuple[str, ...]
    #: Parts of the index it needs: "values", "cell vectors", "column vectors", "sketches".
    needs: tuple[str, ...]
    summary: str
    #: Kind of encoder that its column vectors come from; empty for the models of `deepjoin`.
    kind: str = ""
    #: Parts of the index it uses if they exist.
    also: tuple[str, ...] = ()
    #: Whether it is fit for a service; a peer that copies the lake into memory is not.
    served: bool = True


def on_use(reference: str, *more: str) -> MakeSearcher:
    """Refer to a function as ``module:name``: the modules of a method load when it is used."""

    def make(context: SearchContext, join: str, tau: float | None) -> Searcher:
        searcher: Searcher = pkgutil.resolve_name(reference)(context, join, tau, *more)
        return searcher

    return make


METHODS: dict[str, Method] = {
    "hybrid": Method(
        on_use("deepjoin.search.hybrid:hybrid"),
        ("any", "equi", "semantic"),
        ("values", "cell vectors"),
        "the default: all candidates, every hit verified, row numbers, years and flags last",
    ),
    "deepjoin": Method(
        on_use("deepjoin.search.vectors:deepjoin"),
        ("equi", "semantic"),
        ("column vectors",),
        "the paper's system: nearest vectors of column texts, never verified",
    ),
    "deepjoin-exact": Method(
        on_use("deepjoin.search.exact:deepjoin_exact"),
        ("equi", "semantic"),
        ("values", "cell vectors", "column vectors"),
        "the paper's vectors find candidates, the definition ranks them: every hit verified",
    ),
    "sketch": Method(
        on_use("deepjoin.search.vectors:sketch"),
        ("equi",),
        ("sketches",),
        "cells summed up in one vector a column, no model, never verified",
    ),
    "deepjoin-sketch": Method(
        on_use("deepjoin.search.vectors:deepjoin_sketch"),
        ("equi", "semantic"),
        ("column vectors", "sketches"),
        "column vector, sketch and what cells mean, if they have vectors, as one, never verified",
        also=("cell vectors",),
    ),
    "exact-equi": Method(
        on_use("deepjoin.search.exact:exact_equi"),
        ("equi",),
        ("values",),
        "exact |Q ∩ X| / |Q| from the postings, nothing else",
    ),
    "exact-semantic": Method(
        on_use("deepjoin.search.exact:exact_semantic"),
        ("semantic",),
        ("values", "cell vectors"),
        "exact share of cells with a match of cosine tau or more, nothing else",
    ),
}


@cache
def _further_methods() -> Mapping[str, Method]:
    """Read the methods of the lab and of other packages; the product's names stay its own."""
    from importlib.metadata import entry_points

    found: dict[str, Method] = {}
    for point in entry_points(group=ENTRY_POINTS):
        found |= point.load()
    return {name: method for name, method in found.items() if name not in METHODS}


def all_methods() -> dict[str, Method]:
    """Return every method by name, the product's first; `deepjoin methods` prints them."""
    return {**METHODS, **_further_methods()}


def method_named(name: str) -> Method:
    """Return a method, or raise with the nearest name."""
    # Entry points are read only for a name that is not the product's: they import other packages.
    method = METHODS.get(name) or _further_methods().get(name)
    if method is None:
        raise unknown_name("method", name, "deepjoin", all_methods())
    return method


def method_for(name: str, join: str, tau: float | None) -> tuple[Method, str]:
    """Return a method and the kind of join that it answers for ``join``, or say why it cannot."""
    method = method_named(name)
    if join not in JOINS:
        raise unknown_name("join kind", join, "deepjoin", JOINS)
    if join not in method.joins:
        if join != "any":
            others = [other for other, one in METHODS.items() if join in one.joins]
            raise DeepJoinError(
                f"Method '{name}' answers join {' or '.join(method.joins)}, not {join}. "
                f"Methods that do: {', '.join(others)}."
            )
        join = method.joins[0]
    if tau is not None and (join == "equi" or "cell vectors" not in method.needs):
        raise DeepJoinError(
            f"`tau` is {tau}, and '{name}' compares no cells by meaning for join {join}. "
            'Leave it out, or use `join="semantic"` with a method that does.'
        )
    return method, join


def joins_of(context: SearchContext) -> list[str]:
    """List the kinds of join an index can answer, the default first."""
    return ["any", "equi", "semantic"] if context.has_cells else ["any", "equi"]


def served_methods(context: SearchContext) -> list[SearchMethod]:
    """List the methods that a service of this index offers, each with the joins it answers."""
    encoder = context.vectors.encoder
    parts = {"values"}
    if context.has_cells:
        parts.add("cell vectors")
    if context.vectors.sketch:
        parts.add("sketches")
    joins = joins_of(context)
    listed = []
    for name, method in all_methods().items():
        encoded = encoder != "none" and split_kind(encoder)[0] == method.kind
        has_all = (parts | {"column vectors"} if encoded else parts).issuperset(method.needs)
        # Without cell vectors, the default still answers equi-joins.
        if method.served and (has_all or name == "hybrid"):
            answered = [join for join in joins if join in method.joins]
            listed.append(SearchMethod(name, answered, method.summary))
    return listed


def check_method(name: str, methods: Sequence[SearchMethod]) -> None:
    """Refuse a method that a service does not offer."""
    known = [method.name for method in methods]
    if name not in known:
        raise unknown_name("method", name, "this service", known)
