"""What people take elsewhere: edges of a graph as Arrow data and files, relations as text.

Files appear only when they are complete. Relations become SQL constraints, dbt tests, DBML or
Mermaid.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape, quoteattr

import numpy as np
import pyarrow as pa

from deepjoin.arrays import Double, load_strings
from deepjoin.errors import DeepJoinError
from deepjoin.files import written_aside
from deepjoin.matching.names import short_name
from deepjoin.model import Relation, TableKey
from deepjoin.read.sql import identifier
from deepjoin.relating.chances import LinkChances
from deepjoin.relating.edges import CARDINALITIES, EdgeList, JoinedColumns
from deepjoin.show.text import printable
from deepjoin.store.segment import Numbering

SCHEMA = pa.schema(
    [
        *((name, pa.large_string()) for name in ("a_table", "a_column", "b_table", "b_column")),
        *((name, pa.float64()) for name in ("joinability", "reverse")),
        *((name, pa.int64()) for name in ("matched", "a_size", "b_size")),
        ("cardinality", pa.string()),
        *((name, pa.large_string()) for name in ("a_id", "b_id")),
        ("probability", pa.float64()),
    ]
)
#: The attributes of an edge in GraphML, and their types.
_ATTRIBUTES = {
    "a_column": "string",
    "b_column": "string",
    "joinability": "double",
    "reverse": "double",
    "matched": "long",
    "cardinality": "string",
    "a_id": "string",
    "b_id": "string",
    "probability": "double",
}
# XML 1.0 has no way to write most control characters, not even escaped.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class GraphSize(NamedTuple):
    """Size of a graph."""

    edges: int
    #: Columns, and tables, with at least one edge.
    columns: int
    tables: int


class EdgeRows:
    """Edges with the names of their columns, one row each.

    Probabilities are estimated whenever edges are read: the work is that of the edges asked for.
    """

    def __init__(
        self,
        lake: Numbering,
        edges: EdgeList,
        chances: LinkChances,
        min_joinability: float,
        least: float = 0.0,
    ) -> None:
        self._lake, self._edges, self._chances = lake, edges, chances
        self._min_joinability, self._least = min_joinability, least
        # Mapped at once: a lake that has moved on may have removed them later.
        self._table_names, self._column_names, self._column_ids = map(
            self._strings, ("table_names", "column_names", "column_ids")
        )

    def found(self) -> Iterator[JoinedColumns]:
        """Yield the edges by number, some at a time."""
        if self._least > 0:
            yield from (found for found, _ in self.weighed())
        else:
            yield from self._strong()

    def _strong(self) -> Iterator[JoinedColumns]:
        """Yield the edges from the least joinability on, whatever their probability."""
        for found in self._edges.batches():
            yield found.take(found.matched / self._lake.sizes[found.a] >= self._min_joinability)

    def weighed(self) -> Iterator[tuple[JoinedColumns, Double]]:
        """Yield the edges and their probabilities, some at a time."""
        for found in self._strong():
            chances = self._chances.of_edges(found)
            likely = chances >= self._least
            yield found.take(likely), chances[likely]

    def count(self) -> GraphSize:
        """Count the edges, and the columns and tables that have any."""
        edges, seen = 0, np.zeros(len(self._lake.sizes), bool)
        for found in self.found():
            edges += len(found.a)
            seen[found.a] = seen[found.b] = True
        tables = len(np.unique(self._lake.tables[seen]))
        return GraphSize(edges, int(seen.sum()), tables)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, some at a time."""
        for found, chances in self.weighed():
            if len(found.a):
                yield self._batch(found, chances)

    def _batch(self, found: JoinedColumns, chances: Double) -> pa.RecordBatch:
        tables, names, sizes = self._table_names, self._column_names, self._lake.sizes
        cardinality = pa.DictionaryArray.from_arrays(pa.array(found.repeats), list(CARDINALITIES))
        arrays = [
            *(part for column in (found.a, found.b)
              for part in (tables.take(pa.array(self._lake.tables[column])),
                           names.take(pa.array(column)))),
            *(found.matched / sizes[column] for column in (found.a, found.b)),
            *(found.matched, sizes[found.a], sizes[found.b], cardinality.cast(pa.string())),
            *(self._column_ids.take(pa.array(column)) for column in (found.a, found.b)),
            np.round(chances, 4),
        ]  # fmt: skip
        return pa.record_batch([pa.array(array) for array in arrays], schema=SCHEMA)

    def _strings(self, name: str) -> pa.Array:
        parts = [load_strings(segment.folder, name) for segment in self._lake.segments]
        return pa.concat_arrays(parts) if len(parts) > 1 else parts[0]

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write all rows to a file in the format of its ending; replaces an existing file."""
        target = Path(os.path.realpath(path))
        write = writer_of(target)
        with written_aside(target) as aside:
            write(aside, self.batches())


def _write_csv(path: Path, batches: Iterable[pa.RecordBatch]) -> None:
    from pyarrow.csv import CSVWriter

    with CSVWriter(path, SCHEMA) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _write_parquet(path: Path, batches: Iterable[pa.RecordBatch]) -> None:
    from pyarrow.parquet import ParquetWriter

    with ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)


def _write_json(path: Path, batches: Iterable[pa.RecordBatch]) -> None:
    """Write a list of edges, each as the service gives it."""
    # One by one: a graph may have more edges than fit into memory.
    with path.open("w", encoding="utf-8") as file:
        before = "[\n"
        for batch in batches:
            for row in batch.to_pylist():
                edge: dict[str, Any] = {
                    end: {
                        "table": row[f"{end}_table"],
                        "column": row[f"{end}_column"],
                        "column_id": row[f"{end}_id"],
                    }
                    for end in ("a", "b")
                }
                numbers = "joinability", "reverse", "matched", "cardinality", "probability"
                edge |= {name: row[name] for name in numbers}
                file.write(before + json.dumps(edge, ensure_ascii=False))
                before = ",\n"
        file.write("[]\n" if before == "[\n" else "\n]\n")


def _write_graphml(path: Path, batches: Iterable[pa.RecordBatch]) -> None:
    """Write tables as nodes and joins as edges, as Gephi, yEd and NetworkX read them."""
    with path.open("w", encoding="utf-8") as file:
        file.write('<?xml version="1.0" encoding="UTF-8"?>\n')
        file.write('<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n')
        for name, kind in ({"name": "string"} | _ATTRIBUTES).items():
            of = "node" if name == "name" else "edge"
            file.write(f'<key id="{name}" for="{of}" attr.name="{name}" attr.type="{kind}"/>\n')
        file.write('<graph edgedefault="undirected">\n')
        nodes: dict[str, int] = {}
        for batch in batches:
            for row in batch.to_pylist():
                ends = []
                for table in (row["a_table"], row["b_table"]):
                    # GraphML allows nodes between edges, so tables are written as they appear.
                    if table not in nodes:
                        nodes[table] = len(nodes)
                        data = f'<data key="name">{_xml(table)}</data>'
                        file.write(f'<node id="n{nodes[table]}">{data}</node>\n')
                    ends.append(quoteattr(f"n{nodes[table]}"))
                data = "".join(
                    f'<data key="{name}">{_xml(str(row[name]))}</data>' for name in _ATTRIBUTES
                )
                file.write(f"<edge source={ends[0]} target={ends[1]}>{data}</edge>\n")
        file.write("</graph>\n</graphml>\n")


def _xml(text: str) -> str:
    r"""Escape a text; what XML cannot hold becomes a question mark.

    >>> _xml("a<b\x00")
    'a&lt;b?'
    """
    return escape(_NOT_XML.sub("?", text))


#: Writers by the ending of the file.
ENDINGS: dict[str, Callable[[Path, Iterable[pa.RecordBatch]], None]] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
    ".json": _write_json,
    ".graphml": _write_graphml,
}


def writer_of(path: Path) -> Callable[[Path, Iterable[pa.RecordBatch]], None]:
    """Return the writer for a file's ending, or refuse the ending."""
    for ending, write in ENDINGS.items():
        if path.name.lower().endswith(ending):
            return write
    raise DeepJoinError(
        f"Cannot write {path.name}: its ending must be one of {', '.join(ENDINGS)}."
    )


