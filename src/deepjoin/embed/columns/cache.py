"""A persistent cache of text vectors, so that an encoder never encodes a text twice.

One SQLite file for all builds: a batch is stored whole or not at all, and several processes may
read and write. A key is the hash of the encoder's digest and the text. Each vector ends in a
checksum: a damaged one, which an index would give checksums of its own, is encoded again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import numpy as np
from xxhash import xxh3_64_digest, xxh3_128_digest

from deepjoin.arrays import Float, Marks
from deepjoin.embed.columns.encoder import TextEncoder
from deepjoin.errors import DeepJoinError

#: Distinguishes our files from other databases, and this format from later ones.
_APPLICATION = 0x646A7631
_SCHEMA = (
    # Numbered in order of arrival, so that writing appends and the oldest are found quickly.
    "CREATE TABLE IF NOT EXISTS vectors (number INTEGER PRIMARY KEY, key BLOB UNIQUE, vector BLOB)",
    f"PRAGMA application_id = {_APPLICATION}",
)
_FIND = "SELECT vector FROM vectors WHERE key = ?"
_STORE = "INSERT OR REPLACE INTO vectors (key, vector) VALUES (?, ?)"
_DELETE_OLDEST = (
    "DELETE FROM vectors WHERE number <= "
    "(SELECT number FROM vectors ORDER BY number LIMIT 1 OFFSET ?)"
)
#: Ten vectors of the default encoder fill a page.
_PAGE = 16384
#: Texts encoded between two commits, unless the encoder's block is larger: an interrupted build
#: loses at most these.
_BATCH = 2048
_SUM_BYTES = 8
_REMEDY = (
    "The file may be deleted; it will be filled again. Or set DEEPJOIN_CACHE to another folder."
)


class VectorCache:
    """Vectors by key; when the file exceeds ``max_bytes``, the oldest quarter is deleted."""

    def __init__(self, path: str | Path, max_bytes: int = 4 << 30) -> None:
        self.path = Path(path)
        self.max_bytes = max_bytes
        # Searches that encode no column do without it.
        import sqlite3

        with self._explained():
            # Encoders run in their own thread, one call at a time.
            self._database = sqlite3.connect(
                self.path, timeout=60, isolation_level=None, check_same_thread=False
            )
        try:
            with self._explained():
                mark = self._number("PRAGMA application_id")
                tables = self._number("SELECT count(*) FROM sqlite_master")
                if mark != _APPLICATION and (mark or tables):
                    raise DeepJoinError(
                        f"{self.path} is not an encoding cache of this version. {_REMEDY}"
                    )
                self._database.execute(f"PRAGMA page_size = {_PAGE}")
                if not mark:
                    with self._transaction():
                        for statement in _SCHEMA:
                            self._database.execute(statement)
        except DeepJoinError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def __len__(self) -> int:
        return self._number("SELECT count(*) FROM vectors")

    def get(self, keys: Sequence[bytes], dimension: int) -> tuple[Marks, Float]:
        """Return which keys are known, and their vectors; rows of unknown keys are 0."""
        known = np.zeros(len(keys), bool)
        vectors = np.zeros((len(keys), dimension), np.float32)
        with self._explained():
            for row, key in enumerate(keys):
                found = self._database.execute(_FIND, (key,)).fetchone()
                # Earlier versions wrote no checksum.
                if found and len(found[0]) == 4 * dimension + _SUM_BYTES:
                    vector = found[0][:-_SUM_BYTES]
                    if found[0].endswith(_sum(key, vector)):
                        known[row] = True
                        vectors[row] = np.frombuffer(vector, "<f4")
        return known, vectors

    def put(self, keys: Sequence[bytes], vectors: Float) -> None:
        """Store vectors: all of them or, if interrupted, none."""
        with self._explained(), self._transaction():
            rows = (vector.astype("<f4").tobytes() for vector in vectors)
            stored = ((key, row + _sum(key, row)) for key, row in zip(keys, rows, strict=True))
            self._database.executemany(_STORE, stored)
            # Deleted rows leave free pages, which the file reuses before it grows.
            pages = self._number("PRAGMA page_count") - self._number("PRAGMA freelist_count")
            if pages * self._number("PRAGMA page_size") > self.max_bytes:
                self._database.execute(_DELETE_OLDEST, (len(self) // 4,))

    def _number(self, query: str) -> int:
        return int(self._database.execute(query).fetchone()[0])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        import sqlite3

        try:
            yield
        except sqlite3.Error as error:
            raise DeepJoinError(
                f"The encoding cache {self.path} cannot be used: {error}. {_REMEDY}"
            ) from None


class CachedEncoder(TextEncoder):
    """An encoder that reads vectors from a cache and adds those it computes."""

    def __init__(self, encoder: TextEncoder, cache: VectorCache) -> None:
        self.name, self.digest, self.dimension = encoder.name, encoder.digest, encoder.dimension
        self.settings, self.block = encoder.settings, encoder.block
        self.counted = encoder.counted
        self._encoder, self._cache = encoder, cache

    def count(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of each text, special tokens left out."""
        return self._encoder.count(texts)

    def encode_texts(self, texts: Sequence[str]) -> Float:
        """Return one vector per text; compute only those that are not in the cache."""
        keys = [text_key(self.digest, text) for text in texts]
        known, vectors = self._cache.get(keys, self.dimension)
        # By key, so that equal texts are encoded once.
        missing = {key: row for row, key in enumerate(keys) if not known[row]}
        rows = list(missing.values())
        step = max(_BATCH, self.block)
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            vectors[some] = self._encoder.encode_texts([texts[row] for row in some])
            self._cache.put([keys[row] for row in some], vectors[some])
        for row in np.flatnonzero(~known).tolist():
            vectors[row] = vectors[missing[keys[row]]]
        return vectors


def _sum(key: bytes, vector: bytes) -> bytes:
    return xxh3_64_digest(key + vector)


def text_key(digest: str, text: str) -> bytes:
    """Return the 16-byte key of a text's vector."""
    return xxh3_128_digest(f"{digest}\0{text}".encode("utf-8", "surrogatepass"))
