"""What a training run leaves behind to be looked at: ``report.json`` and ``curves.png``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deepjoin.errors import DeepJoinError, MissingExtra
from deepjoin.files import replace_file

Doubles = npt.NDArray[np.float64]
#: A loss or a precision and the step it was seen at.
Event = Mapping[str, Any]

REPORT_FILE = "report.json"
CURVES_FILE = "curves.png"
FORMAT = 1

#: It comes with matplotlib, so a picture is the same on every machine.
_TYPEFACE = "DejaVu Sans"
_ACCENT, _TEXT, _QUIET, _HAIRLINE = "#0f6e84", "#1c2733", "#76838f", "#d5dbe0"
_DOTS_AN_INCH = 160
#: Width and height of a panel in inches; its axes as shares of it: left, bottom, width, height.
_PANEL = (5.4, 3.9)
_INSIDE = (0.13, 0.14, 0.69, 0.64)
#: With so many losses their mean is shown as well, for a batch says little.
_MANY = 30


def check_installed() -> None:
    """Tell before a long run, not after it, that its curves could not be drawn."""
    if find_spec("matplotlib") is None:
        raise MissingExtra(
            "The curves of a training run are drawn with matplotlib, which is not installed: "
            "pip install 'deepjoin[train]'."
        )


def write_report(folder: Path, header: Mapping[str, Any], events: Sequence[Event]) -> None:
    """Write both files, each whole or not at all.

    ``header`` says what was done: settings, data, versions, hardware, seconds. Events are
    ``{"step", "loss"}`` and ``{"step", "precision"}``, the latter also with ``queries``.
    """
    check_installed()
    _check(events)
    trained = [event for event in events if event["step"]]
    said = {"format": FORMAT, **header, "best": best(trained), "events": list(events)}
    text = json.dumps(_plain(said), indent=2, ensure_ascii=False, allow_nan=False)
    whole_file(folder / REPORT_FILE, f"{text}\n".encode())
    whole_file(folder / CURVES_FILE, curves(events))


def best(events: Sequence[Event]) -> Event | None:
    """Find the validation with the highest precision, the first of equal ones.

    >>> best([{"step": 0, "precision": 0.5}, {"step": 9, "precision": 0.8}, {"step": 9, "loss": 1}])
    {'step': 9, 'precision': 0.8}
    """
    return max(_with("precision", events), key=lambda event: event["precision"], default=None)


def whole_file(path: Path, content: bytes) -> None:
    """Write a file atomically; report a disk that is full or read-only in one line."""
    try:
        replace_file(path, content)
    except OSError as error:
        raise DeepJoinError(
            f"{path} cannot be written: {error.strerror}. Make room, or give another folder."
        ) from None


def _check(events: Sequence[Event]) -> None:
    odd = [one for one in events if "step" not in one or not {"loss", "precision"} & one.keys()]
    if odd or not events:
        raise DeepJoinError(
            f"A report is of steps with a loss or a precision; it was given {odd[:1] or 'none'}. "
            "Train for one step at least."
        )


def _with(key: str, events: Sequence[Event]) -> list[Event]:
    """Keep the events of a kind; what is no number, as after a loss too large, is left out."""
    return [event for event in events if math.isfinite(event.get(key, math.nan))]


def _plain(value: Any) -> Any:
    """Turn what settings and measurements hold into what JSON knows; what is no number is null."""
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def curves(events: Sequence[Event]) -> bytes:
    """Draw loss and precision over the steps as a PNG; a kind without a number is left out."""
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
            _calm(axes, max(event["step"] for event in events))
            draw(axes, some)
        content = BytesIO()
        figure.savefig(content, format="png")
    return content.getvalue()


def _calm(axes: Any, last: int) -> None:
    """Leave of the frame only what is read."""
    axes.set_xlim(0, max(1, last))
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
    _label_best(axes, steps[top], precisions[top])
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
    """Write at the right of the panel, at the height of what is meant."""
    look = {"color": color, "fontsize": 9.5, "fontweight": weight, "linespacing": 1.3}
    at = axes.get_yaxis_transform()
    axes.annotate(text, (1, height), (10, 0), at, "offset points", va="center", **look)


def _label_best(axes: Any, step: float, precision: float) -> None:
    """Write above the best point, towards the middle of the panel."""
    text = f"{precision:.3f} at step {step:,.0f}" if step else f"{precision:.3f} before training"
    side = "right" if step > axes.get_xlim()[1] / 2 else "left"
    look = {"color": _ACCENT, "fontsize": 9.5, "fontweight": "bold"}
    axes.annotate(
        text, (step, precision), (0, 9), textcoords="offset points", ha=side, va="bottom", **look
    )


def _points(events: Sequence[Event], key: str) -> tuple[Doubles, Doubles]:
    steps = np.array([event["step"] for event in events], np.float64)
    return steps, np.array([event[key] for event in events], np.float64)


def _smoothed(numbers: Doubles) -> Doubles:
    """Average each number with those around it, as many at the ends as there are."""
    reach = len(numbers) // _MANY
    sums = np.concatenate([[0.0], np.cumsum(numbers)])
    places = np.arange(len(numbers))
    first, end = np.maximum(places - reach, 0), np.minimum(places + reach + 1, len(numbers))
    means: Doubles = (sums[end] - sums[first]) / (end - first)
    return means
