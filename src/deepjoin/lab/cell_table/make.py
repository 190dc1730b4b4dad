"""Make a cell table: ``python -m deepjoin.lab.cell_table.make --base MODEL -o DIR``.

The vectors are distilled from a transformer, then tuned on spellings: rows move so that
spellings of one thing meet and its neighbours part.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.sparse import csr_matrix, diags
from scipy.special import softmax

from deepjoin.arrays import Double, Float, Int, Marks
from deepjoin.embed.cells.folder import TableFacts
from deepjoin.embed.cells.table import StaticTable
from deepjoin.embed.cells.tokens import Bags, plain_word, split_words
from deepjoin.embed.cells.words import is_split, levelled, shades, slip_ratios, weights
from deepjoin.errors import DeepJoinError
from deepjoin.lab.cell_table.variants import (
    SpellingPair,
    draw_pairs,
    phrase_rows,
    read_aliases,
    read_codes,
    read_columns,
    real_words,
)
from deepjoin.optional import require
from deepjoin.show.wording import in_options

Floats = npt.NDArray[np.floating[Any]]
#: Returns the current rows of some numbers.
RowsOf = Callable[[Int], Floats]
Features = Callable[[list[str], RowsOf], csr_matrix]

#: Strings whose features are counted, and word pieces that are run, at a time.
_AT_ONCE, _PIECES_AT_ONCE = 1 << 16, 512
#: Number of unused pieces and control tokens at the start of BERT's vocabulary.
_RESERVED = 999
#: Relative frequency at which a piece or a letter group counts half; rarer ones count more.
_HALF_PIECE, _HALF_GRAM = 1e-4, 1e-3
#: Initial lengths: tuning moves rows by shares of their lengths, so none may be too small.
_GRAM_LENGTH = 0.15
_NUMBER_LENGTH, _NUMBER_WEIGHT = 0.7, 0.3
#: Learning rate, regularisation towards the initial rows, and scale of the softmax.
_RATE, _HOLD, _SCALE = 2e-3, 1.0, 20.0
#: Adam's decay rates, and its epsilon.
_FIRST, _SECOND, _TINY = 0.9, 0.999, 1e-8
#: Replaces minus infinity for strings of a batch that must not repel each other.
_MASKED = -1e4
#: Rows of hashed letter groups, and pairs in a batch.
_BUCKETS, _BATCH = 16384, 512


class FeatureReader:
    """Writes strings as sparse weights of the rows of a table, which tuning differentiates.

    Rows of number pieces replace the directions that the table gives numbers.
    """

    def __init__(self, facts: TableFacts, tokenizer: str, words: Sequence[str] = ()) -> None:
        self._width, self._recipe = facts.pieces + facts.buckets, facts.recipe
        blank = np.zeros((self._width, facts.dimension), np.float32)
        self._bare = StaticTable.pack(facts, tokenizer, blank, words=words)

    def features(self, values: list[str], rows: RowsOf) -> csr_matrix:
        """Return the weights that a table with these rows gives them for each value."""
        starts, numbers, words = split_words(pa.array(values, pa.string()))
        inner, places, parts = split_words(
            pa.array([plain_word(word) for word in words], pa.string())
        )
        by_word = _counts(Bags(inner, places), len(parts)) @ self._by_part(parts, rows)
        shaded = shades(starts, numbers, words, self._recipe)
        return (_counts(Bags(starts, numbers), len(words), shaded) @ by_word).tocsr()

    def frequencies(self, values: Iterable[str]) -> Double:
        """Count the values that use each row."""
        distinct = list(values)
        ones, total = np.ones((self._width, 1), np.float32), np.zeros(self._width)
        for start in range(0, len(distinct), _AT_ONCE):
            found = self.features(distinct[start : start + _AT_ONCE], lambda ids: ones[ids])
            total += np.bincount(found.indices, minlength=len(total))
        return total

    def _by_part(self, parts: list[str], rows: RowsOf) -> csr_matrix:
        own, split = self._own(parts, rows)
        places, corrected = self._bare.slips(parts, split)
        if corrected:
            own = self._mixed(own, places, self._own(corrected, rows)[0], rows)
        return diags(levelled(_sum(own, rows), self._recipe.even)) @ own

    def _own(self, parts: list[str], rows: RowsOf) -> tuple[csr_matrix, Marks]:
        """Return the weights of words as spelled, and which words are not a single piece."""
        bags = self._bare.bags(parts)
        split = is_split(parts, bags[0])
        pieces, letters = (_counts(some, self._width) for some in bags)
        along, across = weights(_sum(pieces, rows), _sum(letters, rows), split, self._recipe)
        return (diags(along) @ pieces + diags(across) @ letters).tocsr(), split

    def _mixed(
        self, own: csr_matrix, places: Int, corrected: csr_matrix, rows: RowsOf
    ) -> csr_matrix:
        kept = np.ones(own.shape[0], np.float32)
        kept[places] = slip_ratios(
            _sum(own[places], rows), _sum(corrected, rows), self._recipe.slip
        )  # fmt: skip
        share = np.full(len(places), self._recipe.slip, np.float32)
        shape = (own.shape[0], len(places))
        put = csr_matrix((share, (places, np.arange(len(places)))), shape=shape)
        return (diags(kept) @ own + put @ corrected).tocsr()


def _counts(
    bags: Bags, width: int, weighed: Float | None = None
) -> csr_matrix:  # fmt: skip
    weighed = np.ones(len(bags.ids), np.float32) if weighed is None else weighed
    counts = csr_matrix((weighed, bags.ids, bags.starts), shape=(len(bags.starts) - 1, width))
    counts.sum_duplicates()
    return counts


def _sum(counts: csr_matrix, rows: RowsOf) -> Float:
    """Sum rows by their counts, looking up only those that occur."""
    used, places = np.unique(counts.indices, return_inverse=True)
    narrow = csr_matrix((counts.data, places, counts.indptr), shape=(counts.shape[0], len(used)))
    sums: Float = (narrow @ rows(used)).astype(np.float32)
    return sums


def piece_outputs(model: str | Path, start: int, end: int) -> Float:
    """Run ``[CLS] piece [SEP]`` for every word piece and return the output at the piece."""
    torch: Any = require("torch", "train", f"Distilling {model}")
    AutoModel: Any = require("transformers", "train", f"Distilling {model}").AutoModel
    network = AutoModel.from_pretrained(str(model), local_files_only=True).eval()
    count = network.config.vocab_size
    outputs = np.zeros((count, network.config.hidden_size), np.float32)
    with torch.inference_mode():
        for first in range(0, count, _PIECES_AT_ONCE):
            pieces = torch.arange(first, min(first + _PIECES_AT_ONCE, count))
            ends = (torch.full_like(pieces, start), torch.full_like(pieces, end))
            inputs = torch.stack([ends[0], pieces, ends[1]], 1)
            found = network(input_ids=inputs, attention_mask=torch.ones_like(inputs))
            outputs[first : first + len(pieces)] = found.last_hidden_state[:, 1].numpy()
    return outputs


def principal(outputs: Float, dimension: int) -> Float:
    """Centre, keep the principal directions, and scale rows to a mean length of 1."""
    centred = outputs - outputs[_RESERVED:].mean(axis=0)
    _, directions = np.linalg.eigh(centred[_RESERVED:].T @ centred[_RESERVED:])
    kept = centred @ directions[:, ::-1][:, :dimension]
    # The sign of an eigenvector is arbitrary: fix it, so that tables are reproducible.
    kept = kept * np.where(kept[np.abs(kept).argmax(axis=0), np.arange(dimension)] < 0, -1, 1)
    scaled: Float = (kept / np.linalg.norm(kept, axis=1).mean()).astype(np.float32)
    return scaled


def first_table(pieces: Float, is_number: Marks, frequency: Double, seed: int) -> Float:
    """Weight pieces by rarity, give numbers random directions, append rows of letter groups.

    A transformer puts 12 beside 13; as keys they have nothing in common, so each piece of a
    number starts at random.
    """
    chance, count = np.random.default_rng(seed), len(pieces)
    weights = _rarity(frequency[:count], _HALF_PIECE)
    table = pieces * weights[:, None]
    lengths = _NUMBER_LENGTH * np.maximum(weights[is_number], _NUMBER_WEIGHT)
    table[is_number] = _directions(chance, lengths, pieces.shape[1])
    grams = _GRAM_LENGTH * _rarity(frequency[count:], _HALF_GRAM)
    whole: Float = np.concatenate([table, _directions(chance, grams, pieces.shape[1])])
    return whole.astype(np.float32)


def _rarity(frequency: Double, half: float) -> Double:
    """Weight features by a / (a + p), the smooth inverse frequency."""
    weights: Double = half / (half + frequency / max(frequency.sum(), 1))
    return weights


def _directions(chance: np.random.Generator, lengths: Double, dimension: int) -> Double:
    drawn = chance.standard_normal((len(lengths), dimension))
    placed: Double = drawn * (lengths / np.linalg.norm(drawn, axis=1))[:, None]
    return placed


class _Adam:
    """The movement of each row, in multiples of its length, with Adam's two running means.

    Rows count their own steps: most occur in few batches, and Adam corrects its means by the number
    of steps. The sparse optimisers of torch count one for all rows.
    """

    def __init__(self, table: Floats) -> None:
        self.table = table
        self.lengths = np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-3)
        self.moved, self.mean, self.square = (np.zeros_like(table) for _ in range(3))
        self.steps = np.zeros((len(table), 1), np.float32)

    def rows(self, numbers: Int) -> Floats:
        moved: Floats = self.table[numbers] + self.lengths[numbers] * self.moved[numbers]
        return moved

    def step(self, numbers: Int, slope: Floats, rate: float) -> None:
        held = 2 * _HOLD / len(numbers) * self.moved[numbers]
        slope = slope * self.lengths[numbers] + held
        mean = _FIRST * self.mean[numbers] + (1 - _FIRST) * slope
        square = _SECOND * self.square[numbers] + (1 - _SECOND) * slope**2
        self.mean[numbers], self.square[numbers] = mean, square
        self.steps[numbers] += 1
        count = self.steps[numbers]
        ahead = (mean / (1 - _FIRST**count)) / (np.sqrt(square / (1 - _SECOND**count)) + _TINY)
        self.moved[numbers] -= rate * ahead


def tune(
    table: Floats, batches: Iterable[list[SpellingPair]], steps: int, features: Features
) -> Floats:
    """Return the table after one pass over the batches; rows that do not occur stay the same."""
    moves = _Adam(table)
    for done, batch in enumerate(batches):
        left, right = (
            features([getattr(p, side) for p in batch], moves.rows) for side in ("left", "right")
        )
        numbers = np.unique(np.concatenate([left.indices, right.indices]))
        slope = _slope(left[:, numbers], right[:, numbers], moves.rows(numbers), batch)
        moves.step(numbers, slope, _RATE * (1 - done / steps))
    return moves.rows(np.arange(len(table)))


def _slope(left: csr_matrix, right: csr_matrix, rows: Floats, batch: list[SpellingPair]) -> Floats:
    """Return the gradient of the symmetric in-batch softmax loss by the rows that occur."""
    (mine, my_lengths), (theirs, their_lengths) = _unit(left @ rows), _unit(right @ rows)
    scores = _SCALE * (mine @ theirs.T)
    scores[_same(batch)] = _MASKED
    by_scores = softmax(scores, axis=1) + softmax(scores, axis=0)
    by_scores[np.diag_indices(len(batch))] -= 2
    by_scores *= _SCALE / len(batch)
    by_mine = _through_unit(by_scores @ theirs, mine, my_lengths)
    by_theirs = _through_unit(by_scores.T @ mine, theirs, their_lengths)
    slope: Floats = (left.T @ by_mine + right.T @ by_theirs).astype(np.float32)
    return slope


def _unit(vectors: Floats) -> tuple[Floats, Floats]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True) + 1e-6
    return vectors / lengths, lengths


def _through_unit(slope: Floats, unit: Floats, lengths: Floats) -> Floats:
    along: Floats = (slope * unit).sum(axis=1, keepdims=True)
    across: Floats = (slope - along * unit) / lengths
    return across


def _same(batch: list[SpellingPair]) -> npt.NDArray[np.bool_]:
    """Mark pairs of different rows of the batch that mean the same."""
    keys = np.array([pair.key for pair in batch])
    lefts = np.array([pair.left for pair in batch])
    rights = np.array([pair.right for pair in batch])
    same: Marks = (keys[:, None] == keys) | (lefts[:, None] == rights)
    np.fill_diagonal(same, False)
    return same


@dataclass(frozen=True)
class TableSettings:
    """The recipe of a cell table."""

    dimension: int = 128
    #: Batches of spellings that tune the table.
    steps: int = 400
    #: Cosines from which on two cells may match, and do match.
    floor: float = 0.55
    tau: float = 0.65
    seed: int = 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the table and write it."""
    parser = argparse.ArgumentParser(
        prog="python -m deepjoin.lab.cell_table.make", description=__doc__
    )
    parser.add_argument(
        "--base", required=True, metavar="MODEL", help="folder of a BERT-like model"
    )
    parser.add_argument("--aliases", required=True, metavar="FILE", help="surface, entity, count")
    parser.add_argument("--columns", required=True, metavar="PARQUET", help="columns with cells")
    for field in fields(TableSettings):
        parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default)
    parser.add_argument("-o", "--out", required=True, metavar="DIR")
    options = parser.parse_args(arguments)
    settings = TableSettings(**{one.name: vars(options)[one.name] for one in fields(TableSettings)})
    try:
        table = make(options.base, options.aliases, options.columns, settings)
    except DeepJoinError as error:
        sys.stderr.write(f"{in_options(str(error))}\n")
        return 1
    table.save(options.out)
    sys.stderr.write(f"{options.out}: {table.name}, digest {table.digest}\n")
    return 0


