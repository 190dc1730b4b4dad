"""Files in folders as tables: named by their path, opened when they are read."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

from deepjoin.errors import DeepJoinError, MissingExtra, UnreadableTable, unknown_name
from deepjoin.model import Reading, Table
from deepjoin.read.folders import FolderFormat, group_stamp
from deepjoin.read.formats import format_of, read_file, suffixes, title_of, words
from deepjoin.read.parts import (
    Entry,
    Parts,
    checked,
    group_digest,
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
    relative,
    skipped_item,
    tables_gone,
)
from deepjoin.read.walk import NO_PERMISSION, Found, Root, Walk, matches
from deepjoin.settings import Settings

__all__ = ["FileSource", "Root", "reopen"]


@dataclass
class _Scan:
    """What one look at the file system found, by name."""

    files: dict[str, os.stat_result | None] = field(default_factory=dict)
    folders: dict[str, FolderFormat] = field(default_factory=dict)
    skipped: dict[str, Skipped] = field(default_factory=dict)

    def skip(self, name: str, reason: str, passing: bool = False) -> None:
        """Note what is passed over."""
        self.skipped[name] = Skipped(name, reason, passing)


class FileSource(Source):
    """The tables in files and folders.

    A table's name is its path relative to ``root``, the folder that holds all locations;
    a sheet's is ``file.xlsx#Sheet``. Part files are one table by the name of their folder, or
    of the pattern in ``one_table`` that fits them; with ``parts="never"`` by the latter alone.
    ``skip_dirs``, which need not exist yet, are not entered.
    """

    kind = "files"
    is_portable = True

    def __init__(
        self,
        roots: Sequence[Location],
        include: Iterable[str] = (),
        exclude: Iterable[str] = (),
        skip_dirs: Iterable[Location] = (),
        *,
        parts: str = "auto",
        one_table: Iterable[str] = (),
    ) -> None:
        self.roots = tuple(Root.at(location) for location in roots)
        # A source that is reopened may find none of its places.
        folders = [root.folder for root in self.roots]
        self.root = Path(os.path.commonpath(folders)) if folders else Path()
        self.include, self.exclude = tuple(include), tuple(exclude)
        self.skip_dirs = frozenset(Path(folder).expanduser().resolve() for folder in skip_dirs)
        self.parts, self.one_table = parts, tuple(one_table)
        self.skipped: list[Skipped] = []
        for root, location in zip(self.roots, roots, strict=True):
            if root.patterns and next(self._found_at(root, _Scan()), None) is None:
                raise DeepJoinError(f"No file matches '{os.fspath(location)}'.")

    def items(self) -> Iterator[Item]:
        """List the files, tables or not, in the order of their names."""
        scan = self._scan()
        items = [skipped_item(one.name, one.reason, one.passing) for one in scan.skipped.values()]
        items += [self._folder_item(name, kind) for name, kind in scan.folders.items()]
        for entry in checked(self._grouped(scan), partial(member_columns, self.root)):
            if isinstance(entry, Parts):
                items.append(self._group_item(entry, scan))
            else:
                items.append(self._file_item(entry, scan))
        yield from sorted(items, key=lambda item: item.name)

    def _file_item(self, name: str, scan: _Scan) -> Item:
        if not os.access(os.path.join(self.root, name), os.R_OK):
            return skipped_item(name, NO_PERMISSION, passing=True)
        listing = partial(self._listing, name)
        digest, status = partial(_digest, self.root, name), scan.files[name]
        size = status.st_size if status else 0
        return Item(name, _stamp(status), listing, digest, size=size)

    def _group_item(self, parts: Parts, scan: _Scan) -> Item:
        stamp = group_stamp((name, _stamp(scan.files[name])) for name in parts.members)
        listing = partial(Listing, (self._group_table(parts),))
        return Item(parts.name, stamp, listing, partial(group_digest, self.root, parts))

    def _folder_item(self, name: str, kind: FolderFormat) -> Item:
        folder = self._inside(name)
        try:
            stamp = kind.stamp(folder)
        except OSError:
            stamp = ""
        listing = partial(self._folder_listing, name, kind)
        return Item(name, stamp, listing, partial(kind.digest, folder))

    def table(self, name: str) -> Table:
        """Find one table by its name, without listing the others."""
        path = self._single(name)
        if path is None:
            return self._whole(name)
        file = self._name(str(path))
        found = self._listing(file).tables
        for table in found:
            if table.name == name or (len(found) == 1 and name == file):
                return table
        raise unknown_name("table", name, str(self.root), [table.name for table in found])

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
        """Say where the source is, relative to an index folder."""
        paths = [root.given(index) for root in self.roots]
        return {"kind": self.kind, "root": relative(self.root, index), "paths": paths}

    def within(self, owner: Description, index: Path, settings: Settings) -> FileSource | None:
        """Return the same files named from the root of an indexed source that includes them."""
        if owner["kind"] != self.kind:
            return None
        try:
            including = reopen(owner, index, settings)
        except DeepJoinError:  # gone, so it includes nothing
            return None
        if all(including._reaches_all_of(root) for root in self.roots):
            return self._named_from(including.root)
        return None

    def apart(self) -> FileSource:
        """Return the same files, their names beginning with that of the root folder."""
        return self._named_from(self.root.parent)

    def _reaches_all_of(self, root: Root) -> bool:
        if root.file is not None:
            return root.file.is_relative_to(self.root) and self._has(root.file)
        whole = (mine for mine in self.roots if mine.file is None and not mine.patterns)
        inside = any(mine.holds(str(root.folder)) for mine in whole)
        return inside and not self._is_excluded(self._name(str(root.folder)))

    def _named_from(self, root: Path) -> FileSource:
        other = copy.copy(self)
        other.root = root
        return other

    def _single(self, name: str) -> Path | None:
        """Find the file of a table, whose name may end in that of a sheet."""
        ends = [len(name), *(at for at in range(len(name) - 1, 0, -1) if name[at] == "#")]
        for end in ends:
            path = self.root / name[:end]
            if _is_below(name[:end]) and os.path.isfile(path) and self._has(path):
                return path
        return None

    def _has(self, path: Path) -> bool:
        covered = any(root.covers(str(path)) for root in self.roots)
        return covered and self._is_wanted(self._name(str(path)))

    def _whole(self, name: str) -> Table:
        """Open a folder that is one table, or the part files that together are."""
        folder = self._inside(name)
        start = folder if os.path.isdir(folder) else folder.parent
        scan = self._scan(str(start)) if _is_below(name) else _Scan()
        if name in scan.folders:
            return self._folder_table(name, scan.folders[name])
        for entry in self._grouped(scan):
            if isinstance(entry, Parts) and entry.name == name:
                return self._group_table(entry)
        raise unknown_name("table", name, str(self.root), self._known())

    def _known(self) -> list[str]:
        scan = self._scan()
        entries = self._grouped(scan)
        names = [e.name if isinstance(e, Parts) else e if format_of(e) else "" for e in entries]
        return sorted(filter(None, (*names, *scan.folders)))

    def _scan(self, start: str = "") -> _Scan:
        """Look at everything that belongs, or at no more than what is below a folder."""
        scan = _Scan()
        for root in self.roots:
            if not start or root.holds(start) or root.folder.is_relative_to(start):
                for path, found in self._found_at(root, scan, start):
                    self._sort_in(path, found, scan)
        return scan

    def _found_at(self, root: Root, scan: _Scan, start: str = "") -> Iterator[tuple[str, Found]]:
        if root.file is not None:
            return iter([(str(root.file), _status(root.file))])

        def report(path: str, reason: str, passing: bool = False) -> None:
            scan.skip(_shown(self._name(path)), reason, passing)

        folder = start if start and root.holds(start) else str(root.folder)
        found = Walk(partial(self._enters, root), report).files(folder)
        return filter(partial(_belongs, root), found) if root.patterns else found

    def _sort_in(self, path: str, found: Found, scan: _Scan) -> None:
        name = self._name(path)
        if isinstance(found, FolderFormat):
            if self._is_wanted(name) or self._is_wanted(f"{name}/part.parquet"):
                scan.folders[name] = found
        elif self._is_wanted(name):
            if _is_text(name):
                scan.files[name] = found
            else:
                scan.skip(_shown(name), "its name is not valid UTF-8")

    def _enters(self, root: Root, folder: os.DirEntry[str]) -> bool:
        # Only a link has another name than the folder it leads to.
        named = folder.is_symlink() or any(folder.name == skip.name for skip in self.skip_dirs)
        if named and Path(folder.path).resolve() in self.skip_dirs:
            return False
        return root.reaches(folder.path) and not self._is_excluded(self._name(folder.path))

    def _is_wanted(self, name: str) -> bool:
        included = not self.include or any(matches(pattern, name) for pattern in self.include)
        return included and not self._is_excluded(name)

    def _is_excluded(self, name: str) -> bool:
        return any(matches(pattern, name) for pattern in self.exclude)

    def _grouped(self, scan: _Scan) -> Iterator[Entry]:
        return grouped(scan.files, self.parts == "auto", self.one_table, self._here())

    def _here(self) -> str:
        """Name the table that the root folder itself is."""
        name = self.root.name
        return name if name and not os.path.lexists(self.root / name) else "."

    def _name(self, path: str) -> str:
        root = str(self.root)
        below = path[len(root) :].lstrip(os.sep)
        return below.replace(os.sep, "/") or self._here()

    def _inside(self, name: str) -> Path:
        return self.root if name == self._here() else self.root / name

    def _listing(self, name: str) -> Listing:
        kind, path = format_of(name), self.root / name
        if kind is None and not self._is_named(path):
            ending = suffixes(name) or "no ending"
            return _passed_over(name, f"not a table format we read ({ending})")
        if kind == "excel":
            return self._unless_missing(name, path, partial(_sheets, name, path))
        reason = None if kind != "json" or self._is_named(path) else _why_not_rows(path)
        if reason:
            return _passed_over(name, reason)
        return Listing((_table(name, partial(read_file, path, kind or "delimited")),))

    def _folder_listing(self, name: str, kind: FolderFormat) -> Listing:
        def listing() -> Listing:
            return Listing((self._folder_table(name, kind),))

        return self._unless_missing(name, self._inside(name), listing)

    def _folder_table(self, name: str, kind: FolderFormat) -> Table:
        folder = self._inside(name)
        kind.check(folder)
        return _table(name, partial(kind.read, folder))

    def _group_table(self, parts: Parts) -> Table:
        return _table(parts.name, partial(read_group, self.root, parts))

    def _unless_missing(self, name: str, path: Path, listing: Callable[[], Listing]) -> Listing:
        """Pass over what needs an extra, unless the user named that very thing."""
        try:
            return listing()
        except MissingExtra as error:
            if any(path == (root.file or root.folder) for root in self.roots):
                raise
            return Listing(skipped=(Skipped(name, str(error), passing=True),))

    def _is_named(self, path: Path) -> bool:
        endings = {suffixes(pattern) for pattern in self.include} - {""}
        return suffixes(path.name) in endings or any(root.names(str(path)) for root in self.roots)


def _belongs(root: Root, found: tuple[str, Found]) -> bool:
    path, what = found
    return root.covers_table(path) if isinstance(what, FolderFormat) else root.covers(path)


def _is_below(name: str) -> bool:
    relative = PurePosixPath(name)
    return bool(name) and not relative.is_absolute() and ".." not in relative.parts


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _stamp(status: os.stat_result | None) -> str:
    """Give the stamp of a file; one that has just vanished has none."""
    return "" if status is None else file_stamp(status)


def _digest(root: Path, name: str) -> str:
    return file_digest(root / name)


def _passed_over(name: str, reason: str) -> Listing:
    return Listing(skipped=(Skipped(name, reason),))


def _table(name: str, read: Callable[[], Reading]) -> Table:
    return Table(name, read, title_of(name), words(str(PurePosixPath(name).parent)))


def _why_not_rows(path: Path) -> str | None:
    from deepjoin.read.jsonlines import why_not_rows

    return why_not_rows(path)


def _sheets(name: str, path: Path) -> Listing:
    from deepjoin.read.excel import read_sheet, sheet_names

    title = title_of(name)
    try:
        sheets = sorted(sheet_names(path))
    except UnreadableTable:
        return Listing((Table(name, partial(read_file, path, "excel"), title),))
    if not sheets:
        return _passed_over(name, "every sheet is empty")
    return Listing(
        tuple(
            Table(f"{name}#{sheet}", partial(read_sheet, path, sheet), title, words(sheet))
            for sheet in sheets
        )
    )


def reopen(described: Description, index: Path, settings: Settings) -> FileSource:
    """Open a source again from what `FileSource.describe` said.

    Of several places, those that are left still serve their tables, by the old names.
    """
    here = index.resolve()
    root, *paths = (
        Path(os.path.normpath(here / path)) for path in (described["root"], *described["paths"])
    )
    if not root.exists():
        raise tables_gone(root)
    left = [path for path in paths if _is_there(path)]
    source = FileSource(
        *(left, settings.include, settings.exclude, [index]),
        parts=settings.parts,
        one_table=settings.one_table,
    )
    source.root, source.gone = root, tuple(path for path in paths if path not in left)
    return source


def _is_there(path: Path) -> bool:
    try:
        FileSource([path])
    except DeepJoinError:
        return False
    return True
