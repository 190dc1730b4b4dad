"""Tables and columns that a caller hands over: frames, lists, and single files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_hexdigest

from deepjoin.errors import DeepJoinError, UnreadableTable, unknown_name
from deepjoin.model import Column, Reading, Table
from deepjoin.normalise.cells import as_strings, cell_text, left_out, text_array, unique_names
from deepjoin.read.formats import format_of, read_file, title_of
from deepjoin.read.parquet import named_batches
from deepjoin.read.source import Description, Item, Listing, Skipped, Source
from deepjoin.show.text import some

#: Of pandas, polars or Arrow; the first two are imported only by those who use them.
Frame: TypeAlias = Any
Series: TypeAlias = Any

_ROWS = 65_536
#: Distinct cells of a column of which one copy is held each.
_SHARED = 100_000
# Cells that need no conversion.
_PLAIN = frozenset((str, type(None)))
_LIBRARIES = ("pandas", "polars", "pyarrow", "numpy")
# What Arrow raises for values that do not fit one type.
_UNFIT = (pa.ArrowException, OverflowError, TypeError, ValueError)


def _library(value: object) -> str:
    """Return the library that a value comes from, without importing any."""
    # Subclasses count: GeoDataFrame is a pandas frame, whatever its module.
    for kind in type(value).__mro__:
        root = kind.__module__.partition(".")[0]
        if root in _LIBRARIES:
            return root
    return ""


def is_frame(value: object) -> bool:
    """Check whether a value is a table of some library, rather than a column.

    >>> is_frame(pa.table({"a": [1]})), is_frame(pa.array([1])), is_frame([1])
    (True, False, False)
    """
    library = _library(value)
    if library in ("pandas", "polars"):
        kinds = {kind.__name__ for kind in type(value).__mro__}
        return bool(kinds & {"DataFrame", "LazyFrame"})
    if library == "pyarrow":
        return isinstance(value, (pa.Table, pa.RecordBatch, pa.RecordBatchReader))
    return hasattr(value, "__arrow_c_stream__") and hasattr(value, "columns")


def frame_table(frame: object, name: str = "table") -> Table:
    """Make a table of a pandas, polars or Arrow frame, or of a dict of equally long lists."""
    if isinstance(frame, Mapping):
        lengths = {key: len(cells) for key, cells in frame.items()}
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{key} {length}" for key, length in list(lengths.items())[:8])
            raise DeepJoinError(f"The columns of '{name}' must be equally long, but are: {shown}.")
    elif not is_frame(frame) and (_library(frame) or not hasattr(frame, "__arrow_c_stream__")):
        raise DeepJoinError(
            "A table must be a data frame, an Arrow table, a dict of columns or the path of a "
            f"file, but got {type(frame).__name__}: {f'{frame!r}'.splitlines()[0]:.60}"
        )
    elif not isinstance(frame, (pa.Table, pa.RecordBatch)) and not _is_of_frames(frame):
        # A stream can be read only once, and a table has to open many times.
        frame = _arrow(frame)

    def read() -> Reading:
        table = _arrow(frame)
        return Reading(named_batches(table.schema, table.to_batches(max_chunksize=_ROWS)))

    return Table(name, read, title_of(name))


def _is_of_frames(value: object) -> bool:
    return _library(value) in ("pandas", "polars")


def _arrow(frame: Frame) -> pa.Table:
    library = _library(frame)
    if library == "pandas":
        names = unique_names(frame.columns)
        columns = [_from_series(frame.iloc[:, at]) for at in range(len(names))]
        return pa.Table.from_arrays(columns, names=names)
    if library == "polars":
        if hasattr(frame, "collect"):  # a LazyFrame
            frame = frame.collect()
        columns = [_from_polars_series(series) for series in frame.get_columns()]
        return pa.Table.from_arrays(columns, names=unique_names(frame.columns))
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    if isinstance(frame, Mapping):
        columns = [_arrow_array(cells) for cells in frame.values()]
        return pa.Table.from_arrays(columns, names=unique_names(frame))
    return frame.read_all() if hasattr(frame, "read_all") else pa.table(frame)


def _from_series(series: Series) -> pa.Array | pa.ChunkedArray:
    """Convert a pandas column by Arrow, or to text where Arrow has no type for the mixture."""
    try:
        array = pa.array(series, from_pandas=True)
    except _UNFIT:
        return text_array(map(cell_text, series))
    # pandas stores periods and intervals as numbers that nobody would recognise.
    odd = isinstance(array.type, pa.BaseExtensionType)
    return text_array(map(cell_text, series)) if odd else array


def _from_polars_series(series: Series) -> pa.Array:
    if str(series.dtype) == "Object":
        return text_array(map(cell_text, series.to_list()))
    return series.to_arrow()


def _arrow_array(cells: Series) -> pa.Array | pa.ChunkedArray:
    library = _library(cells)
    if isinstance(cells, (pa.Array, pa.ChunkedArray)):
        return cells
    if library == "polars":
        return _from_polars_series(cells)
    return _from_series(cells if library in ("pandas", "numpy") else list(cells))


@dataclass
class MemorySource(Source):
    """Tables that are already in memory, in the order they were given."""

    kind = "memory"
    in_memory = True

    given: Sequence[Table]
    skipped: list[Skipped] = field(default_factory=list)

    def __post_init__(self) -> None:
        # Results name tables, and a second one of the same name could not be reached.
        names: set[str] = set()
        for table in self.given:
            if table.name in names:
                raise DeepJoinError(f"Two tables are named '{table.name}'; names must differ.")
            names.add(table.name)

    def items(self) -> Iterator[Item]:
        """List each table as an item without a stamp: a table of the same name may differ."""
        for table in self.given:
            yield Item(table.name, "", partial(Listing, (table,)))

    def describe(self, index: Path) -> Description:
        """Describe which tables these are; nothing is left to reopen."""
        names = "\n".join(table.name for table in self.given)
        return {"kind": self.kind, "tables": xxh3_64_hexdigest(names.encode("utf-8", "replace"))}

    @classmethod
    def of_frames(cls, source: object) -> MemorySource:
        """Take one frame, called "table", or a dict of name to frame."""
        if not isinstance(source, Mapping):
            return cls([frame_table(source)])
        if not source:
            raise DeepJoinError("The dict is empty: pass name to frame, or column name to cells.")
        # Columns or frames? A dict of lists is one table, a dict of frames several.
        plain = (list, tuple, pa.Array, pa.ChunkedArray, np.ndarray)
        if all(
            isinstance(value, plain) or (_is_of_frames(value) and not is_frame(value))
            for value in source.values()
        ):
            return cls([frame_table(source)])
        tables = []
        for name, value in source.items():
            if isinstance(value, Table):
                tables.append(replace(value, name=str(name)))
            elif isinstance(value, Mapping) or is_frame(value):
                tables.append(frame_table(value, str(name)))
            else:
                raise DeepJoinError(
                    f"'{name}' is a {type(value).__name__}, not a frame: pass a pandas, polars or "
                    "Arrow frame, a dict of lists or a deepjoin.Table for each name."
                )
        return cls(tables)

    @classmethod
    def of_items(cls, items: Sequence[Table | Column]) -> MemorySource:
        """Take tables and columns; columns that name the same table become one."""
        tables = [item for item in items if isinstance(item, Table)]
        groups: dict[str | int, list[Column]] = {}
        for position, item in enumerate(items):
            if isinstance(item, Column):
                groups.setdefault(item.table or position, []).append(item)
        firsts = [group[0] for group in groups.values()]
        names = unique_names(column.table or column.name for column in firsts)
        made = map(table_of_columns, names, groups.values())
        return cls([*tables, *made])

    def tables(self) -> Iterator[Table]:
        """List the tables."""
        return iter(self.given)

    def table(self, name: str) -> Table:
        """Find one table by its name."""
        for table in self.given:
            if table.name == name:
                return table
        raise unknown_name("table", name, "the given tables", [table.name for table in self.given])


def table_of_columns(name: str, columns: Sequence[Column]) -> Table:
    """Put columns side by side; shorter ones are filled up with missing cells."""

    def read() -> Reading:
        filled = zip(*zip_longest(*(column.cells for column in columns)), strict=True)
        arrays = [text_array(cells) for cells in filled] or [text_array([]) for _ in columns]
        names = unique_names(column.name for column in columns)
        return Reading(iter([pa.RecordBatch.from_arrays(arrays, names=names)]))

    first = columns[0]
    return Table(name, read, first.title or title_of(name), first.context)


def as_columns(query: object, on: str | Sequence[str] | None = None) -> list[Column]:
    """Make columns of a query: all of a frame, several that were given, or the one of `as_column`.

    >>> [one.name for one in as_columns({"id": [1, 2], "city": ["Oslo", "Lima"]})]
    ['id', 'city']
    """
    if on is not None and not isinstance(on, str):
        return [as_column(query, name) for name in key_names(on)]
    if isinstance(query, (list, tuple)) and query and all(isinstance(x, Column) for x in query):
        return list(query)
    if on is None and (isinstance(query, Mapping) or is_frame(query)):
        # The frame has no name in any lake, so no table is left out for it.
        return [Column(one.cells, one.name) for one in read_columns(frame_table(query))]
    return [as_column(query, on)]


def key_names(on: object) -> list[str]:
    """List the columns of a key; anything but names raises."""
    if isinstance(on, Mapping) or not isinstance(on, Iterable):
        raise DeepJoinError(f"`on` is {on!r}; it must be the name of a column, or a list of names.")
    names = list(on)
    if not names:
        raise DeepJoinError("`on` is an empty list; name the key columns.")
    return names


def as_column(query: object, on: str | None = None) -> Column:
    """Make a column of whatever the user passed; ``on`` names one of a frame.

    >>> as_column([7, None, "GE"]).cells
    ['7', None, 'GE']
    >>> as_column(pa.table({"state": ["NY"], "n": [1]}), on="state").name
    'state'
    """
    if on is not None:
        if not (isinstance(query, Mapping) or is_frame(query)):
            raise DeepJoinError(
                "`on` names a column of a frame or file, and the query is a "
                f"{type(query).__name__}: leave it out."
            )
        frame = _arrow(query)
        if on not in frame.column_names:
            raise unknown_name("column", on, "the query", frame.column_names)
        return replace(as_column(frame[on]), name=on)
    # What most queries are, without looking at each cell twice.
    if type(query) is list and _PLAIN.issuperset(map(type, query)):
        return Column(query)
    if isinstance(query, Column):
        return query
    if isinstance(query, (str, bytes, bytearray)):
        kind = type(query).__name__
        raise DeepJoinError(f"A column is a list of cells, not one {kind}: pass [{query!r:.40}].")
    if isinstance(query, Mapping) or is_frame(query):
        names = list(map(str, query if isinstance(query, Mapping) else _column_names(query)))
        raise DeepJoinError(
            f"That is a whole table ({type(query).__name__}): name one of its columns with `on`: "
            f"{some(names, 12)}."
        )
    if _library(query) and not isinstance(query, (list, tuple)):
        name = getattr(query, "name", None)
        return Column(_library_cells(query), name="" if name is None else str(name))
    if not isinstance(query, Iterable):
        raise DeepJoinError(f"A {type(query).__name__} is not a column: pass a list of cells.")
    cells = []
    for value in query:
        if isinstance(value, (bytes, bytearray)):
            raise DeepJoinError(f"Cell {value!r:.40} is bytes: decode it to text first.")
        cells.append(cell_text(value))
    # A set has no order, so that of its cells makes the answer repeatable.
    is_set = isinstance(query, (set, frozenset))
    return Column(sorted(cells, key=lambda cell: cell or "") if is_set else cells)


def _column_names(frame: Frame) -> Iterable[object]:
    if hasattr(frame, "collect_schema"):
        return list(frame.collect_schema().names())
    return frame.schema.names if _library(frame) == "pyarrow" else list(frame.columns)


def _library_cells(query: Series) -> list[str | None]:
    if getattr(query, "ndim", 1) != 1:
        raise DeepJoinError(f"A column has one dimension, this array has {query.ndim}.")
    array = _arrow_array(query)
    if left_out(array.type):
        raise DeepJoinError(f"Cells of type {array.type} cannot be joined: pass text or numbers.")
    strings = as_strings(array)
    cells: list[str | None] = [] if strings is None else strings.to_pylist()
    return cells


def file_tables(path: Path) -> list[Table]:
    """List the tables of a file the user named: one, or the sheets of a workbook."""
    from deepjoin.read.files import FileSource

    source = FileSource([path])
    tables = list(source.tables())
    if tables:
        return tables
    name = os.fsencode(path.name).decode("utf-8", "backslashreplace")
    if format_of(path.name) == "excel":
        raise UnreadableTable(f"{name}: {source.skipped[0].reason}.")
    # An index could not store such a name, but a query needs none.
    return [Table(name, partial(read_file, path, format_of(path.name) or "delimited"))]


def file_table(path: Path) -> Table:
    """Return the one table of a file."""
    tables = file_tables(path)
    if len(tables) > 1:
        names = ", ".join(table.name for table in tables)
        raise UnreadableTable(f"{path} holds {len(tables)} tables ({names}); give a file with one.")
    return tables[0]


def read_rows(table: Table, offset: int, limit: int) -> pa.Table:
    """Read some rows of a table; what comes before them is read and passed over."""
    parts, schema = [], None
    for batch in table.open():
        schema = schema or batch.schema
        if offset < batch.num_rows:
            parts.append(pa.Table.from_batches([batch.slice(offset, limit)]))
            limit -= parts[-1].num_rows
        offset = max(0, offset - batch.num_rows)
        if limit <= 0:
            break
    if not parts:
        return (schema or pa.schema([])).empty_table()
    return pa.concat_tables(parts, promote_options="permissive")


def columns_by_name(
    found: Sequence[Column], names: Sequence[str], table: str | None
) -> list[Column]:
    """Choose columns by name, all of one table; a wrong name raises with the nearest one."""
    by_name = {column.name: column for column in reversed(found)}
    for name in names:
        if name not in by_name:
            raise unknown_name("column", name, table or "the table", [one.name for one in found])
    return [replace(by_name[name], table=table) for name in names]


def read_columns(table: Table, only: str | None = None) -> list[Column]:
    """Read the columns of a table, or the one that is named; equal cells share one string.

    >>> from deepjoin.read.frames import frame_table
    >>> [column.name for column in read_columns(frame_table({"id": [1, 2], "city": ["a", "b"]}))]
    ['id', 'city']
    """
    cells: dict[str, list[str | None]] = {}
    known: dict[str, dict[str | None, str | None]] = {}
    names: dict[str, None] = {}
    rows = 0
    for batch in table.open():
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            names[name] = None
            strings = as_strings(array) if only in (None, name) else None
            if strings is not None:
                column = cells.setdefault(name, [None] * rows)
                column.extend([None] * (rows - len(column)))
                encoded = strings.dictionary_encode(null_encoding="encode")
                distinct = encoded.dictionary.to_pylist()
                shared = known.setdefault(name, {})
                if len(shared) < _SHARED:  # beyond, cells seldom come again
                    distinct = [shared.setdefault(one, one) for one in distinct]
                column.extend(map(distinct.__getitem__, encoded.indices.to_pylist()))
        rows += batch.num_rows
    if only is not None and only not in names:
        raise unknown_name("column", only, table.name, names)
    if not cells:
        raise UnreadableTable(f"{table.name} has no column that could be searched with.")
    return [Column(c, name, table.name, table.title, table.context) for name, c in cells.items()]
