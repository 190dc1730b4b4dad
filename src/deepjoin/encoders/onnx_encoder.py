"""The encoder of the default install: a BERT through ONNX Runtime, without torch.

Weights are stored in 8 to 10 bits and computed in 32: rounding activations as well would be faster,
and would change which columns are found (``docs/decisions``).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from xxhash import xxh3_128

from deepjoin.encoders.text_encoder import (
    FloatMatrix,
    TextEncoder,
    batches,
    checked,
    text_settings,
)
from deepjoin.encoders.tokens import Tokens
from deepjoin.encoders.weights import Array, grouped, read_weights, restored
from deepjoin.errors import DeepJoinError
from deepjoin.text import TextSettings

if TYPE_CHECKING:
    import onnxruntime

FORMAT = 1
#: What a vector depends on beside the text.
_FILES = ("graph.onnx", "tokenizer.json", "weights.npz")
#: Tokens in one run: more gain nothing, fewer leave threads idle.
_TOKENS = 1024


class OnnxEncoder(TextEncoder):
    """A model folder as `deepjoin.encoders.export` writes it, ready to encode."""

    def __init__(
        self,
        folder: str | Path,
        settings: TextSettings | None = None,
        profile: str | None = None,
        threads: int | None = None,
    ) -> None:
        folder = Path(folder)
        about = _about(folder)
        settings = text_settings(folder / "encoder.json", settings, profile)
        self._tokens = Tokens.from_file(folder / "tokenizer.json", settings.tokens)
        self._tokens.check(about["positions"], about["name"])
        self._session = _session(folder, threads)
        super().__init__(about["name"], _digest(folder), about["dimension"], settings)

    def count(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of each text, special tokens left out."""
        return self._tokens.count(texts)

    def encode_texts(self, texts: Sequence[str]) -> FloatMatrix:
        """Return one vector a text, not normalised; a text without a token is 0."""
        numbers = self._tokens.numbers(texts)
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        for batch in batches([len(one) for one in numbers], _TOKENS):
            if numbers[batch[0]]:
                tokens = np.array([numbers[place] for place in batch], np.int64)
                vectors[batch] = self._session.run(["vector"], {"tokens": tokens})[0]
        return checked(vectors, self.name)


def _about(folder: Path) -> dict[str, Any]:
    try:
        about = json.loads((folder / "encoder.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DeepJoinError(
            f"{folder} is not an encoder folder: encoder.json cannot be read ({error}). "
            "Copy the folder again, or export the model anew."
        ) from None
    if about.get("format") != FORMAT:
        raise DeepJoinError(
            f"{folder} has format {about.get('format')}; this version reads format {FORMAT}. "
            "Upgrade deepjoin, or export the model anew."
        )
    return dict(about)


def _digest(folder: Path) -> str:
    content = xxh3_128()
    for name in _FILES:
        content.update((folder / name).read_bytes())
    return content.hexdigest()


def _session(folder: Path, threads: int | None) -> onnxruntime.InferenceSession:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    weights = _handed_over(read_weights(folder / "weights.npz"))
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
    options.add_external_initializers(list(weights), values)
    try:
        graph = (folder / "graph.onnx").read_bytes()
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    # The library's own errors share no public base class.
    except Exception as error:
        raise DeepJoinError(
            f"The model in {folder} cannot be loaded: {' '.join(str(error).split())[:160]}. "
            "Copy the folder again, or export the model anew."
        ) from None


def _handed_over(stored: dict[str, Array]) -> dict[str, Array]:
    """Restore the matrices; the table of words stays in codes, in which the graph looks up."""
    ready: dict[str, Array] = {}
    for name, parts in grouped(stored).items():
        if name == "words":
            ready |= {f"{name}.{part}": array for part, array in parts.items()}
        else:
            ready[name] = parts[""] if "" in parts else restored(parts)
    return ready
