"""Average models of one base: ``python -m deepjoin.training.average INDEX A=.7 B=.3 -o OUT``.

Runs of one base model that differ in their settings are better together than any of them alone,
and take no longer to encode with (Wortsman et al., Model soups, 2022). INDEX gives the texts that
the small form is rounded for and compared on. Needs the extra ``train``.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepjoin.column_vectors import FrequencySnapshot, write_frequency
from deepjoin.encoders.restore import whole_folder
from deepjoin.encoders.text_encoder import text_settings
from deepjoin.encoders.torch_encoder import SETTINGS_FILE, TorchEncoder, load_model, quiet
from deepjoin.errors import DeepJoinError
from deepjoin.lake.indexing import open_lake
from deepjoin.training.delivery import SHIPPED, TEXTS
from deepjoin.training.gather import gather
from deepjoin.training.shipping import Agreement, ship

if TYPE_CHECKING:
    from deepjoin.lake.lake import Lake

#: The tensors of a model by name.
State = Mapping[str, Any]


def average(models: Mapping[str, float], out: str | Path) -> Path:
    """Write the model whose weights are the weighted mean of those of some folders."""
    folders = list(map(Path, models))
    _check(folders, list(models.values()))
    loaded = [load_model(str(folder), "cpu").float() for folder in folders]
    mean = _mean([model.state_dict() for model in loaded], list(models.values()))
    if mean is None:
        raise DeepJoinError(
            f"The models {', '.join(map(str, folders))} have different weights. Average runs of "
            "one base model with as many layers."
        )
    loaded[0].load_state_dict(mean)
    with whole_folder(Path(out)) as aside, quiet():
        loaded[0].save(str(aside), create_model_card=False)
        shutil.copyfile(folders[0] / SETTINGS_FILE, aside / SETTINGS_FILE)
    return Path(out)


def _mean(states: Sequence[State], weights: Sequence[float]) -> State | None:
    """Average tensors of the same names and shapes; None if they are not the same."""
    shapes = [{name: tensor.shape for name, tensor in state.items()} for state in states]
    if any(other != shapes[0] for other in shapes):
        return None
    parts = [
        {name: tensor * (weight / sum(weights)) for name, tensor in state.items()}
        for state, weight in zip(states, weights, strict=True)
    ]
    whole = {name for name, tensor in states[0].items() if not tensor.is_floating_point()}
    return {
        name: states[0][name] if name in whole else sum(part[name] for part in parts)
        for name in states[0]
    }


def _check(folders: Sequence[Path], weights: Sequence[float]) -> None:
    missing = [folder for folder in folders if not (folder / SETTINGS_FILE).is_file()]
    if missing:
        raise DeepJoinError(
            f"{missing[0]} has no {SETTINGS_FILE}: it is no folder that deepjoin train wrote. "
            "Give such folders."
        )
    if min(weights) < 0 or sum(weights) <= 0:
        raise DeepJoinError("Weights are 0 or more, and one of them is more. Give MODEL=WEIGHT.")
    texts = {folder: text_settings(folder / SETTINGS_FILE) for folder in folders}
    for folder, text in texts.items():
        if text != texts[folders[0]]:
            raise DeepJoinError(
                f"{folder} reads other texts than {folders[0]}: {text} and {texts[folders[0]]}. "
                "Average models that read the same."
            )


def ship_average(folder: Path, lake: Lake, work: Path) -> Agreement:
    """Write the small form of a model, rounded for columns of a lake."""
    columns = gather(lake, TEXTS, 0)
    write_frequency(lake.segments, work)
    model = TorchEncoder(str(folder), profile=lake.settings.profile, device="cpu")
    every = [columns.column(number) for number in range(len(columns))]
    texts = model.texts(every, FrequencySnapshot(work))
    return ship(folder, folder / SHIPPED, folder.name, texts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Average, write the small form, and say how far it agrees."""
    from tempfile import TemporaryDirectory

    options = _parser().parse_args(arguments)
    try:
        lake = open_lake(options.index)
        folder = average(dict(map(_weighted, options.models)), options.out)
        with TemporaryDirectory() as work:
            found = ship_average(folder, lake, Path(work))
    except DeepJoinError as error:
        sys.stderr.write(f"deepjoin: {error}\n")
        return 1
    sys.stderr.write(f"The small form: {found}.\n")
    sys.stdout.write(f"{folder}\n")
    return 0


def _weighted(text: str) -> tuple[str, float]:
    """Read MODEL=WEIGHT; a model alone counts 1.

    >>> _weighted("runs/a=.3"), _weighted("runs/b")
    (('runs/a', 0.3), ('runs/b', 1.0))
    """
    name, equals, weight = text.rpartition("=")
    if not equals:
        return text, 1.0
    try:
        return name, float(weight)
    except ValueError:
        raise DeepJoinError(
            f"'{weight}' in '{text}' is no number. Give MODEL=WEIGHT, such as runs/a=.3"
        ) from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m deepjoin.training.average", description=__doc__
    )
    parser.add_argument("index", metavar="INDEX", help="an index of tables like those trained on")
    parser.add_argument("models", metavar="MODEL=WEIGHT", nargs="+")
    parser.add_argument("-o", "--out", required=True, metavar="OUT", help="a new folder")
    return parser


if __name__ == "__main__":
    sys.exit(main())
