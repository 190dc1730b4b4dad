"""Engines that run work elsewhere, behind the seams of build and search: Ray, PostgreSQL, GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.progress import Notify, no_notice

if TYPE_CHECKING:
    from deepjoin.build.engine import Engine

#: The engines of a build; the first works in this process.
ENGINES = ("local", "ray")


@contextmanager
def engine_named(
    name: str | None, address: str | None = None, notify: Notify = no_notice
) -> Iterator[Engine | None]:
    """Yield the engine of a build; None for this process.

    >>> with engine_named("local") as engine:
    ...     print(engine)
    None
    """
    if name not in (None, *ENGINES):
        raise unknown_name("engine", str(name), "deepjoin", ENGINES)
    if name != "ray":
        if address:
            raise DeepJoinError(
                f"`ray_address` is '{address}', and the engine is '{name or ENGINES[0]}'. "
                'Use `engine="ray"` as well, or leave `ray_address` out.'
            )
        yield None
        return
    from deepjoin.engines.ray import RayEngine

    with RayEngine(address, notify) as engine:
        yield engine
