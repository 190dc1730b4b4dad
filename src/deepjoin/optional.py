"""Optional packages: imported when needed, and named with their extra when missing."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from deepjoin.errors import MissingExtra


def require(module: str, extra: str, what: str) -> ModuleType:
    """Import an optional package for ``what``, which begins the message if it is missing.

    >>> require("no_such_package", "excel", "Reading workbooks")
    Traceback (most recent call last):
    ...
    deepjoin.errors.MissingExtra: Reading workbooks needs no-such-package: \
pip install 'deepjoin[excel]'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        name = (error.name or module).partition(".")[0].replace("_", "-")
        raise MissingExtra(f"{what} needs {name}: pip install 'deepjoin[{extra}]'") from None
