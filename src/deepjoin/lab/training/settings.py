"""How a column encoder is trained: the paper's recipe, and ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from deepjoin.errors import DeepJoinError

JOINS = ("equi", "semantic")
METRICS = ("cosine", "euclidean")
#: What a column is compared with beside its own partner: the partners of the others in its batch,
#: the same without the cells that match (which the paper rejected), or also columns that share
#: some cells with it.
NEGATIVES = ("batch", "removed", "hard")
#: What the encoder learns: which column is the partner, or how joinable each one is.
TARGETS = ("partner", "joinability")


@dataclass(frozen=True)
class TrainSettings:
    """Every choice of a training run."""

    join: str = "equi"
    #: Least joinability of a positive pair, and least cosine of matching cells.
    threshold: float = 0.7
    tau: float | None = None
    #: Columns taken from the lake, and pairs taken of one column, at most.
    columns: int = 100_000
    pairs: int = 50
    #: The paper's shuffle rate: of all positives r / (1 + r) are shuffled copies.
    shuffle: float = 0.3
    #: Pairs of parts of one column, for each mined pair.
    crops: float = 3.0
    #: How often a column is shown without its name and title.
    nameless: float = 0.2
    #: How often a cell is spelled otherwise, where other spellings are known.
    respelled: float = 0.2
    negatives: str = "hard"
    target: str = "joinability"
    #: How much more a column counts that is twice as joinable: joinability to this power.
    power: float = 2.0
    #: Whether columns known to be joinable are kept from counting as negatives.
    masked: bool = True
    #: Whether the partner, too, must find its column among those of the batch.
    symmetric: bool = False
    #: What stands before the text of a column that is searched with, to tell it from the others.
    prompt: str = "query "
    metric: str = "cosine"
    scale: float = 20.0
    batch: int = 1024
    learning_rate: float = 5e-4
    #: Steps until the learning rate is reached; a tenth of all, if not given.
    warmup: int | None = None
    weight_decay: float = 0.01
    #: Share of the activations left out while learning; the base model's own, if not given.
    dropout: float | None = 0.0
    epochs: int = 5
    #: Ends earlier after so many steps, if given.
    steps: int | None = None
    #: Steps between validations, and validations without a better one until training stops.
    validate: int = 200
    patience: int = 5
    #: Layers kept of the base model; all, if not given.
    layers: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, known in (
            ("join", JOINS),
            ("metric", METRICS),
            ("negatives", NEGATIVES),
            ("target", TARGETS),
        ):
            if getattr(self, name) not in known:
                raise DeepJoinError(
                    f"{name} is '{getattr(self, name)}'; it is one of {', '.join(known)}."
                )
        if (self.join, self.negatives) == ("semantic", "removed"):
            raise DeepJoinError(
                "negatives is 'removed', which takes out equal cells, and join is semantic. Give "
                "negatives batch or hard."
            )
        for name, least, most in _RANGES:
            given = getattr(self, name)
            if given is not None and not least <= given <= most:
                raise DeepJoinError(f"{name} is {given:g}; it is from {least:g} to {most:g}.")


_MANY = 10**9
_RANGES: tuple[tuple[str, float, float], ...] = (
    ("threshold", 0.01, 1),
    ("tau", 0, 1),
    ("columns", 4, _MANY),
    ("pairs", 1, _MANY),
    ("shuffle", 0, 1),
    ("crops", 0, 100),
    ("nameless", 0, 1),
    ("respelled", 0, 1),
    ("power", 0.01, 100),
    ("scale", 0.01, 1000),
    ("batch", 2, 1 << 16),
    ("learning_rate", 1e-9, 1),
    ("warmup", 0, _MANY),
    ("weight_decay", 0, 1),
    ("dropout", 0, 0.9),
    ("epochs", 1, 10_000),
    ("steps", 1, _MANY),
    ("validate", 1, _MANY),
    ("patience", 1, _MANY),
    ("layers", 1, 1000),
    ("seed", 0, _MANY),
)

#: The paper's recipe, with what it leaves open read as `docs/decisions` says.
PAPER = TrainSettings(
    columns=30_000,
    pairs=_MANY,
    shuffle=0.3,
    crops=0,
    nameless=0,
    respelled=0,
    negatives="batch",
    target="partner",
    prompt="",
    batch=32,
    learning_rate=2e-5,
    warmup=10_000,
    dropout=None,
    validate=500,
)
PRESETS: Mapping[str, TrainSettings] = {"default": TrainSettings(), "paper": PAPER}


def preset(name: str, **given: Any) -> TrainSettings:
    """Take a preset, and change what is given and not None.

    >>> preset("paper", batch=64, seed=None).batch
    64
    """
    if name not in PRESETS:
        raise DeepJoinError(f"preset is '{name}'; it is one of {', '.join(PRESETS)}.")
    unknown = sorted(given.keys() - TrainSettings.__dataclass_fields__.keys())
    if unknown:
        raise DeepJoinError(
            f"There is no setting '{unknown[0]}'. Settings: "
            f"{', '.join(TrainSettings.__dataclass_fields__)}."
        )
    return replace(PRESETS[name], **{key: one for key, one in given.items() if one is not None})
