"""Write model folders to train on: from a shipped encoder, or from a model with fewer layers.

The inverse of `deepjoin.lab.onnx_export`. Needs the extra ``train``.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from deepjoin.arrays import Array, Float
from deepjoin.embed.columns.onnx_encoder import OnnxEncoder
from deepjoin.embed.columns.torch_encoder import SETTINGS_FILE, load_model, quiet
from deepjoin.embed.columns.weights import read_weights
from deepjoin.errors import DeepJoinError
from deepjoin.files import written_aside
from deepjoin.lab.onnx_export import NAMES, text_options
from deepjoin.optional import require

#: Names of the special tokens in tokenizers of BERT models.
_SPECIAL = {
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
    "cls_token": ("[CLS]", "<s>"),
    "sep_token": ("[SEP]", "</s>"),
    "mask_token": ("[MASK]", "<mask>"),
}
#: Token types of a BERT; the export added the vector of the first one to the positions.
_KINDS = 2
_LICENCES = ("LICENSE*", "NOTICE*")


def restore(folder: str | Path, target: str | Path, layers: int | None = None) -> Path:
    """Write an exported encoder as a sentence-transformers folder, and return that folder.

    Its weights are the rounded ones. ``layers`` is how many are kept, as in `kept_layers`.
    """
    folder, target = Path(folder), Path(target)
    for module in ("onnx", "safetensors", "sentence_transformers"):
        require(module, "train", "Training from an exported encoder")
    # Loading the encoder reports whatever is missing or damaged.
    settings = OnnxEncoder(folder, threads=1).settings
    weights = read_weights((folder / "weights.npz").read_bytes(), folder / "weights.npz")
    there = sum(name.endswith(".attention.bias") for name in weights)
    kept = kept_layers(there, there if layers is None else layers, folder)
    tokenizer = folder / "tokenizer.json"
    special = _special_tokens(json.loads(tokenizer.read_text("utf-8")), folder)
    try:
        config, tensors = _config(folder, weights, len(kept)), _tensors(weights, kept)
    # The files are intact, but this exporter did not write them.
    except KeyError as error:
        raise DeepJoinError(
            f"{folder} was not exported from a BERT by deepjoin: it has no {error}. "
            "Train from the folder it was exported from."
        ) from None
    with whole_folder(target) as aside, quiet():
        _write_transformer(aside, config, tensors, tokenizer, special)
        # A plain transformer is read with its tokens averaged; saved, it names that pooling.
        load_model(str(aside), "cpu").save(str(aside), create_model_card=False)
        text = json.dumps({"text": text_options(settings)}, indent=2)
        (aside / SETTINGS_FILE).write_text(text + "\n", "utf-8")
        for path in (found for pattern in _LICENCES for found in folder.glob(pattern)):
            shutil.copyfile(path, aside / path.name)
    return target


def _write_transformer(
    folder: Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, Float],
    tokenizer: Path,
    special: Mapping[str, str],
) -> None:
    import torch

    library: Any = require("transformers", "train", "Training from an exported encoder")
    words = library.PreTrainedTokenizerFast(
        tokenizer_file=str(tokenizer), model_max_length=config["max_position_embeddings"], **special
    )
    model = library.BertModel(library.BertConfig(**config, pad_token_id=words.pad_token_id))
    model.load_state_dict({name: torch.tensor(array) for name, array in tensors.items()})
    model.save_pretrained(folder)
    words.save_pretrained(folder)


def drop_layers(model: Any, layers: int, source: str | Path) -> None:
    """Keep some layers of a loaded sentence-transformers model, as in `kept_layers`.

    For models whose layers all have the same form, such as BERT, DistilBERT, RoBERTa and MPNet.
    """
    from torch.nn import ModuleList

    network = model[0].auto_model
    # Architectures name the list of their layers differently, but have one of this length.
    stacks = [
        (parent, name, child)
        for parent in network.modules()
        for name, child in parent.named_children()
        if isinstance(child, ModuleList) and len(child) == network.config.num_hidden_layers
    ]
    if len(stacks) != 1:
        raise DeepJoinError(
            f"{source} is a model of type '{network.config.model_type}' whose layers cannot be "
            "identified. Use a model of type bert or distilbert, or keep all layers."
        )
    ((parent, name, stack),) = stacks
    kept = kept_layers(len(stack), layers, source)
    setattr(parent, name, ModuleList([stack[layer] for layer in kept]))
    network.config.num_hidden_layers = len(kept)


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


def _tensors(weights: Mapping[str, Array], kept: Sequence[int]) -> dict[str, Float]:
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


def _decoded(weights: Mapping[str, Array], codes: str) -> Float:
    matrix: Float = weights[codes].T * weights[f"{codes}.steps"][:, None]
    return matrix


def _special_tokens(tokenizer: dict[str, Any], folder: Path) -> dict[str, str]:
    """Find the special tokens by their roles; training pads its batches, so it needs [PAD]."""
    known = {one["content"] for one in tokenizer["added_tokens"]}
    special = {role: name for role, names in _SPECIAL.items() for name in names if name in known}
    if "pad_token" not in special:
        raise DeepJoinError(
            f"The tokenizer of {folder} has no token for padding ([PAD] or <pad>). "
            "Train from the folder it was exported from."
        )
    return special
