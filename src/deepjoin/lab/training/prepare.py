"""From a lake to a folder with all that a training run needs: columns, pairs, the base model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepjoin.build.engine import Engine
from deepjoin.embed.columns import DEFAULT
from deepjoin.embed.columns.encoder import text_settings
from deepjoin.embed.columns.text import TextSettings
from deepjoin.embed.columns.tokens import Tokens
from deepjoin.embed.columns.torch_encoder import SETTINGS_FILE
from deepjoin.errors import DeepJoinError
from deepjoin.files import replace_file
from deepjoin.lab.onnx.restore import drop_layers, restore, whole_folder
from deepjoin.lab.training.columns import Spellings, TrainingColumns, gather, read_aliases
from deepjoin.lab.training.near import near_values, value_vectors
from deepjoin.lab.training.self_join import ColumnPairs, equi_pairs, semantic_pairs
from deepjoin.lab.training.settings import PAPER_TEXT, PAPER_TOKENS, TrainInputs, TrainSettings
from deepjoin.lab.training.validation import searched, split
from deepjoin.progress import Progress

if TYPE_CHECKING:
    from deepjoin.lake import Lake

#: Least joinability of hard negatives, and how many are kept for each column.
_NEIGHBOUR, _NEIGHBOURS = 0.1, 50
#: Locked by the process that works in the folder.
LOCK = "lock"
#: What the run was asked to do, written first; and what was prepared, written last.
_REQUEST, _FACTS = "asked.json", "run.json"


@dataclass(frozen=True)
class Prepared:
    """The folder of a run, which can be copied to another machine."""

    folder: Path

    @property
    def base(self) -> Path:
        """The model to start from, a sentence-transformers folder."""
        return self.folder / "base"

    @property
    def checkpoints(self) -> Path:
        """Where the run saves its state."""
        return self.folder / "checkpoints"

    @property
    def model(self) -> Path:
        """Where the finished model is assembled."""
        return self.folder / "model"

    @property
    def is_whole(self) -> bool:
        """Whether everything was written."""
        return (self.folder / _FACTS).exists()

    def request(self) -> dict[str, Any] | None:
        """Read what the run was asked to do; None if it has not begun."""
        try:
            return dict(json.loads((self.folder / _REQUEST).read_bytes()))
        except (OSError, ValueError):
            return None

    def begin(self, request: Mapping[str, Any]) -> None:
        """Remove what another run left, and write down the request."""
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            # This process holds the lock file, which must stay.
            elif path.name != LOCK:
                path.unlink()
        write_json(self.folder / _REQUEST, request)

    def facts(self) -> dict[str, Any]:
        """Read what was prepared: text settings and counts."""
        try:
            facts: dict[str, Any] = json.loads((self.folder / _FACTS).read_bytes())
        except (OSError, ValueError) as error:
            raise DeepJoinError(
                f"{self.folder} holds no prepared training run: {error}. Remove it and start again."
            ) from None
        return facts

    def columns(self) -> TrainingColumns:
        """Read the columns to train on."""
        return TrainingColumns.read(self.folder / "columns.arrow")

    def searched(self) -> TrainingColumns:
        """Read the columns to validate with."""
        return TrainingColumns.read(self.folder / "searched.arrow")

    def pairs(self) -> ColumnPairs:
        """Read the mined pairs."""
        return ColumnPairs.read(self.folder / "pairs.npz")

    def neighbours(self) -> ColumnPairs | None:
        """Read the pairs that hard negatives are taken from, if there are any."""
        path = self.folder / "neighbours.npz"
        return ColumnPairs.read(path) if path.exists() else None

    def near(self) -> Any:
        """Read the matrix of matching values; None for equi-joins."""
        from scipy.sparse import load_npz

        path = self.folder / "near.npz"
        return load_npz(path) if path.exists() else None

    def spellings(self) -> Spellings | None:
        """Read the other spellings of values, if there are any."""
        path = self.folder / "spellings.npz"
        return Spellings.read(path) if path.exists() else None


def prepare(
    lake: Lake,
    folder: Path,
    settings: TrainSettings,
    text: TextSettings,
    aliases: Path | None,
    device: str,
    progress: Progress,
    engine: Engine | None = None,
) -> None:
    """Mine the pairs of a lake and write everything into a folder, its facts last."""
    columns = gather(lake, settings.columns, settings.seed)
    training, held = split(columns, settings.seed)
    mined = columns.take(training)
    near, truth = None, {"join": settings.join, "threshold": settings.threshold}
    if settings.join == "semantic":
        from scipy.sparse import save_npz

        encoder = lake.context().cell_encoder()
        tau = encoder.tau if settings.tau is None else settings.tau
        floor = encoder.floor if settings.tau is None else 0.9 * settings.tau
        vectors = value_vectors(columns, encoder, lake.settings.profile)
        near = near_values(vectors, floor, tau, device, progress)
        if settings.recipe == "paper":
            # The paper's definition: a value matches at tau, where its chance is one half, or not.
            near.data = (near.data >= 0.5).astype(near.data.dtype)
            near.eliminate_zeros()
        truth |= {"cells": encoder.name, "cells_digest": encoder.digest, "tau": tau}
        save_npz(folder / "near.npz", near, compressed=False)

    def pairs_from(threshold: float, most: int) -> ColumnPairs:
        rest = (threshold, most, settings.seed, progress, engine)
        return equi_pairs(mined, *rest) if near is None else semantic_pairs(mined, near, *rest)

    pairs = pairs_from(settings.threshold, settings.pairs)
    pairs.write(folder / "pairs.npz")
    if settings.negatives in ("hard", "nearest"):
        pairs_from(_NEIGHBOUR, _NEIGHBOURS).write(folder / "neighbours.npz")
    if aliases is not None:
        profile = lake.settings.profile
        Spellings.of(mined, read_aliases(aliases), profile).write(folder / "spellings.npz")
    mined.write(folder / "columns.arrow")
    columns.take(searched(training, held, settings.seed)).write(folder / "searched.arrow")
    counts = {"columns": len(mined), "held_back": len(held), "pairs": len(pairs)}
    write_json(folder / _FACTS, {"text": asdict(text), "truth": truth, **counts})


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file that other processes wait for, atomically."""
    replace_file(path, json.dumps(content, indent=2) + "\n")


