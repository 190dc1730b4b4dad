"""One layer of a transformer over given tensors, by whatever names a checkpoint has for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xxhash import xxh3_128

#: Query, key, value and output of the attention, its norm, then the same of what follows it.
BERT = (
    *("attention.self.query", "attention.self.key", "attention.self.value"),
    *("attention.output.dense", "attention.output.LayerNorm"),
    *("intermediate.dense", "output.dense", "output.LayerNorm"),
)


class Layer:
    """Self-attention and two products, each added to what came in and normed."""

    def __init__(
        self, tensors: Mapping[str, Any], prefix: str, names: Sequence[str], heads: int, eps: float
    ) -> None:
        self._parts = [
            (tensors[f"{prefix}{name}.weight"], tensors[f"{prefix}{name}.bias"]) for name in names
        ]
        self._heads, self._eps = heads, eps

    def __call__(self, states: Any, visible: Any = None) -> Any:
        """Return the next states; ``visible`` says which states (last axis) each may see."""
        from torch.nn import functional

        query, key, value, output, first, wide, narrow, last = self._parts
        rows, length, width = states.shape
        split = (rows, length, self._heads, width // self._heads)
        asked, seen, told = (
            functional.linear(states, *part).reshape(split).transpose(1, 2)
            for part in (query, key, value)
        )
        found = functional.scaled_dot_product_attention(asked, seen, told, attn_mask=visible)
        found = functional.linear(found.transpose(1, 2).reshape(states.shape), *output)
        middle = functional.layer_norm(found + states, (width,), *first, self._eps)
        found = functional.linear(functional.gelu(functional.linear(middle, *wide)), *narrow)
        return functional.layer_norm(found + middle, (width,), *last, self._eps)


def tensors_digest(tensors: Mapping[str, Any], *said: object) -> str:
    """Hash tensors by name, and whatever else vectors depend on."""
    import torch

    content = xxh3_128(repr(said).encode("utf-8", "surrogatepass"))
    for name, tensor in sorted(tensors.items()):
        content.update(f"{name}{tuple(tensor.shape)}".encode())
        content.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return content.hexdigest()
