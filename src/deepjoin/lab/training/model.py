"""The encoder in training: a sentence-transformers model and its ranking loss (section 4.2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch.nn.functional import cross_entropy, log_softmax, normalize
from torch.utils.checkpoint import checkpoint

from deepjoin.embed.columns.torch_encoder import load_model
from deepjoin.errors import DeepJoinError
from deepjoin.lab.training.settings import TrainSettings
from deepjoin.progress import Progress, no_progress

Tokens = dict[str, torch.Tensor]
#: Columns encoded at a time when no gradients are kept.
_ENCODED = 512


def scores(x: torch.Tensor, y: torch.Tensor, metric: str, scale: float) -> torch.Tensor:
    """Score every x with every y: their cosine or negative distance, times the scale."""
    if metric == "euclidean":
        return -scale * torch.cdist(x[None], y[None], compute_mode="use_mm_for_euclid_dist")[0]
    return scale * normalize(x, dim=1) @ normalize(y, dim=1).T


def ranking_loss(
    x: torch.Tensor, y: torch.Tensor, joinability: torch.Tensor, settings: TrainSettings
) -> torch.Tensor:
    """Return the loss of a batch.

    The partner of x[i] is y[i]; further rows of y are negatives only. ``joinability`` has a row
    for each x and a column for each y. Target "partner" is multiple negatives ranking, in which
    columns known to be joinable do not count as negatives. Target "joinability" distributes the
    probability over all columns of the batch in proportion to their joinability.
    """
    found = scores(x, y, settings.metric, settings.scale)
    size = len(found)
    if settings.target == "joinability":
        wanted = joinability**settings.power
        loss = _graded(found, wanted)
        if not settings.symmetric:
            return loss
        return (loss + _graded(found[:, :size].T, wanted[:, :size].T)) / 2
    partners = torch.arange(size, device=found.device)
    if settings.masked:
        known = joinability >= settings.threshold
        known[partners, partners] = False
        found = found.masked_fill(known, -torch.inf)
    loss = cross_entropy(found, partners)
    if not settings.symmetric:
        return loss
    return (loss + cross_entropy(found[:, :size].T, partners)) / 2


def _graded(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    shares = wanted / wanted.sum(dim=1, keepdim=True).clamp_min(1e-9)
    return -(shares * log_softmax(found, dim=1)).sum(dim=1).mean()


class JoinModel(torch.nn.Module):
    """A sentence-transformers model followed by the loss."""

    def __init__(self, folder: Path, settings: TrainSettings, device: str | None = None) -> None:
        super().__init__()
        self.encoder: SentenceTransformer = load_model(str(folder), device)
        self.settings = settings
        #: Columns encoded at a time in training: a whole batch, unless memory runs out.
        self.piece = 1 << 30
        for module in self.modules():
            if settings.dropout is not None and isinstance(module, torch.nn.Dropout):
                module.p = settings.dropout

    def forward(self, x: Tokens, y: Tokens, joinability: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the loss of a batch."""
        # In full precision: the loss depends on small differences between thousands of scores.
        mine, theirs = self.vectors(x).float(), self.vectors(y).float()
        with torch.autocast(joinability.device.type, enabled=False):
            return {"loss": ranking_loss(mine, theirs, joinability, self.settings)}

    def vectors(self, tokens: Tokens) -> torch.Tensor:
        """Encode columns piece by piece, recomputing activations in the backward pass.

        Memory then holds one piece, while the loss still sees the whole batch.
        """
        size = len(tokens["input_ids"])
        if size <= self.piece:
            return self._encode(tokens)
        pieces = [
            {name: one[start : start + self.piece] for name, one in tokens.items()}
            for start in range(0, size, self.piece)
        ]
        return torch.cat([checkpoint(self._encode, piece, use_reentrant=False) for piece in pieces])

    def _encode(self, tokens: Tokens) -> torch.Tensor:
        vectors: torch.Tensor = self.encoder(dict(tokens))["sentence_embedding"]
        return vectors

    @torch.no_grad()
    def encoded(self, tokens: Tokens, progress: Progress = no_progress) -> torch.Tensor:
        """Encode any number of columns, without gradients."""
        # Dropout would make validation random.
        was_training = self.training
        self.eval()
        device = next(self.parameters()).device
        found = []
        for start in range(0, len(tokens["input_ids"]), _ENCODED):
            some = {name: one[start : start + _ENCODED].to(device) for name, one in tokens.items()}
            found.append(self._encode(some).float())
            done = min(start + _ENCODED, len(tokens["input_ids"]))
            progress(done, len(tokens["input_ids"]), "columns encoded for validation")
        self.train(was_training)
        return torch.cat(found)

    def compare(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        """Score vectors as a search would."""
        return scores(x, y, self.settings.metric, 1.0).cpu().numpy()

    def halve(self, size: int) -> int:
        """Halve the columns encoded at a time, given the batch size, and return their number."""
        self.piece = min(self.piece, size) // 2
        if self.piece == 0:
            raise DeepJoinError(
                "The device has too little memory to learn from one column. Use a smaller model, "
                'fewer `tokens`, or the CPU: `device="cpu"`.'
            )
        return self.piece