def write_base(spec: str, folder: Path, layers: int | None, device: str | None) -> None:
    """Write the base model: the shipped one, a folder in either form, or a public name."""
    source = DEFAULT if spec == "default" else Path(spec)
    if (source / "encoder.json").is_file():
        restore(source, folder, layers)
        return
    from deepjoin.embed.columns.torch_encoder import TorchEncoder, load_model, quiet

    TorchEncoder(spec, device=device)  # raises with the name of any missing or damaged file
    with quiet(), whole_folder(folder) as aside:
        model = load_model(spec, "cpu")
        if layers is not None:
            drop_layers(model, layers, spec)
        model.save(str(aside), create_model_card=False)
        if (source / SETTINGS_FILE).is_file():
            shutil.copyfile(source / SETTINGS_FILE, aside / SETTINGS_FILE)


def base_text(
    folder: Path, spec: str, inputs: TrainInputs, settings: TrainSettings
) -> TextSettings:
    """Return the text settings, by default those of the base model, whose input they must fit."""
    from deepjoin.embed.columns.torch_encoder import load_model, positions

    # Checked before pairs are mined, which may take hours.
    model = load_model(str(folder), "cpu")
    tokenizer = model.tokenizer.backend_tokenizer.to_str()
    given: dict[str, Any] = {"prompt": settings.prompt}
    if settings.recipe == "paper":
        # What the prompt and special tokens take of the limit.
        around = Tokens.from_text(tokenizer, 0, settings.prompt).limit
        given |= {**PAPER_TEXT, "tokens": min(PAPER_TOKENS, positions(model)) - around}
    text = text_settings(folder / SETTINGS_FILE, given | inputs.text())
    Tokens.from_text(tokenizer, text.tokens, text.prompt).check(positions(model), spec)
    return text
