"""The stable hash under which values are ordered and looked up.

Hashes order and find; they never decide. Every equal pair of hashes is confirmed on the
strings themselves, so a collision costs time and never an answer.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_intdigest as hash_bytes

from deepjoin.arrays import Hashes


def hash_value(value: str) -> int:
    """Hash one canonical string, the same on every machine and version."""
    return int(hash_values([value])[0])


def hash_values(values: Iterable[str]) -> Hashes:
    """Hash canonical strings."""
    # Lone surrogates cannot be stored in a lake, but a query may bring them.
    return np.array([hash_bytes(v.encode("utf-8", "surrogatepass")) for v in values], np.uint64)


def hash_array(values: pa.Array) -> Hashes:
    """Hash every string of an Arrow array without nulls."""
    encoded = values.cast(pa.binary()).to_pylist()
    return np.fromiter(map(hash_bytes, encoded), np.uint64, len(encoded))
