"""Files in folders as tables: named by their path, opened when they are read."""

from __future__ import annotations

import copy
import difflib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from deepjoin.columns import Table
from deepjoin.errors import DeepJoinError, MissingExtra, UnreadableTable, unknown_name
from deepjoin.sources import Location, Skipped, title_of, words
from deepjoin.sources.formats import format_of, read_file, suffixes
from deepjoin.sources.items import Item, Listing, file_digest, file_stamp, unfold
from deepjoin.sources.walk import INDEX_MARKS, Walk, covers, is_glob, matches, reaches


@dataclass(frozen=True)
class Root:
    """One place the user named: a folder, the part of it that a glob fits, or one file."""

    folder: Path
    patterns: tuple[str, ...] = ()
    file: Path | None = None

    @classmethod
    def at(cls, location: Location) -> Root:
        """Find out what a location is; it must exist, and a glob's folder must."""
        given = os.fspath(location)
        path = Path(os.path.abspath(os.path.expanduser(given)))
        if os.path.isdir(path):
            return cls(_folder_of_tables(path))
        if os.path.isfile(path):
            return cls(path.parent, file=path)
        if os.path.exists(path):
            raise DeepJoinError(f"'{given}' is neither a file nor a folder.")
        if is_glob(given):
            first = next(at for at, part in enumerate(path.parts) if is_glob(part))
            folder = Path(*path.parts[:first])
            if os.path.isdir(folder):
                return cls(folder, path.parts[first:])
        raise _missing(given, path)

    def covers(self, path: Path) -> bool:
        """Tell whether a file belongs to what the user named."""
        if self.file is not None:
            return path == self.file
        return path.is_relative_to(self.folder) and covers(self.patterns, self._parts(path))

    def reaches(self, folder: Path) -> bool:
        """Tell whether a folder may hold files that belong."""
        return reaches(self.patterns, self._parts(folder))

    def names(self, path: Path) -> bool:
        """Tell whether the user asked for this very file, or for files with its ending."""
        ending = suffixes(self.patterns[-1]) if self.patterns else ""
        return path == self.file or (bool(ending) and ending == suffixes(path.name))

    def _parts(self, path: Path) -> tuple[str, ...]:
        return path.relative_to(self.folder).parts


def _folder_of_tables(folder: Path) -> Path:
    if all(os.path.exists(folder / mark) for mark in INDEX_MARKS):
        raise DeepJoinError(
            f"'{folder}' is a deepjoin index, not a folder of tables: open it with deepjoin.open, "
            "or ask it with: deepjoin search INDEX FILE"
        )
    return folder


def _missing(given: str, path: Path) -> DeepJoinError:
    """Name the nearest folder that exists and, in it, what was perhaps meant."""
    parent = next(folder for folder in path.parents if os.path.isdir(folder))
    wanted = path.relative_to(parent).parts[0]
    if not os.access(parent, os.R_OK | os.X_OK):
        return DeepJoinError(f"Cannot look for '{given}': no permission to read '{parent}'.")
    near = difflib.get_close_matches(wanted, sorted(os.listdir(parent)), n=1)
    hint = f" Did you mean '{parent / near[0]}'?" if near else f" '{parent}' exists."
    return DeepJoinError(f"No file or folder '{given}'.{hint}")


