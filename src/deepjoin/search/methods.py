"""Which joins an index can answer, and which methods it can be searched with when served."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepjoin.embed.columns.kinds import split_kind
from deepjoin.errors import unknown_name
from deepjoin.lake import Lake
from deepjoin.search import METHODS, Method

#: Peers to compare with, which load the whole lake into the memory of every worker.
_PEERS = ("josie", "lsh-ensemble", "pexeso")


def has_meaning(lake: Lake) -> bool:
    """Tell whether values can be compared by what they mean."""
    return lake.ground().has_cells


def joins_of(lake: Lake) -> list[str]:
    """List the kinds of join an index can answer, the default first."""
    return ["any", "equi", "semantic"] if has_meaning(lake) else ["any", "equi"]


def methods_of(lake: Lake) -> list[dict[str, Any]]:
    """List the methods an index has all for, each with the joins it can answer there."""
    can = joins_of(lake)
    return [
        {"name": name, "joins": [one for one in can if one in method.joins], "says": method.summary}
        for name, method in METHODS.items()
        if name not in _PEERS and _is_possible(lake, name, method)
    ]


def check_method(name: str, methods: Sequence[dict[str, Any]]) -> None:
    """Refuse a method this index cannot be searched with."""
    known = [one["name"] for one in methods]
    if name not in known:
        raise unknown_name("method", name, "this service", known)


def _is_possible(lake: Lake, name: str, method: Method) -> bool:
    there = {"values"}
    if has_meaning(lake):
        there.add("cell vectors")
    encoder = lake.vectors.encoder
    if encoder != "none" and split_kind(encoder)[0] == method.kind:
        there.add("column vectors")
    if lake.vectors.sketch:
        there.add("sketches")
    # Without cell vectors, the default still answers equi-joins.
    return name == "hybrid" or there.issuperset(method.needs)
