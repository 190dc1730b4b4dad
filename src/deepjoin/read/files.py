"""Files in folders as tables: named by their path, opened when they are read."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

from deepjoin.errors import DeepJoinError, MissingExtra, UnreadableTable, unknown_name
from deepjoin.model import Table
from deepjoin.read.database.url import file_dialect, is_readable_file
from deepjoin.read.folders import FolderFormat
from deepjoin.read.formats import format_of, named_table, read_file, suffixes
from deepjoin.read.parts import (
    Entry,
    PartGroup,
    checked,
    grouped,
    member_columns,
    read_group,
)
from deepjoin.read.source import (
    Description,
    Item,
    Listing,
    Location,
    Skipped,
    Source,
    file_digest,
    file_stamp,
    group_digest,
    group_stamp,
    relative,
    skipped_item,
    table_in,
    tables_gone,
    without_sheets,
)
from deepjoin.read.walk import NO_PERMISSION, FoundFile, Root, is_wanted, walk
from deepjoin.settings import DEFAULTS, Settings


@dataclass
class _Scan:
    """What one look at the file system found, by name."""

    files: dict[str, os.stat_result | None] = field(default_factory=dict)
    folders: dict[str, FolderFormat] = field(default_factory=dict)
    skipped: dict[str, Skipped] = field(default_factory=dict)


class FileSource(Source):
    """The tables in files and folders.

    A table's name is its path relative to ``root``, the folder that holds all locations;
    a sheet's is ``file.xlsx#Sheet``. Part files are one table, named by their folder or by the
    pattern in ``one_table`` that fits them; with ``parts="never"`` by such a pattern alone.
    ``skip_dirs``, which need not exist yet, are not entered.
    """

    kind = "files"
    is_portable = True

    def __init__(
        self,
        roots: Sequence[Location],
        settings: Settings = DEFAULTS,
        skip_dirs: Iterable[Location] = (),
    ) -> None:
        self.roots = tuple(Root.at(location) for location in roots)
        # Of a reopened source, all places may be gone.
        folders = [root.folder for root in self.roots]
        self.root = Path(os.path.commonpath(folders)) if folders else Path()
        self.settings = settings
        self.skip_dirs = frozenset(Path(folder).expanduser().resolve() for folder in skip_dirs)
        self.skipped: list[Skipped] = []
        # At once, because a pattern with a typo would otherwise make an empty index.
        for root, location in zip(self.roots, roots, strict=True):
            if root.patterns and next(self._found_at(root, _Scan()), None) is None:
                raise DeepJoinError(f"No file matches '{os.fspath(location)}'.")

    def items(self) -> Iterator[Item]:
        """List the files, tables or not, in the order of their names."""
        scan = self._scan()
        items = [skipped_item(one.name, one.reason, one.passing) for one in scan.skipped.values()]
        for name, kind in scan.folders.items():
            folder = self._inside(name)
            try:
                stamp = kind.stamp(folder)
            except OSError:  # reading the table reports why
                stamp = ""
            listing = partial(self._folder_listing, name, kind)
            items.append(Item(name, stamp, listing, partial(kind.digest, folder)))
        # Groups that do not look like one table are listed file by file.
        for entry in checked(self._grouped(scan), partial(member_columns, self.root)):
            if isinstance(entry, PartGroup):
                stamp = group_stamp((name, _stamp(scan.files[name])) for name in entry.members)
                listing = partial(Listing, (self._group_table(entry),))
                digest = partial(group_digest, self.root, entry.members)
                items.append(Item(entry.name, stamp, listing, digest))
            # Paths stay strings here: a lake may have a million files.
            elif os.access(path := os.path.join(self.root, entry), os.R_OK):
                status = scan.files[entry]
                size = status.st_size if status else 0
                listing, digest = partial(self._listing, entry), partial(file_digest, path)
                items.append(Item(entry, _stamp(status), listing, digest, size=size))
            else:
                items.append(skipped_item(entry, NO_PERMISSION, passing=True))
        yield from sorted(items, key=lambda item: item.name)

    def table(self, name: str) -> Table:
        """Find one table by its name, without listing the others."""
        path = self._single(name)
        if path is None:
            return self._whole(name)
        file = self._name(str(path))
        return table_in(self._listing(file).tables, name, file, str(self.root))

    def path(self, table: str) -> Path | None:
        """Return the file that holds a table, or None if several files do."""
        path = self._single(table)
        if path is None:
            self._whole(table)
        return path

    @property
    def folder(self) -> Path | None:
        """The folder that holds all locations, unless the first of them is a file."""
        return None if self.roots[0].file else self.root

    def describe(self, index: Path) -> Description:
        """Describe where the source is, relative to an index folder."""
        paths = [root.given(index) for root in self.roots]
        return {"kind": self.kind, "root": relative(self.root, index), "paths": paths}

    def within(self, owner: Description, index: Path, settings: Settings) -> FileSource | None:
        """Return the same files named from the root of an indexed source that includes them."""
        if owner["kind"] != self.kind:
            return None
        try:
            known = reopen(owner, index, settings)
        except DeepJoinError:  # gone, so it includes nothing
            return None
        # Only a whole folder is sure to include another one: a pattern may match some of it.
        whole = [root for root in known.roots if root.file is None and not root.patterns]
        for root in self.roots:
            if root.file is not None:
                included = root.file.is_relative_to(known.root) and known._has(root.file)
            else:
                folder = str(root.folder)
                included = any(one.holds(folder) for one in whole)
                included = included and not known._is_excluded(known._name(folder))
            if not included:
                return None
        return self._named_from(known.root)

    def apart(self) -> FileSource:
        """Return the same files, their names beginning with that of the root folder."""
        return self._named_from(self.root.parent)

    def _named_from(self, root: Path) -> FileSource:
        other = copy.copy(self)
        other.root = root
        return other

    def _single(self, name: str) -> Path | None:
        """Find the file of a table, whose name may end in that of a sheet."""
        for file in without_sheets(name):
            path = self.root / file
            if _is_below(file) and os.path.isfile(path) and self._has(path):
                return path
        return None

    def _has(self, path: Path) -> bool:
        covered = any(root.covers(str(path)) for root in self.roots)
        return covered and self._is_wanted(self._name(str(path)))

    def _whole(self, name: str) -> Table:
        """Open a table that is a folder, or a group of part files."""
        folder = self._inside(name)
        # Only the table's own folder is listed; a lake may have a million others.
        start = folder if os.path.isdir(folder) else folder.parent
        scan = self._scan(str(start)) if _is_below(name) else _Scan()
        if name in scan.folders:
            return self._folder_table(name, scan.folders[name])
        for entry in self._grouped(scan):
            if isinstance(entry, PartGroup) and entry.name == name:
                return self._group_table(entry)
        scan = self._scan()
        entries = self._grouped(scan)
        known = [e.name if isinstance(e, PartGroup) else e if format_of(e) else "" for e in entries]
        known = sorted(filter(None, (*known, *scan.folders)))
        raise unknown_name("table", name, str(self.root), known)

    def _scan(self, start: str = "") -> _Scan:
        """Look at everything that belongs to the source, or only below one folder."""
        scan = _Scan()
        for root in self.roots:
            if start and not root.holds(start) and not root.folder.is_relative_to(start):
                continue
            for path, found in self._found_at(root, scan, start):
                name = self._name(path)
                if isinstance(found, FolderFormat):
                    # A pattern such as *.parquet also means the tables that consist of them.
                    if self._is_wanted(name) or self._is_wanted(f"{name}/part.parquet"):
                        scan.folders[name] = found
                elif self._is_wanted(name):
                    if (shown := _shown(name)) == name:
                        scan.files[name] = found
                    else:
                        scan.skipped[shown] = Skipped(shown, "its name is not valid UTF-8")
        return scan

    def _found_at(
        self, root: Root, scan: _Scan, start: str = ""
    ) -> Iterator[tuple[str, FoundFile]]:
        """Yield what belongs to one place; what fails goes to the scan's list."""
        if root.file is not None:
            try:
                yield str(root.file), root.file.stat()
            except OSError:
                yield str(root.file), None
            return

        def enters(folder: os.DirEntry[str]) -> bool:
            # Resolving is slow, and only a link has another name than the folder it leads to.
            named = folder.is_symlink() or any(folder.name == skip.name for skip in self.skip_dirs)
            if named and Path(folder.path).resolve() in self.skip_dirs:
                return False
            return root.reaches(folder.path) and not self._is_excluded(self._name(folder.path))

        def report(path: str, reason: str, passing: bool = False) -> None:
            name = _shown(self._name(path))
            scan.skipped[name] = Skipped(name, reason, passing)

        folder = start if start and root.holds(start) else str(root.folder)
        for path, found in walk(folder, enters, report):
            is_table = isinstance(found, FolderFormat)
            if not root.patterns or (root.covers_table(path) if is_table else root.covers(path)):
                yield path, found

    def _is_wanted(self, name: str) -> bool:
        return is_wanted(name, self.settings.include, self.settings.exclude)

    def _is_excluded(self, name: str) -> bool:
        return not is_wanted(name, (), self.settings.exclude)

    def _grouped(self, scan: _Scan) -> Iterator[Entry]:
        is_auto, one_table = self.settings.parts == "auto", self.settings.one_table
        return grouped(scan.files, is_auto, one_table, self._here())

    def _here(self) -> str:
        """Name the table that the root folder itself is."""
        name = self.root.name
        # A folder or file of the same name inside would make the name ambiguous.
        return name if name and not os.path.lexists(self.root / name) else "."

    def _name(self, path: str) -> str:
        below = path[len(str(self.root)) :].lstrip(os.sep)
        return below.replace(os.sep, "/") or self._here()

    def _inside(self, name: str) -> Path:
        return self.root if name == self._here() else self.root / name

    def _listing(self, name: str) -> Listing:
        """List the tables of one file, without opening it if its name is enough."""
        kind, path = format_of(name), self.root / name
        endings = {suffixes(pattern) for pattern in self.settings.include} - {""}
        is_named = suffixes(name) in endings or any(root.names(str(path)) for root in self.roots)
        if kind is None and not is_named:
            # The tables of a database are items of a source of its own.
            if is_readable_file(path):
                return Listing(())
            if file_dialect(path):
                unread = "a database that cannot be read: damaged, locked or encrypted"
                return Listing.without_tables(name, unread)
            return not_read(name)
        if kind == "excel":
            return self._unless_missing(name, path, partial(_sheets, name, path))
        if kind == "json" and not is_named:
            from deepjoin.read.jsonlines import why_not_rows

            if reason := why_not_rows(path):
                return Listing.without_tables(name, reason)
        return Listing((named_table(name, partial(read_file, path, kind or "delimited")),))

    def _folder_listing(self, name: str, kind: FolderFormat) -> Listing:
        def listing() -> Listing:
            return Listing((self._folder_table(name, kind),))

        return self._unless_missing(name, self._inside(name), listing)

    def _folder_table(self, name: str, kind: FolderFormat) -> Table:
        folder = self._inside(name)
        kind.check(folder)
        return named_table(name, partial(kind.read, folder))

    def _group_table(self, group: PartGroup) -> Table:
        return named_table(group.name, partial(read_group, self.root, group))

    def _unless_missing(self, name: str, path: Path, listing: Callable[[], Listing]) -> Listing:
        """Pass over what needs an extra, unless the user named that very file or folder."""
        try:
            return listing()
        except MissingExtra as error:
            if any(path == (root.file or root.folder) for root in self.roots):
                raise
            return Listing.without_tables(name, str(error), passing=True)


