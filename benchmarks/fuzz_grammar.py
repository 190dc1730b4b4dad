"""Malformed files from a seed: all different, reproducible by the seed."""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import pyarrow as pa

_DELIMITERS = (",", ";", "\t", "|", " ", ":", "^", "~", "\x1f", "||", ", ", "，", "\x01", "")
_LINE_ENDS = ("\n", "\r\n", "\r", "\n\r", "\r\r\n", "\u2028", "\x85", "\x0b", "\x0c", "\x1e")
_ENCODINGS = (
    *("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "cp1252"),
    *("shift_jis", "euc_jp", "gb18030", "big5", "koi8_r", "cp1251", "cp1250", "mac_roman"),
    *("latin-1", "iso2022_jp", "utf-7", "cp037", "cp437"),
)
_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\xff\xfe\0\0", b"\0\0\xfe\xff")
_WORDS = (
    *("Oslo", "Köln", "São Paulo", "Łódź", "東京", "Москва", "القاهرة", "𝒳", "e\u0301", "naïve"),
    *("id", "name", "NULL", "n/a", "-", "?", "\\N", "true", "=1+1", "#REF!", "O'Hara", "50%"),
    *("2020-01-31", "31.1.2020", "12:30", "1,234.5", "1.234,5", "€ 5", "007", "1e9", "-.5"),
)
_ODD = (
    *("", " ", "\t", '"', '""', "'", "\\", '\\"', "\0", "\x1a", "\x1b[31m", "\x7f", "\ufeff"),
    *("\r", "\n", "\r\n", "\u2028", "\x85", "\xa0", "\u200b", "\u202e", "\ufffe", "\U0010ffff"),
    *("{", "[", "<", "<html>", "# ", "--", "sep=;", '"a"b"', '"a', 'a"', "a\\,b", ",", ";", "|"),
)
_PREAMBLES = (
    *("sep=;", "sep=,", '"sep=|"', "# a comment", "Report of 2020", "", ";;;", "<?xml", "{", "[{"),
    *("%PDF-1.7", "PK", "GIF89a", "ID3,ORC,BM", "---", "\ufeff", "\ufeff\ufeff", "\0\0\0", '"'),
)
_BUILT_IN = (
    b"city,country,population\nOslo,Norway,709037\nLima,Peru,10092000\nRome,Italy,2748109\n" * 9,
    b'id;text\r\n1;"a; ""b"""\r\n2;"two\r\nlines"\r\n3;plain\r\n' * 9,
    b"name\tyear\tvalue\nalpha\t1990\t1.5\nbeta\t1991\t\ngamma\t1992\t-3\n" * 9,
    b'{"id": 1, "name": "a", "at": {"x": 1}}\n{"id": 2, "name": null, "tags": ["u", "v"]}\n' * 9,
)
_ENDINGS = (".csv", ".csv", ".csv", ".tsv", ".txt", ".dat", ".tab", ".psv", ".data", ".CSV")
_JSON_ENDINGS = (".jsonl", ".ndjson", ".json")


@dataclass(frozen=True)
class Fuzzed:
    """A generated file and its recipe."""

    name: str
    content: bytes
    recipe: str


def fuzzed(seed: str) -> Fuzzed:
    """Make one file; the same seed gives the same."""
    random = Random(seed)
    makers: tuple[Callable[[Random], bytes], ...] = (
        _delimited,
        _json,
        _bytes,
        _long,
        _wide,
        _sample,
    )
    make = random.choices(makers, [60, 15, 4, 1, 0.2, 20])[0]
    recipe = [make.__name__[1:]]
    content = make(random)
    if random.random() < (0.7 if make is _sample else 0.25):
        content = _mutated(random, content)
        recipe.append("mutated")
    name = _name(random, make is _json)
    if random.random() < 0.12:
        content, ending = _packed(random, content)
        name += ending
        recipe.append(f"packed{ending}")
    return Fuzzed(name, content, "+".join(recipe))


def _name(random: Random, is_json: bool) -> str:
    other = random.random() < 0.05
    return "file" + random.choice(_JSON_ENDINGS if is_json != other else _ENDINGS)


def _sample(random: Random) -> bytes:
    return random.choice(_BUILT_IN)


def _bytes(random: Random) -> bytes:
    letters = random.choice(
        (bytes(range(256)), b'a,"\n', b'";\r\n\0', b"1,\t \n", b"\xff\xfe\0,\n")
    )
    return bytes(random.choices(letters, k=random.choice((1, 2, 3, 10, 100, 5000))))


def _long(random: Random) -> bytes:
    """Lines, cells or names longer than any sample that a reader may take."""
    size = random.choice((70_000, 300_000, 3_000_000))
    cell = random.choice(("x", "x,", '"', '""', "a b ", "é", "\r", '"a"",', "1;2,3|", "\0"))
    text = cell * (size // len(cell))
    head = random.choice(("", "a,b\n", "a,b\n1,2\n3,4\n5,6\n", '"', 'a,"b\n1,'))
    return (head + text + random.choice(("", "\n1,2\n", '"\n1,2\n"', '"'))).encode()


def _wide(random: Random) -> bytes:
    width = random.choice((999, 10_000, 99_999, 100_000, 100_001, 150_000))
    rows = random.choice((1, 2, 3))
    delimiter = random.choice(",;\t")
    names = delimiter.join(f"c{i % 70_000}" for i in range(width))
    row = delimiter.join(random.choices(("1", "", "x"), k=width))
    return "\n".join([names, *[row] * rows]).encode()


def _delimited(random: Random) -> bytes:
    """Write a table by a grammar in which every rule may be broken."""
    style = _Style(random)
    lines = [style.line(row) for row in style.rows()]
    preamble = random.choices(_PREAMBLES, k=random.choice((1, 1, 2, 5)))
    if random.random() < 0.2:
        lines = [*preamble, *lines]
    text = "".join(line + style.end() for line in lines)
    if random.random() < 0.3:
        text = text.rstrip("\r\n")
    return _encoded(random, text)


class _Style:
    """How one file is written: its delimiter, quotes, line ends and how often it errs."""

    def __init__(self, random: Random) -> None:
        self.random = random
        plain = random.random() < 0.7
        self.delimiter = random.choice(_DELIMITERS[:4] if plain else _DELIMITERS)
        self.quote = random.choices(('"', "'", "", "`", "“"), [80, 8, 6, 3, 3])[0]
        self.quoting = random.choice(("needed", "needed", "always", "often", "never"))
        self.escape = random.choices(("doubled", "backslash", "none"), [70, 15, 15])[0]
        mixed = random.random() < 0.15
        common = random.random() < 0.8
        self.ends = _LINE_ENDS if mixed else (random.choice(_LINE_ENDS[: 3 if common else 10]),)
        self.odd, self.ragged, self.broken = (
            random.choice((0, 0, 0.01, 0.1, 0.5)) for _ in range(3)
        )
        self.blank = random.choice((0, 0, 0, 0.1))
        self.padding = random.choice(("", "", "", " ", "\t", "  "))

    def end(self) -> str:
        """Return a line end, sometimes followed by a blank line."""
        end = self.random.choice(self.ends)
        return end * 2 if self.random.random() < self.blank else end

    def rows(self) -> list[list[str]]:
        """Generate the cells of a table, its header first if it has one."""
        random = self.random
        width = random.choice((1, 1, 2, 2, 3, 3, 4, 5, 8, 20, 60))
        height = random.choice((0, 1, 2, 3, 5, 10, 30, 100, 250))
        kinds = [random.choice((self._number, self._word, self._code)) for _ in range(width)]
        body = [[self._odd_or(make) for make in kinds] for _ in range(height)]
        if random.random() < 0.8:
            body.insert(0, self._header(width))
        return [self._ragged(row) for row in body]

    def _header(self, width: int) -> list[str]:
        names = [
            self.random.choice((f"name {i}", "id", "", " ", "x", "2020")) for i in range(width)
        ]
        return names if self.random.random() < 0.5 else [f"column {i}" for i in range(width)]

    def _odd_or(self, make: Callable[[], str]) -> str:
        if self.random.random() < self.odd:
            return "".join(
                self.random.choices((*_ODD, *_WORDS), k=self.random.choice((1, 1, 2, 4)))
            )
        return make()

    def _number(self) -> str:
        return str(self.random.choice((self.random.randrange(100), self.random.random())))

    def _word(self) -> str:
        return self.random.choice(_WORDS)

    def _code(self) -> str:
        return f"AB-{self.random.randrange(1000):03}"

    def _ragged(self, row: list[str]) -> list[str]:
        if self.random.random() >= self.ragged:
            return row
        return self.random.choice((row[:-1], row[:1], [], [*row, ""], [*row, *row], row * 5))

    def line(self, row: list[str]) -> str:
        """Write one row, sometimes with broken quotes."""
        return self.delimiter.join(self.padding + self._written(cell) for cell in row)

    def _written(self, cell: str) -> str:
        random, quote = self.random, self.quote
        needed = any(part and part in cell for part in (self.delimiter, quote, "\n", "\r"))
        wanted = {"needed": needed, "always": True, "often": random.random() < 0.5}
        if not quote or not wanted.get(self.quoting, False):
            return cell
        if self.escape != "none":
            cell = cell.replace(quote, quote * 2 if self.escape == "doubled" else "\\" + quote)
        whole = f"{quote}{cell}{quote}"
        if random.random() >= self.broken:
            return whole
        return random.choice((whole[1:], whole[:-1], whole + "x", " " + whole, whole + " ", cell))


def _encoded(random: Random, text: str) -> bytes:
    name = random.choice(_ENCODINGS) if random.random() < 0.4 else "utf-8"
    data = text.encode(name, random.choice(("replace", "ignore")))
    return random.choice(_MARKS) + data if random.random() < 0.05 else data


def _json(random: Random) -> bytes:
    """Write rows of JSON: lines, an array, or something between."""
    rows = [_json_row(random) for _ in range(random.choice((0, 1, 2, 5, 50, 300)))]
    plain = random.random() < 0.5
    texts = [_unfolded(json.dumps(row, ensure_ascii=plain)) for row in rows]
    way = random.choice(("lines", "lines", "array", "array", "object", "spaced"))
    end = random.choice(("\n", "\n", "\r\n", "\n\n", "\r"))
    if way == "array":
        text = "[" + f",{end}".join(texts) + random.choice(("]", "]", "", ",]", "]]", "] x"))
    elif way == "object":
        text = '{"rows": [' + ", ".join(texts) + "]}"
    else:
        text = (end if way == "lines" else " ").join(texts)
    name = random.choice(("utf-8", "utf-8", "utf-8", *_ENCODINGS[:8]))
    return text.encode(name, "surrogatepass" if name.startswith("utf") else "replace")


def _json_row(random: Random, depth: int = 0) -> object:
    if random.random() < 0.03:
        return random.choice((1, None, "text", [1, 2], [], {}, True))
    names = random.sample(("id", "name", "a.b", "", "x\ny", "é", "\ud800", "k" * 300), 3)
    return {name: _json_cell(random, depth) for name in names}


def _json_cell(random: Random, depth: int) -> object:
    if depth < 3 and random.random() < 0.1:
        return _json_row(random, depth + 1)
    simple = (1, 1.5, -0.0, 1e300, float("nan"), float("inf"), 10**30, True, None, [1, {"a": 2}])
    return random.choice((*simple, *_WORDS, *_ODD, "\udc80", *_FOLDED))


#: What Python itself would not write: deep nesting, and numbers of more than 4,300 digits.
_FOLDED = {
    "@deep": '{"d": [' * 40 + "1" + "]}" * 40,
    "@deeper": "[" * 3000 + "1" + "]" * 3000,
    "@deepest": '{"d":' * 3000 + "1" + "}" * 3000,
    "@unclosed": "[" * 3000,
    "@big": "9" * 5000,
    "@small": "1." + "3" * 5000 + "e-400",
}


def _unfolded(text: str) -> str:
    for mark, meant in _FOLDED.items():
        text = text.replace(f'"{mark}"', meant)
    return text


def _mutated(random: Random, content: bytes) -> bytes:
    """Change, drop, repeat or move a few bytes."""
    data = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 5, 30))):
        at = random.randrange(len(data) + 1)
        to = min(len(data), at + random.choice((1, 1, 2, 10, 1000)))
        what = random.randrange(5)
        if what == 0:
            data[at:to] = bytes(random.randrange(256) for _ in range(min(to - at, 20)))
        elif what == 1:
            del data[at:to]
        elif what == 2:
            data[at:at] = data[at:to] * random.choice((1, 3))
        elif what == 3:
            data[at:at] = random.choice((b'"', b"\0", b"\xff", b"\r", b"\n", b",", b'\\"', *_MARKS))
        elif random.random() < 0.3:
            del data[at:]
    return bytes(data)


def _packed(random: Random, content: bytes) -> tuple[bytes, str]:
    """Compress a file; sometimes truncate it, damage it or misname it."""
    ways = {
        ".gz": lambda: gzip.compress(content, mtime=0),
        ".bz2": lambda: bz2.compress(content),
        ".zst": lambda: pa.compress(content, "zstd", asbytes=True),
    }
    ending = random.choice(list(ways))
    data = ways[ending]()
    fate = random.choice(("whole", "whole", "cut", "cut", "spoilt", "twice", "plain", "tail"))
    if fate == "cut":
        data = data[: random.randrange(len(data) + 1)]
    elif fate == "spoilt":
        data = _mutated(random, data)
    elif fate == "twice":
        data += data
    elif fate == "plain":
        data = content
    elif fate == "tail":
        data += b"\0" * 20 if random.random() < 0.5 else b"garbage"
    return data, random.choice((ending, ending, ending, "", ".gz"))
