"""Which files a location names: a walk over folders, patterns, and the places the user named."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from deepjoin.errors import DeepJoinError
from deepjoin.read.folders import FolderFormat, folder_format
from deepjoin.read.formats import suffixes
from deepjoin.read.source import Location, relative

#: What the manifest of an index says that it is; other programs write manifests too.
INDEX_PRODUCT = "deepjoin index"
MANIFEST, _SEGMENTS, _LOCK = INDEX_MARKS = ("manifest.json", "segments", "lock")
NO_PERMISSION = "no permission to read it"

#: What a walk finds at a path: a file, by its status unless it has just gone, or a table.
FoundFile = os.stat_result | FolderFormat | None


class Walk:
    """One pass over a folder; ``report(path, reason, passing)`` hears of everything that fails.

    ``passing`` is as in `Skipped`.
    """

    def __init__(
        self,
        enter: Callable[[os.DirEntry[str]], bool],
        report: Callable[[str, str, bool], None],
    ) -> None:
        self._enter, self._report = enter, report
        self._seen: set[tuple[int, int]] = set()
        self._folders: list[str] = []
        self._links: list[str] = []

    def files(self, root: str) -> Iterator[tuple[str, FoundFile]]:
        """Yield the files below a folder, and the folders that are tables, without their files.

        Linked folders come last, so that a folder keeps its own name when it is also linked.
        """
        self._folders.append(root)
        while self._folders or self._links:
            folder = self._folders.pop() if self._folders else self._links.pop(0)
            if self._is_new(folder):
                yield from self._found_in(folder)

    def _is_new(self, folder: str) -> bool:
        try:
            status = os.stat(folder)
        except OSError as error:
            self._report(folder, reason_of(error), True)
            return False
        identity = (status.st_dev, status.st_ino)
        if identity in self._seen:
            self._report(folder, "links to a folder that is already listed", False)
            return False
        self._seen.add(identity)
        return True

    def _found_in(self, folder: str) -> Iterator[tuple[str, FoundFile]]:
        try:
            with os.scandir(folder) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError as error:
            self._report(folder, reason_of(error), True)
            return
        names = {entry.name for entry in entries}
        if is_index_folder(folder, names):
            return
        table = folder_format(folder, names)
        if table is not None:
            yield folder, table
            return
        for entry in entries:
            if not is_hidden(entry.name) and self._is_file(entry):
                yield entry.path, _status(entry)

    def _is_file(self, entry: os.DirEntry[str]) -> bool:
        try:
            if entry.is_file():
                return True
            if entry.is_dir():
                if self._enter(entry):
                    (self._links if entry.is_symlink() else self._folders).append(entry.path)
            else:
                broken = entry.is_symlink() and not os.path.exists(entry.path)
                self._report(entry.path, "broken link" if broken else "not a regular file", broken)
        except OSError as error:
            self._report(entry.path, reason_of(error), True)
        return False


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat()
    except OSError:
        return None


def is_index_folder(folder: str, names: Collection[str] = INDEX_MARKS) -> bool:
    """Tell whether a folder claims to be an index; ``names`` are those in it, where known."""
    if _SEGMENTS not in names or not os.path.isdir(os.path.join(folder, _SEGMENTS)):
        return False
    if _LOCK in names and os.path.isfile(os.path.join(folder, _LOCK)):
        return True
    if MANIFEST not in names:
        return False
    try:
        with open(os.path.join(folder, MANIFEST), "rb") as file:
            return is_index_manifest(file.read())
    except OSError:
        return False


def is_index_manifest(content: bytes) -> bool:
    """Tell the manifest of an index from those of other programs.

    >>> is_index_manifest(b'{"product": "deepjoin index"}'), is_index_manifest(b'["a.ts"]')
    (True, False)
    """
    try:
        fields = json.loads(content)
    except ValueError:
        return False
    return isinstance(fields, dict) and fields.get("product") == INDEX_PRODUCT


def is_hidden(name: str) -> bool:
    """Tell dot files and the lock files that office programs leave beside a workbook."""
    return name.startswith((".", "~$"))


def reason_of(error: OSError) -> str:
    """Put a failure of the file system into a few words."""
    if isinstance(error, PermissionError):
        return NO_PERMISSION
    if isinstance(error, FileNotFoundError):
        return "no longer there"
    return (error.strerror or type(error).__name__).lower()


def matches(pattern: str, name: str) -> bool:
    """Tell whether a pattern fits a relative path, its last part, or a folder on its way.

    >>> [matches(pattern, "geo/old/a.csv") for pattern in ("*.csv", "old", "geo/*", "*.tsv")]
    [True, True, True, False]
    """
    pattern = pattern.rstrip("/").removeprefix("./").removeprefix("**/")
    parts = PurePosixPath(name).parts
    paths = ("/".join(parts[: end + 1]) for end in range(len(parts)))
    return any(fnmatchcase(text, pattern) for text in (*parts, *paths))


def is_glob(path: str) -> bool:
    """Tell whether a path has shell wildcards."""
    return any(mark in path for mark in "*?[")


def covers(patterns: Sequence[str], parts: Sequence[str]) -> bool:
    """Tell whether a glob, part by part, fits a path or a folder above it.

    >>> covers(["**", "*.csv"], ["a", "b", "c.csv"]), covers(["*.csv"], ["a", "c.csv"])
    (True, False)
    """
    if not patterns:
        return True
    if patterns[0] == "**":
        return covers(patterns[1:], parts) or (bool(parts) and covers(patterns, parts[1:]))
    return bool(parts) and fnmatchcase(parts[0], patterns[0]) and covers(patterns[1:], parts[1:])


def reaches(patterns: Sequence[str], parts: Sequence[str]) -> bool:
    """Tell whether a glob may fit something below this folder.

    >>> reaches(["a*", "*.csv"], ["abc"]), reaches(["a*", "*.csv"], ["b"])
    (True, False)
    """
    if not patterns or not parts or patterns[0] == "**":
        return True
    return fnmatchcase(parts[0], patterns[0]) and reaches(patterns[1:], parts[1:])


#: A URL short of a slash or two, with what may be a password in it.
_URL_WITH_SECRET = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]+):(?=.*:.*@|.*(?:pass|pwd|secret|token|key)\w*=)",
    re.DOTALL | re.IGNORECASE,
)


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
        _refuse_secret(given)
        if is_glob(given):
            first = next(at for at, part in enumerate(path.parts) if is_glob(part))
            folder = Path(*path.parts[:first])
            if os.path.isdir(folder):
                return cls(folder, path.parts[first:])
        raise _missing(given, path)

    def covers(self, path: str) -> bool:
        """Tell whether a file belongs to what the user named."""
        if self.file is not None:
            return path == str(self.file)
        return covers(self.patterns, self._parts(path)) if self.holds(path) else False

    def covers_table(self, folder: str) -> bool:
        """Tell whether a folder that is one table belongs: itself, or files of its kind in it."""
        if self.covers(folder):
            return True
        inside = self.file is None and suffixes(self.patterns[-1]) in ("", ".parquet")
        return inside and self.holds(folder) and self.reaches(folder)

    def holds(self, path: str) -> bool:
        """Tell whether a path is the folder or below it."""
        folder = str(self.folder)
        return path == folder or path.startswith(_with_slash(folder))

    def reaches(self, folder: str) -> bool:
        """Tell whether a folder may hold files that belong."""
        return not self.patterns or reaches(self.patterns, self._parts(folder))

    def names(self, path: str) -> bool:
        """Tell whether the user asked for this very path, or for files with its ending."""
        if not self.patterns:
            return path == str(self.file or self.folder)
        ending = suffixes(self.patterns[-1])
        return bool(ending) and ending == suffixes(path)

    def given(self, index: Path) -> str:
        """Write down the place relative to an index, a pattern or a file's own name unresolved."""
        tail = (self.file.name,) if self.file else self.patterns
        return PurePosixPath(relative(self.folder, index), *tail).as_posix()

    def _parts(self, path: str) -> list[str]:
        below = path[len(_with_slash(str(self.folder))) :]
        return below.split(os.sep) if below else []


