"""An index in a bucket: the same manifest and segments, worked on through a copy on this machine.

Segments never change, so a copy fetches each one once. The manifest is replaced only if it is
still the one that was pulled: of two writers one wins, and the other is told.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

import xxhash

from deepjoin.errors import DeepJoinError, IndexUnusable
from deepjoin.files import replace_file
from deepjoin.store.bucket import Object, Store, Stored, Vanished, together
from deepjoin.store.copies import (
    aside,
    cache_root,
    copy_errors,
    is_whole,
    link_segments,
    only_process,
    remove_others,
)
from deepjoin.store.manifest import (
    FORMAT,
    MANIFEST,
    PRODUCT,
    SEGMENTS,
    SegmentRecord,
    segment_record,
)

_TRIES = 5
#: No push takes longer: what is older and named by no manifest is left over from one that failed.
_LONGEST_PUSH = timedelta(days=1)
#: How segments are called; nothing else below an index is ever removed from a bucket.
_SEGMENT = re.compile(rf"{SEGMENTS}/([0-9a-f]{{16}}(?:-\d+)?)/.+")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


class Pulled(NamedTuple):
    """A copy of an index, and the ETag of its manifest; None where there is no index yet."""

    folder: Path
    token: str | None


def is_remote(path: object) -> bool:
    """Tell whether an index is asked for by URL.

    >>> is_remote("s3://bucket/index"), is_remote("data/index")
    (True, False)
    """
    return isinstance(path, str) and _URL.match(path) is not None


@contextmanager
def editing(location: str | Path, fresh: bool = False) -> Iterator[Path]:
    """Give the folder to change an index in; one in a bucket is pushed when all went well."""
    if not is_remote(location):
        yield Path(location)
        return
    url = str(location)
    with working_copy(url, fresh=fresh) as copy:
        before = _content(copy.folder)
        try:
            yield copy.folder
        except BaseException:
            # What was committed before it failed, as values are before columns are encoded.
            if _content(copy.folder) not in (before, b""):
                push(copy.folder, url, copy.token, fresh=fresh)
            raise
        push(copy.folder, url, copy.token, fresh=fresh)


def _content(folder: Path) -> bytes:
    """Read the manifest of a copy; nothing if it has none."""
    try:
        return (folder / MANIFEST).read_bytes()
    except FileNotFoundError:
        return b""


def pull(url: str, *, missing_ok: bool = False) -> Pulled:
    """Bring the copy of an index up to date: one request where it is, new segments where not."""
    store = Store(url)
    folder = _cache_folder(store)
    vanished = ""
    for _ in range(_TRIES):
        found = _manifest(store, missing_ok)
        if found is not None and _is_current(folder, found, _records(found.content, url)):
            return Pulled(folder, found.etag)
        with only_process(folder), copy_errors(folder):
            try:
                return _updated(store, folder, missing_ok)
            except Vanished as error:  # a newer manifest may have taken the place of ours
                vanished = str(error)
    raise _damaged(url, f"{vanished} is missing")


def _manifest(store: Store, missing_ok: bool) -> Object | None:
    found = store.get(MANIFEST)
    if found is None and not missing_ok:
        raise IndexUnusable(
            f"{store.url} is not a deepjoin index (no {MANIFEST}). "
            f"Make one with: deepjoin index SOURCE -o {store.url}"
        )
    return found


def _records(content: bytes, where: str) -> list[SegmentRecord]:
    """Read the part of a manifest that says which files there are, and check every name."""
    try:
        fields = json.loads(content)
        product, version, made_in = map(fields.get, ("product", "version", "format"))
    except (ValueError, AttributeError):
        raise _damaged(where, f"{MANIFEST} is not what was written") from None
    _refuse_product(product, where)
    if not isinstance(made_in, int) or made_in > FORMAT:
        raise IndexUnusable(
            f"{where} was written by deepjoin {version} in format {made_in}; this version reads "
            f"up to format {FORMAT}. Upgrade with: pip install 'deepjoin>={version}'"
        )
    try:
        records = [segment_record(one) for one in fields["segments"]]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _damaged(where, f"{MANIFEST} is not what was written") from None
    for record in records:
        if not all(map(_is_plain, record.files)):
            raise _damaged(where, f"{MANIFEST} names files elsewhere")
    return records


def _refuse_product(product: object, where: str) -> None:
    if product != PRODUCT:
        raise IndexUnusable(f"{where}/{MANIFEST} belongs to another program; choose another place.")


def _is_plain(name: str) -> bool:
    return not any(part in ("", ".", "..") for part in name.split("/")) and not {*"\\\0"} & {*name}


def _damaged(where: str, what: str) -> IndexUnusable:
    return IndexUnusable(
        f"{where} is damaged: {what}. "
        f"Build it again with: deepjoin index SOURCE -o {where} --rebuild"
    )


def _cache_folder(store: Store) -> Path:
    return cache_root() / xxhash.xxh3_64_hexdigest(store.identity.encode())


def _is_current(folder: Path, found: Object, records: Iterable[SegmentRecord]) -> bool:
    try:
        same = (folder / MANIFEST).read_bytes() == found.content
    except OSError:
        return False
    return same and all(is_whole(folder, record) for record in records)


def _updated(store: Store, folder: Path, missing_ok: bool) -> Pulled:
    """Make a copy what the bucket holds now; nothing of it is used before it is whole."""
    found = _manifest(store, missing_ok)
    if found is None:
        shutil.rmtree(folder, ignore_errors=True)
        (folder / SEGMENTS).mkdir(parents=True)
        return Pulled(folder, None)
    records = _records(found.content, str(store.url))
    (folder / SEGMENTS).mkdir(parents=True, exist_ok=True)
    _download(store, folder, [record for record in records if not is_whole(folder, record)])
    replace_file(folder / MANIFEST, found.content)
    remove_others(folder / SEGMENTS, records)
    return Pulled(folder, found.etag)


def _download(store: Store, folder: Path, records: Sequence[SegmentRecord]) -> None:
    with ExitStack() as stack:
        asides = {record.name: stack.enter_context(aside(folder)) for record in records}
        jobs = []
        for record in records:
            for name, (size, digest) in record.files.items():
                path = asides[record.name] / name
                path.parent.mkdir(parents=True, exist_ok=True)
                key = f"{SEGMENTS}/{record.name}/{name}"
                jobs.append(partial(store.fetch, key, path, size, digest))
        together(jobs)
        for record in records:
            place = folder / SEGMENTS / record.name
            shutil.rmtree(place, ignore_errors=True)
            asides[record.name].rename(place)


@contextmanager
def working_copy(url: str, *, fresh: bool = False) -> Iterator[Pulled]:
    """Give a copy to build in, apart from the one that readers use; then `push` it.

    It is kept where the work fails, so that the next run can go on from what is finished.
    A ``fresh`` one may have nothing of what is in the bucket, if that is damaged.
    """
    store = Store(url)
    readers = _cache_folder(store)
    folder = readers.with_name(f"{readers.name}-writing")
    with only_process(folder, wait=False):
        pulled = _pulled(url, store, folder, fresh)
        with copy_errors(folder):
            _mirror(pulled, folder)
        yield Pulled(folder, pulled.token)
        shutil.rmtree(folder, ignore_errors=True)


def _pulled(url: str, store: Store, folder: Path, fresh: bool) -> Pulled:
    try:
        return pull(url, missing_ok=True)
    except IndexUnusable:
        if not fresh:
            raise
        return Pulled(folder, _token(store))


def _token(store: Store) -> str | None:
    """Give the ETag of a manifest of ours that is to be replaced, whole or not."""
    found = store.get(MANIFEST)
    if found is not None:
        with suppress(ValueError, AttributeError):
            _refuse_product(json.loads(found.content).get("product"), str(store.url))
    return found.etag if found else None


def _mirror(pulled: Pulled, folder: Path) -> None:
    """Give a folder the manifest and segments of another, taking no space for them."""
    (folder / SEGMENTS).mkdir(parents=True, exist_ok=True)
    if pulled.token is None or pulled.folder == folder:
        (folder / MANIFEST).unlink(missing_ok=True)
        return
    content = (pulled.folder / MANIFEST).read_bytes()
    link_segments(_records(content, str(pulled.folder)), pulled.folder, folder)
    replace_file(folder / MANIFEST, content)


def push(folder: Path, url: str, token: str | None, *, fresh: bool = False) -> str:
    """Make the index in a folder the one at a URL, if nobody else has since it was pulled.

    Returns the new manifest's ETag. Until the manifest is replaced the bucket shows the old
    index; segments of a push that failed are used by the next one, or removed after a day. A
    ``fresh`` push trusts nothing of what is in the bucket.
    """
    store = Store(url)
    content = (folder / MANIFEST).read_bytes()
    records = _records(content, str(folder))
    current = store.get(MANIFEST)
    if (current.etag if current else None) != token:
        raise store.conflict()
    if current and current.content == content and not fresh:
        return current.etag
    if current is None:
        _refuse_foreign(store)
    _upload(store, folder, records, {} if fresh else store.below(SEGMENTS))
    etag = store.put(MANIFEST, content, token)
    _tidy(store, folder, records, _named_in(current))
    _keep(store, folder, records)
    return etag


def _refuse_foreign(store: Store) -> None:
    """Never write among objects that are something else."""
    there = store.top() - {SEGMENTS}
    strange = [name for name in store.below(SEGMENTS) if not _SEGMENT.fullmatch(name)]
    if there or strange:
        raise DeepJoinError(
            f"{store.url} holds something else than an index ({min([*there, *strange])}); "
            f"choose an empty place, for example: -o {store.url}/index"
        )


def _upload(
    store: Store, folder: Path, records: Iterable[SegmentRecord], there: dict[str, Stored]
) -> None:
    jobs = []
    for record in records:
        for name, (size, _) in record.files.items():
            key = f"{SEGMENTS}/{record.name}/{name}"
            if key not in there or there[key].size != size:
                path = folder / SEGMENTS / record.name / name
                jobs.append(partial(store.upload, path, key))
    together(jobs)


def _named_in(manifest: Object | None) -> set[str]:
    """Name the segments of the index that is replaced; none where it is damaged."""
    try:
        return {record.name for record in _records(manifest.content, "")} if manifest else set()
    except IndexUnusable:
        return set()


def _tidy(
    store: Store, folder: Path, records: Sequence[SegmentRecord], before: Collection[str]
) -> None:
    """Remove the segments ``before`` that are no longer named; bring back what is missing.

    Others that we do not name may be those of a writer who has begun with our manifest.
    """
    there = store.below(SEGMENTS)
    _upload(store, folder, records, there)
    named = {record.name for record in records}
    # By the store's clock, for ours may be wrong.
    newest = max((one.modified for one in there.values()), default=None)
    others = [
        (key, found[1])
        for key, one in there.items()
        if (found := _SEGMENT.fullmatch(key))
        and (found[1] in before or (newest and newest - one.modified > _LONGEST_PUSH))
        and found[1] not in named
    ]
    if others:  # a later writer may have made one of them again
        now = _named_in(store.get(MANIFEST))
        store.delete(key for key, name in others if name not in now)


def _keep(store: Store, folder: Path, records: Sequence[SegmentRecord]) -> None:
    """Spare the next pull the download of what was pushed from here."""
    cache = _cache_folder(store)
    if cache != folder:
        with only_process(cache), copy_errors(cache):
            (cache / SEGMENTS).mkdir(parents=True, exist_ok=True)
            link_segments(records, folder, cache)
