"""How the steps of a build share its memory, and what commands need in any case.

Cells that wait for their order take up to half of it. The other steps run while nothing waits;
each takes blocks of as many rows as fit its share. Mapped files are not counted.
"""

from __future__ import annotations

import ctypes
import math
import sys

from deepjoin.errors import ResourceLimit, UnreadableTable

#: Memory of a build, unless the user gives one.
DEFAULT = 2 << 30
#: The least that a build needs: interpreter, libraries, the table of the cell encoder, one block.
LEAST = 600 << 20
#: Bytes of address space that joins need, cell vectors, and every command: below, libraries end the
#: process.
JOIN_SPACE, CELLS_SPACE, COMMAND_SPACE = 800_000_000, 690_000_000, 430_000_000

#: What libraries, encoder and blocks take beside the cells that wait.
_BESIDE = 400 << 20
#: What libraries take of it.
_LIBRARIES = 200 << 20


def for_cells(memory: int) -> int:
    """Return how many bytes of cells a build holds before they go to disk.

    >>> for_cells(2 << 30) >> 20, for_cells(600 << 20) >> 20, for_cells(0)
    (1024, 200, 0)
    """
    return max(memory // 8, min(memory // 2, memory - _BESIDE))


def check_reading(needed: int, memory: int) -> None:
    """Refuse a table that takes more memory to read than a build has beside the cells that wait.

    >>> check_reading(700 << 20, 2 << 30)
    >>> check_reading(700 << 20, 600 << 20)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    deepjoin.errors.UnreadableTable: reading it takes 700 MB at once, ... at least 1.8G, or ...
    """
    memory = max(memory, LEAST)
    if needed > memory - for_cells(memory) - _LIBRARIES:
        least = math.ceil(20 * (needed + _LIBRARIES) / (1 << 30)) / 10
        raise UnreadableTable(
            f"reading it takes {needed >> 20} MB at once, for the dictionaries of a row group; "
            f"give `memory` of at least {least}G, or write it with smaller dictionaries",
            passing=True,
        )


def rows_at_once(memory: int, each: int, least: int, most: int, blocks: int = 1) -> int:
    """Return how many rows of ``each`` bytes a block has if this many blocks are held at once.

    All blocks together take a quarter of the memory; the number is a power of two.

    >>> rows_at_once(1 << 20, 64, 16, 1 << 16)
    4096
    >>> rows_at_once(0, 64, 16, 1 << 16)
    16
    """
    fitting = max(1, memory // 4 // (each * blocks))
    return min(most, max(least, 1 << (fitting.bit_length() - 1)))


def check_address_space(what: str, least: int) -> None:
    """Refuse what would crash the process, since its address space is limited to less."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < least:
        raise ResourceLimit(
            f"{what} needs {least // 10**6} MB of address space, and the limit of this process is "
            f"{limit // 10**6} MB; raise it with ulimit -v."
        )


def release() -> None:
    """Give freed memory back to the system: allocators keep it for the next step otherwise."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc alone
        if trim is not None:
            trim(0)
