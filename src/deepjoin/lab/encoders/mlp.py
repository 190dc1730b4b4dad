"""The paper's MLP as a column encoder: the mean of a column's cell vectors through a small tower.

The tower is trained by ``python -m deepjoin.lab.training.mlp``; numpy is all it needs here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from deepjoin.arrays import Array, Float
from deepjoin.embed.cells import CellEncoder, load_cell_encoder
from deepjoin.embed.columns.encoder import ColumnEncoder
from deepjoin.embed.columns.text import Frequency
from deepjoin.embed.columns.weights import read_weights, write_weights
from deepjoin.errors import DeepJoinError
from deepjoin.lab.encoders.averages import mean_vectors
from deepjoin.model import Column
from deepjoin.normalise.distinct import distinct_cells

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
