"""Results as text: aligned tables for a terminal, and codes in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepjoin.model import Hit, Match, Results

_EXAMPLES = 3
_HEAD = ("#", "table", "column", "coverage", "matched", "reverse", "cardinality", "why")

#: How rows meet on the matched values, the query's side first.
CARDINALITIES = {
    "1:1": "one to one: a row of yours meets one row of theirs",
    "1:n": "one to many: a row of yours may meet several of theirs",
    "n:1": "many to one: several rows of yours may share one of theirs",
    "n:m": "many to many: several rows on both sides, so rows multiply",
}

_GENERIC = {"run": "row numbers", "year": "years", "flag": "flags"}

_WAYS = {"exact-equi": "equal cells", "cell-vectors": "similar cells"}


def render_table(results: Results) -> str:
    """Draw the hits as an aligned table."""
    if not results.hits:
        return "no joinable column found"
    rows: list[tuple[str, ...]] = [_HEAD]
    for hit in results.hits:
        shares = f"{hit.joinability:.0%}", f"{hit.matched}/{hit.query_size}", f"{hit.reverse:.0%}"
        rows.append((str(hit.rank), hit.table, hit.column, *shares, hit.cardinality, _why(hit)))
    return aligned(rows)


def _why(hit: Hit) -> str:
    # Pairs with different spellings explain most.
    matches = sorted(hit.matches, key=lambda one: (one.similarity == 1, -one.similarity))
    why = ", ".join(map(_pair, matches[:_EXAMPLES]))
    why += ", …" if why and hit.matched > _EXAMPLES else ""
    if hit.also:
        why += f" (also {', '.join(other.column for other in hit.also[:3])})"
    return f"[{hit.generic}] {why}" if hit.generic else why


def _pair(match: Match) -> str:
    query, target = one_line(match.query), one_line(match.target)
    if match.similarity < 1:
        return f"{query} ≈ {target}"
    return query if match.query == match.target else f"{query} = {target}"


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


def aligned(rows: Sequence[Sequence[str]], widest: int = 44) -> str:
    """Align rows in columns, each as wide as its widest cell; the last column may run on."""
    # A path is cut in the middle, since its end says most.
    cells = [
        [one_line(cell, widest, keep_end="/" in cell) for cell in row[:-1]]
        + [one_line(row[-1], 160)]
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


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
    kind = _GENERIC.get(generic, generic)
    return f"These are {kind}: they match nearly every column of {kind}, whatever it is about."


def found_by_words(ways: Iterable[str]) -> str:
    """Name the ways that led to a hit.

    >>> found_by_words(("exact-equi", "cell-vectors"))
    'equal cells, similar cells'
    """
    return ", ".join(_WAYS.get(way, way) for way in ways)
