"""Fixtures of the training tests: small tables and a tiny language model."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.histories import write
from tests.support.tiny_models import save_model

SYLLABLES = ("al", "be", "co", "da", "em", "fi", "go", "hu")


@pytest.fixture(scope="module")
def training_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write 80 tables about ten topics."""
    folder = tmp_path_factory.mktemp("tables")
    chance = random.Random(3)
    words = [f"{one}{two}{end}" for one in SYLLABLES for two in SYLLABLES for end in "nsx"]
    topics = [chance.sample(words, 30) for _ in range(10)]
    for number in range(80):
        cells = chance.sample(topics[number % 10], 12)
        write(folder / f"{number}.csv", {"name": cells, "amount": [str(chance.random())] * 12})
    return folder


@pytest.fixture(scope="module")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Save a tiny BERT."""
    return str(save_model(tmp_path_factory.mktemp("tiny") / "bert", "bert"))
