"""Tables in buckets: listed in one go, copied to a temporary file when they are read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import xxhash

from deepjoin.errors import DeepJoinError, MissingExtra, UnreadableTable, unknown_name
from deepjoin.model import Reading, Table
from deepjoin.read.formats import format_of, read_file, suffixes, title_of, words
from deepjoin.read.parts import Entry, checked, grouped, member_columns, read_parts
from deepjoin.read.remote_files import INDEX, BucketUrl, Download, RemoteFiles, closed_folders
from deepjoin.read.source import Description, Item, Listing, Skipped, Source, left_out, skipped_item
from deepjoin.read.walk import MANIFEST, covers, is_hidden, is_index_manifest, matches
from deepjoin.settings import Settings

#: Enough to see the header of a file, or whether JSON holds rows.
_HEAD = 1 << 18
#: Nanoseconds; stores tell times to the second.
_LATELY = 2_000_000_000
#: What a source holds open once it has been listed.
_OPEN = ("_place", "_downloads")

Infos = dict[str, pa.fs.FileInfo]


class BucketSource(Source):
    """The tables below a URL such as ``s3://bucket/folder``, or that fit one with wildcards.

    A table's name is its path relative to the URL's folder; a sheet's is ``file.xlsx#Sheet``.
    """

    kind = "bucket"
    is_portable = True

    def __init__(
        self,
        url: str,
        include: Iterable[str] = (),
        exclude: Iterable[str] = (),
        parts: str = "auto",
        one_table: Iterable[str] = (),
    ) -> None:
        self.url = BucketUrl.parse(url)
        self.include, self.exclude = tuple(include), tuple(exclude)
        self.parts, self.one_table = parts, tuple(one_table)
        self.skipped: list[Skipped] = []
        #: Whether the manifests looked at so far, by name, are those of indexes.
        self._manifests: dict[str, bool] = {}

    def items(self) -> Iterator[Item]:
        """List objects and folders of part files, tables or not, in the order of their names."""
        listed = self._listed()
        infos = self._wanted(listed)
        entries = list(self._grouped(infos))
        order = [name for entry in entries for name in _members(entry) if self._is_read(name)]
        self._downloads.expect({name: infos[name].size or 0 for name in order})
        passed_over = self._passed_over(listed) | ({} if infos else self._all_left_out(listed))
        items = [skipped_item(name, reason) for name, reason in passed_over.items()]
        for entry in entries:
            members = [infos[name] for name in _members(entry)]
            size = sum(info.size or 0 for info in members)
            listing = partial(self._listing, entry)
            items.append(Item(_name(entry), _stamp(members), listing, size=size))
        yield from sorted(items, key=lambda item: item.name)

    def table(self, name: str) -> Table:
        """Open one table by its name, without listing the others."""
        entry = self._entry(name)
        found = self._listing(entry).tables
        for table in found:
            if table.name == name or (len(found) == 1 and name == entry):
                return table
        raise unknown_name("table", name, str(self.url), [table.name for table in found])

    def describe(self, index: Path) -> Description:
        """Say where the source is; a bucket is the same from everywhere."""
        return {"kind": self.kind, "url": str(self.url)}

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is open: another process reaches the bucket by itself."""
        return {name: value for name, value in vars(self).items() if name not in _OPEN}

    @cached_property
    def _place(self) -> tuple[RemoteFiles, str]:
        """The folder names are relative to and, if the URL leads to one object, its name."""
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
                "deepjoin.open, or ask it with: deepjoin search INDEX FILE"
            )
        if self.url.patterns and not any(map(self._is_below, self._open(infos))):
            raise DeepJoinError(f"No object matches '{self.url}'.")
        return infos

    def _wanted(self, infos: Infos) -> Infos:
        """Leave out what is hidden, an index, not asked for, or has a name that is no path."""
        if self._place[1]:
            return infos
        return {name: infos[name] for name in self._open(infos) if self._belongs(name)}

    def _open(self, infos: Infos) -> Iterator[str]:
        """Name the objects that are not parts of something else."""
        closed = tuple(f"{folder}/" if folder else "" for folder in self._closed(infos))
        return (name for name in infos if not name.startswith(closed))

    def _closed(self, infos: Infos) -> dict[str, str]:
        """Find the folders whose files are not tables; other programs write manifests too."""
        found = closed_folders(infos).items()
        return {
            folder: kind for folder, kind in found if kind != INDEX or self._has_manifest(folder)
        }

    def _has_manifest(self, folder: str) -> bool:
        name = f"{folder}/{MANIFEST}" if folder else MANIFEST
        if name not in self._manifests:
            try:
                content = self._place[0].read(name, lambda file: bytes(file.read()))
                self._manifests[name] = is_index_manifest(content)
            except UnreadableTable:  # its name is all there is to go by
                self._manifests[name] = True
        return self._manifests[name]

    def _passed_over(self, infos: Infos) -> dict[str, str]:
        """Say what is left out although it may hold tables."""
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

    def _all_left_out(self, infos: Infos) -> dict[str, str]:
        """Say so where the patterns leave nothing of a bucket that has tables."""
        count = sum(self._is_below(name) and self._is_read(name) for name in self._open(infos))
        return {str(self.url): left_out(count)} if count else {}

    def _belongs(self, name: str) -> bool:
        return self._is_below(name) and self._is_wanted(name)

    def _is_below(self, name: str) -> bool:
        return _is_path(name) and covers(self.url.patterns, name.split("/"))

    def _is_wanted(self, name: str) -> bool:
        included = not self.include or any(matches(pattern, name) for pattern in self.include)
        return included and not any(matches(pattern, name) for pattern in self.exclude)

    def _grouped(self, names: Iterable[str]) -> Iterator[Entry]:
        here = PurePosixPath(self.url.host, self.url.path).name
        found = grouped(names, self.parts == "auto", self.one_table, here)
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
        ends = [len(name), *(at for at in range(len(name) - 1, 0, -1) if name[at] == "#")]
        for end in ends:
            if self._is_object(name[:end]):
                return name[:end]
        files, only = self._place
        if not only and _is_path(name):
            below = self._wanted(files.below(name))
            for entry in self._grouped(below):
                if _name(entry) == name:
                    return entry
        entries = {_name(entry): entry for entry in self._grouped(self._wanted(self._listed()))}
        if name not in entries:
            raise unknown_name("table", name, str(self.url), filter(self._is_read, entries))
        return entries[name]

    def _is_object(self, name: str) -> bool:
        files, only = self._place
        if only or not self._belongs(name):
            return name == only
        return bool(files.info(name).type == pa.fs.FileType.File)

    def _is_read(self, name: str) -> bool:
        return format_of(name) is not None or self._is_named(name)

    def _is_named(self, name: str) -> bool:
        """Tell whether the user asked for this very object, or for objects with its ending."""
        endings = {suffixes(pattern) for pattern in (*self.include, *self.url.patterns[-1:])}
        return name == self._place[1] or suffixes(name) in endings - {""}

    def _listing(self, entry: Entry) -> Listing:
        if not isinstance(entry, str):
            read = partial(read_parts, entry, self._read_member)
            return Listing((_table(entry.name, read),))
        kind = format_of(entry)
        if not self._is_read(entry):
            reason = f"not a table format we read ({suffixes(entry) or 'no ending'})"
            return Listing(skipped=(Skipped(entry, reason),))
        if kind == "excel" or (kind == "json" and not self._is_named(entry)):
            return self._looked_into(entry, kind)
        return Listing((_table(entry, partial(self._read, entry)),))

    def _looked_into(self, name: str, kind: str) -> Listing:
        """List the sheets of a workbook, and JSON that holds rows; its start tells."""
        from deepjoin.read.files import FileSource

        files, only = self._place
        limit = _HEAD if kind == "json" else 1 << 62
        try:
            copy = self._downloads.take_held(name) or files.download(name, ending(name), limit)
        except UnreadableTable:  # reading it will say why
            return Listing((_table(name, partial(self._read, name)),))
        local = FileSource([copy.path if only else copy.path.parent])
        found = [table.name.removeprefix(copy.path.name) for table in local.tables()]
        here = (str(copy.path), files.shown(name))
        skipped = [Skipped(name, one.reason.replace(*here), one.passing) for one in local.skipped]
        if found and copy.path.stat().st_size < limit:
            self._downloads.keep(name, copy)
        tables = [
            _table(name, partial(self._read, name, part[1:], part != found[-1]), part)
            for part in found
        ]
        return Listing(tuple(tables), tuple(skipped))

    def _read(self, name: str, sheet: str = "", more: bool = False) -> Reading:
        """Read a copy; ``more`` tells that other sheets of it are likely to follow."""
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
            reading = _opened(copy.path, format_of(name) or "delimited", sheet)
        except (UnreadableTable, MissingExtra) as error:
            copy.remove()
            raise _renamed(error, copy.path, shown) from None
        return Reading(_batches(reading, copy, shown, done), reading.notes)


