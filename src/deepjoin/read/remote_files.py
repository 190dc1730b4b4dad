"""Files in buckets: their URLs, how to reach, list and copy them."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import pyarrow as pa
import pyarrow.fs

from deepjoin.errors import DeepJoinError, MissingExtra, UnreadableTable, first_line
from deepjoin.files import TemporaryFolder
from deepjoin.lazy import cached_property
from deepjoin.optional import require
from deepjoin.read.formats import format_of, suffixes
from deepjoin.read.walk import is_glob

S3 = ("s3", "s3a", "s3n")
GOOGLE = ("gs", "gcs")
AZURE = ("abfs", "abfss")

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(.*)", re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
#: A host may follow a user, a container or the word anonymous, and precede a port.
_HOST = re.compile(r"([\w.-]+@)?[\w.-]*(:\d+)?")
_PARAMETERS = re.compile(r"\?[\w.-]+=")
_KEYS = {
    **dict.fromkeys(S3, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"),
    **dict.fromkeys(GOOGLE, "GOOGLE_APPLICATION_CREDENTIALS"),
    **dict.fromkeys(AZURE, "AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET"),
}

Result = TypeVar("Result")

#: What file systems raise: Arrow's own, and those of the libraries behind fsspec.
FAILURES = (OSError, pa.ArrowException)
#: The most files that are copied ahead.
_AHEAD = 8
#: Larger files are copied when their turn comes: their cost is the transfer, not the waiting.
_LARGEST = 32 << 20
_BLOCK = 8 << 20
# Short, because the default of the library is to retry for minutes.
_ATTEMPTS = 3
_CONNECT_SECONDS = 5
_REQUEST_SECONDS = 30
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
# Environment variables whose values must not show in messages.
_SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_CLIENT_SECRET")

#: Patterns of an error's text, its meaning and what to check. The first that fits is reported.
_TROUBLES = (
    (
        r"NO_SUCH_BUCKET|NoSuchBucket|bucket does not exist",
        "there is no such bucket. Check its name, and AWS_ENDPOINT_URL if it is not at AWS",
    ),
    (
        r"HTTP status 301|PermanentRedirect|configured region|AuthorizationHeaderMalformed",
        "the bucket is in another region. Set AWS_REGION to {region}",
    ),
    (
        r"INVALID_ACCESS_KEY_ID|InvalidAccessKeyId|SIGNATURE_DOES_NOT_MATCH|SignatureDoesNotMatch"
        r"|EXPIRED_TOKEN|ExpiredToken|INVALID_TOKEN|InvalidToken|UNRECOGNIZED_CLIENT",
        "the credentials were refused. Check {access}, and whether they have expired",
    ),
    (
        r"ACCESS_DENIED|AccessDenied|HTTP status 403|Forbidden|\(403\)|PERMISSION_DENIED",
        "no permission. Check {access}, and what they allow",
    ),
    (
        r"NoCredentials|PartialCredentials|ProfileNotFound|AuthenticationException|OAuth2"
        r"|UNAUTHENTICATED",
        "no credentials were found. Set {access}",
    ),
    (
        r"NETWORK_CONNECTION|curlCode|EndpointConnectionError|ConnectTimeout|ReadTimeout"
        r"|ConnectionClosed|Could not resolve host|REQUEST_TIMEOUT|UNAVAILABLE",
        "no answer. Check the network, and AWS_ENDPOINT_URL if it is set",
    ),
)
#: Folders whose files are not tables, recognised by a file in them; an index also has segments.
INDEX = "an index"
_CLOSED = (
    (re.compile(r"(?:(.*)/)?manifest\.json"), INDEX),
    (re.compile(r"(?:(.*)/)?_delta_log/[^/]+\.json"), "a Delta table"),
    (re.compile(r"(?:(.*)/)?metadata/[^/]+\.metadata\.json(?:\.gz)?"), "an Iceberg table"),
)
_SEGMENTS = re.compile(r"(?<![^/])segments/")
_REGION = re.compile(r"(?:located in|expecting|x-amz-bucket-region:?) '?([a-z]{2}-[a-z-]+-\d)'?")


@dataclass(frozen=True)
class BucketUrl:
    """A place in a bucket: a folder, one object, or the part of a folder that a glob fits.

    ``host`` is the bucket, or what takes its place: a container and its account, a server.
    ``path`` is what comes below it up to the first wildcard, without slashes around it.
    """

    scheme: str
    host: str
    path: str = ""
    patterns: tuple[str, ...] = ()
    #: Set where the URL ends in a slash, so that it cannot be one object.
    is_folder: bool = False

    @classmethod
    def parse(cls, url: str) -> BucketUrl:
        """Take a URL apart.

        >>> BucketUrl.parse("s3://lake/sales/2024/*.csv")
        BucketUrl(scheme='s3', host='lake', path='sales/2024', patterns=('*.csv',), is_folder=False)
        """
        found = _SCHEME.fullmatch(url)
        if found is None:
            raise DeepJoinError(f"'{url}' is not the URL of a bucket, e.g. s3://bucket/folder.")
        scheme, rest = found[1].lower(), found[2]
        host, _, below = rest.partition("/")
        # What may be a secret is refused without repeating it; a secret key may have slashes.
        access = _KEYS.get(scheme, "credentials")
        if not (_BUCKET if scheme in S3 else _HOST).fullmatch(host):
            raise DeepJoinError(
                f"The {scheme}:// URL has no plain bucket or host name after the slashes. If there "
                f"is a user or password in it, leave it out and set {access} in the environment."
            )
        if _PARAMETERS.search(rest):
            raise DeepJoinError(
                f"The {scheme}:// URL has parameters after a question mark; leave them out and "
                f"set {access} in the environment."
            )
        parts = [part for part in below.split("/") if part]
        first = next((at for at, part in enumerate(parts) if is_glob(part)), len(parts))
        path, patterns = "/".join(parts[:first]), tuple(parts[first:])
        return cls(scheme, host, path, patterns, rest.endswith("/"))

    @property
    def folder(self) -> str:
        """The URL of the folder that names are relative to."""
        return f"{self.scheme}://{self.host}" + (f"/{self.path}" if self.path else "")

    @property
    def access(self) -> str:
        """The environment variables that hold the credentials."""
        return _KEYS.get(self.scheme, "what its library reads from the environment")

    def __str__(self) -> str:
        return "/".join((self.folder, *self.patterns))


def explained(error: Exception, doing: str, url: BucketUrl) -> DeepJoinError:
    """Make an error that says in one line what went wrong with a bucket and what to check."""
    text = f"{type(error).__name__} {error}"
    region = _REGION.search(text)
    words = {"access": url.access, "region": f"'{region[1]}'" if region else "its own"}
    for marks, meaning in _TROUBLES:
        if re.search(marks, text):
            return DeepJoinError(f"{doing}: {meaning.format(**words)}.")
    secrets = [os.environ[name] for name in _SECRETS if os.environ.get(name)]
    return DeepJoinError(f"{doing}: {first_line(error, secrets)}.")


def endpoint() -> str | None:
    """Return the address of an S3-compatible store, if the environment has one."""
    return next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), None)


def file_system(url: BucketUrl) -> tuple[pa.fs.FileSystem, str]:
    """Reach the file system of a URL; returns it with the path of the URL's folder in it."""
    try:
        if url.scheme in S3:
            s3 = pa.fs.S3FileSystem(
                region=_region(url.host),
                endpoint_override=endpoint(),
                connect_timeout=_CONNECT_SECONDS,
                request_timeout=_REQUEST_SECONDS,
                retry_strategy=pa.fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
            )
            return s3, _joined(url.host, url.path)
        if url.scheme in GOOGLE:
            # gs://anonymous@bucket is how Arrow spells public buckets.
            _, at, bucket = url.host.rpartition("@")
            limit = timedelta(seconds=_REQUEST_SECONDS)
            google = pa.fs.GcsFileSystem(anonymous=bool(at), retry_time_limit=limit)
            return google, _joined(bucket, url.path)
        if url.scheme in AZURE:
            azure, container = pa.fs.FileSystem.from_uri(f"{url.scheme}://{url.host}/")
            return azure, _joined(container.strip("/"), url.path)
    except FAILURES as error:
        raise explained(error, f"Cannot reach {url}", url) from None
    return _fsspec(url)


