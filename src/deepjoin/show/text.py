"""Results as text: tables that fit a terminal, colour where it is wanted, codes in words."""

from __future__ import annotations

import os
import re
import sys
import textwrap
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from math import ceil
from typing import TYPE_CHECKING, Any, Literal, TextIO

if TYPE_CHECKING:
    from deepjoin.model import Bridges, Hit, Match, Matches, Results
    from deepjoin.store.catalog import TableEntry

_EXAMPLES = 3
_HEAD = ("#", "table", "column", "coverage", "matched", "reverse", "chance", "cardinality", "why")
#: Where the hits are that a table leaves out because a person would hardly make the joins.
_UNLIKELY = "results.unlikely"
#: The text at the end of a row: its most characters, and the columns that it needs beside names.
_LONGEST_TEXT, _LEAST_TEXT = 160, 24
#: Columns of a terminal below which no name is cut, and no text is moved.
_LEAST_NAME = 12
#: Coverage from which a hit is shown as good, and as fair.
_GOOD, _FAIR = 0.8, 0.4

#: The start of a formula; a plain number may start in the same way, and is left alone.
#: Spreadsheets also run the wide and small forms of these signs, as East Asian keyboards type them.
FORMULA = r"^[=+\-@\t\r\n＝＋－＠﹦﹢﹣﹫]"
NUMBER = r"[+\-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+\-]?[0-9]+)?"

_CODES = {"bold": "1", "dim": "2", "red": "1;31", "green": "32", "yellow": "33"}

#: How rows meet on the matched values, the query's side first.
CARDINALITIES = {
    "1:1": "one to one: a row of yours meets one row of theirs",
    "1:n": "one to many: a row of yours may meet several of theirs",
    "n:1": "many to one: several rows of yours may share one of theirs",
    "n:m": "many to many: several rows on both sides, so rows multiply",
}

_GENERIC = {"run": "row numbers", "year": "years", "flag": "flags"}

_WAYS = {
    "exact-equi": "equal cells",
    "cell-vectors": "similar cells",
    "program": "a program that rewrites cells",
}


#: Pairs of values that are shown, and the words for how they were found.
_PAIRS = 20
_HOW = {"equal": "equal", "program": "by program", "similar": "similar", "bridge": "by a bridge"}


@dataclass(frozen=True)
class Screen:
    """Where text is shown. The default is a pipe: any width, nothing cut, no colour."""

    width: int | None = None
    is_terminal: bool = False
    colour: bool = False

    @classmethod
    def of(cls, stream: TextIO) -> Screen:
        """Describe a stream; COLUMNS, NO_COLOR and FORCE_COLOR are respected."""
        is_terminal = stream.isatty()
        given = os.environ.get("COLUMNS", "")
        width = int(given) if given.isdecimal() else 0
        if is_terminal and not width:
            try:
                width = os.get_terminal_size(stream.fileno()).columns
            except (OSError, ValueError):
                width = 0
        # The order that Python itself follows: https://no-color.org goes first.
        colour = is_terminal and os.environ.get("TERM") != "dumb"
        colour |= os.environ.get("FORCE_COLOR", "0") not in ("", "0")
        colour &= not os.environ.get("NO_COLOR")
        return cls(width or (80 if is_terminal else None), is_terminal, colour)

    @classmethod
    def plain(cls, stream: TextIO) -> Screen:
        """Describe a stream, for text that may end up elsewhere and has no colour."""
        return replace(cls.of(stream), colour=False)

    def paint(self, text: str, style: str) -> str:
        r"""Write a text in a style, where there is colour.

        >>> Screen().paint("90%", "green"), Screen(colour=True).paint("90%", "green")
        ('90%', '\x1b[32m90%\x1b[0m')
        """
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if self.colour and style and text else text

    def wrap(self, text: str) -> str:
        """Break a line between words if it is wider than the screen."""
        if self.width is None:
            return text
        return "\n".join(_wrapped(text, self.width, "  "))


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        max(width, 8),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def render_table(results: Results, screen: Screen = Screen(), unlikely: str = _UNLIKELY) -> str:
    """Draw the hits as a table; ``unlikely`` says where those are that were set apart."""
    below = _incomplete(results) + (f"\n{text}" if (text := set_apart(results, unlikely)) else "")
    if not results.hits:
        return ("no likely hit" if results.unlikely else "no joinable column found") + below
    rows: list[tuple[str, ...]] = [_HEAD]
    styles: dict[tuple[int, int], str] = {}
    for row, hit in enumerate(results.hits, 1):
        shares = f"{hit.coverage:.0%}", f"{hit.matched}/{hit.query_size}", f"{hit.reverse:.0%}"
        names = str(hit.rank), hit.table, ", ".join(hit.columns)
        rows.append((*names, *shares, f"{hit.probability:.2f}", hit.cardinality, _why(hit)))
        if hit.coverage >= _FAIR and not hit.generic:
            styles[row, 3] = "green" if hit.coverage >= _GOOD else "yellow"
        styles[row, len(_HEAD) - 1] = "dim"
    return aligned(rows, screen, styles=styles) + below


