"""The loss (paper, section 4.2): partners must be nearer than all others of the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from deepjoin.lab.training.settings import TrainSettings


def scores(x: torch.Tensor, y: torch.Tensor, metric: str, scale: float) -> torch.Tensor:
    """Score every x with every y: the cosine, or how near they are, times the scale."""
    import torch

    if metric == "euclidean":
        return -scale * torch.cdist(x[None], y[None], compute_mode="use_mm_for_euclid_dist")[0]
    normal = torch.nn.functional.normalize
    return scale * normal(x, dim=1) @ normal(y, dim=1).T


def ranking_loss(
    x: torch.Tensor, y: torch.Tensor, joinability: torch.Tensor, settings: TrainSettings
) -> torch.Tensor:
    """Say how far the scores are from what they should be.

    Partner i of x is y i; y may have more rows, which are nobody's partner. ``joinability`` holds
    that of each x with each y.
    """
    found = scores(x, y, settings.metric, settings.scale)
    if settings.target == "joinability":
        return _graded(found, joinability**settings.power, settings.symmetric)
    return _partners(found, joinability, settings)


def _partners(
    found: torch.Tensor, joinability: torch.Tensor, settings: TrainSettings
) -> torch.Tensor:
    """Multiple negatives ranking, where those known to be joinable are no negatives."""
    import torch

    size = len(found)
    partners = torch.arange(size, device=found.device)
    if settings.masked:
        known = joinability >= settings.threshold
        known[partners, partners] = False
        found = found.masked_fill(known, -torch.inf)
    entropy = torch.nn.functional.cross_entropy
    if not settings.symmetric:
        return entropy(found, partners)
    return (entropy(found, partners) + entropy(found[:, :size].T, partners)) / 2


def _graded(found: torch.Tensor, wanted: torch.Tensor, symmetric: bool) -> torch.Tensor:
    """Share the probability among all columns of the batch by how much each is wanted."""
    size = len(found)
    loss = _spread(found, wanted)
    return (loss + _spread(found[:, :size].T, wanted[:, :size].T)) / 2 if symmetric else loss


def _spread(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    import torch

    shares = wanted / wanted.sum(dim=1, keepdim=True).clamp_min(1e-9)
    return -(shares * torch.log_softmax(found, dim=1)).sum(dim=1).mean()
