"""Results as cards for a notebook: HTML with its own style, no scripts and no requests.

Colours come from the notebook: text is in its colour and lines are translucent greys, so light
and dark themes look alike. Every name and cell is escaped, and cut if long.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from deepjoin.show.text import (
    cardinality_words,
    count,
    found_by_words,
    generic_words,
    one_line,
)

if TYPE_CHECKING:
    from deepjoin.model import Hit, Match, Matches, Program, Results

#: Hits that are unfolded, that have a card, and that have a line each.
_UNFOLDED, _CARDS, _LINES = 3, 10, 200
#: Cells and columns that are seen at once.
_MATCHES, _UNMATCHED, _BROUGHT, _ALSO, _TABLES = 5, 8, 10, 5, 20
_NAME, _CELL, _SAMPLE, _TITLE = 90, 60, 24, 300
_COVERAGE = "share of your distinct values that have a match in this column"

#: The class of the element that holds the cards.
SCOPE = "deepjoin-cards"

_LINE = "1px solid rgba(127,127,127,.3)"
_ACCENT, _WARNING = "#3f83c6", "#b7791f"

#: Styles by selector, all inside the cards; the empty selector is the element itself.
_RULES = {
    "": "font:13px/1.45 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;max-width:860px;"
    "color:inherit;text-align:left",
    "*": "box-sizing:border-box",
    "b": "font-weight:600",
    "code": "font:12px ui-monospace,Menlo,Consolas,monospace;background:rgba(127,127,127,.15);"
    "padding:1px 4px;border-radius:3px;color:inherit",
    "small": "opacity:.7;font-size:11.5px",
    "ul": "margin:4px 0 0;padding-left:20px",
    "summary": "cursor:pointer",
    ".dj-quiet": "opacity:.7;font-weight:400",
    ".dj-head": "display:flex;flex-wrap:wrap;gap:0 6px;align-items:baseline;padding:4px 2px 8px",
    ".dj-head>.dj-quiet": "margin-left:auto",
    ".dj-card": f"border:{_LINE};border-radius:8px;margin:0 0 8px;padding:0",
    ".dj-card>summary": "display:flex;gap:10px;align-items:baseline;padding:9px 14px;"
    "list-style:none",
    ".dj-card>summary::-webkit-details-marker": "display:none",
    ".dj-card>summary::before": "content:'▸';opacity:.6;width:.8em",
    ".dj-card[open]>summary::before": "content:'▾'",
    ".dj-card>summary:focus-visible": f"outline:2px solid {_ACCENT};outline-offset:-2px;"
    "border-radius:8px",
    ".dj-card[open]>summary": f"border-bottom:{_LINE}",
    ".dj-empty": "padding:12px 14px",
    ".dj-rank": "min-width:1.5em;text-align:right;opacity:.6;font-variant-numeric:tabular-nums",
    ".dj-name": "flex:1;min-width:0;overflow-wrap:anywhere",
    ".dj-share": "display:flex;gap:10px;align-items:center;font-variant-numeric:tabular-nums",
    ".dj-share b": "font-size:15px;min-width:2.7em;text-align:right",
    ".dj-share .dj-track": "width:64px;flex:none;height:5px",
    ".dj-card[open]>summary .dj-track": "visibility:hidden",
    ".dj-mark": f"margin-left:8px;padding:0 6px;border:1px solid {_WARNING};border-radius:9px;"
    "font-size:11px;white-space:nowrap",
    ".dj-warning": f"border-left:3px solid {_WARNING};padding:1px 0 1px 9px",
    ".dj-body": "padding:10px 14px 12px;display:grid;gap:10px",
    ".dj-bars": "display:grid;grid-template-columns:110px 1fr 1fr;gap:3px 12px;align-items:center",
    ".dj-measure": "display:flex;gap:8px;align-items:center;min-width:0;"
    "font-variant-numeric:tabular-nums",
    ".dj-measure>:last-child": "white-space:nowrap",
    ".dj-track": "display:block;flex:1 1 40px;max-width:150px;height:7px;border-radius:4px;"
    "background:rgba(127,127,127,.22);overflow:hidden",
    ".dj-fill": f"display:block;height:100%;border-radius:4px;background:{_ACCENT}",
    ".dj-part": "display:grid;grid-template-columns:110px minmax(0,1fr);gap:2px 12px",
    ".dj-part summary": "opacity:.7;padding-top:3px",
    ".dj-pairs": "display:grid;gap:1px 9px;overflow-wrap:anywhere;"
    "grid-template-columns:fit-content(45%) auto fit-content(45%) 1fr",
    ".dj-chips": "display:flex;flex-wrap:wrap;gap:4px 6px;align-items:baseline",
    ".dj-chip": "background:rgba(127,127,127,.13);border-radius:5px;padding:0 7px;"
    "overflow-wrap:anywhere",
    ".dj-lines": "display:grid;grid-template-columns:auto minmax(0,1fr) 150px;gap:2px 10px;"
    "overflow-wrap:anywhere",
    ".dj-steps": "display:grid;grid-template-columns:minmax(0,1fr) 150px 4em;gap:6px 10px;"
    "align-items:center;overflow-wrap:anywhere",
    ".dj-steps>:nth-child(3n)": "text-align:right;font-variant-numeric:tabular-nums",
    ".dj-lines .dj-measure>:last-child": "min-width:2.7em;text-align:right",
}

STYLE = "".join(f".{SCOPE} {inside}{{{rules}}}" for inside, rules in _RULES.items())


def results_html(results: Results) -> str:
    """Draw all hits: the best unfolded, the next to be unfolded, the rest as lines."""
    query, hits = results.query, results.hits
    name = _text(", ".join(query.get("columns") or [query.get("column") or "values"]), _NAME)
    where = f" of {_text(str(query['table']), _NAME, keep_end=True)}" if query.get("table") else ""
    facts = [f"{query.get('size', 0):,} distinct values", count(len(results), "hit")]
    if results.partial is not None:
        facts.append(f"not complete: {_text(results.partial.text, _TITLE)}")
    if "total" in results.seconds:
        facts.append(f"{results.seconds['total'] * 1000:,.0f} ms")
    head = (
        f'<div class="dj-head"><b>{name}</b>{where}'
        f'<span class="dj-quiet">{" · ".join(facts)}</span></div>'
    )
    cards = "".join(_card(hit, hit.rank <= _UNFOLDED) for hit in hits[:_CARDS])
    further = _further_hits(hits[_CARDS:]) + _further_hits(results.unlikely, "unlikely hit")
    return _page(head + (cards or _no_hits(results)) + further)


def matches_html(found: Matches) -> str:
    """Draw pairs of values: what to check first, the rules, near misses."""
    matched = len({one.query for one in found.matches})
    facts = [f"{matched:,} of {found.sizes[0]:,} values match"]
    if found.precision is not None:
        facts.append(f"estimated precision {_percent(found.precision)}")
    head = (
        '<div class="dj-head"><b>matches</b>'
        f'<span class="dj-quiet">{" · ".join(facts)}</span></div>'
    )
    order = {"similar": 0, "program": 1}
    shown = sorted(found.matches, key=lambda one: (order.get(one.how, 2), one.similarity))
    parts = [_section("Pairs", _pairs(shown[:_MATCHES]))] if shown else []
    parts += [_program(program) for program in found.programs]
    near = [f"{_text(one.query)} ~ {_text(one.target)}" for one in found.near_misses[:_ALSO]]
    if near:
        parts.append(_section("Near misses", _chips(near, len(found.near_misses))))
    empty = '<div class="dj-card dj-empty">No value has a match.</div>'
    body = f'<div class="dj-card dj-body">{"".join(parts)}</div>' if parts else empty
    return _page(head + body)


def enrichment_html(found: Mapping[str, Any]) -> str:
    """Draw an enrichment: a waterfall of gains beside the tree of joins, or what could be added."""
    if found["metric"] is None:
        return _offers_html(found["offers"])
    before, after = found["score_before"], found["score_after"]
    if before is None:
        return _page('<div class="dj-card dj-empty">Stopped before anything was measured.</div>')
    low, high = found["gain_low"], found["gain_high"]
    head = (
        f'<div class="dj-head"><b>{_text(found["metric"])} {before:.3f} → {after:.3f}</b>'
        f'<span class="dj-quiet">gain {low:+.3f} to {high:+.3f}, '
        f"{found['seconds']:.0f} s</span></div>"
    )
    if not found["steps"]:
        empty = "No table of the lake is sure to help."
        return _page(f'{head}<div class="dj-card dj-empty">{empty}</div>{_not_used(found)}')
    lines: list[str] = []
    depths: list[int] = []
    reached, marks = before, [before]
    for step in found["steps"]:
        marks.append(marks[-1] + (step["gain"] or 0))
    least, most = min(marks), max(marks)
    width = (most - least) or 1
    for step in found["steps"]:
        depths.append(0 if step["parent"] < 0 else depths[step["parent"]] + 1)
        gain = step["gain"] or 0
        start, reached = reached, reached + gain
        left, share = (min(start, reached) - least) / width, abs(gain) / width
        colour = _ACCENT if gain >= 0 else _WARNING
        bar = (
            f'<span class="dj-track dj-fall"><span class="dj-fill" style="margin-left:{left:.1%};'
            f'width:{share:.1%};background:{colour}"></span></span>'
        )
        gained = "" if step["gain"] is None else f"{gain:+.3f}"
        via = _text(step["via"])
        if step["parent"] >= 0:
            via += f" of {_text(found['steps'][step['parent']]['table'], _NAME, keep_end=True)}"
        name = f"{_text(step['table'], _NAME, keep_end=True)} <small>via {via}, "
        name += f"{_percent(step['coverage'])} of your rows, "
        name += f"probability {_percent(step['probability'])}</small>"
        adds = _chips(
            [_text(one, _SAMPLE) for one in step["columns"][:_BROUGHT]], len(step["columns"])
        )
        lead = f'<span style="padding-left:{1.3 * depths[-1]:.1f}em">{"└ " if depths[-1] else ""}'
        lines.append(
            f"{lead}{name}{adds if step['columns'] else ''}</span>{bar}<span>{gained}</span>"
        )
    body = f'<div class="dj-card dj-body"><div class="dj-steps">{"".join(lines)}</div></div>'
    return _page(head + body + _not_used(found))


def _not_used(found: Mapping[str, Any]) -> str:
    if not found["rejected"]:
        return ""
    lines = "".join(
        f"<li>{_text(one['table'], _NAME, keep_end=True)}: {_text(one['column'])} "
        f"{_text(one['reason'], _TITLE)}</li>"
        for one in found["rejected"][:_LINES]
    )
    summary = f"Joins and columns not used: {len(found['rejected']):,}"
    return (
        f'<details class="dj-card"><summary>{summary}</summary>'
        f'<div class="dj-body"><ul>{lines}</ul></div></details>'
    )


def _offers_html(offers: Sequence[Mapping[str, Any]]) -> str:
    if not offers:
        return _page('<div class="dj-card dj-empty">Nothing in the lake joins with this.</div>')
    head = f'<div class="dj-head"><b>{count(len(offers), "column")}</b> could be added</div>'
    lines = "".join(
        f"<span>{_text(one['column'])}</span><span>{_text(one['table'], _NAME, keep_end=True)} "
        f"<small>via {_text(one['via'])}; {_text(', '.join(one['examples']))}</small></span>"
        f"{_bar(one['coverage'], _percent(one['coverage']))}"
        for one in offers[:_LINES]
    )
    return _page(f'{head}<div class="dj-card dj-body"><div class="dj-lines">{lines}</div></div>')


def _program(program: Program) -> str:
    code = f"<code>{_text(program.sql, _TITLE)}</code>"
    return _section("Program", f"{_text(program.text, _TITLE)}<br>{code}")


def lake_html(info: Mapping[str, Any], tables: Iterable[str]) -> str:
    """Draw a lake: what it holds, what was left out, the names of its tables."""
    facts = [count(info["tables"], "table"), count(info["columns"], "column")]
    facts.append(f"{info['values']:,} distinct values")
    head = (
        f'<div class="dj-head"><b>{_text(info["index"], _NAME, keep_end=True)}</b>'
        f'<span class="dj-quiet">{" · ".join(facts)}</span></div>'
    )
    if not info["tables"]:
        return _page(head + '<div class="dj-card dj-empty">No tables yet.</div>')
    chips = [_text(name, _NAME, keep_end=True) for name in tables]
    parts = [_section("Tables", _folded(chips, info["tables"]))]
    reasons = [f"{number:,} {_text(reason)}" for reason, number in info["left_out"].items()]
    if reasons:
        parts.append(_section("Left out", f"columns: {', '.join(reasons)}"))
    if info["skipped"]:
        parts.append(_section("Not read", count(len(info["skipped"]), "file")))
    return _page(f'{head}<div class="dj-card dj-body">{"".join(parts)}</div>')


def _folded(chips: Sequence[str], total: int) -> str:
    """Draw the first chips, and the others to be unfolded."""
    if len(chips) <= _TABLES:
        return _chips(chips, total)
    rest = f"<summary>{total - _TABLES:,} more</summary>{_chips(chips[_TABLES:], total - _TABLES)}"
    return _chips(chips[:_TABLES], _TABLES) + f"<details>{rest}</details>"


def hit_html(hit: Hit) -> str:
    """Draw one hit, unfolded."""
    return _page(_card(hit, unfolded=True))


def _page(content: str) -> str:
    # The style goes with every output: a notebook may show one cell without the others.
    return f'<div class="{SCOPE}"><style>{STYLE}</style>{content}</div>'


def _no_hits(results: Results) -> str:
    """Explain why there may be no hit, and what to try."""
    if not results.query.get("size"):
        reason = "The column has no values: every cell is missing or blank."
        tries = ["another column"]
    else:
        reason = "No column of the lake joins with it under these options."
        tries = [
            '<code>join="any"</code>, which also matches other spellings',
            "a lower <code>min_joinability</code>, or none",
            "a column of names or codes rather than of free text",
        ]
    listed = "".join(f"<li>{one}</li>" for one in tries)
    return f'<div class="dj-card dj-empty">{reason} Try:<ul>{listed}</ul></div>'


def _card(hit: Hit, unfolded: bool) -> str:
    warning = generic_words(hit.generic)
    # How much of each side the other covers, by equal cells and by similar ones.
    covered = [("equal", hit.equi.joinability, hit.equi.reverse, hit.equi.matched)]
    if hit.semantic is not None:
        similar = hit.semantic
        numbers = similar.joinability, similar.reverse, similar.matched
        covered.append(("equal or similar", *numbers))
    bars = (
        '<span></span><span class="dj-quiet">of yours</span><span class="dj-quiet">of theirs</span>'
    )
    for label, share, reverse, matched in covered:
        mine = f"{_percent(share)} <small>{matched:,} of {hit.query_size:,}</small>"
        theirs = f"{_percent(reverse)} <small>of {hit.target_size:,}</small>"
        bars += f"<span>{label}</span>{_bar(share, mine)}{_bar(reverse, theirs)}"
    facts = [
        f"<b>{_text(hit.cardinality)}</b> {cardinality_words(hit.cardinality)}",
        f"{_text(hit.type)} column",
        f"found by {_text(found_by_words(hit.found_by), _TITLE)}",
        f"chance that a person would make this join: {hit.probability:.2f}",
    ]
    body = [
        f'<div class="dj-warning">{_text(warning, _TITLE)}</div>' if warning else "",
        f'<div class="dj-bars">{bars}</div>',
        f'<div class="dj-facts">{" · ".join(facts)}</div>',
        f'<div class="dj-warning">{_text(str(hit.better), _TITLE)}</div>' if hit.better else "",
        *(_program(program) for program in hit.programs),
        *_sections(hit),
    ]
    return (
        f'<details class="dj-card"{" open" if unfolded else ""}>'
        f'<summary><span class="dj-rank">{hit.rank}</span>'
        f'<span class="dj-name">{_named(hit)}</span>'
        f'<span class="dj-share" title="{_COVERAGE}">{_track(hit.coverage)}'
        f"<b>{_percent(hit.coverage)}</b></span></summary>"
        f'<div class="dj-body">{"".join(body)}</div></details>'
    )


def _named(hit: Hit) -> str:
    mark = '<span class="dj-mark">says little</span>' if hit.generic else ""
    table = f'<span class="dj-quiet">{_text(hit.table, _NAME)}</span>'
    return f"<b>{_text(', '.join(hit.columns), _NAME)}</b> {table}{mark}"


def _sections(hit: Hit) -> Iterable[str]:
    """Draw what matches, what does not, what the join brings, and the table's other columns."""
    if hit.matches:
        # Pairs with different spellings explain most.
        pairs = sorted(hit.matches, key=lambda one: (one.similarity == 1, one.query == one.target))
        first, rest = pairs[:_MATCHES], pairs[_MATCHES:]
        beyond = hit.matched - len(hit.matches)
        more = f" and {beyond:,} not listed" if beyond > 0 else ""
        fold = f"<details><summary>{len(rest):,} more{more}</summary>{_pairs(rest)}</details>"
        yield _section("Matched", _pairs(first) + (fold if rest else ""))
    missing = hit.query_size - hit.matched
    if missing and hit.unmatched:
        chips = [_text(cell) for cell in hit.unmatched[:_UNMATCHED]]
        yield _section("Not matched", _chips(chips, missing))
    if hit.brings.columns:
        sample = hit.brings.sample[0] if hit.brings.sample else {}
        chips = []
        for name in hit.brings.columns[:_BROUGHT]:
            cell = sample.get(name)
            example = f' <span class="dj-quiet">{_text(cell, _SAMPLE)}</span>' if cell else ""
            chips.append(_text(name, _CELL) + example)
        yield _section("Brings", _chips(chips, len(hit.brings.columns)))
    if hit.also:
        chips = [f"{_text(one.column)} {_percent(one.coverage)}" for one in hit.also[:_ALSO]]
        yield _section("Also joins", _chips(chips, len(hit.also)))


