"""Find the tables of a data lake you can join with a column of yours, see why, and join them.

>>> import deepjoin
>>> deepjoin.Column(["Apple", "GE"], name="Company").name
'Company'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from deepjoin._version import __version__
from deepjoin.errors import DeepJoinError
from deepjoin.model import Column, Table

if TYPE_CHECKING:
    from deepjoin.indexing import index, publish
    from deepjoin.joining.entry import join
    from deepjoin.lab.evaluation import evaluate
    from deepjoin.lab.training import train
    from deepjoin.lake import Lake
    from deepjoin.lake import open_lake as open
    from deepjoin.matching.entry import match
    from deepjoin.model import Hit, Match, Matches, Program, Relation, Results
    from deepjoin.settings import (
        BuildSettings,
        EnrichSettings,
        JoinSettings,
        PublishSettings,
        SearchSettings,
        Settings,
        Vectors,
    )

#: Names loaded when first used, so that importing the package stays light, by their modules.
_LAZY = {
    "deepjoin.indexing": ("index", "publish"),
    "deepjoin.joining.entry": ("join",),
    "deepjoin.lab.evaluation": ("evaluate",),
    "deepjoin.lab.training": ("train",),
    "deepjoin.lake": ("Lake",),
    "deepjoin.matching.entry": ("match",),
    "deepjoin.model": ("Hit", "Match", "Matches", "Program", "Relation", "Results"),
    "deepjoin.settings": (
        *("BuildSettings", "EnrichSettings", "JoinSettings", "PublishSettings", "SearchSettings"),
        *("Settings", "Vectors"),
    ),
}

__all__ = [
    "BuildSettings",
    "Column",
    "DeepJoinError",
    "EnrichSettings",
    "Hit",
    "JoinSettings",
    "Lake",
    "Match",
    "Matches",
    "Program",
    "PublishSettings",
    "Relation",
    "Results",
    "SearchSettings",
    "Settings",
    "Table",
    "Vectors",
    "__version__",
    "evaluate",
    "index",
    "join",
    "match",
    "open",
    "publish",
    "train",
]


def __getattr__(name: str) -> Any:
    if name == "open":
        return import_module("deepjoin.lake").open_lake
    for module, names in _LAZY.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'deepjoin' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
