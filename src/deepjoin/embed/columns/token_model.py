"""A language model that reads token numbers on a device: many texts at a time, or one quickly.

Only texts of the same length share a batch, so nothing is padded or masked, and a vector does not
depend on the other texts of its batch. Needs torch, the extra ``train``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from deepjoin.arrays import Float, Int, Integers
from deepjoin.embed.columns.encoder import checked
from deepjoin.embed.recorder import Recorder
from deepjoin.errors import DeepJoinError

#: Parts of torch have no type annotations.
_cuda: Any = torch.cuda
#: Tokens read at a time: enough to keep a large GPU busy while the CPU prepares the next calls.
TOKENS = 1 << 16
#: Texts transferred to and from the device at a time.
_TEXTS = 1 << 16
#: Texts of up to this many tokens are encoded by a recorded graph, one for each length.
RECORDED = 128
#: Allowed implementations of attention; cuDNN is left out, as it plans again for each batch size.
_ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class TokenModel:
    """A sentence-transformers model as a function of token numbers; threads may share it."""

    def __init__(self, model: Any, name: str, limit: int, half: bool) -> None:
        transformer = model[0].auto_model
        if half:
            transformer = deepcopy(transformer).half()
        self.name, self.limit, self.device = name, limit, torch.device(model.device)
        self.dimension = int(model.get_embedding_dimension() or 0)
        self._transformer, self._rest = transformer.eval(), list(model)[1:]
        self._words = int(transformer.get_input_embeddings().num_embeddings)
        #: Runs single texts; on a GPU from a recording, if the model can be recorded.
        self.recorder = Recorder(self.device)
        with torch.inference_mode():
            self._mask = _never_wait(transformer, limit)

    def vectors(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return one vector a row, in single precision: all the work on the device."""
        with sdpa_kernel(_ATTENTION):
            states = self._transformer(tokens, self._mask).last_hidden_state.float()
        features = {"input_ids": tokens, "token_embeddings": states}
        features["attention_mask"] = torch.ones_like(tokens)
        for module in self._rest:
            features = module(features)
        vectors: torch.Tensor = features["sentence_embedding"]
        return vectors

    def encode_one(self, numbers: Sequence[int] | Integers) -> Float:
        """Return the vector of one text with the least delay."""
        given = np.array(numbers, np.int64)[None]
        if not given.size:
            return np.zeros(self.dimension, np.float32)
        self.check(given, np.array([given.size]))
        key = given.size if given.size <= RECORDED else None
        return checked(self.recorder.run(key, self._first, given), self.name)

    def encode(self, tokens: Integers, lengths: Int, at_a_time: int = TOKENS) -> Float:
        """Return one vector per row of padded token numbers; zeros for a row without tokens."""
        vectors = np.zeros((len(tokens), self.dimension), np.float32)
        order = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
        is_cuda = self.device.type == "cuda"
        current = torch.cuda.device(self.device) if is_cuda else nullcontext()
        # One block is encoded while the one before it is fetched.
        under_way: list[_Sent] = []
        with torch.inference_mode(), current:
            for start in range(0, len(order), _TEXTS):
                places = order[start : start + _TEXTS]
                under_way.append(self._start(tokens, lengths, places, at_a_time))
                if len(under_way) > 1:
                    under_way.pop(0).fetch(vectors, self.name)
            for last in under_way:
                last.fetch(vectors, self.name)
        return vectors

    def _first(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.vectors(tokens)[0]

    def _start(self, tokens: Integers, lengths: Int, places: Int, at_a_time: int) -> _Sent:
        """Start encoding some texts, longest first, without waiting for the device."""
        sizes = lengths[places]
        rows = tokens[places, : sizes[0]].astype(np.int32)
        self.check(rows, sizes)
        given = torch.from_numpy(rows)
        if self.device.type == "cuda":
            given = given.pin_memory().to(self.device, non_blocking=True)
        found = [
            self.vectors(given[start:stop, :length].long())
            for start, stop, length in runs(sizes, at_a_time)
        ]
        return _Sent.back(places, torch.cat(found))

    def check(self, rows: Integers, sizes: Int) -> None:
        """Refuse numbers outside the tables: on a GPU they break CUDA for the whole process."""
        if sizes.max() > self.limit:
            raise DeepJoinError(
                f"Got a text of {sizes.max()} tokens; the encoder '{self.name}' reads "
                f"{self.limit} at most. Cut it, or set tokens higher."
            )
        is_token = np.arange(rows.shape[1]) < sizes[:, None]
        outside = is_token & ((rows < 0) | (rows >= self._words))
        if outside.any():
            raise DeepJoinError(
                f"Got the token number {rows[outside][0]}; the encoder '{self.name}' has "
                f"numbers 0 to {self._words - 1}. Use the tokenizer of the model."
            )


@dataclass(frozen=True)
class _Sent:
    """Vectors being copied back from a device."""

    places: Int
    vectors: torch.Tensor
    arrived: Any

    @classmethod
    def back(cls, places: Int, vectors: torch.Tensor) -> _Sent:
        """Start copying vectors to the host, without waiting."""
        if vectors.device.type != "cuda":
            return cls(places, vectors, None)
        here = torch.empty(vectors.shape, dtype=vectors.dtype, pin_memory=True)
        here.copy_(vectors, non_blocking=True)
        arrived = _cuda.Event()
        arrived.record()
        return cls(places, here, arrived)

    def fetch(self, target: Float, name: str) -> None:
        """Wait for the vectors and store them in their rows of ``target``."""
        if self.arrived is not None:
            self.arrived.synchronize()
        target[self.places] = checked(self.vectors.cpu().numpy(), name)


def runs(sizes: Int, tokens: int) -> Iterator[tuple[int, int, int]]:
    """Split texts, sorted by length, into runs of one length: start, end and length.

    >>> list(runs(np.array([5, 5, 5, 3]), tokens=10))
    [(0, 2, 5), (2, 3, 5), (3, 4, 3)]
    """
    starts = np.flatnonzero(np.diff(sizes, prepend=-1)).tolist()
    for start, stop in pairwise([*starts, len(sizes)]):
        length = int(sizes[start])
        step = max(1, tokens // length)
        for first in range(start, stop, step):
            yield first, min(first + step, stop), length


def padded(
    tokens: Sequence[Sequence[int]] | Sequence[Integers] | Integers, lengths: Int | None = None
) -> tuple[Integers, Int]:
    """Put token numbers into one array, with their lengths; an array is returned as it is.

    >>> padded([[7, 8], [], [9]])[0].tolist()
    [[7, 8], [0, 0], [9, 0]]
    """
    if isinstance(tokens, np.ndarray):
        whole = np.full(len(tokens), tokens.shape[1])
        return tokens, whole if lengths is None else np.asarray(lengths, np.int64)
    sizes = np.array([len(one) for one in tokens], np.int64)
    rows = np.zeros((len(sizes), int(sizes.max(initial=0))), np.int64)
    if rows.size:
        rows[np.arange(rows.shape[1]) < sizes[:, None]] = np.concatenate(tokens)
    return rows, sizes


def _never_wait(transformer: Any, limit: int) -> torch.Tensor | None:
    """Remove what makes a model wait for the device at every call; return the mask to give it.

    MPNet computes the position bias on the CPU at every call, and in some versions a mask. So the
    bias of the longest text is computed once and cut for shorter ones, and one mask of zeros
    serves all texts. Some models also search for padding, which never occurs here.
    """
    transformer.warn_if_padding_and_no_attention_mask = lambda *_, **__: None
    encoder: Any = getattr(transformer, "encoder", None)
    if not hasattr(encoder, "compute_position_bias"):
        return None
    states = torch.zeros((1, limit, 1), device=transformer.device)
    whole = encoder.compute_position_bias(states).to(transformer.dtype)
    encoder.compute_position_bias = lambda x, *_, **__: whole[:, :, : x.shape[1], : x.shape[1]]
    return torch.zeros((1, 1, 1, 1), dtype=transformer.dtype, device=transformer.device)
