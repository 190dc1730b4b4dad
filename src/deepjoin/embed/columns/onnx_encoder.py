"""The encoder of the default install: a BERT in ONNX Runtime, without torch.

Matrices and states are multiplied as 8-bit integers, in two parts where one part would change
which columns are found (``docs/decisions``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from xxhash import xxh3_128

from deepjoin.arrays import Array, Float, Int
from deepjoin.embed.columns.encoder import TextEncoder, batches, checked, text_settings
from deepjoin.embed.columns.text import Frequency, TextChange
from deepjoin.embed.columns.tokens import Tokens
from deepjoin.embed.columns.weights import read_weights
from deepjoin.errors import DeepJoinError, reason
from deepjoin.lazy import cached_property
from deepjoin.model import Column

if TYPE_CHECKING:
    import onnxruntime

FORMAT = 2
#: Products whose states are rounded twice: the second time, what the first left over.
FINE_STATES = ("attention", "wide", "narrow")
#: Shape of the probe's matrix.
PROBE = (64, 16)
#: Files of the digest: everything a vector depends on, except the text.
_FILES = ("graph.onnx", "tokenizer.json", "weights.npz")
#: Tokens per run: more gain nothing, fewer leave threads idle.
_TOKENS = 512


class OnnxEncoder(TextEncoder):
    """Encodes with a model folder written by `deepjoin.lab.onnx_export`."""

    def __init__(
        self,
        folder: str | Path,
        settings: TextChange | None = None,
        profile: str | None = None,
        threads: int | None = None,
    ) -> None:
        folder = Path(folder)
        about = _about(folder)
        settings = text_settings(folder / "encoder.json", settings, profile)
        limits = settings.tokens, settings.prompt
        self._tokens = Tokens.from_file(folder / "tokenizer.json", *limits)
        self._tokens.check(about["positions"], about["name"])
        files = {name: _content(folder / name) for name in (*_FILES, "probe.onnx")}
        weights = read_weights(files["weights.npz"], folder / "weights.npz")
        self._threads = threads or os.cpu_count() or 1
        self._session = _session(folder, files, weights, self._threads)
        self._new_session = partial(_session, folder, files, weights, 1)
        content = xxh3_128()
        for name in _FILES:
            content.update(files[name])
        super().__init__(about["name"], content.hexdigest(), about["dimension"], settings)

    def count(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of each text, special tokens left out."""
        return self._tokens.count(texts)

    def encode_query(self, column: Column, frequency: Frequency) -> Float:
        """Return the query's vector, not normalised; a query is always encoded alone."""
        (text,) = self.texts([column], frequency)
        (numbers,) = self._tokens.numbers([self.settings.prompt + text])
        if not numbers:
            return np.zeros(self.dimension, np.float32)
        vector: Float = _run(self._session, np.array([numbers], np.int64))[0]
        return checked(vector, self.name)

    def encode_texts(self, texts: Sequence[str]) -> Float:
        """Return one vector per text, not normalised; zeros for a text without tokens."""
        numbers = self._tokens.numbers(texts)
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        groups = [some for some in batches(list(map(len, numbers)), _TOKENS) if numbers[some[0]]]
        tokens = [np.array([numbers[place] for place in some], np.int64) for some in groups]
        found: Iterable[Float]
        if self._threads == 1 or len(tokens) < 2 * self._threads:
            found = map(partial(_run_batch, self._session), tokens)
        else:
            # With many batches, one thread for each is faster than all threads on each in turn.
            with ThreadPoolExecutor(self._threads) as workers:
                found = list(workers.map(partial(_run_batch, self._bulk), tokens))
        for some, rows in zip(groups, found, strict=True):
            vectors[some] = rows
        return checked(vectors, self.name)

    @cached_property
    def _bulk(self) -> onnxruntime.InferenceSession:
        """A single-threaded session that several threads use at once."""
        return self._new_session()


def _run(model: onnxruntime.InferenceSession, tokens: Int) -> Float:
    vectors: Float = model.run(["vector"], {"tokens": tokens})[0]
    return vectors


def _run_batch(model: onnxruntime.InferenceSession, tokens: Int) -> Float:
    """Run a batch; a single text is doubled, because alone it would be rounded differently."""
    return _run(model, tokens) if len(tokens) > 1 else _run(model, np.repeat(tokens, 2, 0))[:1]


def _about(folder: Path) -> dict[str, Any]:
    try:
        about = json.loads((folder / "encoder.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DeepJoinError(
            f"{folder} is not an encoder folder: encoder.json cannot be read ({error}). "
            "Copy the folder again, or export the model again."
        ) from None
    if about.get("format") != FORMAT:
        raise DeepJoinError(
            f"{folder} has format {about.get('format')}; this version reads format {FORMAT}. "
            "Upgrade deepjoin, or export the model again."
        )
    return dict(about)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DeepJoinError(
            f"The encoder folder has no {path}: {error.strerror}. Copy the model folder again."
        ) from None


def _session(
    folder: Path, files: dict[str, bytes], weights: dict[str, Array], threads: int | None
) -> onnxruntime.InferenceSession:
    try:
        exact = _is_exact(files["probe.onnx"])
        return session(files["graph.onnx"], weights, threads, exact)
    # The errors of ONNX Runtime have no public base class.
    except Exception as error:
        raise DeepJoinError(
            f"The model in {folder} cannot be loaded: {reason(error)} "
            "Copy the folder again, or export the model again."
        ) from None


def _is_exact(probe: bytes) -> bool:
    """Test whether this processor's fast products are exact: without VNNI they overflow."""
    states = np.full((8, PROBE[0]), 255, np.uint8)
    sums = session(probe, {}, 1).run(["sums"], {"states": states})[0]
    return bool((sums == 255 * 127 * PROBE[0]).all())


def session(
    graph: bytes, weights: dict[str, Array], threads: int | None, exact: bool = True
) -> onnxruntime.InferenceSession:
    """Load a graph with the weights it declares.

    If fast products are not ``exact``, slower ones are used: vectors are the same everywhere.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    # Threads that spin while they wait make a query wait many times longer on a busy machine.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.x64quantprecision", "0" if exact else "1")
    # The slower products rewrite their matrices, so no two products may share one.
    passed = weights | {twin_name(name): array for name, array in weights.items() if has_twin(name)}
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in passed.values()]
    options.add_external_initializers(list(passed), values)
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def has_twin(array: str) -> bool:
    """Return whether an array is passed twice, under two names, for two products.

    >>> has_twin("0.wide.codes"), has_twin("0.attended.codes"), has_twin("words.codes")
    (True, False, False)
    """
    return any(array.endswith(f".{product}.codes") for product in FINE_STATES)


def twin_name(array: str) -> str:
    """Return the second name of an array."""
    return f"{array}.again"
