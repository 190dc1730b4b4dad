"""URLs of buckets, taken apart; one that holds a secret is refused and never shown."""

from __future__ import annotations

import re
from dataclasses import dataclass

from deepjoin.errors import DeepJoinError
from deepjoin.read.walk import is_glob

S3 = ("s3", "s3a", "s3n")
GOOGLE = ("gs", "gcs")
AZURE = ("abfs", "abfss")

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(.*)", re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
#: A user, a container or the word anonymous may stand before a host, and a port behind it.
_HOST = re.compile(r"([\w.-]+@)?[\w.-]*(:\d+)?")
_PARAMETERS = re.compile(r"\?[\w.-]+=")
_KEYS = {
    **dict.fromkeys(S3, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"),
    **dict.fromkeys(GOOGLE, "GOOGLE_APPLICATION_CREDENTIALS"),
    **dict.fromkeys(AZURE, "AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET"),
}


@dataclass(frozen=True)
class BucketUrl:
    """A place in a bucket: a folder, one object, or the part of a folder that a glob fits.

    ``host`` is the bucket, or what stands in its place: a container and its account, a server.
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
            raise DeepJoinError(f"'{url}' is no URL of a bucket, such as s3://bucket/folder.")
        scheme, rest = found[1].lower(), found[2]
        host, _, below = rest.partition("/")
        _refuse_secrets(scheme, host, rest)
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
        """What to set, in the environment, to be let in."""
        return _KEYS.get(self.scheme, "what its library reads from the environment")

    def __str__(self) -> str:
        return "/".join((self.folder, *self.patterns))


def _refuse_secrets(scheme: str, host: str, rest: str) -> None:
    """Refuse what may be a secret without repeating it; a secret key may have slashes."""
    shape = _BUCKET if scheme in S3 else _HOST
    access = _KEYS.get(scheme, "credentials")
    if not shape.fullmatch(host):
        raise DeepJoinError(
            f"The {scheme}:// URL has no plain bucket or host name after the slashes. If there is "
            f"a user or password in it, leave it out and set {access} in the environment."
        )
    if _PARAMETERS.search(rest):
        raise DeepJoinError(
            f"The {scheme}:// URL has parameters after a question mark; leave them out and set "
            f"{access} in the environment."
        )
