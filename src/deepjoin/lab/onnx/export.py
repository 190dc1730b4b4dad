"""A sentence-transformers folder to the small model folder that needs no torch.

For models of the BERT and DistilBERT architectures that average their tokens; whatever else a
folder asks for is refused, because it would be left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from deepjoin.embed.columns.encoder import text_settings
from deepjoin.embed.columns.onnx_encoder import FORMAT
from deepjoin.embed.columns.text import TextSettings
from deepjoin.embed.columns.tokens import Tokens
from deepjoin.embed.columns.torch_encoder import SETTINGS_FILE
from deepjoin.embed.columns.weights import BLOCK, Floats, write_weights
from deepjoin.errors import DeepJoinError, MissingExtra
from deepjoin.lab.onnx.graph import GraphWriter, Shape, probe
from deepjoin.lab.onnx.rounding import TEXTS, compressed, made_texts

#: Where the two architectures keep the weights of a layer.
NAMES = {
    "bert": {
        "layer": "encoder.layer.",
        "query": "attention.self.query",
        "key": "attention.self.key",
        "value": "attention.self.value",
        "attended": "attention.output.dense",
        "attended_norm": "attention.output.LayerNorm",
        "wide": "intermediate.dense",
        "narrow": "output.dense",
        "narrow_norm": "output.LayerNorm",
    },
    "distilbert": {
        "layer": "transformer.layer.",
        "query": "attention.q_lin",
        "key": "attention.k_lin",
        "value": "attention.v_lin",
        "attended": "attention.out_lin",
        "attended_norm": "sa_layer_norm",
        "wide": "ffn.lin1",
        "narrow": "ffn.lin2",
        "narrow_norm": "output_layer_norm",
    },
}


def export_encoder(
    source: str | Path,
    target: str | Path,
    name: str,
    settings: TextSettings | None = None,
    texts: Sequence[str] | None = None,
) -> Path:
    """Write the model folder for a folder saved by sentence-transformers, and return it.

    ``settings`` is how columns become texts for this model; without, as it was tuned. ``texts``
    are some it will read: weights are rounded so that these change least; without, made ones.
    """
    source, target = Path(source), Path(target)
    shape = _shape(read_json(source / "config.json"), source)
    _check_modules(source)
    weights = _gathered(read_tensors(source), shape, source)
    _check_widths(weights, source)
    tokenizer = json.dumps(
        read_json(source / "tokenizer.json"), ensure_ascii=False, separators=(",", ":")
    )
    settings = text_settings(source / SETTINGS_FILE, settings)
    arrays = compressed(weights, shape, _sample(tokenizer, settings, texts))
    target.mkdir(parents=True, exist_ok=True)
    write_weights(target / "weights.npz", arrays)
    (target / "graph.onnx").write_bytes(GraphWriter(shape, arrays).model().SerializeToString())
    (target / "probe.onnx").write_bytes(probe().SerializeToString())
    (target / "tokenizer.json").write_text(tokenizer, "utf-8")
    about = {"format": FORMAT, "name": name, **_limits(weights), "text": said(settings)}
    # Last, because a folder without it is none.
    (target / "encoder.json").write_text(json.dumps(about, indent=2) + "\n", "utf-8")
    return target


def _sample(tokenizer: str, settings: TextSettings, texts: Sequence[str] | None) -> list[list[int]]:
    """Return the token numbers of the texts weights are rounded for."""
    tokens = Tokens.from_text(tokenizer, settings.tokens, settings.prompt)
    if texts is None:
        texts = made_texts(json.loads(tokenizer)["model"]["vocab"])
    return [numbers for numbers in tokens.numbers(texts[:TEXTS]) if numbers]


def said(settings: TextSettings) -> dict[str, Any]:
    """Leave out the profile, which is the lake's."""
    return {key: value for key, value in asdict(settings).items() if key != "profile"}


