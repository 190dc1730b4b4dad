"""Any sentence-transformers or Hugging Face model as a column encoder, on CPU or GPU.

A folder saved by sentence-transformers is used as it is, without its normalisation; any other
model is read with its tokens averaged. On a GPU, half precision is used if it changes vectors by
no more than rounding, because the digest is the same on every device. Needs the extra ``train``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from xxhash import xxh3_128

from deepjoin.arrays import Float, Int, Integers
from deepjoin.embed.columns.encoder import TextEncoder, checked, text_settings
from deepjoin.embed.columns.text import TextChange
from deepjoin.embed.columns.tokens import Tokens
from deepjoin.errors import DeepJoinError, MissingExtra, reason
from deepjoin.lazy import cached_property

if TYPE_CHECKING:
    from deepjoin.embed.columns.token_model import TokenModel

#: Where `deepjoin train` stores the text settings.
SETTINGS_FILE = "deepjoin.json"
#: Keys of a configuration that vectors do not depend on.
_INCIDENTAL = ("_name_or_path", "transformers_version", "dtype", "torch_dtype")
#: RoBERTa and its relatives number positions from the padding token's number plus one.
_OFFSET_KINDS = ("roberta", "xlm-roberta", "camembert", "mpnet", "longformer")
#: Files that hold a tokenizer, in the formats of the libraries.
_TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")
#: Least share of a model's words that its tokenizer has: models are padded, but less than that.
_LEAST_WORDS = 0.5
_BATCH = 64
#: The first sentence-transformers that refuses to run the code of a local model folder.
_LEAST_VERSION = 6
#: Columns encoded at a time on a GPU; many, because only texts of the same length share a batch.
_GPU_BLOCK = 1 << 14
#: Texts on which half precision must agree with full precision, and the least cosine.
_PROBES = (
    "Company: Apple, GE, IBM.",
    "Cities of France. name contains 3 values: Paris, Nice, Lyon.",
)
_AGREEMENT = 0.999


class TorchEncoder(TextEncoder):
    """Encodes with a model given by folder or name."""

    def __init__(
        self,
        spec: str | Path,
        settings: TextChange | None = None,
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

    def encode_texts(self, texts: Sequence[str]) -> Float:
        """Return one vector per text, not normalised; zeros for a text without tokens."""
        if self._on_gpu and self.token_model is not None:
            return self.encode_tokens(self.numbers(texts))
        return self._encode_in_full(texts)

    def encode_tokens(
        self,
        tokens: Sequence[Sequence[int]] | Sequence[Integers] | Integers,
        lengths: Int | None = None,
    ) -> Float:
        """Return one vector for each row of token numbers, as returned by `numbers`.

        Rows are a list, or one array with any padding together with the lengths of its rows.
        """
        from deepjoin.embed.columns.token_model import padded

        if self.token_model is None:
            raise DeepJoinError(
                f"The encoder '{self.name}' needs more than token numbers. Use encode_texts."
            )
        rows, sizes = padded(tokens, lengths)
        if len(rows) == 1:
            return self.token_model.encode_one(rows[0, : sizes[0]])[None]
        return self.token_model.encode(rows, sizes)

    @cached_property
    def token_model(self) -> TokenModel | None:
        """The model without its tokenizer; None if its vectors would differ."""
        from deepjoin.embed.columns.token_model import TokenModel, padded

        wanted = self._encode_in_full(_PROBES)
        model = TokenModel(self._model, self.name, self._tokens.limit, half=self._on_gpu)
        numbers = self.numbers(_PROBES)
        for found in (model.encode(*padded(numbers)), [model.encode_one(one) for one in numbers]):
            vectors = np.asarray(found)
            lengths = np.linalg.norm(wanted, axis=1) * np.linalg.norm(vectors, axis=1)
            cosines = np.einsum("ij,ij->i", wanted, vectors) / np.maximum(lengths, 1e-30)
            if cosines.min() < _AGREEMENT:
                return None
        return model

    @property
    def _on_gpu(self) -> bool:
        return bool(self._model.device.type == "cuda")

    def _encode_in_full(self, texts: Sequence[str]) -> Float:
        """Encode in full precision, with sentence-transformers."""
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


def load_model(spec: str, device: str | None) -> Any:
    """Load a sentence-transformers model by folder or name, without its normalisation."""
    try:
        import sentence_transformers
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise MissingExtra(
            f"The encoder '{spec}' needs torch: pip install 'deepjoin[train]', "
            "or use the encoder 'default'."
        ) from None
    # Below 6 it imports Python files of a local folder, whatever trust_remote_code is.
    if int(sentence_transformers.__version__.partition(".")[0]) < _LEAST_VERSION:
        raise MissingExtra(
            f"The encoder '{spec}' needs sentence-transformers {_LEAST_VERSION} or newer, which "
            f"runs no code of a model folder; {sentence_transformers.__version__} is installed: "
            "pip install -U 'deepjoin[train]'"
        )
    try:
        with quiet():
            loaded = SentenceTransformer(spec, device=device, trust_remote_code=False)
        modules = [module for module in loaded if type(module).__name__ != "Normalize"]
        return SentenceTransformer(modules=modules, device=device).eval()
    # Each library raises its own type of error for missing, damaged or unknown models.
    except Exception as error:
        raise DeepJoinError(
            f"The encoder '{spec}' cannot be loaded: {reason(error)} Give a folder saved by "
            "sentence-transformers or transformers, the name of a public model, or 'default'."
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Hide the progress bars of the libraries."""
    from transformers import utils

    bars: Any = utils.logging
    was_enabled = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            bars.enable_progress_bar()


