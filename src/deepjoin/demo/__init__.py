"""A small data lake, to see the product work before pointing it at real data.

Facts about countries, cities, films and so on are real and rounded; customers, orders and
people are invented. Tables share keys under different names and in different spellings, and
decoys (running numbers, years, flags) match without meaning anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deepjoin.errors import DeepJoinError

__all__ = ["DemoLake", "write_demo_lake"]

_DATA = Path(__file__).with_name("data")


@dataclass(frozen=True)
class DemoLake:
    """A demo lake on disk, and the table to enrich from it."""

    #: The lake itself; the query table is outside of it.
    folder: Path
    #: Names of the tables, relative to the lake.
    tables: tuple[str, ...]
    query: Path
    query_column: str = "customer_country"
    #: A column whose values the lake spells differently.
    meaning_column: str = "customer"


def write_demo_lake(folder: Path) -> DemoLake:
    """Write the demo's tables under ``folder``, the same bytes every time.

    Files of an earlier demo are overwritten; other files are left alone.
    """
    files = sorted(path.relative_to(_DATA) for path in _DATA.rglob("*") if path.is_file())
    try:
        for file in files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            # Only the bytes: an installation may be read-only, and the copies must not be.
            (folder / file).write_bytes((_DATA / file).read_bytes())
    except OSError as error:
        raise DeepJoinError(
            f"Cannot write the demo to {folder}: {error.strerror} ({error.filename}). "
            "Choose a folder that you may write to."
        ) from error
    tables = tuple(file.relative_to("lake").as_posix() for file in files if len(file.parts) > 1)
    return DemoLake(folder / "lake", tables, folder / "orders.csv")
