"""A diagram of a database: tables as boxes with their keys, relations as lines with crow's feet.

Tables stand in columns: to the right of a table are those that refer to it. The layout is plain
numbers, drawn here as SVG and by the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from xml.sax.saxutils import escape

from deepjoin.matching.names import short_name
from deepjoin.model import Answer, Relation, TableKey
from deepjoin.relating.output import primary_keys, shown_columns

#: Sizes in pixels.
_LINE, _HEAD, _PAD, _LETTER = 20, 26, 10, 7.3
_BETWEEN, _BELOW, _MARGIN = 110, 26, 20
#: Letters shown of a name.
_LONGEST = 30
#: Passes that move tables towards those they are related with.
_PASSES = 6
#: Tables drawn at most, those with most relations first.
MOST_TABLES = 200
#: Rows of boxes of tables without relations.
_ALONE = 6


@dataclass(frozen=True)
class DiagramColumn:
    """A column in a box, and which keys it belongs to."""

    name: str
    is_key: bool
    is_foreign: bool
    y: float


@dataclass(frozen=True)
class DiagramTable:
    """A table as a box."""

    table: str
    title: str
    """Its name as it is written in the box."""
    x: float
    y: float
    width: float
    height: float
    columns: tuple[DiagramColumn, ...]


@dataclass(frozen=True)
class DiagramLine:
    """A relation as a line from the child to the parent."""

    relation: int
    """Its place among the relations."""
    path: str
    """The line as SVG writes it."""
    child_end: str
    """The mark at the child: a crow's foot for many rows, a bar for one."""
    parent_end: str
    """The mark at the parent: two bars, for exactly one row."""
    probability: float
    text: str


@dataclass(frozen=True)
class Diagram(Answer):
    """Tables and relations with their places."""

    width: float
    height: float
    tables: tuple[DiagramTable, ...]
    lines: tuple[DiagramLine, ...]
    left_out: int
    """Tables that are not drawn, because there are too many."""


def lay_out(
    relations: Sequence[Relation], keys: Sequence[TableKey], most: int = MOST_TABLES
) -> Diagram:
    """Give every table a place, and every relation its line."""
    named = shown_columns(relations, keys)
    degree = dict.fromkeys(named, 0)
    for one in relations:
        degree[one.child_table] += 1
        degree[one.parent_table] += 1
    drawn = set(sorted(named, key=lambda table: (-degree[table], table))[:most])
    kept = [
        (place, one)
        for place, one in enumerate(relations)
        if {one.child_table, one.parent_table} <= drawn
    ]
    parents: dict[str, list[str]] = {table: [] for table in sorted(drawn)}
    for _, one in kept:
        if one.child_table != one.parent_table:
            parents[one.child_table].append(one.parent_table)
    columns = _ordered(_levels(parents), parents)
    tables, x, height = [], float(_MARGIN), 0.0
    for column in columns:
        boxes = [_box(table, named[table], relations, keys) for table in column]
        width = max(box.width for box in boxes)
        y = float(_MARGIN)
        for box in boxes:
            tables.append(_moved(box, x, y, width))
            y += box.height + _BELOW
        x, height = x + width + _BETWEEN, max(height, y)
    places = {table.table: table for table in tables}
    lines = tuple(_line(number, one, places) for number, one in kept)
    size = max(0.0, x - _BETWEEN) + _MARGIN, max(height - _BELOW, 0.0) + _MARGIN
    return Diagram(*size, tuple(tables), lines, len(named) - len(drawn))


