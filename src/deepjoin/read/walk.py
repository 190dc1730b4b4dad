"""Which files a location names: a walk over folders, patterns, and the places the user named."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from deepjoin.errors import DeepJoinError
from deepjoin.read.folders import FolderFormat, folder_format
from deepjoin.read.formats import suffixes
from deepjoin.read.source import Location, relative

#: How the manifest of an index names itself; other programs write manifests too.
INDEX_PRODUCT = "deepjoin index"
MANIFEST, _SEGMENTS, _LOCK = INDEX_MARKS = ("manifest.json", "segments", "lock")
NO_PERMISSION = "no permission to read it"

#: What is at a path: a file (its status, None if it has just vanished) or a folder of one table.
FoundFile = os.stat_result | FolderFormat | None


def walk(
    root: str,
    enters: Callable[[os.DirEntry[str]], bool],
    report: Callable[[str, str, bool], None],
) -> Iterator[tuple[str, FoundFile]]:
    """Yield the files below a folder, and the folders that are tables, without their files.

    Linked folders come last, so that a folder that is also linked keeps its own name, and no
    folder is entered twice. ``enters`` decides about the folders inside; ``report(path, reason,
    passing)`` is called for everything that fails, ``passing`` being as in `Skipped`.
    """
    # By device and inode, because links may lead in circles.
    seen: set[tuple[int, int]] = set()
    folders, links = [root], list[str]()
    while folders or links:
        folder = folders.pop() if folders else links.pop(0)
        try:
            status = os.stat(folder)
            if (status.st_dev, status.st_ino) in seen:
                report(folder, "links to a folder that is already listed", False)
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(folder) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError as error:
            report(folder, _reason(error), True)
            continue
        names = {entry.name for entry in entries}
        if is_index_folder(folder, names):
            continue
        if table := folder_format(folder, names):
            yield folder, table
            continue
        for entry in entries:
            if is_hidden(entry.name):
                continue
            # Each question may ask the file system again, and fail by itself.
            try:
                is_file = entry.is_file()
                if not is_file and entry.is_dir():
                    if enters(entry):
                        (links if entry.is_symlink() else folders).append(entry.path)
                elif not is_file:
                    broken = entry.is_symlink() and not os.path.exists(entry.path)
                    report(entry.path, "broken link" if broken else "not a regular file", broken)
            except OSError as error:
                report(entry.path, _reason(error), True)
                continue
            if is_file:
                try:
                    yield entry.path, entry.stat()
                except OSError:  # it has just vanished
                    yield entry.path, None


def _reason(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return NO_PERMISSION
    if isinstance(error, FileNotFoundError):
        return "no longer there"
    return (error.strerror or type(error).__name__).lower()


def is_index_folder(folder: str, names: Collection[str] = INDEX_MARKS) -> bool:
    """Check whether a folder claims to be an index; ``names`` are those in it, where known."""
    if _SEGMENTS not in names or not os.path.isdir(os.path.join(folder, _SEGMENTS)):
        return False
    # While an index is first built it has a lock and no manifest yet.
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
    """Check whether a manifest is that of an index, and not another program's.

    >>> is_index_manifest(b'{"product": "deepjoin index"}'), is_index_manifest(b'["a.ts"]')
    (True, False)
    """
    try:
        fields = json.loads(content)
    except ValueError:
        return False
    return isinstance(fields, dict) and fields.get("product") == INDEX_PRODUCT


def is_hidden(name: str) -> bool:
    """Check whether a file is a dot file, or a lock that office programs put beside a workbook."""
    return name.startswith((".", "~$"))


def matches(pattern: str, name: str) -> bool:
    """Check whether a pattern fits a relative path, its last part, or a folder on its way.

    >>> [matches(pattern, "geo/old/a.csv") for pattern in ("*.csv", "old", "geo/*", "*.tsv")]
    [True, True, True, False]
    >>> [matches("**/old/*.csv", name) for name in ("old/a.csv", "geo/old/a.csv", "geo/a.csv")]
    [True, True, False]
    """
    pattern = pattern.rstrip("/").removeprefix("./")
    # ** fits several folders, because * crosses slashes here, and it must fit none as well.
    either = {pattern, pattern.removeprefix("**/")}
    parts = PurePosixPath(name).parts
    paths = ("/".join(parts[: end + 1]) for end in range(len(parts)))
    return any(fnmatchcase(text, one) for text in (*parts, *paths) for one in either)


def is_wanted(name: str, include: Iterable[str], exclude: Iterable[str]) -> bool:
    """Check whether the patterns keep a relative path; without ``include`` they keep all.

    >>> is_wanted("geo/a.csv", (), ("old",)), is_wanted("old/a.csv", ("*.csv",), ("old",))
    (True, False)
    """
    included = not include or any(matches(pattern, name) for pattern in include)
    return included and not any(matches(pattern, name) for pattern in exclude)


def is_glob(path: str) -> bool:
    """Check whether a path has shell wildcards."""
    return any(mark in path for mark in "*?[")


def covers(patterns: Sequence[str], parts: Sequence[str]) -> bool:
    """Check whether a glob, part by part, fits a path or a folder above it.

    >>> covers(["**", "*.csv"], ["a", "b", "c.csv"]), covers(["*.csv"], ["a", "c.csv"])
    (True, False)
    """
    if not patterns:
        return True
    if patterns[0] == "**":
        return covers(patterns[1:], parts) or (bool(parts) and covers(patterns, parts[1:]))
    return bool(parts) and fnmatchcase(parts[0], patterns[0]) and covers(patterns[1:], parts[1:])


def reaches(patterns: Sequence[str], parts: Sequence[str]) -> bool:
    """Check whether a glob may fit something below this folder.

    >>> reaches(["a*", "*.csv"], ["abc"]), reaches(["a*", "*.csv"], ["b"])
    (True, False)
    """
    if not patterns or not parts or patterns[0] == "**":
        return True
    return fnmatchcase(parts[0], patterns[0]) and reaches(patterns[1:], parts[1:])


#: A URL short of a slash or two, with what may be a password in it.
_URL_WITH_SECRET = re.compile(
    r"\s*([A-Za-z][A-Za-z0-9+.-]+):(?=.*:.*@|.*(?:pass|pwd|secret|token|key)\w*=)",
    re.DOTALL | re.IGNORECASE,
)
#: Settings in the form of libpq and ODBC, such as `host=db password=...`.
#: Not a folder of partitions, such as `lake/passengers=3`.
_SETTING_WITH_SECRET = re.compile(
    r"(?:^|[^\w/\\])\w*(?:pass|pwd|secret|token)\w*\s*=", re.IGNORECASE
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
        # Absolute but not resolved: tables keep the names that the user gave through links.
        path = Path(os.path.abspath(os.path.expanduser(given)))
        if os.path.isdir(path):
            if is_index_folder(str(path)):
                raise DeepJoinError(
                    f"'{path}' is a deepjoin index, not a folder of tables: open it with "
                    "deepjoin.open, or search it with: deepjoin search INDEX FILE"
                )
            return cls(path)
        if os.path.isfile(path):
            return cls(path.parent, file=path)
        if os.path.exists(path):
            raise DeepJoinError(f"'{given}' is neither a file nor a folder.")
        if malformed := _URL_WITH_SECRET.match(given):
            # The URL may hold a password, so the message does not repeat it.
            scheme = malformed[1]
            raise DeepJoinError(
                f"What begins with '{scheme}:' is neither a file nor a URL, which has two "
                f"slashes: {scheme}://user@host/name"
            )
        if _SETTING_WITH_SECRET.search(given):
            raise DeepJoinError(
                "What has a password or a token in it is neither a file nor a URL; a database is "
                "named as in postgresql://user@host/name"
            )
        # Only now: a name may contain brackets, and one that exists is not a pattern.
        if is_glob(given):
            first = next(at for at, part in enumerate(path.parts) if is_glob(part))
            folder = Path(*path.parts[:first])
            if os.path.isdir(folder):
                return cls(folder, path.parts[first:])
        parent = next(folder for folder in path.parents if os.path.isdir(folder))
        if not os.access(parent, os.R_OK | os.X_OK):
            raise DeepJoinError(f"Cannot look for '{given}': no permission to read '{parent}'.")
        wanted = path.relative_to(parent).parts[0]
        near = difflib.get_close_matches(wanted, sorted(os.listdir(parent)), n=1)
        hint = f"Did you mean '{parent / near[0]}'?" if near else f"'{parent}' exists."
        raise DeepJoinError(f"No file or folder '{given}'. {hint}")

    def covers(self, path: str) -> bool:
        """Check whether a file belongs to this place."""
        if self.file is not None:
            return path == str(self.file)
        return covers(self.patterns, self._parts(path)) if self.holds(path) else False

    def covers_table(self, folder: str) -> bool:
        """Check whether a folder that is one table belongs: itself, or files of its kind in it."""
        if self.covers(folder):
            return True
        inside = self.file is None and suffixes(self.patterns[-1]) in ("", ".parquet")
        return inside and self.holds(folder) and self.reaches(folder)

    def holds(self, path: str) -> bool:
        """Check whether a path is the folder or below it."""
        folder = str(self.folder)
        return path == folder or path.startswith(_with_slash(folder))

    def reaches(self, folder: str) -> bool:
        """Check whether a folder may hold files that belong."""
        return not self.patterns or reaches(self.patterns, self._parts(folder))

    def names(self, path: str) -> bool:
        """Check whether the user named this very path, or files with its ending."""
        if not self.patterns:
            return path == str(self.file or self.folder)
        ending = suffixes(self.patterns[-1])
        return bool(ending) and ending == suffixes(path)

    def given(self, index: Path) -> str:
        """Write the place relative to an index; patterns and a file's own name stay unresolved."""
        tail = (self.file.name,) if self.file else self.patterns
        return PurePosixPath(relative(self.folder, index), *tail).as_posix()

    def _parts(self, path: str) -> list[str]:
        below = path[len(_with_slash(str(self.folder))) :]
        return below.split(os.sep) if below else []


def _with_slash(folder: str) -> str:
    return folder if folder.endswith(os.sep) else folder + os.sep
