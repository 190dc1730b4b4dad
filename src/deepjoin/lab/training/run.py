"""`deepjoin.train`: from a lake to an encoder, in one call that can be interrupted and repeated."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepjoin.build.build import usual_means
from deepjoin.build.engine import Engine, engine_named
from deepjoin.embed.columns.text import TextSettings
from deepjoin.embed.devices import device_named
from deepjoin.errors import DeepJoinError, MissingExtra
from deepjoin.files import locked
from deepjoin.indexing import open_lake, refresh
from deepjoin.lab.training import settings as recipes
from deepjoin.lab.training.delivery import LAST, Trained, deliver
from deepjoin.lab.training.prepare import LOCK, Prepared, base_text, prepare, write_base
from deepjoin.lab.training.processes import Processes, taking_leave
from deepjoin.lab.training.report import check_installed
from deepjoin.lab.training.self_join import Told, unheard
from deepjoin.lab.training.settings import TrainSettings
from deepjoin.lab.training.spellings import read_aliases
from deepjoin.store.manifest import is_index

if TYPE_CHECKING:
    from deepjoin.lab.training.fit import Fitted
    from deepjoin.lake import Lake

#: Inside the folder of the model, until it is there.
_WORK = ".training"
#: A disk with less space than this is full; and how libraries speak of one.
_FULL = 1 << 18
_SIGNS = ("No space left", "os error 28", "failed writing file")


def train(
    source: object,
    out: str | os.PathLike[str],
    *,
    base: str = "default",
    preset: str = "default",
    pattern: str | None = None,
    tokens: int | None = None,
    cells: str | None = None,
    aliases: str | os.PathLike[str] | None = None,
    device: str | None = None,
    workers: int | None = None,
    command: str = "",
    progress: Told = unheard,
    engine: str | None = None,
    ray_address: str | None = None,
    **options: Any,
) -> Trained:
    """Train a column encoder on the tables of a lake.

    Given again after an interruption, the same call goes on where it was. Where torchrun or
    accelerate starts it several times, one process mines and writes the model, and the others end
    with the training.

    Parameters
    ----------
    source
        An index, or whatever `deepjoin.index` takes.
    out
        The folder the model goes to, new or of a run that was interrupted.
    base
        The model to start from: "default", a folder, or the name of a public model.
    preset
        "default", or "paper" for the recipe as published.
    pattern, tokens
        How columns become texts; unless given, as for the base model.
    cells
        For semantic joins, what gives values their vectors, as for `deepjoin.index`.
    aliases
        A Parquet file of other spellings, columns ``surface`` and ``entity``.
    device
        "cpu" or "cuda"; a GPU if there is one.
    workers
        Processes that make batches meanwhile.
    command
        The command line, for the model's card.
    progress
        Called with (step, of how many, what is to be said); of 0 where that is all there is to
        it.
    engine, ray_address
        Who reads the tables and finds the pairs to learn from, as for `deepjoin.index`; the
        pairs are the same.
    **options
        Single fields of `TrainSettings`, such as ``join="semantic"`` or ``batch=512``.
    """
    _check_installed()
    settings = recipes.preset(preset, **options)
    spellings = None if aliases is None else Path(aliases)
    processes = Processes.started()
    told = progress if processes.is_first else unheard
    what = (source, base, settings, pattern, tokens, cells, spellings, _device(device), told)
    run = _Run(*what)
    run.check()
    folder = _folder(Path(out))
    prepared = Prepared(folder / _WORK)
    working = min(15, (os.cpu_count() or 1) // processes.count - 1)
    if not processes.is_first:
        processes.wait_for(lambda: run.is_prepared(prepared))
        run.fit(prepared, _workers(workers, run.device, working), processes)
        raise SystemExit(0)
    with _alone(prepared.folder), _telling_of_disks(prepared.folder):
        # One engine reads and mines, and is gone before the training needs the machine.
        with engine_named(engine, ray_address, lambda text: told(0, 0, text)) as elsewhere:
            run.prepare(prepared, folder, elsewhere)
        fitted = run.fit(prepared, _workers(workers, run.device, working), processes)
        deliver(fitted, prepared, folder.name, command)
        return _finished(prepared, folder)


@dataclass(frozen=True)
class _Run:
    """What was asked for."""

    source: object
    base: str
    settings: TrainSettings
    pattern: str | None
    tokens: int | None
    cells: str | None
    aliases: Path | None
    device: str
    told: Told

    def asked(self) -> dict[str, Any]:
        """Write it down, to tell a run that goes on from another one."""
        source = self.source
        named = isinstance(source, str | os.PathLike)
        more = {name: getattr(self, name) for name in ("base", "pattern", "tokens", "cells")}
        asked = {
            "source": str(source) if named else type(source).__name__,
            **more,
            "aliases": str(self.aliases) if self.aliases else None,
            "settings": asdict(self.settings),
        }
        return dict(json.loads(json.dumps(asked)))

    def check(self) -> None:
        """Refuse at once what would fail after much work."""
        TextSettings(self.pattern or "col", self.tokens or TextSettings.tokens)
        if self.aliases is not None:
            read_aliases(self.aliases)
        if self.cells is not None and self._is_index:
            raise DeepJoinError(
                f"cells is '{self.cells}', and {self.source} is an index, which has cell "
                "vectors of its own or none. Leave cells out, or give the tables."
            )
        if self.settings.join == "semantic" and self.cells == "none":
            raise DeepJoinError(
                "cells is 'none', and join semantic compares cells by their vectors. Give default, "
                "a folder or fastText vectors."
            )

    def prepare(self, prepared: Prepared, folder: Path, engine: Engine | None) -> None:
        """Mine what is to be learned, unless an interrupted run has."""
        if prepared.asked() != self.asked():
            if prepared.is_whole:
                raise DeepJoinError(
                    f"{folder} holds an unfinished run with other settings or another source. Give "
                    "the same command to go on with it, or another folder."
                )
            prepared.begin(self.asked())
        # Apart, because it is made in a second: what is mined may be taken elsewhere without it.
        if not prepared.base.exists():
            write_base(self.base, prepared.base, self.settings.layers, self.device)
        if not prepared.is_whole:
            text = base_text(
                *(prepared.base, self.base, self.pattern, self.tokens, self.settings.prompt)
            )
            lake = self._lake(prepared.folder / "lake", engine)
            text = replace(text, profile=lake.settings.profile)
            mined = (lake, prepared.folder, self.settings, text)
            prepare(*mined, self.aliases, self.device, self.told, engine)

    @property
    def _is_index(self) -> bool:
        return isinstance(self.source, str | os.PathLike) and is_index(Path(self.source))

    def _lake(self, folder: Path, engine: Engine | None) -> Lake:
        """Open an index, or make one that lasts as long as the run."""
        if self._is_index:
            return open_lake(str(self.source))
        cells = "none" if self.settings.join == "equi" else self.cells or "default"
        means = usual_means(progress=self.told, engine=engine)
        refresh(self.source, folder, means, vectors={"encoder": "none", "cells": cells})
        return open_lake(folder)

    def is_prepared(self, prepared: Prepared) -> bool:
        """Tell whether another process has mined what is to be learned."""
        return prepared.is_whole and prepared.base.exists() and prepared.asked() == self.asked()

    def fit(self, prepared: Prepared, workers: int, processes: Processes) -> Fitted:
        """Train."""
        from deepjoin.lab.training.fit import fit

        text = TextSettings(**prepared.said()["text"])
        device = processes.device(self.device)
        with taking_leave(processes):
            return fit(prepared, self.settings, text, self.told, device, workers, processes)


def _finished(prepared: Prepared, folder: Path) -> Trained:
    """Move the whole model to its folder; the file that makes it one comes last."""
    model = prepared.model
    trained = Trained.read(model, folder)
    names = sorted((path.name for path in model.iterdir()), key=lambda name: name == LAST)
    for name in names:
        (model / name).replace(folder / name)
    shutil.rmtree(prepared.folder)
    return trained


def _alone(folder: Path) -> AbstractContextManager[None]:
    """Keep other runs out of a folder."""
    busy = f"Another run is at work in {folder.parent}. Wait for it to end, or stop it."
    return locked(folder / LOCK, DeepJoinError(busy))


@contextmanager
def _telling_of_disks(folder: Path) -> Iterator[None]:
    """Say in one line that a disk is full; what was saved before stays."""
    try:
        yield
    except DeepJoinError:
        raise
    # Each library of tensors has its own error for a file it cannot write, or none that says why.
    except Exception as error:
        free = shutil.disk_usage(folder).free
        if free > _FULL and not any(sign in str(error) for sign in _SIGNS):
            raise
        raise DeepJoinError(
            f"There is no space left in {folder}. What was trained before is kept there: make "
            "room and give the same command again."
        ) from None


def _check_installed() -> None:
    for name in ("torch", "sentence_transformers", "accelerate", "scipy"):
        if find_spec(name) is None:
            raise MissingExtra(
                f"Training needs {name.replace('_', '-')}: pip install 'deepjoin[train]'."
            )
    check_installed()


def _folder(folder: Path) -> Path:
    """Make the folder of the model, unless something else is there."""
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
            f"device is '{name}', and training takes the first GPU it sees. Use --device cuda with "
            f"CUDA_VISIBLE_DEVICES={device_named(name).index} set."
        )
    return name


def _workers(wanted: int | None, device: str, usual: int) -> int:
    """Choose how many processes make batches: on the CPU, the model needs all the time there is."""
    if wanted is not None:
        return wanted
    return max(0, usual) if device.startswith("cuda") else 0
