"""A small data lake of our own making, to see the product work before pointing it at real data.

Facts about countries, cities, films and the like are real and rounded; customers, orders and
people are invented. Keys are shared under other names and in other spellings, and decoys
(running numbers, years, flags) match without meaning anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deepjoin.demo.business import finance_sheets, logistics_sheets, sales_sheets
from deepjoin.demo.culture import film_sheets, library_sheets
from deepjoin.demo.geography import geo_sheets, reference_sheets, travel_sheets
from deepjoin.demo.orders import QUERY_COLUMN, query_sheet
from deepjoin.demo.people import (
    hr_sheets,
    sensor_sheets,
    support_sheets,
    university_sheets,
    web_sheets,
)
from deepjoin.demo.sheets import Sheet, file_bytes
from deepjoin.errors import DeepJoinError

__all__ = ["DEPARTMENTS", "DemoLake", "write_demo_lake"]

#: Each gives the tables of one folder, or of a few small ones.
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
    #: A column whose values the lake spells in other ways.
    meaning_column: str = "customer"


def write_demo_lake(folder: Path) -> DemoLake:
    """Write the demo's tables under ``folder``, the same bytes every time.

    Files of an earlier demo are written over; others are left alone.
    """
    lake = folder / "lake"
    sheets = [sheet for department in DEPARTMENTS for sheet in department()]
    try:
        for sheet in sheets:
            _write(sheet, lake)
        query = _write(query_sheet(), folder)
    except OSError as error:
        raise DeepJoinError(
            f"Cannot write the demo to {folder}: {error.strerror} ({error.filename}). "
            "Name a folder that you may write to."
        ) from error
    return DemoLake(lake, tuple(sheet.name for sheet in sheets), query, QUERY_COLUMN)


def _write(sheet: Sheet, folder: Path) -> Path:
    path = folder / sheet.name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(file_bytes(sheet))
    return path
