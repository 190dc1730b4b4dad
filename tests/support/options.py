"""Options of `deepjoin.index` in one flat dict, for tests that vary them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from deepjoin.settings import BuildSettings, Settings, Vectors


def index_options(**options: Any) -> dict[str, Any]:
    """Sort options into the settings objects that have them.

    >>> index_options(min_distinct=1, cells="none")["vectors"]
    {'cells': 'none'}
    """
    parts = []
    for kind in (Settings, Vectors, BuildSettings):
        names = {field.name for field in fields(kind)} & options.keys()
        parts.append({name: options.pop(name) for name in sorted(names)})
    settings, vectors, build = parts
    return {"settings": settings, "vectors": vectors, "build": BuildSettings(**build), **options}
