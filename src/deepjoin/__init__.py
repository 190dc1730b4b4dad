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

#: Names loaded when first used, so that importing the package stays light.
_LAZY = {
    "index": ("deepjoin.indexing", "index"),
    "open": ("deepjoin.lake", "open_lake"),
    "join": ("deepjoin.joining.entry", "join"),
    "Lake": ("deepjoin.lake", "Lake"),
    "Hit": ("deepjoin.model", "Hit"),
    "match": ("deepjoin.matching.entry", "match"),
    "Match": ("deepjoin.model", "Match"),
    "Relation": ("deepjoin.model", "Relation"),
    "Matches": ("deepjoin.model", "Matches"),
    "Program": ("deepjoin.model", "Program"),
    "Results": ("deepjoin.model", "Results"),
    "BuildSettings": ("deepjoin.settings", "BuildSettings"),
    "EnrichSettings": ("deepjoin.settings", "EnrichSettings"),
    "JoinSettings": ("deepjoin.settings", "JoinSettings"),
    "PublishSettings": ("deepjoin.settings", "PublishSettings"),
    "SearchSettings": ("deepjoin.settings", "SearchSettings"),
    "Settings": ("deepjoin.settings", "Settings"),
    "Vectors": ("deepjoin.settings", "Vectors"),
    "evaluate": ("deepjoin.lab.evaluation", "evaluate"),
    "train": ("deepjoin.lab.training", "train"),
    "publish": ("deepjoin.indexing", "publish"),
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
    if name not in _LAZY:
        raise AttributeError(f"module 'deepjoin' has no attribute '{name}'")
    module, attribute = _LAZY[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return __all__
