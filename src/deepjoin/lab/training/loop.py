"""The training loop: the one of transformers, with our batches, validation and messages."""

from __future__ import annotations

import json
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils.data import SequentialSampler
from transformers import (
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from deepjoin.errors import DeepJoinError
from deepjoin.lab.training.batches import Batches
from deepjoin.lab.training.model import JoinModel, Tokens
from deepjoin.lab.training.processes import Processes
from deepjoin.lab.training.self_join import Told
from deepjoin.lab.training.settings import TrainSettings
from deepjoin.lab.training.validation import Validation

Event = dict[str, Any]

_PRECISION = "eval_precision"
_STATE = "trainer_state.json"
#: Steps between two looks at the loss.
_LOGGED = 10


class Loop(Trainer):
    """Trains on batches that are made elsewhere, each the item of a data set."""

    def __init__(
        self,
        model: JoinModel,
        batches: Batches,
        validation: Validation,
        shown: tuple[Tokens, Tokens],
        arguments: TrainingArguments,
        told: Told,
        processes: Processes,
    ) -> None:
        super().__init__(model, arguments, _only, batches, validation)
        self._join_model, self._validation, self._told = model, validation, told
        self._shown, self._processes = shown, processes
        self.remove_callback(PrinterCallback)  # stdout is for results

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return SequentialSampler(self.train_dataset)  # type: ignore[arg-type]

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        """Learn from a batch; with too little memory, the same batch in smaller pieces."""
        while True:
            try:
                return super().training_step(model, dict(inputs), num_items_in_batch)
            except torch.OutOfMemoryError:
                if self._processes.count > 1:  # the others wait for gradients of the whole batch
                    raise _too_large() from None
                model.zero_grad()
            # Not while the exception is handled: it holds on to what filled the memory.
            piece = self._join_model.halve(len(inputs["y"]["input_ids"]))
            torch.cuda.empty_cache()
            self._told(
                *(self.state.global_step, self.state.max_steps),
                f"The device is out of memory: from now on {piece} columns are read at a time. "
                "Batches stay as they are.",
            )

    def precision(self) -> float:
        """Find the held-back columns with the vectors as they are now."""
        if not len(self._validation.queries):
            return 0.0
        # The same for all: rounding otherwise might let one process stop and the others wait.
        return self._processes.first_says(self._precision)

    def _precision(self) -> float:
        with self.compute_loss_context_manager():
            vectors, asked = (self._join_model.encoded(tokens) for tokens in self._shown)
        found = self._join_model.compare(asked, vectors)
        return self._validation.precision(found)

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Validate, and let the callbacks know."""
        metrics = {_PRECISION: self.precision()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics


def _too_large() -> DeepJoinError:
    return DeepJoinError(
        "A device is out of memory, and with several at work a batch is not read in pieces. Give a "
        "smaller --batch, or train on one."
    )


def _only(batches: list[dict[str, Any]]) -> dict[str, Any]:
    """Take the one batch there is, as tensors."""
    (batch,) = batches
    x, y = ({name: torch.from_numpy(one) for name, one in batch[side].items()} for side in "xy")
    return {"x": x, "y": y, "joinability": torch.from_numpy(batch["joinability"])}


class Events(TrainerCallback):
    """Tells the loss on the way, and the precision of each validation."""

    def __init__(self, told: Told, before: float) -> None:
        self._told = told
        self._loss, self._precision = "", f", P@10 {before:.3f}" if before else ""

    def on_log(
        self, args: Any, state: TrainerState, control: TrainerControl, logs: Any = None, **_: Any
    ) -> None:
        """Say how far the run is."""
        if "loss" in (logs or {}):
            self._loss = f"loss {logs['loss']:.3f}"
        if _PRECISION in (logs or {}):
            self._precision = f", P@10 {logs[_PRECISION]:.3f}"
        self._told(state.global_step, state.max_steps, f"{self._loss}{self._precision}".strip(", "))


class Interruption(TrainerCallback):
    """Lets Ctrl-C end a run after the step it is at, when its state is saved."""

    def __init__(self, processes: Processes) -> None:
        self.came = False
        self._processes = processes

    @contextmanager
    def heeded(self) -> Iterator[None]:
        """Take the first Ctrl-C as a wish; a second one ends all at once.

        Of several processes the launcher sends it on, so that it comes twice; it also ends them
        by itself if they take too long.
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
        """Save and stop, if that is wished for; all processes after the same step."""
        self.came = self._processes.any_says(self.came)
        if self.came:
            control.should_save = control.should_training_stop = True


def events(state: TrainerState, before: float) -> list[Event]:
    """Give the losses and precisions of a whole run, also of a part before an interruption."""
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
    """Say all this to the loop in its own words; with nothing to find, no model is the best."""
    validates = len(validation.queries) > 0
    on_cpu = device == "cpu" or not torch.cuda.is_available()
    validate = min(settings.validate, steps)
    said = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=1,
        learning_rate=settings.learning_rate,
        warmup_steps=steps // 10 if settings.warmup is None else settings.warmup,
        weight_decay=settings.weight_decay,
        lr_scheduler_type="linear",
        logging_steps=min(_LOGGED, validate),
        eval_strategy="steps" if validates else "no",
        eval_steps=validate,
        save_strategy="steps",
        save_steps=validate,
        save_total_limit=2,
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
    said._n_gpu = min(1, said.n_gpu)  # a batch is one item, and cannot be shared out
    return said


def last_checkpoint(folder: Path) -> Path | None:
    """Find where to go on; what was not written to its end, which is its state, is removed."""
    whole: dict[int, Path] = {}
    for path in folder.glob("checkpoint-*"):
        try:
            whole[int(json.loads((path / _STATE).read_bytes())["global_step"])] = path
        except (OSError, ValueError, KeyError):
            shutil.rmtree(path, ignore_errors=True)
    return whole[max(whole)] if whole else None
