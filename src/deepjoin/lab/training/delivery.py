"""From a fitted model to its folder: the model, its small ONNX form, the report and the card."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deepjoin._version import __version__
from deepjoin.arrays import Float
from deepjoin.embed.columns import DEFAULT
from deepjoin.embed.columns.onnx_encoder import OnnxEncoder
from deepjoin.embed.columns.torch_encoder import TorchEncoder
from deepjoin.errors import DeepJoinError, MissingExtra
from deepjoin.lab.evaluation.metrics import SEED, PairedDifference, interval
from deepjoin.lab.onnx_export import TEXTS as CALIBRATED
from deepjoin.lab.onnx_export import export_encoder, read_json
from deepjoin.lab.onnx_restore import whole_folder
from deepjoin.lab.training.prepare import Prepared
from deepjoin.lab.training.report import CardFacts, write_card, write_report

if TYPE_CHECKING:
    from deepjoin.lab.training.fit import FittedEncoder

AGREEMENT_FILE = "agreement.json"
K = 10
#: Share of the ten nearest texts that must be the same.
_LEAST = 0.95
#: Fewest texts: half are compared, and among fewer than 30 the ten nearest say little.
_FEWEST = 60
#: Most texts compared.
_COMPARED = 2000
#: Smaller differences of cosines are rounding.
_EQUAL = 1e-6
#: With fewer queries, a card warns of its figures.
_FEW_QUERIES = 100
#: The folder of the small form, which needs no torch, inside that of the model.
SHIPPED = "shipped"
#: The file that makes a folder a model; written last.
LAST = "modules.json"
#: Texts of columns used to quantise the small form and to check it.
TEXTS = 2400


@dataclass(frozen=True)
class Agreement:
    """How close the vectors of the small form are to those of the model, on texts new to both.

    ``top_10`` is the share of each text's ten nearest by the small form that are also among its
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
    model_folder: str | Path, target: str | Path, name: str, texts: Sequence[str]
) -> Agreement:
    """Export a model, quantised on some of the texts it was trained on, and check it on others.

    A small form that finds other columns than the model is refused and leaves no folder.
    """
    calibration, held_out = halves(texts)
    model = TorchEncoder(model_folder)
    with whole_folder(Path(target)) as aside:
        export_encoder(model_folder, aside, name, calibration)
        found = agreement(model.encode_texts(held_out), OnnxEncoder(aside).encode_texts(held_out))
        if found.top_10 < _LEAST:
            raise DeepJoinError(
                f"The small form of '{name}' finds other columns than the model: {found}; of the "
                f"ten nearest {_LEAST:.0%} should be the same. Use the model itself, with "
                "deepjoin[train] installed."
            )
        (aside / AGREEMENT_FILE).write_text(json.dumps(asdict(found), indent=2) + "\n", "utf-8")
    return found


def ship_if_possible(model: Path, name: str, texts: Sequence[str]) -> Agreement | str:
    """Write the small form into the folder of a model, or return why it has none."""
    try:
        return ship(model, model / SHIPPED, name, texts)
    except MissingExtra:
        raise
    except DeepJoinError as error:
        # Not every model has a small form; a full disk says nothing about the model.
        if "No space left" in str(error):
            raise
        return str(error)


