"""Part files: which files are one table together, and how they are read as one."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from deepjoin.errors import MissingExtra, UnreadableTable
from deepjoin.model import Reading
from deepjoin.read.dialect import sniff
from deepjoin.read.encoding import COMPRESSIONS
from deepjoin.read.formats import (
    format_of,
    read_file,
    suffixes,
    true_format,
    unreadable,
)
from deepjoin.read.walk import is_glob, matches
from deepjoin.show.text import count, some

_UUID = re.compile(r"[0-9a-f]{8}(-?)[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{12}.*", re.I)
_QUERY = re.compile(r"\d{8}_\d{6}_\d{5}_[a-z0-9]{5}")
_COPY = re.compile(r"_copy_\d+")
_DIGITS = re.compile(r"\d+")
#: Names that only engines give: Spark, Hadoop, Dask and Arrow; Hive; Redshift; Snowflake.
_ENGINE = re.compile(
    r"part[-_.]?([mr][-_.]?)?\d+(\D.*)?|0\d{5}_\d+(\D.*)?|\d{4}_part_\d+(\D.*)?|data(_\d+){3}\..*",
    re.I,
)
#: The count at the end of a note, which is added up over the files.
_TOTAL = re.compile(r": ([\d,]+)\.$")
#: How Hive and Spark write a missing key into the name of a folder.
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
#: The most columns and notes that are listed.
_SHOWN = 8


@dataclass(frozen=True)
class PartGroup:
    """A table in many files: its name, usually the folder's, and the files' names in order.

    ``forced`` is set if the user asked for the group; then the files need not look alike.
    """

    name: str
    members: tuple[str, ...]
    forced: bool = False


Entry = str | PartGroup
OpenMember = Callable[[str], Reading]


def grouped(
    names: Iterable[str], auto: bool, one_table: Sequence[str] = (), here: str = "."
) -> Iterator[Entry]:
    """Put the names of files, relative to a source, into groups; the rest stays as it is.

    ``here`` names a group whose folder is the source's own. Names come out in order; the
    marks that engines leave beside their files, such as ``_SUCCESS``, are dropped.

    >>> list(grouped(["a.csv", "log/part-0.csv", "log/part-1.csv", "log/_SUCCESS"], True))
    ['a.csv', PartGroup(name='log', members=('log/part-0.csv', 'log/part-1.csv'), forced=False)]
    """
    ordered = sorted(names)
    found: dict[str, list[str]] = {}
    forced: set[str] = set()
    left = _taken(ordered, partial(_named_by, one_table), found) if one_table else ordered
    forced.update(found)
    if auto:
        # key=value folders first: the part files inside them are numbered too.
        left = _taken(left, _hive_folder, found, _same_keys)
        left = _taken(left, _folder, found, _numbered)
    if not found:
        yield from ordered
        return
    entries: list[Entry] = [
        PartGroup(name or here, tuple(files), name in forced) for name, files in found.items()
    ]
    for name in left:
        last = _last(name)
        is_mark = last.startswith(("_", ".")) and _format(last) is None
        above = {"", *(name[:at] for at, letter in enumerate(name) if letter == "/")}
        if not is_mark or above.isdisjoint(found):
            entries.append(name)
    yield from sorted(entries, key=lambda entry: entry if isinstance(entry, str) else entry.name)


def _taken(
    names: list[str],
    group_of: Callable[[str], str | None],
    found: dict[str, list[str]],
    holds: Callable[[list[str]], bool] = bool,
) -> list[str]:
    """Move the members of every group that holds to ``found``; return the names that are left."""
    groups: dict[str, list[str]] = {}
    for name in names:
        group = group_of(name)
        if group is not None:
            groups.setdefault(group, []).append(name)
    # A bucket may have a file and a folder of one name, and two tables cannot share it.
    files = {*names, *found}
    new = {group: some for group, some in groups.items() if group not in files and holds(some)}
    found.update(new)
    gone = {name for members in new.values() for name in members}
    return [name for name in names if name not in gone] if gone else names


def _named_by(patterns: Sequence[str], name: str) -> str | None:
    """Return the topmost folder of a file that a pattern fits, else the pattern of the file."""
    folders = name.split("/")[:-1]
    above = ["/".join(folders[:end]) for end in range(1, len(folders) + 1)]
    for pattern in patterns:
        if _is_table(name) and pattern.rstrip("/") in ("", "."):
            return ""
        for folder in above:
            if _is_table(name) and matches(pattern, folder):
                return folder
        last = _last(pattern)
        if is_glob(last) and suffixes(last) and matches(pattern, name):
            return "/".join((*folders, last))
    return None


def _hive_folder(name: str) -> str | None:
    """Return the folder that holds the first ``key=value`` folder on the way to a file."""
    if "=" not in name or not _is_table(name):
        return None
    folders = name.split("/")[:-1]
    for at, folder in enumerate(folders):
        if folder.find("=") > 0:
            return "/".join(folders[:at])
    return None


def _folder(name: str) -> str | None:
    return name.rpartition("/")[0] if _is_table(name) else None


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _same_keys(members: list[str]) -> bool:
    keys = tuple(hive_keys(members[0]))
    return len(members) > 1 and all(tuple(hive_keys(name)) == keys for name in members)


def _numbered(members: list[str]) -> bool:
    """Check whether the files of a folder have the names of one table's parts, and only those."""
    if len(members) < 2:
        return False
    lasts = [_last(name) for name in members]
    shape, kind = _shape(lasts[0]), _format(lasts[0])
    if kind == "excel" or any(_shape(last) != shape or _format(last) != kind for last in lasts):
        return False
    return "@" in shape or all(map(_ENGINE.fullmatch, lasts)) or _is_running(lasts)


