"""Folders of published table models: what they say, their tensors, the words they read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from deepjoin.embed.columns.base import ColumnEncoder
from deepjoin.embed.columns.reasons import reason
from deepjoin.embed.columns.text import SAMPLINGS, no_frequency
from deepjoin.embed.devices import device_named
from deepjoin.errors import DeepJoinError, MissingExtra
from deepjoin.model import Column
from deepjoin.normalise.canonical import CellType, canonical_array, cell_types
from deepjoin.normalise.distinct import distinct_cells

#: Letters of a text beyond which no limit of these models reaches.
_LETTERS = 1 << 14
#: The vocabulary of all published table models.
_USUAL_BASE = "bert-base-uncased"
_SMALL = Column(["a", "b", "c", "d"], name="a", title="a " * 64)


class Layout(NamedTuple):
    """What the files of a published checkpoint are called; the first weights that are there."""

    title: str
    config: str
    weights: tuple[str, ...]

    def refused(self, folder: Path, why: str) -> DeepJoinError:
        """Build the error for a folder that is none of these."""
        return DeepJoinError(
            f"'{folder}' is no {self.title} checkpoint: {why.rstrip('.')}. Give a folder as "
            f"published, with {self.config}, {self.weights[-1]} and vocab.txt."
        )


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as it lies on disk."""

    folder: Path
    layout: Layout
    said: dict[str, Any]
    tensors: Mapping[str, Any]
    words: Words

    @classmethod
    def read(cls, where: str, layout: Layout) -> Checkpoint:
        """Read a folder; weights are never unpickled into anything but tensors."""
        folder = Path(where)
        if not folder.is_dir():
            raise layout.refused(folder, "there is no such folder")
        said = _said(folder, layout)
        return cls(folder, layout, said, _tensors(folder, layout), Words.read(folder, layout, said))

    def refused(self, why: str) -> DeepJoinError:
        """Build the error for a checkpoint whose files do not fit together."""
        return self.layout.refused(self.folder, why)

    def number(self, name: str, usual: int) -> int:
        """Read a whole number, above 0, of what the checkpoint says of itself."""
        found = self.said.get(name, usual)
        if not isinstance(found, int) or isinstance(found, bool) or found < 1:
            raise self.refused(f"its {name} is {found!r}")
        return found

    def share(self, name: str, usual: float) -> float:
        """Read a number from 0 to 1 of what the checkpoint says of itself."""
        found = self.said.get(name, usual)
        if not isinstance(found, int | float) or not 0 <= found <= 1:
            raise self.refused(f"its {name} is {found!r}")
        return float(found)

    def check(self, encoder: ColumnEncoder) -> None:
        """Read a small column, which says at once what does not fit together."""
        try:
            encoder.encode([_SMALL], no_frequency)
        except (RuntimeError, IndexError) as error:
            raise self.refused(f"its tensors do not fit together: {reason(error)}") from None

    def below(self, prefix: str) -> dict[str, Any]:
        """Take the tensors whose names begin so, in single precision, named by the rest."""
        return {
            name.removeprefix(prefix): tensor.float() if tensor.is_floating_point() else tensor
            for name, tensor in self.tensors.items()
            if name.startswith(prefix)
        }


def _said(folder: Path, layout: Layout) -> dict[str, Any]:
    try:
        said = json.loads((folder / layout.config).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise layout.refused(folder, f"{layout.config} cannot be read ({error})") from None
    if not isinstance(said, dict):
        raise layout.refused(folder, f"{layout.config} holds no object")
    return said


def _tensors(folder: Path, layout: Layout) -> Mapping[str, Any]:
    try:
        import torch
    except ImportError:
        raise MissingExtra(f"{layout.title} needs torch: pip install 'deepjoin[train]'.") from None
    path = next((folder / name for name in layout.weights if (folder / name).is_file()), None)
    if path is None:
        raise layout.refused(folder, f"it has no {layout.weights[-1]}")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return dict(load_file(path))
        loaded: Mapping[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    # Whatever is torn or no tensor comes as another type from another library.
    except Exception as error:
        raise layout.refused(folder, f"{path.name} cannot be read: {reason(error)}") from None
    if not isinstance(loaded, dict) or not all(torch.is_tensor(one) for one in loaded.values()):
        raise layout.refused(folder, f"{path.name} holds other things than tensors by name")
    return loaded


class Words:
    """Texts to numbers of word pieces, without special ones; threads may share it."""

    def __init__(self, tokenizer: Any) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        self.size = int(tokenizer.get_vocab_size())

    @classmethod
    def read(cls, folder: Path, layout: Layout, said: Mapping[str, Any]) -> Words:
        """Read the vocabulary beside the weights, or that of the base model they name."""
        base = str(said.get("base_model_name", _USUAL_BASE))
        try:
            return cls(_tokenizer(folder, base, bool(said.get("do_lower_case", True))))
        # The tokenizers library raises plain Exception for whatever it cannot read.
        except Exception as error:
            raise layout.refused(
                folder, f"no vocabulary is there, nor that of '{base}': {reason(error)}"
            ) from None

    def number(self, token: str) -> int:
        """Return the number of one token; that of [UNK] if it is none."""
        found = self._tokenizer.token_to_id(token)
        if found is None:
            found = self._tokenizer.token_to_id("[UNK]")
        return int(found or 0)

    def numbers(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the numbers of the pieces of each text."""
        clean = [encodable(text[:_LETTERS]) for text in texts]
        found = self._tokenizer.encode_batch(clean, add_special_tokens=False)
        return [one.ids for one in found]

    def digest(self) -> str:
        """Return all that the numbers depend on."""
        return str(self._tokenizer.to_str())


def _tokenizer(folder: Path, base: str, lowercase: bool) -> Any:
    from tokenizers import BertWordPieceTokenizer, Tokenizer

    if (folder / "tokenizer.json").is_file():
        return Tokenizer.from_file(str(folder / "tokenizer.json"))
    if (folder / "vocab.txt").is_file():
        return BertWordPieceTokenizer(str(folder / "vocab.txt"), lowercase=lowercase)
    from transformers import AutoTokenizer

    loaded: Any = AutoTokenizer.from_pretrained(base)
    return loaded.backend_tokenizer


def encodable(text: str) -> str:
    """Replace lone surrogates, which fit no tokenizer and no Arrow string."""
    return text.encode("utf-8", "replace").decode("utf-8")


def chosen_device(name: str | None) -> Any:
    """Return the device that was asked for, else a GPU if there is one."""
    import torch

    if name is not None:
        return device_named(name)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def shown_cells(column: Column, profile: str, most: int) -> list[str]:
    """Give distinct cells in table order; of too many, some at random, the same each time.

    >>> shown_cells(Column(["GE", "ge", None, "IBM"]), "default", 5)
    ['GE', 'IBM']
    """
    cells = distinct_cells(column.cells, profile)
    if len(cells) <= most:
        return cells.spellings
    chosen = np.sort(SAMPLINGS["random"](cells, no_frequency)[:most])
    return [cells.spellings[place] for place in chosen.tolist()]


def are_numbers(cells: Sequence[str]) -> bool:
    """Say whether cells are all numbers.

    >>> are_numbers(["7.0", "+3", "-12"]), are_numbers(["7", "n/a"]), are_numbers([])
    (True, False, False)
    """
    clean = [encodable(cell) for cell in cells]
    kinds = np.asarray(cell_types(canonical_array(pa.array(clean, pa.string()))))
    return bool(len(kinds)) and bool(np.isin(kinds, (CellType.INTEGER, CellType.DECIMAL)).all())
