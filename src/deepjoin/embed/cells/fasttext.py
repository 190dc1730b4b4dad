"""Cells as means of fastText word vectors: the user's own .vec text file or .bin model."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import xxhash

from deepjoin.embed.cells.tokens import plain_word, split_words, text_array
from deepjoin.errors import DeepJoinError, MissingExtra

Floats = npt.NDArray[np.float32]
#: Gives the vectors of words, and zeros for words it does not know.
Lookup = Callable[[Sequence[str]], Floats]

#: Not calibrated: means of word vectors crowd together, so the bar is high.
_FLOOR, _TAU = 0.8, 0.9
_BLOCK = 1 << 24
_VALUES_AT_ONCE = 1 << 16


class WordVectors:
    """A value is the unit mean of its words' unit vectors."""

    def __init__(
        self, name: str, digest: str, dimension: int, lookup: Lookup, *,
        floor: float = _FLOOR, tau: float = _TAU,
    ) -> None:  # fmt: skip
        self.name, self.digest, self.dimension = name, digest, dimension
        self.floor, self.tau = floor, tau
        self._lookup = lookup

    def encode(self, values: Sequence[str | None] | pa.Array) -> Floats:
        """Encode values, one unit row each; a value without any known word gets zeros."""
        array = pc.utf8_lower(text_array(values))
        out = np.zeros((len(array), self.dimension), np.float32)
        for start in range(0, len(array), _VALUES_AT_ONCE):
            part = array.slice(start, _VALUES_AT_ONCE)
            whole = part.combine_chunks() if isinstance(part, pa.ChunkedArray) else part
            out[start : start + len(whole)] = self._encode_part(whole)
        return out

    def _encode_part(self, values: pa.Array) -> Floats:
        starts, numbers, words = split_words(values)
        vectors = _unit(self._lookup([plain_word(word) for word in words]))
        owner = np.repeat(np.arange(len(values)), np.diff(starts))
        sums = np.zeros((len(values), self.dimension), np.float32)
        np.add.at(sums, owner, vectors[numbers])
        return _unit(sums)


def load_vectors(path: str | Path) -> WordVectors:
    """Open a .vec file with our own reader, a .bin model through the fastText package."""
    path = Path(path)
    if not path.is_file():
        raise DeepJoinError(f"No file {path}. Give the path of a fastText .vec or .bin file.")
    return _load_binary(path) if path.suffix == ".bin" else _load_text(path)


def _load_text(path: Path) -> WordVectors:
    try:
        words, matrix = _read_text(path, *_header(path))
    except pa.ArrowInvalid as error:
        why = " ".join(str(error).split()).rstrip(".")
        raise DeepJoinError(f"{path} is damaged: {why}. Download the file again.") from None
    digest = xxhash.xxh3_64("\n".join(words).encode())
    digest.update(matrix.tobytes())
    known = pa.array([word.lower() for word in words], pa.string())
    return WordVectors(
        path.name,
        digest.hexdigest(),
        matrix.shape[1],
        lambda asked: _rows(asked, known, matrix),
    )


def _read_text(path: Path, count: int, dimension: int) -> tuple[list[str], Floats]:
    words: list[str] = []
    matrix = np.zeros((count, dimension), np.float32)
    for batch in _batches(path, dimension):
        columns = [np.asarray(batch.column(at)) for at in range(1, dimension + 1)]
        rows = min(batch.num_rows, count - len(words))
        matrix[len(words) : len(words) + rows] = np.stack(columns, axis=1)[:rows]
        words += batch.column(0).to_pylist()[:rows]
    if len(words) < count:
        raise DeepJoinError(
            f"{path} ends after {len(words)} words; its first line says {count}. "
            "Download the file again."
        )
    return words, matrix


def _header(path: Path) -> tuple[int, int]:
    with path.open(encoding="utf-8", errors="replace") as lines:
        parts = lines.readline().split()
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        raise DeepJoinError(
            f"{path} does not start with a line 'words dimension', as fastText .vec files do. "
            "Give a .vec text file or a .bin model."
        )
    count, dimension = int(parts[0]), int(parts[1])
    # Each number takes two letters: no memory is asked for what cannot be there.
    if not dimension or 2 * count * dimension > path.stat().st_size:
        raise DeepJoinError(
            f"{path} is too short for the {count} words of {dimension} numbers that its first line "
            "says. Download the file again."
        )
    return count, dimension