def primary_keys(keys: Sequence[TableKey]) -> dict[str, TableKey]:
    """Return the likeliest key of each table."""
    best: dict[str, TableKey] = {}
    for key in keys:
        if key.table not in best or key.probability > best[key.table].probability:
            best[key.table] = key
    return best


def to_sql(relations: Sequence[Relation], keys: Sequence[TableKey]) -> str:
    """Write constraints; a comment before each has its probability and its orphans."""
    lines = ["-- Keys and foreign keys found in the data, with the chance of each."]
    # A foreign key needs a key to refer to, so every parent is unique here.
    wanted = {key.table: key.columns for key in primary_keys(keys).values()}
    for table, columns in wanted.items():
        chance = primary_keys(keys)[table].probability
        lines += [
            f"-- {chance:.2f}",
            f"ALTER TABLE {_table(table)} ADD PRIMARY KEY ({_columns(columns)});",
        ]
    unique = {(one.parent_table, one.parent_columns) for one in relations}
    for table, columns in sorted(unique - set(wanted.items())):
        lines.append(f"ALTER TABLE {_table(table)} ADD UNIQUE ({_columns(columns)});")
    for one in relations:
        note = f"; {one.orphans:,} rows refer to nothing" if one.orphans else ""
        lines += [
            f"-- {one.probability:.2f}{note}",
            f"ALTER TABLE {_table(one.child_table)} ADD FOREIGN KEY "
            f"({_columns(one.child_columns)}) REFERENCES {_table(one.parent_table)} "
            f"({_columns(one.parent_columns)});",
        ]
    return "\n".join(lines) + "\n"


