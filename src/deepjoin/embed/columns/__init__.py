"""Columns to vectors (paper, section 4.2): the seam where language models plug in.

>>> encoder = load_encoder("none")
>>> encoder is None
True
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from deepjoin.embed.columns.base import ColumnEncoder
from deepjoin.embed.columns.kinds import check_kind, load_kind, split_kind
from deepjoin.embed.columns.places import check_place
from deepjoin.embed.columns.text import TextSettings
from deepjoin.errors import MissingExtra

#: The model that comes with the package.
DEFAULT = Path(__file__).parent / "default"


def load_encoder(
    spec: str,
    *,
    settings: TextSettings | None = None,
    profile: str | None = None,
    threads: int | None = None,
    device: str | None = None,
) -> ColumnEncoder | None:
    """Load an encoder: ``default``, ``none``, a model folder, or the name of a public model.

    Without ``settings`` columns become texts as they did when the model was tuned; ``profile``
    is how the lake compares cells. ``threads`` is for models without torch, ``device`` for
    those with it: others, and so the default, always work on the processor. ``KIND:WHERE``, as
    in ``fasttext:cc.en.300.bin``, is the encoder of another method, which takes no ``settings``.
    """
    if spec == "none":
        return None
    kind, where = split_kind(spec)
    if kind:
        profile = profile or (settings or TextSettings()).profile
        return load_kind(kind, where, profile=profile, device=device)
    folder = DEFAULT if spec == "default" else Path(spec)
    if (folder / "encoder.json").is_file():
        _check_installed(folder)
        from deepjoin.embed.columns.onnx_encoder import OnnxEncoder

        return OnnxEncoder(folder, settings, profile, threads)
    if not folder.is_dir():
        check_kind(spec)
        check_place(spec)
    from deepjoin.embed.columns.torch_encoder import TorchEncoder

    return TorchEncoder(spec, settings, profile, device)


def _check_installed(folder: Path) -> None:
    missing = [name for name in ("onnxruntime", "tokenizers") if find_spec(name) is None]
    if missing:
        raise MissingExtra(
            f"The encoder '{folder.name}' needs {' and '.join(missing)}: "
            f"pip install {' '.join(missing)}, or use the encoder 'none'."
        )
