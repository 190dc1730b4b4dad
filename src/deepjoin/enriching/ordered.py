"""Joins on order: the nearest earlier row of another table (as-of), or the range around a value.

Both are made by choice, with a column of yours that you name. Where a table is joined on equal keys
and has several rows for one, the order chooses among them; other tables are joined on order alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.normalise.canonical import CellType, canonical
from deepjoin.read.sql import identifier
from deepjoin.settings import EnrichSettings
from deepjoin.store.open_index import OpenIndex

#: Columns of a join that are ours: the row of your table, its key, and the value that is ordered.
ROW, KEY, ORDER = "deepjoin_row", "deepjoin_key", "deepjoin_order"
#: Words that begin or end the names of a range's two columns.
_BOUNDS = (
    *(("from", "to"), ("start", "end"), ("begin", "end"), ("low", "high"), ("lower", "upper")),
    *(("min", "max"), ("since", "until"), ("first", "last"), ("from", "until"), ("least", "most")),
)
#: A range must be in this order in nearly all rows.
_IN_ORDER = 0.99


def key_name(number: int) -> str:
    """Name a column of a key of several, from 0."""
    return KEY if number == 0 else f"{KEY}_{number + 1}"


@dataclass(frozen=True)
class OrderedKey:
    """Columns that are compared by order: yours with a column of theirs, or with two bounds."""

    mine: str
    #: The column of theirs that must not exceed yours.
    low: str
    #: For ranges, the column that yours must not exceed; missing cells are not bounds.
    high: str | None = None

    @property
    def how(self) -> str:
        """The kind of join."""
        return "range" if self.high else "as-of"

    def nearest(self, rows: str, columns: Sequence[str]) -> str:
        """Write SQL that keeps, of the rows of each row of yours, the nearest earlier or lower.

        Of equally near ones the least by ``columns``, so that the result is the same twice. It
        runs in DuckDB, SQLite and PostgreSQL.
        """
        low = identifier(self.low)
        fits = f"{low} <= {ORDER}"
        if self.high:
            high = identifier(self.high)
            fits += f" AND ({high} IS NULL OR {ORDER} <= {high})"
        order = ", ".join([f"{low} DESC", *map(identifier, columns)])
        place = f"row_number() OVER (PARTITION BY {ROW} ORDER BY {order})"
        return (
            f"SELECT * FROM (\nSELECT *, {place} AS deepjoin_place FROM {rows}\nWHERE {fits}\n) "
            "AS placed WHERE deepjoin_place = 1"
        )

    def meeting(self, mine: str, theirs: str) -> str:
        """Write SQL of all rows of theirs that may be yours, by their order or their range."""
        fits = f"theirs.{identifier(self.low)} {'<=' if self.high else '='} {ORDER}"
        if self.high:
            fits += f" AND {ORDER} <= theirs.{identifier(self.high)}"
        return f"SELECT {ROW}, theirs.* FROM {mine} JOIN {theirs} AS theirs ON {fits}"

    def alone(self, theirs: str, columns: Sequence[str]) -> str:
        """Write DuckDB's SQL of a join on order alone, of the table "query" and theirs."""
        low = identifier(self.low)
        if not self.high:
            # One row for each date or number; of several the least, as above.
            once = (
                f"SELECT DISTINCT ON ({low}) * FROM {theirs} WHERE {low} IS NOT NULL ORDER BY ALL"
            )
            return (
                f'SELECT {ROW}, {ORDER}, theirs.* FROM "query"\n'
                f"ASOF JOIN (\n{once}\n) AS theirs ON {ORDER} >= theirs.{low}"
            )
        # Two plain comparisons, which DuckDB joins without comparing all pairs.
        end = f'coalesce({identifier(self.high)}, (SELECT max({ORDER}) FROM "query"))'
        bounded = f"SELECT *, {end} AS deepjoin_end FROM {theirs}"
        return self.nearest(
            f'(\nSELECT {ROW}, {ORDER}, theirs.* FROM "query"\nJOIN (\n{bounded}\n) AS theirs '
            f"ON theirs.{low} <= {ORDER} AND {ORDER} <= theirs.deepjoin_end\n) AS joined",
            columns,
        )


def key_in(
    settings: EnrichSettings, order: pa.ChunkedArray | None, rows: pa.Table, names: Sequence[str]
) -> OrderedKey | None:
    """Find the columns of a table that a column of yours is compared with; None if there are none.

    A range needs two columns named as bounds. As-of needs a column of the same name or, for dates,
    any with dates.
    """
    if order is None:
        return None
    fitting = [name for name in names if kind_of(rows[name].type) == kind_of(order.type)]
    if settings.ranges:
        for low, high in _bounds(fitting):
            known = pc.less_equal(rows[low], rows[high]).drop_null()
            if len(known) and (pc.mean(known.cast(pa.int8())).as_py() or 0) >= _IN_ORDER:
                return OrderedKey(settings.ranges, low, high)
        return None
    same = [name for name in fitting if canonical(name) == canonical(settings.as_of)]
    if not same and kind_of(order.type) == "date":
        same = fitting
    return OrderedKey(settings.as_of, same[0]) if same else None


def kind_of(kind: pa.DataType) -> str:
    """Say what a type has in order: "date", "number", or "" for nothing."""
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return "date"
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return "number" if is_number else ""


def _bounds(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """List the pairs of columns whose names differ only in words such as "from" and "to"."""
    words = {tuple(canonical(name).replace("_", " ").split()): name for name in names}
    for first, last in _BOUNDS:
        for one, name in words.items():
            other = tuple(last if word == first else word for word in one)
            if other != one and other in words:
                yield name, words[other]


def ordered_tables(index: OpenIndex, settings: EnrichSettings, kind: pa.DataType) -> Iterator[str]:
    """List tables that may be joined on order alone: same-named columns first, then dates."""
    others: list[str] = []
    for segment in index.segments:
        catalog = segment.catalog
        for number, name in enumerate(catalog.table_names):
            columns = catalog.columns_of(number)
            names = [str(catalog.column_names[one]) for one in columns]
            if settings.ranges:
                if any(True for _ in _bounds(names)):
                    yield str(name)
            elif canonical(settings.as_of) in map(canonical, names):
                yield str(name)
            elif kind_of(kind) == "date" and any(
                catalog.column_types[one] == CellType.DATE for one in columns
            ):
                others.append(str(name))
    yield from others
