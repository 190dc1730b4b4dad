"""Load a column encoder by name, folder, or ``KIND:WHERE``.

The product's own encoders are known here; other packages add kinds through the entry point group
``deepjoin.encoders``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from deepjoin.embed.columns.encoder import ColumnEncoder
from deepjoin.embed.columns.text import TextChange, TextSettings
from deepjoin.errors import DeepJoinError, MissingExtra, unknown_name

#: The model that comes with the package.
DEFAULT = Path(__file__).parent / "default"
#: Each entry point of this group names a mapping from kind to `EncoderKind`.
GROUP = "deepjoin.encoders"


class LoadEncoder(Protocol):
    """Loads an encoder for a lake whose cells are compared by ``profile``."""

    def __call__(self, where: str, *, profile: str, device: str | None) -> ColumnEncoder:
        """Load the encoder from a file or folder."""


@dataclass(frozen=True)
class EncoderKind:
    """A kind of encoder; the search method that reads its vectors has the same name."""

    #: Placeholder for what follows the colon, e.g. FOLDER; empty if nothing does.
    where: str
    load: LoadEncoder


def load_encoder(
    spec: str,
    *,
    settings: TextChange | None = None,
    profile: str | None = None,
    threads: int | None = None,
    device: str | None = None,
) -> ColumnEncoder | None:
    """Load an encoder: ``default``, ``none``, a model folder, or the name of a public model.

    Without ``settings`` columns become texts as they did when the model was tuned; a mapping
    changes single settings. ``profile`` is how the lake compares cells. ``threads`` is for models
    without torch, ``device`` for those with it: the default model always runs on the processor.
    ``KIND:WHERE``, e.g. ``fasttext:cc.en.300.bin``, is an encoder that another package adds; it
    takes no ``settings``.

    >>> load_encoder("none") is None
    True
    """
    if spec == "none":
        return None
    kind, where = split_kind(spec)
    if kind:
        found = encoder_kinds()[kind]
        if found.where and not where:
            raise DeepJoinError(f"Nothing follows '{kind}:'. Give `encoder=\"{example_of(kind)}\"`")
        if isinstance(settings, Mapping):
            raise DeepJoinError(
                f"`{next(iter(settings))}` says how columns become texts, and the encoder "
                f"'{kind}' reads cells, not texts. Leave it out."
            )
        profile = profile or (settings or TextSettings()).profile
        return found.load(where, profile=profile, device=device)
    folder = DEFAULT if spec == "default" else Path(spec)
    if (folder / "encoder.json").is_file():
        missing = [name for name in ("onnxruntime", "tokenizers") if find_spec(name) is None]
        if missing:
            raise MissingExtra(
                f"The encoder '{folder.name}' needs {' and '.join(missing)}: "
                f"pip install {' '.join(missing)}, or use the encoder 'none'."
            )
        from deepjoin.embed.columns.onnx_encoder import OnnxEncoder

        return OnnxEncoder(folder, settings, profile, threads)
    if not folder.is_dir():
        check_kind(spec)
        check_place(spec)
    from deepjoin.embed.columns.torch_encoder import TorchEncoder

    return TorchEncoder(spec, settings, profile, device)


@cache
def encoder_kinds() -> Mapping[str, EncoderKind]:
    """Return the kinds that installed packages declare, by name."""
    from importlib.metadata import entry_points  # 5 ms, which most searches need not spend

    kinds: dict[str, EncoderKind] = {}
    for entry in entry_points(group=GROUP):
        kinds |= entry.load()
    return kinds


def split_kind(spec: str) -> tuple[str, str]:
    """Split an encoder into its kind and its place; the product's own models have no kind.

    >>> split_kind("fasttext:cc.en.300.bin"), split_kind("default")
    (('fasttext', 'cc.en.300.bin'), ('', 'default'))
    """
    kind, colon, where = spec.partition(":")
    # Reading entry points takes milliseconds, so a name without a colon does not pay for it.
    if not colon or kind not in encoder_kinds():
        return "", spec
    return kind, os.path.expanduser(where)  # the shell expands no ~ after a colon


def example_of(kind: str) -> str:
    """Write an encoder of a kind as a user names it, with a placeholder for its place.

    >>> example_of("fasttext"), example_of("")
    ('fasttext:FILE.bin', 'default')
    """
    return f"{kind}:{encoder_kinds()[kind].where}" if kind else "default"


def check_kind(spec: str) -> None:
    """Refuse a misspelt kind, and a kind without a colon; ``spec`` is not a folder."""
    kind, colon, _ = spec.partition(":")
    kinds = encoder_kinds()
    if spec in kinds:
        lacks = "needs a place" if kinds[spec].where else "is written with a colon"
        raise DeepJoinError(
            f"'{spec}' is an encoder kind and {lacks}. Give `encoder=\"{example_of(spec)}\"`"
        )
    # A single letter is a drive.
    if colon and kind.isidentifier() and len(kind) > 1:
        raise unknown_name("encoder kind", kind, "deepjoin", kinds)


def check_place(spec: str, others: str = "'default', 'none', ") -> None:
    """Refuse a folder that should be there; a name such as ``owner/model`` need not be."""
    path = Path(spec)
    looks_like_path = path.is_absolute() or spec[:1] in (".", "~") or len(path.parts) > 2
    if looks_like_path and not path.is_dir():
        raise DeepJoinError(
            f"There is no encoder folder '{spec}'. Give {others}a model folder, or the name of a "
            "public model."
        )
