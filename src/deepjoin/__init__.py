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

#: Names loaded when first used, by module, so that importing the package stays light.
_LAZY = {
    "indexing": ("index", "publish"),
    "joining.entry": ("join",),
    "lab.evaluation": ("evaluate",),
    "lab.training": ("train",),
    "lake": ("Lake", "open_lake"),
    "matching.entry": ("match",),
    "model": ("Hit", "Match", "Matches", "Program", "Relation", "Results"),
    "settings": (
        *("BuildSettings", "EnrichSettings", "JoinSettings", "PublishSettings"),
        *("SearchSettings", "Settings", "Vectors"),
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
    wanted = "open_lake" if name == "open" else name
    for module, names in _LAZY.items():
        if wanted in names:
            return getattr(import_module(f"deepjoin.{module}"), wanted)
    raise AttributeError(f"module 'deepjoin' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
