"""Lines to records: the standard csv module, made safe against unpaired quotes."""

from __future__ import annotations

import csv
import io
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.intp]

#: A quoted cell that reaches this many characters without an end is a stray quote.
LONGEST_CELL = 1 << 26
# The csv module refuses longer cells; the limit applies to the whole process.
_FIELD_LIMIT = (1 << 31) - 1


@dataclass(frozen=True)
class Form:
    """How one line is cut into cells; ``padded`` drops blanks after a delimiter.

    ``quote`` is '' where cells are not quoted.
    """

    delimiter: str
    quote: str = '"'
    padded: bool = False

    def options(self) -> dict[str, Any]:
        """Return the options of the csv module."""
        return {
            "delimiter": self.delimiter,
            "quotechar": self.quote or None,
            "quoting": csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE,
            "skipinitialspace": self.padded,
        }


class _Feed(Iterator[str]):
    """Lines for a csv reader, held until their record is complete.

    The csv module consumes lines and cannot give them back, so a record that turns out to be
    broken could not be read again without this.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._again: deque[str] = deque()
        self._held: list[str] = []
        self._held_characters = 0
        self.lines = 0
        self.ended = False

    def __next__(self) -> str:
        try:
            line = self._again.popleft() if self._again else next(self._lines)
        except StopIteration:
            self.ended = True
            raise
        self._held.append(line)
        self._held_characters += len(line)
        # A single long line is a long cell; only several of them can be an unclosed quote.
        if self._held_characters > LONGEST_CELL and len(self._held) > 1:
            raise csv.Error("no closing quote in sight")
        return line

    def release(self) -> None:
        """Forget the lines of a record that was read."""
        self.lines += len(self._held)
        self._held.clear()
        self._held_characters = 0

    @property
    def held(self) -> str:
        """The lines of the record that is not complete."""
        return "".join(self._held)

    @property
    def went_on(self) -> bool:
        """Whether the record was not complete at the end of its first line."""
        return self.ended or len(self._held) > 1

    def take_back(self) -> str:
        """Return the first line of a broken record; the others are read again."""
        self.ended = False
        first = self._held[0]
        self._again.extendleft(reversed(self._held[1:]))
        self._held = [first]
        self._held_characters = len(first)
        self.release()
        return first


class Records:
    r"""The records of a text; a line whose quotes do not pair is read by itself.

    With ``cut`` the text is continued elsewhere, so a quote open at its end may be closed
    there; the lines it holds are then left in ``rest``.

    >>> list(Records(['a,"b\n', '1,2\n'], Form(",")))
    [['a', '"b'], ['1', '2']]
    """

    def __init__(
        self, lines: Iterable[str], form: Form, width: int = 0, *, cut: bool = False
    ) -> None:
        self._feed = _Feed(lines)
        self._form = form
        self._width = width
        self._cut = cut
        self._options = form.options()
        self.stray = 0
        self.first_stray = ""

    @property
    def lines(self) -> int:
        """How many lines the records so far took."""
        return self._feed.lines

    @property
    def rest(self) -> str:
        """The text after the last whole record."""
        return self._feed.held

    def __iter__(self) -> Iterator[list[str]]:
        csv.field_size_limit(_FIELD_LIMIT)
        while True:
            try:
                for row in csv.reader(self._feed, strict=True, **self._options):
                    self._feed.release()
                    yield row
                return
            except csv.Error:
                # The quote may be closed in the text that follows this one.
                if self._cut and self._feed.ended:
                    return
                opens = self._feed.went_on
                line = self._feed.take_back()
                self.stray += 1
                self.first_stray = self.first_stray or line.strip()
                yield self._read_alone(line, opens)

    def _read_alone(self, line: str, opens: bool) -> list[str]:
        """Read a line whose quotes do not pair, in the way that gives the right width.

        A quote that opens a cell and is never closed is a character; one inside a cell is, too,
        but then the other quotes of the line still hold cells together.
        """
        # Both ways only where the first gives another width: every line may be such a line.
        row = self._plain(line) if opens else self._loose(line)
        if len(row) != self._width:
            other = self._loose(line) if opens else self._plain(line)
            row = other if len(other) == self._width else row
        return [*row[:-1], row[-1].rstrip("\r\n")] if row else row

    def _loose(self, line: str) -> list[str]:
        return next(csv.reader([line], **self._options))

    def _plain(self, line: str) -> list[str]:
        """Cut a line at every delimiter."""
        text = line.rstrip("\r\n")
        cells = text.split(self._form.delimiter) if text else []
        return [cell.lstrip(" ") for cell in cells] if self._form.padded else cells


def lines_of(text: str) -> Iterator[str]:
    """Cut a text into lines at line feeds, carriage returns or both; the ends stay."""
    return io.StringIO(text, newline="")


def record_end(data: bytes, form: Form) -> int | None:
    """Return the end of the last whole record in UTF-8 bytes, or None if quotes do not pair.

    Quotes taken in twos must open after a delimiter, a line end or a quote, and close before
    one; then every reader of delimited text agrees on what is a record.
    """
    end = line_end(data)
    quote = form.quote.encode()
    if not quote or quote not in data:
        return end
    # Over arrays: a loop over the bytes would take longer than parsing them.
    characters = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(characters == quote[0])
    if not _paired(characters, quotes, form):
        return None
    if quotes.size % 2 == 0 and end > quotes[-1]:
        return end
    # The last line end is inside quotes; the record ends at an earlier one.
    ends = _ends_outside(characters[:end], quotes)
    return int(ends[-1]) + 1 if ends.size else 0


def line_end(data: bytes) -> int:
    """Return where the last whole line ends; a carriage return may be half of an end."""
    return max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1


def line_ends(data: bytes, form: Form) -> tuple[set[str], int]:
    """Return how the records in some bytes end, and the length of the longest."""
    characters = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(characters == ord(form.quote)) if form.quote else np.empty(0, int)
    ends = _ends_outside(characters, quotes)
    returns = characters[ends] == 13
    # A carriage return directly before a line feed is half of one end.
    both = int((returns[:-1] & ~returns[1:] & (np.diff(ends) == 1)).sum())
    alone = int(returns.sum()) - both
    counts = {"\r\n": both, "\r": alone, "\n": ends.size - both - both - alone}
    borders = np.concatenate(([0], ends, [len(data)]))
    return {end for end, count in counts.items() if count}, int(np.diff(borders).max())


def _ends_outside(characters: Bytes, quotes: Positions) -> Positions:
    ends: Positions = np.flatnonzero((characters == 10) | (characters == 13))
    # After an even number of quotes none is open.
    outside: Positions = ends[np.searchsorted(quotes, ends) % 2 == 0]
    return outside


def _paired(characters: Bytes, quotes: Positions, form: Form) -> bool:
    border = np.zeros(256, bool)
    border[list(f"{form.delimiter}{form.quote}\r\n".encode())] = True
    before, after = quotes[0::2] - 1, quotes[1::2] + 1
    before, after = before[before >= 0], after[after < characters.size]
    return bool(border[characters[before]].all() and border[characters[after]].all())
