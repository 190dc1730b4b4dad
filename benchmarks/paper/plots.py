"""Plots of the experiments: one accent colour, greys, labels at the lines, any background."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.paper.experiments import FOLDER as EXPERIMENTS
from benchmarks.paper.experiments import names, read_experiment
from benchmarks.paper.results import FOLDER as RESULTS
from benchmarks.paper.results import Results
from benchmarks.paper.shown import NAMES, Figure, Measured

from deepjoin.errors import MissingExtra

#: Legible on white and on black.
ACCENT, GREY, PALE = "#d9500b", "#7d7d7d", "#9a9a9a"
_STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "svg.hashsalt": "deepjoin",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": GREY,
    "axes.titlecolor": GREY,
    "axes.titlesize": 9,
    "text.color": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
}
_PANEL = (4.0, 3.0)
#: Least distance of two labels, as a share of the height of a panel.
_APART = 0.062


def write_plots(
    out: Path, experiments: Path = EXPERIMENTS, results: Path = RESULTS, form: str = "svg"
) -> list[Path]:
    """Draw every experiment with a plot and results."""
    paths = []
    for name in names(experiments):
        experiment = read_experiment(name, experiments)
        measured = Measured(experiment, Results(experiment, results))
        if experiment.plot and measured.results.lines:
            out.mkdir(parents=True, exist_ok=True)
            paths.append(out / f"{name}.{form}")
            draw(measured, paths[-1])
    return paths


def draw(measured: Measured, path: Path) -> None:
    """Draw one experiment, a panel for each block."""
    plt = _pyplot()
    blocks = [block for block in measured.experiment.blocks if _there(measured, block["label"])]
    with plt.rc_context(_STYLE):
        size = _PANEL[0] * len(blocks), _PANEL[1]
        figure, axes = plt.subplots(1, len(blocks), figsize=size, squeeze=False)
        for axis, block in zip(axes[0], blocks, strict=True):
            rows = measured.by_row(_metric(measured), block["label"])
            _DRAWN[measured.experiment.plot["kind"]](axis, measured, rows)
            axis.set_title(block["label"], loc="left")
        figure.tight_layout(w_pad=3)
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, transparent=path.suffix == ".svg", metadata=metadata, dpi=110)
        plt.close(figure)


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise MissingExtra(
            "Pictures are drawn with matplotlib: pip install 'deepjoin[bench]'"
        ) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _metric(measured: Measured) -> str:
    return str(measured.experiment.plot.get("metric", measured.metrics[0]))


def _there(measured: Measured, block: str) -> bool:
    rows = measured.by_row(_metric(measured), block).values()
    return any(figure.ours is not None for figures in rows for figure in figures)


def _lines(axis: Any, measured: Measured, rows: dict[str, list[Figure]]) -> None:
    """Draw a line for each row, over the columns that have a place on the axis."""
    plot = measured.experiment.plot
    ends: list[tuple[float, str, str]] = []
    last = max(f.cell.column["at"] for fs in rows.values() for f in _placed(fs))
    for label, figures in rows.items():
        ours = label == plot.get("highlight")
        color = ACCENT if ours else PALE
        drawn = [(_line(axis, figures, color, ours), label)]
        if ours:
            drawn.append((_line(axis, figures, color, True, paper=True), f"{label}, paper"))
        ends += [(end, text, color) for end, text in drawn if end is not None]
    for side in ("x", "y"):
        if plot.get("log") in (True, side):
            axis.set(**{f"{side}scale": "log"})
    axis.set(xlabel=plot.get("x", ""), ylabel=NAMES.get(_metric(measured), _metric(measured)))
    placed = {
        f.cell.column["at"]: f.cell.column["label"] for fs in rows.values() for f in _placed(fs)
    }
    axis.set_xticks(list(placed), [_tick(text) for text in placed.values()])
    axis.minorticks_off()
    _label(axis, ends, last)


def _placed(figures: Sequence[Figure]) -> list[Figure]:
    return [figure for figure in figures if "at" in figure.cell.column]


def _tick(label: str) -> str:
    return label.partition("=")[2].strip() or label


def _line(
    axis: Any, figures: Sequence[Figure], color: str, thick: bool, paper: bool = False
) -> float | None:
    """Draw what is there of a row, and return where it ends."""
    points = [
        (figure.cell.column["at"], figure.paper if paper else figure.ours)
        for figure in _placed(figures)
    ]
    there = [(at, value) for at, value in points if value is not None]
    if not there:
        return None
    style = {"color": color, "linewidth": 1.8 if thick else 1.0}
    if paper:
        style |= {"linestyle": (0, (3, 2)), "linewidth": 1.0}
    axis.plot(*zip(*there, strict=True), marker="" if paper else "o", markersize=3, **style)
    return there[-1][1]


def _label(axis: Any, ends: list[tuple[float, str, str]], last: float) -> None:
    """Write each label at the end of its line, moved where two would touch."""
    to_axes = axis.transData + axis.transAxes.inverted()
    ends = sorted(ends)
    heights = apart([float(to_axes.transform((last, end))[1]) for end, *_ in ends])
    for height, (_, text, color) in zip(heights, ends, strict=True):
        place = {"xy": (1.02, height), "xycoords": "axes fraction"}
        axis.annotate(text, **place, color=color, va="center", fontsize=8, annotation_clip=False)


def apart(heights: Sequence[float]) -> list[float]:
    """Move rising heights apart: up first, then down from the top.

    >>> [round(height, 2) for height in apart([0.5, 0.5, 0.99])]
    [0.5, 0.56, 0.99]
    """
    moved: list[float] = []
    for height in heights:
        moved.append(max(height, moved[-1] + _APART) if moved else height)
    top = 1.0
    for place in reversed(range(len(moved))):
        moved[place] = min(moved[place], top)
        top = moved[place] - _APART
    return moved


def _bars(axis: Any, measured: Measured, rows: dict[str, list[Figure]]) -> None:
    """Draw a bar for each row, and a mark where the paper's figure is."""
    firsts = {label: figures[_chosen(measured)] for label, figures in rows.items()}
    there = {label: one for label, one in firsts.items() if one.ours is not None}
    highlight = measured.experiment.plot.get("highlight")
    for place, (label, figure) in enumerate(reversed(there.items())):
        axis.barh(place, figure.ours, 0.62, color=ACCENT if label == highlight else PALE)
        right = max(figure.ours, figure.paper or 0)
        axis.annotate(f" {figure.ours:.3f}".replace(" 0.", " ."), (right, place), va="center")
        if figure.paper is not None:
            axis.plot([figure.paper] * 2, [place - 0.4, place + 0.4], color=GREY, linewidth=2)
    axis.set_yticks(range(len(there)), list(reversed(there)))
    name = NAMES.get(firsts[next(iter(firsts))].metric, _metric(measured))
    axis.set_xlabel(f"{name} (marks: the paper's)")


def _chosen(measured: Measured) -> int:
    return int(measured.experiment.plot.get("column", 0))


_DRAWN = {"lines": _lines, "bars": _bars}
