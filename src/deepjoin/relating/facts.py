"""What the stored index says of every column, as arrays: the raw material of `evidence`.

Foreign keys that databases declare are read here too: they are compared with what was found, never
weighed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.arrays import Double, Int, load_strings
from deepjoin.embed.cells import CellEncoder
from deepjoin.errors import DeepJoinError
from deepjoin.matching.names import NameTable, role_of, short_name, without_prefixes
from deepjoin.read import reopen
from deepjoin.read.database import DatabaseSource
from deepjoin.store.open_index import OpenIndex
from deepjoin.store.segment import Numbering, Segment

#: Digits after which a number is no longer exact, and its range of no use.
_NUMBER = r"^-?[0-9]{1,15}(\.[0-9]{1,15})?$"


@dataclass(frozen=True)
class ColumnFacts:
    """One entry a column of the lake in every array."""

    distinct: Int
    #: Cells that are not missing, and rows of the table.
    cells: Int
    rows: Int
    types: Int
    generic: Int
    #: Place of the column in its table from 0, and how many columns that has.
    place: Int
    width: Int
    #: Mean characters of its distinct values; the range of its numbers, NaN if it has none.
    length: Double
    low: Double
    high: Double
    #: Mean of the columns that hold each of its values, as a logarithm: 0 if no other does.
    frequency: Double
    #: The table of each column; the source of each table, by number.
    table: Int
    source: Int
    #: The names of columns and the words for tables, each once; and the words of each column.
    words: Sequence[str]
    word: Int
    table_word: Int
    #: Prepared for comparison by `named`: names, and the row of each column's and table's there.
    names: NameTable
    name: Int
    table_name: Int
    #: For each row of `names`, the roles that its words name.
    roles: Int

    @classmethod
    def of(cls, lake: Numbering, hidden: bool = False) -> ColumnFacts:
        """Read the facts of all columns; of ``hidden`` values no lengths or ranges are known."""
        parts = [_measured(segment, hidden) for segment in lake.segments]
        length, low, high, frequency = (
            np.concatenate([np.zeros(0), *(part[of] for part in parts)]) for of in range(4)
        )
        numbers, rows, titles, sources = _tables(lake.segments)
        tables = numbers[lake.tables] if len(lake.tables) else lake.tables
        cells = _joined(lake.segments, "column_cells")
        most = np.zeros(len(rows), np.int64)
        np.maximum.at(most, tables, cells)
        ids = [i for one in lake.segments for i in one.catalog.column_ids]
        place = np.array([_place(one) for one in ids], np.int64)
        width = np.bincount(tables, minlength=len(rows))
        np.maximum.at(width, tables, place + 1)
        names = without_prefixes(
            [name for one in lake.segments for name in one.catalog.column_names], tables.tolist()
        )
        words, places = np.unique(np.array([*names, *titles], object), return_inverse=True)
        return cls(
            distinct=lake.sizes,
            cells=cells,
            rows=np.maximum(rows, most)[tables],
            types=_joined(lake.segments, "column_types"),
            generic=_joined(lake.segments, "column_generic"),
            place=place,
            width=width[tables],
            length=length,
            low=low,
            high=high,
            frequency=frequency,
            table=tables,
            source=sources,
            words=words.tolist(),
            word=places[: len(names)],
            table_word=places[len(names) :][tables],
            names=NameTable.of([""]),
            name=np.zeros(len(names), np.int64),
            table_name=np.zeros(len(names), np.int64),
            roles=np.zeros(1, np.int64),
        )

    def with_keys(self, keys: Sequence[tuple[tuple[int, ...], int, int]]) -> ColumnFacts:
        """Add keys of several columns, each with its tuples and complete rows, as more columns."""
        if not keys:
            return self
        firsts = np.array([columns[0] for columns, _, _ in keys])

        def over(of: Int | Double, combine: Callable[[Int | Double], Any]) -> Any:
            return np.append(of, [combine(of[list(columns)]) for columns, _, _ in keys])

        names = [" ".join(self.words[self.word[one]] for one in columns) for columns, _, _ in keys]
        more = np.arange(len(names)) + len(self.words)
        unknown = np.append(self.low, np.full(len(keys), np.nan))
        return replace(
            self,
            distinct=np.append(self.distinct, [size for _, size, _ in keys]),
            cells=np.append(self.cells, [rows for _, _, rows in keys]),
            rows=np.append(self.rows, self.rows[firsts]),
            # Several types together are compared as text.
            types=over(self.types, lambda of: of[0] if len(set(of.tolist())) == 1 else 0),
            generic=np.append(self.generic, np.zeros(len(keys), np.int64)),
            place=over(self.place, np.min),
            width=np.append(self.width, self.width[firsts]),
            length=over(self.length, np.sum),
            low=unknown,
            high=np.append(self.high, np.full(len(keys), np.nan)),
            frequency=over(self.frequency, np.min),
            table=np.append(self.table, self.table[firsts]),
            words=[*self.words, *names],
            word=np.append(self.word, more),
            table_word=np.append(self.table_word, self.table_word[firsts]),
            name=np.append(self.name, np.zeros(len(keys), np.int64)),
            table_name=np.append(self.table_name, np.zeros(len(keys), np.int64)),
        )

    def named(self, columns: Int, encoder: CellEncoder | None) -> ColumnFacts:
        """Prepare the names of some columns and of their tables; the others have empty ones."""
        used = np.unique(np.concatenate([self.word[columns], self.table_word[columns]]))
        words = ["", *(self.words[word] for word in used.tolist())]
        some, roles = NameTable.of(words, encoder), np.array([int(role_of(one)) for one in words])
        rows = np.zeros(len(self.words), np.int64)
        rows[used] = np.arange(len(used)) + 1
        names = rows[self.word], rows[self.table_word]
        return replace(self, names=some, name=names[0], table_name=names[1], roles=roles)


def _joined(segments: Sequence[Segment], name: str) -> Int:
    arrays = [np.asarray(getattr(one.catalog, name)).astype(np.int64) for one in segments]
    return np.concatenate([np.zeros(0, np.int64), *arrays])


def _place(column_id: str) -> int:
    number = column_id.rpartition("#")[2]
    return int(number) if number.isdecimal() else 0


def _tables(segments: Sequence[Segment]) -> tuple[Int, Int, list[str], Int]:
    """Give tables numbers by name: a table's small columns are in a segment of their own.

    Returns the number of each table, and of each number the rows, the words for it, the source.
    """
    numbers: list[int] = []
    known: dict[str, int] = {}
    rows: list[int] = []
    titles: list[str] = []
    sources: list[int] = []
    for segment in segments:
        catalog = segment.catalog
        of_item = segment.ledger["source"].to_pylist()
        for number, item in enumerate(catalog.table_items.tolist()):
            entry = catalog.table(number)
            at = known.setdefault(entry.name, len(rows))
            if at == len(rows):
                rows.append(0)
                titles.append("")
                sources.append(0)
            numbers.append(at)
            if number in segment.removed:  # another segment may have the table as it is now
                continue
            rows[at] = entry.rows
            titles[at] = entry.title or short_name(entry.name)
            sources[at] = of_item[item]
    return np.array(numbers, np.int64), np.array(rows, np.int64), titles, np.array(sources)


def _measured(segment: Segment, hidden: bool) -> tuple[Double, Double, Double, Double]:
    """Measure the values of each column: mean length, smallest and largest number, frequency."""
    index = segment.values
    columns = index.columns
    offsets = np.asarray(index.column_offsets)
    sizes = np.diff(offsets)
    full = np.flatnonzero(sizes)
    empty = np.full(columns, np.nan)
    frequency = np.zeros(columns)
    if len(full) == 0:
        return np.zeros(columns), empty, empty.copy(), frequency
    starts, cells = offsets[full], np.asarray(index.cell_values)
    logs = np.log2(np.maximum(1, np.diff(index.posting_offsets))).astype(np.float32)
    frequency[full] = np.add.reduceat(logs[cells], starts) / sizes[full]
    if hidden:
        return np.zeros(columns), empty, empty.copy(), frequency
    values = load_strings(segment.folder, "values")
    length = np.zeros(columns)
    lengths = np.asarray(pc.utf8_length(values)).astype(np.float32)
    length[full] = np.add.reduceat(lengths[cells], starts) / sizes[full]
    is_number = np.asarray(pc.match_substring_regex(values, _NUMBER))
    numbers = np.full(len(values), np.nan)
    numbers[is_number] = np.asarray(values.filter(pa.array(is_number)).cast(pa.float64()))
    low, high = empty, empty.copy()
    low[full] = np.fmin.reduceat(numbers[cells], starts)
    high[full] = np.fmax.reduceat(numbers[cells], starts)
    return length, low, high, frequency


class DeclaredKey(NamedTuple):
    """A foreign key as a database declares it."""

    child_table: str
    child_columns: tuple[str, ...]
    parent_table: str
    parent_columns: tuple[str, ...]


def declared_keys(index: OpenIndex) -> tuple[set[DeclaredKey] | None, list[str]]:
    """Ask the databases of an index for their foreign keys; None if it has no database.

    A database that is gone or does not answer is noted, since relations need nothing of it.
    """
    found: set[DeclaredKey] | None = None
    notes: list[str] = []
    for described in index.sources:
        if described["kind"] != "database":
            continue
        try:
            source = reopen(described, index.path, index.settings)
            database = source.as_database if source else None
            if database is None:
                continue
            keys = _keys_of(database)
        except DeepJoinError as error:
            notes.append(f"Constraints were not read: {error}")
            continue
        if keys is not None:
            found = (found or set()) | keys
    return found, notes


def _keys_of(source: DatabaseSource) -> set[DeclaredKey] | None:
    """Read the foreign keys of one database; None if its kind of database is not asked."""
    declared = source.database.foreign_keys()
    if declared is None:
        return None
    relations = source.relations().items()
    names = {(relation.schema, relation.table): name for name, relation in relations}
    return {
        DeclaredKey(names[child], columns, names[parent], parents)
        for child, columns, parent, parents in declared
        if child in names and parent in names
    }
