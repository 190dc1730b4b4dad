"""An index in a bucket: whole or refused, of two writers one, and nothing fetched twice."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from deepjoin.errors import DeepJoinError, IndexUnusable, MissingExtra
from deepjoin.settings import Settings
from deepjoin.store import bucket as store
from deepjoin.store import remote
from deepjoin.store.manifest import FORMAT, READS, Manifest, read_manifest
from deepjoin.store.remote import Pulled, is_remote, pull, push, working_copy
from deepjoin.store.storage import writing
from tests.support.buckets import BUCKET, Store, answering, running_store, use
from tests.support.index_files import resealed

pytestmark = pytest.mark.slow

URL = "s3://lake/some/index"
PREFIX = "some/index/"


@pytest.fixture(scope="module")
def server() -> Iterator[Store]:
    with pytest.MonkeyPatch.context() as patch, running_store() as running:
        use(patch, running.address)
        running.client.create_bucket(Bucket=BUCKET)
        yield running


@pytest.fixture
def bucket(server: Store, monkeypatch: pytest.MonkeyPatch, cache: Path) -> Store:
    use(monkeypatch, server.address)
    client = server.client
    for key in server.contents():
        client.delete_object(Bucket=BUCKET, Key=key)
    server.requests.clear()
    return server


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DEEPJOIN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def build(folder: Path, *texts: str) -> Path:
    """Make an index of one small segment a text."""
    with writing(folder) as writer:
        records = []
        for number, text in enumerate(texts):
            built = writer.scratch / f"segment-{number}"
            (built / "frames").mkdir(parents=True)
            (built / "values.npy").write_text(text * 3)
            (built / "frames" / "0.parquet").write_text(text)
            records.append(writer.place(built))
        sources = ({"kind": "memory"},)
        writer.commit(Manifest(FORMAT, "1.0", READS, Settings(), sources, tuple(records)))
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def at_the_url(bucket: Store) -> dict[str, bytes]:
    return {key.removeprefix(PREFIX): body for key, body in bucket.contents(PREFIX).items()}


def gets(bucket: Store) -> list[str]:
    found = [one for one in bucket.requests if one.startswith("GET") and "segments/" in one]
    return [one for one in found if "list-type" not in one]


def puts(bucket: Store) -> list[str]:
    return [one for one in bucket.requests if one.startswith("PUT") and "segments/" in one]


def changed(bucket: Store, change: Callable[[dict[str, Any]], object]) -> None:
    """Rewrite the manifest at the URL."""
    fields = json.loads(bucket.contents(f"{PREFIX}manifest.json")[f"{PREFIX}manifest.json"])
    change(fields)
    bucket.put(**{f"{PREFIX}manifest.json": resealed(fields)})
    bucket.requests.clear()


def test_what_is_pushed_is_pulled(bucket: Store, tmp_path: Path, cache: Path) -> None:
    built = build(tmp_path / "built", "one", "two")
    token = push(built, URL, None)
    assert at_the_url(bucket) == files(built)
    pulled = pull(URL)
    assert pulled.token == token
    assert pulled.folder.parent == cache
    assert files(pulled.folder) == files(built)
    assert len(read_manifest(pulled.folder).segments) == 2


def test_a_copy_that_is_current_costs_one_request(bucket: Store, tmp_path: Path) -> None:
    push(build(tmp_path / "built", "one"), URL, None)
    pull(URL)
    bucket.requests.clear()
    pull(URL)
    assert bucket.requests == ["GET /lake/some/index/manifest.json"]


def test_only_new_segments_travel(bucket: Store, tmp_path: Path, monkeypatch: Any) -> None:
    built = build(tmp_path / "built", "one", "two")
    token = push(built, URL, None)
    monkeypatch.setenv("DEEPJOIN_CACHE", str(tmp_path / "elsewhere"))
    first = pull(URL).folder
    bucket.requests.clear()
    monkeypatch.setenv("DEEPJOIN_CACHE", str(tmp_path / "cache"))
    again = push(build(built, "two", "three"), URL, token)
    assert again != token
    assert len(puts(bucket)) == 3
    assert at_the_url(bucket) == files(built)
    bucket.requests.clear()
    monkeypatch.setenv("DEEPJOIN_CACHE", str(tmp_path / "elsewhere"))
    assert pull(URL) == Pulled(first, again)
    assert len(gets(bucket)) == 3
    assert files(first) == files(built)


def test_an_index_that_has_not_changed_is_not_pushed(bucket: Store, tmp_path: Path) -> None:
    built = build(tmp_path / "built", "one")
    token = push(built, URL, None)
    bucket.requests.clear()
    assert push(built, URL, token) == token
    assert bucket.requests == ["GET /lake/some/index/manifest.json"]


@pytest.mark.parametrize("first", [True, False])
def test_of_two_writers_one_wins(bucket: Store, tmp_path: Path, first: bool) -> None:
    token = None if first else push(build(tmp_path / "old", "old"), URL, None)
    push(build(tmp_path / "one", "one"), URL, token)
    before = at_the_url(bucket)
    with pytest.raises(IndexUnusable, match=f"{URL} was changed by another writer; run the comm"):
        push(build(tmp_path / "two", "two"), URL, token)
    assert at_the_url(bucket) == before


@pytest.mark.parametrize("first", [True, False])
def test_the_slower_writer_loses_at_the_last_moment(
    bucket: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    token = None if first else push(build(tmp_path / "old", "old"), URL, None)
    one, two = build(tmp_path / "one", "one"), build(tmp_path / "two", "two")
    upload = remote._upload

    def overtaken(*arguments: Any) -> None:
        monkeypatch.setattr(remote, "_upload", upload)
        upload(*arguments)
        push(two, URL, token)

    monkeypatch.setattr(remote, "_upload", overtaken)
    with pytest.raises(IndexUnusable, match="was changed by another writer"):
        push(one, URL, token)
    assert files(two).items() <= at_the_url(bucket).items()
    assert files(pull(URL).folder) == files(two)


def test_an_index_that_was_removed_meanwhile_is_a_conflict(bucket: Store, tmp_path: Path) -> None:
    token = push(build(tmp_path / "one", "one"), URL, None)
    bucket.client.delete_object(Bucket=BUCKET, Key=f"{PREFIX}manifest.json")
    with pytest.raises(IndexUnusable, match="was changed by another writer"):
        store.IndexBucket(URL).put("manifest.json", b"{}", token)
    with pytest.raises(IndexUnusable, match="was changed by another writer"):
        push(build(tmp_path / "two", "two"), URL, token)


def test_a_failed_upload_leaves_the_index_and_the_next_goes_on(
    bucket: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = build(tmp_path / "old", "old")
    token = push(old, URL, None)
    before = at_the_url(bucket)
    new = build(tmp_path / "new", "one", "two")
    upload = store.IndexBucket.upload
    left = [1]

    def failing(self: store.IndexBucket, path: Path, name: str) -> None:
        if not left:
            raise DeepJoinError("no answer")
        left.pop()
        upload(self, path, name)

    monkeypatch.setattr(store, "PARALLEL", 1)
    with monkeypatch.context() as patch:
        patch.setattr(store.IndexBucket, "upload", failing)
        with pytest.raises(DeepJoinError, match="no answer"):
            push(new, URL, token)
    assert before.items() <= at_the_url(bucket).items()
    assert files(pull(URL).folder) == files(old)
    bucket.requests.clear()
    push(new, URL, token)
    assert len(puts(bucket)) == 5
    assert at_the_url(bucket) == files(new)


def test_segments_that_another_writer_took_for_leftovers_come_back(
    bucket: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = build(tmp_path / "built", "one")
    tidy = remote._tidy

    def late(*arguments: Any) -> None:
        for key in bucket.contents(f"{PREFIX}segments/"):
            bucket.client.delete_object(Bucket=BUCKET, Key=key)
        tidy(*arguments)

    monkeypatch.setattr(remote, "_tidy", late)
    push(built, URL, None)
    assert at_the_url(bucket) == files(built)


def test_a_slow_writer_leaves_the_segments_of_a_newer_one(
    bucket: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = push(build(tmp_path / "old", "old"), URL, None)
    slow, newer = build(tmp_path / "slow", "slow"), build(tmp_path / "newer", "slow", "newer")
    tidy, delete = remote._tidy, store.IndexBucket.delete
    records = read_manifest(newer).segments

    def while_the_newer_uploads(*arguments: Any) -> None:
        monkeypatch.setattr(remote, "_tidy", tidy)
        remote._upload(store.IndexBucket(URL), newer, records, {})
        tidy(*arguments)

    def after_the_newer_is_done(there: store.IndexBucket, names: Any) -> None:
        listed = list(names)
        monkeypatch.setattr(store.IndexBucket, "delete", delete)
        push(newer, URL, pull(URL).token)
        delete(there, listed)

    monkeypatch.setattr(remote, "_tidy", while_the_newer_uploads)
    monkeypatch.setattr(store.IndexBucket, "delete", after_the_newer_is_done)
    push(slow, URL, token)
    assert at_the_url(bucket) == files(newer)


def test_a_segment_that_a_newer_writer_made_again_stays(
    bucket: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = push(build(tmp_path / "old", "old"), URL, None)
    slow, again = build(tmp_path / "slow", "slow"), build(tmp_path / "again", "old")
    tidy = remote._tidy

    def after_the_newer_is_done(*arguments: Any) -> None:
        monkeypatch.setattr(remote, "_tidy", tidy)
        push(again, URL, pull(URL).token)
        tidy(*arguments)

    monkeypatch.setattr(remote, "_tidy", after_the_newer_is_done)
    push(slow, URL, token)
    assert files(again).items() <= at_the_url(bucket).items()


@pytest.mark.parametrize(("hours", "is_left"), [(23, True), (25, False)])
def test_what_no_manifest_names_is_removed_after_a_day(
    bucket: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int, is_left: bool
) -> None:
    token = push(build(tmp_path / "built", "one"), URL, None)
    orphan = "segments/0123456789abcdef/values.npy"
    bucket.put(**{f"{PREFIX}{orphan}": "left over"})
    below = store.IndexBucket.below

    def aged(there: store.IndexBucket, folder: str) -> dict[str, store.Stored]:
        found = below(there, folder)
        earlier = found[orphan].modified - timedelta(hours=hours)
        return found | {orphan: found[orphan]._replace(modified=earlier)}

    monkeypatch.setattr(store.IndexBucket, "below", aged)
    push(build(tmp_path / "built", "two"), URL, token)
    assert (orphan in at_the_url(bucket)) is is_left


def test_a_reader_of_the_older_manifest_takes_the_newer(
    bucket: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = push(build(tmp_path / "old", "old"), URL, None)
    new = build(tmp_path / "new", "new")
    monkeypatch.setenv("DEEPJOIN_CACHE", str(tmp_path / "elsewhere"))
    download = remote._download

    def overtaken(*arguments: Any) -> None:
        monkeypatch.setattr(remote, "_download", download)
        monkeypatch.setattr(remote, "_keep", lambda *_: None)
        push(new, URL, token)
        download(*arguments)

    monkeypatch.setattr(remote, "_download", overtaken)
    assert files(pull(URL).folder) == files(new)


def elsewhere(bucket: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Push an index, forget every copy, and return the key of one of its files."""
    push(build(tmp_path / "built", "one"), URL, None)
    monkeypatch.setenv("DEEPJOIN_CACHE", str(tmp_path / "elsewhere"))
    return next(key for key in bucket.contents() if key.endswith("values.npy"))


