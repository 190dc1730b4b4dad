"""Baselines without training: a column is the mean of its cell vectors (paper, section 5.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from deepjoin.arrays import Double, Float
from deepjoin.embed.columns.encoder import ColumnEncoder, checked
from deepjoin.embed.columns.loading import check_place
from deepjoin.embed.columns.text import Frequency, TextSettings
from deepjoin.embed.columns.torch_encoder import TorchEncoder, load_model
from deepjoin.errors import DeepJoinError
from deepjoin.lab.encoders.checkpoints import encodable
from deepjoin.model import Column
from deepjoin.normalise.distinct import distinct_cells

#: Gives each value a vector; zeros for an unknown value.
ToVectors = Callable[[Sequence[str]], Float]
#: Values whose vectors are held at a time.
_VALUES = 1 << 14
#: Tokens read of a cell, special ones not counted.
_TOKENS = 126
#: Special tokens that are not averaged; the token of unknown words is.
_SPECIAL = ("cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id", "pad_token_id")


class Averages(ColumnEncoder):
    """A column is the mean of the vectors of its distinct values; unknown values do not count.

    The vector depends on the set of values only, not on order, spelling or repetition.
    """

    def __init__(
        self, kind: str, name: str, digest: str, dimension: int, vectors: ToVectors, profile: str
    ) -> None:
        self.kind, self.name, self.dimension = kind, f"{kind}:{name}", dimension
        self.digest = blake2b(repr((kind, digest, profile)).encode(), digest_size=16).hexdigest()
        self._vectors, self._profile = vectors, profile

    def encode(self, columns: Sequence[Column], frequency: Frequency) -> Float:
        """Return the mean of each column; a value in several columns is encoded once."""
        values = [distinct_cells(column.cells, self._profile).values for column in columns]
        means = mean_vectors(values, self._vectors, self.dimension)
        return checked(means.astype(np.float32), self.name)


def mean_vectors(columns: Sequence[Sequence[str]], vectors: ToVectors, dimension: int) -> Double:
    """Average the vectors of the known values of each column; zeros for a column without any."""
    # A value in several columns is encoded once: encoding costs far more than adding up.
    numbers: dict[str, int] = {}
    held = [
        np.sort(np.array([numbers.setdefault(encodable(one), len(numbers)) for one in of], int))
        for of in columns
    ]
    distinct = list(numbers)
    sums, counts = np.zeros((len(held), dimension)), np.zeros(len(held))
    for start in range(0, len(distinct), _VALUES):
        rows = vectors(distinct[start : start + _VALUES])
        known = np.asarray(rows.any(axis=1))
        for column, of in enumerate(held):
            first, last = np.searchsorted(of, (start, start + len(rows)))
            some = of[first:last] - start
            sums[column] += rows[some].sum(axis=0, dtype=np.float64)
            counts[column] += np.count_nonzero(known[some])
    return sums / np.maximum(counts, 1)[:, None]


def load_fasttext(where: str, *, profile: str, device: str | None) -> Averages:
    """Average the vectors of a fastText .vec or .bin file."""
    from deepjoin.embed.cells.fasttext import load_vectors

    path = Path(where)
    if path.suffix not in (".vec", ".bin") or not path.is_file():
        raise DeepJoinError(
            f"There is no fastText file '{where}'. Give a .vec or .bin file, or train one on a "
            "lake: python -m deepjoin.lab.encoders.train_fasttext INDEX -o lake.bin"
        )
    words = load_vectors(path)
    return Averages("fasttext", path.name, words.digest, words.dimension, words.encode, profile)


def load_averages(where: str, kind: str, *, profile: str, device: str | None) -> Averages:
    """Average the word pieces of BERT, MPNet or another transformers model."""
    check_place(where, others="")
    cells = CellModel(where, device)
    return Averages(kind, cells.name, cells.digest, cells.dimension, cells.encode_texts, profile)


class CellModel(TorchEncoder):
    """A language model that reads single cells: the mean of its last layer over the word pieces.

    The pooling saved with a model is ignored. Needs the extra ``train``.
    """

    def __init__(self, spec: str | Path, device: str | None = None) -> None:
        super().__init__(spec, TextSettings(tokens=_TOKENS), None, device)

    @staticmethod
    def _loaded(spec: str, device: str | None) -> Any:
        model = load_model(spec, device)
        import torch
        from sentence_transformers import SentenceTransformer

        found = (getattr(model.tokenizer, name, None) for name in _SPECIAL)
        special = sorted({number for number in found if number is not None})

        class WordsMean(torch.nn.Module):
            """The mean of the last layer over word pieces; zeros for a text without any."""

            def forward(self, features: dict[str, Any]) -> dict[str, Any]:
                """Add the vector of each text."""
                words = features["attention_mask"].bool()
                for number in special:
                    words = words & (features["input_ids"] != number)
                weights = words.unsqueeze(-1).to(features["token_embeddings"].dtype)
                sums = (features["token_embeddings"] * weights).sum(1)
                features["sentence_embedding"] = sums / weights.sum(1).clamp(min=1)
                return features

        modules = [model[0], WordsMean()]
        return SentenceTransformer(modules=modules, device=str(model.device)).eval()
