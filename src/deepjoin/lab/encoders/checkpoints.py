"""Published table models: the files of a checkpoint, its tensors, words and layers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from xxhash import xxh3_128

from deepjoin.embed.columns.encoder import ColumnEncoder
from deepjoin.embed.columns.text import SAMPLINGS, no_frequency
from deepjoin.embed.devices import device_named
from deepjoin.errors import DeepJoinError, reason
from deepjoin.model import Column
from deepjoin.normalise.canonical import CellType, canonical_array, cell_types
from deepjoin.normalise.cells import distinct_cells
from deepjoin.optional import require

#: Texts are cut at this many letters, far beyond the token limits of these models.
_LETTERS = 1 << 14
#: The vocabulary of all published table models.
_USUAL_BASE = "bert-base-uncased"
_SMALL = Column(["a", "b", "c", "d"], name="a", title="a " * 64)
#: Parts of a layer: attention (query, key, value, output, norm), then the feed-forward part.
BERT = (
    *("attention.self.query", "attention.self.key", "attention.self.value"),
    *("attention.output.dense", "attention.output.LayerNorm"),
    *("intermediate.dense", "output.dense", "output.LayerNorm"),
)


class CheckpointFiles(NamedTuple):
    """File names of a published checkpoint; the first file of weights that exists is used."""

    title: str
    config: str
    weights: tuple[str, ...]

    def refused(self, folder: Path, why: str) -> DeepJoinError:
        """Return the error for a folder that is not such a checkpoint."""
        return DeepJoinError(
            f"'{folder}' is not a {self.title} checkpoint: {why.rstrip('.')}. Give a folder as "
            f"published, with {self.config}, {self.weights[-1]} and vocab.txt."
        )


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk: its configuration, tensors and vocabulary."""

    folder: Path
    layout: CheckpointFiles
    config: dict[str, Any]
    tensors: Mapping[str, Any]
    words: Words

    @classmethod
    def read(cls, where: str, layout: CheckpointFiles) -> Checkpoint:
        """Read a folder; weights are never unpickled into anything but tensors."""
        folder = Path(where)
        if not folder.is_dir():
            raise layout.refused(folder, "there is no such folder")
        try:
            config = json.loads((folder / layout.config).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise layout.refused(folder, f"{layout.config} cannot be read ({error})") from None
        if not isinstance(config, dict):
            raise layout.refused(folder, f"{layout.config} holds no object")
        tensors = _tensors(folder, layout)
        return cls(folder, layout, config, tensors, Words.read(folder, layout, config))

    def refused(self, why: str) -> DeepJoinError:
        """Return the error for a checkpoint whose files do not fit together."""
        return self.layout.refused(self.folder, why)

    def number(self, name: str, usual: int) -> int:
        """Read a positive whole number of the configuration."""
        found = self.config.get(name, usual)
        if not isinstance(found, int) or isinstance(found, bool) or found < 1:
            raise self.refused(f"its {name} is {found!r}")
        return found

    def share(self, name: str, usual: float) -> float:
        """Read a number from 0 to 1 of the configuration."""
        found = self.config.get(name, usual)
        if not isinstance(found, int | float) or not 0 <= found <= 1:
            raise self.refused(f"its {name} is {found!r}")
        return float(found)

    def check(self, encoder: ColumnEncoder) -> None:
        """Encode a small column, which fails at once if the tensors do not fit together."""
        try:
            encoder.encode([_SMALL], no_frequency)
        except (RuntimeError, IndexError) as error:
            raise self.refused(f"its tensors do not fit together: {reason(error)}") from None

    def check_words(self, rows: int) -> None:
        """Refuse a vocabulary with more words than the word embedding has rows."""
        if self.words.size > rows:
            raise self.refused(f"its vocabulary has {self.words.size} words, its weights {rows}")

    def below(self, prefix: str) -> dict[str, Any]:
        """Return the tensors with a prefix in single precision, named without it."""
        return {
            name.removeprefix(prefix): tensor.float() if tensor.is_floating_point() else tensor
            for name, tensor in self.tensors.items()
            if name.startswith(prefix)
        }


def _tensors(folder: Path, layout: CheckpointFiles) -> Mapping[str, Any]:
    torch: Any = require("torch", "train", layout.title)
    path = next((folder / name for name in layout.weights if (folder / name).is_file()), None)
    if path is None:
        raise layout.refused(folder, f"it has no {layout.weights[-1]}")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return dict(load_file(path))
        # Without weights_only, a pickle could run any code.
        loaded: Mapping[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    # Damaged files raise different errors in different libraries.
    except Exception as error:
        raise layout.refused(folder, f"{path.name} cannot be read: {reason(error)}") from None
    if not isinstance(loaded, dict) or not all(torch.is_tensor(one) for one in loaded.values()):
        raise layout.refused(folder, f"{path.name} is not a dictionary of tensors")
    return loaded


class Words:
    """Tokenises texts to word pieces without special tokens; safe to share between threads."""

    def __init__(self, tokenizer: Any) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        self.size = int(tokenizer.get_vocab_size())

    @classmethod
    def read(cls, folder: Path, layout: CheckpointFiles, config: Mapping[str, Any]) -> Words:
        """Read the vocabulary beside the weights, or that of the base model."""
        base = str(config.get("base_model_name", _USUAL_BASE))
        try:
            from tokenizers import BertWordPieceTokenizer, Tokenizer

            # tokenizer.json is complete; vocab.txt lacks the rules, which are BERT's.
            if (folder / "tokenizer.json").is_file():
                return cls(Tokenizer.from_file(str(folder / "tokenizer.json")))
            if (folder / "vocab.txt").is_file():
                lowercase = bool(config.get("do_lower_case", True))
                vocabulary = str(folder / "vocab.txt")
                return cls(BertWordPieceTokenizer(vocabulary, lowercase=lowercase))
            from transformers import AutoTokenizer

            loaded: Any = AutoTokenizer.from_pretrained(base)
            return cls(loaded.backend_tokenizer)
        # The tokenizers library raises plain Exception for whatever it cannot read.
        except Exception as error:
            raise layout.refused(
                folder,
                f"it has no vocabulary, and that of '{base}' cannot be loaded: {reason(error)}",
            ) from None

    def number(self, token: str) -> int:
        """Return the number of a token, or that of [UNK]."""
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
        """Return the tokenizer as text, on which the numbers depend."""
        return str(self._tokenizer.to_str())


def encodable(text: str) -> str:
    """Replace lone surrogates, which tokenizers and Arrow strings reject."""
    return text.encode("utf-8", "replace").decode("utf-8")


def chosen_device(name: str | None) -> Any:
    """Return the named device, by default a GPU if there is one."""
    import torch

    if name is not None:
        return device_named(name)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def shown_cells(column: Column, profile: str, most: int) -> list[str]:
    """Return distinct cells in table order, a reproducible sample if there are too many.

    >>> shown_cells(Column(["GE", "ge", None, "IBM"]), "default", 5)
    ['GE', 'IBM']
    """
    cells = distinct_cells(column.cells, profile)
    if len(cells) <= most:
        return cells.spellings
    chosen = np.sort(SAMPLINGS["random"](cells, no_frequency)[:most])
    return [cells.spellings[place] for place in chosen.tolist()]


def are_numbers(cells: Sequence[str]) -> bool:
    """Return whether all cells are numbers.

    >>> are_numbers(["7.0", "+3", "-12"]), are_numbers(["7", "n/a"]), are_numbers([])
    (True, False, False)
    """
    clean = [encodable(cell) for cell in cells]
    kinds = np.asarray(cell_types(canonical_array(pa.array(clean, pa.string()))))
    return bool(len(kinds)) and bool(np.isin(kinds, (CellType.INTEGER, CellType.DECIMAL)).all())


class TransformerLayer:
    """One transformer layer over the tensors of a checkpoint, by their names there."""

    def __init__(
        self, tensors: Mapping[str, Any], prefix: str, names: Sequence[str], heads: int, eps: float
    ) -> None:
        self._parts = [
            (tensors[f"{prefix}{name}.weight"], tensors[f"{prefix}{name}.bias"]) for name in names
        ]
        self._heads, self._eps = heads, eps

    def __call__(self, states: Any) -> Any:
        """Return the next states; each attends to all of its row."""
        from torch.nn import functional

        query, key, value, output, first, wide, narrow, last = self._parts
        rows, length, width = states.shape
        split = (rows, length, self._heads, width // self._heads)
        queries, keys, values = (
            functional.linear(states, *part).reshape(split).transpose(1, 2)
            for part in (query, key, value)
        )
        found = functional.scaled_dot_product_attention(queries, keys, values)
        found = functional.linear(found.transpose(1, 2).reshape(states.shape), *output)
        middle = functional.layer_norm(found + states, (width,), *first, self._eps)
        found = functional.linear(functional.gelu(functional.linear(middle, *wide)), *narrow)
        return functional.layer_norm(found + middle, (width,), *last, self._eps)


def tensors_digest(tensors: Mapping[str, Any], *more: object) -> str:
    """Hash tensors by name, and what else the vectors depend on."""
    import torch

    content = xxh3_128(repr(more).encode("utf-8", "surrogatepass"))
    # Sorted, because the same checkpoint may list its tensors in another order.
    for name, tensor in sorted(tensors.items()):
        content.update(f"{name}{tuple(tensor.shape)}".encode())
        content.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return content.hexdigest()