@pytest.mark.parametrize("content", [b"oneoneonX", b"one", b"oneoneone and much more"])
def test_a_damaged_object_is_refused(
    bucket: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    key = elsewhere(bucket, tmp_path, monkeypatch)
    bucket.put(**{key: content})
    with pytest.raises(IndexUnusable, match=f"{URL} is damaged: segments/.*/values.npy is not wh"):
        pull(URL)
    (folder,) = (path for path in (tmp_path / "elsewhere").iterdir() if path.is_dir())
    assert files(folder) == {}
    with working_copy(URL, fresh=True) as copy:
        push(build(copy.folder, "one"), URL, copy.token, fresh=True)
    assert at_the_url(bucket) == files(tmp_path / "built")


def test_a_missing_object_is_reported(
    bucket: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = elsewhere(bucket, tmp_path, monkeypatch)
    bucket.client.delete_object(Bucket=BUCKET, Key=key)
    with pytest.raises(IndexUnusable, match=r"segments/.*/values.npy is missing. .* --rebuild"):
        pull(URL)
    with working_copy(URL, fresh=True) as copy:
        push(build(copy.folder, "one"), URL, copy.token, fresh=True)
    assert files(pull(URL).folder) == files(tmp_path / "built")


def test_what_is_broken_in_a_copy_is_fetched_again(bucket: Store, tmp_path: Path) -> None:
    built = build(tmp_path / "built", "one", "two")
    push(built, URL, None)
    folder = pull(URL).folder
    first, second = sorted((folder / "segments").iterdir())
    # The copy shares its files with the folder that was pushed: put another in its place.
    (first / "values.npy").unlink()
    (first / "values.npy").write_text("cut")
    (second / "values.npy").unlink()
    (folder / "segments" / "pulling-abc").mkdir()
    bucket.requests.clear()
    pull(URL)
    assert len(gets(bucket)) == 6
    assert files(folder) == files(built)
    assert not list((folder / "segments").glob("pulling-*"))


def test_several_may_pull_at_once(
    bucket: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere(bucket, tmp_path, monkeypatch)
    bucket.requests.clear()
    with ThreadPoolExecutor(4) as pool:
        pulled = list(pool.map(pull, [URL] * 4))
    assert len(set(pulled)) == 1
    assert files(pulled[0].folder) == files(tmp_path / "built")
    assert len(gets(bucket)) == 3


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x", "a//b", "./a", "a\\b", "", "a\0b"])
def test_names_that_lead_elsewhere_are_refused(bucket: Store, tmp_path: Path, name: str) -> None:
    push(build(tmp_path / "built", "one"), URL, None)
    changed(bucket, lambda fields: fields["segments"][0]["files"].update({name: [1, "00"]}))
    with pytest.raises(IndexUnusable, match=f"{URL} is damaged: manifest.json "):
        pull(URL)
    assert not gets(bucket)


@pytest.mark.parametrize("name", ["..", "a/b", "", "."])
def test_segments_that_lead_elsewhere_are_refused(bucket: Store, tmp_path: Path, name: str) -> None:
    push(build(tmp_path / "built", "one"), URL, None)
    changed(bucket, lambda fields: fields["segments"][0].update(name=name))
    with pytest.raises(IndexUnusable, match=f"{URL} is damaged: manifest.json is not what was wr"):
        pull(URL)


def test_a_newer_format_is_refused_before_anything_is_fetched(
    bucket: Store, tmp_path: Path
) -> None:
    push(build(tmp_path / "built", "one"), URL, None)
    changed(bucket, lambda fields: fields.update(format=99, version="9.0", segments="other"))
    told = f"{URL} was written by deepjoin 9.0 in format 99; this version reads up to format"
    with pytest.raises(IndexUnusable, match=told):
        pull(URL)
    assert bucket.requests == ["GET /lake/some/index/manifest.json"]


@pytest.mark.parametrize(
    ("content", "damage"),
    [
        ("{", "not valid JSON"),
        ("[]", "not what was written"),
        ('{"product": "deepjoin index", "format": 1}', "not what was written"),
    ],
)
def test_a_broken_manifest_is_reported_and_can_be_replaced(
    bucket: Store, tmp_path: Path, content: str, damage: str
) -> None:
    bucket.put(**{f"{PREFIX}manifest.json": content})
    with pytest.raises(IndexUnusable, match=f"{URL} is damaged: manifest.json is {damage}"):
        pull(URL)
    with working_copy(URL, fresh=True) as copy:
        push(build(copy.folder, "one"), URL, copy.token, fresh=True)
    assert pull(URL).token


def test_the_manifest_of_another_program_is_left_alone(bucket: Store) -> None:
    bucket.put(**{f"{PREFIX}manifest.json": '{"product": "other"}'})
    told = f"{URL}/manifest.json belongs to another program. Make an index elsewhere: deepjoin"
    with pytest.raises(IndexUnusable, match=told):
        pull(URL)
    with pytest.raises(IndexUnusable, match=told), working_copy(URL, fresh=True):
        pass


def test_no_index_is_reported_unless_one_is_to_be_made(bucket: Store, tmp_path: Path) -> None:
    told = rf"{URL} is not a deepjoin index \(no manifest.json\). Make one with: deepjoin index"
    with pytest.raises(IndexUnusable, match=told):
        pull(URL)
    push(build(tmp_path / "built", "one"), URL, None)
    stale = pull(URL).folder
    bucket.client.delete_object(Bucket=BUCKET, Key=f"{PREFIX}manifest.json")
    assert pull(URL, missing_ok=True) == Pulled(stale, None)
    assert files(stale) == {}


@pytest.mark.parametrize("key", ["sales.csv", "segments/customers/a.csv"])
def test_an_index_does_not_go_among_other_objects(bucket: Store, tmp_path: Path, key: str) -> None:
    bucket.put(**{PREFIX + key: "a"})
    told = rf"{URL} holds something else than an index \({key}\); choose an empty place"
    with pytest.raises(DeepJoinError, match=told):
        push(build(tmp_path / "built", "one"), URL, None)
    assert at_the_url(bucket) == {key: b"a"}


def test_only_segments_are_ever_removed(bucket: Store, tmp_path: Path) -> None:
    token = push(build(tmp_path / "built", "one"), URL, None)
    bucket.put(**{f"{PREFIX}segments/mine.csv": "a", f"{PREFIX}notes.txt": "b"})
    push(build(tmp_path / "built", "two"), URL, token)
    left = {"segments/mine.csv": b"a", "notes.txt": b"b"}
    assert at_the_url(bucket) == files(tmp_path / "built") | left


def test_an_index_may_be_all_of_a_bucket(bucket: Store, tmp_path: Path) -> None:
    built = build(tmp_path / "built", "one")
    push(built, "s3://lake", None)
    assert bucket.contents() == files(built)
    assert files(pull("s3://lake/").folder) == files(built)


def test_a_working_copy_is_apart_from_the_readers(bucket: Store, tmp_path: Path) -> None:
    push(build(tmp_path / "built", "one"), URL, None)
    read = pull(URL).folder
    with working_copy(URL) as copy:
        assert copy.folder.parent == read.parent
        assert files(copy.folder) == files(read)
        build(copy.folder, "one", "two")
        assert files(read) == files(tmp_path / "built")
        push(copy.folder, URL, copy.token)
    assert not copy.folder.exists()
    bucket.requests.clear()
    assert len(read_manifest(pull(URL).folder).segments) == 2
    assert not gets(bucket)


def test_a_working_copy_is_kept_where_the_work_fails(bucket: Store) -> None:
    with pytest.raises(ValueError, match="stopped"), working_copy(URL) as copy:
        (copy.folder / "pending.json").write_text("{}")
        raise ValueError("stopped")
    with working_copy(URL) as again:
        assert again == copy
        assert files(again.folder) == {"pending.json": b"{}"}


def test_one_writer_on_a_machine(bucket: Store) -> None:
    told = "The index is being written by another process of this machine. Wait for it to end"
    with working_copy(URL), pytest.raises(IndexUnusable, match=told), working_copy(URL):
        pass


def test_a_copy_needs_no_links(
    bucket: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    built = build(tmp_path / "built", "one")
    push(built, URL, None)
    assert files(pull(URL).folder) == files(built)


def test_a_cache_that_cannot_be_written_is_reported(
    bucket: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere(bucket, tmp_path, monkeypatch)
    (tmp_path / "file").write_text("")
    with monkeypatch.context() as patch:
        patch.setenv("DEEPJOIN_CACHE", str(tmp_path / "file"))
        with pytest.raises(DeepJoinError, match="file: .* Set DEEPJOIN_CACHE to a folder you may"):
            pull(URL)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DeepJoinError, match="no space left on its disk. Set DEEPJOIN_CACHE"):
        pull(URL)


def test_the_cache_is_in_the_users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEEPJOIN_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert remote.cache_root() == tmp_path / ".cache" / "deepjoin"


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        (403, "AccessDenied", "no permission. Check AWS_ACCESS_KEY_ID"),
        (403, "SignatureDoesNotMatch", "the credentials were refused"),
        (404, "NoSuchBucket", "there is no such bucket"),
        (400, "AuthorizationHeaderMalformed", "the bucket is in another region"),
    ],
)
def test_what_a_store_refuses_is_reported_in_one_line(
    monkeypatch: pytest.MonkeyPatch, cache: Path, status: int, code: str, told: str
) -> None:
    with answering(status, code, "very-secret") as address:
        use(monkeypatch, address)
        with pytest.raises(DeepJoinError, match=f"Cannot read {URL}: {told}") as error:
            pull(URL)
    assert "very-secret" not in str(error.value)


def test_what_may_not_be_written_is_reported(
    bucket: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = build(tmp_path / "built", "one")
    with answering(403, "AccessDenied") as address:
        use(monkeypatch, address)
        there = store.IndexBucket(URL)
        with pytest.raises(DeepJoinError, match=f"Cannot write {URL}: no permission"):
            there.upload(built / "manifest.json", "x")
        with pytest.raises(DeepJoinError, match=f"Cannot write {URL}: no permission"):
            there.put("x", b"", None)
        with pytest.raises(DeepJoinError, match=f"Cannot list {URL}: no permission"):
            there.below("segments")


def test_segments_that_may_not_be_removed_are_reported(
    bucket: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = store.IndexBucket(URL)
    answer = {"Errors": [{"Code": "AccessDenied"}]}
    monkeypatch.setattr(there._client, "delete_objects", lambda **_: answer)
    with pytest.raises(DeepJoinError, match=f"Cannot remove older segments from {URL}: no permis"):
        there.delete(["segments/x"])


def test_no_network_and_no_credentials_are_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path
) -> None:
    monkeypatch.setattr(store, "_ATTEMPTS", 1)
    use(monkeypatch, "http://127.0.0.1:9")
    with pytest.raises(DeepJoinError, match=f"Cannot read {URL}: no answer. Check the network"):
        pull(URL)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    with pytest.raises(DeepJoinError, match="no credentials were found. Set AWS_ACCESS_KEY_ID"):
        pull(URL)


def test_an_index_is_in_a_bucket_that_speaks_s3() -> None:
    for url in ("gs://lake/index", "s3://lake/*.csv"):
        with pytest.raises(DeepJoinError, match=r"An index cannot be at '.*'. It can be in a fol"):
            pull(url)


def test_an_index_in_a_bucket_needs_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(MissingExtra, match=r"needs boto3: pip install 'deepjoin\[s3\]'"):
        pull(URL)


def test_urls_are_distinguished_from_paths() -> None:
    assert is_remote("s3://lake/index")
    assert not any(map(is_remote, ("index", "./s3:/x", Path("s3://lake"), None)))
