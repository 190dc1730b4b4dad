"""An index in a bucket: the same manifest and segments, used through a copy on this machine.

Segments never change, so a copy downloads each one once. The manifest is replaced only if it is
still the one that was pulled: of two writers one wins, and the other gets an error.
"""

from __future__ import annotations

import errno
import json
import re
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

import xxhash

from deepjoin.errors import DeepJoinError, IndexUnusable
from deepjoin.files import cache_root, link_or_copy, locked, replace_file
from deepjoin.store.bucket import IndexBucket, ListedObject, StoredObject, Vanished, together
from deepjoin.store.manifest import (
    FORMAT,
    MANIFEST,
    PRODUCT,
    SEGMENTS,
    SegmentRecord,
    is_whole,
    segment_record,
)

_TRIES = 5
#: No push takes longer: what is older and in no manifest is left over from one that failed.
_LONGEST_PUSH = timedelta(days=1)
#: The names of segments; nothing else below an index is ever removed from a bucket.
_SEGMENT = re.compile(rf"{SEGMENTS}/([0-9a-f]{{16}}(?:-\d+)?)/.+")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


class Pulled(NamedTuple):
    """A copy of an index, and the ETag of its manifest; None where there is no index yet."""

    folder: Path
    token: str | None


def is_remote(path: object) -> bool:
    """Tell whether an index is given by URL.

    >>> is_remote("s3://bucket/index"), is_remote("data/index")
    (True, False)
    """
    return isinstance(path, str) and _URL.match(path) is not None


@contextmanager
def editing(location: str | Path, fresh: bool = False) -> Iterator[Path]:
    """Give a folder to change an index in; one in a bucket is pushed afterwards."""
    if not is_remote(location):
        yield Path(location)
        return
    url = str(location)
    with working_copy(url, fresh=fresh) as copy:
        before = _content(copy.folder)
        try:
            yield copy.folder
        except BaseException:
            # Push what was committed before the failure: values are, before columns are encoded.
            if _content(copy.folder) not in (before, b""):
                push(copy.folder, url, copy.token, fresh=fresh)
            raise
        push(copy.folder, url, copy.token, fresh=fresh)


def _content(folder: Path) -> bytes:
    """Read the manifest of a copy; nothing if it cannot be read."""
    try:
        return (folder / MANIFEST).read_bytes()
    except OSError:
        return b""


def pull(url: str, *, missing_ok: bool = False) -> Pulled:
    """Update the copy of an index: one request if it is current, else download new segments."""
    store = IndexBucket(url)
    folder = _cache_folder(store)
    vanished = ""
    for _ in range(_TRIES):
        found = _manifest(store, missing_ok)
        if found is not None:
            records = _records(found.content, url)
            whole = all(is_whole(folder, record) for record in records)
            if whole and found.content == _content(folder):
                return Pulled(folder, found.etag)
        with only_process(folder), copy_errors(folder):
            try:
                return _updated(store, folder, missing_ok)
            except Vanished as error:  # a newer manifest may have replaced ours
                vanished = str(error)
    raise _damaged(url, f"{vanished} is missing")


def _manifest(store: IndexBucket, missing_ok: bool) -> StoredObject | None:
    found = store.get(MANIFEST)
    if found is None and not missing_ok:
        raise IndexUnusable(
            f"{store.url} is not a deepjoin index (no {MANIFEST}). "
            f"Make one with: deepjoin index SOURCE -o {store.url}"
        )
    return found


def _records(content: bytes, where: str) -> list[SegmentRecord]:
    """Read which files a manifest names, and check that no name leads elsewhere."""
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
    # `segment_record` refuses names that leave the folder on POSIX; these do so on Windows.
    if any({*"\\\0"} & {*name} for record in records for name in record.files):
        raise _damaged(where, f"{MANIFEST} names files elsewhere")
    return records


def _refuse_product(product: object, where: str) -> None:
    if product != PRODUCT:
        raise IndexUnusable(f"{where}/{MANIFEST} belongs to another program; choose another place.")


def _damaged(where: str, what: str) -> IndexUnusable:
    return IndexUnusable(
        f"{where} is damaged: {what}. "
        f"Build it again with: deepjoin index SOURCE -o {where} --rebuild"
    )


