"""From a prepared folder to a trained encoder; nothing of the lake is needed any more."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from transformers import EarlyStoppingCallback

from deepjoin.embed.columns.text import DocumentFrequencies, TextSettings
from deepjoin.embed.columns.tokens import Tokens
from deepjoin.embed.columns.torch_encoder import SETTINGS_FILE, quiet
from deepjoin.lab.training import views
from deepjoin.lab.training.batches import Batches, Examples
from deepjoin.lab.training.columns import TrainingColumns
from deepjoin.lab.training.joined import Joinability
from deepjoin.lab.training.loop import (
    Event,
    Events,
    Interruption,
    Loop,
    arguments,
    events,
    last_checkpoint,
)
from deepjoin.lab.training.model import JoinModel
from deepjoin.lab.training.model import Tokens as ModelTokens
from deepjoin.lab.training.pieces import tokeniser_for
from deepjoin.lab.training.prepare import Prepared
from deepjoin.lab.training.processes import Processes
from deepjoin.lab.training.self_join import Told
from deepjoin.lab.training.settings import TrainSettings
from deepjoin.lab.training.tokenising import Tokeniser
from deepjoin.lab.training.validation import Validation
from deepjoin.lab.training.views import View

_THREADS = "TOKENIZERS_PARALLELISM"


@dataclass(frozen=True)
class Fitted:
    """What a run came to; ``model`` holds the best of it."""

    model: JoinModel
    tokeniser: Tokeniser
    events: list[Event]
    seconds: float
    queries: int
    device: str
    memory: int

    @property
    def before(self) -> float:
        """The precision of the base model."""
        return float(self.events[0]["precision"])

    @property
    def precision(self) -> float:
        """The precision of the model: the best of all validations."""
        found = [event["precision"] for event in self.events[1:] if "precision" in event]
        return max(found, default=self.before)

    def sample(self, count: int) -> list[str]:
        """Write some of the columns it was trained on as texts."""
        columns = self.tokeniser.columns
        chosen = np.random.default_rng(0).permutation(len(columns))[:count]
        return self.tokeniser.texts([views.whole(columns, int(one)) for one in chosen])


def fit(
    prepared: Prepared,
    settings: TrainSettings,
    text: TextSettings,
    told: Told,
    device: str | None = None,
    workers: int = 0,
    processes: Processes = Processes(),  # noqa: B008  it never changes
) -> Fitted:
    """Train, or go on where a killed run of the same folder was.

    Of several processes each learns from batches of its own, and all from the mean of these.
    """
    columns, searched = prepared.columns(), prepared.searched()
    model = JoinModel(prepared.base, settings, device)
    tokeniser = _tokeniser(model, columns, text)
    joinability = Joinability(_values(columns, searched), prepared.near())
    batches = _batches(prepared, columns, joinability, tokeniser, settings)
    held = prepared.said()["held_back"]
    validation = Validation.of(searched, held, joinability, settings.seed)
    steps = -(-len(batches) // processes.count)
    loop = Loop(
        *(model, batches, validation, _tokens(validation, tokeniser)),
        arguments(settings, steps, prepared.checkpoints, device, workers, validation),
        *(told, processes),
    )
    before, interruption = loop.precision(), Interruption(processes)
    loop.add_callback(Events(told, before))
    loop.add_callback(interruption)
    if len(validation.queries):
        loop.add_callback(EarlyStoppingCallback(settings.patience))
    else:
        told(0, steps, f"None of {held} held-back columns joins: P@10 is not measured.")
    started = perf_counter()
    with interruption.heeded(), _forking():
        loop.train(resume_from_checkpoint=_from(prepared.checkpoints))
    return Fitted(
        *(model, tokeniser, events(loop.state, before), perf_counter() - started),
        *(len(validation.queries), str(loop.args.device), _peak()),
    )


def _from(checkpoints: Path) -> str | None:
    found = last_checkpoint(checkpoints)
    return None if found is None else str(found)


def _values(*columns: TrainingColumns) -> int:
    return 1 + max(int(one.values.max(initial=0)) for one in columns)


def _tokeniser(model: JoinModel, columns: TrainingColumns, text: TextSettings) -> Tokeniser:
    tokenizer: Any = model.encoder.tokenizer
    tokens = Tokens.from_text(tokenizer.backend_tokenizer.to_str(), text.tokens, text.prompt)
    all_of_them = (columns.column(number) for number in range(len(columns)))
    frequency = DocumentFrequencies.of(all_of_them, text.profile)
    return Tokeniser(columns, text, frequency, tokens, int(tokenizer.pad_token_id or 0))


def _batches(
    prepared: Prepared,
    columns: TrainingColumns,
    joinability: Joinability,
    tokeniser: Tokeniser,
    settings: TrainSettings,
) -> Batches:
    examples = Examples.of(columns, prepared.pairs(), settings)
    spellings = prepared.spellings()
    tokenise = tokeniser_for(replace(tokeniser, spellings=spellings.strings if spellings else ()))
    negatives = prepared.neighbours()
    return Batches(columns, examples, negatives, joinability, tokenise, settings, spellings)


def _tokens(validation: Validation, tokeniser: Tokeniser) -> tuple[ModelTokens, ModelTokens]:
    """Tokenise the columns that are searched, as a lake would show them, and the queries."""
    import torch

    searched = validation.columns
    shown = [views.whole(searched, number) for number in range(len(searched))]
    asked = [views.asking(shown[number]) for number in validation.queries.tolist()]
    tokenise = replace(tokeniser, columns=searched)

    def tensors(some: Sequence[View]) -> ModelTokens:
        return {name: torch.from_numpy(array) for name, array in tokenise(some).items()}

    return tensors(shown), tensors(asked)


@contextmanager
def _forking() -> Iterator[None]:
    """Keep the tokenizer to one thread: in a process forked from many it would wait for ever."""
    usual = os.environ.get(_THREADS)
    os.environ[_THREADS] = "false"
    try:
        yield
    finally:
        if usual is None:
            del os.environ[_THREADS]
        else:
            os.environ[_THREADS] = usual


def _peak() -> int:
    """Return the most memory the GPU has held, in bytes; 0 without one."""
    import torch

    return int(torch.cuda.max_memory_allocated()) if torch.cuda.is_available() else 0


def save(fitted: Fitted, folder: Path) -> None:
    """Write the model as sentence-transformers does, and how columns become texts for it."""
    with quiet():
        fitted.model.encoder.prompts["query"] = fitted.tokeniser.settings.prompt
        fitted.model.encoder.to("cpu").float().save(str(folder), create_model_card=False)
    said = {key: one for key, one in asdict(fitted.tokeniser.settings).items() if key != "profile"}
    (folder / SETTINGS_FILE).write_text(json.dumps({"text": said}, indent=2) + "\n", "utf-8")