def _shape(last: str) -> str:
    """Write @ for what makes a name unique and # for each number; the rest is the table's.

    >>> _shape("part-00007-0c9ad6c5-9b0c-4bd2-a4d4-8d1b4c5d6e7f.c000.snappy.parquet")
    'part-#-@'
    """
    # The UUID last, because its pattern takes the rest of the name with it.
    unique = _UUID.sub("@", _COPY.sub("", _QUERY.sub("@", last)))
    return _DIGITS.sub("#", unique)


def _is_running(lasts: list[str]) -> bool:
    """Check for running numbers, padded and from 0 or 1, unlike years, months, dates and codes."""
    columns = list(zip(*map(_DIGITS.findall, lasts), strict=True))
    varying = [column for column in columns if len(set(column)) > 1]
    if len(varying) != 1:
        return False
    (texts,) = varying
    numbers = sorted(map(int, texts))
    if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return False
    padded = min(map(len, texts)) > 2 and len(set(map(len, texts))) == 1
    # DuckDB counts its files from 0, months do not.
    counted = numbers[0] == 0 and lasts[0].lower().startswith("data")
    return counted or (padded and numbers[0] < 2)


def _is_table(name: str) -> bool:
    """Check whether a name is that of a table file; Hadoop's have no ending."""
    last = _last(name)
    if _format(last) is not None:
        return True
    return suffixes(last) in ("", *COMPRESSIONS) and _ENGINE.fullmatch(last) is not None


def _format(last: str) -> str | None:
    # Folders hold many files of few endings.
    head, *endings = last.rsplit(".", 2)
    return _cached_format(".".join((head[:1], *endings)))


_cached_format = lru_cache(maxsize=4096)(format_of)


def checked(
    entries: Iterable[Entry], columns_of: Callable[[str], Iterable[str]]
) -> Iterator[Entry]:
    """Split groups whose first, middle and last files do not look like parts of one table.

    ``columns_of`` names the columns of a file. Files that it cannot read, or that have no
    columns, do not count: reading them reports what is wrong.
    """
    for entry in entries:
        if isinstance(entry, str) or entry.forced or _look_alike(entry, columns_of):
            yield entry
        else:
            yield from entry.members


