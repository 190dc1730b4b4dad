"""Cells as means of fastText word vectors, from a .vec text file or a .bin model."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import xxhash

from deepjoin.arrays import Float
from deepjoin.embed.cells.tokens import normalise, plain_word, split_words, text_array
from deepjoin.errors import DeepJoinError, MissingExtra

#: Returns new vectors of words, zeros for words it does not know.
Lookup = Callable[[Sequence[str]], Float]

#: Not calibrated: means of word vectors lie close together, so the threshold is high.
_FLOOR, _TAU = 0.8, 0.9
_BLOCK = 1 << 24
_VALUES_AT_ONCE = 1 << 16

#: The head of a .bin file: magic number, version, twelve settings, one more as a double, three
#: counts of the dictionary.
_HEADER = struct.Struct("<2i12id3i")
_MAGIC = 793712314
_MATRIX = struct.Struct("<2q")
_SUPERVISED = 3


class WordVectors:
    """Encodes a value as the unit mean of its words' unit vectors."""

    def __init__(
        self, name: str, digest: str, dimension: int, lookup: Lookup, *,
        floor: float = _FLOOR, tau: float = _TAU,
    ) -> None:  # fmt: skip
        self.name, self.digest, self.dimension = name, digest, dimension
        self.floor, self.tau = floor, tau
        self._lookup = lookup

    def encode(self, values: Sequence[str | None] | pa.Array) -> Float:
        """Encode values, one unit row each; a value without any known word gets zeros."""
        array = pc.utf8_lower(text_array(values))
        out = np.zeros((len(array), self.dimension), np.float32)
        for start in range(0, len(array), _VALUES_AT_ONCE):
            part = array.slice(start, _VALUES_AT_ONCE)
            whole = part.combine_chunks() if isinstance(part, pa.ChunkedArray) else part
            starts, numbers, words = split_words(whole)
            vectors = self._lookup([plain_word(word) for word in words])
            normalise(vectors)
            owner = np.repeat(np.arange(start, start + len(whole)), np.diff(starts))
            np.add.at(out, owner, vectors[numbers])
        normalise(out)
        return out


def load_vectors(path: str | Path) -> WordVectors:
    """Open a .vec file directly, or a .bin model with the fastText package."""
    path = Path(path)
    if not path.is_file():
        raise DeepJoinError(f"No file {path}. Give the path of a fastText .vec or .bin file.")
    return _load_binary(path) if path.suffix == ".bin" else _load_text(path)


def _load_text(path: Path) -> WordVectors:
    count, dimension, width = _text_sizes(path)
    names = ["word", *(f"d{at}" for at in range(width - 1))]
    types = {name: pa.float32() for name in names[1 : dimension + 1]}
    words: list[str] = []
    matrix = np.zeros((count, dimension), np.float32)
    try:
        batches = pacsv.open_csv(
            path,
            pacsv.ReadOptions(column_names=names, skip_rows=1, block_size=_BLOCK),
            pacsv.ParseOptions(delimiter=" ", quote_char=False, ignore_empty_lines=True),
            pacsv.ConvertOptions(column_types={"word": pa.string()} | types, null_values=[]),
        )
        for batch in batches:
            columns = [np.asarray(batch.column(at)) for at in range(1, dimension + 1)]
            rows = min(batch.num_rows, count - len(words))
            matrix[len(words) : len(words) + rows] = np.stack(columns, axis=1)[:rows]
            words += batch.column(0).to_pylist()[:rows]
    except pa.ArrowInvalid as error:
        why = " ".join(str(error).split()).rstrip(".")
        raise DeepJoinError(f"{path} is damaged: {why}. Download the file again.") from None
    if len(words) < count:
        raise DeepJoinError(
            f"{path} ends after {len(words)} words; its first line says {count}. "
            "Download the file again."
        )
    digest = xxhash.xxh3_64("\n".join(words).encode())
    digest.update(matrix.tobytes())
    known = pa.array([word.lower() for word in words], pa.string())

    def lookup(wanted: Sequence[str]) -> Float:
        places = pc.index_in(pa.array(wanted, pa.string()), known)
        found = np.asarray(pc.fill_null(places, -1)).astype(np.int64)
        return np.where(found[:, None] >= 0, matrix[found], np.float32(0))

    return WordVectors(path.name, digest.hexdigest(), dimension, lookup)


def _text_sizes(path: Path) -> tuple[int, int, int]:
    """Read the number of words, their dimension, and the fields of a line; check all three."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        parts = lines.readline().split()
        # fastText ends its lines with a space, which makes one more field; other writers do not.
        width = len(lines.readline().rstrip("\n").split(" "))
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        raise DeepJoinError(
            f"{path} does not start with a line 'words dimension', as fastText .vec files do. "
            "Give a .vec text file or a .bin model."
        )
    count, dimension = int(parts[0]), int(parts[1])
    # A number takes at least two characters: check before allocating what a wrong header claims.
    if not dimension or 2 * count * dimension > path.stat().st_size:
        raise DeepJoinError(
            f"{path} is too short for the {count} words of {dimension} numbers that its first line "
            "says. Download the file again."
        )
    if width <= dimension:
        raise DeepJoinError(
            f"{path} has {width - 1} numbers in its second line; its first line says {dimension}. "
            "Download the file again."
        )
    return count, dimension, width


def _load_binary(path: Path) -> WordVectors:
    try:
        import fasttext
    except ImportError:
        raise MissingExtra(
            f"Reading {path} needs fastText: pip install 'deepjoin[fasttext]', or give a .vec file"
        ) from None
    check_binary(path)
    try:
        model = fasttext.load_model(str(path))
    except (ValueError, MemoryError) as error:
        raise _damaged(path, str(error)) from None
    digest = xxhash.xxh3_64()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    dimension = model.get_dimension()

    def lookup(wanted: Sequence[str]) -> Float:
        rows = [model.get_word_vector(word) if word else np.zeros(dimension) for word in wanted]
        return np.array(rows, np.float32).reshape(len(rows), dimension)

    return WordVectors(path.name, digest.hexdigest(), dimension, lookup)


def check_binary(path: Path) -> None:
    """Refuse a .bin file whose two matrices are not where its header puts them.

    Supervised models are not checked: they may be compressed, and then the header does not give
    the sizes of their matrices.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size:
            raise _damaged(path, "it ends within its header")
        numbers = _HEADER.unpack(head)
        if numbers[0] != _MAGIC:
            raise _damaged(path, "it does not start with fastText's magic number")
        dimension, model, buckets, words = (numbers[at] for at in (2, 9, 10, 16))
        if min(dimension, model, buckets, words) < 0 or not dimension:
            raise _damaged(path, "the sizes in its header are invalid")
        if model == _SUPERVISED:
            return
        end = size
        for rows in (words, words + buckets):
            start = end - 4 * rows * dimension - _MATRIX.size
            if start < _HEADER.size:
                raise _damaged(path, f"{size} bytes are too few for its {words} words")
            file.seek(start)
            if _MATRIX.unpack(file.read(_MATRIX.size)) != (rows, dimension):
                raise _damaged(path, f"its matrices do not end at its {size} bytes")
            end = start - 1  # one byte before each matrix says whether it is compressed


def _damaged(path: Path, why: str) -> DeepJoinError:
    return DeepJoinError(
        f"{path} is not a fastText model, or is damaged: {why}. Download or train it again."
    )
