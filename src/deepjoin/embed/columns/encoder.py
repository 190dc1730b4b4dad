"""The contract of column encoders, and what the encoders of column texts share."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import astuple, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from deepjoin.arrays import Float
from deepjoin.embed.columns.text import Frequency, TextChange, TextSettings, column_texts
from deepjoin.errors import DeepJoinError
from deepjoin.model import Column
from deepjoin.progress import worker_threads

#: Samplings that depend on how often a cell is repeated.
_COUNTED = ("tf-idf", "bm25")


class ColumnEncoder(ABC):
    """Encodes a column as one vector, not normalised; close vectors mean joinable columns.

    ``digest`` covers everything a vector depends on besides the column: two encoders with equal
    digests give the same vectors. A vector does not depend on the columns of the same batch.
    """

    name: str
    digest: str
    dimension: int
    #: Columns encoded at a time; more on a GPU.
    block: int = 1024
    #: Whether vectors depend on how often a cell is repeated.
    counted: bool = False
    #: The encoder kind of a method of the lab; empty for the product's own models.
    kind: str = ""

    @abstractmethod
    def encode(self, columns: Sequence[Column], frequency: Frequency) -> Float:
        """Return the vector of each column of a lake; zeros for a column it knows nothing of."""

    def encode_blocks(
        self, blocks: Iterable[Sequence[Column]], frequency: Frequency
    ) -> Iterator[Float]:
        """Return the vectors of each block of columns, in order."""
        return (self.encode(columns, frequency) for columns in blocks)

    def encode_query(self, column: Column, frequency: Frequency) -> Float:
        """Return the vector to search with."""
        vector: Float = self.encode([column], frequency)[0]
        return vector


class TextEncoder(ColumnEncoder):
    """A language model behind the paper's column-to-text transformation.

    ``digest`` covers weights, tokenizer and text settings; ``model`` is the digest of the first
    two.
    """

    def __init__(self, name: str, model: str, dimension: int, settings: TextSettings) -> None:
        self.name = name
        self.dimension = dimension
        self.settings = settings
        self.counted = settings.sampling in _COUNTED
        self.digest = blake2b(repr((model, astuple(settings))).encode(), digest_size=16).hexdigest()

    @abstractmethod
    def count(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of each text, special tokens left out."""

    @abstractmethod
    def encode_texts(self, texts: Sequence[str]) -> Float:
        """Return one vector a text, not normalised."""

    def texts(self, columns: Sequence[Column], frequency: Frequency) -> list[str]:
        """Write columns as the texts the model reads."""
        return column_texts(columns, self.settings, frequency, self.count)

    def encode_query(self, column: Column, frequency: Frequency) -> Float:
        """Return the vector to search with, not normalised."""
        (text,) = self.texts([column], frequency)
        vector: Float = self.encode_texts([self.settings.prompt + text])[0]
        return vector

    def encode(self, columns: Sequence[Column], frequency: Frequency) -> Float:
        """Return the vector of each column of a lake, not normalised."""
        if len(columns) <= self.block:
            return self.encode_texts(self.texts(columns, frequency))
        starts = range(0, len(columns), self.block)
        blocks = (columns[start : start + self.block] for start in starts)
        return np.concatenate(list(self.encode_blocks(blocks, frequency)))

    def encode_blocks(
        self, blocks: Iterable[Sequence[Column]], frequency: Frequency
    ) -> Iterator[Float]:
        """Return the vectors of each block, in order; one is read while another is encoded."""
        with worker_threads(1) as model:
            # The model runs in the other thread: a frequency may be bound to this one.
            under_way: deque[Future[Float]] = deque()
            for columns in blocks:
                under_way.append(model.submit(self.encode_texts, self.texts(columns, frequency)))
                if len(under_way) > 1:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()


def text_settings(
    path: Path, given: TextChange | None = None, profile: str | None = None
) -> TextSettings:
    """Return how columns become texts: as given, else as stored in ``path``, else the default.

    A mapping changes single settings. The ``profile`` is the lake's: how its cells are compared
    is not for the model to say.
    """
    settings = given if isinstance(given, TextSettings) else TextSettings()
    if not isinstance(given, TextSettings) and path.is_file():
        try:
            settings = TextSettings(**json.loads(path.read_text("utf-8"))["text"])
        except (OSError, ValueError, KeyError, TypeError, DeepJoinError) as error:
            raise DeepJoinError(
                f"{path} does not say how columns become texts: {error}. "
                "Copy the model folder again, or give the settings."
            ) from None
    changes: dict[str, Any] = {**given} if isinstance(given, Mapping) else {}
    if profile:
        changes["profile"] = profile
    return replace(settings, **changes)


def checked(vectors: Float, name: str) -> Float:
    """Refuse vectors that are not finite: they cannot be compared."""
    if not np.isfinite(vectors).all():
        raise DeepJoinError(
            f"The encoder '{name}' gave a vector that is not a number. "
            "Its weights are damaged: copy or train the model again."
        )
    return vectors


def batches(lengths: Sequence[int], tokens: int) -> list[list[int]]:
    """Group texts of one length into batches of about ``tokens`` tokens, the longest first.

    Texts of one length need no padding, so a vector does not depend on its batch.

    >>> batches([3, 5, 3, 5, 5], tokens=10)
    [[1, 3], [4], [0, 2]]
    """
    order = np.argsort(-np.asarray(lengths, np.int64), kind="stable")
    groups: list[list[int]] = []
    for place in order.tolist():
        length = lengths[place]
        last = groups[-1] if groups else []
        if last and lengths[last[0]] == length and (len(last) + 1) * length <= tokens:
            last.append(place)
        else:
            groups.append([place])
    return groups
