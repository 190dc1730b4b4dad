"""The table before tuning: what a transformer makes of each word piece alone, weighed by rarity."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from deepjoin.errors import MissingExtra

Floats = npt.NDArray[np.float32]

_PIECES_AT_ONCE = 512
#: Rows that stand for unused pieces and control tokens in BERT's vocabulary.
_RESERVED = 999
#: A piece this share of all pieces long counts half; the rarer count more.
_HALF_PIECE, _HALF_GRAM = 1e-4, 1e-3
#: Tuning moves rows by shares of their lengths, so that no start is too small.
_GRAM_LENGTH = 0.15
_NUMBER_LENGTH, _NUMBER_WEIGHT = 0.7, 0.3


def piece_outputs(model: str | Path, start: int, end: int) -> Floats:
    """Run ``[CLS] piece [SEP]`` for every piece and keep the output at the piece."""
    try:
        import torch
        from transformers import AutoModel
    except ImportError:
        raise MissingExtra(
            f"Distilling {model} needs the training extra: pip install 'deepjoin[train]'"
        ) from None
    network = AutoModel.from_pretrained(str(model), local_files_only=True).eval()
    count = network.config.vocab_size
    outputs = np.zeros((count, network.config.hidden_size), np.float32)
    with torch.inference_mode():
        for first in range(0, count, _PIECES_AT_ONCE):
            pieces = torch.arange(first, min(first + _PIECES_AT_ONCE, count))
            ends = (torch.full_like(pieces, start), torch.full_like(pieces, end))
            inputs = torch.stack([ends[0], pieces, ends[1]], 1)
            found = network(input_ids=inputs, attention_mask=torch.ones_like(inputs))
            outputs[first : first + len(pieces)] = found.last_hidden_state[:, 1].numpy()
    return outputs


def principal(outputs: Floats, dimension: int) -> Floats:
    """Centre, keep the strongest directions, and give rows a mean length of 1."""
    centred = outputs - outputs[_RESERVED:].mean(axis=0)
    _, directions = np.linalg.eigh(centred[_RESERVED:].T @ centred[_RESERVED:])
    kept = centred @ directions[:, ::-1][:, :dimension]
    # An eigenvector's sign is the library's whim: fix it, so that tables can be made again.
    kept = kept * np.where(kept[np.abs(kept).argmax(axis=0), np.arange(dimension)] < 0, -1, 1)
    scaled: Floats = (kept / np.linalg.norm(kept, axis=1).mean()).astype(np.float32)
    return scaled


def first_table(
    pieces: Floats, is_number: npt.NDArray[np.bool_], frequency: npt.NDArray[np.float64], seed: int
) -> Floats:
    """Weigh pieces by rarity, give numbers directions of their own, append letter rows.

    A transformer puts 12 beside 13; as keys they have nothing in common, so each piece of a
    number starts at random.
    """
    chance, count = np.random.default_rng(seed), len(pieces)
    weights = _rarity(frequency[:count], _HALF_PIECE)
    table = pieces * weights[:, None]
    lengths = _NUMBER_LENGTH * np.maximum(weights[is_number], _NUMBER_WEIGHT)
    table[is_number] = _directions(chance, lengths, pieces.shape[1])
    grams = _GRAM_LENGTH * _rarity(frequency[count:], _HALF_GRAM)
    whole: Floats = np.concatenate([table, _directions(chance, grams, pieces.shape[1])])
    return whole.astype(np.float32)


def _rarity(frequency: npt.NDArray[np.float64], half: float) -> npt.NDArray[np.float64]:
    """Weigh features as a/(a+p): smooth inverse frequency."""
    weights: npt.NDArray[np.float64] = half / (half + frequency / max(frequency.sum(), 1))
    return weights


def _directions(
    chance: np.random.Generator, lengths: npt.NDArray[np.float64], dimension: int
) -> npt.NDArray[np.float64]:
    drawn = chance.standard_normal((len(lengths), dimension))
    placed: npt.NDArray[np.float64] = drawn * (lengths / np.linalg.norm(drawn, axis=1))[:, None]
    return placed