def set_apart(results: Results, where: str = _UNLIKELY) -> str:
    """Say how many hits were set apart because a person would hardly make the joins."""
    if not results.unlikely:
        return ""
    most = ceil(100 * max(hit.probability for hit in results.unlikely)) / 100
    found = count(len(results.unlikely), "unlikely hit")
    return f"and {found} with a chance of {most:.2f} at most: {where}"


def render_matches(found: Matches, screen: Screen = Screen()) -> str:
    """Draw pairs of values: those to check first, then what was found by which rule."""
    if not found.matches:
        return f"none of {count(found.sizes[0], 'value')} has a match" + _near(found)
    signs = {"equal": "=", "program": "→"}
    order = {"similar": 0, "program": 1, "equal": 2}
    shown = sorted(found.matches, key=lambda one: (order.get(one.how, 1), one.similarity))
    rows = [("yours", "", "theirs", "chance", "how")]
    for one in shown[:_PAIRS]:
        chance = f"{one.similarity:.2f}" if one.how == "similar" else ""
        sign = signs.get(one.how, "≈")
        rows.append((one_line(one.query), sign, one_line(one.target), chance, one.how))
    lines = [aligned(rows, screen)]
    if len(shown) > _PAIRS:
        lines.append(f"and {len(shown) - _PAIRS:,} more pairs")
    matched = len({one.query for one in found.matches})
    ways = {one.how for one in found.matches}
    counts = [
        f"{sum(one.how == way for one in found.matches):,} {words}"
        for way, words in _HOW.items() if way in ways
    ]  # fmt: skip
    precision = "" if found.precision is None else f"; estimated precision {found.precision:.0%}"
    total = count(found.sizes[0], "value")
    lines += ["", screen.wrap(f"{matched:,} of {total} match: {', '.join(counts)}{precision}")]
    for program in found.programs:
        lines.append(screen.wrap(f"program: {program.text} ({program.covering})"))
        lines.append(f"  SQL: {program.sql}")
        lines.append(f"  pandas: {program.pandas}")
    if found.ties:
        first = found.ties[0]
        tie = f"{one_line(first.query)} may also be {one_line(first.target)}"
        lines.append(screen.wrap(f"{count(len(found.ties), 'tie')}, e.g. {tie}"))
    return "\n".join(lines) + _near(found)


def render_bridges(found: Bridges, screen: Screen = Screen()) -> str:
    """Draw the tables that lead from one key to another, and the joins of the first."""
    if not found.bridges:
        return "no table of the lake leads from the left key to the right one"
    rows = [("table", "left", "right", "coverage", "of right", "ambiguous", "for example")]
    for one in found.bridges:
        pairs = (f"{one_line(pair.query)} → {one_line(pair.target)}" for pair in one.matches[:2])
        shares = f"{one.coverage:.0%}", f"{one.right_coverage:.0%}", f"{one.ambiguous:,}"
        rows.append((one.table, one.left_column, one.right_column, *shares, ", ".join(pairs)))
    return f"{aligned(rows, screen)}\n\nSQL:\n{printable(found.bridges[0].sql)}"


def _near(found: Matches) -> str:
    if not found.near_misses:
        return ""
    pairs = [f"{one_line(one.query)} ~ {one_line(one.target)}" for one in found.near_misses[:3]]
    return f"\nnear misses: {', '.join(pairs)}"


