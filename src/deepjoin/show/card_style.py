"""The style of the cards: every rule is for what is inside them, and for nothing else."""

from __future__ import annotations

#: The class of what holds the cards.
SCOPE = "deepjoin-cards"

_LINE = "1px solid rgba(127,127,127,.3)"
_ACCENT, _WARNING = "#3f83c6", "#b7791f"

#: What is selected inside the cards, and how it looks; the empty selector is all of them.
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
    ".dj-lines .dj-measure>:last-child": "min-width:2.7em;text-align:right",
}

STYLE = "".join(f".{SCOPE} {inside}{{{rules}}}" for inside, rules in _RULES.items())