def _cache_folder(store: IndexBucket) -> Path:
    return cache_root() / xxhash.xxh3_64_hexdigest(store.identity.encode())


def _updated(store: IndexBucket, folder: Path, missing_ok: bool) -> Pulled:
    """Make a copy equal to the bucket; readers see the old copy until the new one is complete."""
    found = _manifest(store, missing_ok)
    if found is None:
        shutil.rmtree(folder, ignore_errors=True)
        (folder / SEGMENTS).mkdir(parents=True)
        return Pulled(folder, None)
    records = _records(found.content, str(store.url))
    (folder / SEGMENTS).mkdir(parents=True, exist_ok=True)
    _download(store, folder, [record for record in records if not is_whole(folder, record)])
    replace_file(folder / MANIFEST, found.content)
    named = {record.name for record in records}
    for old in (folder / SEGMENTS).iterdir():
        if old.name not in named:
            shutil.rmtree(old, ignore_errors=True)
    return Pulled(folder, found.etag)


def _download(store: IndexBucket, folder: Path, records: Sequence[SegmentRecord]) -> None:
    with ExitStack() as stack:
        scratch = {record.name: stack.enter_context(_scratch(folder)) for record in records}
        jobs = []
        for record in records:
            for name, (size, digest) in record.files.items():
                path = scratch[record.name] / name
                path.parent.mkdir(parents=True, exist_ok=True)
                key = f"{SEGMENTS}/{record.name}/{name}"
                jobs.append(partial(store.fetch, key, path, size, digest))
        together(jobs)
        for record in records:
            place = folder / SEGMENTS / record.name
            shutil.rmtree(place, ignore_errors=True)
            scratch[record.name].rename(place)


@contextmanager
def working_copy(url: str, *, fresh: bool = False) -> Iterator[Pulled]:
    """Give a copy to build in, apart from the one that readers use; then `push` it.

    It is kept if the work fails, so that the next run can resume. A ``fresh`` one may start
    empty if the index in the bucket is damaged.
    """
    store = IndexBucket(url)
    readers = _cache_folder(store)
    folder = readers.with_name(f"{readers.name}-writing")
    with only_process(folder, wait=False):
        try:
            pulled = pull(url, missing_ok=True)
        except IndexUnusable:
            if not fresh:
                raise
            pulled = Pulled(folder, _replaceable(store))
        with copy_errors(folder):
            (folder / SEGMENTS).mkdir(parents=True, exist_ok=True)
            if pulled.token is None or pulled.folder == folder:
                (folder / MANIFEST).unlink(missing_ok=True)
            else:
                content = (pulled.folder / MANIFEST).read_bytes()
                link_segments(_records(content, str(pulled.folder)), pulled.folder, folder)
                replace_file(folder / MANIFEST, content)
        yield Pulled(folder, pulled.token)
        shutil.rmtree(folder, ignore_errors=True)


def _replaceable(store: IndexBucket) -> str | None:
    """Return the ETag of a damaged manifest of ours; refuse to replace another program's."""
    found = store.get(MANIFEST)
    if found is not None:
        with suppress(ValueError, AttributeError):
            _refuse_product(json.loads(found.content).get("product"), str(store.url))
    return found.etag if found else None


def push(folder: Path, url: str, token: str | None, *, fresh: bool = False) -> str:
    """Publish the index of a folder at a URL, unless another writer did since it was pulled.

    Returns the new manifest's ETag. Readers see the old index until the manifest is replaced,
    which comes last; segments of a failed push are reused by the next one, or removed after a
    day. A ``fresh`` push uploads everything again.
    """
    store = IndexBucket(url)
    content = (folder / MANIFEST).read_bytes()
    records = _records(content, str(folder))
    current = store.get(MANIFEST)
    if (current.etag if current else None) != token:
        raise store.conflict()
    if current and current.content == content and not fresh:
        return current.etag
    if current is None:  # never write among objects of another kind
        there = store.top() - {SEGMENTS}
        strange = [name for name in store.below(SEGMENTS) if not _SEGMENT.fullmatch(name)]
        if there or strange:
            raise DeepJoinError(
                f"{store.url} holds something else than an index ({min([*there, *strange])}); "
                f"choose an empty place, for example: -o {store.url}/index"
            )
    _upload(store, folder, records, {} if fresh else store.below(SEGMENTS))
    etag = store.put(MANIFEST, content, token)
    _tidy(store, folder, records, _named_in(current))
    _keep(store, folder, records)
    return etag