def _tokenizer_text(model: Any, spec: str) -> str:
    backend = getattr(model.tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise DeepJoinError(
            f"The encoder '{spec}' has no tokenizer.json, or an unreadable one. Save the model "
            "with a fast tokenizer, or use the encoder 'default'."
        )
    words, expected = backend.get_vocab_size(), getattr(_config(model), "vocab_size", 0)
    if words < _LEAST_WORDS * expected:
        raise DeepJoinError(
            f"The encoder '{spec}' has a tokenizer of {words} words, but its model has {expected}: "
            "the tokenizer is of another model. Save the model again together with its tokenizer."
        )
    return str(backend.to_str())


def _config(model: Any) -> Any:
    return model[0].auto_model.config


def _check_tokenizer_files(folder: Path) -> None:
    """Refuse a model saved without tokenizer: the library would use one without any words."""
    if not (folder / "config.json").is_file():
        return
    if not any(found for kind in _TOKENIZER_FILES for found in folder.rglob(kind)):
        raise DeepJoinError(
            f"The encoder '{folder}' has no tokenizer file ({', '.join(_TOKENIZER_FILES)}). "
            "Save the model again together with its tokenizer."
        )


def positions(model: Any) -> int:
    """Return the largest number of tokens that a model reads."""
    config = _config(model)
    positions = int(getattr(config, "max_position_embeddings", 1 << 20))
    return positions - 2 if config.model_type in _OFFSET_KINDS else positions


def model_description(model: Any, tokenizer: str) -> str:
    """Return as JSON everything that vectors depend on, except the weights."""
    config = _config(model).to_dict()
    relevant = {key: value for key, value in config.items() if key not in _INCIDENTAL}
    modules = [
        (kind, module.get_config_dict() if kind == "Pooling" else None)
        for module in model
        for kind in (type(module).__name__,)
    ]
    return json.dumps([relevant, modules, tokenizer], sort_keys=True, default=str)


def _digest(model: Any, tokenizer: str) -> str:
    """Hash weights, configuration, pooling and tokenizer."""
    import torch

    content = xxh3_128(model_description(model, tokenizer).encode())
    for name, tensor in sorted(model.state_dict().items()):
        content.update(name.encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        content.update(flat.view(torch.uint8).numpy().data)
    return content.hexdigest()