def _batches(path: Path, dimension: int) -> pacsv.CSVStreamingReader:
    # fastText ends its lines with a space, other writers do not: count the cells of one line.
    with path.open(encoding="utf-8", errors="replace") as lines:
        lines.readline()
        width = len(lines.readline().rstrip("\n").split(" "))
    if width <= dimension:
        raise DeepJoinError(
            f"{path} has {width - 1} numbers in its second line; its first line says {dimension}. "
            "Download the file again."
        )
    names = ["word", *(f"d{at}" for at in range(max(dimension, width - 1)))]
    types = {name: pa.float32() for name in names[1 : dimension + 1]}
    return pacsv.open_csv(
        path,
        pacsv.ReadOptions(column_names=names[:width], skip_rows=1, block_size=_BLOCK),
        pacsv.ParseOptions(delimiter=" ", quote_char=False, ignore_empty_lines=True),
        pacsv.ConvertOptions(column_types={"word": pa.string()} | types, null_values=[]),
    )


def _rows(asked: Sequence[str], known: pa.Array, matrix: Floats) -> Floats:
    places = pc.index_in(pa.array(asked, pa.string()), known)
    found = np.asarray(pc.fill_null(places, -1)).astype(np.int64)
    return np.where(found[:, None] >= 0, matrix[found], np.float32(0))


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
        raise torn(path, str(error)) from None
    digest = xxhash.xxh3_64()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    dimension = model.get_dimension()

    def lookup(asked: Sequence[str]) -> Floats:
        rows = [model.get_word_vector(word) if word else np.zeros(dimension) for word in asked]
        return np.array(rows, np.float32).reshape(len(rows), dimension)

    return WordVectors(path.name, digest.hexdigest(), dimension, lookup)


def _unit(vectors: Floats) -> Floats:
    """Divide rows by their lengths, in place; zeros stay zeros."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    np.divide(vectors, lengths, out=vectors, where=lengths > 0)
    return vectors


_MAGIC = 793712314
#: Magic number, version, twelve settings, one more as a double, three counts of the dictionary.
_HEADER = struct.Struct("<2i12id3i")
_MATRIX = struct.Struct("<2q")
_SUPERVISED = 3


class _Sizes(NamedTuple):
    """What the head of a file says of the matrices at its end."""

    dimension: int
    model: int
    buckets: int
    words: int


def torn(path: Path, why: str) -> DeepJoinError:
    """Build the error for a model that is not what was written."""
    return DeepJoinError(
        f"{path} is no fastText model, or a torn one: {why}. Download or train it again."
    )


def check_binary(path: Path) -> None:
    """Refuse a .bin file whose two matrices are not where its length says they are.

    A supervised model may be compressed, and then says nothing of where its matrices are.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size:
            raise torn(path, "it ends within its head")
        sizes = _sizes(path, head)
        if sizes.model == _SUPERVISED:
            return
        end = size
        for rows in (sizes.words, sizes.words + sizes.buckets):
            start = end - 4 * rows * sizes.dimension - _MATRIX.size
            if start < _HEADER.size:
                raise torn(path, f"{size} bytes are too few for its {sizes.words} words")
            file.seek(start)
            if _MATRIX.unpack(file.read(_MATRIX.size)) != (rows, sizes.dimension):
                raise torn(path, f"its matrices do not end at its {size} bytes")
            end = start - 1  # a byte says whether the matrix behind it is compressed


def _sizes(path: Path, head: bytes) -> _Sizes:
    numbers = _HEADER.unpack(head)
    if numbers[0] != _MAGIC:
        raise torn(path, "it begins otherwise")
    sizes = _Sizes(numbers[2], numbers[9], numbers[10], numbers[16])
    if min(sizes) < 0 or not sizes.dimension:
        raise torn(path, "its sizes are none")
    return sizes