def _joined(*parts: str) -> str:
    return "/".join(part for part in parts if part)


def _region(bucket: str) -> str | None:
    """Take the region from the environment, else ask AWS where the bucket is."""
    known = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if known or endpoint():
        return known
    try:
        return str(pa.fs.resolve_s3_region(bucket))
    except FAILURES:  # listing it reports why
        return None


def _fsspec(url: BucketUrl) -> tuple[pa.fs.FileSystem, str]:
    fsspec = require("fsspec", "fsspec", f"Reading {url.scheme}:// URLs")
    try:
        found, path = fsspec.core.url_to_fs(url.folder)
    except ValueError:
        raise DeepJoinError(
            f"'{url}' cannot be read: {url.scheme}:// is not known. Known: s3, gs, abfs, and what "
            "fsspec knows."
        ) from None
    except ImportError as error:
        raise MissingExtra(f"Reading {url.scheme}:// URLs needs a package: {error}.") from None
    return pa.fs.PyFileSystem(pa.fs.FSSpecHandler(found)), path.rstrip("/")


class Download:
    """A remote file copied here; `remove` deletes the copy, as does the last reference to it."""

    def __init__(self, ending: str) -> None:
        # A folder each, so that a copy can be listed as if it were a lake of one file.
        self._folder = TemporaryFolder("deepjoin-")  # lives as long as this object
        self.path = self._folder.path / f"object{ending}"
        self.remove = self._folder.remove


