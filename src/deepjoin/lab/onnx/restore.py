"""Model folders to train on: a shipped encoder made whole again, or a model with fewer layers.

The opposite of `deepjoin.lab.onnx.export`; needs the extra ``train``, but not torch.
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
from deepjoin.lab.onnx.export import NAMES, read_json, read_tensors, said

#: What tokenizers of BERT models call their special tokens.
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
#: How many kinds of text a BERT tells apart; what it adds for the first is in the positions.
_KINDS = 2
_LICENCES = ("LICENSE*", "NOTICE*")
#: What stays true of a model when layers are taken out; its card and its figures do not.
_KEPT = (
    "added_tokens.json", "config_sentence_transformers.json", "merges.txt", "modules.json",
    "sentence_*_config.json", "special_tokens_map.json", "tokenizer*", "vocab*", "*.model",
    SETTINGS_FILE, *_LICENCES,
)  # fmt: skip
_LAYER = re.compile(r"(?:^|\.)layer\.(\d+)\.")


def restore(folder: str | Path, target: str | Path, layers: int | None = None) -> Path:
    """Write an encoder as it is shipped as a folder of sentence-transformers, and return that.

    Its weights are the rounded ones. ``layers`` is how many are kept, as `kept_layers` says.
    """
    folder, target = Path(folder), Path(target)
    _check_installed()
    # Loading it names whatever is missing or torn.
    settings = OnnxEncoder(folder, threads=1).settings
    weights = read_weights((folder / "weights.npz").read_bytes(), folder / "weights.npz")
    there = sum(name.endswith(".attention.bias") for name in weights)
    kept = kept_layers(there, there if layers is None else layers, folder)
    tokenizer = (folder / "tokenizer.json").read_text("utf-8")
    special = _special(json.loads(tokenizer), folder)
    config, tensors = _restored(folder, weights, kept)
    config["pad_token_id"] = special["pad_token"][1]
    with whole_folder(target) as aside:
        _write_model(aside, config, tensors)
        _write_modules(aside, config)
        (aside / "tokenizer.json").write_text(tokenizer, "utf-8")
        _write_json(aside / "tokenizer_config.json", _tokenizer_config(special, config))
        _write_json(aside / SETTINGS_FILE, {"text": said(settings)})
        _copy(folder, aside, _LICENCES)
    return target


def shallower(source: str | Path, target: str | Path, layers: int) -> Path:
    """Write a copy of a sentence-transformers folder that keeps some layers, and return it.

    For models whose layers are alike, as those of BERT, DistilBERT, RoBERTa and MPNet are.
    """
    source, target = Path(source), Path(target)
    config = read_json(source / "config.json")
    key = "n_layers" if "n_layers" in config else "num_hidden_layers"
    tensors = read_tensors(source)
    numbers = {int(found[1]) for found in map(_LAYER.search, tensors) if found}
    if not numbers or numbers != set(range(config.get(key, 0))):
        raise DeepJoinError(
            f"{source} is a model of type '{config.get('model_type')}' whose layers cannot be "
            "told apart. Take another, of type bert or distilbert, or keep all its layers."
        )
    kept = kept_layers(len(numbers), layers, source)
    with whole_folder(target) as aside:
        _write_model(aside, config | {key: len(kept)}, _renumbered(tensors, kept))
        _copy(source, aside, _KEPT)
        _copy_modules(source, aside)
    return target


def kept_layers(there: int, layers: int, source: str | Path) -> list[int]:
    """Choose layers evenly, the last one always.

    >>> kept_layers(6, 3, "a model")
    [1, 3, 5]
    """
    if not 1 <= layers <= there:
        raise DeepJoinError(
            f"{source} has {there} layers, and {layers} are asked for: 1 to {there}."
        )
    return [(place + 1) * there // layers - 1 for place in range(layers)]


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Give a folder beside to write to, and put it in its place if all went well."""
    target = target.absolute()
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise DeepJoinError(f"{target} is there already. Remove it, or give another folder.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with written_aside(target) as aside:
            aside.mkdir()
            yield aside
    except OSError as error:
        raise DeepJoinError(f"{target} cannot be written: {error}. Give another folder.") from None


def _check_installed() -> None:
    missing = [name for name in ("onnx", "safetensors") if find_spec(name) is None]
    if missing:
        raise MissingExtra(
            f"A shipped encoder is made whole with {' and '.join(missing)}: "
            "pip install 'deepjoin[train]'."
        )


def _restored(
    folder: Path, weights: Mapping[str, Array], kept: Sequence[int]
) -> tuple[dict[str, Any], dict[str, Floats]]:
    try:
        return _config(folder, weights, len(kept)), _tensors(weights, kept)
    # Another model's graph, or another's arrays: both were whole, but are not of our making.
    except KeyError as error:
        raise DeepJoinError(
            f"{folder} was not exported from a BERT by deepjoin: it has no {error}. "
            "Train from the folder it was exported from."
        ) from None


def _config(folder: Path, weights: Mapping[str, Array], layers: int) -> dict[str, Any]:
    positions, size = weights["positions"].shape
    return {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_act": "gelu",
        "hidden_size": size,
        "intermediate_size": len(weights["0.wide.bias"]),
        "layer_norm_eps": _option(folder, "LayerNormalization", "epsilon"),
        "max_position_embeddings": positions,
        "num_attention_heads": _option(folder, "MultiHeadAttention", "num_heads"),
        "num_hidden_layers": layers,
        "type_vocab_size": _KINDS,
        "vocab_size": len(weights["words.codes"]),
    }


def _option(folder: Path, operator: str, option: str) -> Any:
    """Read what only the graph knows."""
    import onnx

    nodes = onnx.load_from_string((folder / "graph.onnx").read_bytes()).graph.node
    for node in nodes:
        for attribute in node.attribute:
            if (node.op_type, attribute.name) == (operator, option):
                return onnx.helper.get_attribute_value(attribute)
    raise KeyError(operator)


def _tensors(weights: Mapping[str, Array], kept: Sequence[int]) -> dict[str, Floats]:
    """Name the weights as BERT does; what the vectors do not depend on is 0."""
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
        tensors |= _layer(weights, f"{layer}.", f"{NAMES['bert']['layer']}{place}.")
    return tensors


def _layer(weights: Mapping[str, Array], here: str, there: str) -> dict[str, Floats]:
    names = NAMES["bert"]
    layer: dict[str, Floats] = {}
    for part, find in (("weight", _matrix), ("bias", _bias)):
        three = np.split(find(weights, f"{here}attention"), 3)
        for one, array in zip(("query", "key", "value"), three, strict=True):
            layer[f"{there}{names[one]}.{part}"] = array
        for one in ("attended", "wide", "narrow"):
            layer[f"{there}{names[one]}.{part}"] = find(weights, f"{here}{one}")
        for one in ("attended_norm", "narrow_norm"):
            layer[f"{there}{names[one]}.{part}"] = weights[f"{here}{one}.{part}"]
    return layer


def _bias(weights: Mapping[str, Array], product: str) -> Floats:
    return weights[f"{product}.bias"]


def _matrix(weights: Mapping[str, Array], product: str) -> Floats:
    """Multiply codes by their steps; where there are two parts, add them."""
    matrix: Floats = _whole(weights, f"{product}.codes")
    return matrix + _whole(weights, f"{product}.rest") if f"{product}.rest" in weights else matrix


def _whole(weights: Mapping[str, Array], codes: str) -> Floats:
    matrix: Floats = weights[codes].T * weights[f"{codes}.steps"][:, None]
    return matrix


def _special(tokenizer: dict[str, Any], folder: Path) -> dict[str, tuple[str, int]]:
    """Find the special tokens and their numbers; a batch of texts cannot do without padding."""
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


def _tokenizer_config(
    special: Mapping[str, tuple[str, int]], config: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config["max_position_embeddings"],
        **{role: name for role, (name, _) in special.items()},
    }


def _write_model(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Floats]) -> None:
    from safetensors.numpy import save_file

    _write_json(folder / "config.json", config)
    arrays = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})