def reopen(described: Description, index: Path, settings: Settings) -> BucketSource:
    """Make the source again that was described."""
    return BucketSource(
        described["url"], settings.include, settings.exclude, settings.parts, settings.one_table
    )


def _opened(path: Path, kind: str, sheet: str) -> Reading:
    if not sheet:
        return read_file(path, kind)
    from deepjoin.read.excel import read_sheet

    return read_sheet(path, sheet)


def _batches(
    reading: Reading, copy: Download, shown: str, done: Callable[[], object]
) -> Iterator[pa.RecordBatch]:
    try:
        yield from reading
    except (UnreadableTable, MissingExtra) as error:
        raise _renamed(error, copy.path, shown) from None
    finally:
        done()


def _renamed(error: DeepJoinError, path: Path, shown: str) -> DeepJoinError:
    """Name the object where a reader named its copy."""
    text = str(error).replace(str(path), shown)
    if isinstance(error, UnreadableTable):
        return UnreadableTable(text, passing=error.passing)
    return type(error)(text)


def _table(name: str, read: Callable[[], Reading], sheet: str = "") -> Table:
    context = sheet[1:] if sheet else str(PurePosixPath(name).parent)
    return Table(name + sheet, read, title_of(name), words(context))


def _name(entry: Entry) -> str:
    return entry if isinstance(entry, str) else entry.name


