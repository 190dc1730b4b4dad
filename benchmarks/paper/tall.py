"""Tall columns from Faker's pools, as in the paper's experiment on sampling (table 11).

A pool is drawn once for each attribute, with Faker's real-world frequencies. Cells of a column are
drawn from the whole pool, as independent columns are, except for the share ``local``, which comes
from a part of the pool assigned to the column: then some columns join better than others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from deepjoin.errors import MissingExtra
from deepjoin.model import Column
from deepjoin.read.corpus import write_corpus

POOL = 30_000
#: Number of parts of a pool.
_STRETCHES = 40
_ATTRIBUTES: dict[str, Callable[[Any], str]] = {
    "address": lambda fake: fake.address().replace("\n", ", "),
    "company": lambda fake: fake.company(),
    "job": lambda fake: fake.job(),
    "person": lambda fake: fake.name(),
    "profile": lambda fake: fake.simple_profile()["username"],
}


def write_tall(
    out: Path, columns: int, queries: int, cells_each: int, local: float, seed: int, pools: Path
) -> None:
    """Write a corpus of columns with a given number of cells, and similar queries."""
    made = _columns(_pools(pools, seed), cells_each, local, seed)
    asked = list(islice(made, queries))
    write_corpus(out, islice(made, columns), asked)


def _columns(
    pools: dict[str, np.ndarray[Any, Any]], cells: int, local: float, seed: int
) -> Iterator[Column]:
    random = np.random.default_rng([seed, cells])
    number = 0
    while True:
        name = list(pools)[number % len(pools)]
        pool = pools[name]
        own = round(local * cells)
        stretch = len(pool) // _STRETCHES
        start = int(random.integers(len(pool)))
        near = (start + random.integers(stretch, size=own)) % len(pool)
        drawn = np.append(near, random.integers(len(pool), size=cells - own))
        table = f"{name}-{number:06}"
        yield Column(
            cells=pool[random.permutation(drawn)].tolist(),
            name=name,
            table=table,
            column_id=f"{table}#0",
        )
        number += 1


def _pools(folder: Path, seed: int) -> dict[str, np.ndarray[Any, Any]]:
    return {name: np.array(_pool(folder, name, seed), object) for name in _ATTRIBUTES}


def _pool(folder: Path, name: str, seed: int) -> list[str]:
    path = folder / f"{name}-{seed}-{POOL}.json"
    if not path.exists():
        fake = _faker(seed)
        texts = [_ATTRIBUTES[name](fake) for _ in range(POOL)]
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(texts), "utf-8")
    texts = json.loads(path.read_text("utf-8"))
    return list(texts)


def _faker(seed: int) -> Any:
    try:
        from faker import Faker
    except ImportError:
        raise MissingExtra(
            "Tall columns are made with Faker: pip install 'deepjoin[bench]', or leave them out."
        ) from None
    fake = Faker("en_US")
    fake.seed_instance(seed)
    return fake
