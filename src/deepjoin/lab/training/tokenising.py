"""Views of columns as tokens.

`Tokeniser` writes each view as text and tokenises it. `PieceTokeniser` is faster: it tokenises
every cell once and concatenates the tokens, which gives the same result for tokenizers that split
at spaces and commas (BERT, DistilBERT, MPNet). `tokeniser_for` checks that on a sample. Views with
no cell, with a cell that must be cut or with very long words always take the slow path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from deepjoin.arrays import Int, Int32
from deepjoin.embed.columns.text import DocumentFrequencies, TextSettings, column_texts
from deepjoin.embed.columns.tokens import Tokens
from deepjoin.lab.training.batches import View
from deepjoin.lab.training.columns import TrainingColumns, known_values
from deepjoin.model import Column
from deepjoin.normalise.canonical import canonical

#: Patterns with no statistics before the cells and nothing but punctuation after them.
_PATTERNS = ("col", "colname-col", "title-colname-col")
#: Columns on which both tokenisers must agree.
_TRIED = 200
#: Strings tokenised at a time.
_BLOCK = 1 << 14
#: A cell, and a text, is cut at this many letters for each token of the limit.
_LETTERS = 32
_MARK = "a"


@dataclass(frozen=True)
class Tokeniser:
    """Writes views as texts, and texts as rows of token numbers padded for the model."""

    columns: TrainingColumns
    settings: TextSettings
    frequency: DocumentFrequencies
    tokens: Tokens
    padding: int = 0
    #: The spellings that `View.spelled` refers to.
    spellings: Sequence[str] = ()

    def __call__(self, views: Sequence[View]) -> dict[str, Any]:
        """Return ``input_ids`` and ``attention_mask``."""
        return padded(self.tokens.numbers(self.texts(views)), self.padding)

    def texts(self, views: Sequence[View]) -> list[str]:
        """Write views as texts."""
        columns = []
        for view in views:
            column = self.columns.column(view.column, view.places, view.named)
            if view.spelled is not None:
                cells = zip(column.cells, view.spelled.tolist(), strict=True)
                spelled = [cell if at < 0 else self.spellings[at] for cell, at in cells]
                column = replace(column, cells=spelled)
            columns.append(column)
        texts = column_texts(columns, self.settings, self.frequency, self.tokens.count)
        prompt = self.settings.prompt
        return [prompt * view.is_query + text for view, text in zip(views, texts, strict=True)]


def padded(numbers: Sequence[Sequence[int]], padding: int) -> dict[str, Any]:
    """Pad rows of token numbers to one array.

    >>> padded([[5, 6], [7]], 0)["input_ids"].tolist()
    [[5, 6], [7, 0]]
    """
    lengths = np.array([len(one) for one in numbers])
    mask = np.arange(max(1, lengths.max(initial=0))) < lengths[:, None]
    rows = np.full(mask.shape, padding, np.int64)
    rows[mask] = np.concatenate([np.zeros(0, np.int64), *numbers])
    return {"input_ids": rows, "attention_mask": mask.astype(np.int64)}


@dataclass(frozen=True)
class Ragged:
    """Rows of token numbers, concatenated."""

    flat: Int32
    offsets: Int

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> Ragged:
        """Concatenate rows."""
        offsets = np.cumsum([0, *map(len, rows)])
        return cls(np.fromiter(chain.from_iterable(rows), np.int32, offsets[-1]), offsets)

    def __getitem__(self, row: int) -> list[int]:
        tokens: list[int] = self.flat[self.offsets[row] : self.offsets[row + 1]].tolist()
        return tokens


class PieceTokeniser:
    """Assembles the tokens of views from those of their cells."""

    def __init__(self, slow: Tokeniser) -> None:
        self._slow, self._limit = slow, slow.settings.tokens
        columns = slow.columns
        strings = columns.cells.dictionary_encode()
        self._strings = np.asarray(strings.indices).astype(np.int64)
        self._first_spelling = len(strings.dictionary)
        spelled = [*strings.dictionary.to_pylist(), *slow.spellings]
        plain = [" ".join(text.split())[: _LETTERS * self._limit].rstrip() for text in spelled]
        self._cells = self._tokenised(plain)
        self._sizes = np.diff(self._cells.offsets) + 1
        self._letters = np.array([len(text) + len(", ") for text in plain], np.int64)
        self._frequency, self._spelled_values = self._known()
        self._named = self._frames(
            [columns.column(number, np.zeros(0, np.int64)) for number in range(len(columns))]
        )
        self._nameless = self._frames([Column([])])
        between = self._tokenised([",", slow.settings.prompt])
        self._comma, self._prompt = between[0], between[1]
        self._first, self._last = slow.tokens.around()
        self._cut: dict[tuple[int, int, bool], list[int]] = {}

    def __call__(self, views: Sequence[View]) -> dict[str, Any]:
        """Return ``input_ids`` and ``attention_mask``."""
        return padded([self.numbers(view) for view in views], self._slow.padding)

    def numbers(self, view: View) -> list[int]:
        """Return the token numbers of a view, special ones included."""
        (frames, letters), at = (self._named, view.column) if view.named else (self._nameless, 0)
        before, after = frames[2 * at], frames[2 * at + 1]
        cells, frequency = self._cells_of(view)
        chosen = self._chosen(cells, frequency, self._limit - len(before) - len(after))
        if len(chosen) == 0:
            # No cell, or a part of the most frequent one: tokenised once, then remembered.
            cell = int(cells[frequency.argmax()]) if len(cells) else -1
            key = (view.column if view.named else -1, cell, view.is_query)
            if key not in self._cut:
                self._cut[key] = self._slowly(view)
            return self._cut[key]
        if letters[at] + self._letters[chosen].sum() > _LETTERS * self._limit:
            return self._slowly(view)
        prompt = self._prompt if view.is_query else ()
        tokens = [*self._first, *prompt, *before, *self._cells[chosen[0]]]
        for cell in chosen[1:].tolist():
            tokens += self._comma
            tokens += self._cells[cell]
        return [*tokens, *after, *self._last]

    def _cells_of(self, view: View) -> tuple[Int, Int]:
        """Return the distinct strings of a view and their document frequencies."""
        cells, values = self._strings[view.places], self._slow.columns.values[view.places]
        if view.spelled is not None:
            as_is = view.spelled < 0
            cells = np.where(as_is, cells, self._first_spelling + view.spelled)
            values = np.where(as_is, values, self._spelled_values[view.spelled])
            distinct, first = np.unique(values, return_index=True)
            kept = np.sort(first[distinct >= 0])
            cells, values = cells[kept], values[kept]
        return cells, self._frequency[values]

    def _chosen(self, cells: Int, frequency: Int, room: int) -> Int:
        """Choose all cells, or the most frequent that fit, in the order of the view."""
        sizes, most = self._sizes[cells], self._limit // 2 + 1
        if len(cells) <= most and sizes.sum() <= room + 1:
            return cells
        order = np.argsort(-frequency, kind="stable")[:most]
        taken, left = [], room + 1
        for place in order.tolist():
            if sizes[place] <= left:
                taken.append(place)
                left -= int(sizes[place])
        return cells[sorted(taken)]

    def _slowly(self, view: View) -> list[int]:
        return self._slow.tokens.numbers(self._slow.texts([view]))[0]

    def _known(self) -> tuple[Int, Int]:
        """Return the frequency of all values, and the value of each spelling, -1 if it is blank."""
        columns, profile = self._slow.columns, self._slow.settings.profile
        frequency = columns.frequency
        if not self._slow.spellings:
            return frequency, np.zeros(1, np.int64)
        known = known_values(columns, profile) | {"": -1}
        spelled = [canonical(text, profile) for text in self._slow.spellings]
        new = [value for value in dict.fromkeys(spelled) if value not in known]
        known |= {value: len(frequency) + number for number, value in enumerate(new)}
        numbers = np.array([known[value] for value in spelled], np.int64)
        return np.append(frequency, np.zeros(len(new), np.int64)), numbers

    def _frames(self, columns: Sequence[Column]) -> tuple[Ragged, Int]:
        """Tokenise the text before and after the cells of each column; count its letters."""
        marked = [
            Column([_MARK], one.name, title=one.title, context=one.context) for one in columns
        ]
        slow = self._slow
        texts = column_texts(marked, slow.settings, slow.frequency, slow.tokens.count)
        parts = [text.rpartition(_MARK) for text in texts]
        tokens = self._tokenised([part for before, _, after in parts for part in (before, after)])
        return tokens, np.array([len(text) for text in texts], np.int64)

    def _tokenised(self, strings: Sequence[str]) -> Ragged:
        starts = range(0, len(strings), _BLOCK)
        blocks = (self._slow.tokens.plain(strings[start : start + _BLOCK]) for start in starts)
        return Ragged.of([row for block in blocks for row in block])


def tokeniser_for(slow: Tokeniser, seed: int = 0) -> PieceTokeniser | Tokeniser:
    """Return the fast tokeniser if it gives the same tokens on a sample, else the slow one."""
    if slow.settings.pattern not in _PATTERNS or slow.settings.sampling != "frequency":
        return slow
    fast = PieceTokeniser(slow)
    random = np.random.default_rng(seed)
    # Whole columns, queries, and views with other spellings all take different paths.
    sample: list[View] = []
    for number in random.permutation(len(slow.columns))[:_TRIED].tolist():
        view = View.whole(slow.columns, number)
        part = view.cropped(random)
        spelled = random.integers(-1, len(slow.spellings), len(part.places))
        sample += [view, part.as_query(), replace(part.nameless(), spelled=spelled)]
    expected = slow.tokens.numbers(slow.texts(sample))
    return fast if [fast.numbers(view) for view in sample] == expected else slow
