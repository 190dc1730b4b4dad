"""Tables in buckets: listed in one go, copied to a temporary file when they are read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from deepjoin.errors import DeepJoinError, MissingExtra, UnreadableTable, unknown_name
from deepjoin.lazy import cached_property
from deepjoin.model import Reading, Table
from deepjoin.read.files import FileSource, not_read
from deepjoin.read.formats import format_of, named_table, read_file, suffixes
from deepjoin.read.parts import Entry, checked, grouped, member_columns, read_parts
from deepjoin.read.remote_files import (
    INDEX,
    BucketUrl,
    Download,
    Downloads,
    RemoteFiles,
    closed_folders,
    ending,
)
from deepjoin.read.source import (
    Description,
    Item,
    Listing,
    Skipped,
    Source,
    group_stamp,
    left_out,
    skipped_item,
    table_in,
    without_sheets,
)
from deepjoin.read.walk import MANIFEST, covers, is_hidden, is_index_manifest, is_wanted
from deepjoin.settings import DEFAULTS, Settings

#: Bytes that show the header of a file, or whether JSON holds rows.
_HEAD = 1 << 18
#: Nanoseconds; stores keep times to the second.
_LATELY = 2_000_000_000
#: Attributes that hold something open once the source has been listed.
_OPEN = ("_place", "_downloads")

Infos = dict[str, pa.fs.FileInfo]


class BucketSource(Source):
    """The tables below a URL such as ``s3://bucket/folder``, or that fit one with wildcards.

    A table's name is its path relative to the URL's folder; a sheet's is ``file.xlsx#Sheet``.
    """

    kind = "bucket"
    is_portable = True

    def __init__(self, url: str, settings: Settings = DEFAULTS) -> None:
        self.url, self.settings = BucketUrl.parse(url), settings
        self.skipped: list[Skipped] = []
        #: Whether the manifests looked at so far, by name, are those of indexes.
        self._manifests: dict[str, bool] = {}

    def items(self) -> Iterator[Item]:
        """List objects and folders of part files, tables or not, in the order of their names."""
        listed = self._listed()
        infos = self._wanted(listed)
        entries = list(self._grouped(infos))
        order = [name for entry in entries for name in _members(entry) if self._is_read(name)]
        # Tables are read in the order of the listing, so copies can run ahead of the reader.
        self._downloads.expect({name: infos[name].size or 0 for name in order})
        items = [skipped_item(name, why) for name, why in self._passed_over(listed).items()]
        if not infos:
            count = sum(self._is_below(name) and self._is_read(name) for name in self._open(listed))
            items += [skipped_item(str(self.url), left_out(count))] if count else []
        for entry in entries:
            members = [infos[name] for name in _members(entry)]
            size = sum(info.size or 0 for info in members)
            listing = partial(self._listing, entry)
            items.append(Item(_name(entry), _stamp(members), listing, size=size))
        yield from sorted(items, key=lambda item: item.name)

    def table(self, name: str) -> Table:
        """Open one table by its name, without listing the others."""
        entry = self._entry(name)
        return table_in(self._listing(entry).tables, name, _name(entry), str(self.url))

    def describe(self, index: Path) -> Description:
        """Describe where the source is; a URL does not depend on the index folder."""
        return {"kind": self.kind, "url": str(self.url)}

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is open: another process connects to the bucket itself."""
        return {name: value for name, value in vars(self).items() if name not in _OPEN}

    @cached_property
    def _place(self) -> tuple[RemoteFiles, str]:
        """The folder of all names and, if the URL is that of one object, its name."""
        files = RemoteFiles(self.url)
        may_be_object = self.url.path and not self.url.patterns and not self.url.is_folder
        if not may_be_object or files.info().type != pa.fs.FileType.File:
            return files, ""
        folder, _, last = self.url.path.rpartition("/")
        return RemoteFiles(BucketUrl(self.url.scheme, self.url.host, folder)), last

    @cached_property
    def _downloads(self) -> Downloads:
        return Downloads(self._place[0])

    def _listed(self) -> Infos:
        """List every object at or below the URL's folder; a glob must fit one of them."""
        files, only = self._place
        infos = {only: files.info(only)} if only else files.below()
        if not infos and self.url.path:
            raise DeepJoinError(f"There is no object {self.url.folder}, and none below it.")
        if self._closed(infos).get("") == INDEX:
            raise DeepJoinError(
                f"'{self.url}' is a deepjoin index, not a folder of tables: open it with "
                "deepjoin.open, or search it with: deepjoin search INDEX FILE"
            )
        if self.url.patterns and not any(map(self._is_below, self._open(infos))):
            raise DeepJoinError(f"No object matches '{self.url}'.")
        return infos

    def _wanted(self, infos: Infos) -> Infos:
        """Leave out what is hidden, an index, excluded, or has a name that is not a path."""
        if self._place[1]:
            return infos
        return {name: infos[name] for name in self._open(infos) if self._belongs(name)}

    def _open(self, infos: Infos) -> Iterator[str]:
        """Name the objects that are not parts of something else."""
        closed = tuple(f"{folder}/" if folder else "" for folder in self._closed(infos))
        return (name for name in infos if not name.startswith(closed))

    def _closed(self, infos: Infos) -> dict[str, str]:
        """Find the folders whose files are not tables, and what they are."""
        found = closed_folders(infos)
        for folder in [folder for folder, kind in found.items() if kind == INDEX]:
            name = f"{folder}/{MANIFEST}" if folder else MANIFEST
            if name not in self._manifests:
                try:
                    content = self._place[0].read(name, lambda file: bytes(file.read()))
                    self._manifests[name] = is_index_manifest(content)
                except UnreadableTable:  # then its name decides: an index is never taken apart
                    self._manifests[name] = True
            if not self._manifests[name]:  # other programs write manifests too
                del found[folder]
        return found

    def _passed_over(self, infos: Infos) -> dict[str, str]:
        """Return what is left out although it may hold tables, with the reasons."""
        if self._place[1]:
            return {}
        odd = {name: "its name has slashes side by side" for name in infos if "" in name.split("/")}
        here = PurePosixPath(self.url.host, self.url.path).name
        closed = self._closed(infos).items()
        return odd | {
            folder or here: f"{kind}; copy it to a folder to have it read"
            for folder, kind in closed
            if kind != INDEX and (not folder or self._belongs(folder) or self.url.patterns)
        }

    def _belongs(self, name: str) -> bool:
        chosen = self.settings
        return self._is_below(name) and is_wanted(name, chosen.include, chosen.exclude)

    def _is_below(self, name: str) -> bool:
        return _is_path(name) and covers(self.url.patterns, name.split("/"))

    def _grouped(self, names: Iterable[str]) -> Iterator[Entry]:
        here = PurePosixPath(self.url.host, self.url.path).name
        chosen = self.settings
        found = grouped(names, chosen.parts == "auto", chosen.one_table, here)
        return checked(found, self._columns_of)

    def _columns_of(self, name: str) -> list[str]:
        """Name the columns of an object without fetching all of it."""
        files = self._place[0]
        if format_of(name) == "parquet":
            return files.read(name, lambda file: [*pq.read_schema(file).names])
        head = files.download(name, ending(name), _HEAD)
        try:
            return member_columns(head.path.parent, head.path.name)
        finally:
            head.remove()

    def _entry(self, name: str) -> Entry:
        """Find the object, or the folder of part files, that holds a table."""
        files, only = self._place
        # First by asking for the object itself: listing a bucket may take minutes.
        for file in without_sheets(name):
            if only or not self._belongs(file):
                found = file == only
            else:
                found = files.info(file).type == pa.fs.FileType.File
            if found:
                return file
        if not only and _is_path(name):
            below = self._wanted(files.below(name))
            for entry in self._grouped(below):
                if _name(entry) == name:
                    return entry
        entries = {_name(entry): entry for entry in self._grouped(self._wanted(self._listed()))}
        if name not in entries:
            raise unknown_name("table", name, str(self.url), filter(self._is_read, entries))
        return entries[name]

    def _is_read(self, name: str) -> bool:
        return format_of(name) is not None or self._is_named(name)

    def _is_named(self, name: str) -> bool:
        """Check whether the user named this very object, or objects with its ending."""
        endings = {
            suffixes(pattern) for pattern in (*self.settings.include, *self.url.patterns[-1:])
        }
        return name == self._place[1] or suffixes(name) in endings - {""}

    def _listing(self, entry: Entry) -> Listing:
        if not isinstance(entry, str):
            read = partial(read_parts, entry, self._read_member)
            return Listing((named_table(entry.name, read),))
        kind = format_of(entry)
        if not self._is_read(entry):
            return not_read(entry)
        if kind == "excel" or (kind == "json" and not self._is_named(entry)):
            return self._looked_into(entry, kind)
        return Listing((named_table(entry, partial(self._read, entry)),))

    def _looked_into(self, name: str, kind: str) -> Listing:
        """List the sheets of a workbook, or JSON if its start shows that it holds rows."""
        files, only = self._place
        # The start of JSON shows whether it holds rows; a workbook has its directory at its end.
        limit = _HEAD if kind == "json" else 1 << 62
        try:
            copy = self._downloads.take_held(name) or files.download(name, ending(name), limit)
        except UnreadableTable:  # reading it reports why
            return Listing((named_table(name, partial(self._read, name)),))
        local = FileSource([copy.path if only else copy.path.parent])
        found = [table.name.removeprefix(copy.path.name) for table in local.tables()]
        here = (str(copy.path), files.shown(name))
        skipped = [Skipped(name, one.reason.replace(*here), one.passing) for one in local.skipped]
        # What was copied whole need not be copied again when its tables are read.
        if found and copy.path.stat().st_size < limit:
            self._downloads.keep(name, copy)
        tables = [
            named_table(name, partial(self._read, name, part[1:], part != found[-1]), part[1:])
            for part in found
        ]
        return Listing(tuple(tables), tuple(skipped))

    def _read(self, name: str, sheet: str = "", more: bool = False) -> Reading:
        """Read a copy; ``more`` says that other sheets of it are likely to be read next."""
        copy = self._downloads.take(name)
        done = partial(self._downloads.keep, name, copy) if more else copy.remove
        return self._read_copy(name, sheet, copy, done)

    def _read_member(self, name: str) -> Reading:
        """Read a part file; engines write empty ones for parts without rows."""
        copy = self._downloads.take(name)
        if copy.path.stat().st_size == 0 and format_of(name) != "parquet":
            copy.remove()
            return Reading(iter(()), ["The file is empty."])
        return self._read_copy(name, "", copy, copy.remove)

    def _read_copy(
        self, name: str, sheet: str, copy: Download, done: Callable[[], object]
    ) -> Reading:
        """Read a copy under the name of its object."""
        shown = self._place[0].shown(name)
        try:
            if sheet:
                from deepjoin.read.excel import read_sheet

                reading = read_sheet(copy.path, sheet)
            else:
                reading = read_file(copy.path, format_of(name) or "delimited")
        except (UnreadableTable, MissingExtra) as error:
            copy.remove()
            raise _renamed(error, copy.path, shown) from None

        def batches() -> Iterator[pa.RecordBatch]:
            try:
                yield from reading
            except (UnreadableTable, MissingExtra) as error:
                raise _renamed(error, copy.path, shown) from None
            finally:
                done()

        return Reading(batches(), reading.notes, reading.memory)


def reopen(described: Description, index: Path, settings: Settings) -> BucketSource:
    """Open the source that `BucketSource.describe` described."""
    return BucketSource(described["url"], settings)


def _renamed(error: DeepJoinError, path: Path, shown: str) -> DeepJoinError:
    """Name the object where a reader named its copy."""
    text = str(error).replace(str(path), shown)
    if isinstance(error, UnreadableTable):
        return UnreadableTable(text, passing=error.passing)
    return type(error)(text)


def _name(entry: Entry) -> str:
    return entry if isinstance(entry, str) else entry.name


def _members(entry: Entry) -> tuple[str, ...]:
    return (entry,) if isinstance(entry, str) else entry.members


def _is_path(name: str) -> bool:
    return not any(part == "" or is_hidden(part) for part in name.split("/"))


def _stamp(infos: list[pa.fs.FileInfo]) -> str:
    """Combine sizes and times; '' if a time is unknown or too recent to show another change."""
    lately = time.time_ns() - _LATELY
    if any(info.mtime_ns is None or info.mtime_ns > lately for info in infos):
        return ""
    stamps = [(info.path, f"{info.size}-{info.mtime_ns}") for info in infos]
    return stamps[0][1] if len(stamps) == 1 else group_stamp(stamps)
