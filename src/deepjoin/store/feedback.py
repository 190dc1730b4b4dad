"""What people said of joins: accepted or rejected, kept in one file beside the index.

A decision names tables and columns and holds no value, so it is as safe in a lake of hashes. The
file is not part of the index: builds, refreshes and merges leave it as it is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any, overload

from deepjoin.errors import DeepJoinError, IndexUnusable
from deepjoin.files import locked, replace_file, written_aside
from deepjoin.model import Decision, to_json
from deepjoin.store.manifest import FEEDBACK, FEEDBACK_LOCK, is_sealed, sealed_json

_PRODUCT = "deepjoin feedback"
_FORMAT = 1
#: Seconds for which decisions of an index in a bucket are kept before they are fetched again.
_REMOTE = 60.0
_ENDS = ("child_table", "child_columns", "parent_table", "parent_columns")

#: The two ends of a decision; of a key of several columns, the order does not matter.
Ends = tuple[str, str, tuple[tuple[str, str], ...]]
#: What was said of the joins of some columns: by table and columns of the other end.
Decided = Mapping[tuple[str, tuple[str, ...]], bool]


class Feedback(Sequence[Decision]):
    """The decisions about an index, the oldest first; a change is on disk when its call returns.

    Other processes may change them at any time: every access sees the newest.
    """

    def __init__(self, folder: Path, url: str = "") -> None:
        self._folder, self._url = folder, url
        self._lock = Lock()
        #: What the file looked like when it was read; of a bucket, when that was.
        self._stamp: object = None
        self._known: dict[Ends, Decision] = {}

    @property
    def location(self) -> str:
        """Where the decisions are kept."""
        return f"{self._url or self._folder}/{FEEDBACK}"

    @property
    def by_ends(self) -> Mapping[Ends, Decision]:
        """All decisions, by what they are about."""
        with self._lock:
            stamp = self._stamp_now()
            if stamp != self._stamp:
                self._known = self._parsed(self._content()[0])
                self._stamp = stamp
            return self._known

    def _stamp_now(self) -> object:
        if self._url:
            is_fresh = isinstance(self._stamp, float) and monotonic() - self._stamp < _REMOTE
            return self._stamp if is_fresh else monotonic()
        try:
            found = os.stat(self._folder / FEEDBACK)
        except OSError:
            return ()
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _content(self) -> tuple[bytes, str | None]:
        """Read the file; of a bucket, also its ETag."""
        if self._url:
            from deepjoin.store.bucket import IndexBucket

            found = IndexBucket(self._url).get(FEEDBACK)
            return (found.content, found.etag) if found else (b"", None)
        try:
            return (self._folder / FEEDBACK).read_bytes(), None
        except FileNotFoundError:
            return b"", None
        except OSError as error:
            raise IndexUnusable(f"Cannot read {self.location}: {error.strerror}.") from None

    def _parsed(self, content: bytes) -> dict[Ends, Decision]:
        if not content:
            return {}
        try:
            if not is_sealed(content):
                raise ValueError("its checksum differs")
            return {ends_of(one): one for one in parsed_decisions(content)}
        except ValueError as error:
            raise IndexUnusable(
                f"{self.location} is damaged ({error}). Put a copy in its place, or remove it to "
                "go on without what people accepted and rejected."
            ) from None

    def __len__(self) -> int:
        return len(self.by_ends)

    @overload
    def __getitem__(self, i: int) -> Decision: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[Decision]: ...
    def __getitem__(self, i: int | slice) -> Decision | Sequence[Decision]:
        return tuple(self.by_ends.values())[i]

    def __iter__(self) -> Iterator[Decision]:
        return iter(tuple(self.by_ends.values()))

    def __repr__(self) -> str:
        lines = [
            f"{one.text}  {one.child_table}.{'+'.join(one.child_columns)} -> "
            f"{one.parent_table}.{'+'.join(one.parent_columns)}"
            for one in self
        ]
        return "\n".join(lines) or f"Nobody has accepted or rejected a join of {self.location}."

    def to_dict(self) -> dict[str, Any]:
        """Return the decisions as JSON, as `write` writes them."""
        return {"decisions": to_json(list(self))}

    def about(self, table: str, columns: Sequence[str]) -> Decided:
        """Return what was said of joins of some columns, in either direction.

        What was accepted in one direction counts, whatever was said of the other.
        """
        found: dict[tuple[str, tuple[str, ...]], bool] = {}
        key = tuple(sorted(columns))
        for one in self.by_ends.values():
            child = one.child_table, one.child_columns
            parent = one.parent_table, one.parent_columns
            for (mine, own), other in ((child, parent), (parent, child)):
                if mine == table and tuple(sorted(own)) == key:
                    place = dict(zip(own, other[1], strict=True))
                    at = other[0], tuple(place[name] for name in columns)
                    found[at] = found.get(at, False) or one.accepted
        return found

    def add(self, decisions: Iterable[Decision]) -> int:
        """Keep decisions; each replaces an earlier one about the same columns."""
        new = {ends_of(one): one for one in decisions}

        def change(known: dict[Ends, Decision]) -> None:
            for ends in new:
                known.pop(ends, None)
            known.update(new)

        if new:
            self._change(change)
        return len(new)

    def forget(self, one: Decision) -> bool:
        """Take a decision back; returns False if there was none."""
        ends = ends_of(one)
        found: list[Decision | None] = []
        self._change(lambda known: found.append(known.pop(ends, None)))
        return found[0] is not None

    def _change(self, change: Callable[[dict[Ends, Decision]], None]) -> None:
        """Read, change and write under a lock, so that no decision of another process is lost."""
        busy = IndexUnusable(f"{self.location} is being written by another process; try again.")
        try:
            with ExitStack() as stack:
                if not self._url:
                    lock = self._folder / FEEDBACK_LOCK
                    stack.enter_context(locked(lock, busy, wait=True))
                content, token = self._content()
                known = self._parsed(content)
                change(known)
                text = sealed_json(
                    {"product": _PRODUCT, "format": _FORMAT, "decisions": to_json(known.values())}
                )
                if self._url:
                    from deepjoin.store.bucket import IndexBucket

                    IndexBucket(self._url).put(FEEDBACK, text.encode(), token)
                else:
                    replace_file(self._folder / FEEDBACK, text, durable=True)
        except OSError as error:
            raise IndexUnusable(
                f"Cannot write {self.location}: {error.strerror}. Make the folder of the index "
                "writable, or keep decisions in a copy of the index."
            ) from None
        with self._lock:
            self._stamp = None

    def write(self, path: str | os.PathLike[str]) -> int:
        """Write the decisions to a JSON file, for another index or a copy; returns their number."""
        decisions = self.to_dict()
        with written_aside(Path(path)) as aside:
            text = json.dumps(decisions, indent=1, ensure_ascii=False) + "\n"
            aside.write_text(text, "utf-8")
        return len(decisions["decisions"])

    def read(self, path: str | os.PathLike[str]) -> int:
        """Add the decisions of a file that `write` wrote; returns their number."""
        try:
            return self.add(parsed_decisions(Path(path).read_bytes()))
        except OSError as error:
            raise DeepJoinError(f"Cannot read {path}: {error.strerror}.") from None
        except ValueError as error:
            raise DeepJoinError(
                f"{path} holds no decisions ({error}); it must be a file that deepjoin feedback "
                "wrote with -o."
            ) from None


def ends_of(one: Decision) -> Ends:
    """Return what a decision is about."""
    pairs = zip(one.child_columns, one.parent_columns, strict=True)
    return one.child_table, one.parent_table, tuple(sorted(pairs))


def parsed_decisions(content: bytes) -> list[Decision]:
    """Read decisions from JSON; raises ValueError with what is wrong."""
    try:
        listed = json.loads(content)["decisions"]
    except (ValueError, KeyError, TypeError):
        raise ValueError("no JSON with a list of decisions") from None
    if not isinstance(listed, list):
        raise ValueError("its decisions are no list")
    return [_decision(one, place) for place, one in enumerate(listed, 1)]


def _decision(fields: Any, place: int) -> Decision:
    try:
        child, mine, parent, theirs = (fields[name] for name in _ENDS)
        accepted, when = fields["accepted"], fields.get("at", "")
    except (KeyError, TypeError, AttributeError):
        raise ValueError(f"decision {place} lacks one of {', '.join(_ENDS)}, accepted") from None
    lists = isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs) > 0
    texts = [child, parent, when, *mine, *theirs] if lists else [None]
    if not all(isinstance(text, str) for text in texts) or not isinstance(accepted, bool):
        raise ValueError(f"decision {place} has fields of another kind")
    return Decision(child, tuple(mine), parent, tuple(theirs), accepted, when)


def now() -> str:
    """Return the time of a decision."""
    return datetime.now(UTC).isoformat(timespec="seconds")
