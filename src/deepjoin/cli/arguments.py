"""Arguments that several commands share, and readers of option values.

A reader raises `ArgumentTypeError`, so a bad value is a usage error (exit status 2).
"""

from __future__ import annotations

import csv
import difflib
import re
from argparse import ArgumentParser, ArgumentTypeError, _MutuallyExclusiveGroup
from collections.abc import Callable, Iterable
from typing import Any

from deepjoin.errors import DeepJoinError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def suggestion(text: str, known: Iterable[str]) -> str:
    """Suggest the name nearest to a misspelt one; empty if none is near.

    >>> suggestion("serch", ["search", "join"])
    ". Did you mean 'search'?"
    """
    near = difflib.get_close_matches(text, list(known), n=1)
    return f". Did you mean '{near[0]}'?" if near else ""


def whole(least: int) -> Callable[[str], int]:
    """Read a whole number >= ``least``."""

    def read(text: str) -> int:
        if not re.fullmatch(r"-?[0-9]+", text) or int(text) < least:
            raise ArgumentTypeError(f"must be a whole number >= {least}, got '{text}'")
        return int(text)

    return read


def cosine(text: str) -> float:
    """Read a least cosine, or a distance as a share of the largest one, as PEXESO states it.

    >>> cosine("0.9"), round(cosine("6%"), 4)
    (0.9, 0.9928)
    """
    if not text.endswith("%"):
        return share(text)
    from deepjoin.lab.pexeso import cosine_of_share

    try:
        return cosine_of_share(float(text[:-1]) / 100)
    except (ValueError, DeepJoinError):
        raise ArgumentTypeError(
            f"must be a cosine from 0 to 1, or a share of the largest distance below 70%, "
            f"e.g. 6%, got '{text}'"
        ) from None


def share(text: str) -> float:
    """Read a share between 0 and 1.

    >>> share("0.7")
    0.7
    """
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ArgumentTypeError(f"must be a number between 0 and 1, got '{text}'")
    return value


def number(text: str) -> float:
    """Read a number >= 0.

    >>> number("2e-5")
    2e-05
    """
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ArgumentTypeError(f"must be a number >= 0, got '{text}'")
    return value


def seconds(text: str) -> float:
    """Read a duration above 0 seconds.

    >>> seconds("0.5")
    0.5
    """
    value = number(text)
    if value == 0:
        raise ArgumentTypeError("must be more than 0 seconds")
    return value