def _table(name: str) -> str:
    """Quote the name of a table of a database, schema by schema; a file is its own name."""
    short = short_name(name)
    if name.endswith(short) and re.fullmatch(r"[\w$]+(\.[\w$]+)*", name):
        return ".".join(map(identifier, name.split(".")))
    return identifier(short)


def _columns(columns: Sequence[str]) -> str:
    return ", ".join(map(identifier, columns))


def to_dbt(relations: Sequence[Relation], keys: Sequence[TableKey]) -> str:
    """Write a properties file of dbt; relations of several columns have no such test there.

    dbt runs what is between braces in a name, so such names are left out, which a comment says.
    """
    models: dict[str, dict[str, list[str]]] = {}
    named = [(key.table, *key.columns) for key in primary_keys(keys).values()]
    named += [(one.child_table, one.parent_table, *one.child_columns, *one.parent_columns)
              for one in relations]  # fmt: skip
    left_out = sum(map(_runs_in_dbt, named))
    for key in primary_keys(keys).values():
        if len(key.columns) == 1 and not _runs_in_dbt((key.table, *key.columns)):
            tests = models.setdefault(key.table, {}).setdefault(key.columns[0], [])
            tests += ["          - unique", "          - not_null"]
    for one in relations:
        ends = one.child_table, one.parent_table, *one.child_columns, *one.parent_columns
        if len(one.child_columns) > 1 or _runs_in_dbt(ends):
            continue
        tests = models.setdefault(one.child_table, {}).setdefault(one.child_columns[0], [])
        tests += [
            "          - relationships:",
            "              arguments:",
            f"                to: {_ref(short_name(one.parent_table))}",
            f"                field: {_yaml(_field(one.parent_columns[0]))}",
        ]
    lines = ["version: 2", "", "models:" if models else "models: []"]
    if left_out:
        lines[1] = f"# {left_out} left out: a name has braces, which dbt would run."
    for table in sorted(models):
        lines += [f"  - name: {_yaml(short_name(table))}", "    columns:"]
        for column in sorted(models[table]):
            lines += [
                f"      - name: {_yaml(column)}",
                *([] if _SQL_NAME.fullmatch(column) else ["        quote: true"]),
                "        data_tests:",
                *models[table][column],
            ]
    return "\n".join(lines) + "\n"


