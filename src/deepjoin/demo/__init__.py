"""A small invented data lake, to see the product work before pointing it at real data.

Facts about countries, cities, films and so on are real and rounded; customers, orders and
people are invented. Tables share keys under different names and in different spellings, and
decoys (running numbers, years, flags) match without meaning anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deepjoin.demo.business import (
    QUERY_COLUMN,
    finance_sheets,
    hr_sheets,
    logistics_sheets,
    query_sheet,
    sales_sheets,
    support_sheets,
)
from deepjoin.demo.world import (
    film_sheets,
    geo_sheets,
    library_sheets,
    reference_sheets,
    sensor_sheets,
    travel_sheets,
    university_sheets,
    web_sheets,
)
from deepjoin.errors import DeepJoinError

__all__ = ["DEPARTMENTS", "DemoLake", "write_demo_lake"]

#: Each gives the tables of one folder.
DEPARTMENTS = (
    geo_sheets,
    reference_sheets,
    travel_sheets,
    sales_sheets,
    logistics_sheets,
    finance_sheets,
    hr_sheets,
    support_sheets,
    film_sheets,
    library_sheets,
    university_sheets,
    sensor_sheets,
    web_sheets,
)


@dataclass(frozen=True)
class DemoLake:
    """A demo lake on disk, and the table to enrich from it."""

    #: The lake itself; the query table is outside of it.
    folder: Path
    #: Names of the tables, relative to the lake.
    tables: tuple[str, ...]
    query: Path
    query_column: str
    #: A column whose values the lake spells differently.
    meaning_column: str = "customer"


def write_demo_lake(folder: Path) -> DemoLake:
    """Write the demo's tables under ``folder``, the same bytes every time.

    Files of an earlier demo are overwritten; other files are left alone.
    """
    lake, orders = folder / "lake", query_sheet()
    sheets = [sheet for department in DEPARTMENTS for sheet in department()]
    try:
        for path, sheet in [
            *((lake / sheet.name, sheet) for sheet in sheets),
            (folder / orders.name, orders),
        ]:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(sheet.file_bytes())
    except OSError as error:
        raise DeepJoinError(
            f"Cannot write the demo to {folder}: {error.strerror} ({error.filename}). "
            "Choose a folder that you may write to."
        ) from error
    names = tuple(sheet.name for sheet in sheets)
    return DemoLake(lake, names, folder / orders.name, QUERY_COLUMN)