def _levels(parents: dict[str, list[str]]) -> list[list[str]]:
    """Put every table to the right of its parents; a circle is cut where it is closed."""
    level: dict[str, int] = {}

    def place(table: str) -> None:
        # Without recursion: a chain of relations may be long.
        stack, entered = [table], {table}
        while stack:
            now = stack[-1]
            waiting = [p for p in parents[now] if p not in level and p not in entered]
            if waiting:
                entered.add(waiting[0])
                stack.append(waiting[0])
                continue
            known = [level[p] for p in parents[now] if p in level]
            level[now] = max(known, default=-1) + 1
            stack.pop()

    for table in parents:
        if table not in level:
            place(table)
    # A table without parents stands beside the first that refers to it.
    children: dict[str, list[int]] = {}
    for table, some in parents.items():
        for parent in some:
            children.setdefault(parent, []).append(level[table])
    for table, some in parents.items():
        if not some and table in children:
            level[table] = max(0, min(children[table]) - 1)
    related = {table for table in parents if parents[table]} | {
        parent for some in parents.values() for parent in some
    }
    found: list[list[str]] = [[] for _ in range(max(level.values(), default=-1) + 1)]
    alone = [table for table in parents if table not in related]
    for table in parents:
        if table in related:
            found[level[table]].append(table)
    found = [column for column in found if column]
    # Tables without relations fill columns of their own.
    return found + [alone[at : at + _ALONE] for at in range(0, len(alone), _ALONE)]


def _ordered(columns: list[list[str]], parents: dict[str, list[str]]) -> list[list[str]]:
    """Order the tables of each column by the places of those they are related with."""
    near: dict[str, set[str]] = {table: set(some) for table, some in parents.items()}
    for table, some in parents.items():
        for parent in some:
            near[parent].add(table)
    for number in range(_PASSES):
        forward = columns if number % 2 == 0 else columns[::-1]
        for column in forward:
            place = {table: at / len(some) for some in columns for at, table in enumerate(some)}
            mean = {
                table: sum(place[other] for other in near[table]) / len(near[table])
                if near[table]
                else place[table]
                for table in column
            }
            column.sort(key=lambda table: (mean[table], table))
    return columns


def _cut(name: str) -> str:
    name = "".join(letter if letter.isprintable() else " " for letter in name)
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _box(
    table: str, names: Sequence[str], relations: Sequence[Relation], keys: Sequence[TableKey]
) -> DiagramTable:
    best = primary_keys(keys).get(table)
    foreign = {
        column for one in relations if one.child_table == table for column in one.child_columns
    }
    title = _cut(short_name(table))
    columns = tuple(
        DiagramColumn(
            name, best is not None and name in best.columns, name in foreign, _HEAD + _LINE * row
        )
        for row, name in enumerate(names)
    )
    letters = max([len(title), *(len(_cut(name)) + 7 for name in names)])
    height = _HEAD + _LINE * len(columns) + _PAD / 2
    return DiagramTable(table, title, 0, 0, round(letters * _LETTER + 2 * _PAD, 1), height, columns)


def _moved(box: DiagramTable, x: float, y: float, width: float) -> DiagramTable:
    columns = tuple(
        DiagramColumn(one.name, one.is_key, one.is_foreign, y + one.y) for one in box.columns
    )
    return DiagramTable(box.table, box.title, x, y, width, box.height, columns)


def _line(number: int, one: Relation, places: dict[str, DiagramTable]) -> DiagramLine:
    """Draw a relation between the rows of its columns; a table left of its parent turns back."""
    child, parent = places[one.child_table], places[one.parent_table]
    start, end = _row(child, one.child_columns[0]), _row(parent, one.parent_columns[0])
    if parent.x < child.x:  # as a rule
        x1, x2, side1, side2 = child.x, parent.x + parent.width, -1, 1
    elif parent.x > child.x:
        x1, x2, side1, side2 = child.x + child.width, parent.x, 1, -1
    else:
        x1, x2, side1, side2 = child.x + child.width, parent.x + parent.width, 1, 1
    bend = max(40.0, abs(x2 - x1) / 2)
    path = (
        f"M{x1:g} {start:g}h{12 * side1:g}"
        f"C{x1 + (12 + bend) * side1:g} {start:g} {x2 + (12 + bend) * side2:g} {end:g} "
        f"{x2 + 12 * side2:g} {end:g}H{x2:g}"
    )
    far = x1 + 12 * side1
    if one.cardinality.startswith("1"):
        child_end = f"M{x1 + 7 * side1:g} {start - 5:g}v10"
    else:
        child_end = (
            f"M{far:g} {start:g}L{x1:g} {start - 6:g}M{far:g} {start:g}L{x1:g} {start + 6:g}"
        )
    parent_end = f"M{x2 + 5 * side2:g} {end - 5:g}v10M{x2 + 9 * side2:g} {end - 5:g}v10"
    text = (
        f"{one.child_table}.{'+'.join(one.child_columns)} → "
        f"{one.parent_table}.{'+'.join(one.parent_columns)}, {one.cardinality}, "
        f"probability {one.probability:.2f}"
    )
    return DiagramLine(number, path, child_end, parent_end, one.probability, text)


