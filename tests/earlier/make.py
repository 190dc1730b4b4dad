"""Make an index as an earlier version writes it, with the answers that it gives.

PYTHONPATH=CHECKOUT_OF_THAT_VERSION/src python tests/earlier/make.py tests/earlier/format-N.zip

Only for formats of the past: a zip that is here stays as that version made it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import zipfile
from itertools import cycle
from pathlib import Path
from random import Random

import deepjoin

_WORDS = [
    *("united", "states", "kingdom", "germany", "france", "italy", "spain", "peru", "japan"),
    *("brazil", "chad", "mali", "fiji", "oman", "new", "zealand", "south", "korea", "north"),
]
_NAMES = [
    *("United States", "United Kingdom", "Germany", "France", "Italy", "Spain", "Peru", "Japan"),
    *("Brazil", "Chad", "Mali", "Fiji", "Oman", "New Zealand", "South Korea", "North Macedonia"),
]
_QUERIES = [
    ["Peru", "CHAD", "mali", "Fiji"],
    ["United States", "Zealand", "Korea South"],
    ["c-001", "c-002", "c-005"],
]


def write(name: str, *columns: list[object]) -> None:
    """Write a table of columns, the name first, of a day long ago."""
    rows = [",".join(map(str, row)) for row in zip(*columns, strict=True)]
    path = Path("tables", name)
    path.write_text("\n".join(rows) + "\n")
    os.utime(path, (1.7e9, 1.7e9))


def main() -> None:
    """Write tables, index them in two steps, take one out, and keep what searches find."""
    out, random = Path(sys.argv[1]).absolute(), Random(3)
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        Path("tables").mkdir()
        vectors = [[f"{random.gauss(0, 1):.4f}" for _ in range(8)] for _ in _WORDS]
        lines = [" ".join([word, *row]) for word, row in zip(_WORDS, vectors, strict=True)]
        Path("words.vec").write_text(f"{len(lines)} 8\n" + "\n".join(lines) + "\n")
        upper, cases = [name.upper() for name in _NAMES], cycle((str.title, str.lower))
        write("countries.csv", ["country", *_NAMES], ["area", *range(100, 1700, 100)])
        write("shouted.csv", ["land", *upper], ["code", *(f"c-{i:03}" for i in range(16))])
        mixed = [case(name) for case, name in zip(cases, 3 * _NAMES, strict=False)]
        write("mixed.csv", ["place", *mixed], ["year", *(1990 + i % 6 for i in range(48))])
        write("gone.csv", ["country", *_NAMES[:9]])
        deepjoin.index("tables", "index", vectors={"cells": str(Path("words.vec").absolute())})
        later = [name + (" " if i % 3 else "") for i, name in enumerate(_NAMES[3:])]
        write("later.csv", ["Country", *later], ["n", *range(13)])
        lake = deepjoin.index("index")
        lake.remove("gone.csv")
        answers = [
            [query, kind, [[hit.table, hit.column, round(hit.joinability, 3), hit.equi.matched,
                            sorted([match.query, match.target] for match in hit.matches)]
                           for hit in lake.search(query, 10, join=kind)]]
            for query in _QUERIES for kind in ("equi", "semantic", "any")
        ]  # fmt: skip
        Path("answers.json").write_text(json.dumps(answers, indent=1))
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
            for path in sorted(Path().rglob("*")):
                if path.is_file() and path.name != "lock":
                    file.write(path)


if __name__ == "__main__":
    main()
