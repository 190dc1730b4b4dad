"""Train the paper's MLP: ``python -m deepjoin.lab.training.mlp INDEX -o FOLDER``.

Two columns pass through one tower, and a head on both vectors predicts their joinability; the
encoder is the tower alone. Training needs the extra ``train``; the encoder needs only numpy.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deepjoin.arrays import Array, Float, Int
from deepjoin.embed.cells import CellEncoder, load_cell_encoder
from deepjoin.errors import DeepJoinError
from deepjoin.lab.encoders.averages import SAID, Tower, write_mlp
from deepjoin.lab.training.batches import Joinability
from deepjoin.lab.training.columns import TrainingColumns, gather
from deepjoin.lab.training.prepare import Validation, near_values, searched, split, value_vectors
from deepjoin.lab.training.self_join import ColumnPairs, equi_pairs, incidence, semantic_pairs
from deepjoin.lab.training.settings import JOINS, check_ranges
from deepjoin.lake import open_lake
from deepjoin.optional import require
from deepjoin.progress import Progress, no_progress
from deepjoin.show.wording import in_options

if TYPE_CHECKING:
    from deepjoin.lake import Lake

#: From two lists of column numbers to the joinability of each of the first with each of the second.
Joined = Callable[[Int, Int], Float]


@dataclass(frozen=True)
class MlpSettings:
    """The recipe of the MLP."""

    join: str = "equi"
    #: Least joinability of mined pairs; a batch also has all other pairs of their columns.
    threshold: float = 0.7
    #: Most columns taken from the lake, and most pairs of one column.
    columns: int = 30_000
    pairs: int = 50
    #: Widths of the two layers; the second is the dimension of the vectors.
    hidden: int = 512
    dimension: int = 128
    batch: int = 256
    steps: int = 400
    learning_rate: float = 1e-4
    seed: int = 0

    def __post_init__(self) -> None:
        if self.join not in JOINS:
            raise DeepJoinError(f"join is '{self.join}'; it must be one of {', '.join(JOINS)}.")
        wide = (1, 1 << 16)
        # Each batch has a square matrix of joinabilities, so it is smaller than in `train`.
        check_ranges(self, hidden=wide, dimension=wide, batch=(2, 1 << 14))


@dataclass(frozen=True)
class MlpTask:
    """Features of all columns, joinable pairs of them, and the validation."""

    features: Float
    pairs: ColumnPairs
    joined: Joined
    validation: Validation
    #: The columns that the validation searches.
    searched: Int

    def precision(self, vectors: Float) -> float:
        """P@10 of a search by the cosine of these vectors."""
        some = vectors[self.searched]
        some = some / np.maximum(np.linalg.norm(some, axis=1, keepdims=True), 1e-30)
        shares = self.validation.precision(some[self.validation.queries] @ some.T)
        return float(np.mean(shares)) if shares else 0.0


#: Validations in a run.
_VALIDATIONS = 10
#: Standard deviation of the inputs: small, so that the tanh is nearly linear at the start.
_SPREAD = 0.3
#: Scale of the random part of the initial weights; the rest is the identity.
_NOISE = 0.1
#: The initial head: a cosine of one half gives a joinability of one half.
_STEEP = 8.0


def fit(task: MlpTask, settings: MlpSettings, progress: Progress) -> tuple[dict[str, Array], float]:
    """Train the tower and its head; return the weights with the best P@10, and that P@10."""
    import torch

    mean = task.features.mean(axis=0)
    spread = float(np.sqrt(task.features.var(axis=0).mean()))
    scale = np.full(len(mean), _SPREAD / max(spread, 1e-6), np.float32)
    inputs = torch.from_numpy((task.features - mean) * scale)
    network = _Network(task, settings, inputs)
    best = (-1.0, network.weights())
    for step in range(1, settings.steps + 1):
        loss = network.step()
        if step % max(1, settings.steps // _VALIDATIONS) == 0 or step == settings.steps:
            found = task.precision(network.vectors())
            if found > best[0]:
                best = (found, network.weights())
            progress(step, settings.steps, f"loss {loss:.5f}, P@10 {found:.3f}")
    return {"mean": mean, "scale": scale, **best[1]}, best[0]


class _Network:
    """A tower and a head in training."""

    def __init__(self, task: MlpTask, settings: MlpSettings, inputs: Any) -> None:
        import torch

        self._task, self._settings, self._inputs = task, settings, inputs
        self._random = np.random.default_rng(settings.seed)
        with torch.random.fork_rng():
            torch.manual_seed(settings.seed)
            self._tower = _tower(inputs.shape[1], settings)
        self._head = torch.nn.Parameter(torch.tensor([_STEEP, -_STEEP / 2]))
        parameters = [*self._tower.parameters(), self._head]
        self._optimiser: Any = torch.optim.AdamW(parameters, settings.learning_rate)

    def step(self) -> float:
        """Learn from some pairs and all combinations of their columns; return the mean error."""
        import torch
        from torch.nn.functional import normalize

        rows = self._random.integers(0, len(self._task.pairs), self._settings.batch)
        pairs = self._task.pairs.take(rows)
        wanted = torch.from_numpy(self._task.joined(pairs.x, pairs.y))
        x, y = (normalize(self._tower(self._inputs[one])) for one in (pairs.x, pairs.y))
        loss = ((torch.sigmoid(x @ y.T * self._head[0] + self._head[1]) - wanted) ** 2).mean()
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()
        return float(loss.detach())

    def vectors(self) -> Float:
        """Return the vectors of all columns."""
        import torch

        with torch.inference_mode():
            vectors: Float = self._tower(self._inputs).numpy()
        return vectors

    def weights(self) -> dict[str, Array]:
        """Copy the weights that the encoder needs."""
        first, second = self._tower[0], self._tower[2]
        arrays = {
            "first": first.weight.T,
            "first_bias": first.bias,
            "second": second.weight.T,
            "second_bias": second.bias,
        }
        return {name: one.detach().numpy().copy() for name, one in arrays.items()}


def _tower(inputs: int, settings: MlpSettings) -> Any:
    """Initialise a tower close to the identity, as far as its widths allow."""
    import torch
    from torch import nn

    first, second = (
        nn.Linear(inputs, settings.hidden),
        nn.Linear(settings.hidden, settings.dimension),
    )
    with torch.no_grad():
        for layer in (first, second):
            layer.weight.mul_(_NOISE)
            layer.bias.zero_()
        half = settings.hidden // 2
        # One half carries the positive part, the other the negative; the second layer adds them.
        first.weight[:half] += torch.eye(half, inputs)
        first.weight[half : 2 * half] -= torch.eye(half, inputs)
        second.weight[:, :half] += torch.eye(settings.dimension, half)
        second.weight[:, half : 2 * half] -= torch.eye(settings.dimension, half)
    return nn.Sequential(first, nn.ReLU(), second, nn.Tanh())


@dataclass(frozen=True)
class TrainedMlp:
    """A trained MLP: its folder, and P@10 on held-back columns by it and by the plain means."""

    folder: Path
    precision: float
    before: float
    queries: int


def train_mlp(
    lake: Lake,
    out: str | Path,
    *,
    cells: str = "default",
    settings: MlpSettings | None = None,
    progress: Progress = no_progress,
) -> TrainedMlp:
    """Train on the columns of a lake and write the encoder to a new folder.

    ``cells`` is the cell encoder, as for `deepjoin.index`; the paper uses fastText.
    """
    settings = settings or MlpSettings()
    for module in ("torch", "scipy"):
        require(module, "train", "Training")
    folder = Path(out)
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        holds = "already holds an MLP" if (folder / SAID).is_file() else "holds other files"
        raise DeepJoinError(f"{folder} {holds}. Give a new folder.")
    encoder = load_cell_encoder(cells)
    columns = gather(lake, settings.columns, settings.seed)
    task = make_task(columns, encoder, lake.settings.profile, settings, progress)
    weights, precision = fit(task, settings, progress)
    before, queries = task.precision(task.features), len(task.validation.queries)
    facts = {
        "settings": asdict(settings),
        "columns": len(columns),
        "pairs": len(task.pairs),
        "precision": precision,
        "before": before,
        "queries": queries,
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_mlp(folder, Tower(weights), cells, encoder.digest, facts)
    return TrainedMlp(folder, precision, before, queries)


def make_task(
    columns: TrainingColumns,
    encoder: CellEncoder,
    profile: str,
    settings: MlpSettings,
    progress: Progress = no_progress,
) -> MlpTask:
    """Mine pairs of columns, hold some columns back, and average the cell vectors of all."""
    training, held = split(columns, settings.seed)
    vectors = value_vectors(columns, encoder, profile)
    mined, rest = columns.take(training), (settings.threshold, settings.pairs, settings.seed)
    if settings.join == "semantic":
        near = near_values(vectors, encoder.floor, encoder.tau, progress=progress)
        pairs = semantic_pairs(mined, near, *rest, progress)
    else:
        near, pairs = None, equi_pairs(mined, *rest, progress)
    pairs = ColumnPairs(training[pairs.x], training[pairs.y], pairs.joinability)
    joinability = Joinability(len(vectors), near)

    def joined(x: Int, y: Int) -> Float:
        sets = ([columns.values[columns.places(one)] for one in some] for some in (x, y))
        return joinability(*sets)

    places = searched(training, held, settings.seed)
    validation = Validation.of(columns.take(places), len(held), joinability, settings.seed)
    return MlpTask(column_means(columns, vectors), pairs, joined, validation, places)


def column_means(columns: TrainingColumns, vectors: Float) -> Float:
    """Average the vectors of the values of each column, as the encoder does."""
    cells = incidence(columns)
    known = cells @ vectors.any(axis=1).astype(np.int64)
    means: Float = ((cells @ vectors) / np.maximum(known, 1)[:, None]).astype(np.float32)
    return means


def main(arguments: Sequence[str] | None = None) -> int:
    """Train on an index, and report P@10 on held-back columns."""
    parser = argparse.ArgumentParser(
        prog="python -m deepjoin.lab.training.mlp", description=__doc__
    )
    parser.add_argument("index", metavar="INDEX", help="an index of tables to learn from")
    parser.add_argument("-o", "--out", required=True, metavar="FOLDER")
    parser.add_argument(
        "--cells", default="default", help="fastText .vec or .bin, or the folder of a cell table"
    )
    for field in fields(MlpSettings):
        option = f"--{field.name.replace('_', '-')}"
        parser.add_argument(option, type=type(field.default), default=field.default)
    options = vars(parser.parse_args(arguments))
    source, out, cells = (options.pop(name) for name in ("index", "out", "cells"))
    try:
        settings = MlpSettings(**options)
        found = train_mlp(open_lake(source), out, cells=cells, settings=settings, progress=_print)
    except DeepJoinError as error:
        sys.stderr.write(f"deepjoin: {in_options(str(error))}\n")
        return 1
    sys.stderr.write(
        f"P@10 of held-back columns: {found.precision:.3f}, by the means of cells "
        f"{found.before:.3f} ({found.queries:,} queries).\n"
    )
    sys.stdout.write(f"{found.folder}\n")
    return 0


def _print(done: int, total: int, text: str) -> None:
    if text.startswith("loss") or done == total:
        sys.stderr.write(f"  {done:,} of {total:,}  {text}\n")


if __name__ == "__main__":
    sys.exit(main())
