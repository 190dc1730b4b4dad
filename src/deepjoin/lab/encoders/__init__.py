"""Encoders of the methods the paper compares its own with (section 5.1).

``KINDS`` is the entry point of the group ``deepjoin.encoders``: ``--encoder KIND:WHERE``.
"""

from __future__ import annotations

import pkgutil

from deepjoin.embed.columns.encoder import ColumnEncoder
from deepjoin.embed.columns.loading import EncoderKind, LoadEncoder


def _on_use(reference: str, *more: str) -> LoadEncoder:
    """Refer to a function here as ``module:name``; modules load when used, as some need torch."""

    def load(where: str, *, profile: str, device: str | None) -> ColumnEncoder:
        make = pkgutil.resolve_name(f"{__package__}.{reference}")
        encoder: ColumnEncoder = make(where, *more, profile=profile, device=device)
        return encoder

    return load


#: The kinds by name, which is also the name of the search method that reads their vectors.
KINDS: dict[str, EncoderKind] = {
    "fasttext": EncoderKind("FILE.bin", _on_use("averages:load_fasttext")),
    "bert": EncoderKind("FOLDER", _on_use("averages:load_averages", "bert")),
    "mpnet": EncoderKind("FOLDER", _on_use("averages:load_averages", "mpnet")),
    "tabert": EncoderKind("FOLDER", _on_use("tabert:load_tabert")),
    "turl": EncoderKind("FOLDER", _on_use("turl:load_turl")),
    "mlp": EncoderKind("FOLDER", _on_use("averages:load_mlp")),
    "sherlock": EncoderKind("", _on_use("sherlock:load_sherlock")),
}