def _look_alike(parts: PartGroup, columns_of: Callable[[str], Iterable[str]]) -> bool:
    members = parts.members
    headers: list[set[str]] = []
    # Three files show a change of columns over time, and cost the same for a million files.
    for name in dict.fromkeys((members[0], members[len(members) // 2], members[-1])):
        with suppress(UnreadableTable, MissingExtra):
            headers += filter(None, [set(columns_of(name))])
    # JSON and Parquet name their columns, so some may be missing: tables grow columns.
    exact = _format(_last(members[0])) in (None, "delimited")
    return all(
        headers[0] == other
        or (not exact and 2 * len(headers[0] & other) >= len(headers[0] | other))
        for other in headers[1:]
    )


def first_columns(reading: Reading) -> list[str]:
    """Name the columns of the first batch, and read no further."""
    for batch in reading:
        return list(batch.schema.names)
    return []


def read_parts(parts: PartGroup, open_member: OpenMember) -> Reading:
    """Read the files of a table one after the other; ``key=value`` folders become columns.

    A later file may bring columns that earlier ones did not have, or lack some.
    """
    notes: list[str] = []

    def batches() -> Iterator[pa.RecordBatch]:
        summary = _Summary(len(parts.members))
        for member in parts.members:
            keys = hive_keys(member)
            try:
                reading = open_member(member)
                for batch in reading:
                    # Some engines write the keys into the files too; those cells have types.
                    added = {key: keys[key] for key in keys if key not in batch.schema.names}
                    repeated = [
                        pa.repeat(pa.scalar(value, pa.string()), batch.num_rows)
                        for value in added.values()
                    ]
                    names = [*batch.schema.names, *added]
                    summary.add_columns(member, names)
                    yield pa.RecordBatch.from_arrays([*batch.columns, *repeated], names=names)
            except (UnreadableTable, MissingExtra) as error:
                passing = not isinstance(error, UnreadableTable) or error.passing
                text = f"{parts.name}: part file {member}: {error}"
                raise UnreadableTable(text, passing=passing) from None
            summary.add_notes(reading.notes)
        if not summary.columns:
            raise UnreadableTable(f"{parts.name} is empty: so is every one of its part files.")
        notes.extend(summary.notes())

    return Reading(batches(), notes)


def hive_keys(name: str) -> dict[str, str | None]:
    """Take the keys from the folders on the way to a file.

    >>> hive_keys("log/year=2020/city=S%C3%A3o%20Paulo/part-0.csv")
    {'year': '2020', 'city': 'São Paulo'}
    """
    folders = (part.partition("=") for part in name.split("/")[:-1] if part.find("=") > 0)
    return {
        unquote(key): None if value == _NO_VALUE else unquote(value) for key, _, value in folders
    }


class _Summary:
    """The notes of all files of one table, put together."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.columns: Counter[str] = Counter()
        self._member, self._seen = "", set[str]()
        self._read = 0
        self._files: Counter[str] = Counter()
        self._totals: Counter[str] = Counter()

    def add_columns(self, member: str, names: Iterable[str]) -> None:
        """Count each column once a file."""
        if member != self._member:
            self._member, self._seen = member, set()
            self._read += 1
        new = [name for name in names if name not in self._seen]
        self._seen.update(new)
        self.columns.update(new)

    def add_notes(self, notes: Iterable[str]) -> None:
        """Count notes that differ in their last number only as one."""
        for note in notes:
            text = _TOTAL.sub(": {}.", note)
            number = _TOTAL.search(note)
            self._files[text] += 1
            self._totals[text] += int(number[1].replace(",", "")) if number else 0

    def notes(self) -> Iterator[str]:
        """Write few notes about many files."""
        yield f"{count(self._count, 'part file')} read as one table."
        # Files that hold no batch have no columns to compare.
        partly = [name for name, files in self.columns.items() if files < self._read]
        if partly:
            yield f"Columns that not every part file has: {some(partly, _SHOWN)}."
        for text, files in self._files.most_common(_SHOWN):
            whole = text.replace("{}", f"{self._totals[text]:,}")
            yield f"{whole} (In {count(files, 'part file')}.)"
        if len(self._files) > _SHOWN:
            yield f"Other notes on part files, left out: {len(self._files) - _SHOWN:,}."


def read_group(root: Path, parts: PartGroup) -> Reading:
    """Read part files, whose names are relative to ``root``, as one table."""

    def read_member(name: str) -> Reading:
        if _is_blank(root, name):
            return Reading(iter(()), ["The file is empty."])
        return read_file(root / name, format_of(name) or "delimited")

    return read_parts(parts, read_member)


def _is_blank(root: Path, name: str) -> bool:
    """Check whether a file has no bytes: engines write such files for parts without rows."""
    try:
        return os.path.getsize(root / name) == 0 and format_of(name) not in ("parquet", "excel")
    except OSError as error:
        raise unreadable(root / name, error) from None


def member_columns(root: Path, name: str) -> list[str]:
    """Name the columns of a part file, reading as little as its format allows."""
    path = root / name
    if _is_blank(root, name):
        return []
    # By its bytes: engines often give their files no ending.
    kind = true_format(path) or "delimited"
    if kind == "delimited":
        return list(sniff(path).names)
    if kind == "parquet":
        try:
            return list(pq.read_schema(path).names)
        except (pa.ArrowException, OSError) as error:
            raise unreadable(path, error) from None
    return first_columns(read_file(path, kind))
