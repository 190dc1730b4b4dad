"""The few operations on a bucket that an index needs; each failure is one line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from deepjoin.errors import DeepJoinError, IndexUnusable
from deepjoin.optional import require
from deepjoin.progress import Progress, no_progress, worker_threads
from deepjoin.read.remote_files import S3, BucketUrl, endpoint, explained

_BLOCK = 1 << 20
_MISSING = ("NoSuchKey", "404", "NotFound")
_LOST = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409", *_MISSING)
_CONNECT_SECONDS = 5
_READ_SECONDS = 30
_ATTEMPTS = 3
#: Files transferred at a time.
PARALLEL = 8
#: A call that uploads or downloads a file, and the size of the file.
Transfer = tuple[Callable[[], None], int]


class Vanished(Exception):
    """An object that a manifest names is missing; there may be a newer manifest."""


class StoredObject(NamedTuple):
    """The content of an object, and the ETag of that version."""

    content: bytes
    etag: str


class ListedObject(NamedTuple):
    """An object as a listing shows it."""

    size: int
    #: By the clock of the store.
    modified: datetime


class IndexBucket:
    """The objects below one URL, by names relative to it."""

    def __init__(self, url: str) -> None:
        self.url = BucketUrl.parse(url)
        if self.url.scheme not in S3 or self.url.patterns:
            raise DeepJoinError(
                f"An index cannot be at '{self.url}'. It can be in a folder, or in a bucket that "
                "speaks S3: s3://bucket/folder."
            )
        require("boto3", "s3", f"An index in a bucket ({self.url})")
        self._prefix = f"{self.url.path}/" if self.url.path else ""
        self._place = {"Bucket": self.url.host}
        with self._explaining("reach"):
            self._client = _client()
        self.identity = f"{self._client.meta.endpoint_url}/{self.url.host}/{self.url.path}"

    def get(self, name: str) -> StoredObject | None:
        """Fetch a small object with its ETag; None where there is none."""
        with self._explaining("read"):
            try:
                answer = self._client.get_object(**self._at(name))
            except self._client.exceptions.NoSuchKey:
                return None
            return StoredObject(answer["Body"].read(), answer["ETag"])

    def fetch(self, name: str, path: Path, size: int, digest: str) -> None:
        """Download an object to a new file, and check its size and checksum."""
        found = xxhash.xxh3_64()
        left = size
        with self._explaining("read"):
            try:
                body = self._client.get_object(**self._at(name))["Body"]
            except self._client.exceptions.NoSuchKey:
                raise Vanished(name) from None
            with path.open("xb") as file, body:
                while left >= 0 and (block := body.read(_BLOCK)):
                    left -= len(block)
                    found.update(block)
                    file.write(block)
                os.fsync(file.fileno())
        if left or found.hexdigest() != digest:
            raise IndexUnusable(
                f"{self.url} is damaged: {name} is not what was written. "
                f"Build it again with: deepjoin index SOURCE -o {self.url} --rebuild"
            )

    def put(self, name: str, content: bytes, token: str | None) -> str:
        """Store an object if it still has this ETag or, for None, does not exist."""
        condition = {"IfMatch": token} if token is not None else {"IfNoneMatch": "*"}
        with self._explaining("write"):
            try:
                answer = self._client.put_object(**self._at(name), Body=content, **condition)
            except self._client.exceptions.ClientError as error:
                if error.response["Error"]["Code"] in _LOST:
                    raise self.conflict() from None
                raise
            return str(answer["ETag"])

    def conflict(self) -> IndexUnusable:
        """Make the error for the slower of two writers."""
        return IndexUnusable(f"{self.url} was changed by another writer; run the command again.")

    def upload(self, path: Path, name: str) -> None:
        """Store a file, large or small."""
        from boto3.s3.transfer import TransferConfig

        alone = TransferConfig(use_threads=False)
        with self._explaining("write"):
            self._client.upload_file(str(path), self.url.host, self._prefix + name, Config=alone)

    def below(self, folder: str) -> dict[str, ListedObject]:
        """List the objects below a folder."""
        pages = self._client.get_paginator("list_objects_v2")
        start = len(self._prefix)
        with self._explaining("list"):
            return {
                one["Key"][start:]: ListedObject(one["Size"], one["LastModified"])
                for page in pages.paginate(**self._place, Prefix=f"{self._prefix}{folder}/")
                for one in page.get("Contents", ())
            }

    def top(self) -> set[str]:
        """Name the first objects and folders right below the URL."""
        with self._explaining("list"):
            page = self._client.list_objects_v2(**self._place, Prefix=self._prefix, Delimiter="/")
        names = [one["Key"] for one in page.get("Contents", ())]
        names += [one["Prefix"] for one in page.get("CommonPrefixes", ())]
        return {name[len(self._prefix) :].rstrip("/") for name in names} - {""}

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects, a thousand to a request."""
        keys = [{"Key": self._prefix + name} for name in names]
        doing = "remove older segments from"
        for start in range(0, len(keys), 1000):
            batch = {"Objects": keys[start : start + 1000], "Quiet": True}
            with self._explaining(doing):
                answer = self._client.delete_objects(**self._place, Delete=batch)
            for failed in answer.get("Errors", ()):
                raise explained(OSError(failed["Code"]), f"Cannot {doing} {self.url}", self.url)

    def _at(self, name: str) -> dict[str, str]:
        return {**self._place, "Key": self._prefix + name}

    @contextmanager
    def _explaining(self, doing: str) -> Iterator[None]:
        """Report what the client raises in one line; errors of the local disk pass through."""
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (Boto3Error, BotoCoreError, ClientError) as error:
            raise explained(error, f"Cannot {doing} {self.url}", self.url) from None


def together(jobs: Sequence[Transfer], progress: Progress = no_progress) -> None:
    """Run a few transfers at a time; after the first failure no other starts."""
    done, total = 0, sum(size for _, size in jobs)
    with worker_threads(PARALLEL) as pool:
        futures = [pool.submit(job) for job, _ in jobs]
        for future, (_, size) in zip(futures, jobs, strict=True):
            future.result()
            done += size
            progress(done, total, "bytes")


def _client() -> Any:
    """Connect to the store that the environment names, with short timeouts."""
    import boto3
    from botocore.config import Config

    store = endpoint()
    config = Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        retries={"total_max_attempts": _ATTEMPTS, "mode": "standard"},
        max_pool_connections=PARALLEL,
        # Stores that are not AWS seldom have a host name for every bucket.
        s3={"addressing_style": "path" if store else "auto"},
    )
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return boto3.client("s3", region_name=region, endpoint_url=store, config=config)
