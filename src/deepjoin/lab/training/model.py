"""The encoder in training: a sentence-transformers model and its ranking loss (section 4.2)."""

from __future__ import annotations

from collections.abc import Callable
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
#: Pieces of similar length that a batch is encoded in, and the fewest columns worth a piece.
_PIECES, _LEAST_PIECE = 6, 64


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
        loss = _graded(found, joinability, settings)
        if not settings.symmetric:
            return loss
        return (loss + _graded(found[:, :size].T, joinability[:, :size].T, settings)) / 2
    partners = torch.arange(size, device=found.device)
    if settings.masked:
        known = joinability >= settings.threshold
        known[partners, partners] = False
        found = found.masked_fill(known, -torch.inf)
    loss = cross_entropy(found, partners)
    if not settings.symmetric:
        return loss
    return (loss + cross_entropy(found[:, :size].T, partners)) / 2


def _graded(
    found: torch.Tensor, joinability: torch.Tensor, settings: TrainSettings
) -> torch.Tensor:
    def shares(power: float) -> torch.Tensor:
        wanted = joinability**power
        return wanted / wanted.sum(dim=1, keepdim=True).clamp_min(1e-9)

    wanted = (1 - settings.plain) * shares(settings.power)
    if settings.plain:
        wanted = wanted + settings.plain * shares(1)
    return -(wanted * log_softmax(found, dim=1)).sum(dim=1).mean()


def _by_length(
    tokens: Tokens, piece: int, encode: Callable[[Tokens], torch.Tensor]
) -> torch.Tensor:
    """Encode rows in pieces of similar length, cut to the longest of each; keep their order."""
    lengths = tokens["attention_mask"].sum(dim=1)
    order = torch.argsort(lengths, descending=True, stable=True)
    found = []
    for rows in torch.split(order, piece):
        width = int(lengths[rows[0]])
        found.append(encode({name: one[rows, :width] for name, one in tokens.items()}))
    vectors = torch.cat(found)
    return vectors[torch.argsort(order).to(vectors.device)]


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
        """Encode columns in pieces of similar length, which need little padding.

        Once memory ran out, pieces are smaller and activations recomputed in the backward pass:
        memory then holds one piece, while the loss still sees the whole batch.
        """
        size = len(tokens["input_ids"])
        if size <= self.piece:
            return _by_length(tokens, max(_LEAST_PIECE, -(-size // _PIECES)), self._encode)
        return _by_length(
            *(tokens, self.piece),
            lambda piece: checkpoint(self._encode, piece, use_reentrant=False),
        )

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
        done, total = 0, len(tokens["input_ids"])

        def encode(some: Tokens) -> torch.Tensor:
            nonlocal done
            given = {name: one.to(device).long() for name, one in some.items()}
            found = self._encode(given).float()
            done += len(found)
            progress(done, total, "columns encoded for validation")
            return found

        found = _by_length(tokens, _ENCODED, encode)
        self.train(was_training)
        return found

    def nearest(self, queries: Tokens, columns: Tokens, most: int) -> torch.Tensor:
        """Return the numbers of the columns nearest to each query but its own, on the CPU."""
        x, y = self.encoded(queries), self.encoded(columns)
        found = []
        for start in range(0, len(x), _ENCODED):
            near = scores(x[start : start + _ENCODED], y, self.settings.metric, 1.0)
            near.diagonal(start).fill_(-torch.inf)
            found.append(near.topk(min(most, len(y) - 1), dim=1).indices.int().cpu())
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
