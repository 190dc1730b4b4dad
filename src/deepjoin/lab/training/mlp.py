"""Train the paper's MLP: ``python -m deepjoin.lab.training.mlp INDEX -o FOLDER``.

Two columns go through one tower, and a head on both vectors foretells their joinability; the
encoder is the tower alone. Needs the extra ``train``; the encoder needs numpy.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deepjoin.embed.cells import CellEncoder, load_cell_encoder
from deepjoin.errors import DeepJoinError, MissingExtra
from deepjoin.indexing import open_lake
from deepjoin.lab.encoders.mlp import SAID, Tower, write_mlp
from deepjoin.lab.training.columns import Int, TrainingColumns
from deepjoin.lab.training.gather import gather
from deepjoin.lab.training.joined import Joinability
from deepjoin.lab.training.mlp_fit import Floats, MlpSettings, Task, fit
from deepjoin.lab.training.near import near_values, value_vectors
from deepjoin.lab.training.self_join import Pairs, Told, equi_pairs, incidence, unheard
from deepjoin.lab.training.semantic_pairs import semantic_pairs
from deepjoin.lab.training.validation import Validation, searched, split

if TYPE_CHECKING:
    from deepjoin.lake import Lake


@dataclass(frozen=True)
class TrainedMlp:
    """A trained MLP: its folder, and P@10 of held-back columns by it and by the plain means."""

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
    progress: Told = unheard,
) -> TrainedMlp:
    """Train on the columns of a lake and write the encoder to a new folder.

    ``cells`` gives cells their vectors, as for `deepjoin.index`: the paper has fastText's.
    """
    settings = settings or MlpSettings()
    _check_installed()
    folder = _folder(Path(out))
    encoder = load_cell_encoder(cells)
    columns = gather(lake, settings.columns, settings.seed)
    task = make_task(columns, encoder, lake.settings.profile, settings, progress)
    fitted = fit(task, settings, progress)
    queries = len(task.validation.queries)
    said = {
        "settings": asdict(settings),
        "columns": len(columns),
        "pairs": len(task.pairs),
        "precision": fitted.precision,
        "before": fitted.before,
        "queries": queries,
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_mlp(folder, Tower(fitted.weights), cells, encoder.digest, said)
    return TrainedMlp(folder, fitted.precision, fitted.before, queries)


def make_task(
    columns: TrainingColumns,
    encoder: CellEncoder,
    profile: str,
    settings: MlpSettings,
    told: Told = unheard,
) -> Task:
    """Mine pairs of columns, hold some columns back, and average the cells of all."""
    training, held = split(columns, settings.seed)
    vectors = value_vectors(columns, encoder, profile)
    near = None
    if settings.join == "semantic":
        near = near_values(vectors, encoder.floor, encoder.tau, told=told)
    pairs = _pairs(columns.take(training), near, settings, told)
    pairs = Pairs(training[pairs.x], training[pairs.y], pairs.joinability)
    joinability = Joinability(len(vectors), near)

    def joined(x: Int, y: Int) -> Floats:
        sets = ([columns.values[columns.places(one)] for one in some] for some in (x, y))
        return joinability(*sets)

    places = searched(training, held, settings.seed)
    validation = Validation.of(columns.take(places), len(held), joinability, settings.seed)
    return Task(column_means(columns, vectors), pairs, joined, validation, places)


def _pairs(columns: TrainingColumns, near: Any, settings: MlpSettings, told: Told) -> Pairs:
    asked = (settings.threshold, settings.pairs, settings.seed, told)
    if near is None:
        return equi_pairs(columns, *asked)
    return semantic_pairs(columns, near, *asked)


def column_means(columns: TrainingColumns, vectors: Floats) -> Floats:
    """Average the vectors of the values of each column, as the encoder does."""
    cells = incidence(columns)
    known = cells @ vectors.any(axis=1).astype(np.int64)
    means: Floats = ((cells @ vectors) / np.maximum(known, 1)[:, None]).astype(np.float32)
    return means


def _check_installed() -> None:
    for name in ("torch", "scipy"):
        if find_spec(name) is None:
            raise MissingExtra(f"Training needs {name}: pip install 'deepjoin[train]'.")


def _folder(folder: Path) -> Path:
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        holds = "already holds an MLP" if (folder / SAID).is_file() else "holds other files"
        raise DeepJoinError(f"{folder} {holds}. Give a new folder.")
    return folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Train on an index and say how well held-back columns are found."""
    options = vars(_parser().parse_args(arguments))
    source, out, cells = (options.pop(name) for name in ("index", "out", "cells"))
    try:
        settings = MlpSettings(**options)
        found = train_mlp(open_lake(source), out, cells=cells, settings=settings, progress=_say)
    except DeepJoinError as error:
        sys.stderr.write(f"deepjoin: {error}\n")
        return 1
    sys.stderr.write(
        f"P@10 of held-back columns: {found.precision:.3f}, by the means of cells "
        f"{found.before:.3f} ({found.queries:,} queries).\n"
    )
    sys.stdout.write(f"{found.folder}\n")
    return 0


def _say(done: int, total: int, text: str) -> None:
    if text.startswith("loss") or done == total:
        sys.stderr.write(f"  {done:,} of {total:,}  {text}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m deepjoin.lab.training.mlp", description=__doc__
    )
    parser.add_argument("index", metavar="INDEX", help="an index of tables to learn from")
    parser.add_argument("-o", "--out", required=True, metavar="FOLDER")
    parser.add_argument(
        "--cells", default="default", help="fastText .vec or .bin, or a folder of a table"
    )
    for field in fields(MlpSettings):
        option = f"--{field.name.replace('_', '-')}"
        parser.add_argument(option, type=type(field.default), default=field.default)
    return parser


if __name__ == "__main__":
    sys.exit(main())