def read_json(path: Path) -> Any:
    """Read a file of a model folder that says what the model is."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DeepJoinError(
            f"{path.parent} is not a model folder: {path.name} cannot be read ({error}). "
            "Give a folder saved by sentence-transformers."
        ) from None


def _check_modules(source: Path) -> None:
    """Refuse folders that do more than average the tokens and normalise."""
    if not (source / "modules.json").is_file():
        return
    for module in read_json(source / "modules.json"):
        kind = module["type"].rpartition(".")[2]
        if kind == "Pooling":
            config = read_json(source / module["path"] / "config.json")
            if not _averages(config):
                raise _refused(source, "pools its tokens otherwise than by their mean")
        elif kind not in ("Transformer", "Normalize"):
            raise _refused(source, f"has a module of type '{kind}'")


def _averages(config: dict[str, Any]) -> bool:
    """Read both layouts: one mode by name, or a flag for each."""
    flags = {key for key, value in config.items() if key.startswith("pooling_mode_") and value}
    return config.get("pooling_mode", "mean") == "mean" and flags <= {"pooling_mode_mean_tokens"}


def _refused(source: Path, why: str) -> DeepJoinError:
    return DeepJoinError(
        f"{source} {why}, and cannot be exported. Use it as it is, with deepjoin[train] installed."
    )


def _check_widths(weights: dict[str, Floats], source: Path) -> None:
    widths = {array.shape[1] for array in weights.values() if array.ndim == 2}
    odd = [width for width in sorted(widths) if width % BLOCK]
    if odd:
        raise _refused(source, f"has matrices of width {odd[0]}, no multiple of {BLOCK}")


def _limits(weights: dict[str, Floats]) -> dict[str, int]:
    positions, dimension = weights["positions"].shape
    return {"dimension": dimension, "positions": positions}


def _shape(config: dict[str, Any], source: Path) -> Shape:
    kind = config.get("model_type")
    if kind not in NAMES:
        raise _refused(source, f"is a model of type '{kind}', neither {' nor '.join(NAMES)}")
    active = config.get("hidden_act", config.get("activation"))
    if active != "gelu" or config.get("position_embedding_type", "absolute") != "absolute":
        raise _refused(source, f"computes with '{active}' or with relative positions")
    bert = kind == "bert"
    return Shape(
        kind,
        config["num_hidden_layers" if bert else "n_layers"],
        config["num_attention_heads" if bert else "n_heads"],
        config.get("layer_norm_eps", 1e-12),
    )


def read_tensors(source: Path) -> dict[str, Floats]:
    """Read the weights of a folder as they are named there."""
    try:
        import onnx  # noqa: F401  needed a little later: better told now
        from safetensors.numpy import load_file
    except ImportError:
        raise MissingExtra(
            "Reading a model's weights needs safetensors and onnx: pip install safetensors onnx."
        ) from None
    path = source / "model.safetensors"
    try:
        found = load_file(path)
    # A torn file comes as the library's own error, which is a plain Exception.
    except Exception as error:
        raise DeepJoinError(
            f"The weights {path} cannot be read: {error}. Save the model again."
        ) from None
    return {name: array.astype(np.float32) for name, array in found.items()}


def _gathered(tensors: dict[str, Floats], shape: Shape, source: Path) -> dict[str, Floats]:
    try:
        return _renamed(tensors, shape)
    except KeyError as error:
        raise _refused(source, f"has no weights named {error}") from None


def _renamed(tensors: dict[str, Floats], shape: Shape) -> dict[str, Floats]:
    """Name the weights as the graph does; queries, keys and values become one matrix."""
    positions = tensors["embeddings.position_embeddings.weight"]
    kinds = tensors.get("embeddings.token_type_embeddings.weight")
    weights = {
        "words": tensors["embeddings.word_embeddings.weight"],
        "positions": positions if kinds is None else positions + kinds[0],
        "norm.weight": tensors["embeddings.LayerNorm.weight"],
        "norm.bias": tensors["embeddings.LayerNorm.bias"],
    }
    names = NAMES[shape.kind]
    for layer in range(shape.layers):
        there, here = f"{names['layer']}{layer}.", f"{layer}."
        for part in ("weight", "bias"):
            three = [tensors[f"{there}{names[one]}.{part}"] for one in ("query", "key", "value")]
            weights[f"{here}attention.{part}"] = np.concatenate(three)
            for one in ("attended", "attended_norm", "wide", "narrow", "narrow_norm"):
                weights[f"{here}{one}.{part}"] = tensors[f"{there}{names[one]}.{part}"]
    return weights
