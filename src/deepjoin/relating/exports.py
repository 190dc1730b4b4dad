"""Relations as people use them elsewhere: SQL constraints, dbt tests, DBML, Mermaid."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from deepjoin.matching.names import short_name
from deepjoin.model import Relation, TableKey
from deepjoin.read.sql import identifier


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
    """Write a properties file of dbt; relations of several columns have no such test there."""
    models: dict[str, dict[str, list[str]]] = {}
    for key in primary_keys(keys).values():
        if len(key.columns) == 1:
            tests = models.setdefault(key.table, {}).setdefault(key.columns[0], [])
            tests += ["          - unique", "          - not_null"]
    for one in relations:
        if len(one.child_columns) > 1:
            continue
        tests = models.setdefault(one.child_table, {}).setdefault(one.child_columns[0], [])
        tests += [
            "          - relationships:",
            "              arguments:",
            f"                to: ref({_single(short_name(one.parent_table))})",
            f"                field: {json.dumps(one.parent_columns[0], ensure_ascii=False)}",
        ]
    lines = ["version: 2", "", "models:" if models else "models: []"]
    for table in sorted(models):
        lines += [f"  - name: {json.dumps(short_name(table), ensure_ascii=False)}", "    columns:"]
        for column in sorted(models[table]):
            lines += [
                f"      - name: {json.dumps(column, ensure_ascii=False)}",
                "        data_tests:",
                *models[table][column],
            ]
    return "\n".join(lines) + "\n"


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


def to_dbml(relations: Sequence[Relation], keys: Sequence[TableKey]) -> str:
    """Write DBML: tables with the columns that matter, then references."""
    best = primary_keys(keys)
    lines: list[str] = []
    for table, columns in shown_columns(relations, keys).items():
        lines.append(f"Table {_quoted(table)} {{")
        for column in columns:
            is_key = table in best and best[table].columns == (column,)
            lines.append(f"  {_quoted(column)} varchar{' [pk]' if is_key else ''}")
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
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _ends(columns: Sequence[str]) -> str:
    if len(columns) == 1:
        return _quoted(columns[0])
    return f"({', '.join(map(_quoted, columns))})"


def to_mermaid(relations: Sequence[Relation], keys: Sequence[TableKey]) -> str:
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
            lines.append(f"        value {_attribute(column)}{mark}")
        lines.append("    }")
    for one in relations:
        many = "|o" if one.cardinality == "1:1" else "}o"
        label = ", ".join(one.child_columns).replace('"', "'")
        parent, child = _entity(one.parent_table), _entity(one.child_table)
        lines.append(f'    {child} {many}--|| {parent} : "{label} {one.probability:.2f}"')
    return "\n".join(lines) + "\n"


def _entity(table: str) -> str:
    return '"' + table.replace('"', "'") + '"'


def _attribute(column: str) -> str:
    return re.sub(r"\W+", "_", column).strip("_") or "column"