class RemoteFiles:
    """The files of one place in a bucket, by names relative to its folder."""

    def __init__(self, url: BucketUrl) -> None:
        self.url = url
        self._system, self._folder = file_system(url)
        #: Whether several files may be read at a time; not every library behind fsspec can.
        self.is_parallel = not isinstance(self._system, pa.fs.PyFileSystem)

    def shown(self, name: str) -> str:
        """Write a file's URL, for messages."""
        return f"{self.url.folder}/{name}" if name else self.url.folder

    def info(self, name: str = "") -> pa.fs.FileInfo:
        """Ask for one file, or for what the URL itself leads to."""
        try:
            return self._system.get_file_info(self._path(name))
        except FAILURES as error:
            raise explained(error, f"Cannot read {self.shown(name)}", self.url) from None

    def below(self, name: str = "") -> dict[str, pa.fs.FileInfo]:
        """List all files below a folder in one go, a thousand or so to a request."""
        selector = pa.fs.FileSelector(self._path(name), recursive=True)
        try:
            infos = self._system.get_file_info(selector)
        except FileNotFoundError:
            return {}
        except FAILURES as error:
            raise explained(error, f"Cannot list {self.shown(name)}", self.url) from None
        # Some stores have objects for folders, which hold nothing.
        start = len(self._folder) + 1
        return {info.path[start:]: info for info in infos if info.type == pa.fs.FileType.File}

    def download(self, name: str, ending: str = "", limit: int = 1 << 62) -> Download:
        """Copy a file, or its first ``limit`` bytes, to a temporary one with this ending."""
        copy = Download(ending)
        try:
            with (
                self._system.open_input_stream(self._path(name)) as stream,
                copy.path.open("wb") as file,
            ):
                while limit and (block := stream.read(min(limit, _BLOCK))):
                    file.write(block)
                    limit -= len(block)
        except FAILURES as error:
            copy.remove()
            raise self._object_error(error, name) from None
        return copy

    def read(self, name: str, read: Callable[[pa.NativeFile], Result]) -> Result:
        """Read parts of a file without copying it."""
        try:
            with self._system.open_input_file(self._path(name)) as file:
                return read(file)
        except pa.ArrowInvalid:
            raise UnreadableTable(f"{self.shown(name)} is not what its name says.") from None
        except FAILURES as error:
            raise self._object_error(error, name) from None

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}" if name else self._folder

    def _object_error(self, error: Exception, name: str) -> DeepJoinError:
        """Separate errors of one object, which is passed over, from those of the whole bucket."""
        shown = self.shown(name)
        if isinstance(error, FileNotFoundError):
            return UnreadableTable(f"{shown} is no longer there.", passing=True)
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
            return DeepJoinError(
                f"No space left in {tempfile.gettempdir()} for a copy of {shown}; "
                "free some, or set TMPDIR to a folder on another disk."
            )
        found = explained(error, f"Cannot read {shown}", self.url)
        forbidden = ": no permission." in str(found)
        return UnreadableTable(str(found), passing=True) if forbidden else found