def _incomplete(results: Results) -> str:
    return "" if results.partial is None else f"\nnot complete: {results.partial.text}"


def render_entry(entry: TableEntry, screen: Screen = Screen()) -> str:
    """Draw a table of the lake: its columns, their types, which of them are indexed."""
    rows = [("column", "type", "distinct", "")]
    for one in entry.columns:
        state = f"left out: {one.left_out}" if one.left_out else "indexed"
        rows.append((one.name, one.type, f"{one.distinct:,}", state))
    lines = [printable(f"{entry.name}: {entry.title}, {entry.rows:,} rows"), aligned(rows, screen)]
    return "\n".join([*lines, *(printable(f"repaired: {note}") for note in entry.notes)])


def render_enrichment(found: Mapping[str, Any], screen: Screen = Screen()) -> str:
    """Draw what an enrichment added, or could add."""
    if found["offers"]:
        rows = [("column", "table", "via", "your rows", "new", "chance", "such as")]
        rows += [
            (
                one["column"],
                one["table"],
                one["via"],
                f"{one['coverage']:.0%}",
                f"{one['novelty']:.0%}",
                f"{one['probability']:.2f}",
                ", ".join(one["examples"]),
            )
            for one in found["offers"]
        ]
        return aligned(rows, screen, last="name")
    if found["metric"] is None:
        return "nothing in the lake joins with this table"
    if found["score_before"] is None:
        return "stopped before anything was measured"
    before, after = found["score_before"], found["score_after"]
    line = f"{found['metric']} {before:.3f} -> {after:.3f}"
    low, high = found["gain_low"], found["gain_high"]
    interval = f"gain {low:+.3f} to {high:+.3f}"
    if not found["steps"]:
        return f"{line}: no table of the lake is sure to help ({interval})"
    drawn = [("table", "via", "your rows", "chance", "gain", "", "adds")]
    most = max(abs(step["gain"] or 0) for step in found["steps"]) or 1
    depths: list[int] = []
    for step in found["steps"]:
        depths.append(0 if step["parent"] < 0 else depths[step["parent"]] + 1)
        gain = "" if step["gain"] is None else f"{step['gain']:+.3f}"
        bar = "▇" * round(8 * max(0, step["gain"] or 0) / most)
        adds = ", ".join(step["columns"]) or "(only leads to another table)"
        name = f"{'  ' * (depths[-1] - 1)}└ {step['table']}" if depths[-1] else step["table"]
        via = step["via"]
        if step["parent"] >= 0:
            via += f" of {found['steps'][step['parent']]['table']}"
        shares = f"{step['coverage']:.0%}", f"{step['probability']:.2f}"
        drawn.append((name, via, *shares, gain, bar, adds))
    return f"{line} ({interval})\n{aligned(drawn, screen)}"


def _why(hit: Hit) -> str:
    # The surest pairs first; of equal ones, those with different spellings explain more.
    matches = sorted(hit.matches, key=lambda one: (-one.similarity, one.query == one.target))
    why = ", ".join(map(_pair, matches[:_EXAMPLES]))
    why += ", …" if why and hit.matched > _EXAMPLES else ""
    if hit.also:
        why += f" (also {', '.join(other.column for other in hit.also[:3])})"
    return f"[{hit.generic}] {why}" if hit.generic else why


def _pair(match: Match) -> str:
    query, target = one_line(match.query), one_line(match.target)
    if match.similarity < 1:
        return f"{query} ≈ {target}"
    if match.how == "program":
        return f"{query} → {target}"
    return query if match.query == match.target else f"{query} = {target}"


def duration(seconds: float) -> str:
    """Write how long something takes, roughly.

    >>> duration(0.2), duration(41), duration(1_500), duration(9_000)
    ('1 s', '41 s', '25 min', '2.5 h')
    """
    if seconds < 100:
        return f"{max(1, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def one_line(text: str, width: int = 40, *, keep_end: bool = False) -> str:
    """Make any text safe for a terminal line: no control characters, not too long."""
    plain = "".join(c if c.isprintable() else " " for c in text)
    plain = " ".join(plain.split())
    if len(plain) <= width:
        return plain
    if not keep_end:
        return plain[: width - 1] + "…"
    head = width // 3
    return f"{plain[:head]}…{plain[head + 1 - width :]}"


