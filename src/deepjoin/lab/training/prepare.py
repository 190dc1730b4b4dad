"""From a lake to a folder that holds all a training run needs: columns, pairs, the base model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from deepjoin.build.engine import Engine
from deepjoin.embed.columns import DEFAULT
from deepjoin.embed.columns.export import read_json
from deepjoin.embed.columns.restore import kept_layers, restore, shallower
from deepjoin.embed.columns.text import TextSettings
from deepjoin.embed.columns.text_encoder import text_settings
from deepjoin.embed.columns.tokens import Tokens
from deepjoin.embed.columns.torch_encoder import SETTINGS_FILE
from deepjoin.errors import DeepJoinError
from deepjoin.files import replace_file
from deepjoin.lab.training.columns import TrainingColumns
from deepjoin.lab.training.gather import gather
from deepjoin.lab.training.near import near_values, value_vectors
from deepjoin.lab.training.self_join import Pairs, Told, equi_pairs
from deepjoin.lab.training.semantic_pairs import semantic_pairs
from deepjoin.lab.training.settings import TrainSettings
from deepjoin.lab.training.spellings import Spellings, read_aliases
from deepjoin.lab.training.validation import searched, split

if TYPE_CHECKING:
    from deepjoin.lake import Lake

#: Columns that share at least so much are neighbours: hard to tell from those that share more.
_NEIGHBOUR, _NEIGHBOURS = 0.1, 50
#: Held by the process that works in the folder.
LOCK = "lock"
_ASKED, _RUN = "asked.json", "run.json"


@dataclass(frozen=True)
class Prepared:
    """What a run needs, in one folder that can be taken to another machine."""

    folder: Path

    @property
    def base(self) -> Path:
        """The model to start from, a sentence-transformers folder."""
        return self.folder / "base"

    @property
    def checkpoints(self) -> Path:
        """Where the run keeps how far it is."""
        return self.folder / "checkpoints"

    @property
    def model(self) -> Path:
        """Where the finished model is put together."""
        return self.folder / "model"

    @property
    def is_whole(self) -> bool:
        """Whether all is there."""
        return (self.folder / _RUN).exists()

    def asked(self) -> dict[str, Any] | None:
        """Read what the run was asked for; None if it has not begun."""
        try:
            return dict(json.loads((self.folder / _ASKED).read_bytes()))
        except (OSError, ValueError):
            return None

    def begin(self, asked: Mapping[str, Any]) -> None:
        """Empty the folder of whatever another run left, and write down what is asked for."""
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != LOCK:
                path.unlink()
        write_whole(self.folder / _ASKED, asked)

    def said(self) -> dict[str, Any]:
        """Read what was prepared."""
        try:
            said: dict[str, Any] = json.loads((self.folder / _RUN).read_bytes())
        except (OSError, ValueError) as error:
            raise DeepJoinError(
                f"{self.folder} holds no prepared training run: {error}. Remove it and start again."
            ) from None
        return said

    def columns(self) -> TrainingColumns:
        """Read the columns to train on."""
        return TrainingColumns.read(self.folder / "columns.arrow")

    def searched(self) -> TrainingColumns:
        """Read the columns to validate with."""
        return TrainingColumns.read(self.folder / "searched.arrow")

    def pairs(self) -> Pairs:
        """Read the mined pairs."""
        return Pairs.read(self.folder / "pairs.npz")

    def neighbours(self) -> Pairs | None:
        """Read the pairs that negatives are taken from."""
        path = self.folder / "neighbours.npz"
        return Pairs.read(path) if path.exists() else None

    def near(self) -> Any:
        """Read which values mean the same; None for equi-joins."""
        from scipy.sparse import load_npz

        path = self.folder / "near.npz"
        return load_npz(path) if path.exists() else None

    def spellings(self) -> Spellings | None:
        """Read other spellings of the values."""
        path = self.folder / "spellings.npz"
        return Spellings.read(path) if path.exists() else None


def prepare(
    lake: Lake,
    folder: Path,
    settings: TrainSettings,
    text: TextSettings,
    aliases: Path | None,
    device: str,
    told: Told,
    engine: Engine | None = None,
) -> None:
    """Mine the pairs of a lake and write all into a folder; its last file says it is whole."""
    columns = gather(lake, settings.columns, settings.seed)
    training, held = split(columns, settings.seed)
    mined = columns.take(training)
    near = _near(lake, columns, settings, device, told) if settings.join == "semantic" else None
    if near is not None:
        _save_near(near, folder / "near.npz")
    pairs = _pairs(mined, near, settings.threshold, settings.pairs, settings, told, engine)
    pairs.write(folder / "pairs.npz")
    if settings.negatives == "hard":
        neighbours = _pairs(mined, near, _NEIGHBOUR, _NEIGHBOURS, settings, told, engine)
        neighbours.write(folder / "neighbours.npz")
    if aliases is not None:
        profile = lake.settings.profile
        Spellings.of(mined, read_aliases(aliases), profile).write(folder / "spellings.npz")
    mined.write(folder / "columns.arrow")
    columns.take(searched(training, held, settings.seed)).write(folder / "searched.arrow")
    counts = {"columns": len(mined), "held_back": len(held), "pairs": len(pairs)}
    said = {"text": asdict(text), **counts}
    write_whole(folder / _RUN, said)


def write_whole(path: Path, said: Mapping[str, Any]) -> None:
    """Write a file that other processes wait for: it appears when it is complete."""
    replace_file(path, json.dumps(said, indent=2) + "\n")


def _near(
    lake: Lake, columns: TrainingColumns, settings: TrainSettings, device: str, told: Told
) -> Any:
    """Compare the values of all columns by meaning."""
    encoder = lake.context().cell_encoder()
    tau = encoder.tau if settings.tau is None else settings.tau
    floor = encoder.floor if settings.tau is None else 0.9 * settings.tau
    return near_values(
        value_vectors(columns, encoder, lake.settings.profile), floor, tau, device, told
    )


def _save_near(near: Any, path: Path) -> None:
    from scipy.sparse import save_npz

    save_npz(path, near, compressed=False)


def _pairs(
    columns: TrainingColumns,
    near: Any,
    threshold: float,
    most: int,
    settings: TrainSettings,
    told: Told,
    engine: Engine | None,
) -> Pairs:
    if near is None:
        return equi_pairs(columns, threshold, most, settings.seed, told, engine)
    return semantic_pairs(columns, near, threshold, most, settings.seed, told, engine)


def write_base(spec: str, folder: Path, layers: int | None, device: str | None) -> None:
    """Write the model to start from: the shipped one, a folder in either form, or a public name."""
    source = DEFAULT if spec == "default" else Path(spec)
    if (source / "encoder.json").is_file():
        restore(source, folder, layers)
        return
    from deepjoin.embed.columns.torch_encoder import TorchEncoder, load_model, quiet

    TorchEncoder(spec, device=device)  # names whatever is missing or torn
    with quiet(), TemporaryDirectory(dir=folder.parent) as place:
        whole = Path(place) / "base"
        load_model(spec, "cpu").save(str(whole), create_model_card=False)
        settings = source / SETTINGS_FILE
        if settings.is_file():
            shutil.copyfile(settings, whole / SETTINGS_FILE)
        if layers is None:
            whole.rename(folder)
        else:
            kept_layers(read_json(whole / "config.json").get("num_hidden_layers", 0), layers, spec)
            shallower(whole, folder, layers)


def base_text(
    folder: Path, spec: str, pattern: str | None, tokens: int | None, prompt: str
) -> TextSettings:
    """Say how columns become texts: as told, else as for the base model; it must read as many."""
    from deepjoin.embed.columns.torch_encoder import load_model, positions

    stored = text_settings(folder / SETTINGS_FILE)
    text = replace(
        stored,
        pattern=pattern or stored.pattern,
        tokens=tokens or stored.tokens,
        prompt=prompt,
    )
    model = load_model(str(folder), "cpu")
    backend = model.tokenizer.backend_tokenizer
    Tokens.from_text(backend.to_str(), text.tokens, text.prompt).check(positions(model), spec)
    return text