class Downloads:
    """Copies files when they are taken, and ahead of time while they are taken in order.

    Nothing is copied ahead for a caller that takes one file, or every tenth. At most eight
    files of 32 MiB are held; the last of them are removed with this object.
    """

    def __init__(self, files: RemoteFiles) -> None:
        self._files = files
        self._sizes: Mapping[str, int] = {}
        self._order: list[str] = []
        self._positions: dict[str, int] = {}
        self._latest = -1
        self._held: dict[str, Future[Download]] = {}

    def expect(self, sizes: Mapping[str, int]) -> None:
        """Set the order, with the sizes, in which files will be taken; forget older copies."""
        self._sizes, self._order = sizes, list(sizes)
        self._positions = {name: position for position, name in enumerate(self._order)}
        self._latest = -1
        self._held = {}

    def take(self, name: str) -> Download:
        """Return the copy of a file, which the caller has to remove."""
        held = self._held.pop(name, None)
        position = self._positions.get(name, -1)
        step = position - self._latest
        if position >= 0:
            in_order = step == 1 or (held is not None and 0 < step <= _AHEAD)
            if in_order and self._files.is_parallel:
                self._copy_ahead(position + 1)
            self._latest = position
        return held.result() if held is not None else self._copy(name)

    def take_held(self, name: str) -> Download | None:
        """Return the copy of a file if there is one already."""
        held = self._held.pop(name, None)
        return held.result() if held is not None else None

    def keep(self, name: str, copy: Download) -> None:
        """Hold a whole copy that will soon be taken again, if files are taken in order."""
        if name not in self._positions:
            copy.remove()
            return
        while len(self._held) >= _AHEAD:
            self._held.pop(next(iter(self._held)))
        done: Future[Download] = Future()
        done.set_result(copy)
        self._held[name] = done

    def _copy_ahead(self, position: int) -> None:
        """Start to copy the next files; drop copies of files that were passed over."""
        for name in [name for name in self._held if self._positions[name] < position]:
            del self._held[name]
        for name in self._order[position : position + _AHEAD]:
            fits = len(self._held) < _AHEAD and self._sizes[name] <= _LARGEST
            if fits and name not in self._held:
                self._held[name] = self._pool.submit(self._copy, name)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_AHEAD, "deepjoin-download")

    def _copy(self, name: str) -> Download:
        return self._files.download(name, ending(name))


def ending(name: str) -> str:
    """Return the ending that a copy needs, and nothing else of a name that others chose."""
    return suffixes(name) if format_of(name) else ""


def closed_folders(names: Iterable[str]) -> dict[str, str]:
    """Find the folders whose files are not tables one by one, and what they are.

    >>> closed_folders(["a/x.csv", "a/d/_delta_log/0.json", "i/manifest.json", "i/segments/s/f"])
    {'a/d': 'a Delta table', 'i': 'an index'}
    """
    found: dict[str, str] = {}
    listed = list(names)
    for name in listed:
        if name.endswith((".json", ".gz")):
            for shape, kind in _CLOSED:
                if fits := shape.fullmatch(name):
                    found[fits[1] or ""] = kind
    # Web sites and builds have a manifest.json too; only an index has segments beside it.
    indexes = {folder for folder, kind in found.items() if kind == INDEX}
    if indexes:
        above = {name[: at.start()] for name in listed for at in _SEGMENTS.finditer(name)}
        for folder in indexes - {folder.rstrip("/") for folder in above}:
            del found[folder]
    return found
