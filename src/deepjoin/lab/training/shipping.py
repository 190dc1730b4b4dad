"""A trained model to the small form that needs no torch, checked to find the same columns."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from deepjoin.embed.columns.calibration import TEXTS
from deepjoin.embed.columns.export import export_encoder
from deepjoin.embed.columns.onnx_encoder import OnnxEncoder
from deepjoin.embed.columns.restore import whole_folder
from deepjoin.embed.columns.torch_encoder import TorchEncoder
from deepjoin.errors import DeepJoinError

Floats = npt.NDArray[np.float32]

AGREEMENT_FILE = "agreement.json"
K = 10
#: Share of the nearest texts that must stay the same.
_LEAST = 0.95
#: Texts needed at least: half are compared, and among fewer any ten are much the same.
_FEWEST = 60
#: Texts compared at most.
_COMPARED = 2000
#: Cosines that differ by less are equal: sums of floats depend on their order.
_EQUAL = 1e-6


@dataclass(frozen=True)
class Agreement:
    """How close vectors of the shipped form are to those of the model, on texts new to both.

    ``top_10`` is the share of each text's ten nearest, by the shipped form, that are among its
    ten nearest by the model.
    """

    texts: int
    mean_cosine: float
    least_cosine: float
    top_10: float

    def __str__(self) -> str:
        return (
            f"{self.top_10:.1%} of the ten nearest are the same, vectors have a cosine of "
            f"{self.mean_cosine:.5f} on average and {self.least_cosine:.5f} at least "
            f"({self.texts} texts)"
        )


def ship(
    model_folder: str | Path,
    target: str | Path,
    name: str,
    texts: Sequence[str],
) -> Agreement:
    """Export a model, rounded for some of the texts of its training, and compare it on others.

    A form that finds other columns than the model is refused, and leaves no folder.
    """
    calibration, held_out = halves(texts)
    model = TorchEncoder(model_folder)
    with whole_folder(Path(target)) as aside:
        export_encoder(model_folder, aside, name, texts=calibration)
        found = agreement(model.encode_texts(held_out), OnnxEncoder(aside).encode_texts(held_out))
        if found.top_10 < _LEAST:
            raise DeepJoinError(
                f"The small form of '{name}' finds other columns than the model: {found}; of the "
                f"ten nearest {_LEAST:.0%} should be the same. Use the model itself, with "
                "deepjoin[train] installed."
            )
        (aside / AGREEMENT_FILE).write_text(json.dumps(asdict(found), indent=2) + "\n", "utf-8")
    return found


def halves(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Draw texts to round weights for, and others to compare vectors on; always the same ones."""
    different = list(dict.fromkeys(texts))
    if len(different) < _FEWEST:
        raise DeepJoinError(
            f"There are {len(different)} different columns to check the small form with; "
            f"{_FEWEST} are needed. Train on a larger lake."
        )
    random.Random(0).shuffle(different)
    taken = min(TEXTS, len(different) // 2)
    return different[:taken], different[taken : taken + _COMPARED]


def agreement(model: Floats, shipped: Floats) -> Agreement:
    """Compare the vectors two encoders give to the same texts."""
    model, shipped = _units(model), _units(shipped)
    cosines = (model * shipped).sum(axis=1)
    return Agreement(
        len(model), float(cosines.mean()), float(cosines.min()), _same_nearest(model, shipped)
    )


def _same_nearest(model: Floats, shipped: Floats) -> float:
    """Search every text among the others, exactly; of equally near ones any will do."""
    near = _nearness(model)
    least = np.partition(near, -K, axis=1)[:, -K:][:, :1]
    found = np.argpartition(_nearness(shipped), -K, axis=1)[:, -K:]
    return float((np.take_along_axis(near, found, axis=1) >= least - _EQUAL).mean())


def _nearness(units: Floats) -> Floats:
    near: Floats = units @ units.T
    np.fill_diagonal(near, -np.inf)
    return near


def _units(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(lengths == 0, 1, lengths)).astype(np.float32)
