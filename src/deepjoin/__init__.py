"""Find the tables of a data lake you can join with a column of yours, see why, and join them.

>>> import deepjoin
>>> deepjoin.Column(["Apple", "GE"], name="Company").name
'Company'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from deepjoin._version import __version__
from deepjoin.columns import Column, Table
from deepjoin.errors import DeepJoinError

if TYPE_CHECKING:
    from deepjoin.evaluation import evaluate
    from deepjoin.lake.indexing import index
    from deepjoin.lake.indexing import open_lake as open
    from deepjoin.lake.lake import Lake
    from deepjoin.lake.publishing import publish
    from deepjoin.search.results import Hit, Match, Results
    from deepjoin.settings import Settings
    from deepjoin.training import train

#: Names loaded when first used, so that importing the package stays light.
_LAZY = {
    "index": ("deepjoin.lake.indexing", "index"),
    "open": ("deepjoin.lake.indexing", "open_lake"),
    "Lake": ("deepjoin.lake.lake", "Lake"),
    "Hit": ("deepjoin.search.results", "Hit"),
    "Match": ("deepjoin.search.results", "Match"),
    "Results": ("deepjoin.search.results", "Results"),
    "Settings": ("deepjoin.settings", "Settings"),
    "evaluate": ("deepjoin.evaluation", "evaluate"),
    "train": ("deepjoin.training", "train"),
    "publish": ("deepjoin.lake.publishing", "publish"),
}

__all__ = [
    "Column",
    "DeepJoinError",
    "Hit",
    "Lake",
    "Match",
    "Results",
    "Settings",
    "Table",
    "__version__",
    "evaluate",
    "index",
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
