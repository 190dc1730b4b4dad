"""Spellings to learn from: aliases, codes, variants of cells, and vectors of short names."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from deepjoin.arrays import Float
from deepjoin.embed.cells.tokens import plain_word
from deepjoin.embed.cells.words import SHORTEST
from deepjoin.errors import DeepJoinError
from deepjoin.normalise.canonical import canonical

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_PARENTHESIS = re.compile(r"\s*\([^)]*\)")
#: Most letters of a cell, and of an alias that gets its own vector.
_LONGEST, _LONGEST_PHRASE = 60, 12
_FEWEST_CELLS = 5
_CELLS_KEPT = 60
_CELLS_DRAWN = 8
#: A word in this many columns is not a typing error.
_COLUMNS_OF_A_WORD = 4
#: Weight of a listed code, relative to an alias seen once.
_CODE_COUNT = 4.0
CODES = Path(__file__).parent / "codes.txt"
#: The spelling of a code says less than that of a word, so its own vector weighs less.
_CODE_LETTERS, _CODE_WEIGHT, _WORD_WEIGHT = 4, 0.3, 1.0
#: Aliases with this cosine to what they name need no vector.
_NEAR = 0.75


@dataclass(frozen=True)
class Alias:
    """A surface form, the entity it names, how often, and the kind of column it was seen in."""

    surface: str
    entity: str
    count: float
    kind: str

    @property
    def plain(self) -> str:
        """The name of the entity without the part in parentheses that disambiguates it."""
        return _PARENTHESIS.sub("", self.entity).strip() or self.entity


@dataclass(frozen=True)
class SpellingPair:
    """Two strings of one meaning; pairs of one ``key`` are never each other's negatives."""

    left: str
    right: str
    key: str


def read_aliases(path: str | Path) -> list[Alias]:
    """Read aliases whose surface differs from the entity from a Parquet file."""
    wanted = ["surface", "entity", "count", "column_name"]
    names = pq.read_schema(path).names
    if missing := [name for name in wanted if name not in names]:
        raise DeepJoinError(
            f"{path} has no column '{missing[0]}'. An aliases file needs: {', '.join(wanted)}."
        )
    rows = pq.read_table(path, columns=wanted).to_pylist()
    aliases = [
        Alias(canonical(row["surface"]), canonical(row["entity"]), row["count"],
              (row["column_name"] or "").lower())
        for row in rows
    ]  # fmt: skip
    return [a for a in aliases if 0 < len(a.surface) <= _LONGEST and a.surface != a.entity]


def read_codes(path: Path = CODES) -> list[Alias]:
    """Read the list of well-known codes: on each line a name and its short forms."""
    lines = [line for line in path.read_text("utf-8").splitlines() if not line.startswith("#")]
    named = [line.split("|") for line in lines]
    return [Alias(code, name, _CODE_COUNT, "code") for name, *codes in named for code in codes]


def read_columns(path: str | Path) -> list[list[str]]:
    """Read the distinct short cells of every column with several, in table order."""
    columns = []
    for batch in pq.ParquetFile(path).iter_batches(columns=["cells"]):
        for cells in batch.column(0).to_pylist():
            distinct = dict.fromkeys(canonical(cell) for cell in cells if cell)
            columns.append([cell for cell in distinct if 0 < len(cell) <= _LONGEST])
    return [cells for cells in columns if len(cells) >= _FEWEST_CELLS]


def real_words(columns: Sequence[Sequence[str]], pieces: Container[str]) -> list[str]:
    """List words of several columns that are not a single piece, most frequent first."""
    counts: Counter[str] = Counter()
    for cells in columns:
        words = {word for cell in cells[:_CELLS_KEPT] for word in cell.split()}
        counts.update({part for word in words for part in plain_word(word).split()})
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [
        word for word, count in ordered
        if count >= _COLUMNS_OF_A_WORD and len(word) >= SHORTEST
        and word.isascii() and word.isalpha() and word not in pieces
    ]  # fmt: skip


