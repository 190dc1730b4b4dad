"""The settings of the service."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path


@dataclass(frozen=True)
class ServerSettings:
    """Which lake is served, at which address, within which limits; the same for all workers."""

    index: str
    #: The service's private folder (0700): uploads, answers being written, counters.
    folder: Path
    host: str = "127.0.0.1"
    #: The address that the host resolved to; empty until it is known.
    bound: str = ""
    #: The bearer token that every request must have; empty for none.
    token: str = field(default="", repr=False)
    #: Bytes of one upload.
    max_upload: int = 100 << 20
    #: Rows of one upload and of one joined table.
    max_rows: int = 5_000_000
    #: Bytes of one joined table, and of what its join needs on disk.
    max_joined: int = 2 << 30
    #: Seconds that one request may take.
    seconds: float = 30.0
    #: The folder where joined tables may be saved; None: nowhere.
    out: Path | None = None
    #: The vector stores to search, passwords included; empty: the vectors of the index.
    vector_store: tuple[str, ...] = field(default=(), repr=False)
    #: The process that started this worker; 0 for an app without workers.
    parent: int = 0
    #: How many processes share this machine.
    workers: int = 1
    #: Threads that search, threads that read, join and write files, threads that search with very
    #: many values, and requests that may wait for each.
    threads: int = 2
    waiting: int = 256
    heavy_threads: int = 2
    heavy_waiting: int = 16
    large_threads: int = 1
    large_waiting: int = 8
    #: The most hits of a search and rows of a preview.
    max_hits: int = 200
    max_preview: int = 200
    #: Seconds an upload is kept.
    expires: float = 3600.0

    @property
    def is_worker(self) -> bool:
        """Whether other processes share the folder and the counters."""
        return self.parent != 0

    @property
    def join_memory(self) -> str:
        """The memory of one join, such that all that can run at once fit into the machine."""
        share = _physical_memory() // max(2, self.workers * self.heavy_threads)
        return f"{share >> 20}MiB"

    @property
    def may_judge(self) -> bool:
        """Whether clients may accept and reject joins, which changes what others see."""
        return self.is_local or bool(self.token)

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the service."""
        return is_loopback(self.bound or self.host)


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows
        return 4 << 30


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Check whether an address can only be reached from this machine.

    >>> is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
