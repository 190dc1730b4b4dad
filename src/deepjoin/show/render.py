"""Results as text: one line a hit, aligned, with the first matches as the reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepjoin.model import Hit, Match, Results

_EXAMPLES = 3
_HEAD = ("#", "table", "column", "coverage", "matched", "reverse", "cardinality", "why")


def render_table(results: Results) -> str:
    """Draw the hits as an aligned table."""
    if not results.hits:
        return "no joinable column found"
    return aligned([_HEAD, *(_row(hit) for hit in results.hits)])


def _row(hit: Hit) -> tuple[str, ...]:
    return (
        str(hit.rank),
        hit.table,
        hit.column,
        f"{hit.joinability:.0%}",
        f"{hit.matched}/{hit.query_size}",
        f"{hit.reverse:.0%}",
        hit.cardinality,
        _why(hit),
    )


def _why(hit: Hit) -> str:
    # What is spelled differently tells most.
    telling = sorted(hit.matches, key=lambda one: (one.similarity == 1, -one.similarity))
    telling = telling[:_EXAMPLES]
    shown = ", ".join(map(_pair, telling))
    shown += ", …" if shown and hit.matched > _EXAMPLES else ""
    if hit.also:
        shown += f" (also {', '.join(other.column for other in hit.also[:3])})"
    return f"[{hit.generic}] {shown}" if hit.generic else shown


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
    """Lay out rows in columns of their own width; the last column may run on."""
    # A path is cut in the middle: its end tells most.
    cells = [
        [one_line(cell, widest, keep_end="/" in cell) for cell in row[:-1]]
        + [one_line(row[-1], 160)]
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(_line(row, widths) for row in cells)


def _line(row: Iterable[str], widths: Iterable[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
