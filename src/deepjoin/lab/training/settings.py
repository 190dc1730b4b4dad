"""Settings of a training run: the recipe (the paper's, and ours), inputs and resources."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from deepjoin.errors import DeepJoinError

JOINS = ("equi", "semantic")
METRICS = ("cosine", "euclidean")
#: What a column is compared with beside its partner: the other partners of its batch; also its
#: partner without the matching cells (which the paper rejected); also columns that share some
#: cells with it; or these and columns that are among the nearest by the model so far.
NEGATIVES = ("batch", "removed", "hard", "nearest")
#: What the encoder learns: which column is the partner, or how joinable each column is.
TARGETS = ("partner", "joinability")


@dataclass(frozen=True)
class TrainSettings:
    """The recipe of a training run.

    >>> TrainSettings(join="semantic", batch=512).threshold
    0.7
    """

    join: str = "equi"
    #: Least joinability of a positive pair, and least cosine of matching cells.
    threshold: float = 0.7
    tau: float | None = None
    #: Most columns taken from the lake, and most pairs of one column.
    columns: int = 100_000
    pairs: int = 50
    #: The paper's shuffle rate r: r / (1 + r) of all positives are shuffled copies.
    shuffle: float = 0.3
    #: Pairs of crops of one column, for each mined pair.
    crops: float = 3.0
    #: How often a column is shown without its name and title.
    nameless: float = 0.2
    #: How often a cell gets another spelling, where other spellings are known.
    respelled: float = 0.2
    negatives: str = "hard"
    target: str = "joinability"
    #: The target is joinability to this power: above 1, better partners count more.
    power: float = 2.0
    #: The share of the loss whose target is joinability itself, whatever the power.
    plain: float = 0.0
    #: Whether columns known to be joinable are excluded from the negatives.
    masked: bool = True
    #: Whether the partner must also find its column in the batch.
    symmetric: bool = False
    #: Prefix of the text of a query column, which distinguishes it from searched columns.
    prompt: str = "query "
    metric: str = "cosine"
    scale: float = 20.0
    batch: int = 1024
    learning_rate: float = 5e-4
    #: Steps until the learning rate is reached; None for a tenth of all. On a lake that gives
    #: fewer steps than the paper's, the paper's recipe takes the same share of them instead.
    warmup: int | None = None
    weight_decay: float = 0.01
    #: Dropout in training; None for that of the base model.
    dropout: float | None = 0.0
    epochs: int = 5
    #: Most steps; None for no limit.
    steps: int | None = None
    #: Steps between validations, and validations without improvement before training stops.
    validate: int = 200
    patience: int = 5
    #: Layers kept of the base model; None for all.
    layers: int | None = None
    seed: int = 0
    #: "paper" also fixes what is not a number: the base must be named, and texts are the paper's.
    recipe: str = "default"

    def __post_init__(self) -> None:
        for name, known in (
            ("join", JOINS),
            ("metric", METRICS),
            ("negatives", NEGATIVES),
            ("target", TARGETS),
            ("recipe", ("default", "paper")),
        ):
            if getattr(self, name) not in known:
                raise DeepJoinError(
                    f"{name} is '{getattr(self, name)}'; it must be one of {', '.join(known)}."
                )
        if (self.join, self.negatives) == ("semantic", "removed"):
            raise DeepJoinError(
                "negatives is 'removed', which takes out equal cells, and join is semantic. Give "
                "negatives batch or hard."
            )
        check_ranges(self)


def check_ranges(settings: object, **others: tuple[float, float]) -> None:
    """Refuse settings with a number outside its range; ``others`` adds or replaces ranges."""
    for name, (least, most) in (_RANGES | others).items():
        given = getattr(settings, name, None)
        if given is not None and not least <= given <= most:
            raise DeepJoinError(f"{name} is {given:g}; it must be from {least:g} to {most:g}.")


@dataclass(frozen=True)
class TrainInputs:
    """How columns and cells become input of the encoder."""

    #: Pattern and most tokens of the text of a column; None for those of the base model.
    pattern: str | None = None
    tokens: int | None = None
    #: Cell encoder of semantic joins, as for `deepjoin.index`; None for the default.
    cells: str | None = None
    #: A Parquet file of other spellings, columns ``surface`` and ``entity``.
    aliases: str | os.PathLike[str] | None = None
    #: Which cells of a tall column, and what statistics count; None for those of the base model.
    sampling: str | None = None
    unit: str | None = None

    def text(self) -> dict[str, Any]:
        """Return the fields of `TextSettings` that were given."""
        given = {name: getattr(self, name) for name in ("pattern", "tokens", "sampling", "unit")}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class TrainResources:
    """What a training run may use."""

    #: "cpu" or "cuda"; None for a GPU if there is one.
    device: str | None = None
    #: Processes that make batches; None to choose.
    workers: int | None = None
    #: What reads the tables and mines the pairs, as for `deepjoin.index`; the pairs are the same.
    engine: str | None = None
    ray_address: str | None = None


_MANY = 10**9
#: Least and most value of each setting; the recipe of the MLP has some of them too.
_RANGES: dict[str, tuple[float, float]] = {
    "threshold": (0.01, 1),
    "tau": (0, 1),
    "columns": (4, _MANY),
    "pairs": (1, _MANY),
    "shuffle": (0, 1),
    "crops": (0, 100),
    "nameless": (0, 1),
    "respelled": (0, 1),
    "power": (0.01, 100),
    "plain": (0, 1),
    "scale": (0.01, 1000),
    "batch": (2, 1 << 16),
    "learning_rate": (1e-9, 1),
    "warmup": (0, _MANY),
    "weight_decay": (0, 1),
    "dropout": (0, 0.9),
    "epochs": (1, 10_000),
    "steps": (1, _MANY),
    "validate": (1, _MANY),
    "patience": (1, _MANY),
    "layers": (1, 1000),
    "seed": (0, _MANY),
}

#: The paper's texts: its best pattern, the cells found in most columns, and as many tokens as its
#: models read, special ones included; fewer if the base reads fewer.
PAPER_TEXT: Mapping[str, str] = {
    "pattern": "title-colname-stat-col",
    "sampling": "frequency",
    "unit": "characters",
}
PAPER_TOKENS = 512
#: Steps of five epochs over the paper's 490,000 pairs of Wikitable with a shuffle rate of .3, in
#: batches of 32. Its warm-up of 10,000 steps is a tenth of them.
_PAPER_STEPS = 5 * 490_000 * 1.3 / 32
#: The paper's best shuffle rates (section 5.3).
_PAPER_SHUFFLE = {"equi": 0.3, "semantic": 0.2}

#: The paper's recipe; `docs/decisions` says how we read what it leaves open.
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
    masked=False,
    recipe="paper",
)
PRESETS: Mapping[str, TrainSettings] = {"default": TrainSettings(), "paper": PAPER}


def preset(name: str, **given: Any) -> TrainSettings:
    """Return a preset with the given fields replaced; None leaves a field as it is.

    >>> preset("paper", batch=64, seed=None).batch
    64
    """
    if name not in PRESETS:
        raise DeepJoinError(f"preset is '{name}'; it must be one of {', '.join(PRESETS)}.")
    unknown = sorted(given.keys() - TrainSettings.__dataclass_fields__.keys())
    if unknown:
        raise DeepJoinError(
            f"There is no setting '{unknown[0]}'. Settings: "
            f"{', '.join(TrainSettings.__dataclass_fields__)}."
        )
    given = {key: one for key, one in given.items() if one is not None}
    if name == "paper" and given.get("join") in _PAPER_SHUFFLE:
        given.setdefault("shuffle", _PAPER_SHUFFLE[given["join"]])
    return replace(PRESETS[name], **given)


def warmup_steps(settings: TrainSettings, steps: int) -> int:
    """Return the steps until the learning rate is reached, for a run of this length.

    The paper's 10,000 are kept where a run has as many steps as the paper's; a shorter run takes
    the same share, so that the learning rate is reached.

    >>> warmup_steps(PAPER, 200_000), warmup_steps(PAPER, 6_000), warmup_steps(TrainSettings(), 50)
    (10000, 603, 5)
    """
    if settings.warmup is None:
        return steps // 10
    if settings.recipe == "paper" and settings.warmup == PAPER.warmup:
        return min(settings.warmup, round(steps * settings.warmup / _PAPER_STEPS))
    return settings.warmup
