"""One source at a time, as most tests want it."""

from __future__ import annotations

from typing import Any

from deepjoin.read import open_sources
from deepjoin.settings import Settings


def open_source(source: object, settings: Settings, skip_dirs: Any = ()) -> Any:
    """Open what can only be one source."""
    (opened,) = open_sources(source, settings, skip_dirs)
    return opened