#: Names that SQL takes without quotes.
_SQL_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def _runs_in_dbt(names: Iterable[str]) -> bool:
    return any(re.search("{[{%#]", name) for name in names)


def _field(column: str) -> str:
    """Write a column as dbt puts it into its SQL: as it is."""
    return column if _SQL_NAME.fullmatch(column) else identifier(column)


def _yaml(text: str) -> str:
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _ref(model: str) -> str:
    text = f"ref({_single(model)})"
    return text if re.fullmatch(r"[\w.]+", model) else _yaml(text)


def _single(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def shown_columns(relations: Sequence[Relation], keys: Sequence[TableKey]) -> dict[str, list[str]]:
    """List the columns of each table that a relation or a key names."""
    found: dict[str, list[str]] = {}
    named = [(key.table, key.columns) for key in primary_keys(keys).values()]
    for one in relations:
        named += [(one.child_table, one.child_columns), (one.parent_table, one.parent_columns)]
    for table, columns in sorted(named, key=lambda of: of[0]):
        known = found.setdefault(table, [])
        known += [column for column in columns if column not in known]
    return found


#: Returns the type of a table's column.
Kinds = Callable[[str, str], str]


def to_dbml(relations: Sequence[Relation], keys: Sequence[TableKey], kind: Kinds) -> str:
    """Write DBML: tables with the columns that matter, then references."""
    best = primary_keys(keys)
    lines: list[str] = []
    for table, columns in shown_columns(relations, keys).items():
        lines.append(f"Table {_quoted(table)} {{")
        for column in columns:
            is_key = table in best and best[table].columns == (column,)
            lines.append(f"  {_quoted(column)} {kind(table, column)}{' [pk]' if is_key else ''}")
        lines += ["}", ""]
    for one in relations:
        sign = "-" if one.cardinality == "1:1" else ">"
        ends = (
            f"{_quoted(table)}.{_ends(columns)}"
            for table, columns in (
                (one.child_table, one.child_columns),
                (one.parent_table, one.parent_columns),
            )
        )
        lines.append(f"Ref: {f' {sign} '.join(ends)} // {one.probability:.2f}")
    return "\n".join(lines) + "\n"


def _quoted(name: str) -> str:
    return '"' + printable(name).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _ends(columns: Sequence[str]) -> str:
    if len(columns) == 1:
        return _quoted(columns[0])
    return f"({', '.join(map(_quoted, columns))})"


def to_mermaid(relations: Sequence[Relation], keys: Sequence[TableKey], kind: Kinds) -> str:
    """Write an erDiagram; names that Mermaid cannot take are quoted or reduced to letters."""
    best = primary_keys(keys)
    foreign = {(one.child_table, column) for one in relations for column in one.child_columns}
    lines = ["erDiagram"]
    for table, columns in shown_columns(relations, keys).items():
        lines.append(f"    {_entity(table)} {{")
        for column in columns:
            marks = ["PK"] if table in best and column in best[table].columns else []
            marks += ["FK"] if (table, column) in foreign else []
            mark = f" {','.join(marks)}" if marks else ""
            lines.append(f"        {kind(table, column)} {_attribute(column)}{mark}")
        lines.append("    }")
    for one in relations:
        many = "|o" if one.cardinality == "1:1" else "}o"
        label = _entity(f"{', '.join(one.child_columns)} {one.probability:.2f}")
        parent, child = _entity(one.parent_table), _entity(one.child_table)
        lines.append(f"    {child} {many}--|| {parent} : {label}")
    return "\n".join(lines) + "\n"


def _entity(text: str) -> str:
    """Quote a text for Mermaid, on one line and without a directive, which may stand anywhere."""
    return '"' + re.sub("%(?=%)", "% ", printable(text).replace('"', "'")) + '"'


def _attribute(column: str) -> str:
    return re.sub(r"\W+", "_", column).strip("_") or "column"
