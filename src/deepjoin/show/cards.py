"""Results as cards for a notebook: HTML that brings its own style, runs nothing, asks for nothing.

Colours come from the notebook: text is in its colour and lines are see-through greys, so that
light and dark themes need no telling apart. Every name and cell is escaped, and cut if long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from deepjoin.show.card_style import SCOPE, STYLE
from deepjoin.show.render import one_line
from deepjoin.show.words import cardinality_words, found_by_words, generic_words

if TYPE_CHECKING:
    from deepjoin.model import Hit, Match, Results

#: So many hits are unfolded, so many have a card, and so many a line of their own.
_UNFOLDED, _CARDS, _LINES = 3, 10, 200
#: Cells and columns that are seen at once.
_MATCHES, _UNMATCHED, _BROUGHT, _ALSO = 5, 8, 10, 5
_NAME, _CELL, _SAMPLE, _TITLE = 90, 60, 24, 300
_COVERS = "share of your distinct values that this column has, or is likely to have"


def results_html(results: Results) -> str:
    """Draw all hits: the best unfolded, the next to be unfolded, the rest as lines."""
    hits = results.hits
    if not hits:
        return _page(_head(results) + _nothing(results))
    cards = "".join(_card(hit, hit.rank <= _UNFOLDED) for hit in hits[:_CARDS])
    return _page(_head(results) + cards + _rest(hits[_CARDS:]))


def hit_html(hit: Hit) -> str:
    """Draw one hit, unfolded."""
    return _page(_card(hit, unfolded=True))


def _page(content: str) -> str:
    return f'<div class="{SCOPE}"><style>{STYLE}</style>{content}</div>'


def _text(text: str, width: int = _CELL, *, keep_end: bool = False) -> str:
    """Make text from a table fit for a page: escaped, one line, isolated from what is around."""
    shown = one_line(text, width, keep_end=keep_end)
    whole = one_line(text, _TITLE)
    title = f' title="{escape(whole)}"' if shown != whole else ""
    return f"<bdi{title}>{escape(shown)}</bdi>"


def _head(results: Results) -> str:
    query = results.query
    name = _text(str(query.get("column") or "values"), _NAME)
    where = f" of {_text(str(query['table']), _NAME, keep_end=True)}" if query.get("table") else ""
    facts = [f"{query.get('size', 0):,} distinct values", _count(len(results), "hit")]
    if "total" in results.seconds:
        facts.append(f"{results.seconds['total'] * 1000:,.0f} ms")
    return (
        f'<div class="dj-head"><b>{name}</b>{where}'
        f'<span class="dj-quiet">{" · ".join(facts)}</span></div>'
    )


def _nothing(results: Results) -> str:
    """Say why there may be no hit, and what to try."""
    if not results.query.get("size"):
        told = "The column has no values: every cell is missing or blank."
        tries = ["another column"]
    else:
        told = "No column of the lake joins with it, as it was asked for."
        tries = [
            '<code>join="any"</code>, which also matches other spellings',
            "a lower <code>min_joinability</code>, or none",
            "a column of names or codes rather than of free text",
        ]
    listed = "".join(f"<li>{one}</li>" for one in tries)
    return f'<div class="dj-card dj-empty">{told} Try:<ul>{listed}</ul></div>'


def _card(hit: Hit, unfolded: bool) -> str:
    return (
        f'<details class="dj-card"{" open" if unfolded else ""}>{_summary(hit)}'
        f'<div class="dj-body">{_warning(hit)}{_bars(hit)}{_facts(hit)}'
        f"{_matches(hit)}{_unmatched(hit)}{_brings(hit)}{_also(hit)}</div></details>"
    )


def _summary(hit: Hit) -> str:
    mark = '<span class="dj-mark">says little</span>' if hit.generic else ""
    return (
        f'<summary><span class="dj-rank">{hit.rank}</span>'
        f'<span class="dj-name">{_named(hit)}{mark}</span>'
        f'<span class="dj-share" title="{_COVERS}">{_track(hit.joinability)}'
        f"<b>{_percent(hit.joinability)}</b></span></summary>"
    )


def _named(hit: Hit) -> str:
    return (
        f'<b>{_text(hit.column, _NAME)}</b> <span class="dj-quiet">{_text(hit.table, _NAME)}</span>'
    )


def _warning(hit: Hit) -> str:
    told = generic_words(hit.generic)
    return f'<div class="dj-warning">{_text(told, _TITLE)}</div>' if told else ""


def _bars(hit: Hit) -> str:
    """Draw how much of each side the other covers, by equal cells and by similar ones."""
    equi, semantic = hit.equi, hit.semantic
    bars = [_pair_of_bars("equal", equi.joinability, equi.reverse, equi.matched, hit)]
    if semantic is not None:
        numbers = semantic.joinability, semantic.reverse, semantic.matched
        bars.append(_pair_of_bars("equal or similar", *numbers, hit))
    heads = (
        '<span></span><span class="dj-quiet">of yours</span><span class="dj-quiet">of theirs</span>'
    )
    return f'<div class="dj-bars">{heads}{"".join(bars)}</div>'


def _pair_of_bars(label: str, share: float, reverse: float, matched: int, hit: Hit) -> str:
    mine = f"{_percent(share)} <small>{matched:,} of {hit.query_size:,}</small>"
    theirs = f"{_percent(reverse)} <small>of {hit.target_size:,}</small>"
    return f"<span>{label}</span>{_bar(share, mine)}{_bar(reverse, theirs)}"


def _bar(share: float, told: str) -> str:
    return f'<span class="dj-measure">{_track(share)}<span>{told}</span></span>'


def _track(share: float) -> str:
    width = f"{100 * min(1.0, max(0.0, share)):.1f}%"
    return f'<span class="dj-track"><span class="dj-fill" style="width:{width}"></span></span>'


def _facts(hit: Hit) -> str:
    told = [
        f"<b>{_text(hit.cardinality)}</b> {cardinality_words(hit.cardinality)}",
        f"{_text(hit.type)} column",
        f"found by {_text(found_by_words(hit.found_by), _TITLE)}",
    ]
    return f'<div class="dj-facts">{" · ".join(told)}</div>'


def _matches(hit: Hit) -> str:
    if not hit.matches:
        return ""
    # What is spelled differently tells most.
    telling = sorted(hit.matches, key=lambda one: (one.similarity == 1, one.query == one.target))
    shown, rest = telling[:_MATCHES], telling[_MATCHES:]
    beyond = hit.matched - len(hit.matches)
    more = f" and {beyond:,} not listed" if beyond > 0 else ""
    folded = f'<div class="dj-pairs">{"".join(map(_pair, rest))}</div>'
    fold = f"<details><summary>{len(rest):,} more{more}</summary>{folded}</details>"
    pairs = f'<div class="dj-pairs">{"".join(map(_pair, shown))}</div>{fold if rest else ""}'
    return _section("Matched", pairs)


def _pair(match: Match) -> str:
    sign, like = ("=", "") if match.similarity >= 1 else ("≈", f"{match.similarity:.2f}")
    return (
        f"<span>{_text(match.query)}</span><span>{sign}</span>"
        f'<span>{_text(match.target)}</span><span class="dj-quiet">{like}</span>'
    )


def _unmatched(hit: Hit) -> str:
    missing = hit.query_size - hit.matched
    chips = [_text(cell) for cell in hit.unmatched[:_UNMATCHED]]
    return _section("Not matched", _chips(chips, missing)) if missing and chips else ""


def _brings(hit: Hit) -> str:
    brings = hit.brings
    if not brings.columns:
        return ""
    first = brings.sample[0] if brings.sample else {}
    chips = [_brought(name, first.get(name)) for name in brings.columns[:_BROUGHT]]
    return _section("Brings", _chips(chips, len(brings.columns)))


def _brought(name: str, cell: str | None) -> str:
    example = f' <span class="dj-quiet">{_text(cell, _SAMPLE)}</span>' if cell else ""
    return _text(name, _CELL) + example


def _also(hit: Hit) -> str:
    chips = [f"{_text(one.column)} {_percent(one.joinability)}" for one in hit.also[:_ALSO]]
    return _section("Also joins", _chips(chips, len(hit.also))) if chips else ""


def _section(title: str, content: str) -> str:
    return f'<div class="dj-part"><div class="dj-quiet">{title}</div><div>{content}</div></div>'


def _chips(chips: Iterable[str], total: int) -> str:
    shown = [f'<span class="dj-chip">{chip}</span>' for chip in chips]
    more = total - len(shown)
    last = f'<span class="dj-quiet">and {more:,} more</span>' if more > 0 else ""
    return f'<div class="dj-chips">{"".join(shown)}{last}</div>'


def _rest(hits: Sequence[Hit]) -> str:
    """List the hits that have no card, to be unfolded."""
    if not hits:
        return ""
    lines = "".join(map(_line, hits[:_LINES]))
    beyond = len(hits) - _LINES
    last = f'<div class="dj-quiet">and {beyond:,} more</div>' if beyond > 0 else ""
    covered = [hit.joinability for hit in hits]
    shares = f"{_percent(min(covered))} to {_percent(max(covered))}"
    return (
        f'<details class="dj-card"><summary><span class="dj-rank">…</span><span class="dj-name">'
        f"{_count(len(hits), 'more hit')}, numbers {hits[0].rank:,} to {hits[-1].rank:,}</span>"
        f'<span class="dj-quiet">{shares}</span></summary>'
        f'<div class="dj-body"><div class="dj-lines">{lines}</div>{last}</div></details>'
    )


def _line(hit: Hit) -> str:
    mark = '<span class="dj-mark">says little</span>' if hit.generic else ""
    return (
        f'<span class="dj-quiet">{hit.rank}</span><span>{_named(hit)}{mark}</span>'
        f"{_bar(hit.joinability, _percent(hit.joinability))}"
    )


def _percent(share: float) -> str:
    """Round a share so that neither all nor nothing is claimed of what is only near it.

    >>> _percent(0.999), _percent(0.001), _percent(1.0)
    ('99%', '1%', '100%')
    """
    if 0 < share < 1:
        share = min(0.99, max(0.01, share))
    return f"{share:.0%}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
