"""The encoder while it is trained: it reads columns in as many pieces as memory allows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch.utils.checkpoint import checkpoint

from deepjoin.embed.columns.torch_encoder import load_model
from deepjoin.errors import DeepJoinError
from deepjoin.lab.training.loss import ranking_loss, scores
from deepjoin.lab.training.settings import TrainSettings

Tokens = dict[str, torch.Tensor]
#: Columns read at a time when nothing has to be remembered for learning.
_READ = 512


class JoinModel(torch.nn.Module):
    """A sentence-transformers model with the loss behind it."""

    def __init__(self, folder: Path, settings: TrainSettings, device: str | None = None) -> None:
        super().__init__()
        self.encoder: SentenceTransformer = load_model(str(folder), device)
        self.settings = settings
        self._set_dropout(settings.dropout)
        #: Columns read at a time while learning: all of a batch, until memory says otherwise.
        self.piece = 1 << 30

    def _set_dropout(self, share: float | None) -> None:
        for module in self.modules():
            if share is not None and isinstance(module, torch.nn.Dropout):
                module.p = share

    def forward(self, x: Tokens, y: Tokens, joinability: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the loss of a batch."""
        # In full precision: a batch has thousands of scores, and their differences count.
        mine, theirs = self.vectors(x).float(), self.vectors(y).float()
        with torch.autocast(joinability.device.type, enabled=False):
            return {"loss": ranking_loss(mine, theirs, joinability, self.settings)}

    def vectors(self, tokens: Tokens) -> torch.Tensor:
        """Read columns, one piece after the other; what a piece computed is computed again later.

        So memory holds one piece, and the batch, which decides what is learned, stays whole.
        """
        size = len(tokens["input_ids"])
        if size <= self.piece:
            return self._read(tokens)
        pieces = [
            {name: one[start : start + self.piece] for name, one in tokens.items()}
            for start in range(0, size, self.piece)
        ]
        return torch.cat([checkpoint(self._read, piece, use_reentrant=False) for piece in pieces])

    def _read(self, tokens: Tokens) -> torch.Tensor:
        vectors: torch.Tensor = self.encoder(dict(tokens))["sentence_embedding"]
        return vectors

    @torch.no_grad()
    def encoded(self, tokens: Tokens) -> torch.Tensor:
        """Read any number of columns, without learning from them."""
        was_learning = self.training
        self.eval()
        device = next(self.parameters()).device
        found = []
        for start in range(0, len(tokens["input_ids"]), _READ):
            some = {name: one[start : start + _READ].to(device) for name, one in tokens.items()}
            found.append(self._read(some).float())
        self.train(was_learning)
        return torch.cat(found)

    def compare(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        """Score vectors as a search will."""
        return scores(x, y, self.settings.metric, 1.0).cpu().numpy()

    def halve(self, size: int) -> int:
        """Read half as many columns at a time, of a batch of a size; returns how many."""
        self.piece = min(self.piece, size) // 2
        if self.piece == 0:
            raise DeepJoinError(
                "The device has too little memory to learn from one column. Use a smaller model, "
                "fewer --tokens, or the CPU: --device cpu."
            )
        return self.piece
