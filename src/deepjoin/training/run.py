"""`deepjoin.train`: from a lake to an encoder, in one call that can be interrupted and repeated."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepjoin._version import __version__
from deepjoin.errors import DeepJoinError, MissingExtra
from deepjoin.lake.indexing import index, open_lake
from deepjoin.lake.manifest import is_index
from deepjoin.text import TextSettings
from deepjoin.training import settings as recipes
from deepjoin.training.card import CardFacts, Figure, write_card
from deepjoin.training.prepare import Prepared, base_text, prepare, write_base
from deepjoin.training.report import check_installed, write_report
from deepjoin.training.self_join import Told, unheard
from deepjoin.training.settings import TrainSettings

if TYPE_CHECKING:
    from deepjoin.lake.lake import Lake
    from deepjoin.training.fit import Fitted
    from deepjoin.training.shipping import Agreement

#: Inside the folder of the model, until it is there.
_WORK = ".training"
#: The small form beside the model, which needs no torch.
SHIPPED = "shipped"
#: The file without which a folder is no model: it comes last.
_LAST = "modules.json"
#: Texts of columns that the small form is rounded for and compared on.
_TEXTS = 2400


@dataclass(frozen=True)
class Trained:
    """A trained encoder: its folder, how well it finds held-back columns, and its small form."""

    folder: Path
    #: Of the held-back columns that join best with one, the share among its ten nearest: at
    #: the best validation, and before training.
    precision: float
    before: float
    #: None if the model has no small form; ``why`` says why.
    agreement: Agreement | None
    why: str = ""


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
    **options: Any,
) -> Trained:
    """Train a column encoder on the tables of a lake.

    Given again after an interruption, the same call goes on where it was.

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
        Called with (step, of how many, what is to be said).
    **options
        Single fields of `TrainSettings`, such as ``join="semantic"`` or ``batch=512``.
    """
    _check_installed()
    settings = recipes.preset(preset, **options)
    folder = _folder(Path(out))
    prepared = Prepared(folder / _WORK)
    device = _device(device)
    asked = _asked(source, base, settings, pattern, tokens, aliases)
    if not prepared.is_whole:
        _prepare(prepared, source, base, settings, (pattern, tokens), cells, aliases, asked,
                 device, progress)  # fmt: skip
    said = _continued(prepared, asked, folder)
    return _fitted(prepared, said, settings, folder, device, workers, command, progress)


def _check_installed() -> None:
    for name in ("torch", "sentence_transformers", "accelerate", "scipy"):
        if find_spec(name) is None:
            raise MissingExtra(
                f"Training needs {name.replace('_', '-')}: pip install 'deepjoin[train]'."
            )
    check_installed()


def _folder(folder: Path) -> Path:
    """Make the folder of the model, unless something else is there."""
    if (folder / _LAST).exists():
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
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise DeepJoinError(f"device is '{name}', and torch sees no GPU here. Use --device cpu.")
    return name


def _asked(source: object, base: str, settings: TrainSettings, *more: object) -> dict[str, Any]:
    """Write down what was asked for, to tell a run that goes on from another one."""
    where = str(source) if isinstance(source, str | os.PathLike) else type(source).__name__
    return {"source": where, "base": base, "settings": asdict(settings), "more": [*map(str, more)]}


def _prepare(
    prepared: Prepared,
    source: object,
    base: str,
    settings: TrainSettings,
    text: tuple[str | None, int | None],
    cells: str | None,
    aliases: str | os.PathLike[str] | None,
    asked: Mapping[str, Any],
    device: str,
    told: Told,
) -> None:
    if prepared.base.exists():
        shutil.rmtree(prepared.base)
    write_base(base, prepared.base, settings.layers, device)
    lake = _lake(source, prepared.folder / "lake", settings, cells, told)
    texts = base_text(prepared.base, *text, lake.settings.profile)
    path = None if aliases is None else Path(aliases)
    prepare(lake, prepared.folder, settings, texts, {"asked": asked}, path, device, told)


def _lake(
    source: object, folder: Path, settings: TrainSettings, cells: str | None, told: Told
) -> Lake:
    """Open an index, or make one that lasts as long as the run."""
    if isinstance(source, str | os.PathLike) and is_index(Path(source)):
        return open_lake(source)
    needed = "none" if settings.join == "equi" else cells or "default"
    return index(source, folder, encoder="none", cells=needed, progress=told)


def _continued(prepared: Prepared, asked: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    said = prepared.said()
    if said["asked"] != json.loads(json.dumps(asked)):
        raise DeepJoinError(
            f"{folder} holds an unfinished run with other settings or another source. Give the "
            "same command to go on with it, or another folder."
        )
    return said


def _fitted(
    prepared: Prepared,
    said: Mapping[str, Any],
    settings: TrainSettings,
    folder: Path,
    device: str,
    workers: int | None,
    command: str,
    told: Told,
) -> Trained:
    from deepjoin.training.fit import fit, save

    text = TextSettings(**said["text"])
    if workers is None:
        workers = min(8, (os.cpu_count() or 1) // 2) if device.startswith("cuda") else 0
    fitted = fit(prepared, settings, text, told, device, workers)
    model = prepared.folder / "model"
    shutil.rmtree(model, ignore_errors=True)
    save(fitted, model)
    agreement, why = _shipped(fitted, model, folder.name)
    _describe(model, folder.name, said, fitted, agreement or why, command)
    _place(model, folder)
    shutil.rmtree(prepared.folder)
    return Trained(folder, fitted.precision, fitted.before, agreement, why)


def _shipped(fitted: Fitted, model: Path, name: str) -> tuple[Agreement | None, str]:
    """Write the small form too, where a model can have one."""
    from deepjoin.training.shipping import ship

    try:
        return ship(model, model / SHIPPED, name, fitted.sample(_TEXTS)), ""
    except DeepJoinError as error:
        return None, str(error)


def _describe(
    model: Path,
    name: str,
    said: Mapping[str, Any],
    fitted: Fitted,
    shipped: Agreement | str,
    command: str,
) -> None:
    counts = {key: said[key] for key in ("columns", "held_back", "pairs")}
    header = {
        "version": __version__,
        **{key: said[key] for key in ("asked", "text", "settings")},
        **counts,
        "seconds": round(fitted.seconds, 1),
        "device": fitted.device,
        "device_memory_bytes": fitted.memory,
        "small_form": str(shipped),
    }
    write_report(model, header, fitted.events)
    queries = f"{fitted.queries} queries"
    figures = [
        Figure("P@10 of held-back columns, tie-aware", fitted.precision, queries),
        Figure("the same before training", fitted.before, queries),
        Figure("the small form", str(shipped)),
    ]
    write_card(model, _facts(name, said, figures, command, fitted))


def _facts(
    name: str,
    said: Mapping[str, Any],
    figures: Sequence[Figure],
    command: str,
    fitted: Fitted,
) -> CardFacts:
    asked = said["asked"]
    return CardFacts(
        name=name,
        license="other",
        base_model=asked["base"],
        data=f"{said['columns']:,} columns of {asked['source']}, {said['pairs']:,} joinable pairs",
        data_license="that of the tables",
        settings={**said["text"], **said["settings"]},
        figures=figures,
        command=command or "deepjoin.train",
        example=fitted.sample(1)[0],
        tokens=said["text"]["tokens"],
        metric=said["settings"]["metric"],
        model=name,
        encoder=f"{name}/{SHIPPED}",
    )


def _place(model: Path, folder: Path) -> None:
    """Move the whole model to its folder; the file that makes it one comes last."""
    names = sorted((path.name for path in model.iterdir()), key=lambda name: name == _LAST)
    for name in names:
        (model / name).replace(folder / name)
