"""Training proper: from a prepared folder to a trained encoder, without access to the lake."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch.utils.data import SequentialSampler
from transformers import (
    EarlyStoppingCallback,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from deepjoin.embed.columns.text import DocumentFrequencies, TextSettings
from deepjoin.embed.columns.tokens import Tokens as TextTokens
from deepjoin.embed.columns.torch_encoder import SETTINGS_FILE, quiet
from deepjoin.errors import DeepJoinError
from deepjoin.lab.evaluation.metrics import PairedDifference
from deepjoin.lab.onnx_export import text_options
from deepjoin.lab.training.batches import Batches, Examples, Joinability, View
from deepjoin.lab.training.model import JoinModel, Tokens
from deepjoin.lab.training.prepare import Prepared, Validation, write_json
from deepjoin.lab.training.processes import Processes
from deepjoin.lab.training.settings import TrainSettings, warmup_steps
from deepjoin.lab.training.tokenising import Tokeniser, tokeniser_for
from deepjoin.progress import Progress, no_progress
from deepjoin.show.text import duration

Event = dict[str, Any]
_PRECISION = "eval_precision"
_STATE = "trainer_state.json"
#: Steps between two reports of the loss.
_LOGGED = 10
#: Columns of a batch that a forecast learns from.
_FORECAST = 16
#: Nearest columns of each column, of which each batch draws one.
_NEAREST = 64
_PARALLEL = "TOKENIZERS_PARALLELISM"


@dataclass(frozen=True)
class TrainingForecast:
    """About how long a run takes, measured on a few columns before it starts."""

    #: Seconds of a step, and of a validation.
    step: float
    validation: float

    def seconds(self, settings: TrainSettings, steps: int) -> float:
        """Return the seconds of all steps and validations; a run may stop earlier."""
        return steps * self.step + (2 + steps // settings.validate) * self.validation

    def said(self, settings: TrainSettings, steps: int, device: str) -> str:
        """Write it for the reader."""
        return (
            f"{steps:,} steps of {settings.batch:,} pairs on {device}: about "
            f"{duration(self.step)} a step, {duration(self.validation)} a validation, at most "
            f"{duration(self.seconds(settings, steps))} in all; it may stop earlier. After "
            "Ctrl-C the same command resumes."
        )


class Loop(Trainer):
    """The trainer of transformers, over a data set whose items are whole batches."""

    def __init__(
        self,
        model: JoinModel,
        batches: Batches,
        validation: Validation,
        validated: tuple[Tokens, Tokens],
        arguments: TrainingArguments,
        progress: Progress,
        processes: Processes,
    ) -> None:
        super().__init__(model, arguments, _only, batches, validation)
        self.join_model, self._validation, self._progress = model, validation, progress
        #: The tokens of the columns searched in validation, and of the queries.
        self._validated, self._processes = validated, processes
        self.remove_callback(PrinterCallback)  # stdout is for results

    def forecast(self, batch: dict[str, Any]) -> TrainingForecast | None:
        """Learn from and encode a few columns of a batch, and scale the time up.

        None if not even one column fits into memory; training then says so.
        """
        few = min(_FORECAST, len(batch["x"]["input_ids"]))
        while few:
            try:
                with torch.random.fork_rng():  # the run must not depend on its forecast
                    return self._forecast(batch, few)
            except torch.OutOfMemoryError:
                few //= 2
            finally:
                self.join_model.zero_grad()
        return None

    def _forecast(self, batch: dict[str, Any], few: int) -> TrainingForecast:
        model, device = self.join_model, self.args.device
        x, y = ({name: one[:few].to(device) for name, one in batch[side].items()} for side in "xy")
        joinability = batch["joinability"][:few, :few].to(device)
        took = []
        for _ in range(2):  # the first one also loads what is needed
            started = perf_counter()
            model(x, y, joinability)["loss"].backward()
            took.append(perf_counter() - started)
        started = perf_counter()
        model.encoded(x)
        encoded = (perf_counter() - started) / few
        columns = sum(len(batch[side]["input_ids"]) for side in "xy")
        validated = sum(len(tokens["input_ids"]) for tokens in self._validated)
        return TrainingForecast(took[-1] * columns / (2 * few), encoded * validated)

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return SequentialSampler(self.train_dataset)  # type: ignore[arg-type]

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        """Learn from a batch; if memory runs out, from the same batch in smaller pieces."""
        while True:
            try:
                return super().training_step(model, dict(inputs), num_items_in_batch)
            except torch.OutOfMemoryError:
                if self._processes.count > 1:  # the others wait for gradients of the whole batch
                    raise DeepJoinError(
                        "A device is out of memory, and a run on several devices does not split "
                        "batches. Give a smaller `batch`, or train on one device."
                    ) from None
                model.zero_grad()
            # Not while the exception is handled: it holds on to what filled the memory.
            piece = self.join_model.halve(len(inputs["y"]["input_ids"]))
            torch.cuda.empty_cache()
            self._progress(
                *(self.state.global_step, self.state.max_steps),
                f"The device is out of memory: from now on {piece} columns are encoded at a time. "
                "Batches stay the same.",
            )

    def precision(self) -> float:
        """Search the held-back columns with the current vectors."""
        if not len(self._validation.queries):
            return 0.0
        # One number for all: rounding differences could stop one process and leave others waiting.
        return self._processes.first_says(lambda: float(np.mean(self.precisions())))

    def precisions(self, progress: Progress = no_progress) -> list[float]:
        """Search the held-back columns with the current vectors; return the share of each query."""
        if not len(self._validation.queries):
            return []
        with self.compute_loss_context_manager():
            vectors, queries = (
                self.join_model.encoded(tokens, progress) for tokens in self._validated
            )
        return self._validation.precision(self.join_model.compare(queries, vectors))

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Validate, and notify the callbacks."""
        metrics = {_PRECISION: self.precision()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics


def _only(batches: list[dict[str, Any]]) -> dict[str, Any]:
    """Collate the one batch there is to tensors."""
    (batch,) = batches
    x, y = ({name: torch.from_numpy(one) for name, one in batch[side].items()} for side in "xy")
    return {"x": x, "y": y, "joinability": torch.from_numpy(batch["joinability"])}


class Events(TrainerCallback):
    """Reports every step, the loss as training proceeds, and the precision of each validation."""

    def __init__(self, progress: Progress, before: float) -> None:
        self._report = progress
        self._loss, self._precision = "", f", P@10 {before:.3f}" if before else ""

    def on_log(
        self, args: Any, state: TrainerState, control: TrainerControl, logs: Any = None, **_: Any
    ) -> None:
        """Report how far the run is."""
        if "loss" in (logs or {}):
            self._loss = f"loss {logs['loss']:.3f}"
        if _PRECISION in (logs or {}):
            self._precision = f", P@10 {logs[_PRECISION]:.3f}"
        self._report(state.global_step, state.max_steps, self._text)

    def on_step_end(
        self, args: Any, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Report the step: on a processor, the ten steps between two losses may take minutes."""
        self._report(state.global_step, state.max_steps, self._text)

    @property
    def _text(self) -> str:
        return f"{self._loss}{self._precision}".strip(", ") or "steps"


class Patience(EarlyStoppingCallback):
    """Ends a run without improvement, but never before its learning rate was reached."""

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any, **rest: Any) -> None:  # type: ignore[override]
        """Count validations without improvement, once the warm-up is over."""
        if state.global_step > args.warmup_steps:
            super().on_evaluate(args, state, control, metrics, **rest)  # type: ignore[no-untyped-call]


class Mining(TrainerCallback):
    """Finds the columns nearest by the model, at the start and as often as it is validated.

    Processes that make batches ahead may still use those found before.
    """

    def __init__(self, loop: Loop, batches: Batches, progress: Progress) -> None:
        self._loop, self._batches, self._progress = loop, batches, progress
        self._queries, self._columns = (
            {name: torch.from_numpy(array.astype(np.int32)) for name, array in side.items()}
            for side in batches.whole()
        )

    def on_train_begin(
        self, args: Any, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Find them before processes start that make batches."""
        self._batches.nearest = self._found(state)
        self._batches.nearest.share_memory_()

    def on_step_end(
        self, args: Any, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Find them again."""
        if state.global_step % args.eval_steps == 0:
            self._batches.nearest.copy_(self._found(state))

    def _found(self, state: TrainerState) -> torch.Tensor:
        self._progress(state.global_step, state.max_steps, "finding the nearest columns")
        with self._loop.compute_loss_context_manager():
            return self._loop.join_model.nearest(self._queries, self._columns, _NEAREST)


class Interruption(TrainerCallback):
    """Ends a run after the current step on Ctrl-C, with its state saved."""

    def __init__(self, processes: Processes) -> None:
        self.came = False
        self._processes = processes

    @contextmanager
    def heeded(self) -> Iterator[None]:
        """Take the first Ctrl-C as a request; a second one ends the process at once.

        With several processes the launcher forwards the signal, so it arrives twice; the launcher
        also ends processes that take too long.
        """
        usual = signal.getsignal(signal.SIGINT)

        def note(number: int, frame: FrameType | None) -> None:
            self.came = True
            if self._processes.count == 1:
                signal.signal(signal.SIGINT, usual)

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, usual)
        if self.came:
            raise KeyboardInterrupt

    def on_step_end(
        self, args: Any, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Save and stop if requested; all processes do so after the same step."""
        self.came = self._processes.any_says(self.came)
        if self.came:
            control.should_save = control.should_training_stop = True


def events(state: TrainerState, before: float) -> list[Event]:
    """Return the losses and precisions of a whole run, including parts before interruptions."""
    found: list[Event] = [{"step": 0, "precision": before}]
    for entry in state.log_history:
        if "loss" in entry:
            found.append({"step": entry["step"], "loss": entry["loss"]})
        elif _PRECISION in entry:
            found.append({"step": entry["step"], "precision": entry[_PRECISION]})
    return found


def arguments(
    settings: TrainSettings,
    steps: int,
    folder: Path,
    device: str | None,
    workers: int,
    validation: Validation,
) -> TrainingArguments:
    """Translate the settings for the trainer; without queries there is no best model to load."""
    validates = len(validation.queries) > 0
    on_cpu = device == "cpu" or not torch.cuda.is_available()
    validate = min(settings.validate, steps)
    translated = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=1,  # items are whole batches
        learning_rate=settings.learning_rate,
        warmup_steps=warmup_steps(settings, steps),
        weight_decay=settings.weight_decay,
        lr_scheduler_type="linear",
        logging_steps=min(_LOGGED, validate),
        eval_strategy="steps" if validates else "no",
        eval_steps=validate,
        save_strategy="steps",
        save_steps=validate,
        save_total_limit=2,  # the last, to resume from, and the best
        load_best_model_at_end=validates,
        metric_for_best_model=_PRECISION if validates else None,
        greater_is_better=True,
        use_cpu=on_cpu,
        bf16=not on_cpu and torch.cuda.is_bf16_supported(),
        seed=settings.seed,
        dataloader_num_workers=workers,
        dataloader_pin_memory=not on_cpu,
        dataloader_prefetch_factor=4 if workers else None,
        remove_unused_columns=False,
        logging_nan_inf_filter=False,  # it would wait for the device at each step
        report_to="none",
        disable_tqdm=True,
        log_level="error",
        restore_callback_states_from_checkpoint=True,
    )
    translated._n_gpu = min(1, translated.n_gpu)  # an item is a batch: it cannot be divided
    return translated


def last_checkpoint(folder: Path) -> Path | None:
    """Find the checkpoint to resume from; remove those without their last file, the state."""
    whole: dict[int, Path] = {}
    for path in folder.glob("checkpoint-*"):
        try:
            whole[int(json.loads((path / _STATE).read_bytes())["global_step"])] = path
        except (OSError, ValueError, KeyError):
            shutil.rmtree(path, ignore_errors=True)
    return whole[max(whole)] if whole else None


@dataclass(frozen=True)
class FittedEncoder:
    """The outcome of a run; ``model`` is the best one validated."""

    model: JoinModel
    tokeniser: Tokeniser
    events: list[Event]
    seconds: float
    queries: int
    device: str
    memory: int
    #: Steps that were planned, and those until the learning rate is reached.
    steps: int
    warmup: int
    #: P@10 of each query after training, and its difference from before; None without queries.
    shares: list[float]
    gain: PairedDifference | None

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
        return self.tokeniser.texts([View.whole(columns, int(one)) for one in chosen])


def fit(
    prepared: Prepared,
    settings: TrainSettings,
    text: TextSettings,
    progress: Progress,
    device: str | None = None,
    workers: int = 0,
    processes: Processes = Processes(),  # noqa: B008  it never changes
) -> FittedEncoder:
    """Train, or resume an interrupted run of the same folder.

    Each of several processes computes the gradients of its own batches, which are averaged.
    """
    columns, searched = prepared.columns(), prepared.searched()
    model = JoinModel(prepared.base, settings, device)
    tokenizer: Any = model.encoder.tokenizer
    tokens = TextTokens.from_text(tokenizer.backend_tokenizer.to_str(), text.tokens, text.prompt)
    every = (columns.column(number) for number in range(len(columns)))
    frequency = DocumentFrequencies.of(every, text.profile)
    tokeniser = Tokeniser(columns, text, frequency, tokens, int(tokenizer.pad_token_id or 0))
    values = 1 + max(int(one.values.max(initial=0)) for one in (columns, searched))
    joinability = Joinability(values, prepared.near())
    spellings = prepared.spellings()
    batches = Batches(
        *(columns, Examples.of(columns, prepared.pairs(), settings), prepared.neighbours()),
        joinability,
        tokeniser_for(replace(tokeniser, spellings=spellings.strings if spellings else ())),
        *(settings, spellings),
    )
    held = prepared.facts()["held_back"]
    validation = Validation.of(searched, held, joinability, settings.seed)
    steps = -(-len(batches) // processes.count)
    loop = Loop(
        *(model, batches, validation, _validated(validation, tokeniser)),
        arguments(settings, steps, prepared.checkpoints, device, workers, validation),
        *(progress, processes),
    )
    foreseen = loop.forecast(_only([batches[0]]))
    if foreseen is not None:
        progress(0, 0, foreseen.said(settings, steps, str(loop.args.device)))
    untrained = loop.precisions(progress) if processes.is_first else []
    before = processes.first_says(lambda: float(np.mean(untrained)) if untrained else 0.0)
    interruption = Interruption(processes)
    loop.add_callback(Events(progress, before))
    loop.add_callback(interruption)
    if settings.negatives == "nearest":
        loop.add_callback(Mining(loop, batches, progress))
    if len(validation.queries):
        loop.add_callback(Patience(settings.patience))
    else:
        progress(0, steps, f"None of {held} held-back columns joins: P@10 is not measured.")
    started = perf_counter()
    checkpoint = last_checkpoint(prepared.checkpoints)
    with interruption.heeded(), _forking():
        loop.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    memory = int(torch.cuda.max_memory_allocated()) if torch.cuda.is_available() else 0
    shares = loop.precisions() if processes.is_first else []
    return FittedEncoder(
        *(model, tokeniser, events(loop.state, before), perf_counter() - started),
        *(len(validation.queries), str(loop.args.device), memory),
        *(steps, warmup_steps(settings, steps), shares),
        PairedDifference.of(shares, untrained) if shares else None,
    )


def _validated(validation: Validation, tokeniser: Tokeniser) -> tuple[Tokens, Tokens]:
    """Tokenise the columns that are searched, and the queries among them."""
    columns = validation.columns
    views = [View.whole(columns, number) for number in range(len(columns))]
    queries = [views[number].as_query() for number in validation.queries.tolist()]
    tokenise = replace(tokeniser, columns=columns)

    def tensors(some: Sequence[View]) -> Tokens:
        return {name: torch.from_numpy(array) for name, array in tokenise(some).items()}

    return tensors(views), tensors(queries)


@contextmanager
def _forking() -> Iterator[None]:
    """Keep the tokenizer to one thread: its thread pool does not survive a fork, and would hang."""
    previous = os.environ.get(_PARALLEL)
    os.environ[_PARALLEL] = "false"
    try:
        yield
    finally:
        if previous is None:
            del os.environ[_PARALLEL]
        else:
            os.environ[_PARALLEL] = previous


def save(fitted: FittedEncoder, folder: Path, truth: Mapping[str, Any]) -> None:
    """Write the model as sentence-transformers does, with its text settings.

    ``truth`` is what made two columns joinable: the join, the cell vectors and tau.
    """
    with quiet():
        fitted.model.encoder.prompts["query"] = fitted.tokeniser.settings.prompt
        fitted.model.encoder.to("cpu").float().save(str(folder), create_model_card=False)
    content = {"text": text_options(fitted.tokeniser.settings), "trained": truth}
    write_json(folder / SETTINGS_FILE, content)