def make(
    base: str | Path, aliases: str | Path, columns: str | Path, settings: TableSettings
) -> StaticTable:
    """Distil the word pieces of a model, tune them on spellings, add phrases and codes."""
    path = Path(base) / "tokenizer.json"
    if not path.is_file():
        raise DeepJoinError(
            f"{base} has no tokenizer.json. Give the folder of a BERT-like model with its "
            "word-piece tokenizer, such as all-MiniLM-L6-v2."
        )
    tokenizer = path.read_text("utf-8")
    vocabulary: dict[str, int] = json.loads(tokenizer)["model"]["vocab"]
    outputs = piece_outputs(base, vocabulary["[CLS]"], vocabulary["[SEP]"])
    bounds = (settings.floor, settings.tau)
    sizes = (settings.dimension, len(outputs), _BUCKETS)
    facts = TableFacts("default", *sizes, vocabulary["[UNK]"], *bounds)
    known, cells = [*read_aliases(aliases), *read_codes()], read_columns(columns)
    words = real_words(cells, vocabulary)
    reader = FeatureReader(facts, tokenizer, words)
    frequency = reader.frequencies(dict.fromkeys(cell for column in cells for cell in column))
    pieces = principal(outputs, settings.dimension)
    is_number = np.zeros(len(pieces), bool)
    for piece, row in vocabulary.items():
        is_number[row] = piece.removeprefix("##").isdigit()
    first = first_table(pieces, is_number, frequency, settings.seed)
    batches = draw_pairs(known, cells, settings.steps, _BATCH, settings.seed)
    tuned = tune(first, batches, settings.steps, reader.features)
    rough = StaticTable.pack(facts, tokenizer, tuned, words=words)
    phrases, rows = phrase_rows(known, rough.encode)
    return StaticTable.pack(facts, tokenizer, np.concatenate([tuned, rows]), phrases, words)


if __name__ == "__main__":
    sys.exit(main())
