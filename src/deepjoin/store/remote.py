"""An index in a bucket: the same manifest and segments, used through a copy on this machine.

Segments never change, so a copy downloads each one once. The manifest is replaced only if it is
still the one that was pulled: of two writers one wins, and the other gets an error.
"""

from __future__ import annotations

import errno
import re
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

import xxhash

from deepjoin.errors import DeepJoinError, IndexUnusable
from deepjoin.files import cache_root, link_or_copy, locked, replace_file
from deepjoin.progress import Progress, no_progress
from deepjoin.store.bucket import (
    IndexBucket,
    ListedObject,
    StoredObject,
    Transfer,
    Vanished,
    together,
)
from deepjoin.store.manifest import (
    MANIFEST,
    SEGMENTS,
    OtherProgram,
    SegmentRecord,
    damaged,
    is_remote,
    is_whole,
    manifest_bytes,
    manifest_of,
    no_index,
)

_TRIES = 5
#: No push takes longer: what is older and in no manifest is left over from one that failed.
_LONGEST_PUSH = timedelta(days=1)
#: The names of segments; nothing else below an index is ever removed from a bucket.
_SEGMENT = re.compile(rf"{SEGMENTS}/([0-9a-f]{{16}}(?:-\d+)?)/.+")


class Pulled(NamedTuple):
    """A copy of an index, and the ETag of its manifest; None where there is no index yet."""

    folder: Path
    token: str | None


@contextmanager
def editing(
    location: str | Path, progress: Progress = no_progress, fresh: bool = False
) -> Iterator[Path]:
    """Give a folder to change an index in; one in a bucket is pushed afterwards."""
    if not is_remote(location):
        yield Path(location)
        return
    url = str(location)
    with working_copy(url, fresh=fresh, progress=progress) as copy:
        before = manifest_bytes(copy.folder)
        try:
            yield copy.folder
        except BaseException:
            # Push what was committed before the failure: values are, before columns are encoded.
            if manifest_bytes(copy.folder) not in (before, b""):
                push(copy.folder, url, copy.token, fresh=fresh, progress=progress)
            raise
        push(copy.folder, url, copy.token, fresh=fresh, progress=progress)


def pull(url: str, *, missing_ok: bool = False, progress: Progress = no_progress) -> Pulled:
    """Update the copy of an index: one request if it is current, else download new segments."""
    store = IndexBucket(url)
    folder = _cache_folder(store)
    vanished = ""
    for _ in range(_TRIES):
        found = _manifest(store, missing_ok)
        # Without the lock, so that readers of a current copy never wait for a writer.
        if found is not None:
            records = manifest_of(found.content, url).segments
            whole = all(is_whole(folder, record) for record in records)
            if whole and found.content == manifest_bytes(folder):
                return Pulled(folder, found.etag)
        with only_process(folder), copy_errors(folder):
            try:
                return _updated(store, folder, missing_ok, progress)
            except Vanished as error:  # a newer manifest may have replaced ours
                vanished = str(error)
    raise damaged(url, f"{vanished} is missing")


def _manifest(store: IndexBucket, missing_ok: bool) -> StoredObject | None:
    found = store.get(MANIFEST)
    if found is None and not missing_ok:
        raise no_index(store.url)
    return found


def _cache_folder(store: IndexBucket) -> Path:
    return cache_root() / xxhash.xxh3_64_hexdigest(store.identity.encode())


def _updated(store: IndexBucket, folder: Path, missing_ok: bool, progress: Progress) -> Pulled:
    """Make a copy equal to the bucket; readers see the old copy until the new one is complete."""
    found = _manifest(store, missing_ok)
    if found is None:
        shutil.rmtree(folder, ignore_errors=True)
        (folder / SEGMENTS).mkdir(parents=True)
        return Pulled(folder, None)
    records = manifest_of(found.content, str(store.url)).segments
    (folder / SEGMENTS).mkdir(parents=True, exist_ok=True)
    lacking = [record for record in records if not is_whole(folder, record)]
    _download(store, folder, lacking, progress)
    replace_file(folder / MANIFEST, found.content, private=True)
    named = {record.name for record in records}
    for old in (folder / SEGMENTS).iterdir():
        if old.name not in named:
            shutil.rmtree(old, ignore_errors=True)
    return Pulled(folder, found.etag)


