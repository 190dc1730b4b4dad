"""Walk a folder without running in circles: links once, hidden things and indexes never."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

INDEX_MARKS = {"manifest.json", "segments"}


class Walk:
    """One pass over a folder; ``report(path, reason)`` hears of everything that fails."""

    def __init__(self, enter: Callable[[Path], bool], report: Callable[[Path, str], None]) -> None:
        self._enter, self._report = enter, report
        self._seen: set[tuple[int, int]] = set()
        self._folders: list[Path] = []
        self._links: list[Path] = []

    def files(self, root: Path) -> Iterator[Path]:
        """Yield the files below a folder.

        Linked folders come last, so that a folder keeps its own name when it is also linked.
        """
        self._folders.append(root)
        while self._folders or self._links:
            folder = self._folders.pop() if self._folders else self._links.pop(0)
            if self._is_new(folder):
                yield from self._files_in(folder)

    def _is_new(self, folder: Path) -> bool:
        try:
            status = folder.stat()
        except OSError as error:
            self._report(folder, reason_of(error))
            return False
        identity = (status.st_dev, status.st_ino)
        if identity in self._seen:
            self._report(folder, "links to a folder that is already listed")
            return False
        self._seen.add(identity)
        return True

    def _files_in(self, folder: Path) -> Iterator[Path]:
        try:
            with os.scandir(folder) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError as error:
            self._report(folder, reason_of(error))
            return
        if {entry.name for entry in entries} >= INDEX_MARKS:
            return
        for entry in entries:
            if not is_hidden(entry.name) and self._is_file(entry):
                yield Path(entry.path)

    def _is_file(self, entry: os.DirEntry[str]) -> bool:
        path = Path(entry.path)
        try:
            if entry.is_file():
                return True
            if entry.is_dir():
                if self._enter(path):
                    (self._links if entry.is_symlink() else self._folders).append(path)
            else:
                broken = entry.is_symlink() and not path.exists()
                self._report(path, "broken link" if broken else "not a regular file")
        except OSError as error:
            self._report(path, reason_of(error))
        return False


def is_hidden(name: str) -> bool:
    """Tell dot files and the lock files that office programs leave beside a workbook."""
    return name.startswith((".", "~$"))


def reason_of(error: OSError) -> str:
    """Put a failure of the file system into a few words."""
    if isinstance(error, PermissionError):
        return "no permission to read it"
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