def size(text: str) -> int:
    """Read a size in bytes, such as 500M.

    >>> size("2G") == 2 << 30
    True
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT]?)B?", text.strip(), re.IGNORECASE)
    if match is None:
        raise ArgumentTypeError(f"must be a size such as 500M or 2G, got '{text}'")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def depths(text: str) -> list[int]:
    """Read the depths of an evaluation.

    >>> depths("10,20")
    [10, 20]
    """
    read = whole(1)
    try:
        return [read(part.strip()) for part in text.split(",")]
    except ArgumentTypeError:
        raise ArgumentTypeError(f"must be a list such as 10,20, got '{text}'") from None


def cells(text: str) -> list[str]:
    """Read values as a line of CSV.

    >>> cells('Oslo, "Lima, Peru"')
    ['Oslo', 'Lima, Peru']
    """
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    found = [cell for row in rows for cell in row]
    if not any(cell.strip() for cell in found):
        raise ArgumentTypeError(f"must be values such as Oslo,Lima,Rome, got '{text}'")
    return found


def target(text: str) -> tuple[str, str]:
    """Read TABLE:COLUMN, split at the last colon.

    >>> target("a:b.csv:name")
    ('a:b.csv', 'name')
    """
    table, _, column = text.rpartition(":")
    if not table or not column:
        raise ArgumentTypeError(f"must have the form TABLE:COLUMN, got '{text}'")
    return table, column


def target_text(text: str) -> str:
    """Check the form TABLE:COLUMN of a text that is split when the columns of yours are known."""
    target(text)
    return text


def targets(text: str, columns: int) -> tuple[str, str | list[str]]:
    """Read TABLE:COLUMN, or TABLE:COLUMN,... for a key of several columns.

    Names are separated by commas; one with a comma or a colon is quoted.

    >>> targets('a:b.csv:year,"x,y:z"', 2)
    ('a:b.csv', ['year', 'x,y:z'])
    """
    if columns == 1:
        return target(text)
    found = re.fullmatch(r'(.+):((?:"(?:[^"]|"")*"|[^":])+)', text, re.DOTALL)
    listed = names(found[2]) if found else []
    if found is None or len(listed) != columns:
        raise ArgumentTypeError(
            f"must name {columns} columns, TABLE:COLUMN,..., as many as -c, got '{text}'"
        )
    return found[1], listed


def join_end(text: str) -> tuple[str, list[str]]:
    """Read one end of a join, TABLE:COLUMN,...; the table may be empty.

    >>> join_end("games.csv:year,team"), join_end(":customer")
    (('games.csv', ['year', 'team']), ('', ['customer']))
    """
    found = re.fullmatch(r'(.*):((?:"(?:[^"]|"")*"|[^":])+)', text, re.DOTALL)
    if found is None:
        raise ArgumentTypeError(f"must be TABLE:COLUMN, or TABLE:COLUMN,..., got '{text}'")
    return found[1], names(found[2])


def names(text: str) -> list[str]:
    """Read names separated by commas; a name with a comma is quoted.

    >>> names('city, "rate, yearly"')
    ['city', 'rate, yearly']
    """
    rows = list(csv.reader([text], skipinitialspace=True))
    found = [name.strip() for name in rows[0]] if rows else []
    if not all(found) or not found:
        raise ArgumentTypeError(f"must be names separated by commas, got '{text}'")
    return found


def aggregates(text: str) -> dict[str, str]:
    """Read aggregates: one for all columns, others by column; split at the last equals sign.

    >>> aggregates("list,price=mean")
    {'*': 'list', 'price': 'mean'}
    """
    pairs = [one.rpartition("=") for one in names(text)]
    return {column if sign else "*": aggregate for column, sign, aggregate in pairs}


class Argument:
    """An argument or option of a command: its usage, what it is for, how its value is read.

    ``usage`` is written as in a manual: "file FILE", "--depth N", "-c --column COLUMN", "--all" for
    a switch, "[TABLE]" for what may be left out, "SOURCE..." for several. ``read`` is a function or
    the values allowed; ``more`` goes to argparse. The help shows the default unless it names one.
    """

    def __init__(
        self,
        usage: str,
        help: str,
        read: Callable[[str], Any] | tuple[str, ...] | None = None,
        default: Any = None,
        **more: Any,
    ) -> None:
        words = usage.split()
        self._names = [word for word in words if word.startswith("-")] or words[:1]
        *values, last = words[len(self._names) :] or [""]
        if last.startswith("["):
            more["nargs"], last = "?", last[1:-1]
        elif last.endswith("...") and not last.endswith(",..."):
            more |= {"action": "append"} if usage.startswith("-") else {"nargs": "+"}
            last = last.removesuffix("...")
        if values:
            more |= {"nargs": len(values) + 1, "metavar": (*values, last)}
        elif last:
            more["metavar"] = last
        elif read is None and "action" not in more:
            more["action"] = "store_true"
        if read is not None:
            more["choices" if isinstance(read, tuple) else "type"] = read
        if default is not None:
            more["default"] = default
            if default not in ("", []) and "default" not in help:
                help += f" (default {f'{default:,}' if isinstance(default, int) else default})"
        self._more = more | {"help": help}

    def add_to(self, parser: ArgumentParser | _MutuallyExclusiveGroup) -> None:
        """Add it to the parser of a command."""
        parser.add_argument(*self._names, **self._more)


INDEX = Argument("index INDEX", "an index folder, or a folder of tables (indexed on first use)")
#: Where a database has no index yet, it is made.
SOURCE = Argument("index INDEX|SOURCE", "index, folder, database file or URL")
#: A table for people, JSON for programs, and CSV where there are rows.
FORMAT = Argument("--format", "output format", ("table", "json"), "table")
FORMAT_OR_CSV = Argument("--format", "output format", ("table", "json", "csv"), "table")
TABLE_OUT = Argument("-o --out OUT", ".parquet, .csv, .tsv or .csv.gz")
#: What becomes of rows without a match and with several.
ROWS = (
    Argument("--how", "keep rows without a match, or not", ("left", "inner"), "left"),
    Argument(
        "--many",
        "when several rows match: all of them, the first, or one row",
        ("expand", "first", "aggregate"),
        "expand",
    ),
)
VECTOR_STORE = Argument(
    "--vector-store URL...",
    "search column vectors in PostgreSQL (see: deepjoin publish); repeat for each server; default: "
    "$DEEPJOIN_VECTOR_STORE, or the index itself",
)
#: How columns become texts; the defaults are those of the encoder.
TEXTS = (
    Argument("--pattern NAME", "how columns become texts"),
    Argument("--tokens N", "maximum tokens of a text", whole(8)),
    Argument(
        "--sampling NAME",
        "which cells of a tall column: frequency, random, truncate, tf-idf or bm25",
    ),
    Argument("--unit NAME", "what statistics count: characters or words"),
)
#: How column vectors are searched, and how columns become texts.
COLUMN_VECTORS = (
    Argument(
        "--vector-index KIND",
        "how to search column vectors: auto (default), flat, hnsw, ivfpq, scan4, ivf4, ...",
    ),
    Argument(
        "--metric", "distance between column vectors (default cosine)", ("cosine", "euclidean")
    ),
    *TEXTS,
)
MEMORY = Argument(
    "--memory SIZE",
    "memory that the build may hold, e.g. 1G or 4G (default 2G; about 600M are needed)",
    size,
    "2G",
)
#: How people decide about similar values.
JUDGING = (
    Argument(
        "--precision P",
        "least estimated precision of all pairs, e.g. 0.95: similar values are taken, likeliest "
        "first, as long as it is reached",
        share,
    ),
    Argument(
        "--doubtful CSV",
        "write doubtful pairs to this file; fill in accept or reject and give it back",
    ),
    Argument(
        "--decisions CSV",
        "a file with the columns query, target and decision (accept, reject or empty)",
    ),
)


def vectors(several: bool = False) -> tuple[Argument, ...]:
    """Return the options of encoders and sketches; ``several`` for one encoder a kind."""
    kinds = "NAME|DIR|KIND:WHERE" + ("..." if several else "|none")
    return (
        Argument(
            f"--encoder {kinds}",
            "column encoder, for --method deepjoin and others that compare column vectors: "
            "default, a model folder, the name of a model, KIND:WHERE"
            + ("; repeatable, one a kind" if several else ", or none (the default)"),
        ),
        Argument(
            "--cells NAME|PATH|none",
            "cell encoder, for semantic joins: default, a folder made by "
            "python -m deepjoin.lab.cell_table.make, fastText vectors (.vec, .bin), or none",
        ),
        Argument(
            "--sketch N",
            "numbers in a column's sketch, for the sketch methods; default "
            + ("768" if several else "0: none"),
            whole(1 if several else 0),
        ),
    )
