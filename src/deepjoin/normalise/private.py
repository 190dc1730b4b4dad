"""Private lakes, which store salted hashes instead of values: their keys and hashes.

What such a lake still reveals is described in ``docs/private.md``.
"""

from __future__ import annotations

import os
import re
import secrets
from binascii import b2a_base64
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b, scrypt

import pyarrow as pa

from deepjoin.errors import DeepJoinError
from deepjoin.settings import Settings

#: The environment variable for a secret that is never stored.
SECRET = "DEEPJOIN_SECRET"

#: 120 bits, 20 letters: among a billion values, two share one with probability 4e-19.
_DIGEST = 15
_CHECK = 4
_SALT = re.compile("([0-9a-f]{32})(?:-([0-9a-f]{8}))?")


def salted(settings: Settings, earlier: Settings | None = None) -> Settings:
    """Return settings with the salt of a build: their own, the earlier index's, or a new one.

    With a secret set, a new salt ends in a check value that reveals a wrong secret.
    """
    if not settings.hash_only:
        return replace(settings, salt="")
    # The same salt as before, or the values of old and new segments could not be compared.
    before = earlier.salt if earlier is not None and earlier.hash_only else ""
    salted = replace(settings, salt=settings.salt or before or secrets.token_hex(16))
    key(salted)
    secret = os.environ.get(SECRET, "")
    if not secret or "-" in salted.salt:
        return salted
    if salted.salt == before:
        raise DeepJoinError(
            f"This index was built without a secret, and {SECRET} is set now. "
            "Unset it, or build the index in a new folder."
        )
    return replace(salted, salt=f"{salted.salt}-{_check(_stretched(salted.salt, secret))}")


def key(settings: Settings) -> bytes:
    """Return the key under which values are hashed; empty for a lake that is not private.

    >>> key(Settings()), len(key(Settings(hash_only=True, salt="0123456789abcdef" * 2)))
    (b'', 16)
    """
    if not settings.hash_only:
        return b""
    match = _SALT.fullmatch(settings.salt)
    if match is None:
        raise DeepJoinError("The salt is not one a build made; leave it out to have one made.")
    salt, check = match.groups()
    if check is None:
        return bytes.fromhex(salt)
    secret = os.environ.get(SECRET, "")
    if not secret:
        raise DeepJoinError(
            f"This index was built with a secret; set {SECRET} to it, as in the build."
        )
    stretched = _stretched(salt, secret)
    if _check(stretched) != check:
        raise DeepJoinError(
            f"{SECRET} is not the secret this index was built with; set it to that one."
        )
    return stretched


@lru_cache(maxsize=8)
def _stretched(salt: str, secret: str) -> bytes:
    """Derive a key from a secret; slowly, because people choose secrets that can be guessed."""
    given = secret.encode("utf-8", "surrogateescape")
    return scrypt(given, salt=bytes.fromhex(salt), n=1 << 14, r=8, p=1, dklen=32)


def _check(stretched: bytes) -> str:
    return blake2b(b"check", key=stretched, digest_size=_CHECK).hexdigest()


def hidden(values: Iterable[str], key: bytes) -> list[str]:
    """Hash canonical strings under the key of a private lake.

    >>> hidden(["paris", "rome", "paris"], b"salt")
    ['4xgI5DKSJhpcWTgmZZ3S', 'Q/9hQuiWa2QzlwomzSLB', '4xgI5DKSJhpcWTgmZZ3S']
    """
    # A query may bring lone surrogates, which no lake can hold.
    encoded = (value.encode("utf-8", "surrogatepass") for value in values)
    return [_hidden(value, key).decode() for value in encoded]


def hidden_text(text: str, key: bytes) -> str:
    """Hash one text under a key; without a key, or if empty, it stays as it is."""
    return hidden([text], key)[0] if text and key else text


def hidden_array(values: pa.Array, key: bytes) -> pa.Array:
    """`hidden` for an Arrow array of strings without nulls."""
    encoded = values.cast(pa.binary()).to_pylist()
    return pa.array([_hidden(value, key) for value in encoded], pa.binary()).cast(pa.string())


def _hidden(value: bytes, key: bytes) -> bytes:
    return b2a_base64(blake2b(value, key=key, digest_size=_DIGEST).digest(), newline=False)
