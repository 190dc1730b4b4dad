"""Make a cell table: ``python -m deepjoin.lab.cell_table.make --base MODEL -o DIR``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from deepjoin.embed.cells.folder import Facts
from deepjoin.embed.cells.table import StaticTable
from deepjoin.errors import DeepJoinError
from deepjoin.lab.cell_table.distil import first_table, piece_outputs, principal
from deepjoin.lab.cell_table.features import FeatureReader
from deepjoin.lab.cell_table.phrases import phrase_rows
from deepjoin.lab.cell_table.tune import tune
from deepjoin.lab.cell_table.variants import (
    draw_pairs,
    read_aliases,
    read_codes,
    read_columns,
    real_words,
)

_BUCKETS = 16384
_BATCH = 512


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the table and write it."""
    options = _parser().parse_args(arguments)
    try:
        table = make(
            options.base, options.aliases, options.columns, dimension=options.dimension,
            steps=options.steps, floor=options.floor, tau=options.tau, seed=options.seed,
        )  # fmt: skip
    except DeepJoinError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    table.save(options.out)
    sys.stderr.write(f"{options.out}: {table.name}, digest {table.digest}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m deepjoin.lab.cell_table.make", description=__doc__
    )
    parser.add_argument(
        "--base", required=True, metavar="MODEL", help="folder of a BERT-like model"
    )
    parser.add_argument("--aliases", required=True, metavar="FILE", help="surface, entity, count")
    parser.add_argument("--columns", required=True, metavar="PARQUET", help="columns with cells")
    parser.add_argument("--dimension", type=int, default=128)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--floor", type=float, default=0.55)
    parser.add_argument("--tau", type=float, default=0.65)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--out", required=True, metavar="DIR")
    return parser


def make(
    base: str | Path, aliases: str | Path, columns: str | Path, *, dimension: int = 128,
    steps: int = 400, floor: float = 0.55, tau: float = 0.65, seed: int = 0, name: str = "default",
) -> StaticTable:  # fmt: skip
    """Distil a model's word pieces, tune them on spellings, add the phrases and codes."""
    tokenizer = _tokenizer_text(Path(base))
    vocabulary = json.loads(tokenizer)["model"]["vocab"]
    outputs = piece_outputs(base, vocabulary["[CLS]"], vocabulary["[SEP]"])
    facts = Facts(
        name, dimension, len(outputs), _BUCKETS, vocabulary["[UNK]"], floor, tau
    )  # fmt: skip
    known, cells = [*read_aliases(aliases), *read_codes()], read_columns(columns)
    words = real_words(cells, vocabulary)
    reader = FeatureReader(facts, tokenizer, words)
    frequency = reader.frequencies(dict.fromkeys(cell for column in cells for cell in column))
    pieces = principal(outputs, dimension)
    first = first_table(pieces, _numbers(vocabulary, len(pieces)), frequency, seed)
    batches = draw_pairs(known, cells, steps, _BATCH, seed)
    tuned = tune(first, batches, steps, reader.features)
    rough = StaticTable.pack(facts, tokenizer, tuned, words=words)
    phrases, rows = phrase_rows(known, rough.encode)
    return StaticTable.pack(facts, tokenizer, np.concatenate([tuned, rows]), phrases, words)


def _numbers(vocabulary: dict[str, int], count: int) -> npt.NDArray[np.bool_]:
    numbers = np.zeros(count, bool)
    for piece, row in vocabulary.items():
        numbers[row] = piece.removeprefix("##").isdigit()
    return numbers


def _tokenizer_text(base: Path) -> str:
    path = base / "tokenizer.json"
    if not path.is_file():
        raise DeepJoinError(
            f"{base} has no tokenizer.json. Give the folder of a BERT-like model with its "
            "word-piece tokenizer, such as all-MiniLM-L6-v2."
        )
    return path.read_text("utf-8")


if __name__ == "__main__":
    sys.exit(main())
