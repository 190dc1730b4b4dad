"""Write model folders to train on: from a shipped encoder, or from a model with fewer layers.

The inverse of `deepjoin.lab.onnx.export`. Needs the extra ``train``, but not torch.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from deepjoin.embed.columns.onnx_encoder import OnnxEncoder
from deepjoin.embed.columns.torch_encoder import SETTINGS_FILE
from deepjoin.embed.columns.weights import Array, Floats, read_weights
from deepjoin.errors import DeepJoinError, MissingExtra
from deepjoin.files import written_aside
from deepjoin.lab.onnx.export import NAMES, read_json, read_tensors, text_options

#: Names of the special tokens in tokenizers of BERT models.
_SPECIAL = {
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
    "cls_token": ("[CLS]", "<s>"),
    "sep_token": ("[SEP]", "</s>"),
    "mask_token": ("[MASK]", "<mask>"),
}
_MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]
#: Token types of a BERT; the export added the vector of the first one to the positions.
_KINDS = 2
_LICENCES = ("LICENSE*", "NOTICE*")
#: Files that stay valid when layers are removed; the model card and its results do not.
_KEPT = (
    "added_tokens.json", "config_sentence_transformers.json", "merges.txt", "modules.json",
    "sentence_*_config.json", "special_tokens_map.json", "tokenizer*", "vocab*", "*.model",
    SETTINGS_FILE, *_LICENCES,
)  # fmt: skip
_LAYER = re.compile(r"(?:^|\.)layer\.(\d+)\.")


def restore(folder: str | Path, target: str | Path, layers: int | None = None) -> Path:
    """Write an exported encoder as a sentence-transformers folder, and return that folder.

    Its weights are the rounded ones. ``layers`` is how many are kept, as in `kept_layers`.
    """
    folder, target = Path(folder), Path(target)
    missing = [name for name in ("onnx", "safetensors") if find_spec(name) is None]
    if missing:
        raise MissingExtra(
            f"Training from an exported encoder needs {' and '.join(missing)}: "
            "pip install 'deepjoin[train]'."
        )
    # Loading the encoder reports whatever is missing or damaged.
    settings = OnnxEncoder(folder, threads=1).settings
    weights = read_weights((folder / "weights.npz").read_bytes(), folder / "weights.npz")
    there = sum(name.endswith(".attention.bias") for name in weights)
    kept = kept_layers(there, there if layers is None else layers, folder)
    tokenizer = (folder / "tokenizer.json").read_text("utf-8")
    special = _special_tokens(json.loads(tokenizer), folder)
    try:
        config, tensors = _config(folder, weights, len(kept)), _tensors(weights, kept)
    # The files are intact, but this exporter did not write them.
    except KeyError as error:
        raise DeepJoinError(
            f"{folder} was not exported from a BERT by deepjoin: it has no {error}. "
            "Train from the folder it was exported from."
        ) from None
    config["pad_token_id"] = special["pad_token"][1]
    positions = config["max_position_embeddings"]
    # Keys that all versions of sentence-transformers read.
    pooling = {"word_embedding_dimension": config["hidden_size"], "pooling_mode_mean_tokens": True}
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": positions,
        **{role: name for role, (name, _) in special.items()},
    }
    with whole_folder(target) as aside:
        _write_model(aside, config, tensors)
        (aside / "1_Pooling").mkdir()
        for name, content in {
            "modules.json": _MODULES,
            "sentence_bert_config.json": {"max_seq_length": positions, "do_lower_case": False},
            "1_Pooling/config.json": pooling,
            "tokenizer_config.json": tokenizer_config,
            SETTINGS_FILE: {"text": text_options(settings)},
        }.items():
            _write_json(aside / name, content)
        (aside / "tokenizer.json").write_text(tokenizer, "utf-8")
        _copy(folder, aside, _LICENCES)
    return target


def shallower(source: str | Path, target: str | Path, layers: int) -> Path:
    """Write a copy of a sentence-transformers folder with fewer layers, and return it.

    For models whose layers all have the same form, such as BERT, DistilBERT, RoBERTa and MPNet.
    """
    source, target = Path(source), Path(target)
    config = read_json(source / "config.json")
    key = "n_layers" if "n_layers" in config else "num_hidden_layers"
    tensors = read_tensors(source)
    numbers = {int(found[1]) for found in map(_LAYER.search, tensors) if found}
    if not numbers or numbers != set(range(config.get(key, 0))):
        raise DeepJoinError(
            f"{source} is a model of type '{config.get('model_type')}' whose layers cannot be "
            "identified. Use a model of type bert or distilbert, or keep all layers."
        )
    kept = kept_layers(len(numbers), layers, source)
    places = {layer: place for place, layer in enumerate(kept)}
    renumbered: dict[str, Floats] = {}
    for name, array in tensors.items():
        found = _LAYER.search(name)
        if found is None:
            renumbered[name] = array
        elif int(found[1]) in places:
            start, end = found.span(1)
            renumbered[f"{name[:start]}{places[int(found[1])]}{name[end:]}"] = array
    with whole_folder(target) as aside:
        _write_model(aside, config | {key: len(kept)}, renumbered)
        _copy(source, aside, _KEPT)
        # Folders of the modules after the language model, such as pooling.
        modules = source / "modules.json"
        for module in read_json(modules) if modules.is_file() else ():
            if module["path"] and (source / module["path"]).is_dir():
                shutil.copytree(source / module["path"], aside / module["path"])
    return target


def kept_layers(there: int, layers: int, source: str | Path) -> list[int]:
    """Choose layers evenly, the last one always.

    >>> kept_layers(6, 3, "a model")
    [1, 3, 5]
    """
    if not 1 <= layers <= there:
        raise DeepJoinError(
            f"layers is {layers}, but {source} has {there} layers. Give 1 to {there}."
        )
    return [(place + 1) * there // layers - 1 for place in range(layers)]


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder to write to; move it to ``target`` if the block succeeds."""
    target = target.absolute()
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise DeepJoinError(f"{target} already exists. Remove it, or give another folder.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with written_aside(target) as aside:
            aside.mkdir()
            yield aside
    except OSError as error:
        raise DeepJoinError(f"{target} cannot be written: {error}. Give another folder.") from None


def _config(folder: Path, weights: Mapping[str, Array], layers: int) -> dict[str, Any]:
    import onnx

    nodes = onnx.load_from_string((folder / "graph.onnx").read_bytes()).graph.node
    # Only the graph holds the number of heads and the epsilon; they are the same in every layer.
    options = {
        node.op_type: {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
        for node in nodes
    }
    positions, size = weights["positions"].shape
    return {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_act": "gelu",
        "hidden_size": size,
        "intermediate_size": len(weights["0.wide.bias"]),
        "layer_norm_eps": options["LayerNormalization"]["epsilon"],
        "max_position_embeddings": positions,
        "num_attention_heads": options["MultiHeadAttention"]["num_heads"],
        "num_hidden_layers": layers,
        "type_vocab_size": _KINDS,
        "vocab_size": len(weights["words.codes"]),
    }


def _tensors(weights: Mapping[str, Array], kept: Sequence[int]) -> dict[str, Floats]:
    """Name the weights as BERT does; those that the vectors do not depend on are 0."""
    names = NAMES["bert"]
    size = weights["positions"].shape[1]
    words = weights["words.codes"] * weights["words.scales"].astype(np.float32)
    tensors = {
        "embeddings.word_embeddings.weight": words.reshape(-1, size),
        "embeddings.position_embeddings.weight": weights["positions"],
        "embeddings.token_type_embeddings.weight": np.zeros((_KINDS, size), np.float32),
        "embeddings.LayerNorm.weight": weights["norm.weight"],
        "embeddings.LayerNorm.bias": weights["norm.bias"],
        "pooler.dense.weight": np.zeros((size, size), np.float32),
        "pooler.dense.bias": np.zeros(size, np.float32),
    }
    for place, layer in enumerate(kept):
        there = f"{names['layer']}{place}."
        for product in ("attention", "attended", "wide", "narrow"):
            here = f"{layer}.{product}"
            matrix = _decoded(weights, f"{here}.codes")
            if f"{here}.rest" in weights:
                matrix = matrix + _decoded(weights, f"{here}.rest")
            for part, array in (("weight", matrix), ("bias", weights[f"{here}.bias"])):
                is_attention = product == "attention"
                targets = ("query", "key", "value") if is_attention else (product,)
                for one, share in zip(targets, np.split(array, len(targets)), strict=True):
                    tensors[f"{there}{names[one]}.{part}"] = share
        for norm in ("attended_norm", "narrow_norm"):
            for part in ("weight", "bias"):
                tensors[f"{there}{names[norm]}.{part}"] = weights[f"{layer}.{norm}.{part}"]
    return tensors


def _decoded(weights: Mapping[str, Array], codes: str) -> Floats:
    matrix: Floats = weights[codes].T * weights[f"{codes}.steps"][:, None]
    return matrix


def _special_tokens(tokenizer: dict[str, Any], folder: Path) -> dict[str, tuple[str, int]]:
    """Find the special tokens and their numbers; training pads its batches, so it needs [PAD]."""
    known = {one["content"]: one["id"] for one in tokenizer["added_tokens"]}
    special = {
        role: (name, known[name])
        for role, names in _SPECIAL.items()
        for name in names
        if name in known
    }
    if "pad_token" not in special:
        raise DeepJoinError(
            f"The tokenizer of {folder} has no token for padding ([PAD] or <pad>). "
            "Train from the folder it was exported from."
        )
    return special


def _write_model(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Floats]) -> None:
    from safetensors.numpy import save_file

    _write_json(folder / "config.json", config)
    arrays = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", "utf-8")


def _copy(source: Path, target: Path, patterns: Sequence[str]) -> None:
    for path in (found for pattern in patterns for found in source.glob(pattern)):
        if path.is_file():
            shutil.copyfile(path, target / path.name)
