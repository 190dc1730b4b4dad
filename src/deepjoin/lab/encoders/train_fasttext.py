"""Train fastText on a lake: ``python -m deepjoin.lab.encoders.train_fasttext INDEX -o lake.bin``.

Words of one column get similar vectors, and so do words that share letters.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from deepjoin.embed.cells.fasttext import load_vectors
from deepjoin.embed.cells.tokens import plain_word
from deepjoin.errors import DeepJoinError
from deepjoin.files import written_aside
from deepjoin.lake import Lake, open_lake
from deepjoin.optional import require
from deepjoin.show.wording import in_options

#: Values drawn from a column; more of one kind add little.
_VALUES = 200
#: Rows for letter groups: as many as the lake has words, within these bounds.
_FEWEST_ROWS, _MOST_ROWS = 1 << 12, 1 << 20
#: Threads race for the same numbers, so only one thread gives the same model twice. Alone, it draws
#: the first tenth of the vectors and leaves the others as memory is: a process of its own, whose
#: blocks all come from the system, has zeros there, and what fastText would have drawn is added
#: in the end. Elsewhere than on Linux, ten threads draw a tenth each.
_ALONE = """
import json, sys
import fasttext, numpy
options = json.loads(sys.argv[1])
model = fasttext.train_unsupervised(**options)
if options["thread"] == 1:
    vectors, random = model.get_input_matrix().copy(), numpy.random.default_rng(0)
    rest = vectors.reshape(-1)[vectors.size // 10 :]
    rest += random.uniform(-1 / options["dim"], 1 / options["dim"], len(rest)).astype(rest.dtype)
    model.set_matrices(vectors, model.get_output_matrix())
model.save_model(sys.argv[2])
"""
_ZEROED = {"MALLOC_MMAP_THRESHOLD_": "4096", "MALLOC_ARENA_MAX": "1", "MALLOC_TOP_PAD_": "0"}
#: Letters count more and context less than in prose: the cells of a column are all similar.
_RECIPE = {
    "thread": 1 if sys.platform == "linux" else 10,
    "model": "skipgram",
    "minCount": 1,
    "minn": 2,
    "maxn": 4,
    "ws": 2,
    "t": 0.01,
    "verbose": 0,
}


class TrainedFastText(NamedTuple):
    """A model and what it was trained on."""

    path: Path
    columns: int
    words: int
    #: Digest of the vectors, as results name them.
    digest: str


def train_fasttext(
    lake: Lake, out: str | Path, *, dimension: int = 100, epochs: int = 5, seed: int = 0
) -> TrainedFastText:  # fmt: skip
    """Train skipgram with subwords on the values of a lake, and write the model to ``out``.

    An index takes it as ``cells``. The same values and ``seed``, which draws values of large
    columns, give the same model, byte for byte.
    """
    out = Path(out)
    _check(lake, out, dimension, epochs)
    require("fasttext", "fasttext", "Training fastText")
    # An incomplete model never appears under its name.
    with written_aside(out) as aside:
        text = aside.with_name("columns.txt")
        columns = words = 0
        with text.open("w", encoding="utf-8") as file:
            for line in filter(None, _lines(lake, seed)):
                file.write(" ".join(line) + "\n")
                columns, words = columns + 1, words + len(line)
        if not words:
            raise DeepJoinError(
                f"{lake.location} has no words to train on. Index tables with text columns first."
            )
        rows = min(max(words, _FEWEST_ROWS), _MOST_ROWS)
        sizes = {"dim": dimension, "epoch": epochs, "bucket": rows}
        options = json.dumps({"input": str(text), **sizes, **_RECIPE})
        command = [sys.executable, "-c", _ALONE, options, str(aside)]
        done = subprocess.run(
            command, env=os.environ | _ZEROED, capture_output=True, text=True, check=False
        )
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["it was stopped"])[-1]
            raise DeepJoinError(f"fastText failed on {lake.location}: {why}.")
    return TrainedFastText(out, columns, words, load_vectors(out).digest)


def _check(lake: Lake, out: Path, dimension: int, epochs: int) -> None:
    if lake.settings.hash_only:
        raise DeepJoinError(
            f"{lake.location} stores hashes and has no words to train on. "
            "Give an index made without `hash_only`."
        )
    if out.suffix != ".bin" or not out.parent.is_dir():
        raise DeepJoinError(
            f"The model cannot be written to {out}. Give a file name that ends in .bin, in an "
            "existing folder."
        )
    if dimension < 1 or epochs < 1:
        raise DeepJoinError(
            f"The dimension is {dimension}, the number of epochs {epochs}; both must be >= 1."
        )


def _lines(lake: Lake, seed: int) -> Iterator[list[str]]:
    """Yield the words of some values of each column, normalised as for a look-up."""
    chance = np.random.default_rng(seed)
    for segment in lake.index.segments:
        values = segment.values
        dead = segment.dead if segment.dead is not None else np.zeros(values.columns, bool)
        for column in np.flatnonzero(~dead).tolist():
            start, stop = values.cells_of(column)
            drawn = chance.permutation(stop - start)[:_VALUES] + start
            numbers = values.cell_values[drawn].tolist()
            words = [word for number in numbers for word in values.values[number].split()]
            yield [part for word in words for part in plain_word(word).split()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Train a model and print how to use it."""
    parser = argparse.ArgumentParser(
        prog="python -m deepjoin.lab.encoders.train_fasttext",
        description="Train fastText on the values of an index.",
    )
    parser.add_argument("index", metavar="INDEX", help="an index, or the folder that has one")
    parser.add_argument("-o", "--out", required=True, metavar="FILE.bin")
    parser.add_argument("--dimension", type=int, default=100, metavar="N")
    parser.add_argument("--epochs", type=int, default=5, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    options = parser.parse_args(arguments)
    try:
        trained = train_fasttext(
            open_lake(options.index), options.out, dimension=options.dimension,
            epochs=options.epochs, seed=options.seed,
        )  # fmt: skip
    except DeepJoinError as error:
        sys.stderr.write(f"{in_options(str(error))}\n")
        return 1
    sys.stderr.write(
        f"{trained.path} ({trained.digest}): trained on {trained.words} words of "
        f"{trained.columns} columns. "
        f"Use it with: deepjoin index {options.index} --cells {trained.path}, or for the method "
        f"fasttext: deepjoin index {options.index} --encoder fasttext:{trained.path}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
