"""How a delimited text is written: its delimiter, quotes, header and column names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise, takewhile
from pathlib import Path
from typing import NamedTuple

from deepjoin.errors import UnreadableTable
from deepjoin.normalise.cells import unique_names
from deepjoin.read.encoding import (
    COMPRESSIONS,
    check_file,
    compression_of,
    decode_sample,
    encoding_of,
    foreign_kind,
    markup_kind,
    read_sample,
)
from deepjoin.read.records import Form, Records, lines_of

#: Sizes of the sample in bytes: a larger one is read if the smaller holds too few records.
_SAMPLES = (1 << 18, 1 << 21, 1 << 25)
_SCORED_CHARACTERS = 1 << 15
_SCORED_RECORDS = 200
_ENOUGH_RECORDS = 3

_BY_SUFFIX = {".csv": ",;", ".tsv": "\t", ".tab": "\t", ".psv": "|"}
_DELIMITERS = ",\t;|"
#: Separates nothing: a list whose items hold commas is one column.
_NO_DELIMITER = "\x1f"
# Excel reads and writes the delimiter in a first line such as sep=;
_EXCEL_HINT = re.compile(r'"?sep=([,;|:^~\t])"?\s', re.IGNORECASE)
_MARKDOWN = ("# ", "- ", "* ", "> ")
_SENTENCE_END = (".", "!", "?", ":", "```")


Row = Sequence[str]

_NUMBER = re.compile(
    r"[-+(]? ?[$€£¥]? ?[-+]?(?:[0-9][0-9., '\u00a0\u202f]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)? ?[%)€]?"
)
_MONTHS = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_DATE = re.compile(
    r"[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}(?:[ T]+[0-9]{1,2}:[0-9]{2}.*)?"
    r"|[0-9]{1,2}:[0-9]{2}(?::[0-9.]+)?(?: ?[ap]m)?"
    rf"|[0-9]{{1,2}}[- ]{_MONTHS}[-, ]+[0-9]{{2,4}}|{_MONTHS} [0-9]{{1,2}},? [0-9]{{4}}",
    re.IGNORECASE,
)
_DIGIT = re.compile(r"[0-9]")
_YEAR = re.compile(r"(?:1[5-9]|20)[0-9]{2}")
# What programs write for a missing cell.
_MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "-", "--", "?", ".", "\\n"))
# Enough to recognise a header; a table may have ten thousand columns.
_COLUMNS = 64
_ROWS = 50
_TITLES = 20
_LONGEST_NAME = 1000
#: A row with more cells cannot belong to a table.
WIDEST = 100_000


@dataclass(frozen=True)
class Dialect:
    """All that is needed to read a delimited file.

    ``skip_lines`` counts the lines before the header or the first row, ``first_line`` those
    before the first row of data. ``escape`` is a backslash if quotes are escaped by one.
    """

    encoding: str
    compression: str | None
    form: Form
    skip_lines: int
    header: bool
    names: tuple[str, ...]
    first_line: int
    escape: str


class _Record(NamedTuple):
    """A record, the line it begins on and the line after it."""

    line: int
    cells: list[str]
    next_line: int


@dataclass
class _Sample:
    """The start of a text, and whether the text continues after it."""

    text: str
    cut: bool
    suffix: str
    _known: dict[Form, tuple[list[_Record], int]] = field(default_factory=dict)

    @property
    def own(self) -> str:
        """The delimiters that the name of the file promises."""
        return _BY_SUFFIX.get(self.suffix, "")

    def records(self, form: Form) -> list[_Record]:
        """Return the records that are not blank."""
        return self._read(form)[0]

    def rows(self, form: Form) -> list[list[str]]:
        """Return the cells of the records that are not blank."""
        return [record.cells for record in self.records(form)]

    def unescaped(self, quote: str) -> _Sample:
        """Return the sample with quotes doubled instead of escaped by a backslash."""
        return _Sample(unescaped(self.text, quote), self.cut, self.suffix)

    def stray(self, form: Form) -> int:
        """Count the lines whose quotes do not pair."""
        return self._read(form)[1]

    def _read(self, form: Form) -> tuple[list[_Record], int]:
        if form not in self._known:
            records = Records(lines_of(self.text), form, cut=self.cut)
            found, line = [], 0
            for cells in islice(records, _SCORED_RECORDS + 1):
                found.append(_Record(line, cells, records.lines))
                line = records.lines
            # The last record of a sample may be half of one.
            if (self.cut or len(found) > _SCORED_RECORDS) and len(found) > 1:
                found.pop()
            filled = [record for record in found if any(map(str.strip, record.cells))]
            self._known[form] = filled, records.stray
        return self._known[form]


def sniff(path: Path) -> Dialect:
    """Find the dialect of a file; anything but a table raises an error that names what it is."""
    size, _ = check_file(path)
    compression = compression_of(path)
    dialect, judged = None, 0
    for wanted in _SAMPLES:
        data = read_sample(path, compression, wanted)
        if found := foreign_kind(data):
            raise UnreadableTable(f"{path.name} is {found}, not delimited text; leave it out.")
        if not data.strip(b"\0 \t\r\n\xef\xbb\xbf\xff\xfe"):
            raise UnreadableTable(f"{path.name} is empty: it holds nothing but blanks.")
        encoding = encoding_of(data)
        cut = len(data) == wanted and (compression is not None or size > wanted)
        text = decode_sample(data, encoding)
        endless = cut and "\n" not in text and "\r" not in text
        if not endless:
            dialect, judged = _judge(path, text, cut)
        if not cut or judged >= _ENOUGH_RECORDS:
            break
    if endless:
        raise UnreadableTable(f"{path.name} has no line end in its first {len(text):,} characters.")
    if dialect is None:
        # No record ends in the sample, so the quote that opens the first is a character.
        dialect, _ = _judge(path, text, None)
    if dialect is None:
        raise UnreadableTable(f"{path.name} is empty: it holds nothing but blanks.")
    check_width(path, len(dialect.names))
    return replace(dialect, encoding=encoding, compression=compression)


def check_width(path: Path, width: int) -> None:
    """Refuse rows so wide that they cannot belong to a table."""
    if width > WIDEST:
        raise UnreadableTable(
            f"{path.name} has a row of {width:,} cells; at most {WIDEST:,} are read. Leave it out."
        )


def _judge(path: Path, text: str, cut: bool | None) -> tuple[Dialect | None, int]:
    """Return the dialect of a text, and the number of records it was judged by.

    ``cut`` is set if the text continues; None treats it as complete although it may not be.
    """
    if found := markup_kind(text):
        raise UnreadableTable(f"{path.name} is {found}, not delimited text; leave it out.")
    hint = _EXCEL_HINT.match(text)
    lines = sum(text.count(end, 0, _SCORED_CHARACTERS) for end in "\n\r")
    # A wide table needs more characters to show at least some of its records.
    short = text if lines < 20 else text[:_SCORED_CHARACTERS]
    cut = cut is not None and (cut or len(short) < len(text))
    endings = [ending.lower() for ending in path.suffixes]
    suffix = next((ending for ending in reversed(endings) if ending not in COMPRESSIONS), "")
    sample = _Sample(short, cut, suffix)
    form, escape = _form(sample, hint.group(1) if hint else None)
    if form is None:
        if not sample.own and _is_prose(sample):
            raise UnreadableTable(f"{path.name} looks like prose, not a table; leave it out.")
        # No delimiter cuts it evenly, so it is one column.
        form = Form((sample.own or ",")[0])
        if any(len(row) > 1 for row in sample.rows(form)):
            form = Form(_NO_DELIMITER)
    if escape:
        sample = sample.unescaped(form.quote)
    records = sample.records(form)
    if hint and len(records) > 1:
        records = records[1:]
    return _described(form, escape, records) if records else None, len(records)


def unescaped(text: str, quote: str) -> str:
    """Replace quotes after a backslash by doubled quotes."""
    return re.sub(rf"\\([\\{quote}])", lambda match: "\\" if match[1] == "\\" else quote * 2, text)


def _form(sample: _Sample, hint: str | None) -> tuple[Form | None, str]:
    """Choose the form that cuts the sample most evenly, and whether backslashes escape."""
    delimiters = [hint] if hint else [d for d in _DELIMITERS if d in sample.text]
    forms = []
    for delimiter in delimiters:
        escaped = re.escape(delimiter)
        forms.append(Form(delimiter))
        if '"' in sample.text:
            if delimiter != " " and re.search(rf'{escaped} +"', sample.text):
                forms.append(Form(delimiter, '"', padded=True))
            forms.append(Form(delimiter, ""))
        else:
            apostrophes = rf"(?:^|{escaped})'(?:[^'\n]|'')*'(?={escaped}|$)"
            if len(re.findall(apostrophes, sample.text, re.M)) > 2:
                forms.append(Form(delimiter, "'"))
    scored = [(_score(sample, form), form, "") for form in forms]
    if '\\"' in sample.text:
        other = sample.unescaped('"')
        scored += [(_score(other, form), form, "\\") for form in forms if form.quote == '"']
    best, form, escape = max(scored, key=lambda found: found[0], default=(0.0, Form(","), ""))
    own = form.delimiter in sample.own
    if best < (0.03 if own or hint else 0.2) or (not own and _reads_as_prose(sample, form)):
        return _spaces(sample), ""
    return form, escape


def _score(sample: _Sample, form: Form) -> float:
    """Score from 0 to 1 how evenly a form cuts the records, and how clean the cells are."""
    rows, stray = sample.rows(form), sample.stray(form)
    width = usual_width(rows)
    if width < 2:
        return 0.0
    start = next(at for at, row in enumerate(rows) if len(row) >= width)
    body = rows[start:]
    even = sum(len(row) == width for row in body) / len(body)
    enough = min(1.0, 5 * len(body) / len(rows))
    paired = max(0.0, 1 - max(stray - 1, 0) / len(rows)) ** 2 if form.quote else 0.8
    # What fits the very first record beats what takes it for a title.
    fits = 1.0 if len(rows[0]) == width else 0.4
    own = 1.2 if form.delimiter in sample.own else 1.0
    # The share of cells without another delimiter, or a quote left at their edge.
    others = "".join(d for d in "\t;|" if d != form.delimiter)
    soiled = re.compile(rf'[{others}]|^ ?"|"$')
    cells = [cell for row in body[:50] for cell in row[:50]]
    clean = 1 - sum(1 for cell in cells if soiled.search(cell)) / max(len(cells), 1)
    return even**2 * enough * paired * fits * own * clean * (1 - 1 / width)


def usual_width(rows: list[list[str]]) -> int:
    """Return the commonest number of cells among rows that have more than one, or 1."""
    widths = Counter(len(row) for row in rows if len(row) > 1)
    return max(widths, key=lambda width: (widths[width], width), default=1)


def _spaces(sample: _Sample) -> Form | None:
    """Recognise columns of numbers separated by blanks; words separated by blanks are prose."""
    if sample.own:
        return None
    form = Form(" ", padded=True)
    rows = sample.rows(form)
    width = usual_width(rows)
    even = sum(len(row) == width for row in rows)
    cells = [cell for row in rows for cell in row]
    numbers = sum(kind(cell) == "number" for cell in cells)
    return form if width > 2 and 10 * even >= 9 * len(rows) and 2 * numbers > len(cells) else None


def _reads_as_prose(sample: _Sample, form: Form) -> bool:
    """Check whether every comma is followed by a blank, and the cells are long or sentences."""
    rows = sample.rows(form)
    cells = [cell for row in rows for cell in row]
    if form.delimiter in "\t|" or any(
        cell[:1] not in ("", " ") for row in rows for cell in row[1:]
    ):
        return False
    return sum(len(cell.split()) for cell in cells) > 3 * len(cells) or _is_prose(sample)


def _is_prose(sample: _Sample) -> bool:
    lines = [line.strip() for line in lines_of(sample.text) if line.strip()]
    words = sum(len(line.split()) for line in lines)
    sentences = sum(line.endswith(_SENTENCE_END) or line[:2] in _MARKDOWN for line in lines)
    return words > 7 * len(lines) or (words > 2 * len(lines) and 2 * sentences > len(lines))


def _described(form: Form, escape: str, records: list[_Record]) -> Dialect:
    """Find the header among the records and name the columns."""
    rows = [record.cells for record in records]
    width = usual_width(rows)
    at = first_row(rows, width)
    first, body = rows[at], rows[at + 1 :]
    header = is_header(first, body)
    names = widened((), width)
    if header:
        # One name too few means that the column of row labels, the first, has none.
        full = bool(body) and all(len(row) == width and row[-1].strip() for row in body)
        if len(first) == width - 1 and full and len({row[0] for row in body}) == len(body):
            first = ["", *first]
        names = widened(header_names(first), max(width, len(first)))
    # The caller, who decoded the text, adds the encoding and the compression.
    skipped, after = records[at].line, records[at].next_line
    return Dialect("", None, form, skipped, header, names, after if header else skipped, escape)


def kind(cell: str) -> str:
    """Classify a cell by its looks: a number, a date, text, or '' if it is missing.

    >>> [kind(cell) for cell in ("1,200", "5 Jan 2020", "n/a", "Oslo")]
    ['number', 'date', '', 'text']
    """
    cell = cell.strip()
    if cell.lower() in _MISSING:
        return ""
    if not _DIGIT.search(cell):
        return "text"
    if _DATE.fullmatch(cell):
        return "date"
    return "number" if _NUMBER.fullmatch(cell) else "text"


def first_row(rows: Sequence[Row], width: int) -> int:
    """Return which row is the header or, without one, the first row of data.

    Titles and comments come before it: rows that are short or nearly blank.
    """
    first = next((at for at, row in enumerate(rows) if len(row) >= width), 0)
    before = rows[first - 1] if first else ()
    if len(before) > 1 and 2 * len(before) > width and not before[0].lstrip().startswith("#"):
        # The row before may lack only some names: R writes none for the row labels.
        is_text = {kind(cell) for cell in before} <= {"text", ""}
        first -= is_text and bool({kind(cell) for cell in rows[first]} - {"text", ""})
    return _header_under_titles(rows, first, width) or first


def _header_under_titles(rows: Sequence[Row], top: int, width: int) -> int | None:
    """Find the header below titles of full width, as spreadsheets export them."""
    sparse = takewhile(lambda at: 2 * _filled(rows[at]) <= width, range(top, len(rows)))
    under = top + len(list(sparse))
    if width < 3 or not top < under < min(len(rows), top + _TITLES):
        return None
    below, body = rows[under], rows[under + 1 :]
    named = below[0].strip() and 10 * _filled(below) >= 9 * width
    if not named or "text" not in map(kind, below) or not is_header(below, body):
        return None
    typed = any(kind(cell) not in ("text", "") for row in body[:10] for cell in row)
    title = _filled(rows[top]) == 1 and rows[top][0].strip()
    return under if typed or title else None


def _filled(row: Row) -> int:
    return sum(1 for cell in row if cell.strip())


def is_header(first: Row, body: Sequence[Row]) -> bool:
    """Decide whether a row names the columns of the rows below; in doubt it does.

    >>> is_header(["city", "1960"], [["Oslo", "7"], ["Rome", "8"]])
    True
    >>> is_header(["Oslo", "7"], [["Rome", "8"], ["Oslo", "9"]])
    False
    """
    body = [row for row in body if row != first][: 4 * _ROWS]
    if not body:
        kinds = [kind(cell) for cell in first]
        years = all(_YEAR.fullmatch(cell.strip()) for cell in first if kind(cell) == "number")
        return "date" not in kinds and ("number" not in kinds or (years and "text" in kinds))
    if _counts_up(first) and not _counts_up(body[0]):
        return True
    evidence = sum(
        _evidence(first[at].strip(), [row[at].strip() for row in body if at < len(row)])
        for at in range(min(len(first), _COLUMNS))
    )
    # Equal cells within the first row are data if most rows below have such twins too.
    some = body[:_ROWS]
    twins = _has_twins(first) and 2 * sum(map(_has_twins, some)) > len(some)
    return evidence - twins >= 0


def _evidence(name: str, column: list[str]) -> int:
    """Weigh one column: above zero its first cell is a name, below zero it is data."""
    # A missing cell is not evidence; neither is a column that mixes kinds.
    if not (found := kind(name)):
        return 0
    pairs = [(cell, which) for cell in column[:_ROWS] if (which := kind(cell))]
    cells = [cell for cell, _ in pairs]
    kinds = Counter(which for _, which in pairs)
    usual, times = kinds.most_common(1)[0] if kinds else ("", 0)
    if 5 * times < 4 * len(cells) or not cells:
        return 0
    if usual == "text":
        return _text_evidence(name, found, column, cells)
    # Text above numbers or dates is a name; a number above numbers is data, unless it is a
    # year above other numbers: pivoted tables have years as names.
    if found != usual:
        return 2
    years = sum(1 for cell in cells if _YEAR.fullmatch(cell))
    return 1 if _YEAR.fullmatch(name) and 2 * years < len(cells) else -2


def _text_evidence(name: str, found: str, column: list[str], cells: list[str]) -> int:
    if found != "text":
        return 0
    if name in column:  # no column holds its own name
        return -2
    lengths = {len(cell) for cell in cells}
    if len(cells) < 5 or len(lengths) > 1 or len(set(cells)) < 3 or lengths == {1}:
        return 0  # single letters are as likely names as codes
    # Codes: all of one length, in capitals and digits or with a mark at one place.
    shapes = {_shape(cell) for cell in cells}
    alike = len(name) in lengths and (_shape(name) in shapes or not _small((name, *cells)))
    codes = len(shapes) == 1 or not _small(cells)
    return (-1 if alike else 1) if codes else 0


def _small(cells: Iterable[str]) -> bool:
    return any(c.islower() for cell in cells for c in cell)


def _shape(cell: str) -> str:
    """Reduce a code to its shape, which codes of one kind share: `AB-12` and `XY-07` do."""
    return "".join(
        "9" if c.isdigit() else "A" if c.isupper() else "a" if c.islower() else c for c in cell[:12]
    )


def _counts_up(first: Row) -> bool:
    """Check whether numbers beside a word count up by one, as the heads of a matrix do."""
    numbers = [cell.strip() for cell in first if kind(cell) == "number"]
    if len(numbers) < 3 or len(numbers) == len(first) or not all(map(str.isdecimal, numbers)):
        return False
    return all(int(after) - int(before) == 1 for before, after in pairwise(numbers))


def _has_twins(row: Row) -> bool:
    cells = [cell for cell in row[:_COLUMNS] if cell.strip()]
    return 3 * len(set(cells)) < 2 * len(cells)


def header_names(cells: Row) -> tuple[str, ...]:
    """Name columns by the cells of a header, without extra white space.

    >>> header_names([" id ", "", "id", "id_2"])
    ('id', 'column_2', 'id_3', 'id_2')
    """
    clean = (" ".join(cell.replace("\ufeff", "").split())[:_LONGEST_NAME] for cell in cells)
    return tuple(unique_names(clean))


def widened(names: tuple[str, ...], width: int) -> tuple[str, ...]:
    """Add names for columns beyond those that have one."""
    if width <= len(names):
        return names
    return (*names, *unique_names([""] * (width - len(names)), names))