def _is_below(name: str) -> bool:
    relative = PurePosixPath(name)
    return bool(name) and not relative.is_absolute() and ".." not in relative.parts


def _shown(name: str) -> str:
    """Write a name as text; bytes that are not UTF-8 show as escapes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _stamp(status: os.stat_result | None) -> str:
    """Return the stamp of a file; one that has just vanished has none."""
    return "" if status is None else file_stamp(status)


def not_read(name: str) -> Listing:
    """Pass over a file whose ending no reader knows."""
    reason = f"not a table format we read ({suffixes(name) or 'no ending'})"
    return Listing.without_tables(name, reason)


def _sheets(name: str, path: Path) -> Listing:
    """List the sheets of a workbook, each a table."""
    from deepjoin.read.excel import read_sheet, sheet_names

    try:
        sheets = sorted(sheet_names(path))
    except UnreadableTable:  # reading it reports why
        return Listing((named_table(name, partial(read_file, path, "excel")),))
    if not sheets:
        return Listing.without_tables(name, "every sheet is empty")
    return Listing(
        tuple(named_table(name, partial(read_sheet, path, sheet), sheet) for sheet in sheets)
    )


def reopen(described: Description, index: Path, settings: Settings) -> FileSource:
    """Open the source that `FileSource.describe` described.

    Of several places, those that still exist keep serving their tables under the old names.
    """
    here = index.resolve()
    root, *paths = (
        Path(os.path.normpath(here / path)) for path in (described["root"], *described["paths"])
    )
    if not root.exists():
        raise tables_gone(root)
    # Each is opened by itself: one that is gone must not take the others with it.
    left = []
    for path in paths:
        try:
            FileSource([path])
            left.append(path)
        except DeepJoinError:
            continue
    source = FileSource(left, settings, [index])
    source.root, source.gone = root, tuple(path for path in paths if path not in left)
    return source