def draw_pairs(
    aliases: Sequence[Alias], columns: Sequence[Sequence[str]], batches: int, size: int, seed: int
) -> Iterator[list[SpellingPair]]:
    """Draw batches: a quarter aliases of one kind, a quarter any, half variants of columns' cells.

    Aliases of one kind and cells of one column are similar but different things, which the table
    must learn to tell apart.
    """
    chance = random.Random(seed)
    ordered = sorted(aliases, key=lambda alias: alias.kind)
    for _ in range(batches):
        first = chance.randrange(len(ordered))
        alike = [ordered[(first + step) % len(ordered)] for step in range(size // 4)]
        batch = [_alias_pair(a, chance) for a in alike + chance.choices(ordered, k=size // 4)]
        while len(batch) < size:
            cells = chance.choice(columns)[:_CELLS_KEPT]
            drawn = chance.sample(cells, min(_CELLS_DRAWN, len(cells), size - len(batch)))
            batch += [SpellingPair(cell, variant(cell, chance, chance.choice(cells)), cell)
                      for cell in drawn]  # fmt: skip
        yield batch


def _alias_pair(alias: Alias, chance: random.Random) -> SpellingPair:
    plain = chance.random() < 0.5 and alias.plain != alias.surface
    return SpellingPair(alias.surface, alias.plain if plain else alias.entity, alias.entity)


def variant(cell: str, chance: random.Random, other: str) -> str:
    """Write a variant of a cell: shortened, reordered, with initials, mistyped or extended."""
    draw, words = chance.random(), cell.split()
    if draw < 0.25 and "(" in cell:
        return _PARENTHESIS.sub("", cell).strip() or cell
    if draw < 0.4 and "," in cell:
        return cell.split(",")[0].strip() or cell
    if draw < 0.5 and len(words) >= 2 and words[0].isalpha():
        return f"{words[0][0]}. {' '.join(words[1:])}"
    if draw < 0.6 and len(words) == 2:
        return f"{words[1]}, {words[0]}"
    place = chance.randrange(len(words))
    if draw < 0.75 and len(words) >= 2 and not words[place].isdigit():
        return " ".join(words[:place] + words[place + 1 :])
    if draw < 0.8:
        return f"{cell} ({' '.join(other.split()[:2])})"
    for _ in range(chance.choice((1, 1, 2))):
        words[place] = mistype(words[place], chance)
    return " ".join(words)


def mistype(word: str, chance: random.Random) -> str:
    """Drop, double, add, change or swap one letter inside a word of four letters or more."""
    if len(word) < 4 or any(character.isdigit() for character in word):
        return word
    place, letter = chance.randrange(1, len(word) - 1), chance.choice(_LETTERS)
    head, tail = word[:place], word[place:]
    slips = (tail[1:], tail[0] + tail, letter + tail, letter + tail[1:],
             tail[1] + tail[0] + tail[2:])  # fmt: skip
    return head + chance.choice(slips)


def phrase_rows(
    aliases: Sequence[Alias], encode: Callable[[list[str]], Float]
) -> tuple[list[str], Float]:
    """Return vectors of short aliases: between their own and those of the entities they name."""
    # What each short alias names, with counts; numbers name nothing by themselves.
    named: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for alias in aliases:
        short = len(alias.surface) <= _LONGEST_PHRASE and any(c.isalpha() for c in alias.surface)
        if short and alias.surface != alias.plain:
            named[alias.surface][alias.plain] += alias.count
    surfaces = sorted(named)
    entities = sorted({entity for things in named.values() for entity in things})
    place = {entity: at for at, entity in enumerate(entities)}
    own, vectors = encode(surfaces), encode(entities)
    entity_vectors = _unit(np.stack([
        sum(count**0.5 * vectors[place[entity]] for entity, count in sorted(named[s].items()))
        for s in surfaces
    ]))  # fmt: skip
    far = (entity_vectors * own).sum(axis=1) < _NEAR
    weights = [_CODE_WEIGHT if len(s) <= _CODE_LETTERS else _WORD_WEIGHT for s in surfaces]
    mixed = _unit(entity_vectors + np.array(weights)[:, None] * own)
    kept = [surface for surface, is_far in zip(surfaces, far, strict=True) if is_far]
    return kept, mixed[far]


def _unit(vectors: npt.NDArray[np.floating]) -> Float:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Float = (vectors / np.maximum(lengths, 1e-9)).astype(np.float32)
    return unit