def _write_modules(folder: Path, config: Mapping[str, Any]) -> None:
    """Say that tokens are averaged, in the words all versions of sentence-transformers read."""
    _write_json(folder / "modules.json", _MODULES)
    longest = {"max_seq_length": config["max_position_embeddings"], "do_lower_case": False}
    _write_json(folder / "sentence_bert_config.json", longest)
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": config["hidden_size"], "pooling_mode_mean_tokens": True}
    _write_json(folder / "1_Pooling" / "config.json", pooling)


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", "utf-8")


def _renumbered(tensors: Mapping[str, Floats], kept: Sequence[int]) -> dict[str, Floats]:
    places = {layer: place for place, layer in enumerate(kept)}
    left: dict[str, Floats] = {}
    for name, array in tensors.items():
        found = _LAYER.search(name)
        if found is None:
            left[name] = array
        elif int(found[1]) in places:
            start, end = found.span(1)
            left[f"{name[:start]}{places[int(found[1])]}{name[end:]}"] = array
    return left


def _copy(source: Path, target: Path, patterns: Sequence[str]) -> None:
    for path in (found for pattern in patterns for found in source.glob(pattern)):
        if path.is_file():
            shutil.copyfile(path, target / path.name)


def _copy_modules(source: Path, target: Path) -> None:
    """Copy what comes after the language model, such as pooling."""
    if (source / "modules.json").is_file():
        for module in read_json(source / "modules.json"):
            if module["path"] and (source / module["path"]).is_dir():
                shutil.copytree(source / module["path"], target / module["path"])
