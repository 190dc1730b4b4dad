"""The regression of the paper's MLP: a tower for each column, a head on both, torch inside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from deepjoin.errors import DeepJoinError
from deepjoin.lab.training.self_join import Pairs, Told
from deepjoin.lab.training.settings import JOINS
from deepjoin.lab.training.validation import Validation

Int = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
#: From numbers of columns to how joinable each of the first is with each of the second.
Joined = Callable[[Int, Int], Floats]

_MANY = 10**9
_RANGES: tuple[tuple[str, float, float], ...] = (
    ("threshold", 0.01, 1),
    ("columns", 4, _MANY),
    ("pairs", 1, _MANY),
    ("hidden", 1, 1 << 16),
    ("dimension", 1, 1 << 16),
    ("batch", 2, 1 << 14),
    ("steps", 1, _MANY),
    ("learning_rate", 1e-9, 1),
    ("seed", 0, _MANY),
)


@dataclass(frozen=True)
class MlpSettings:
    """Every choice of a training run."""

    join: str = "equi"
    #: Least joinability of a pair that is mined; other pairs come from putting these together.
    threshold: float = 0.7
    #: Columns taken from the lake, and pairs of one column, at most.
    columns: int = 30_000
    pairs: int = 50
    #: Widths of the tower's two layers; the second is that of a column's vector.
    hidden: int = 512
    dimension: int = 128
    batch: int = 256
    steps: int = 400
    learning_rate: float = 1e-4
    seed: int = 0

    def __post_init__(self) -> None:
        if self.join not in JOINS:
            raise DeepJoinError(f"join is '{self.join}'; it is one of {', '.join(JOINS)}.")
        for name, least, most in _RANGES:
            given = getattr(self, name)
            if not least <= given <= most:
                raise DeepJoinError(f"{name} is {given:g}; it is from {least:g} to {most:g}.")


@dataclass(frozen=True)
class Fitted:
    """The best tower of a run: P@10 of held-back columns by it, and by the plain features."""

    weights: dict[str, npt.NDArray[Any]]
    precision: float
    before: float


@dataclass(frozen=True)
class Task:
    """What is learnt: the features of all columns, joinable pairs of them, and how to judge."""

    features: Floats
    pairs: Pairs
    joined: Joined
    validation: Validation
    #: Which columns the validation searches.
    searched: Int

    def precision(self, vectors: Floats) -> float:
        """Share of the best columns that vectors find, by their cosine."""
        some = vectors[self.searched]
        some = some / np.maximum(np.linalg.norm(some, axis=1, keepdims=True), 1e-30)
        return self.validation.precision(some[self.validation.queries] @ some.T)


#: How often a run is judged.
_JUDGED = 10
#: How far inputs spread: little, for the tanh to leave them about as they are at the start.
_SPREAD = 0.3
#: How far weights are from the identity at the start, beside their usual size.
_NOISE = 0.1
#: The head at the start: a cosine of one half is a joinability of one half.
_STEEP = 8.0


def fit(task: Task, settings: MlpSettings, told: Told) -> Fitted:
    """Train the tower and its head; the tower that finds most is kept."""
    import torch

    mean = task.features.mean(axis=0)
    spread = float(np.sqrt(task.features.var(axis=0).mean()))
    scale = np.full(len(mean), _SPREAD / max(spread, 1e-6), np.float32)
    inputs = torch.from_numpy((task.features - mean) * scale)
    run = _Run(task, settings, inputs)
    best = (-1.0, run.weights())
    for step in range(1, settings.steps + 1):
        loss = run.step()
        if step % max(1, settings.steps // _JUDGED) == 0 or step == settings.steps:
            found = task.precision(run.vectors())
            if found > best[0]:
                best = (found, run.weights())
            told(step, settings.steps, f"loss {loss:.5f}, P@10 {found:.3f}")
    weights = {"mean": mean, "scale": scale, **best[1]}
    return Fitted(weights, best[0], task.precision(task.features))


class _Run:
    """A tower and a head under way."""

    def __init__(self, task: Task, settings: MlpSettings, inputs: Any) -> None:
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
        """Learn from some pairs, and from all others that these make; returns the mean error."""
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

    def vectors(self) -> Floats:
        """Return the vectors of all columns."""
        import torch

        with torch.inference_mode():
            vectors: Floats = self._tower(self._inputs).numpy()
        return vectors

    def weights(self) -> dict[str, npt.NDArray[Any]]:
        """Copy what the encoder needs."""
        first, second = self._tower[0], self._tower[2]
        arrays = {
            "first": first.weight.T,
            "first_bias": first.bias,
            "second": second.weight.T,
            "second_bias": second.bias,
        }
        return {name: one.detach().numpy().copy() for name, one in arrays.items()}


def _tower(inputs: int, settings: MlpSettings) -> Any:
    """Make a tower that begins with the features as they are, as far as its widths allow."""
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
        # What is positive goes one way, what is negative the other; then both come together.
        first.weight[:half] += torch.eye(half, inputs)
        first.weight[half : 2 * half] -= torch.eye(half, inputs)
        second.weight[:, :half] += torch.eye(settings.dimension, half)
        second.weight[:, half : 2 * half] -= torch.eye(settings.dimension, half)
    return nn.Sequential(first, nn.ReLU(), second, nn.Tanh())
