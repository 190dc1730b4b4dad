"""The devices there are to work on, by their names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from deepjoin.errors import DeepJoinError, MissingExtra

if TYPE_CHECKING:
    import torch


def device_named(name: str) -> torch.device:
    """Return a device, if it is there: "cpu", "cuda", or "cuda:1" for the second GPU."""
    found = re.fullmatch(r"cpu|cuda(?::([0-9]+))?", name)
    if found is None:
        raise DeepJoinError(
            f"There is no device '{name}'. Use cuda for a GPU, cuda:1 for the second one, cpu, "
            "or none for the usual."
        )
    try:
        import torch
    except ImportError:
        raise MissingExtra(
            f"The device '{name}' needs torch: pip install 'deepjoin[train]', or leave it out."
        ) from None
    if name != "cpu" and int(found[1] or 0) >= torch.cuda.device_count():
        raise DeepJoinError(
            f"There is no device '{name}': torch sees {torch.cuda.device_count()} GPUs. "
            "Use another, or the CPU, or install torch for this GPU."
        )
    return torch.device(name)
