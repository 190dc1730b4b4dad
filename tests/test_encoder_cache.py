"""The cache of encodings: nothing is encoded twice, and damage is told."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from deepjoin import Column, DeepJoinError
from deepjoin.arrays import Float
from deepjoin.embed.columns.cache import CachedEncoder, VectorCache, text_key
from deepjoin.embed.columns.encoder import TextEncoder
from deepjoin.embed.columns.text import TextSettings, no_frequency

COLUMN = Column(["Apple", "GE", "IBM"], name="Company", title="Firms")


CORRUPT = (
    "The encoding cache .*vectors.cache cannot be used: file is not a database. The file may "
    "be deleted; it will be filled again. Or set DEEPJOIN_CACHE to another folder."
)


class Counting(TextEncoder):
    """Gives letters their numbers, and notes what it was asked."""

    def __init__(self, name: str = "counting") -> None:
        super().__init__(name, name, 3, TextSettings())
        self.asked: list[str] = []

    def count(self, texts: list[str]) -> list[int]:  # type: ignore[override]
        """Count letters."""
        return [len(text) for text in texts]

    def encode_texts(self, texts: list[str]) -> Float:  # type: ignore[override]
        """Tell the first three letters."""
        self.asked += texts
        rows = [[ord(letter) for letter in f"{text:3.3}"] for text in texts]
        return np.array(rows, np.float32).reshape(-1, 3)


def test_nothing_is_encoded_twice(tmp_path: Path) -> None:
    inner = Counting()
    with VectorCache(tmp_path / "vectors.cache") as kept:
        cached = CachedEncoder(inner, kept)
        assert (cached.name, cached.digest, cached.dimension) == ("counting", inner.digest, 3)
        first = cached.encode_texts(["abc", "xyz", "abc", "\ud800"])
    with VectorCache(tmp_path / "vectors.cache") as kept:
        again = CachedEncoder(inner, kept).encode_texts(["xyz", "new", "abc"])
    assert inner.asked == ["abc", "xyz", "\ud800", "new"]
    assert np.array_equal(again[[0, 2]], first[[1, 0]])
    assert np.array_equal(first[0], first[2])


def test_a_flipped_bit_changes_no_vector(tmp_path: Path) -> None:
    texts = [f"{number:3}" for number in range(60)]
    path = tmp_path / "vectors.cache"
    with VectorCache(path) as kept:
        expected = CachedEncoder(Counting(), kept).encode_texts(texts)
    content, chance = path.read_bytes(), Random(0)
    # Where the vectors are, and anywhere.
    where = [at for at in range(len(content)) if content.startswith(expected[7].tobytes(), at)]
    places = [at + byte for at in where for byte in range(12)]
    places += [chance.randrange(len(content)) for _ in range(60)]
    assert len(places) > 60
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        try:
            with VectorCache(path) as kept:
                found = CachedEncoder(Counting(), kept).encode_texts(texts)
        except DeepJoinError as error:
            assert "The file may be deleted" in str(error)
        else:
            assert np.array_equal(found, expected)


def test_encoders_do_not_share_vectors(tmp_path: Path) -> None:
    one, other = Counting("one"), Counting("other")
    with VectorCache(tmp_path / "vectors.cache") as kept:
        for encoder in (one, other):
            CachedEncoder(encoder, kept).encode([COLUMN], no_frequency)
        assert len(kept) == 2
        known, _ = kept.get([text_key(one.digest, one.asked[0])], 5)
        assert not known.any()
    assert one.asked == other.asked


def test_a_batch_is_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    keys = [text_key("d", str(n)) for n in range(4)]
    with VectorCache(tmp_path / "vectors.cache") as kept, VectorCache(kept.path) as reader:
        kept.put(keys[:1], np.ones((1, 3), np.float32))
        with pytest.raises(ValueError, match="shorter"):
            kept.put(keys[1:], np.ones((1, 3), np.float32))
        assert reader.get(keys, 3)[0].tolist() == [True, False, False, False]
        kept.put(keys[1:], np.ones((3, 3), np.float32))
        assert reader.get(keys, 3)[0].all()


@pytest.mark.slow
def test_the_oldest_vectors_make_room(tmp_path: Path) -> None:
    limit = 1 << 20
    with VectorCache(tmp_path / "vectors.cache", max_bytes=limit) as kept:
        for start in range(0, 4000, 100):
            keys = [text_key("d", str(n)) for n in range(start, start + 100)]
            kept.put(keys, np.ones((100, 384), np.float32))
        assert 300 < len(kept) < 700
        assert kept.get(keys, 384)[0].all()
    assert kept.path.stat().st_size < limit + (1 << 19)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no database at all" * 99, CORRUPT),
        (b"", ""),
    ],
)
def test_a_cache_file_that_is_damaged(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "vectors.cache"
    path.write_bytes(content)
    if not message:
        VectorCache(path).close()
        return
    with pytest.raises(DeepJoinError, match=message):
        VectorCache(path)


def test_a_cache_that_is_torn_inside(tmp_path: Path) -> None:
    keys = [text_key("d", str(n)) for n in range(400)]
    with VectorCache(tmp_path / "vectors.cache") as kept:
        kept.put(keys, np.ones((400, 384), np.float32))
    content = bytearray(kept.path.read_bytes())
    content[1 << 14 :] = b"\x07" * (len(content) - (1 << 14))
    kept.path.write_bytes(content)
    with (
        VectorCache(kept.path) as torn,
        pytest.raises(DeepJoinError, match="vectors.cache cannot be used: .*DEEPJOIN_CACHE"),
    ):
        torn.get(keys, 384)


def test_a_database_of_someone_else(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE t (a)")
    other.commit()
    other.close()
    with pytest.raises(
        DeepJoinError, match="other.db is not an encoding cache of this version. The file may"
    ):
        VectorCache(path)
