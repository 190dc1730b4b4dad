"""Train fastText on a lake: ``python -m deepjoin.lab.encoders.train_fasttext INDEX -o lake.bin``.

Words that stand in one column come near to each other, and so do words that share letters.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from deepjoin.embed.cells.tokens import plain_word
from deepjoin.errors import DeepJoinError, MissingExtra
from deepjoin.files import written_aside
from deepjoin.indexing import open_lake
from deepjoin.lake import Lake

#: Values drawn of a column: more of one kind teach little.
_VALUES = 200
#: Groups of letters that share a row: as many as the lake has words, within these bounds.
_FEWEST_ROWS, _MOST_ROWS = 1 << 12, 1 << 20
#: Letters should count more and neighbours less than in prose: those of a column are all alike.
_RECIPE = {
    # Each thread makes a tenth of the first vectors: with fewer, some are whatever memory held.
    "thread": 10,
    "model": "skipgram",
    "minCount": 1,
    "minn": 2,
    "maxn": 4,
    "ws": 2,
    "t": 0.01,
    "verbose": 0,
}


class Trained(NamedTuple):
    """A model and what it was trained on."""

    path: Path
    columns: int
    words: int


def train_fasttext(
    lake: Lake, out: str | Path, *, dimension: int = 100, epochs: int = 5, seed: int = 0
) -> Trained:  # fmt: skip
    """Train skipgram with subwords on the values of a lake, and write the model to ``out``.

    An index takes it as ``cells``. Threads race, so each training gives another model; the
    ``seed`` is for the values that are drawn.
    """
    out = _checked(lake, Path(out), dimension, epochs)
    fasttext = _package()
    # A model that is cut short is never seen under its name.
    with written_aside(out) as aside:
        text = aside.with_name("columns.txt")
        columns, words = _write(text, _lines(lake, seed))
        if not words:
            raise DeepJoinError(
                f"{lake.location} has no words to train on. Index tables with texts first."
            )
        rows = min(max(words, _FEWEST_ROWS), _MOST_ROWS)
        sizes = {"dim": dimension, "epoch": epochs, "bucket": rows}
        model = fasttext.train_unsupervised(input=str(text), **sizes, **_RECIPE)
        model.save_model(str(aside))
    return Trained(out, columns, words)


def _checked(lake: Lake, out: Path, dimension: int, epochs: int) -> Path:
    if lake.settings.hash_only:
        raise DeepJoinError(
            f"{lake.location} is a lake of hashes, which has no words to train on. "
            "Give an index made without --hash-only."
        )
    if out.suffix != ".bin" or not out.parent.is_dir():
        raise DeepJoinError(
            f"The model cannot be written to {out}. Give a file name that ends in .bin, in a "
            "folder that is there."
        )
    if dimension < 1 or epochs < 1:
        raise DeepJoinError(
            f"The dimension is {dimension}, the number of epochs {epochs}; both are at least 1."
        )
    return out


def _package() -> Any:
    try:
        import fasttext
    except ImportError:
        raise MissingExtra(
            "Training fastText needs its package: pip install 'deepjoin[fasttext]'"
        ) from None
    return fasttext


def _write(path: Path, lines: Iterator[list[str]]) -> tuple[int, int]:
    """Write a line for each column that has words; count columns and words."""
    columns = words = 0
    with path.open("w", encoding="utf-8") as file:
        for line in lines:
            if line:
                file.write(" ".join(line) + "\n")
                columns, words = columns + 1, words + len(line)
    return columns, words


def _lines(lake: Lake, seed: int) -> Iterator[list[str]]:
    """Give the words of some values of each column, as cells are looked up later."""
    chance = np.random.default_rng(seed)
    for segment in lake.index.segments:
        values = segment.values
        dead = segment.dead if segment.dead is not None else np.zeros(values.columns, bool)
        for column in np.flatnonzero(~dead).tolist():
            start, stop = values.cells_of(column)
            drawn = chance.permutation(stop - start)[:_VALUES] + start
            numbers = values.cell_values[drawn].tolist()
            yield [part for number in numbers for part in _words(values.values[number])]


def _words(value: str) -> list[str]:
    return [part for word in value.split() for part in plain_word(word).split()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Train a model and say how to use it."""
    options = _parser().parse_args(arguments)
    try:
        trained = train_fasttext(
            open_lake(options.index), options.out, dimension=options.dimension,
            epochs=options.epochs, seed=options.seed,
        )  # fmt: skip
    except DeepJoinError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stderr.write(
        f"{trained.path}: trained on {trained.words} words of {trained.columns} columns. "
        f"Use it with: deepjoin index {options.index} --cells {trained.path}, or for the method "
        f"fasttext: --encoder fasttext:{trained.path}\n"
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m deepjoin.lab.encoders.train_fasttext",
        description="Train fastText on the values of an index.",
    )
    parser.add_argument("index", metavar="INDEX", help="an index, or the folder that has one")
    parser.add_argument("-o", "--out", required=True, metavar="FILE.bin")
    parser.add_argument("--dimension", type=int, default=100, metavar="N")
    parser.add_argument("--epochs", type=int, default=5, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    return parser


if __name__ == "__main__":
    sys.exit(main())
