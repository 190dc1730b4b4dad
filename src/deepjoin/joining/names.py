"""Names of the joined table's columns: none empty, none equal to another in any spelling."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import PurePosixPath

from deepjoin.read.formats import format_of


def free_name(name: str, taken: Collection[str]) -> str:
    """Return the name, numbered if its lower-case form is taken.

    >>> free_name("City", {"city"}), free_name("", set())
    ('City_2', 'column')
    """
    name = name or "column"
    if name.lower() not in taken:
        return name
    number = 2
    while f"{name}_{number}".lower() in taken:
        number += 1
    return f"{name}_{number}"


def joined_names(left: Sequence[str], right: Sequence[str], table: str) -> list[str]:
    """Name the right columns of a join: a clash with the left adds the right table's name.

    Case is ignored, since DuckDB and most readers of Parquet ignore it.

    >>> joined_names(["Name", "id"], ["name", "code"], "geo/countries.csv")
    ['name_countries', 'code']
    """
    of_left = {name.lower() for name in left}
    taken = of_left | {name.lower() for name in right}
    suffix = table_suffix(table)
    names = []
    for name in right:
        if name.lower() in of_left:
            name = free_name(f"{name}_{suffix}", taken)
            taken.add(name.lower())
        names.append(name)
    return names


def table_suffix(table: str) -> str:
    """Return the short word for a table: a sheet's name, a file's, or a database table's.

    >>> table_suffix("geo/countries.csv.gz"), table_suffix("a.xlsx#Sheet 1"), table_suffix("..")
    ('countries', 'Sheet_1', 'right')
    >>> table_suffix("sales.clients")
    'sales_clients'
    """
    name, _, sheet = PurePosixPath(table).name.rpartition("#")
    word = sheet if name or not format_of(sheet) else sheet.split(".", 1)[0]
    return re.sub(r"\W+", "_", word).strip("_") or "right"
