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
_DOTS_AN_INCH = 160
#: Width and height of a panel in inches.
_PANEL = (5.4, 3.9)
#: What is drawn, by the key of its events, from left to right.
_PANELS = {"loss": "Loss of the batches, and its mean", "precision": "P@10 of queries held back"}
#: The running mean of losses spans this share of them: single batches vary widely.
_SMOOTHED = 30
_METRICS = {"cosine": "their cosine", "euclidean": "their Euclidean distance"}
CARD_FILE = "README.md"
TAGS = ("deepjoin", "sentence-transformers", "table-discovery", "joinable-columns")


def check_installed() -> None:
    """Check before a long run, not after it, that its curves can be drawn."""
    require("matplotlib", "train", "Drawing the curves of a training run")


def write_report(folder: Path, header: Mapping[str, Any], events: Sequence[Event]) -> None:
    """Write both files, each atomically.

    ``header`` describes the run: settings, data, versions, hardware, seconds. Events are
    ``{"step", "loss"}`` and ``{"step", "precision"}``.
    """
    check_installed()
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
    from matplotlib.figure import Figure

    panels = [(key, some) for key in _PANELS if (some := _with(key, events))]
    wide, high = _PANEL
    columns = max(1, len(panels))
    figure = Figure((wide * columns, high), dpi=_DOTS_AN_INCH, layout="constrained")
    every = figure.subplots(1, columns, squeeze=False)[0]
    for axes, (key, some) in zip(every, panels, strict=False):
        steps, values = _points(some, key)
        axes.set(title=_PANELS[key], xlabel="step")
        axes.grid(axis="y", alpha=0.3)
        if key == "loss":
            axes.plot(steps, values, color="C0", alpha=0.3)
            axes.plot(steps, _smoothed(values), color="C0")
            continue
        top = int(np.argmax(values))
        axes.plot(steps, values, "o-")
        axes.plot(
            steps[top], values[top], "o", label=f"{values[top]:.3f} at step {steps[top]:,.0f}"
        )
        if steps[0] == 0:
            axes.axhline(values[0], color="grey", linestyle="--", label=f"{values[0]:.3f} before")
        axes.legend()
    content = BytesIO()
    figure.savefig(content, format="png")
    return content.getvalue()


def _points(events: Sequence[Event], key: str) -> tuple[Double, Double]:
    steps = np.array([event["step"] for event in events], np.float64)
    return steps, np.array([event[key] for event in events], np.float64)


def _smoothed(numbers: Double) -> Double:
    """Average each number with its neighbours, fewer of them at the ends."""
    around = np.ones(2 * (len(numbers) // _SMOOTHED) + 1)
    sums, counts = (np.convolve(one, around, "same") for one in (numbers, np.ones(len(numbers))))
    return np.asarray(sums / counts)


@dataclass(frozen=True)
class CardFacts:
    """The content of a model card."""

    #: The name of the model, which is also that of its sentence-transformers folder.
    name: str
    base_model: str
    #: What it was trained on.
    data: str
    settings: Mapping[str, object]
    #: What was measured, the value, and under which conditions.
    figures: Sequence[tuple[str, float | str, str]]
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
    figures = [(what, _number(value), conditions) for what, value, conditions in facts.figures]
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