def halves(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split texts, deterministically, into those to quantise on and those to check on."""
    different = list(dict.fromkeys(texts))
    if len(different) < _FEWEST:
        raise DeepJoinError(
            f"There are {len(different)} different columns to check the small form with; "
            f"{_FEWEST} are needed. Train on a larger lake."
        )
    random.Random(0).shuffle(different)
    taken = min(CALIBRATED, len(different) // 2)
    return different[:taken], different[taken : taken + _COMPARED]


def agreement(model: Float, shipped: Float) -> Agreement:
    """Compare the vectors that two encoders give the same texts."""
    (model, near), (shipped, also_near) = _cosines(model), _cosines(shipped)
    cosines = (model * shipped).sum(axis=1)
    # Every text searches among the others; of equally near ones any will do.
    least = np.partition(near, -K, axis=1)[:, -K:][:, :1]
    found = np.argpartition(also_near, -K, axis=1)[:, -K:]
    same = float((np.take_along_axis(near, found, axis=1) >= least - _EQUAL).mean())
    return Agreement(len(model), float(cosines.mean()), float(cosines.min()), same)


def _cosines(vectors: Float) -> tuple[Float, Float]:
    """Return unit vectors, and the cosines of all pairs of different ones."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units: Float = (vectors / np.where(lengths == 0, 1, lengths)).astype(np.float32)
    near: Float = units @ units.T
    np.fill_diagonal(near, -np.inf)
    return units, near


@dataclass(frozen=True)
class TrainedEncoder:
    """A trained encoder: its folder, its precision on held-back columns, and its small form."""

    folder: Path
    #: P@10 on held-back columns, tie-aware: after training and before; number of queries.
    precision: float
    before: float
    queries: int
    #: None if the model has no small form; ``why`` is the reason.
    agreement: Agreement | None
    why: str = ""
    #: The difference of both over the queries, with its 95% interval; None without queries.
    gain: PairedDifference | None = None


def deliver(
    fitted: FittedEncoder, prepared: Prepared, folder: Path, command: str
) -> TrainedEncoder:
    """Write the model in both forms, its report and its card into the folder of the run.

    ``folder`` is where the caller moves them when they are complete.
    """
    from deepjoin.lab.training.fit import save

    model, name = prepared.model, folder.name
    shutil.rmtree(model, ignore_errors=True)
    save(fitted, model, prepared.facts()["truth"])
    form = ship_if_possible(model, name, fitted.sample(TEXTS))
    request, facts = prepared.request() or {}, prepared.facts()
    header = {
        "version": __version__,
        **request,
        **{key: facts[key] for key in ("text", "truth", "columns", "held_back", "pairs")},
        "precision": fitted.precision,
        "before": fitted.before,
        "queries": fitted.queries,
        "interval": interval(fitted.shares, SEED),
        "gain": None if fitted.gain is None else asdict(fitted.gain),
        "per_query": [round(share, 4) for share in fitted.shares],
        "steps": fitted.steps,
        "warmup_steps": fitted.warmup,
        "seconds": round(fitted.seconds, 1),
        "device": fitted.device,
        "device_memory_bytes": fitted.memory,
        "small_form": form if isinstance(form, str) else asdict(form),
    }
    write_report(model, header, fitted.events)
    write_card(model, _card_facts(header, fitted, form, name, command))
    agreed, why = (None, form) if isinstance(form, str) else (form, "")
    measured = (folder, fitted.precision, fitted.before, fitted.queries)
    return TrainedEncoder(*measured, agreed, why, fitted.gain)


def _card_facts(
    header: Mapping[str, Any], fitted: FittedEncoder, form: Agreement | str, name: str, command: str
) -> CardFacts:
    base, text, settings = header["base"], header["text"], header["settings"]
    queries = f"{fitted.queries} queries"
    low, high = header["interval"]
    between = f"{queries}; 95% interval {low:.3f} to {high:.3f}" if fitted.queries else queries
    measured: list[tuple[str, float | str, str]] = [
        ("P@10 of held-back columns, tie-aware", fitted.precision, between),
        ("the same before training", fitted.before, queries),
    ]
    if fitted.gain is not None:
        verdict = "" if fitted.gain.sign else "; within noise: the interval contains 0"
        bounds = f"95% interval {fitted.gain.low:+.3f} to {fitted.gain.high:+.3f}{verdict}"
        measured.append(("gain, query by query", f"{fitted.gain.mean:+.3f}", bounds))
    reached = f"{fitted.warmup:,} of {fitted.steps:,} planned steps"
    return CardFacts(
        name=name,
        base_model=read_json(DEFAULT / "encoder.json")["name"] if base == "default" else base,
        data=f"{header['columns']:,} columns of {header['source']}, "
        f"{header['pairs']:,} joinable pairs",
        settings={**text, **settings, "warm-up": reached},
        figures=[*(measured if fitted.queries else ()), ("the small form", str(form), "")],
        command=command or "deepjoin.train",
        example=fitted.sample(1)[0],
        tokens=text["tokens"],
        metric=settings["metric"],
        encoder=name if isinstance(form, str) else f"{name}/{SHIPPED}",
        prompt=text["prompt"],
        limits=_limits(header, fitted),
    )


def _limits(header: Mapping[str, Any], fitted: FittedEncoder) -> list[str]:
    """Say what the figures do not show."""
    text, truth = header["text"], header["truth"]
    limits = [
        f"A column is read up to {text['tokens']} tokens; cells beyond are chosen by "
        f"{text['sampling']} or not seen.",
        f"The figures are of {header['held_back']:,} columns held back from the same tables' "
        "source; other lakes may differ.",
        "Vectors rank columns and verify nothing; the methods deepjoin-exact and hybrid verify.",
    ]
    if truth["join"] == "semantic":
        cells = f"{truth['cells']} ({truth['cells_digest']})"
        limits.append(f"Values match by {cells} at a cosine of {truth['tau']:g} or more.")
    if fitted.queries and fitted.queries < _FEW_QUERIES:
        limits.append(f"{fitted.queries} queries are few: intervals are wide.")
    return limits
