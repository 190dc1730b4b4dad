"""Encoders of the methods that are compared with ours, by what stands before the colon."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from deepjoin.embed.columns.base import ColumnEncoder
from deepjoin.errors import DeepJoinError, unknown_name


class Kind(NamedTuple):
    """A kind of encoder: what it is loaded from, and the function that loads it."""

    #: What stands behind the colon; nothing for an encoder that needs nothing.
    where: str
    #: A module of `compared` and a function of it, imported when the kind is asked for.
    loader: str

    def load(self, where: str, *, profile: str, device: str | None) -> ColumnEncoder:
        """Load the encoder for a lake whose cells are compared by ``profile``."""
        module, _, name = self.loader.partition(".")
        found = import_module(f"{__package__}.compared.{module}")
        load: Callable[..., ColumnEncoder] = getattr(found, name)
        return load(where, profile=profile, device=device)


#: The kinds by name, which is that of their method as well.
KINDS: dict[str, Kind] = {
    "fasttext": Kind("FILE.bin", "averages.load_fasttext"),
    "bert": Kind("FOLDER", "averages.load_bert"),
    "mpnet": Kind("FOLDER", "averages.load_mpnet"),
    "tabert": Kind("FOLDER", "tabert.load_tabert"),
    "turl": Kind("FOLDER", "turl.load_turl"),
    "mlp": Kind("FOLDER", "mlp.load_mlp"),
    "sherlock": Kind("", "sherlock.load_sherlock"),
}


def split_kind(spec: str) -> tuple[str, str]:
    """Tell the kind of an encoder from where it is; the models of `deepjoin` have no kind.

    >>> split_kind("fasttext:cc.en.300.bin"), split_kind("default")
    (('fasttext', 'cc.en.300.bin'), ('', 'default'))
    """
    kind, colon, where = spec.partition(":")
    # The shell expands no ~ behind a colon.
    return (kind, os.path.expanduser(where)) if colon and kind in KINDS else ("", spec)


def option_of(kind: str) -> str:
    """Write the option that chooses an encoder of a kind.

    >>> option_of("fasttext"), option_of("")
    ('--encoder fasttext:FILE.bin', '--encoder default')
    """
    return f"--encoder {kind}:{KINDS[kind].where}" if kind else "--encoder default"


def load_kind(kind: str, where: str, *, profile: str, device: str | None) -> ColumnEncoder:
    """Load an encoder of a kind from where it is."""
    if KINDS[kind].where and not where:
        raise DeepJoinError(f"Nothing stands behind '{kind}:'. Give {option_of(kind)}")
    return KINDS[kind].load(where, profile=profile, device=device)


def check_kind(spec: str) -> None:
    """Refuse a misspelt kind, and a kind without a colon; ``spec`` is no folder."""
    kind, colon, _ = spec.partition(":")
    if spec in KINDS:
        lacks = "does not say which" if KINDS[spec].where else "is written with a colon"
        raise DeepJoinError(f"'{spec}' is a kind of encoder, and {lacks}. Give {option_of(spec)}")
    # A single letter is a drive.
    if colon and kind.isidentifier() and len(kind) > 1:
        raise unknown_name("encoder kind", kind, "deepjoin", KINDS)
