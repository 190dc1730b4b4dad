"""The card of a trained model: what it is, what it was made from, and how well it does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deepjoin.lab.training.report import whole_file

_METRICS = {"cosine": "their cosine", "euclidean": "their Euclidean distance"}
CARD_FILE = "README.md"
TAGS = ("deepjoin", "sentence-transformers", "table-discovery", "joinable-columns")


@dataclass(frozen=True)
class Figure:
    """One thing measured: what, how much, and under which conditions."""

    what: str
    value: float | str
    conditions: str = ""


@dataclass(frozen=True)
class CardFacts:
    """What a card says of a model."""

    name: str
    #: An SPDX name in lower case, such as ``apache-2.0``.
    license: str
    base_model: str
    #: What it was trained on, and under which licence that may be used.
    data: str
    data_license: str
    settings: Mapping[str, object]
    figures: Sequence[Figure]
    #: The command that makes it again.
    command: str
    #: How one of its texts is written, and how many tokens of it are read.
    example: str
    tokens: int
    metric: str = "cosine"
    limits: Sequence[str] = ()
    #: Where the folder of sentence-transformers and the one without torch are.
    model: str = "model"
    encoder: str = "encoder"


def write_card(folder: Path, facts: CardFacts) -> Path:
    """Write the card into a folder, and return its path."""
    path = folder / CARD_FILE
    whole_file(path, card(facts).encode())
    return path


def card(facts: CardFacts) -> str:
    """Write the card as Markdown with a head in YAML."""
    parts = (
        _head(facts),
        f"# {facts.name}",
        "Gives each column of a table a vector; columns that can be joined have vectors close to "
        f"each other. Trained by deepjoin from {facts.base_model}.",
        *_use(facts),
        "## Data",
        f"{facts.data}\n\nLicence of the data: {facts.data_license}.",
        "## Settings",
        _table(("setting", "value"), facts.settings.items()),
        "## Figures",
        _figures(facts.figures),
        "## Limits",
        _list(facts.limits),
        "## Made with",
        _code("sh", facts.command),
    )
    return "\n\n".join(parts) + "\n"


def _head(facts: CardFacts) -> str:
    """Quote as JSON does, which YAML reads too."""
    said = {
        "license": facts.license,
        "base_model": facts.base_model,
        "library_name": "sentence-transformers",
        "pipeline_tag": "sentence-similarity",
    }
    lines = [f"{key}: {json.dumps(one, ensure_ascii=False)}" for key, one in said.items()]
    tags = [f"- {json.dumps(tag, ensure_ascii=False)}" for tag in TAGS]
    return "\n".join(["---", *lines, "tags:", *tags, "---"])


def _use(facts: CardFacts) -> tuple[str, ...]:
    index = f"deepjoin index tables/ --encoder {facts.encoder} --metric {facts.metric}"
    python = (
        "from sentence_transformers import SentenceTransformer\n\n"
        f"model = SentenceTransformer({json.dumps(facts.model)})\n"
        f"vectors = model.encode([{json.dumps(facts.example, ensure_ascii=False)}])"
    )
    return (
        "## Use",
        "With deepjoin:" if facts.encoder == facts.model else "With deepjoin, without torch:",
        _code("sh", index),
        "With sentence-transformers, a column written as it was in training, "
        f"{facts.tokens} tokens of it at most:",
        _code("python", python),
        f"Vectors are compared by {_METRICS[facts.metric]}.",
    )


def _figures(figures: Sequence[Figure]) -> str:
    if not figures:
        return "None measured."
    rows = ((one.what, _number(one.value), one.conditions) for one in figures)
    return _table(("measured", "value", "conditions"), rows)


def _number(value: float | str) -> str:
    """Round to what can be told apart.

    >>> _number(0.80349), _number(1200), _number(51234.5)
    ('0.803', '1,200', '51,234')
    """
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(one) for one in line)} |" for line in lines)


def _cell(content: object) -> str:
    return " ".join(str(content).split()).replace("|", "\\|")


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines) or "None known."


def _code(language: str, code: str) -> str:
    return f"```{language}\n{code}\n```"
