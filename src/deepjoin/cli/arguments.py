"""Arguments that several commands share, and readers of option values.

A reader raises `ArgumentTypeError`, so a bad value is a usage error (exit status 2).
"""

from __future__ import annotations

import csv
import difflib
import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterable

from deepjoin.errors import DeepJoinError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def index_argument(parser: ArgumentParser) -> None:
    """Add the index that a command works on."""
    parser.add_argument(
        "index",
        metavar="INDEX",
        help="an index folder, or a folder of tables (indexed on first use)",
    )


def format_argument(parser: ArgumentParser, *more: str) -> None:
    """Add the choice between a table for people and JSON for programs."""
    parser.add_argument(
        "--format", choices=("table", "json", *more), default="table", help="output format"
    )


def row_arguments(parser: ArgumentParser) -> None:
    """Add what becomes of rows without a match and with several."""
    parser.add_argument(
        "--how", choices=("left", "inner"), default="left", help="keep rows without a match, or not"
    )
    parser.add_argument(
        "--many",
        choices=("expand", "first", "aggregate"),
        default="expand",
        help="when several rows match: all of them, the first, or one row",
    )


def vector_store_argument(parser: ArgumentParser) -> None:
    """Add the servers that search column vectors."""
    parser.add_argument(
        "--vector-store",
        metavar="URL",
        action="append",
        help="search column vectors in PostgreSQL (see: deepjoin publish); repeat for each "
        "server; default: $DEEPJOIN_VECTOR_STORE, or the index itself",
    )


def vector_arguments(parser: ArgumentParser, several: bool = False) -> None:
    """Add the encoders of columns and cells, and sketches; ``several`` for one encoder a kind."""
    parser.add_argument(
        "--encoder",
        metavar="NAME|DIR|KIND:WHERE" + ("" if several else "|none"),
        action="append" if several else "store",
        help="column encoder, for --method deepjoin and others that compare column vectors: "
        "default, a model folder, the name of a model, KIND:WHERE"
        + ("; repeatable, one a kind" if several else ", or none (the default)"),
    )
    parser.add_argument(
        "--cells",
        metavar="NAME|PATH|none",
        help="cell encoder, for semantic joins: default, a folder made by "
        "python -m deepjoin.lab.cell_table.make, fastText vectors (.vec, .bin), or none",
    )
    parser.add_argument(
        "--sketch",
        metavar="N",
        type=whole(1 if several else 0),
        help="numbers in a column's sketch, for the sketch methods; default "
        + ("768" if several else "0: none"),
    )


def column_vector_arguments(parser: ArgumentParser) -> None:
    """Add how column vectors are searched, and how columns become texts."""
    parser.add_argument(
        "--vector-index",
        metavar="KIND",
        help="how to search column vectors: auto (default), flat, hnsw, ivfpq, scan4, ivf4, ...",
    )
    parser.add_argument(
        "--metric",
        choices=("cosine", "euclidean"),
        help="distance between column vectors (default cosine)",
    )
    text_arguments(parser)


def text_arguments(parser: ArgumentParser) -> None:
    """Add how columns become texts; the defaults are those of the encoder."""
    parser.add_argument("--pattern", metavar="NAME", help="how columns become texts")
    parser.add_argument("--tokens", type=whole(8), metavar="N", help="maximum tokens of a text")
    parser.add_argument(
        "--sampling",
        metavar="NAME",
        help="which cells of a tall column: frequency, random, truncate, tf-idf or bm25",
    )
    parser.add_argument("--unit", metavar="NAME", help="what statistics count: characters or words")


def memory_argument(parser: ArgumentParser) -> None:
    """Add how much memory a command that writes an index may hold."""
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        type=size,
        default="2G",
        help="memory that the build may hold, e.g. 1G or 4G (default 2G; about 600M are needed)",
    )


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
    from deepjoin.lab.pexeso.pexeso import cosine_of_share

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


def judging_arguments(parser: ArgumentParser) -> None:
    """Add the options by which people decide about similar values."""
    parser.add_argument(
        "--precision",
        metavar="P",
        type=share,
        help="least estimated precision of all pairs, e.g. 0.95: similar values are taken, "
        "likeliest first, as long as it is reached",
    )
    parser.add_argument(
        "--doubtful",
        metavar="CSV",
        help="write doubtful pairs to this file; fill in accept or reject and give it back",
    )
    parser.add_argument(
        "--decisions",
        metavar="CSV",
        help="a file with the columns query, target and decision (accept, reject or empty)",
    )
