"""Encoder kinds that other packages add: ``KIND:WHERE``, found by the entry point group."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Protocol

from deepjoin.embed.columns.base import ColumnEncoder
from deepjoin.errors import DeepJoinError, unknown_name

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


@cache
def encoder_kinds() -> Mapping[str, EncoderKind]:
    """Return the kinds that installed packages declare, by name."""
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


def option_of(kind: str) -> str:
    """Write the command-line option that selects an encoder kind.

    >>> option_of("fasttext"), option_of("")
    ('--encoder fasttext:FILE.bin', '--encoder default')
    """
    return f"--encoder {kind}:{encoder_kinds()[kind].where}" if kind else "--encoder default"


def load_kind(kind: str, where: str, *, profile: str, device: str | None) -> ColumnEncoder:
    """Load an encoder of a kind."""
    found = encoder_kinds()[kind]
    if found.where and not where:
        raise DeepJoinError(f"Nothing follows '{kind}:'. Give {option_of(kind)}")
    return found.load(where, profile=profile, device=device)


def check_kind(spec: str) -> None:
    """Refuse a misspelt kind, and a kind without a colon; ``spec`` is not a folder."""
    kind, colon, _ = spec.partition(":")
    kinds = encoder_kinds()
    if spec in kinds:
        lacks = "needs a place" if kinds[spec].where else "is written with a colon"
        raise DeepJoinError(f"'{spec}' is an encoder kind and {lacks}. Give {option_of(spec)}")
    # A single letter is a drive.
    if colon and kind.isidentifier() and len(kind) > 1:
        raise unknown_name("encoder kind", kind, "deepjoin", kinds)
