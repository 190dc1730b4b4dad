"""Columns to vectors (paper, section 4.2): the seam where language models plug in.

>>> encoder = load_encoder("none")
>>> encoder is None
True
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from deepjoin.columns import Column
from deepjoin.encoders.text_encoder import FloatMatrix, TextEncoder
from deepjoin.errors import DeepJoinError, MissingExtra
from deepjoin.text import Frequency, TextSettings

#: The model that comes with the package.
DEFAULT = Path(__file__).parent / "default"


class ColumnEncoder(Protocol):
    """Gives each column one vector, not normalised; close vectors mean joinable columns.

    ``digest`` stands for all a vector depends on beside the column: two encoders with one
    digest give the same vectors. A vector does not depend on the columns encoded with it.
    """

    name: str
    digest: str
    dimension: int

    def encode(self, columns: Sequence[Column], frequency: Frequency) -> FloatMatrix:
        """Encode columns; the frequency of values in the lake decides what tall ones show."""
        ...

    def encode_texts(self, texts: Sequence[str]) -> FloatMatrix:
        """Encode texts as they are."""
        ...


def load_encoder(
    spec: str,
    *,
    settings: TextSettings | None = None,
    profile: str | None = None,
    threads: int | None = None,
    device: str | None = None,
) -> TextEncoder | None:
    """Load an encoder: ``default``, ``none``, a model folder, or the name of a public model.

    Without ``settings`` columns become texts as they did when the model was tuned; ``profile``
    is how the lake compares cells. ``threads`` is for models without torch, ``device`` for
    those with it: others, and so the default, always work on the processor.
    """
    if spec == "none":
        return None
    folder = DEFAULT if spec == "default" else Path(spec)
    if (folder / "encoder.json").is_file():
        _check_installed(folder)
        from deepjoin.encoders.onnx_encoder import OnnxEncoder

        return OnnxEncoder(folder, settings, profile, threads)
    if not folder.is_dir() and _is_path(spec):
        raise DeepJoinError(
            f"There is no encoder folder '{spec}'. Give 'default', 'none', a model folder, or the "
            "name of a public model."
        )
    from deepjoin.encoders.torch_encoder import TorchEncoder

    return TorchEncoder(spec, settings, profile, device)


def _check_installed(folder: Path) -> None:
    missing = [name for name in ("onnxruntime", "tokenizers") if find_spec(name) is None]
    if missing:
        raise MissingExtra(
            f"The encoder '{folder.name}' needs {' and '.join(missing)}: "
            f"pip install {' '.join(missing)}, or use the encoder 'none'."
        )


def _is_path(spec: str) -> bool:
    """Tell a folder that should be there from a name such as ``owner/model``."""
    path = Path(spec)
    return path.is_absolute() or spec[:1] in (".", "~") or len(path.parts) > 2
