"""Segments and a stand-in for a language model, for tests of column vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from xxhash import xxh3_64_intdigest

import deepjoin
from deepjoin import Column, Settings
from deepjoin.arrays import Double, Float
from deepjoin.embed.columns.encoder import TextEncoder
from deepjoin.embed.columns.text import TextSettings
from deepjoin.store.segment import Segment


def segment_of(columns: Sequence[Column], folder: Path, **options: Any) -> Segment:
    """Index columns as one segment without vectors."""
    settings = Settings(**{"min_distinct": 1, **options})
    lake = deepjoin.index(
        list(columns), folder, settings=settings, encoder="none", vectors={"cells": "none"}
    )
    (segment,) = lake.index.segments
    return segment


class WordEncoder(TextEncoder):
    """A text is the sum of random vectors of its words; it remembers what it was asked."""

    def __init__(self, dimension: int = 24, **settings: Any) -> None:
        super().__init__("words", "words", dimension, TextSettings(**settings))
        self.asked: list[str] = []

    def count(self, texts: Sequence[str]) -> list[int]:
        """Count words."""
        return [len(text.split()) for text in texts]

    def encode_texts(self, texts: Sequence[str]) -> Float:
        """Add up the words of each text."""
        self.asked += texts
        return np.array([self._text(text) for text in texts], np.float32).reshape(
            len(texts), self.dimension
        )

    def _text(self, text: str) -> Double:
        words = [np.random.default_rng(xxh3_64_intdigest(word.encode())) for word in text.split()]
        drawn = [random.standard_normal(self.dimension) for random in words]
        return np.sum([np.zeros(self.dimension), *drawn], axis=0)
