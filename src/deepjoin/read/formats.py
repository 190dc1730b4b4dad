"""The format of a file: by its name, or by its first bytes where the name is wrong."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from deepjoin.errors import UnreadableTable, first_line
from deepjoin.model import Reading, Table
from deepjoin.read.encoding import COMPRESSIONS, check_file

FORMATS = {
    **dict.fromkeys((".csv", ".tsv", ".tab", ".psv", ".txt", ".dat", ".data"), "delimited"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonlines"),
    ".json": "json",
    **dict.fromkeys((".xlsx", ".xls", ".xlsb", ".ods"), "excel"),
}
# Parquet compresses its own pages, and workbooks are zip archives already.
_COMPRESSED = ("delimited", "jsonlines", "json")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def suffixes(name: str) -> str:
    """Return the ending that says what a file is, in lower case, compression included.

    >>> suffixes("geo/Cities.CSV.gz"), suffixes("report.v2.csv"), suffixes("Makefile")
    ('.csv.gz', '.csv', '')
    """
    path = PurePosixPath(PurePosixPath(name).name.lower())
    if path.suffix in COMPRESSIONS:
        return PurePosixPath(path.stem).suffix + path.suffix
    return path.suffix


def format_of(name: str) -> str | None:
    """Name the format that the ending of a file name promises, or None.

    >>> format_of("a.tsv.zst"), format_of("a.parquet"), format_of("a.parquet.gz")
    ('delimited', 'parquet', None)
    """
    ending = suffixes(name)
    inner = ending
    for compression in COMPRESSIONS:
        inner = inner.removesuffix(compression)
    found = FORMATS.get(inner)
    return found if inner == ending or found in _COMPRESSED else None


def title_of(name: str) -> str:
    """Put a table's name into words, as a title.

    >>> title_of("geo/world_cities-2024.csv.gz"), title_of("SalesByRegion")
    ('world cities 2024', 'Sales By Region')
    """
    # A # is part of the name unless what precedes it is a file: then a sheet follows.
    file, _, sheet = name.partition("#")
    last = PurePosixPath(file if sheet and format_of(file) else name).name
    if format_of(last):
        last = last[: -len(suffixes(last))]
    return words(last)


def named_table(name: str, read: Callable[[], Reading], sheet: str = "") -> Table:
    """Make the table of a file, or of a sheet in it, with words from its name and folder."""
    context = words(sheet or str(PurePosixPath(name).parent))
    return Table(f"{name}#{sheet}" if sheet else name, read, title_of(name), context)


def words(text: str) -> str:
    """Split at punctuation, underscores and camelCase humps.

    >>> words("eu/openData_v1.2")
    'eu open Data v1 2'
    """
    return " ".join(re.split(r"[\W_]+", _CAMEL.sub(" ", text))).strip()


def read_file(path: Path, expected: str) -> Reading:
    """Read a file in the format of its first bytes, else in that of its name."""
    check_file(path)
    # Imported here: each reader loads a library that the other formats do not need.
    kind = _by_first_bytes(path) or expected
    if kind == "parquet":
        from deepjoin.read.parquet import read_parquet

        return read_parquet(path)
    if kind == "excel":
        from deepjoin.read.excel import read_sheet

        return read_sheet(path)
    if kind in ("json", "jsonlines"):
        from deepjoin.read.jsonlines import read_json, read_jsonlines

        return read_json(path) if kind == "json" else read_jsonlines(path)
    from deepjoin.read.delimited import read_delimited

    return read_delimited(path)


def true_format(path: Path) -> str | None:
    """Name the format of a file by its first bytes, else by its ending."""
    return _by_first_bytes(path) or format_of(path.name)


def _by_first_bytes(path: Path) -> str | None:
    try:
        with open(path, "rb") as file:
            head = file.read(8)
    except OSError as error:
        raise unreadable(path, error) from None
    if head.startswith(b"PAR1"):
        return "parquet"
    if head == _OLD_OFFICE:
        return "excel"
    if not head.startswith(b"PK\x03\x04"):
        return None
    # Workbooks are zip archives; others must be unpacked first.
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, RuntimeError, ValueError):
        return "excel"  # a damaged one, which its reader reports
    if any(name == "content.xml" or name.startswith("xl/") for name in names):
        return "excel"
    raise UnreadableTable(f"{path} is a zip archive; unpack it to read the tables inside.")


def unreadable(path: Path, error: Exception, what: str = "cannot be read") -> UnreadableTable:
    """Turn a library's error about a file into one line that names the file."""
    if isinstance(error, FileNotFoundError):
        return UnreadableTable(f"{path} is no longer there.", passing=True)
    if isinstance(error, PermissionError):
        return UnreadableTable(f"{path} {what}: no permission.", passing=True)
    # Libraries raise OSError too, but only the operating system gives it a number.
    is_of_system = isinstance(error, OSError) and error.errno is not None
    return UnreadableTable(f"{path} {what}: {first_line(error)}.", passing=is_of_system)
