"""Baselines (section 5.1): a column is the mean of its cell vectors, or a tower over that mean.

The tower is the paper's MLP, trained by ``python -m deepjoin.lab.training.mlp``; numpy is all it
needs here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from deepjoin.arrays import Array, Double, Float
from deepjoin.embed.cells import CellEncoder, load_cell_encoder
from deepjoin.embed.columns.encoder import ColumnEncoder, checked
from deepjoin.embed.columns.loading import check_place
from deepjoin.embed.columns.text import Frequency, TextSettings
from deepjoin.embed.columns.torch_encoder import TorchEncoder, load_model
from deepjoin.embed.columns.weights import read_weights, write_weights
from deepjoin.errors import DeepJoinError
from deepjoin.lab.encoders.checkpoints import encodable
from deepjoin.model import Column
from deepjoin.normalise.cells import distinct_cells

#: Gives each value a vector; zeros for an unknown value.
ToVectors = Callable[[Sequence[str]], Float]
#: Values whose vectors are held at a time.
_VALUES = 1 << 14
#: Tokens read of a cell, special ones not counted.
_TOKENS = 126
#: Special tokens that are not averaged; the token of unknown words is.
_SPECIAL = ("cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id", "pad_token_id")
#: The files of a folder with a tower.
SAID, WEIGHTS = "mlp.json", "weights.npz"
#: Version of the folder; others are refused.
_VERSION = 1
#: The arrays of a tower, and which of its three widths are their dimensions.
_SHAPES = {
    "mean": (0,),
    "scale": (0,),
    "first": (0, 1),
    "first_bias": (1,),
    "second": (1, 2),
    "second_bias": (2,),
}


class Averages(ColumnEncoder):
    """A column is the mean of the vectors of its distinct values; unknown values do not count.

    The vector depends on the set of values only, not on order, spelling or repetition.
    """

    def __init__(
        self, kind: str, name: str, digest: str, dimension: int, vectors: ToVectors, profile: str
    ) -> None:
        self.kind, self.name, self.dimension = kind, f"{kind}:{name}", dimension
        self.digest = blake2b(repr((kind, digest, profile)).encode(), digest_size=16).hexdigest()
        self._vectors, self._profile = vectors, profile

    def encode(self, columns: Sequence[Column], frequency: Frequency) -> Float:
        """Return the mean of each column; a value in several columns is encoded once."""
        values = [distinct_cells(column.cells, self._profile).values for column in columns]
        means = mean_vectors(values, self._vectors, self.dimension)
        return checked(means.astype(np.float32), self.name)


def mean_vectors(columns: Sequence[Sequence[str]], vectors: ToVectors, dimension: int) -> Double:
    """Average the vectors of the known values of each column; zeros for a column without any."""
    # A value in several columns is encoded once: encoding costs far more than adding up.
    numbers: dict[str, int] = {}
    held = [
        np.sort(np.array([numbers.setdefault(encodable(one), len(numbers)) for one in of], int))
        for of in columns
    ]
    distinct = list(numbers)
    sums, counts = np.zeros((len(held), dimension)), np.zeros(len(held))
    for start in range(0, len(distinct), _VALUES):
        rows = vectors(distinct[start : start + _VALUES])
        known = np.asarray(rows.any(axis=1))
        for column, of in enumerate(held):
            first, last = np.searchsorted(of, (start, start + len(rows)))
            some = of[first:last] - start
            sums[column] += rows[some].sum(axis=0, dtype=np.float64)
            counts[column] += np.count_nonzero(known[some])
    return sums / np.maximum(counts, 1)[:, None]


def load_fasttext(where: str, *, profile: str, device: str | None) -> Averages:
    """Average the vectors of a fastText .vec or .bin file."""
    from deepjoin.embed.cells.fasttext import load_vectors

    path = Path(where)
    if path.suffix not in (".vec", ".bin") or not path.is_file():
        raise DeepJoinError(
            f"There is no fastText file '{where}'. Give a .vec or .bin file, or train one on a "
            "lake: python -m deepjoin.lab.encoders.train_fasttext INDEX -o lake.bin"
        )
    words = load_vectors(path)
    return Averages("fasttext", path.name, words.digest, words.dimension, words.encode, profile)


def load_averages(where: str, kind: str, *, profile: str, device: str | None) -> Averages:
    """Average the word pieces of BERT, MPNet or another transformers model."""
    check_place(where, others="")
    cells = CellModel(where, device)
    return Averages(kind, cells.name, cells.digest, cells.dimension, cells.encode_texts, profile)


class CellModel(TorchEncoder):
    """A language model that reads single cells: the mean of its last layer over the word pieces.

    The pooling saved with a model is ignored. Needs the extra ``train``.
    """

    def __init__(self, spec: str | Path, device: str | None = None) -> None:
        super().__init__(spec, TextSettings(tokens=_TOKENS), None, device)

    @staticmethod
    def _loaded(spec: str, device: str | None) -> Any:
        model = load_model(spec, device)
        import torch
        from sentence_transformers import SentenceTransformer

        found = (getattr(model.tokenizer, name, None) for name in _SPECIAL)
        special = sorted({number for number in found if number is not None})

        class WordsMean(torch.nn.Module):
            """The mean of the last layer over word pieces; zeros for a text without any."""

            def forward(self, features: dict[str, Any]) -> dict[str, Any]:
                """Add the vector of each text."""
                words = features["attention_mask"].bool()
                for number in special:
                    words = words & (features["input_ids"] != number)
                weights = words.unsqueeze(-1).to(features["token_embeddings"].dtype)
                sums = (features["token_embeddings"] * weights).sum(1)
                features["sentence_embedding"] = sums / weights.sum(1).clamp(min=1)
                return features

        modules = [model[0], WordsMean()]
        return SentenceTransformer(modules=modules, device=str(model.device)).eval()


@dataclass(frozen=True)
class Tower:
    """Two layers from the mean of cell vectors to the vector of a column.

    >>> zeros = {name: np.zeros([2] * len(widths)) for name, widths in _SHAPES.items()}
    >>> Tower(zeros)(np.ones((3, 2))).shape
    (3, 2)
    """

    weights: Mapping[str, Array]

    def __post_init__(self) -> None:
        widths: dict[int, int] = {}
        for name, axes in _SHAPES.items():
            found = self.weights[name].shape
            if len(found) != len(axes) or any(
                widths.setdefault(axis, size) != size
                for axis, size in zip(axes, found, strict=True)
            ):
                raise ValueError(f"'{name}' has the shape {found}")

    @property
    def inputs(self) -> int:
        """The dimension of cell vectors."""
        return len(self.weights["mean"])

    @property
    def dimension(self) -> int:
        """The dimension of column vectors."""
        return len(self.weights["second_bias"])

    def __call__(self, features: Array) -> Float:
        """Encode features in double precision, so that a vector does not depend on its batch."""
        arrays = {name: np.asarray(self.weights[name], np.float64) for name in _SHAPES}
        states = (features.astype(np.float64) - arrays["mean"]) * arrays["scale"]
        states = np.maximum(states @ arrays["first"] + arrays["first_bias"], 0)
        vectors: Float = np.tanh(states @ arrays["second"] + arrays["second_bias"]).astype(
            np.float32
        )
        return vectors


class MlpEncoder(ColumnEncoder):
    """A trained tower over the cell vectors it was trained on."""

    kind = "mlp"

    def __init__(self, name: str, tower: Tower, cells: CellEncoder, profile: str) -> None:
        self.name, self.dimension = name, tower.dimension
        self._tower, self._cells, self._profile = tower, cells, profile
        content = blake2b(f"{_VERSION} {cells.digest} {profile}".encode(), digest_size=16)
        for part in _SHAPES:
            content.update(np.ascontiguousarray(tower.weights[part], np.float64).tobytes())
        self.digest = content.hexdigest()

    def encode(self, columns: Sequence[Column], frequency: Frequency) -> Float:
        """Return the vector of each column; zeros where no cell is known."""
        values = [distinct_cells(column.cells, self._profile).values for column in columns]
        means = mean_vectors(values, self._cells.encode, self._cells.dimension)
        vectors = self._tower(means)
        # The tower would turn a mean of zeros into its biases, similar to other such columns.
        vectors[~means.any(axis=1)] = 0
        return vectors


def write_mlp(folder: Path, tower: Tower, cells: str, digest: str, more: Mapping[str, Any]) -> None:
    """Write a tower, the cell vectors it reads, and more facts about it."""
    write_weights(folder / WEIGHTS, {name: tower.weights[name] for name in _SHAPES})
    where = cells if cells == "default" else str(Path(cells).resolve())
    facts = {"version": _VERSION, "cells": where, "cells_digest": digest, **more}
    (folder / SAID).write_text(json.dumps(facts, indent=2) + "\n", "utf-8")


def load_mlp(where: str, *, profile: str, device: str | None) -> ColumnEncoder:
    """Load a folder that ``python -m deepjoin.lab.training.mlp`` wrote."""
    folder = Path(where)
    facts = _facts(folder)
    name = str(facts["cells"])
    # A folder copied to another machine can bring its cell vectors along.
    beside = folder / Path(name).name
    found = beside if name != "default" and beside.exists() else Path(name)
    if name != "default" and not found.exists():
        raise DeepJoinError(
            f"The MLP '{folder}' reads the cell vectors {name}, which do not exist. Copy them "
            f"to {beside}, or train it again."
        )
    cells = load_cell_encoder(str(found))
    if cells.digest != facts["cells_digest"]:
        raise DeepJoinError(
            f"The MLP '{folder}' was trained on cell vectors {facts['cells_digest']}, and "
            f"{name} has {cells.digest}. Restore those, or train it again."
        )
    try:
        tower = Tower(read_weights((folder / WEIGHTS).read_bytes(), folder / WEIGHTS))
    except (OSError, KeyError, ValueError) as error:
        raise _refused(folder, f"{WEIGHTS} cannot be read ({error})") from None
    if tower.inputs != cells.dimension:
        raise _refused(folder, f"it reads {tower.inputs} numbers, cells have {cells.dimension}")
    return MlpEncoder(folder.name, tower, cells, profile)


def _facts(folder: Path) -> dict[str, Any]:
    try:
        facts = json.loads((folder / SAID).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise _refused(folder, f"{SAID} cannot be read ({error})") from None
    wanted = {"version": _VERSION, "cells": "", "cells_digest": ""}
    if not isinstance(facts, dict) or wanted.keys() - facts.keys():
        raise _refused(folder, f"{SAID} does not have {', '.join(wanted)}")
    if facts["version"] != _VERSION:
        raise _refused(folder, f"{SAID} has version {facts['version']}, not {_VERSION}")
    return facts


def _refused(folder: Path, why: str) -> DeepJoinError:
    return DeepJoinError(
        f"'{folder}' holds no MLP: {why}. Make one with: python -m deepjoin.lab.training.mlp INDEX "
        "-o FOLDER"
    )
