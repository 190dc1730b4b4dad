"""Generate a corpus of any size with the document frequencies of a given corpus.

OUT gets columns.parquet; queries.parquet, columns of the same lake that were held out, with the
sizes of CORPUS's queries; and queries-1000.parquet, queries of 1,000 cells, a part of several
columns of the lake each, the rest in no column. The histogram of document frequencies is
reported for both corpora: rare values keep the number of columns they are in, frequent
ones the share of the columns. Cells are made-up words with the lengths of CORPUS's.

Columns lie on a line, in families of similar size. A value that several columns share goes into
one stretch of neighbours just long enough for it; stretches begin at multiples of their length,
so that values share stretches and columns of a family join, as tables on one topic do. Families
differ in how much they take of values that many columns have, and that few have. What room is
left takes values of no other column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from common import command_line, emit, machine, say, show
from deepjoin.arrays import Double, Int, Int32
from deepjoin.read.corpus import SCHEMA, CorpusSource
from frequencies import Measured, histogram, measure, scaled

Generator = np.random.Generator

_BLOCK = 20_000
_LARGE = 1000
_HEADS = 3000
FAMILY = 16
_FAMILIES_MIXED = 64
_POSTINGS = 1 << 22
#: Values in at least this many columns are frequent; this share of their uses is placed anywhere.
_MANY = 8
_ANYWHERE = 1e-3
_CONSONANTS = "bcdfghjklmnprstvwxyz"
_SYLLABLES = [c + v for c in _CONSONANTS for v in "aeiou"]
_BASE = len(_SYLLABLES)
_LONGEST = 100
_VARIANTS = 64
#: Numbers below each bound get that many syllables: the most frequent values are the shortest.
_BOUNDS = ((2, _BASE**2), (3, _BASE**3), (5, _BASE**5))


@dataclass(frozen=True)
class Layout:
    """The lake as numbers: the values of each column, and the column at each place of the line."""

    offsets: Int
    values: Int32
    line: Int
    #: How many different values there are; larger numbers are values of no column.
    count: int

    def column(self, number: int) -> Int32:
        """Return the values of a column."""
        return self.values[self.offsets[number] : self.offsets[number + 1]]


def make_layout(measured: Measured, columns: int, last_sizes: Int, random: Generator) -> Layout:
    """Lay out a lake; the last columns get the sizes given. Holds about 60 bytes a cell."""
    frequencies = scaled(measured, columns)
    line = random.permutation(columns)
    sizes = _in_families(random.choice(measured.sizes[measured.sizes > 0], columns), random)
    sizes[np.argsort(line)[columns - len(last_sizes) :]] = last_sizes
    placed = list(_placed(frequencies, sizes, random))
    shared = np.concatenate([places for places, _ in placed])
    numbers = np.concatenate([values for _, values in placed])
    room = np.maximum(sizes - np.bincount(shared, minlength=columns), 0)
    alone = np.repeat(np.arange(columns, dtype=np.int32), room)
    count = len(frequencies) + len(alone)
    numbers = np.append(numbers, np.arange(len(frequencies), count, dtype=np.int32))
    holders = line[np.append(shared, alone)]
    order = np.argsort(holders << 32 | random.integers(1 << 32, size=len(holders)))
    offsets = np.append(0, np.cumsum(np.bincount(holders, minlength=columns)))
    return Layout(offsets, numbers[order], line, count)


def _in_families(sizes: Int, random: Generator) -> Int:
    """Group similar sizes into families, in random order."""
    whole = len(sizes) // FAMILY * FAMILY
    mixed = FAMILY * _FAMILIES_MIXED
    parts = [np.sort(sizes[at : min(at + mixed, whole)]) for at in range(0, whole, mixed)]
    families = [random.permutation(part.reshape(-1, FAMILY)).ravel() for part in parts]
    return np.concatenate([*families, sizes[whole:]])


def _placed(frequencies: Int, sizes: Int, random: Generator) -> Iterator[tuple[Int32, Int32]]:
    """Yield (places on the line, values), some millions at a time; frequencies descend."""
    by_many, by_few = _appetites(sizes, random)
    many = int(np.searchsorted(-frequencies, -_MANY, "right"))
    for mass, first, last in ((by_many, 0, many), (by_few, many, len(frequencies))):
        before = np.cumsum(frequencies[first:last])
        steps = np.arange(0, before[-1] if len(before) else 0, _POSTINGS)
        cuts = first + np.searchsorted(before, steps)
        for start, stop in zip(cuts, np.append(cuts[1:], last), strict=True):
            here = frequencies[start:stop]
            value = np.repeat(np.arange(start, stop, dtype=np.int32), here)
            yield _places(here, mass, random), value


def _appetites(sizes: Int, random: Generator) -> tuple[Double, Double]:
    """Cumulate, along the line taken twice, how much columns take of each kind of value."""
    families = len(sizes) // FAMILY + 1
    many = random.random(families) ** 5
    few = random.beta(0.4, 0.14, families) * (1 - many)
    weights = (sizes * np.repeat(kind, FAMILY)[: len(sizes)] + 1e-6 for kind in (many, few))
    by_many, by_few = (np.append(0, np.cumsum(np.append(one, one))) for one in weights)
    return by_many, by_few


def _places(frequencies: Int, mass: Double, random: Generator) -> Int32:
    """Give each value a stretch of the line, and one column in each equal part of it."""
    columns = (len(mass) - 1) // 2
    reach = np.int64(2) ** np.ceil(np.log2(frequencies)).astype(np.int64)
    reach[(frequencies >= _ANYWHERE * columns) | (reach > columns)] = columns
    home = np.searchsorted(mass, random.uniform(0, mass[columns], len(reach)), "right") - 1
    home -= home % reach
    turn = np.arange(frequencies.sum()) - np.repeat(
        np.cumsum(frequencies) - frequencies, frequencies
    )
    home, reach, parts = (np.repeat(one, frequencies) for one in (home, reach, frequencies))
    first, after = home + turn * reach // parts, home + (turn + 1) * reach // parts
    point = mass[first] + random.random(len(first)) * (mass[after] - mass[first])
    place = np.clip(np.searchsorted(mass, point, "right") - 1, first, after - 1)
    return np.asarray(place % columns, np.int32)


class Texts:
    """Turns numbers into texts: a word that encodes the number, then words up to its length."""

    def __init__(self, lengths: Int, seed: int) -> None:
        self._lengths = np.clip(lengths, 1, _LONGEST)
        self._first = pa.array([syllable.capitalize() for syllable in _SYLLABLES])
        self._next = pa.array([*_SYLLABLES, ""])
        self._tails = pa.array(_tails(np.random.default_rng(seed)))

    def of(self, numbers: Int) -> pa.Array:
        """Write each number, from 0 to 10 ** 10, as a text that no other number has."""
        digits, syllables = _digits(numbers)
        parts = [self._first.take(pa.array(digits[0]))]
        parts += [self._next.take(pa.array(digit)) for digit in digits[1:]]
        chosen = _scrambled(numbers)
        wanted = self._lengths[chosen % len(self._lengths)] - 2 * syllables
        tail = np.maximum(wanted, 0) * _VARIANTS + (chosen >> 40) % _VARIANTS
        return pc.binary_join_element_wise(*parts, self._tails.take(pa.array(tail)), "")


def _digits(numbers: Int) -> tuple[list[Int], Int]:
    """Split numbers into syllables; those a number does not need are the blank one."""
    digits = [np.full(len(numbers), _BASE) for _ in range(_BOUNDS[-1][0])]
    syllables = np.zeros(len(numbers), np.int64)
    lower = 0
    for count, bound in _BOUNDS:
        here = np.flatnonzero((numbers >= lower) & (numbers < bound))
        # A factor prime to the base mixes the digits and keeps numbers apart.
        rest = numbers[here] * 7_654_321 % bound
        for place in range(count):
            digits[place][here] = rest % _BASE
            rest //= _BASE
        syllables[here] = count
        lower = bound
    return digits, syllables


def _scrambled(numbers: Int) -> Int:
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return ((mixed ^ (mixed >> np.uint64(29))) >> np.uint64(1)).astype(np.int64)


def _tails(random: Generator) -> list[str]:
    """Write some runs of words for every length; each starts with a space, none ends with one."""
    text = "".join(
        "".join(random.choice(_SYLLABLES, random.integers(1, 5))) + " " for _ in range(4096)
    )
    starts = random.integers(0, len(text) - _LONGEST, (_LONGEST + 1, _VARIANTS))
    return [_tail(text, start, length) for length, row in enumerate(starts) for start in row]


def _tail(text: str, start: int, length: int) -> str:
    if length < 2:
        return ""
    return " " + text[start : start + length - 1].strip().ljust(length - 1, "n")


def batches(
    layout: Layout, texts: Texts, first: int, stop: int, kind: str
) -> Iterator[pa.RecordBatch]:
    """Write some columns out, a block at a time; each is the key column of its own table."""
    families = np.argsort(layout.line) // FAMILY
    for start in range(first, stop, _BLOCK):
        end = min(start + _BLOCK, stop)
        offsets = layout.offsets[start : end + 1]
        cells = texts.of(layout.values[offsets[0] : offsets[-1]].astype(np.int64))
        numbers = range(start - first, end - first)
        yield _batch(kind, numbers, families[start:end], texts, offsets - offsets[0], cells)


def _batch(
    kind: str, numbers: Iterable[int], families: Int, texts: Texts, offsets: Int, cells: pa.Array
) -> pa.RecordBatch:
    """Assemble columns in the format of a corpus."""
    tables = [f"{kind}-{number:07}" for number in numbers]
    fields = {
        "column_id": pa.array([f"{table}#0" for table in tables]),
        "table_id": pa.array(tables),
        "title": texts.of(families + 1_000_000),
        "column_name": texts.of(families * 31 % _HEADS),
        "context": pa.array([""] * len(tables)),
    }
    lists = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), cells.cast("large_string"))
    arrays = [field.cast("large_string") for field in fields.values()]
    return pa.RecordBatch.from_arrays([*arrays, lists], schema=SCHEMA)


def large_queries(
    layout: Layout, texts: Texts, count: int, columns: int, random: Generator
) -> pa.RecordBatch:
    """Make queries of 1,000 cells, 300 to 900 of them from neighbouring columns of the lake."""
    new = layout.count
    parts: list[Int] = []
    for known in random.integers(300, 900, count).tolist():
        values = _neighbouring(layout, known, columns, random)
        parts.append(random.permutation(np.append(values, np.arange(new, new + _LARGE - known))))
        new += _LARGE - known
    offsets = np.arange(count + 1) * _LARGE
    cells = texts.of(np.concatenate(parts))
    return _batch("large-query", range(count), np.arange(count), texts, offsets, cells)


def _neighbouring(layout: Layout, wanted: int, columns: int, random: Generator) -> Int:
    """Take all cells of one column of the lake, and half of those of the next ones."""
    place = int(random.integers(len(layout.line)))
    found = np.zeros(0, np.int32)
    while len(found) < wanted:
        number = layout.line[place % len(layout.line)]
        if number < columns:
            cells = layout.column(number)
            half = random.choice(cells, (len(cells) + 1) // 2, replace=False)
            found = np.append(found, np.setdiff1d(half if len(found) else cells, found))
        place += 1
    return found[:wanted].astype(np.int64)


def write(path: Path, parts: Iterable[pa.RecordBatch]) -> None:
    """Write batches as a Parquet file, one row group each."""
    with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        for part in parts:
            writer.write_batch(part)


def compare(like: Measured, made: Measured) -> None:
    """Report the histograms of both corpora side by side."""
    rows = [
        one | {"made_values": other["values"], "made_cells": other["cells"]}
        for one, other in zip(histogram(like), histogram(made), strict=True)
    ]
    keys = ("by", "from", "values", "made_values", "cells", "made_cells")
    show([keys, *([row[key] for key in keys] for row in rows)])
    for row in rows:
        emit("generate", **row)
    for name, measured in (("like", like), ("made", made)):
        emit("generate", corpus=name, **_summary(measured))


def _summary(measured: Measured) -> dict[str, object]:
    quantiles = [5, 25, 50, 75, 95, 99]
    return {
        "columns": len(measured.sizes),
        "cells": int(measured.sizes.sum()),
        "values": len(measured.frequencies),
        "cells_a_column": float(measured.sizes.mean()),
        "sizes_p5_25_50_75_95_99": np.percentile(measured.sizes, quantiles).tolist(),
        "lengths_p5_25_50_75_95_99": np.percentile(measured.lengths, quantiles).tolist(),
        "most_frequent_share": float(measured.frequencies.max() / len(measured.sizes)),
    }


def query_sizes(corpus: CorpusSource, measured: Measured, count: int, random: Generator) -> Int:
    """Draw query sizes: those of the corpus's queries, or of its columns if it has none."""
    has_queries = (corpus.folder / "queries.parquet").exists()
    sizes = measure(corpus, "queries.parquet").sizes if has_queries else measured.sizes
    return random.choice(sizes[sizes > 0], count)


