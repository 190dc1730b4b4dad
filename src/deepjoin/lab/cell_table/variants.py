"""Spellings to learn from: pairs of strings that mean one thing, and their hard neighbours."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from deepjoin.embed.cells.spelling import SHORTEST
from deepjoin.embed.cells.tokens import plain_word
from deepjoin.errors import DeepJoinError
from deepjoin.normalise.canonical import canonical

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_PARENTHESIS = re.compile(r"\s*\([^)]*\)")
_LONGEST = 60
_FEWEST_CELLS = 5
_CELLS_KEPT = 60
_CELLS_DRAWN = 8
#: A word in so many columns is no slip.
_COLUMNS_OF_A_WORD = 4
#: How often a code of the list counts beside an alias seen once.
_CODE_COUNT = 4.0
CODES = Path(__file__).parent / "codes.txt"


@dataclass(frozen=True)
class Alias:
    """A surface form, the thing it names, how often, and the kind of column it was seen in."""

    surface: str
    entity: str
    count: float
    kind: str

    @property
    def plain(self) -> str:
        """The thing's name without what tells it from its namesakes."""
        return _PARENTHESIS.sub("", self.entity).strip() or self.entity


@dataclass(frozen=True)
class Pair:
    """Two strings of one meaning; pairs of one ``key`` are never each other's negatives."""

    left: str
    right: str
    key: str


def read_aliases(path: str | Path) -> list[Alias]:
    """Read surface, entity, count and column_name of a Parquet file, spellings that differ only."""
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
    """Read the list of well-known codes: a name, then its short forms, a line each."""
    lines = [line for line in path.read_text("utf-8").splitlines() if not line.startswith("#")]
    named = [line.split("|") for line in lines]
    return [Alias(code, name, _CODE_COUNT, "code") for name, *codes in named for code in codes]


def read_columns(path: str | Path) -> list[list[str]]:
    """Read the distinct short cells of every column that has a few, in table order."""
    columns = []
    for batch in pq.ParquetFile(path).iter_batches(columns=["cells"]):
        for cells in batch.column(0).to_pylist():
            distinct = dict.fromkeys(canonical(cell) for cell in cells if cell)
            columns.append([cell for cell in distinct if 0 < len(cell) <= _LONGEST])
    return [cells for cells in columns if len(cells) >= _FEWEST_CELLS]


def real_words(columns: Sequence[Sequence[str]], pieces: Container[str]) -> list[str]:
    """List words of several columns that are no whole piece, those of most columns first."""
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
) -> Iterator[list[Pair]]:
    """Draw batches: a quarter aliases of one kind, a quarter any, half variants of columns' cells.

    Aliases of one kind and cells of one column are different things that look alike, which is
    what the table must learn to tell apart.
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
            batch += [Pair(cell, variant(cell, chance, chance.choice(cells)), cell)
                      for cell in drawn]  # fmt: skip
        yield batch


def _alias_pair(alias: Alias, chance: random.Random) -> Pair:
    plain = chance.random() < 0.5 and alias.plain != alias.surface
    return Pair(alias.surface, alias.plain if plain else alias.entity, alias.entity)


def variant(cell: str, chance: random.Random, other: str) -> str:
    """Write a cell as another hand might: shorter, turned round, initialled, mistyped, longer."""
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