class FileSource:
    """The tables in files and folders.

    A table's name is its path relative to ``root``, the folder that holds all locations;
    a sheet's is ``file.xlsx#Sheet``. ``skip_dirs``, which need not exist yet, are not entered.
    """

    def __init__(
        self,
        roots: Sequence[Location],
        include: Iterable[str] = (),
        exclude: Iterable[str] = (),
        skip_dirs: Iterable[Location] = (),
    ) -> None:
        self.roots = tuple(Root.at(location) for location in roots)
        self.root = Path(os.path.commonpath([root.folder for root in self.roots]))
        self.include, self.exclude = tuple(include), tuple(exclude)
        self.skip_dirs = frozenset(Path(folder).expanduser().resolve() for folder in skip_dirs)
        self.skipped: list[Skipped] = []
        for root, location in zip(self.roots, roots, strict=True):
            if root.patterns and next(self._files_of(root), None) is None:
                raise DeepJoinError(f"No file matches '{os.fspath(location)}'.")

    def tables(self) -> Iterator[Table]:
        """List the tables in the order of their file names."""
        self.skipped = []
        return unfold(self.items(), self.skipped)

    def items(self) -> Iterator[Item]:
        """List the files, tables or not, in the order of their names."""
        for name, path in sorted(self.files().items()):
            yield Item(
                *(name, _stamp(path), partial(self._listing, name, path)),
                partial(file_digest, path),
            )

    def _listing(self, name: str, path: Path) -> Listing:
        aside = self._aside()
        return Listing(tuple(aside._tables_in(name, path)), tuple(aside.skipped))

    def table(self, name: str) -> Table:
        """Find one table by its name, without listing the others."""
        path = self.paths(name)
        found = list(self._aside()._tables_in(self._name(path), path))
        for table in found:
            if table.name == name or (len(found) == 1 and name == self._name(path)):
                return table
        raise unknown_name("table", name, str(self.root), [table.name for table in found])

    def paths(self, name: str) -> Path:
        """Give the file that holds a table."""
        ends = [len(name), *(at for at in range(len(name) - 1, 0, -1) if name[at] == "#")]
        for end in ends:
            path = self._inside(name[:end])
            if path is not None:
                return path
        known = self._aside().files()
        raise unknown_name("table", name, str(self.root), filter(format_of, sorted(known)))

    def _aside(self) -> FileSource:
        """Copy the source with a list of its own, so that a look-up leaves no trace in ours."""
        other = copy.copy(self)
        other.skipped = []
        return other

    def _inside(self, name: str) -> Path | None:
        relative = PurePosixPath(name)
        if relative.is_absolute() or ".." in relative.parts:
            return None
        path = self.root / relative
        belongs = any(root.covers(path) for root in self.roots) and self._is_wanted(path)
        return path if belongs and os.path.isfile(path) else None

    def files(self) -> dict[str, Path]:
        """Find every file that belongs to the source, table or not, by its name."""
        files: dict[str, Path] = {}
        for root in self.roots:
            for path in self._files_of(root):
                if self._is_wanted(path) and self._is_readable(path):
                    files[self._name(path)] = path
        return files

    def _files_of(self, root: Root) -> Iterator[Path]:
        if root.file is not None:
            return iter([root.file])
        walk = Walk(lambda folder: self._enters(root, folder), self._skip)
        found = walk.files(root.folder)
        return filter(root.covers, found) if root.patterns else found

    def _enters(self, root: Root, folder: Path) -> bool:
        if self.skip_dirs and folder.resolve() in self.skip_dirs:
            return False
        return root.reaches(folder) and not self._is_excluded(folder)

    def _is_wanted(self, path: Path) -> bool:
        return self._fits(path, self.include, default=True) and not self._is_excluded(path)

    def _is_excluded(self, path: Path) -> bool:
        return self._fits(path, self.exclude, default=False)

    def _fits(self, path: Path, patterns: tuple[str, ...], default: bool) -> bool:
        if not patterns:
            return default
        name = self._name(path)
        return any(matches(pattern, name) for pattern in patterns)

    def _is_readable(self, path: Path) -> bool:
        """Leave out what cannot be opened, and names that no index could store."""
        try:
            self._name(path).encode()
        except UnicodeEncodeError:
            self._skip(path, "its name is not valid UTF-8")
            return False
        if not os.access(path, os.R_OK):
            self._skip(path, "no permission to read it")
            return False
        return True

    def _tables_in(self, name: str, path: Path) -> Iterator[Table]:
        kind = format_of(name)
        if kind is None and not self._is_named(path):
            ending = suffixes(name)
            self._skip(path, f"not a table format we read ({ending or 'no ending'})")
        elif kind == "excel":
            yield from self._sheets(name, path)
        elif kind != "json" or self._is_named(path) or self._holds_rows(path):
            yield Table(
                name,
                partial(read_file, path, kind or "delimited"),
                title_of(name),
                words(str(PurePosixPath(name).parent)),
            )

    def _is_named(self, path: Path) -> bool:
        endings = {suffixes(pattern) for pattern in self.include} - {""}
        return suffixes(path.name) in endings or any(root.names(path) for root in self.roots)

    def _holds_rows(self, path: Path) -> bool:
        from deepjoin.sources.jsonlines import why_not_rows

        reason = why_not_rows(path)
        if reason:
            self._skip(path, reason)
        return reason is None

    def _sheets(self, name: str, path: Path) -> Iterator[Table]:
        from deepjoin.sources.excel import read_sheet, sheet_names

        try:
            sheets = sheet_names(path)
        except UnreadableTable:
            yield Table(name, partial(read_file, path, "excel"), title_of(name))
            return
        except MissingExtra as error:
            if any(path == root.file for root in self.roots):
                raise
            self._skip(path, str(error))
            return
        if not sheets:
            self._skip(path, "every sheet is empty")
        for sheet in sorted(sheets):
            yield Table(
                f"{name}#{sheet}", partial(read_sheet, path, sheet), title_of(name), words(sheet)
            )

    def _skip(self, path: Path, reason: str) -> None:
        shown = os.fsencode(self._name(path)).decode("utf-8", "backslashreplace")
        self.skipped.append(Skipped(shown, reason))

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()


def _stamp(path: Path) -> str:
    """Give the stamp of a file; one that has just vanished has none."""
    try:
        return file_stamp(path.stat())
    except OSError:
        return ""