def main() -> None:
    """Generate the corpus and report how similar it is."""
    parser = command_line(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT", help="the folder to write")
    parser.add_argument("--like", type=Path, required=True, metavar="CORPUS", help="imitate this")
    parser.add_argument("--columns", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--queries", type=int, default=250, metavar="N")
    parser.add_argument("--large-queries", type=int, default=50, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    random = np.random.default_rng(given.seed)
    emit("generate", machine=machine(), seed=given.seed)
    corpus = CorpusSource(given.like)
    like = measure(corpus)
    say(f"{len(like.sizes):,} columns measured")
    sizes = query_sizes(corpus, like, given.queries, random)
    total = given.columns + given.queries
    layout = make_layout(like, total, sizes, random)
    texts = Texts(like.lengths, given.seed)
    given.out.mkdir(parents=True, exist_ok=True)
    write(given.out / "columns.parquet", batches(layout, texts, 0, given.columns, "table"))
    held_out = batches(layout, texts, given.columns, total, "query")
    write(given.out / "queries.parquet", held_out)
    large = large_queries(layout, texts, given.large_queries, given.columns, random)
    write(given.out / f"queries-{_LARGE}.parquet", [large])
    say(f"{given.columns:,} columns written")
    compare(like, measure(CorpusSource(given.out)))


if __name__ == "__main__":
    main()
