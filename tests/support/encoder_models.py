"""What the tests of column encoders share: tiny models by kind, and encoders loaded for tests."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from deepjoin.arrays import Float
from deepjoin.embed.columns import load_encoder
from deepjoin.embed.columns.encoder import TextEncoder
from deepjoin.embed.columns.text import TextSettings
from tests.support.tiny_models import save_model, save_sentence_model

#: Gives the folder of a tiny model, by kind.
Folders = Callable[[str], Path]

ODD = [
    "",
    " \t\n",
    "Firms. Company contains 3 values (5, 2, 3.3): Apple, GE, IBM.",
    "شركة, תל אביב, 東京都, Ελλάδα, Москва, ไทย, 한국",
    "😀👩‍👩‍👧‍👦🇫🇷" * 40,
    "\x00\x01\x7f\u200b\ufeff\u202e",
    "\ud800 lone \udfff",
    "x" * 100_000,
    "a b " * 50_000,
    "꧁꧂ ༼ ༽",
    "e\u0301" * 300,
]


def model_folders(places: pytest.TempPathFactory) -> Folders:
    """Give the folder of a tiny model, made when first asked for."""
    made: dict[str, Path] = {}

    def folder(kind: str) -> Path:
        if kind not in made:
            pytest.importorskip("sentence_transformers")
            import torch

            torch.set_num_threads(1)  # tiny models wait longer for threads than they compute
            place = places.mktemp(kind.replace(" ", "-"))
            name = kind.removeprefix("sentence ")
            save = save_model if name == kind else save_sentence_model
            made[kind] = save(place, name)
        return made[kind]

    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Give the folder of a tiny model, made when first asked for."""
    return model_folders(tmp_path_factory)


def loaded(spec: str | Path, text: TextSettings | None = None) -> TextEncoder:
    """Load an encoder of one thread, on the processor."""
    found = load_encoder(str(spec), settings=text, threads=1, device="cpu")
    assert found is not None
    return found


@cache
def default() -> TextEncoder:
    """Load the default encoder once."""
    return loaded("default")


def export(source: Path, target: Path, texts: list[str] | None = None) -> Path:
    """Export a model to a folder that needs no torch."""
    pytest.importorskip("onnx")
    from deepjoin.lab.onnx_export import export_encoder

    return export_encoder(source, target, "tiny", made_texts(source) if texts is None else texts)


def made_texts(source: Path) -> list[str]:
    """Make columns of random words that a model knows, always the same ones."""
    try:
        vocabulary = json.loads((source / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    except (OSError, ValueError):
        return []
    words = sorted(word for word in vocabulary if word[0] != "[" and word[:2] != "##")
    chance = random.Random(0)
    texts: list[str] = []
    for _ in range(320):
        name = chance.choice(words)
        cells = [
            " ".join(chance.choice(words) for _ in range(chance.choice((1, 1, 2, 3))))
            for _ in range(24)
        ]
        texts.append(f"{name}: {', '.join(cells)}.")
    return texts


def cosines(one: Float, other: Float) -> Float:
    """Compare vectors row by row."""
    return (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
