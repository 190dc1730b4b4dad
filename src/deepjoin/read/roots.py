"""The places a user names as a source: folders, files and patterns."""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from deepjoin.errors import DeepJoinError
from deepjoin.read import Location
from deepjoin.read.formats import suffixes
from deepjoin.read.source import relative
from deepjoin.read.walk import covers, is_glob, is_index_folder, reaches

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
