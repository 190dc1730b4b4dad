"""Any sentence-transformers or Hugging Face model as a column encoder, on CPU or GPU.

A folder saved by sentence-transformers is used as it is, its normalisation left out; any other
model is read with its tokens averaged. On a GPU half precision is used, if vectors stay what they
are but for rounding: they have one digest everywhere. Needs the extra ``train``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_128

from deepjoin.embed.columns.encoder import FloatMatrix, TextEncoder, checked, text_settings
from deepjoin.embed.columns.text import TextSettings
from deepjoin.embed.columns.tokens import Tokens
from deepjoin.errors import DeepJoinError, MissingExtra, reason

if TYPE_CHECKING:
    from deepjoin.embed.columns.token_model import TokenModel, TokenRows

#: Where `deepjoin train` writes how columns became texts.
SETTINGS_FILE = "deepjoin.json"
#: What a configuration says beside what the vectors depend on.
_INCIDENTAL = ("_name_or_path", "transformers_version", "dtype", "torch_dtype")
#: RoBERTa and its kin begin to count positions after the number of the padding token.
_OFFSET_KINDS = ("roberta", "xlm-roberta", "camembert", "mpnet", "longformer")
#: What tokenizers are kept in, by the libraries that read them.
_TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")
#: Of a model's words, the share its tokenizer has at least: models are padded, but not so much.
_LEAST_WORDS = 0.5
_BATCH = 64
#: Columns a GPU is given at a time: texts of each length are read by themselves.
_GPU_BLOCK = 1 << 14
#: Texts on which half precision must agree with full precision, and how well.
_PROBES = (
    "Company: Apple, GE, IBM.",
    "Cities of France. name contains 3 values: Paris, Nice, Lyon.",
)
_AGREEMENT = 0.999


class TorchEncoder(TextEncoder):
    """A model by folder or name, ready to encode."""

    def __init__(
        self,
        spec: str | Path,
        settings: TextSettings | None = None,
        profile: str | None = None,
        device: str | None = None,
    ) -> None:
        _check_tokenizer_files(Path(spec))
        model = self._loaded(str(spec), device)
        settings = text_settings(Path(spec) / SETTINGS_FILE, settings, profile)
        text = _tokenizer_text(model, str(spec))
        self._tokens = Tokens.from_text(text, settings.tokens, settings.prompt)
        self._tokens.check(positions(model), str(spec))
        model.max_seq_length = self._tokens.limit
        self._model = model
        if self._on_gpu:
            self.block = _GPU_BLOCK
        dimension = int(model.get_embedding_dimension() or 0)
        super().__init__(Path(spec).name, _digest(model, text), dimension, settings)

    @staticmethod
    def _loaded(spec: str, device: str | None) -> Any:
        return load_model(spec, device)

    def count(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of each text, special tokens left out."""
        return self._tokens.count(texts)

    def numbers(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token numbers of each text, cut to the limit, special tokens included."""
        return self._tokens.numbers(texts)

    def encode_texts(self, texts: Sequence[str]) -> FloatMatrix:
        """Return one vector a text, not normalised; a text without a token is 0."""
        if self._on_gpu and self.token_model is not None:
            return self.encode_tokens(self.numbers(texts))
        return self._encode_in_full(texts)

    def encode_tokens(
        self,
        tokens: Sequence[Sequence[int]] | Sequence[TokenRows] | TokenRows,
        lengths: npt.NDArray[np.int64] | None = None,
    ) -> FloatMatrix:
        """Return one vector for each row of token numbers, as `numbers` gives them.

        Rows come as a list, or as one array padded with anything, together with their lengths.
        """
        from deepjoin.embed.columns.token_model import padded

        if self.token_model is None:
            raise DeepJoinError(
                f"The encoder '{self.name}' reads more than token numbers. Give it texts."
            )
        rows, sizes = padded(tokens, lengths)
        if len(rows) == 1:
            return self.token_model.encode_one(rows[0, : sizes[0]])[None]
        return self.token_model.encode(rows, sizes)

    @cached_property
    def token_model(self) -> TokenModel | None:
        """The model without its tokenizer; None for one whose vectors would be others."""
        from deepjoin.embed.columns.token_model import TokenModel, padded

        wanted = self._encode_in_full(_PROBES)
        model = TokenModel(self._model, self.name, self._tokens.limit, half=self._on_gpu)
        numbers = self.numbers(_PROBES)
        for found in (model.encode(*padded(numbers)), [model.encode_one(one) for one in numbers]):
            if _cosines(wanted, np.asarray(found)).min() < _AGREEMENT:
                return None
        return model

    @property
    def _on_gpu(self) -> bool:
        return bool(self._model.device.type == "cuda")

    def _encode_in_full(self, texts: Sequence[str]) -> FloatMatrix:
        """Encode in full precision, by the library the model comes from."""
        clean = self._tokens.readable(texts)
        rows = [row for row, one in enumerate(self._tokens.numbers(clean)) if one]
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        if rows:
            vectors[rows] = self._model.encode(
                [clean[row] for row in rows],
                batch_size=_BATCH,
                show_progress_bar=False,
                convert_to_numpy=True,
            )
        return checked(vectors, self.name)


def _cosines(some: FloatMatrix, others: FloatMatrix) -> FloatMatrix:
    lengths = np.linalg.norm(some, axis=1) * np.linalg.norm(others, axis=1)
    cosines: FloatMatrix = np.einsum("ij,ij->i", some, others) / np.maximum(lengths, 1e-30)
    return cosines


def load_model(spec: str, device: str | None) -> Any:
    """Load a sentence-transformers model by folder or name, its normalisation left out."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise MissingExtra(
            f"The encoder '{spec}' needs torch: pip install 'deepjoin[train]', "
            "or use the encoder 'default'."
        ) from None
    try:
        with quiet():
            loaded = SentenceTransformer(spec, device=device)
        modules = [module for module in loaded if type(module).__name__ != "Normalize"]
        return SentenceTransformer(modules=modules, device=device).eval()
    # Whatever is missing, torn or unknown comes as another type from another library.
    except Exception as error:
        raise DeepJoinError(
            f"The encoder '{spec}' cannot be loaded: {reason(error)} Give a folder saved by "
            "sentence-transformers or transformers, the name of a public model, or 'default'."
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the libraries' progress bars off the terminal."""
    from transformers import utils

    bars: Any = utils.logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()


def _tokenizer_text(model: Any, spec: str) -> str:
    backend = getattr(model.tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise DeepJoinError(
            f"The encoder '{spec}' has no tokenizer.json, or none that can be read. Save the model "
            "with a fast tokenizer, or use the encoder 'default'."
        )
    words, expected = backend.get_vocab_size(), getattr(_config(model), "vocab_size", 0)
    if words < _LEAST_WORDS * expected:
        raise DeepJoinError(
            f"The encoder '{spec}' has a tokenizer of {words} words, its model one of {expected}: "
            "they are of different models. Save the model again together with its tokenizer."
        )
    return str(backend.to_str())


def _config(model: Any) -> Any:
    return model[0].auto_model.config


def _check_tokenizer_files(folder: Path) -> None:
    """Refuse a model saved alone: it would be read with a tokenizer that knows no word."""
    if not (folder / "config.json").is_file():
        return
    if not any(found for kind in _TOKENIZER_FILES for found in folder.rglob(kind)):
        raise DeepJoinError(
            f"The encoder '{folder}' has no tokenizer file ({', '.join(_TOKENIZER_FILES)}). "
            "Save the model again together with its tokenizer."
        )


def positions(model: Any) -> int:
    """Return how many tokens a model reads at most."""
    config = _config(model)
    positions = int(getattr(config, "max_position_embeddings", 1 << 20))
    return positions - 2 if config.model_type in _OFFSET_KINDS else positions


def said_of(model: Any, tokenizer: str) -> str:
    """Write down all that vectors depend on beside the weights."""
    config = _config(model).to_dict()
    said = {key: value for key, value in config.items() if key not in _INCIDENTAL}
    kinds = [(type(module).__name__, _said_by(module)) for module in model]
    return json.dumps([said, kinds, tokenizer], sort_keys=True, default=str)


def _digest(model: Any, tokenizer: str) -> str:
    """Hash weights, configuration, pooling and tokenizer."""
    import torch

    content = xxh3_128(said_of(model, tokenizer).encode())
    for name, tensor in sorted(model.state_dict().items()):
        content.update(name.encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        content.update(flat.view(torch.uint8).numpy().data)
    return content.hexdigest()


def _said_by(module: Any) -> Any:
    return module.get_config_dict() if type(module).__name__ == "Pooling" else None