def _download(
    store: IndexBucket, folder: Path, records: Sequence[SegmentRecord], progress: Progress
) -> None:
    with ExitStack() as stack:
        scratch = {record.name: stack.enter_context(_scratch(folder)) for record in records}
        jobs: list[Transfer] = []
        for record in records:
            for name, (size, digest) in record.files.items():
                path = scratch[record.name] / name
                path.parent.mkdir(parents=True, exist_ok=True)
                key = f"{SEGMENTS}/{record.name}/{name}"
                jobs.append((partial(store.fetch, key, path, size, digest), size))
        together(jobs, progress)
        for record in records:
            place = folder / SEGMENTS / record.name
            shutil.rmtree(place, ignore_errors=True)
            scratch[record.name].rename(place)


@contextmanager
def working_copy(
    url: str, *, fresh: bool = False, progress: Progress = no_progress
) -> Iterator[Pulled]:
    """Give a copy to build in, apart from the one that readers use; then `push` it.

    It is kept if the work fails, so that the next run can resume. A ``fresh`` one may start
    empty if the index in the bucket is damaged.
    """
    store = IndexBucket(url)
    readers = _cache_folder(store)
    folder = readers.with_name(f"{readers.name}-writing")
    with only_process(folder, wait=False):
        try:
            pulled = pull(url, missing_ok=True, progress=progress)
        except OtherProgram:
            raise
        except IndexUnusable:
            if not fresh:
                raise
            damaged_manifest = store.get(MANIFEST)
            pulled = Pulled(folder, damaged_manifest.etag if damaged_manifest else None)
        with copy_errors(folder):
            (folder / SEGMENTS).mkdir(parents=True, exist_ok=True)
            if pulled.token is None or pulled.folder == folder:
                (folder / MANIFEST).unlink(missing_ok=True)
            else:
                content = (pulled.folder / MANIFEST).read_bytes()
                link_segments(manifest_of(content, url).segments, pulled.folder, folder)
                replace_file(folder / MANIFEST, content, private=True)
        yield Pulled(folder, pulled.token)
        # Not in a `finally`: after a failure the next run resumes from what is here.
        shutil.rmtree(folder, ignore_errors=True)


def push(
    folder: Path,
    url: str,
    token: str | None,
    *,
    fresh: bool = False,
    progress: Progress = no_progress,
) -> str:
    """Publish the index of a folder at a URL, unless another writer did since it was pulled.

    Returns the new manifest's ETag. Readers see the old index until the manifest is replaced,
    which comes last; segments of a failed push are reused by the next one, or removed after a
    day. A ``fresh`` push uploads everything again.
    """
    store = IndexBucket(url)
    content = (folder / MANIFEST).read_bytes()
    records = manifest_of(content, folder).segments
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
    _upload(store, folder, records, {} if fresh else store.below(SEGMENTS), progress)
    etag = store.put(MANIFEST, content, token)
    _tidy(store, folder, records, _named_in(current))
    _keep(store, folder, records)
    return etag


def _upload(
    store: IndexBucket,
    folder: Path,
    records: Iterable[SegmentRecord],
    there: dict[str, ListedObject],
    progress: Progress = no_progress,
) -> None:
    """Upload the files of segments that are not there in their full length."""
    jobs: list[Transfer] = []
    for record in records:
        for name, (size, _) in record.files.items():
            key = f"{SEGMENTS}/{record.name}/{name}"
            if key not in there or there[key].size != size:
                path = folder / SEGMENTS / record.name / name
                jobs.append((partial(store.upload, path, key), size))
    together(jobs, progress)


def _named_in(manifest: StoredObject | None) -> set[str]:
    """Name the segments of a manifest; none if it is damaged."""
    try:
        records = manifest_of(manifest.content, "").segments if manifest else ()
        return {record.name for record in records}
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
