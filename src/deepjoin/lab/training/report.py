"""What a training run writes for people: ``report.json``, ``curves.png`` and the model card."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from deepjoin.arrays import Double
from deepjoin.errors import DeepJoinError
from deepjoin.files import replace_file
from deepjoin.optional import require

#: A loss or a precision, and its step.
Event = Mapping[str, Any]
REPORT_FILE = "report.json"
CURVES_FILE = "curves.png"
FORMAT = 1
#: Comes with matplotlib, so a picture is the same on every machine.
_TYPEFACE = "DejaVu Sans"
_ACCENT, _TEXT, _QUIET, _HAIRLINE = "#0f6e84", "#1c2733", "#76838f", "#d5dbe0"
_DOTS_AN_INCH = 160
#: Width and height of a panel in inches; its axes as shares of it: left, bottom, width, height.
_PANEL = (5.4, 3.9)
_INSIDE = (0.13, 0.14, 0.69, 0.64)
#: From this many losses on, a running mean is drawn too: single batches vary widely.
_MANY = 30
_METRICS = {"cosine": "their cosine", "euclidean": "their Euclidean distance"}
CARD_FILE = "README.md"
TAGS = ("deepjoin", "sentence-transformers", "table-discovery", "joinable-columns")


def check_installed() -> None:
    """Check before a long run, not after it, that its curves can be drawn."""
    require("matplotlib", "train", "Drawing the curves of a training run")


def write_report(folder: Path, header: Mapping[str, Any], events: Sequence[Event]) -> None:
    """Write both files, each atomically.

    ``header`` describes the run: settings, data, versions, hardware, seconds. Events are
    ``{"step", "loss"}`` and ``{"step", "precision"}``, the latter also with ``queries``.
    """
    check_installed()
    odd = [one for one in events if "step" not in one or not {"loss", "precision"} & one.keys()]
    if odd or not events:
        raise DeepJoinError(
            "A report needs steps with a loss or a precision; it was given "
            f"{odd[:1] or 'none'}. Train for one step at least."
        )
    trained = [event for event in events if event["step"]]
    # JSON has no NaN: a loss that diverged becomes null.
    plain = [
        {key: one if math.isfinite(one) else None for key, one in event.items()} for event in events
    ]
    content = {"format": FORMAT, **header, "best": best(trained), "events": plain}
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False, default=_plain)
    whole_file(folder / REPORT_FILE, f"{text}\n".encode())
    whole_file(folder / CURVES_FILE, curves(events))


def best(events: Sequence[Event]) -> Event | None:
    """Find the first validation with the highest precision.

    >>> best([{"step": 0, "precision": 0.5}, {"step": 9, "precision": 0.8}, {"step": 9, "loss": 1}])
    {'step': 9, 'precision': 0.8}
    """
    return max(_with("precision", events), key=lambda event: event["precision"], default=None)


def whole_file(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    try:
        replace_file(path, content)
    except OSError as error:
        raise DeepJoinError(
            f"{path} cannot be written: {error.strerror}. Make room, or give another folder."
        ) from None


def _with(key: str, events: Sequence[Event]) -> list[Event]:
    """Keep the events with a finite number for a key; a loss that diverged is not one."""
    return [event for event in events if math.isfinite(event.get(key, math.nan))]


def _plain(value: Any) -> Any:
    """Convert NumPy's numbers, and paths, for JSON."""
    return value.item() if isinstance(value, np.generic) else str(value)


def curves(events: Sequence[Event]) -> bytes:
    """Draw loss and precision over the steps as a PNG; a panel without numbers is left out."""
    import matplotlib
    from matplotlib.figure import Figure

    panels = [(draw, _with(key, events)) for key, draw in _DRAWN.items()]
    panels = [(draw, some) for draw, some in panels if some]
    wide, high = _PANEL
    with matplotlib.rc_context({"font.family": _TYPEFACE, "font.size": 10}):
        figure = Figure((wide * max(1, len(panels)), high), dpi=_DOTS_AN_INCH, facecolor="white")
        for place, (draw, some) in enumerate(panels):
            left, bottom, width, height = _INSIDE
            axes = figure.add_axes(
                ((place + left) / len(panels), bottom, width / len(panels), height)
            )
            axes.set_xlim(0, max(1, *(event["step"] for event in events)))
            _style(axes)
            draw(axes, some)
        content = BytesIO()
        figure.savefig(content, format="png")
    return content.getvalue()


