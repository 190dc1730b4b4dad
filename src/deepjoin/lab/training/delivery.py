"""From a fitted model to all that belongs to it: both forms, the report and the card."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepjoin._version import __version__
from deepjoin.embed.columns import DEFAULT
from deepjoin.embed.columns.export import read_json
from deepjoin.errors import DeepJoinError, MissingExtra
from deepjoin.lab.training.card import CardFacts, Figure, write_card
from deepjoin.lab.training.prepare import Prepared
from deepjoin.lab.training.report import REPORT_FILE, write_report
from deepjoin.lab.training.shipping import Agreement, ship

if TYPE_CHECKING:
    from deepjoin.lab.training.fit import Fitted

#: The small form beside the model, which needs no torch.
SHIPPED = "shipped"
#: The file without which a folder is no model.
LAST = "modules.json"
#: Texts of columns that the small form is rounded for and compared on.
TEXTS = 2400


@dataclass(frozen=True)
class Trained:
    """A trained encoder: its folder, how well it finds held-back columns, and its small form."""

    folder: Path
    #: Of the columns that join best with a held-back one, the share among its ten nearest: by
    #: the best model, and before training; of so many queries.
    precision: float
    before: float
    queries: int
    #: None if the model has no small form; ``why`` says why.
    agreement: Agreement | None
    why: str = ""

    @classmethod
    def read(cls, model: Path, folder: Path) -> Trained:
        """Read what a report says, of a model that will be in a folder."""
        said = json.loads((model / REPORT_FILE).read_bytes())
        form = said["small_form"]
        agreement = Agreement(**form) if isinstance(form, dict) else None
        why = "" if agreement else str(form)
        return cls(folder, said["precision"], said["before"], said["queries"], agreement, why)


def deliver(fitted: Fitted, prepared: Prepared, name: str, command: str) -> None:
    """Write the model in both forms, its report and its card, where the run keeps them."""
    from deepjoin.lab.training.fit import save

    model = prepared.model
    shutil.rmtree(model, ignore_errors=True)
    save(fitted, model)
    form = _shipped(fitted, model, name)
    said = {"asked": prepared.asked(), **prepared.said()}
    write_report(model, _header(said, fitted, form), fitted.events)
    write_card(model, _facts(said, fitted, form, name, command))


def _shipped(fitted: Fitted, model: Path, name: str) -> Agreement | str:
    """Write the small form, where a model can have one; else say why it has none."""
    try:
        return ship(model, model / SHIPPED, name, fitted.sample(TEXTS))
    except MissingExtra:
        raise
    except DeepJoinError as error:
        if "No space left" in str(error):
            raise
        return str(error)


def _header(said: Mapping[str, Any], fitted: Fitted, form: Agreement | str) -> dict[str, Any]:
    return {
        "version": __version__,
        **said["asked"],
        **{key: said[key] for key in ("text", "columns", "held_back", "pairs")},
        "precision": fitted.precision,
        "before": fitted.before,
        "queries": fitted.queries,
        "seconds": round(fitted.seconds, 1),
        "device": fitted.device,
        "device_memory_bytes": fitted.memory,
        "small_form": form if isinstance(form, str) else asdict(form),
    }


def _base(spec: str) -> str:
    """Name the model a run began with."""
    return str(read_json(DEFAULT / "encoder.json")["name"]) if spec == "default" else spec


def _facts(
    said: Mapping[str, Any], fitted: Fitted, form: Agreement | str, name: str, command: str
) -> CardFacts:
    asked, text = said["asked"], said["text"]
    queries = f"{fitted.queries} queries"
    measured = [
        Figure("P@10 of held-back columns, tie-aware", fitted.precision, queries),
        Figure("the same before training", fitted.before, queries),
    ]
    if not fitted.queries:
        measured = []
    return CardFacts(
        name=name,
        license="other",
        base_model=_base(asked["base"]),
        data=f"{said['columns']:,} columns of {asked['source']}, {said['pairs']:,} joinable pairs",
        data_license="that of the tables",
        settings={**text, **asked["settings"]},
        figures=[*measured, Figure("the small form", str(form))],
        command=command or "deepjoin.train",
        example=fitted.sample(1)[0],
        tokens=text["tokens"],
        metric=asked["settings"]["metric"],
        model=name,
        encoder=name if isinstance(form, str) else f"{name}/{SHIPPED}",
    )