def _members(entry: Entry) -> tuple[str, ...]:
    return (entry,) if isinstance(entry, str) else entry.members


def _is_path(name: str) -> bool:
    return not any(part == "" or is_hidden(part) for part in name.split("/"))


def _stamp(infos: list[pa.fs.FileInfo]) -> str:
    """Sum up sizes and times; '' where a time is unknown, or so new that it may serve again."""
    lately = time.time_ns() - _LATELY
    times = [info.mtime_ns for info in infos]
    if any(time is None or time > lately for time in times):
        return ""
    if len(infos) == 1:
        return f"{infos[0].size}-{times[0]}"
    digest = xxhash.xxh3_64()
    for info in infos:
        digest.update(f"{info.path}\n{info.size}-{info.mtime_ns}\n".encode())
    return digest.hexdigest()


_AHEAD = 8
#: Larger files are copied when their turn comes: transfer, not waiting, is what they cost.
_LARGEST = 32 << 20


class Downloads:
    """Copies files when they are taken, and ahead of time while they are taken in order.

    Whoever takes one file, or every tenth, has nothing copied ahead. At most eight files of
    32 MiB are held; the last of them go with this object.
    """

    def __init__(self, files: RemoteFiles) -> None:
        self._files = files
        self._sizes: Mapping[str, int] = {}
        self._order: list[str] = []
        self._positions: dict[str, int] = {}
        self._latest = -1
        self._held: dict[str, Future[Download]] = {}

    def expect(self, sizes: Mapping[str, int]) -> None:
        """Set the order, with the sizes, in which files will be taken; forget older copies."""
        self._sizes, self._order = sizes, list(sizes)
        self._positions = {name: position for position, name in enumerate(self._order)}
        self._latest = -1
        self._held = {}

    def take(self, name: str) -> Download:
        """Give the copy of a file; it is the caller's to remove."""
        held = self._held.pop(name, None)
        position = self._positions.get(name, -1)
        step = position - self._latest
        if position >= 0:
            in_order = step == 1 or (held is not None and 0 < step <= _AHEAD)
            if in_order and self._files.is_parallel:
                self._go_on(position + 1)
            self._latest = position
        return held.result() if held is not None else self._copy(name)

    def take_held(self, name: str) -> Download | None:
        """Give the copy of a file if there is one already."""
        held = self._held.pop(name, None)
        return held.result() if held is not None else None

    def keep(self, name: str, copy: Download) -> None:
        """Hold a whole copy that will soon be taken again, if files are taken in order."""
        if name not in self._positions:
            copy.remove()
            return
        while len(self._held) >= _AHEAD:
            self._held.pop(next(iter(self._held)))
        done: Future[Download] = Future()
        done.set_result(copy)
        self._held[name] = done

    def _go_on(self, position: int) -> None:
        """Begin to copy what comes next; forget what was passed over."""
        for name in [name for name in self._held if self._positions[name] < position]:
            del self._held[name]
        for name in self._order[position : position + _AHEAD]:
            fits = len(self._held) < _AHEAD and self._sizes[name] <= _LARGEST
            if fits and name not in self._held:
                self._held[name] = self._pool.submit(self._copy, name)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_AHEAD, "deepjoin-download")

    def _copy(self, name: str) -> Download:
        return self._files.download(name, ending(name))


def ending(name: str) -> str:
    """Give a copy the ending that says what it is, and nothing else of a foreign name."""
    return suffixes(name) if format_of(name) else ""
