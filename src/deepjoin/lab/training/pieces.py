"""Views of columns to tokens, fast: every cell is tokenised once, and its tokens are put together.

That gives the tokens of the text wherever a tokenizer parts at spaces and commas, as those of
BERT, DistilBERT and MPNet do; `tokeniser_for` finds out, and takes the slower way otherwise. So
do, even then, the few views that have no cell, or one that must be cut, or very long words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepjoin.embed.columns.text import column_texts
from deepjoin.lab.training import views
from deepjoin.lab.training.spellings import known_values
from deepjoin.lab.training.tokenising import Tokeniser, padded
from deepjoin.lab.training.views import View
from deepjoin.model import Column
from deepjoin.normalise.canonical import canonical

Int = npt.NDArray[np.int64]

#: Patterns in which nothing but punctuation follows the cells, and no statistics come before.
_PATTERNS = ("col", "colname-col", "title-colname-col")
#: Columns on which both ways must give the same tokens.
_TRIED = 200
#: Strings tokenised at a time.
_BLOCK = 1 << 14
#: Letters for each token of the limit up to which a cell, and a text, is read whole.
_LETTERS = 32
_MARK = "a"


@dataclass(frozen=True)
class Ragged:
    """Rows of token numbers, one after the other."""

    flat: npt.NDArray[np.int32]
    offsets: Int

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> Ragged:
        """Put rows together."""
        offsets = np.cumsum([0, *map(len, rows)])
        return cls(np.fromiter(chain.from_iterable(rows), np.int32, offsets[-1]), offsets)

    def __getitem__(self, row: int) -> list[int]:
        tokens: list[int] = self.flat[self.offsets[row] : self.offsets[row + 1]].tolist()
        return tokens


class _Frames(NamedTuple):
    """What stands before and behind the cells of columns, in turn, and the letters of both."""

    tokens: Ragged
    letters: Int


class PieceTokeniser:
    """Puts views together from the tokens of their cells."""

    def __init__(self, slow: Tokeniser) -> None:
        self._slow, self._limit = slow, slow.settings.tokens
        columns = slow.columns
        strings = columns.cells.dictionary_encode()
        self._strings = np.asarray(strings.indices).astype(np.int64)
        self._first_spelling = len(strings.dictionary)
        spelled = [*strings.dictionary.to_pylist(), *slow.spellings]
        plain = [_plain(text, self._limit) for text in spelled]
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
        self._cut_ones: dict[tuple[int, int, bool], list[int]] = {}

    def __call__(self, shown: Sequence[View]) -> dict[str, Any]:
        """Return ``input_ids`` and ``attention_mask``."""
        return padded([self.numbers(view) for view in shown], self._slow.padding)

    def numbers(self, view: View) -> list[int]:
        """Return the token numbers of a view, special ones included."""
        frames, at = (self._named, view.column) if view.named else (self._nameless, 0)
        before, after = frames.tokens[2 * at], frames.tokens[2 * at + 1]
        cells, frequency = self._shown(view)
        chosen = self._chosen(cells, frequency, self._limit - len(before) - len(after))
        if len(chosen) == 0:
            return self._cut(view, cells, frequency)
        if frames.letters[at] + self._letters[chosen].sum() > _LETTERS * self._limit:
            return self._slowly(view)
        prompt = self._prompt if view.asking else ()
        tokens = [*self._first, *prompt, *before, *self._cells[chosen[0]]]
        for cell in chosen[1:].tolist():
            tokens += self._comma
            tokens += self._cells[cell]
        return [*tokens, *after, *self._last]

    def _shown(self, view: View) -> tuple[Int, Int]:
        """Return the strings of a view, and how frequent each is; of equal ones, the first."""
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
        """Take all cells, or the most frequent that fit, in the order of the view."""
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

    def _cut(self, view: View, cells: Int, frequency: Int) -> list[int]:
        """Show no cell or a part of the most frequent: each is put into tokens but once."""
        cell = int(cells[frequency.argmax()]) if len(cells) else -1
        key = (view.column if view.named else -1, cell, view.asking)
        if key not in self._cut_ones:
            self._cut_ones[key] = self._slowly(view)
        return self._cut_ones[key]

    def _slowly(self, view: View) -> list[int]:
        return self._slow.tokens.numbers(self._slow.texts([view]))[0]

    def _known(self) -> tuple[Int, Int]:
        """Give how frequent all values are, and the value of each spelling, -1 if it is blank."""
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

    def _frames(self, columns: Sequence[Column]) -> _Frames:
        """Tokenise what stands before and behind the cells of each column."""
        marked = [
            Column([_MARK], one.name, title=one.title, context=one.context) for one in columns
        ]
        slow = self._slow
        texts = column_texts(marked, slow.settings, slow.frequency, slow.tokens.count)
        parts = [text.rpartition(_MARK) for text in texts]
        tokens = self._tokenised([part for before, _, after in parts for part in (before, after)])
        return _Frames(tokens, np.array([len(text) for text in texts], np.int64))

    def _tokenised(self, strings: Sequence[str]) -> Ragged:
        starts = range(0, len(strings), _BLOCK)
        blocks = (self._slow.tokens.plain(strings[start : start + _BLOCK]) for start in starts)
        return Ragged.of([row for block in blocks for row in block])


def _plain(text: str, limit: int) -> str:
    """Keep of a cell what could be read, on one line."""
    return " ".join(text.split())[: _LETTERS * limit].rstrip()


def tokeniser_for(slow: Tokeniser, seed: int = 0) -> PieceTokeniser | Tokeniser:
    """Take the fast way where it gives the same tokens."""
    if slow.settings.pattern not in _PATTERNS or slow.settings.sampling != "frequency":
        return slow
    fast = PieceTokeniser(slow)
    random = np.random.default_rng(seed)
    shown = [
        view
        for number in random.permutation(len(slow.columns))[:_TRIED].tolist()
        for view in _tried(views.whole(slow.columns, number), len(slow.spellings), random)
    ]
    expected = slow.tokens.numbers(slow.texts(shown))
    return fast if [fast.numbers(view) for view in shown] == expected else slow


def _tried(view: View, spellings: int, random: np.random.Generator) -> list[View]:
    """Show a column as it is, and a part of it: asking, and wordless and spelled otherwise."""
    part = views.cropped(view, random)
    spelled = random.integers(-1, spellings, len(part.places))
    return [view, views.asking(part), replace(views.nameless(part), spelled=spelled)]