def _style(axes: Any) -> None:
    """Draw only the parts of the frame that carry information."""
    axes.margins(y=0.12)
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_HAIRLINE)
    axes.grid(axis="y", color=_HAIRLINE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_QUIET, length=0, pad=6, labelsize=9)
    axes.locator_params(axis="x", nbins=5, integer=True)
    axes.locator_params(axis="y", nbins=5, min_n_ticks=3)
    axes.xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}")
    axes.set_xlabel("step", color=_QUIET, labelpad=6, fontsize=9)


def _draw_loss(axes: Any, events: Sequence[Event]) -> None:
    steps, losses = _points(events, "loss")
    smooth = _smoothed(losses)
    if many := len(losses) >= _MANY:
        axes.plot(steps, losses, color=_ACCENT, linewidth=0.8, alpha=0.25)
    axes.plot(steps, smooth, color=_ACCENT, linewidth=2, solid_capstyle="round")
    axes.plot(steps[-1:], smooth[-1:], "o", color=_ACCENT, markersize=6, clip_on=False)
    _label_right(axes, smooth[-1], f"{smooth[-1]:.3f}", _ACCENT, "bold")
    _title(axes, "Loss", "of the batches, and its running mean" if many else "of the batches")


def _draw_precision(axes: Any, events: Sequence[Event]) -> None:
    steps, precisions = _points(events, "precision")
    top = int(np.argmax(precisions))
    axes.plot(steps, precisions, "o-", color=_ACCENT, linewidth=2, markersize=3.5, clip_on=False)
    axes.plot(steps[top], precisions[top], "o", color=_ACCENT, markersize=8, clip_on=False)
    step, precision = steps[top], precisions[top]
    axes.annotate(
        f"{precision:.3f} at step {step:,.0f}" if step else f"{precision:.3f} before training",
        *((step, precision), (0, 9)),
        textcoords="offset points",
        # Towards the middle of the panel, where there is room.
        ha="right" if step > axes.get_xlim()[1] / 2 else "left",
        **{"va": "bottom", "color": _ACCENT, "fontsize": 9.5, "fontweight": "bold"},
    )
    if steps[0] == 0 and top:
        axes.axhline(precisions[0], color=_QUIET, linewidth=1, linestyle=(0, (4, 3)))
        _label_right(axes, precisions[0], f"{precisions[0]:.3f}\nbefore\ntraining", _QUIET)
    queries = events[-1].get("queries")
    _title(axes, "P@10", f"of {queries:,} queries held back" if queries else "of queries held back")


#: What is drawn, by the key of its events, from left to right.
_DRAWN = {"loss": _draw_loss, "precision": _draw_precision}


def _title(axes: Any, title: str, more: str) -> None:
    look = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "baseline"}
    axes.annotate(title, (0, 1), (0, 36), **look, color=_TEXT, fontsize=13, fontweight="bold")
    axes.annotate(more, (0, 1), (0, 19), **look, color=_QUIET, fontsize=9)


def _label_right(axes: Any, height: float, text: str, color: str, weight: str = "normal") -> None:
    """Write a label to the right of the panel, at a height of the y axis."""
    look = {"color": color, "fontsize": 9.5, "fontweight": weight, "linespacing": 1.3}
    at = axes.get_yaxis_transform()
    axes.annotate(text, (1, height), (10, 0), at, "offset points", va="center", **look)


def _points(events: Sequence[Event], key: str) -> tuple[Double, Double]:
    steps = np.array([event["step"] for event in events], np.float64)
    return steps, np.array([event[key] for event in events], np.float64)


