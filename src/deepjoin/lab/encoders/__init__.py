"""Encoders of the methods the paper compares its own with (section 5.1).

``KINDS`` is the entry point of the group ``deepjoin.encoders``: ``--encoder KIND:WHERE``.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from deepjoin.embed.columns.encoder import ColumnEncoder
from deepjoin.embed.columns.loading import EncoderKind


@dataclass(frozen=True)
class _Lazily:
    """A function of a module here, imported when first called: some need torch."""

    module: str
    name: str

    def __call__(self, where: str, *, profile: str, device: str | None) -> ColumnEncoder:
        load = getattr(import_module(f"{__package__}.{self.module}"), self.name)
        encoder: ColumnEncoder = load(where, profile=profile, device=device)
        return encoder


#: The kinds by name, which is also the name of the search method that reads their vectors.
KINDS: dict[str, EncoderKind] = {
    "fasttext": EncoderKind("FILE.bin", _Lazily("averages", "load_fasttext")),
    "bert": EncoderKind("FOLDER", _Lazily("averages", "load_bert")),
    "mpnet": EncoderKind("FOLDER", _Lazily("averages", "load_mpnet")),
    "tabert": EncoderKind("FOLDER", _Lazily("tabert", "load_tabert")),
    "turl": EncoderKind("FOLDER", _Lazily("turl", "load_turl")),
    "mlp": EncoderKind("FOLDER", _Lazily("mlp", "load_mlp")),
    "sherlock": EncoderKind("", _Lazily("sherlock", "load_sherlock")),
}
