"""Make a cell table: ``python -m deepjoin.cells.make --base MODEL --aliases FILE ... -o DIR``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.sparse import csr_matrix

from deepjoin.cells.distil import first_table, piece_outputs, principal
from deepjoin.cells.phrases import phrase_rows
from deepjoin.cells.table import Facts, StaticTable
from deepjoin.cells.tokens import Bags, plain_word, split_words
from deepjoin.cells.tune import tune
from deepjoin.cells.variants import draw_pairs, read_aliases, read_codes, read_columns
from deepjoin.errors import DeepJoinError

Floats = npt.NDArray[np.float32]

_BUCKETS = 16384
_BATCH = 512
_AT_ONCE = 1 << 16


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
    parser = argparse.ArgumentParser(prog="python -m deepjoin.cells.make", description=__doc__)
    parser.add_argument(
        "--base", required=True, metavar="MODEL", help="folder of a BERT-like model"
    )
    parser.add_argument("--aliases", required=True, metavar="FILE", help="surface, entity, count")
    parser.add_argument("--columns", required=True, metavar="PARQUET", help="columns with cells")
    parser.add_argument("--dimension", type=int, default=128)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--floor", type=float, default=0.55)
    parser.add_argument("--tau", type=float, default=0.65)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--out", required=True, metavar="DIR")
    return parser


def make(
    base: str | Path, aliases: str | Path, columns: str | Path, *, dimension: int = 128,
    steps: int = 1000, floor: float = 0.55, tau: float = 0.65, seed: int = 0, name: str = "default",
) -> StaticTable:  # fmt: skip
    """Distil a model's word pieces, tune them on spellings, add the phrases and codes."""
    tokenizer = _tokenizer_text(Path(base))
    vocabulary = json.loads(tokenizer)["model"]["vocab"]
    outputs = piece_outputs(base, vocabulary["[CLS]"], vocabulary["[SEP]"])
    facts = Facts(
        name, dimension, len(outputs), _BUCKETS, vocabulary["[UNK]"], floor, tau
    )  # fmt: skip
    known, cells = [*read_aliases(aliases), *read_codes()], read_columns(columns)
    reader = FeatureReader(facts, tokenizer)
    frequency = reader.frequencies(dict.fromkeys(cell for column in cells for cell in column))
    pieces = principal(outputs, dimension)
    first = first_table(pieces, _numbers(vocabulary, len(pieces)), frequency, seed)
    batches = draw_pairs(known, cells, steps, _BATCH, seed)
    tuned = tune(first, batches, steps, reader.features)
    rough = StaticTable.pack(facts, tokenizer, tuned, [])
    phrases, rows = phrase_rows(known, rough.encode)
    return StaticTable.pack(facts, tokenizer, np.concatenate([tuned, rows]), phrases)


class FeatureReader:
    """Turns strings into sparse counts of the rows a table would sum for them."""

    def __init__(self, facts: Facts, tokenizer: str) -> None:
        blank = np.zeros((facts.pieces + facts.buckets, facts.dimension), np.float32)
        self._facts, self._bare = facts, StaticTable.pack(facts, tokenizer, blank, [])

    def features(self, values: list[str]) -> csr_matrix:
        """Count every value's rows."""
        starts, numbers, words = split_words(pa.array(values, pa.string()))
        by_word = self._by_word([plain_word(word) for word in words])
        return (_counts(Bags(starts, numbers), len(words)) @ by_word).tocsr()

    def frequencies(self, values: Iterable[str]) -> npt.NDArray[np.float64]:
        """Count the values that have each row."""
        distinct = list(values)
        total = np.zeros(self._facts.pieces + self._facts.buckets)
        for start in range(0, len(distinct), _AT_ONCE):
            found = self.features(distinct[start : start + _AT_ONCE])
            total += np.bincount(found.indices, minlength=len(total))
        return total

    def _by_word(self, words: list[str]) -> csr_matrix:
        width = self._facts.pieces + self._facts.buckets
        pieces, grams = (_counts(bags, width) for bags in self._bare.bags(words))
        return (pieces + grams).tocsr()


def _counts(bags: Bags, width: int) -> csr_matrix:
    ones = np.ones(len(bags.ids), np.float32)
    counts = csr_matrix((ones, bags.ids, bags.starts), shape=(len(bags.starts) - 1, width))
    counts.sum_duplicates()
    return counts


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