def _smoothed(numbers: Double) -> Double:
    """Average each number with its neighbours, fewer of them at the ends."""
    around = np.ones(2 * (len(numbers) // _MANY) + 1)
    sums, counts = (np.convolve(one, around, "same") for one in (numbers, np.ones(len(numbers))))
    return np.asarray(sums / counts)


@dataclass(frozen=True)
class Figure:
    """A measurement: what, how much, and under which conditions."""

    what: str
    value: float | str
    conditions: str = ""


@dataclass(frozen=True)
class CardFacts:
    """The content of a model card."""

    #: The name of the model, which is also that of its sentence-transformers folder.
    name: str
    base_model: str
    #: What it was trained on.
    data: str
    settings: Mapping[str, object]
    figures: Sequence[Figure]
    #: The command that trains it again.
    command: str
    #: One of its texts as an example, and how many tokens of a text are read.
    example: str
    tokens: int
    metric: str
    #: The folder to index with: the small form, which needs no torch, or else the model.
    encoder: str
    #: Prefix of the text of a query; empty if queries are written as other columns.
    prompt: str = ""
    #: What the model does not do, and what its figures do not show.
    limits: Sequence[str] = ()


def write_card(folder: Path, facts: CardFacts) -> Path:
    """Write the card into a folder, and return its path."""
    path = folder / CARD_FILE
    whole_file(path, card(facts).encode())
    return path


def card(facts: CardFacts) -> str:
    """Write the card as Markdown with a YAML header."""
    header = {
        # The tables decide the licence of what was learnt from them; deepjoin does not know it.
        "license": "other",
        "base_model": facts.base_model,
        "library_name": "sentence-transformers",
        "pipeline_tag": "sentence-similarity",
    }
    # JSON strings are valid YAML.
    lines = [f"{key}: {json.dumps(one, ensure_ascii=False)}" for key, one in header.items()]
    tags = [f"- {json.dumps(tag)}" for tag in TAGS]
    index = f"deepjoin index tables/ --encoder {facts.encoder} --metric {facts.metric}"
    named = ', prompt_name="query"' if facts.prompt else ""
    python = (
        "from sentence_transformers import SentenceTransformer\n\n"
        f"model = SentenceTransformer({json.dumps(facts.name)})\n"
        f"vectors = model.encode([{json.dumps(facts.example, ensure_ascii=False)}])\n"
        f'query = model.encode("name: Oslo, Lima, Rome."{named})\n'
        "print(model.similarity(query, vectors))"
    )
    figures = [(one.what, _number(one.value), one.conditions) for one in facts.figures]
    parts = (
        "\n".join(["---", *lines, "tags:", *tags, "---"]),
        f"# {facts.name}",
        "Gives each column of a table a vector; columns that can be joined have vectors close to "
        f"each other. Trained by deepjoin from {facts.base_model}.",
        "## Use",
        "With deepjoin:" if facts.encoder == facts.name else "With deepjoin, without torch:",
        f"```sh\n{index}\n```",
        "With sentence-transformers, with columns written as in training, "
        f"at most {facts.tokens} tokens each:",
        f"```python\n{python}\n```",
        f"Vectors are compared by {_METRICS[facts.metric]}.",
        "## Data",
        f"{facts.data}\n\nLicence of the data: that of the tables.",
        "## Settings",
        _table(("setting", "value"), facts.settings.items()),
        "## Figures",
        _table(("measured", "value", "conditions"), figures) if figures else "None measured.",
        *(("## Limits", "\n".join(f"- {one}" for one in facts.limits)) if facts.limits else ()),
        "## Made with",
        f"```sh\n{facts.command}\n```",
    )
    return "\n\n".join(parts) + "\n"


def _number(value: float | str) -> str:
    """Round a number for reading.

    >>> _number(0.80349), _number(1200), _number(51234.5)
    ('0.803', '1,200', '51,234')
    """
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    cells = [[" ".join(str(one).split()).replace("|", "\\|") for one in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)
