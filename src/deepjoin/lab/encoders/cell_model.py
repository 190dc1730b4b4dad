"""A language model that reads single cells: the mean of what it makes of their word pieces.

Needs the extra ``train``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deepjoin.embed.columns.text import TextSettings
from deepjoin.embed.columns.torch_encoder import TorchEncoder, load_model

#: Tokens read of a cell, special ones not counted.
_TOKENS = 126
#: The tokens around a text; the one for unknown words is a word.
_AROUND = ("cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id", "pad_token_id")


class CellModel(TorchEncoder):
    """A model as it was published: its last layer, whatever pooling is saved with it."""

    def __init__(self, spec: str | Path, device: str | None = None) -> None:
        super().__init__(spec, TextSettings(tokens=_TOKENS), None, device)

    @staticmethod
    def _loaded(spec: str, device: str | None) -> Any:
        model = load_model(spec, device)
        from sentence_transformers import SentenceTransformer

        modules = [model[0], _words_mean(model)]
        return SentenceTransformer(modules=modules, device=str(model.device)).eval()


def _words_mean(model: Any) -> Any:
    """Make the step that averages word pieces, and leaves the tokens around them out."""
    import torch

    found = (getattr(model.tokenizer, name, None) for name in _AROUND)
    around = sorted({number for number in found if number is not None})

    class WordsMean(torch.nn.Module):
        """The mean of the last layer over the words of a text; zeros for a text without one."""

        def forward(self, features: dict[str, Any]) -> dict[str, Any]:
            """Add the vector of each text."""
            words = features["attention_mask"].bool()
            for number in around:
                words = words & (features["input_ids"] != number)
            weights = words.unsqueeze(-1).to(features["token_embeddings"].dtype)
            sums = (features["token_embeddings"] * weights).sum(1)
            features["sentence_embedding"] = sums / weights.sum(1).clamp(min=1)
            return features

    return WordsMean()
