"""Average models of one base: ``python -m deepjoin.lab.training.average INDEX A=.7 B=.3 -o OUT``.

The average of several runs from one base model can be better than each of them, at the same speed
(Wortsman et al., Model soups, 2022). INDEX provides the texts on which the small form is quantised
and checked. Needs the extra ``train``.
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from deepjoin.embed.columns.encoder import text_settings
from deepjoin.embed.columns.torch_encoder import (
    SETTINGS_FILE,
    TorchEncoder,
    load_model,
    model_description,
    quiet,
)
from deepjoin.errors import DeepJoinError
from deepjoin.lab.onnx_restore import whole_folder
from deepjoin.lab.training.columns import gather
from deepjoin.lab.training.delivery import TEXTS, ship_if_possible
from deepjoin.lake import open_lake
from deepjoin.show.wording import in_options
from deepjoin.store.sketch import FrequencySnapshot, write_frequency

if TYPE_CHECKING:
    from deepjoin.lake import Lake


def average(models: Mapping[Path, float], out: Path) -> Path:
    """Write the weighted mean of the models in some folders."""
    folders, weights = list(models), list(models.values())
    _check(folders, weights)
    loaded = [load_model(str(folder), "cpu").float() for folder in folders]
    structures = [
        model_description(one, one.tokenizer.backend_tokenizer.to_str()) for one in loaded
    ]
    for folder, structure in zip(folders, structures, strict=True):
        if structure != structures[0]:
            raise DeepJoinError(
                f"{folder} is a different model from {folders[0]}: its layers, pooling or "
                "tokenizer differ. Average runs of one base model."
            )
    states = [one.state_dict() for one in loaded]
    shares = [weight / sum(weights) for weight in weights]
    # Integer tensors number positions, and are the same in all models.
    mean = {
        name: sum(share * state[name] for share, state in zip(shares, states, strict=True))
        if tensor.is_floating_point()
        else tensor
        for name, tensor in states[0].items()
    }
    loaded[0].load_state_dict(mean)
    loaded[0].prompts["query"] = text_settings(folders[0] / SETTINGS_FILE).prompt
    with whole_folder(out) as aside, quiet():
        loaded[0].save(str(aside), create_model_card=False)
        shutil.copyfile(folders[0] / SETTINGS_FILE, aside / SETTINGS_FILE)
    return out


def _check(folders: Sequence[Path], weights: Sequence[float]) -> None:
    missing = [folder for folder in folders if not (folder / SETTINGS_FILE).is_file()]
    if missing:
        raise DeepJoinError(
            f"{missing[0]} has no {SETTINGS_FILE}: deepjoin train did not write this folder. "
            "Give folders that it wrote."
        )
    if not all(0 <= weight < math.inf for weight in weights) or sum(weights) == 0:
        raise DeepJoinError("Weights must be >= 0, and one of them > 0. Give MODEL=WEIGHT.")
    # Weights trained on different texts have no meaningful average.
    texts = [text_settings(folder / SETTINGS_FILE) for folder in folders]
    for folder, text in zip(folders, texts, strict=True):
        other = [name for name, one in vars(text).items() if one != getattr(texts[0], name)]
        if other:
            raise DeepJoinError(
                f"{folder} reads other texts than {folders[0]}: {', '.join(other)} differ. Average "
                "models with the same text settings."
            )


def texts_of(lake: Lake, model: Path) -> list[str]:
    """Write columns of a lake as texts, with the text settings of a model."""
    columns = gather(lake, TEXTS, 0)
    # All models read the same texts, so any of them can write these.
    encoder = TorchEncoder(str(model), profile=lake.settings.profile, device="cpu")
    every = [columns.column(number) for number in range(len(columns))]
    with TemporaryDirectory() as work:
        write_frequency(lake.index.segments, Path(work))
        return encoder.texts(every, FrequencySnapshot(Path(work)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Average models, write the small form, and report how far it agrees."""
    parser = argparse.ArgumentParser(
        prog="python -m deepjoin.lab.training.average", description=str(__doc__).replace("``", "")
    )
    parser.add_argument("index", metavar="INDEX", help="an index of similar tables")
    parser.add_argument(
        "models",
        metavar="MODEL=WEIGHT",
        nargs="+",
        help="folders that deepjoin train wrote; one without =WEIGHT counts 1",
    )
    parser.add_argument("-o", "--out", required=True, metavar="OUT", help="a new folder")
    options = parser.parse_args(arguments)
    try:
        models = dict(map(_weighted, options.models))
        if len(models) < len(options.models):
            raise DeepJoinError("A model is given twice. Give each once, with its weight.")
        lake = open_lake(options.index)
        texts = texts_of(lake, next(iter(models)))
        folder = average(models, Path(options.out))
        found = ship_if_possible(folder, folder.name, texts)
    except DeepJoinError as error:
        sys.stderr.write(f"deepjoin: {in_options(str(error))}\n")
        return 1
    sys.stderr.write(f"The small form: {found}{'' if isinstance(found, str) else '.'}\n")
    sys.stdout.write(f"{folder}\n")
    return 0


def _weighted(text: str) -> tuple[Path, float]:
    """Parse MODEL=WEIGHT; a model without a weight counts 1.

    >>> _weighted("runs/a=.3")[1], _weighted("runs/b")[1]
    (0.3, 1.0)
    """
    name, equals, weight = text.rpartition("=")
    if not equals or Path(text).is_dir():
        return Path(text).absolute(), 1.0
    try:
        return Path(name).absolute(), float(weight)
    except ValueError:
        raise DeepJoinError(
            f"'{weight}' in '{text}' is not a number. Give MODEL=WEIGHT, such as runs/a=.3"
        ) from None


if __name__ == "__main__":
    sys.exit(main())