def _upload(
    store: IndexBucket,
    folder: Path,
    records: Iterable[SegmentRecord],
    there: dict[str, ListedObject],
) -> None:
    """Upload the files of segments that are not there in their full length."""
    jobs = []
    for record in records:
        for name, (size, _) in record.files.items():
            key = f"{SEGMENTS}/{record.name}/{name}"
            if key not in there or there[key].size != size:
                path = folder / SEGMENTS / record.name / name
                jobs.append(partial(store.upload, path, key))
    together(jobs)


def _named_in(manifest: StoredObject | None) -> set[str]:
    """Name the segments of a manifest; none if it is damaged."""
    try:
        return {record.name for record in _records(manifest.content, "")} if manifest else set()
    except IndexUnusable:
        return set()


def _tidy(
    store: IndexBucket, folder: Path, records: Sequence[SegmentRecord], before: Collection[str]
) -> None:
    """Remove those of the segments ``before`` that are no longer named; restore missing ones.

    Others that we do not name may belong to a writer that has started from our manifest.
    """
    there = store.below(SEGMENTS)
    _upload(store, folder, records, there)
    named = {record.name for record in records}
    # Ages are by the store's clock: ours may be wrong.
    newest = max((one.modified for one in there.values()), default=None)
    others = [
        (key, found[1])
        for key, one in there.items()
        if (found := _SEGMENT.fullmatch(key))
        and (found[1] in before or (newest and newest - one.modified > _LONGEST_PUSH))
        and found[1] not in named
    ]
    if others:  # a later writer may have created one of them again
        now = _named_in(store.get(MANIFEST))
        store.delete(key for key, name in others if name not in now)


def _keep(store: IndexBucket, folder: Path, records: Sequence[SegmentRecord]) -> None:
    """Put what was pushed into the readers' copy, so that the next pull need not download it."""
    cache = _cache_folder(store)
    if cache != folder:
        with only_process(cache), copy_errors(cache):
            (cache / SEGMENTS).mkdir(parents=True, exist_ok=True)
            link_segments(records, folder, cache)


@contextmanager
def only_process(folder: Path, wait: bool = True) -> Iterator[None]:
    """Be the only process of this machine that changes a copy."""
    busy = IndexUnusable(
        "The index is being written by another process of this machine. "
        "Wait for it to end, or stop it."
    )
    with ExitStack() as stack:
        try:
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            stack.enter_context(locked(folder.with_suffix(".lock"), busy, wait=wait))
        except OSError as error:
            raise DeepJoinError(
                f"Cannot keep a copy of the index in {folder.parent}: {error.strerror}. "
                "Set DEEPJOIN_CACHE to a folder you may write to."
            ) from None
        yield


@contextmanager
def copy_errors(folder: Path) -> Iterator[None]:
    """Report errors of the disk in one line."""
    try:
        yield
    except OSError as error:
        space = error.errno in (errno.ENOSPC, errno.EDQUOT)
        what = "no space left on its disk" if space else error.strerror or str(error)
        raise DeepJoinError(
            f"Cannot keep a copy of the index in {folder}: {what}. "
            "Set DEEPJOIN_CACHE to a folder elsewhere."
        ) from None


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """Make a folder to download to; it is removed unless it was renamed."""
    scratch = Path(tempfile.mkdtemp(prefix="pulling-", dir=folder / SEGMENTS))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def link_segments(records: Iterable[SegmentRecord], source: Path, target: Path) -> None:
    """Add segments of one folder to another, as links to the same files."""
    for record in records:
        if not is_whole(target, record):
            with _scratch(target) as scratch:
                there = target / SEGMENTS / record.name
                here = source / SEGMENTS / record.name
                shutil.copytree(here, scratch, copy_function=link_or_copy, dirs_exist_ok=True)
                shutil.rmtree(there, ignore_errors=True)
                scratch.rename(there)