def count(number: int, what: str) -> str:
    """Count in words.

    >>> count(1, "row"), count(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def some(names: Sequence[str], most: int, total: int = 0, between: str = ", ") -> str:
    """List the first names, and count the others, of which there may be more than names.

    >>> some(["a", "b", "c"], 2), some(["a", "b"], 2, total=2000)
    ('a, b and 1 more', 'a, b and 1,998 more')
    """
    more = max(total, len(names)) - min(most, len(names))
    return between.join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def aligned(
    rows: Sequence[Sequence[str]],
    screen: Screen = Screen(),
    *,
    last: Literal["cut", "wrapped", "name"] = "cut",
    styles: Mapping[tuple[int, int], str] | None = None,
) -> str:
    """Align rows in columns; the first row is the heading.

    The last column is a text that is cut or wrapped, and moves below its row where a screen is
    too narrow, or a name like the others. Names are cut on a terminal only, and after texts.
    ``styles`` is by row and column.
    """
    most = _LONGEST_TEXT if last == "cut" else sys.maxsize
    cells = [[*map(printable, row[:-1]), one_line(row[-1], most)] for row in rows]
    columns, lines, is_below = _laid_out(list(zip(*cells, strict=True)), screen, last)
    widths = [max(map(text_width, column)) for column in columns]
    indent = 3 if is_below else sum(widths[:-1]) + 2 * (len(widths) - 1)
    drawn = []
    for number, (*row, _) in enumerate(zip(*columns, strict=True)):
        style = [(styles or {}).get((number, at), "") for at in range(len(columns))]
        if not number:
            style = ["bold"] * len(columns)
        painted = [
            screen.paint(cell, style[at]) + " " * (widths[at] - text_width(cell))
            for at, cell in enumerate(row)
        ]
        texts = [screen.paint(line, style[-1]) for line in lines[number]]
        if is_below:
            # The heading of a text below its row would look like one more row.
            texts = ["", *texts] if number else [""]
        drawn.append("  ".join([*painted, texts[0]]).rstrip())
        drawn += [" " * indent + line for line in texts[1:] if line]
    return "\n".join(drawn)


def _laid_out(
    columns: list[tuple[str, ...]], screen: Screen, last: str
) -> tuple[list[tuple[str, ...]], list[list[str]], bool]:
    """Fit columns to a screen; return them, the lines of each text, and whether texts go below."""
    widths = [max(map(text_width, column)) for column in columns]
    gaps = 2 * (len(widths) - 1)
    has_text = last != "name" and widths[-1] > _LEAST_NAME
    if screen.width is None or sum(widths) + gaps <= screen.width:
        return columns, [[text] for text in columns[-1]], False
    room = screen.width - gaps - sum(widths[:-1])
    is_below = has_text and room < min(widths[-1], _LEAST_TEXT)
    if screen.is_terminal and (is_below or not has_text):
        names = len(columns) - is_below
        columns[:names] = _fitted(columns[:names], screen.width)
    if not has_text:
        return columns, [[text] for text in columns[-1]], False
    room = screen.width - 3 if is_below else room
    lines = [
        _wrapped(text, room) if text and last == "wrapped" else [cut(text, room)]
        for text in columns[-1]
    ]
    return columns, lines, is_below


def _fitted(columns: Sequence[Sequence[str]], width: int) -> list[tuple[str, ...]]:
    """Cut the names in the widest columns until all columns fit beside each other."""
    widths = [max(map(text_width, column)) for column in columns]
    room = width - 2 * (len(columns) - 1)
    while sum(widths) > room and max(widths) > _LEAST_NAME:
        widths[widths.index(max(widths))] -= 1
    return [tuple(cut_names(column, most)) for column, most in zip(columns, widths, strict=True)]


def cut_names(names: Sequence[str], width: int) -> list[str]:
    """Cut names in the middle to a width; what tells them apart stays, or they stay whole.

    >>> cut_names(["shop/2023/orders.csv", "shop/2024/orders.csv", "x.csv"], 16)
    ['sho…2023…ers.csv', 'sho…2024…ers.csv', 'x.csv']
    """
    short = {name: cut(name, width, 2 * width // 3) for name in names}
    same: defaultdict[str, list[str]] = defaultdict(list)
    for name, written in short.items():
        same[written].append(name)
    for group in same.values():
        if len(group) > 1:
            short |= _cut_around(group, width)
    if len(set(short.values())) < len(short):
        return list(names)
    return [short[name] for name in names]


def _cut_around(names: Sequence[str], width: int) -> dict[str, str]:
    """Cut names on both sides of the words in which they differ."""
    start = _shared(names)
    end = _shared([name[start:][::-1] for name in names])
    first = names[0]
    while start and first[start - 1].isalnum():
        start -= 1
    while end and first[-end].isalnum():
        end -= 1
    short = {}
    for name in names:
        middle = name[start : len(name) - end]
        room = width - text_width(middle)
        if room < 2:
            return dict(zip(names, names, strict=True))
        tail = cut(name[len(name) - end :], room - room // 3, -1)
        short[name] = cut(name[:start], room - text_width(tail)) + middle + tail
    return short


def _shared(names: Iterable[str]) -> int:
    """Count the characters that names begin with in common."""
    letters = zip(*names, strict=False)
    return sum(1 for _ in takewhile(lambda some: len(set(some)) == 1, letters))


def cut(text: str, width: int, kept_end: int = 0) -> str:
    """Cut a text to terminal columns, some of them for its end; -1 keeps the end alone.

    >>> cut("geo/cities.csv", 9), cut("geo/cities.csv", 9, 5), cut("日本/地名.csv", 9, -1)
    ('geo/citi…', 'geo…s.csv', '…地名.csv')
    """
    if text_width(text) <= width:
        return text
    kept_end = width - 1 if kept_end < 0 else kept_end
    end = _first(text[::-1], kept_end)[::-1]
    while end and not character_width(end[0]):  # an accent whose letter is cut off
        end = end[1:]
    return f"{_first(text, width - 1 - kept_end)}…{end}"


def _first(text: str, width: int) -> str:
    """Return as much of the beginning of a text as fits into terminal columns."""
    for at, character in enumerate(text):
        width -= character_width(character)
        if width < 0:
            return text[:at]
    return text


def text_width(text: str) -> int:
    """Count the terminal columns that a text takes.

    >>> text_width("city"), text_width("日本")
    (4, 4)
    """
    return len(text) if text.isascii() else sum(map(character_width, text))


def character_width(character: str) -> int:
    """Count the terminal columns that a character takes."""
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def plain_text(text: str) -> str:
    """Put a ``'`` before a text that a spreadsheet would run as a formula.

    >>> plain_text("=1+1"), plain_text("-5"), plain_text("a=b")
    ("'=1+1", '-5', 'a=b')
    >>> plain_text("\uff1d1+1")[0]
    "'"
    """
    runs = re.match(FORMULA, text) and not re.fullmatch(NUMBER, text)
    return f"'{text}" if runs else text


def printable(text: str) -> str:
    r"""Replace characters that would break, colour or reverse a line of a terminal.

    >>> printable("new\nline \x1b[31m")
    'new line  [31m'
    """
    return "".join(character if character.isprintable() else " " for character in text)


def cardinality_words(cardinality: str) -> str:
    """Explain a cardinality.

    >>> cardinality_words("n:1")
    'many to one: several rows of yours may share one of theirs'
    """
    return CARDINALITIES.get(cardinality, "nothing matches")


def generic_words(generic: str) -> str:
    """Explain why a generic key says little; empty for any other key.

    >>> generic_words("year")
    'These are years: they match nearly every column of years, whatever it is about.'
    """
    if not generic:
        return ""
    if generic == "range":
        return "This column holds most numbers of the range of yours, so any others match as well."
    kind = _GENERIC.get(generic, generic)
    return f"These are {kind}: they match nearly every column of {kind}, whatever it is about."


def found_by_words(ways: Iterable[str]) -> str:
    """Name the ways that led to a hit.

    >>> found_by_words(("exact-equi", "cell-vectors"))
    'equal cells, similar cells'
    """
    return ", ".join(_WAYS.get(way, way) for way in ways)
