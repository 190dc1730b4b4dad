"""`deepjoin.train`: from a lake to an encoder, in one call that can be interrupted and repeated."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepjoin.build.engine import BuildResources, Engine
from deepjoin.embed.columns.text import TextSettings
from deepjoin.embed.devices import device_named
from deepjoin.engines import engine_named
from deepjoin.errors import DeepJoinError
from deepjoin.files import locked
from deepjoin.indexing import refresh
from deepjoin.lab.training.columns import read_aliases
from deepjoin.lab.training.delivery import LAST, TrainedEncoder, deliver
from deepjoin.lab.training.prepare import LOCK, Prepared, base_text, prepare, write_base
from deepjoin.lab.training.processes import Processes, process_group
from deepjoin.lab.training.report import check_installed
from deepjoin.lab.training.settings import TrainInputs, TrainResources, TrainSettings, preset
from deepjoin.lake import open_lake
from deepjoin.optional import require
from deepjoin.progress import Progress, no_progress
from deepjoin.settings import deprecated_keywords
from deepjoin.store.manifest import is_index

if TYPE_CHECKING:
    from deepjoin.lab.training.fit import FittedEncoder
    from deepjoin.lake import Lake

#: Folder of the run inside that of the model; removed when the model is complete.
_WORK = ".training"
#: A disk with less free space is full; and how libraries word that error.
_FULL = 1 << 18
_FULL_WORDS = ("No space left", "os error 28", "failed writing file")


def train(
    source: object,
    out: str | os.PathLike[str],
    *,
    base: str = "default",
    settings: TrainSettings | None = None,
    inputs: TrainInputs | None = None,
    resources: TrainResources | None = None,
    command: str = "",
    progress: Progress = no_progress,
    **deprecated: Any,
) -> TrainedEncoder:
    """Train a column encoder on the tables of a lake.

    The same call resumes an interrupted run. If torchrun or accelerate start it in several
    processes, the first one mines the pairs and writes the model; the others exit after training.

    Parameters
    ----------
    source
        An index, or anything `deepjoin.index` takes.
    out
        The folder of the model: a new one, or that of an interrupted run.
    base
        The model to start from: "default", a folder, or the name of a public model.
    settings
        The recipe, e.g. ``TrainSettings(join="semantic")``; `preset("paper")` is the published
        one.
    inputs
        How columns become texts, the cell encoder of semantic joins, other spellings.
    resources
        Device, processes that make batches, and the engine that mines the pairs.
    command
        The command line, for the card of the model.
    progress
        Called with (step, total, text); a total of 0 marks a plain message.
    **deprecated
        ``preset``, and fields of the three settings objects; accepted for one more release.
    """
    for module in ("torch", "sentence_transformers", "accelerate", "scipy"):
        # Only looked for: they take seconds to import, and a wrong argument is reported first.
        if find_spec(module) is None:
            require(module, "train", "Training")
    check_installed()
    if "preset" in deprecated:
        settings = preset(deprecated.pop("preset"))
        text = "train() takes preset for one more release; use settings=preset(...)"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
    moved = deprecated_keywords(
        *("train", deprecated), settings=TrainSettings, inputs=TrainInputs, resources=TrainResources
    )
    given = {name: value for name, value in moved["settings"].items() if value is not None}
    settings = replace(settings or TrainSettings(), **given)
    inputs = replace(inputs or TrainInputs(), **moved["inputs"])
    resources = replace(resources or TrainResources(), **moved["resources"])
    processes = Processes.started()
    progress = progress if processes.is_first else no_progress
    device = _device(resources.device)
    run = _TrainingRun(source, base, settings, inputs, device, progress)
    run.check()
    folder = _new_folder(Path(out))
    prepared = Prepared(folder / _WORK)
    workers = resources.workers
    if workers is None:
        # On the CPU the model itself needs every core.
        free = min(15, (os.cpu_count() or 1) // processes.count - 1)
        workers = max(0, free) if device.startswith("cuda") else 0
    if not processes.is_first:
        processes.wait_for(lambda: run.is_prepared(prepared))
        run.fit(prepared, workers, processes)
        raise SystemExit(0)
    busy = DeepJoinError(f"Another run is working in {folder}. Wait for it to end, or stop it.")
    with locked(prepared.folder / LOCK, busy), _full_disk_explained(prepared.folder):
        # One engine reads and mines, and is closed before the training needs the machine.
        engine = (resources.engine, resources.ray_address)
        with engine_named(*engine, lambda text: progress(0, 0, text)) as elsewhere:
            run.prepare(prepared, folder, elsewhere)
        trained = deliver(run.fit(prepared, workers, processes), prepared, folder, command)
        # The file that makes the folder a model comes last.
        names = [path.name for path in prepared.model.iterdir()]
        for name in sorted(names, key=lambda name: name == LAST):
            (prepared.model / name).replace(folder / name)
        shutil.rmtree(prepared.folder)
        return trained


@dataclass(frozen=True)
class _TrainingRun:
    """One call of `train`."""

    source: object
    base: str
    settings: TrainSettings
    inputs: TrainInputs
    device: str
    progress: Progress

    def request(self) -> dict[str, Any]:
        """Return the call as JSON, to compare with that of an interrupted run."""
        named = isinstance(self.source, str | os.PathLike)
        aliases = self.inputs.aliases
        request = {
            "source": str(self.source) if named else type(self.source).__name__,
            "base": self.base,
            **asdict(self.inputs),
            "aliases": None if aliases is None else str(aliases),
            "settings": asdict(self.settings),
        }
        return dict(json.loads(json.dumps(request)))

    def check(self) -> None:
        """Refuse what would otherwise fail after much work."""
        cells, aliases = self.inputs.cells, self.inputs.aliases
        TextSettings(**self.inputs.text())  # refuses unknown names
        if self.settings.recipe == "paper" and self.base == "default":
            raise DeepJoinError(
                "`base` is 'default', a model that deepjoin has trained already; the paper's "
                "recipe starts from a language model as published. Give `base` a folder, or a "
                'name such as `base="sentence-transformers/all-mpnet-base-v2"`.'
            )
        if aliases is not None:
            read_aliases(Path(aliases))
        if cells is not None and self._is_index:
            raise DeepJoinError(
                f"cells is '{cells}', and {self.source} is an index, which has its own cell "
                "vectors or none. Leave cells out, or give the tables."
            )
        if self.settings.join == "semantic" and cells == "none":
            raise DeepJoinError(
                "cells is 'none', and join semantic compares cells by their vectors. Give default, "
                "a folder or fastText vectors."
            )

    def prepare(self, prepared: Prepared, folder: Path, engine: Engine | None) -> None:
        """Mine the pairs, unless an interrupted run has."""
        if prepared.request() != self.request():
            if prepared.is_whole:
                raise DeepJoinError(
                    f"{folder} holds an unfinished run with other settings or another source. Give "
                    "the same command to resume it, or another folder."
                )
            prepared.begin(self.request())
        # Separate, because it takes a second: what is mined may be copied elsewhere without it.
        if not prepared.base.exists():
            write_base(self.base, prepared.base, self.settings.layers, self.device)
        if not prepared.is_whole:
            inputs = self.inputs
            text = base_text(prepared.base, self.base, inputs, self.settings)
            lake = self._lake(prepared.folder / "lake", engine)
            text = replace(text, profile=lake.settings.profile)
            aliases = None if inputs.aliases is None else Path(inputs.aliases)
            rest = (self.device, self.progress, engine)
            prepare(lake, prepared.folder, self.settings, text, aliases, *rest)

    @property
    def _is_index(self) -> bool:
        return isinstance(self.source, str | os.PathLike) and is_index(Path(self.source))

    def _lake(self, folder: Path, engine: Engine | None) -> Lake:
        """Open an index, or build one that is removed with the run."""
        if self._is_index:
            return open_lake(str(self.source))
        cells = "none" if self.settings.join == "equi" else self.inputs.cells or "default"
        resources = BuildResources(progress=self.progress, engine=engine)
        refresh(self.source, folder, resources, vectors={"encoder": "none", "cells": cells})
        return open_lake(folder)

    def is_prepared(self, prepared: Prepared) -> bool:
        """Whether the first process has written everything this run needs."""
        return prepared.is_whole and prepared.base.exists() and prepared.request() == self.request()

    def fit(self, prepared: Prepared, workers: int, processes: Processes) -> FittedEncoder:
        """Train."""
        from deepjoin.lab.training.fit import fit

        text = TextSettings(**prepared.facts()["text"])
        device = processes.device(self.device)
        with process_group(processes):
            return fit(prepared, self.settings, text, self.progress, device, workers, processes)


@contextmanager
def _full_disk_explained(folder: Path) -> Iterator[None]:
    """Report a full disk in one line; what was saved before stays."""
    try:
        yield
    except DeepJoinError:
        raise
    # Each tensor library has its own error for a file it cannot write, or none that says why.
    except Exception as error:
        free = shutil.disk_usage(folder).free
        if free > _FULL and not any(words in str(error) for words in _FULL_WORDS):
            raise
        raise DeepJoinError(
            f"There is no space left in {folder}. What was trained before is kept there: make "
            "room and run the same command again."
        ) from None


def _new_folder(folder: Path) -> Path:
    """Create the folder of the model; refuse one with other content."""
    if (folder / LAST).exists():
        raise DeepJoinError(
            f"{folder} already holds a model. Give another folder, or remove it first."
        )
    there = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if there - {_WORK} or (folder.exists() and not folder.is_dir()):
        raise DeepJoinError(f"{folder} holds other files. Give a new folder for the model.")
    try:
        (folder / _WORK).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DeepJoinError(f"Cannot write to {folder}: {error.strerror}.") from None
    return folder


def _device(name: str | None) -> str:
    import torch

    if name is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device_named(name).index:
        raise DeepJoinError(
            f"`device` is '{name}', and training uses the first GPU it sees. Use `device=\"cuda\"` "
            f"with CUDA_VISIBLE_DEVICES={device_named(name).index} set."
        )
    return name
