"""Optional packages: imported when needed, and named with their extra when missing."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from deepjoin.errors import MissingExtra, unknown_name

if TYPE_CHECKING:
    import pyarrow as pa

#: The kinds of frame that results and tables can be had as.
FRAMES = ("pandas", "polars", "arrow")


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


def as_frame(table: pa.Table, kind: str | None = None) -> Any:
    """Turn an Arrow table into a frame of a kind; by default pandas, if it is installed.

    >>> import pyarrow as pa
    >>> as_frame(pa.table({"n": [1]}), "arrow").num_rows
    1
    """
    if kind is None:
        kind = "pandas" if find_spec("pandas") else "arrow"
    if kind not in FRAMES:
        raise unknown_name("kind of frame", kind, "deepjoin", FRAMES)
    if kind == "arrow":
        return table
    library = require(kind, kind, f"A frame of {kind}")
    return table.to_pandas() if kind == "pandas" else library.from_arrow(table)