def _row(table: DiagramTable, column: str) -> float:
    return next(one.y + _LINE / 2 for one in table.columns if one.name == column)


_STYLE = """\
  svg { font: 12px system-ui, sans-serif; background: #fff; color: #1d2129 }
  .box { fill: #fff; stroke: #8a93a3 } .head { fill: #e8edf5 }
  .title { font-weight: 600 } .mark { fill: #5b6575; font-size: 10px }
  .line { fill: none; stroke: #38518f; stroke-width: 1.4 } .faint { stroke-dasharray: 5 4 }
  text { fill: currentColor }
  @media (prefers-color-scheme: dark) {
    svg { background: #15181d; color: #e6e8ec } .box { fill: #1d2129; stroke: #6b7484 }
    .head { fill: #2a303b } .line { stroke: #8fb0ff } .mark { fill: #a4adbb }
  }"""
#: From this probability on, a line is solid.
_SURE = 0.8


def to_svg(relations: Sequence[Relation], keys: Sequence[TableKey]) -> str:
    """Draw the diagram; lines of relations that are less sure are dashed."""
    drawn = lay_out(relations, keys)
    note = _LINE if drawn.left_out else 0
    size = f'width="{drawn.width:g}" height="{drawn.height + note:g}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} '
        f'viewBox="0 0 {drawn.width:g} {drawn.height + note:g}" role="img">',
        f"<title>{len(drawn.tables)} tables and {len(drawn.lines)} relations</title>",
        f"<style>\n{_STYLE}\n</style>",
    ]
    for line in drawn.lines:
        kind = "line" if line.probability >= _SURE else "line faint"
        lines.append(
            f'<g><title>{escape(_plain(line.text))}</title><path class="{kind}" d="{line.path}"/>'
            f'<path class="line" d="{line.child_end}{line.parent_end}"/></g>'
        )
    numbers = count()
    for box in drawn.tables:
        # Names that are too long for the box are cut by it.
        clip = f"box{next(numbers)}"
        place = f'x="{box.x:g}" y="{box.y:g}" width="{box.width:g}"'
        lines += [
            f'<clipPath id="{clip}"><rect {place} height="{box.height:g}"/></clipPath>',
            f'<g clip-path="url(#{clip})"><title>{escape(_plain(box.table))}</title>',
            f'<rect class="box" {place} height="{box.height:g}" rx="3"/>',
            f'<rect class="head" {place} height="{_HEAD - 4}" rx="3"/>',
            f'<text class="title" x="{box.x + _PAD:g}" y="{box.y + 16:g}">{escape(box.title)}'
            "</text>",
        ]
        for column in box.columns:
            marks = " ".join(["PK"] * column.is_key + ["FK"] * column.is_foreign)
            y = column.y + 14
            lines.append(f'<text x="{box.x + _PAD:g}" y="{y:g}">{escape(_cut(column.name))}</text>')
            if marks:
                lines.append(
                    f'<text class="mark" text-anchor="end" x="{box.x + box.width - _PAD:g}" '
                    f'y="{y:g}">{marks}</text>'
                )
        lines.append("</g>")
    if drawn.left_out:
        lines.append(
            f'<text x="{_MARGIN}" y="{drawn.height + 10:g}">{drawn.left_out:,} tables with fewer '
            "relations are not drawn.</text>"
        )
    return "\n".join([*lines, "</svg>", ""])


def _plain(text: str) -> str:
    """Leave out what XML cannot hold."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