def _pairs(matches: Sequence[Match]) -> str:
    rows = []
    for match in matches:
        similarity = "" if match.similarity >= 1 else f"{match.similarity:.2f}"
        rows.append(
            f"<span>{_text(match.query)}</span><span>{'≈' if similarity else '='}</span>"
            f'<span>{_text(match.target)}</span><span class="dj-quiet">{similarity}</span>'
        )
    return f'<div class="dj-pairs">{"".join(rows)}</div>'


def _section(title: str, content: str) -> str:
    return f'<div class="dj-part"><div class="dj-quiet">{title}</div><div>{content}</div></div>'


def _chips(chips: Iterable[str], total: int) -> str:
    drawn = [f'<span class="dj-chip">{chip}</span>' for chip in chips]
    more = total - len(drawn)
    last = f'<span class="dj-quiet">and {more:,} more</span>' if more > 0 else ""
    return f'<div class="dj-chips">{"".join(drawn)}{last}</div>'


def _further_hits(hits: Sequence[Hit], what: str = "more hit") -> str:
    """List the hits that have no card, to be unfolded."""
    if not hits:
        return ""
    lines = "".join(
        f'<span class="dj-quiet">{hit.rank}</span><span>{_named(hit)}</span>'
        f"{_bar(hit.coverage, _percent(hit.coverage))}"
        for hit in hits[:_LINES]
    )
    beyond = len(hits) - _LINES
    last = f'<div class="dj-quiet">and {beyond:,} more</div>' if beyond > 0 else ""
    covered = [hit.coverage for hit in hits]
    shares = f"{_percent(min(covered))} to {_percent(max(covered))}"
    return (
        f'<details class="dj-card"><summary><span class="dj-rank">…</span><span class="dj-name">'
        f"{count(len(hits), what)}, numbers {hits[0].rank:,} to {hits[-1].rank:,}</span>"
        f'<span class="dj-quiet">{shares}</span></summary>'
        f'<div class="dj-body"><div class="dj-lines">{lines}</div>{last}</div></details>'
    )


def _bar(share: float, label: str) -> str:
    return f'<span class="dj-measure">{_track(share)}<span>{label}</span></span>'


def _track(share: float) -> str:
    # A method's score may be above 1 or below 0; the bar stays inside its track.
    width = f"{100 * min(1.0, max(0.0, share)):.1f}%"
    return f'<span class="dj-track"><span class="dj-fill" style="width:{width}"></span></span>'


def _text(text: str, width: int = _CELL, *, keep_end: bool = False) -> str:
    """Make text from a table fit for a page: escaped, one line, isolated from its surroundings."""
    cut = one_line(text, width, keep_end=keep_end)
    whole = one_line(text, _TITLE)
    # What was cut can still be read by pointing at it.
    title = f' title="{escape(whole)}"' if cut != whole else ""
    return f"<bdi{title}>{escape(cut)}</bdi>"


def _percent(share: float) -> str:
    """Round a share so that nothing short of all is 100%, and nothing above none is 0%.

    >>> _percent(0.999), _percent(0.001), _percent(1.0)
    ('99%', '1%', '100%')
    """
    if 0 < share < 1:
        share = min(0.99, max(0.01, share))
    return f"{share:.0%}"