def _with_slash(folder: str) -> str:
    return folder if folder.endswith(os.sep) else folder + os.sep


def _folder_of_tables(folder: Path) -> Path:
    if is_index_folder(str(folder)):
        raise DeepJoinError(
            f"'{folder}' is a deepjoin index, not a folder of tables: open it with deepjoin.open, "
            "or ask it with: deepjoin search INDEX FILE"
        )
    return folder


def _refuse_secret(given: str) -> None:
    """Refuse a URL that is none without repeating it."""
    malformed = _URL_WITH_SECRET.match(given)
    if malformed:
        scheme = malformed[1]
        raise DeepJoinError(
            f"What begins with '{scheme}:' is neither a file nor a URL, which has two slashes: "
            f"{scheme}://user@host/name"
        )


def _missing(given: str, path: Path) -> DeepJoinError:
    """Name the nearest folder that exists and, in it, what was perhaps meant."""
    parent = next(folder for folder in path.parents if os.path.isdir(folder))
    wanted = path.relative_to(parent).parts[0]
    if not os.access(parent, os.R_OK | os.X_OK):
        return DeepJoinError(f"Cannot look for '{given}': no permission to read '{parent}'.")
    near = difflib.get_close_matches(wanted, sorted(os.listdir(parent)), n=1)
    hint = f" Did you mean '{parent / near[0]}'?" if near else f" '{parent}' exists."
    return DeepJoinError(f"No file or folder '{given}'.{hint}")
