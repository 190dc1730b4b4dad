"""Export a sentence-transformers folder to the small model folder that needs no torch.

For models of the BERT and DistilBERT architectures that average their tokens; anything else is
refused, because the export would silently drop it.

Matrices are rounded to 8 bits, with one step for each row, so that products on real texts change
least: the rounding error of a number is compensated in the numbers after it, as far as their
inputs correlate (GPTQ). Where the inputs are unknown, each number is rounded to the nearest step.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import Array, Double, Float
from deepjoin.embed.columns.encoder import text_settings
from deepjoin.embed.columns.onnx_encoder import FORMAT, session
from deepjoin.embed.columns.text import TextSettings
from deepjoin.embed.columns.tokens import Tokens
from deepjoin.embed.columns.torch_encoder import SETTINGS_FILE
from deepjoin.embed.columns.weights import BLOCK, block_codes, write_weights
from deepjoin.errors import DeepJoinError, MissingExtra
from deepjoin.lab.onnx.graph import FINE_MATRICES, GraphWriter, Shape, probe

Codes = npt.NDArray[np.int8]

#: Names of a layer's weights in the two architectures.
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
#: Most texts to round for: more make no measurable difference.
TEXTS = 320
_LARGEST = 127
#: Share of the mean moment added to each, so that the inverse exists.
_DAMPING = 0.01
#: Inputs rounded between two updates of the rest of the matrix.
_INPUTS = 64


def export_encoder(source: str | Path, target: str | Path, name: str, texts: Sequence[str]) -> Path:
    """Write the model folder for a folder saved by sentence-transformers, and return it.

    ``texts`` are examples of what it will read: weights are rounded so that their vectors change
    least.
    """
    source, target = Path(source), Path(target)
    shape = _checked_shape(source)
    tensors = read_tensors(source)
    try:
        weights = _renamed(tensors, shape)
    except KeyError as error:
        raise _refused(source, f"has no weights named {error}") from None
    widths = {array.shape[1] for array in weights.values() if array.ndim == 2}
    odd = [width for width in sorted(widths) if width % BLOCK]
    if odd:
        raise _refused(source, f"has matrices of width {odd[0]}, not a multiple of {BLOCK}")
    parsed = read_json(source / "tokenizer.json")
    tokenizer = json.dumps(parsed, ensure_ascii=False, separators=(",", ":"))
    settings = text_settings(source / SETTINGS_FILE)
    tokens = Tokens.from_text(tokenizer, settings.tokens, settings.prompt)
    sample = [numbers for numbers in tokens.numbers(texts[:TEXTS]) if numbers]
    arrays = compressed(weights, shape, sample)
    positions, dimension = weights["positions"].shape
    about = {
        "format": FORMAT,
        "name": name,
        "dimension": dimension,
        "positions": positions,
        "text": text_options(settings),
    }
    target.mkdir(parents=True, exist_ok=True)
    write_weights(target / "weights.npz", arrays)
    (target / "graph.onnx").write_bytes(GraphWriter(shape, arrays).model().SerializeToString())
    (target / "probe.onnx").write_bytes(probe().SerializeToString())
    (target / "tokenizer.json").write_text(tokenizer, "utf-8")
    # Written last: a folder without encoder.json does not count as a model folder.
    (target / "encoder.json").write_text(json.dumps(about, indent=2) + "\n", "utf-8")
    return target


def text_options(settings: TextSettings) -> dict[str, Any]:
    """Return the settings without the profile, which belongs to the lake, not to the model."""
    return {key: value for key, value in asdict(settings).items() if key != "profile"}


def read_json(path: Path) -> Any:
    """Read a JSON file of a model folder."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DeepJoinError(
            f"{path.parent} is not a model folder: {path.name} cannot be read ({error}). "
            "Give a folder saved by sentence-transformers."
        ) from None


def read_tensors(source: Path) -> dict[str, Float]:
    """Read the weights of a folder under their original names."""
    try:
        import onnx  # noqa: F401  needed later; report it before the long part of the work
        from safetensors.numpy import load_file
    except ImportError:
        raise MissingExtra(
            "Reading a model's weights needs safetensors and onnx: pip install safetensors onnx."
        ) from None
    path = source / "model.safetensors"
    try:
        found = load_file(path)
    # The library raises its own error for a damaged file, a direct subclass of Exception.
    except Exception as error:
        raise DeepJoinError(
            f"The weights {path} cannot be read: {error}. Save the model again."
        ) from None
    return {name: array.astype(np.float32) for name, array in found.items()}


def _checked_shape(source: Path) -> Shape:
    """Read the shape of a model; refuse what the graph cannot compute."""
    config = read_json(source / "config.json")
    kind = config.get("model_type")
    if kind not in NAMES:
        raise _refused(source, f"is a model of type '{kind}', neither {' nor '.join(NAMES)}")
    active = config.get("hidden_act", config.get("activation"))
    if active != "gelu" or config.get("position_embedding_type", "absolute") != "absolute":
        raise _refused(source, f"computes with '{active}' or with relative positions")
    modules = source / "modules.json"
    for module in read_json(modules) if modules.is_file() else ():
        name = module["type"].rpartition(".")[2]
        if name == "Pooling":
            pooling = read_json(source / module["path"] / "config.json")
            # Newer versions name one mode, older ones have a flag for each.
            flags = {key for key, on in pooling.items() if key.startswith("pooling_mode_") and on}
            mode = pooling.get("pooling_mode", "mean")
            if mode != "mean" or not flags <= {"pooling_mode_mean_tokens"}:
                raise _refused(source, "pools its tokens in another way than by their mean")
        elif name not in ("Transformer", "Normalize"):
            raise _refused(source, f"has a module of type '{name}'")
    is_bert = kind == "bert"
    return Shape(
        kind,
        config["num_hidden_layers" if is_bert else "n_layers"],
        config["num_attention_heads" if is_bert else "n_heads"],
        config.get("layer_norm_eps", 1e-12),
    )


def _refused(source: Path, why: str) -> DeepJoinError:
    return DeepJoinError(
        f"{source} {why}, and cannot be exported. Use it as it is, with deepjoin[train] installed."
    )


def _renamed(tensors: dict[str, Float], shape: Shape) -> dict[str, Float]:
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


def compressed(
    weights: dict[str, Float], shape: Shape, texts: Sequence[Sequence[int]]
) -> dict[str, Array]:
    """Replace the matrices by codes, rounded for texts given as token numbers."""
    exact: dict[str, Array] = {name: array for name, array in weights.items() if name != "words"}
    exact["words.codes"], exact["words.scales"] = block_codes(weights["words"])
    # Names of a layer's weights begin with the number of the layer.
    matrices = [name for name, array in weights.items() if name[0].isdigit() and array.ndim == 2]
    products = [name.removesuffix(".weight") for name in matrices]
    coarse = [name for name in products if name.partition(".")[2] not in FINE_MATRICES]
    moments = _moments(exact, shape, coarse, texts)
    stored = {name: array for name, array in exact.items() if name not in matrices}
    for name in products:
        matrix, known = weights[f"{name}.weight"], moments.get(name)
        codes, steps = nearest(matrix) if known is None else rounded(matrix, known)
        # Transposed, as the product of the graph expects it.
        stored |= {f"{name}.codes": codes.T, f"{name}.codes.steps": steps}
        if known is None:
            rest, finer = nearest(matrix - codes * steps[:, None])
            stored |= {f"{name}.rest": rest.T, f"{name}.rest.steps": finer}
    return stored


def _moments(
    exact: dict[str, Array], shape: Shape, products: list[str], texts: Sequence[Sequence[int]]
) -> dict[str, Double]:
    """Sum the second moments of each product's inputs over all texts."""
    model = session(GraphWriter(shape, exact).model().SerializeToString(), exact, None)
    sizes = {name: exact[f"{name}.weight"].shape[1] for name in products}
    moments = {name: np.zeros((size, size)) for name, size in sizes.items()}
    for numbers in texts:
        for name, states in zip(products, model.run(products, {"tokens": [numbers]}), strict=True):
            moments[name] += states.T @ states
    return moments


def nearest(matrix: Float) -> tuple[Codes, Float]:
    """Round each number to the nearest step."""
    steps = steps_of(matrix)
    return _codes(matrix / steps[:, None]), steps


def rounded(matrix: Float, moments: Double) -> tuple[Codes, Float]:
    """Round a matrix whose inputs have these second moments, the most active inputs first."""
    steps = steps_of(matrix)
    order = np.argsort(-np.diag(moments), kind="stable")
    left = (matrix[:, order] / steps[:, None]).astype(np.float64)
    ordered = moments[np.ix_(order, order)]
    damping = max(_DAMPING * float(np.diag(ordered).mean()), 1e-9)
    inverse = np.linalg.inv(ordered + damping * np.eye(len(ordered)))
    # Row i says how much of the error of input i each later input takes over.
    spread = np.linalg.cholesky(inverse).T
    codes = np.zeros(matrix.shape, np.int8)
    for start in range(0, len(order), _INPUTS):
        block, after = slice(start, start + _INPUTS), slice(start + _INPUTS, None)
        some, inner = left[:, block], spread[block, block]
        errors = np.zeros(some.shape)
        for place in range(some.shape[1]):
            column = _codes(some[:, place])
            codes[:, order[start + place]] = column
            errors[:, place] = (some[:, place] - column) / inner[place, place]
            some[:, place:] -= np.outer(errors[:, place], inner[place, place:])
        left[:, after] -= errors @ spread[block, after]
    return codes, steps


def steps_of(matrix: Float) -> Float:
    """Return the step of each row, 1 for a row of zeros.

    >>> steps_of(np.array([[1, -127], [0, 0]], np.float32)).tolist()
    [1.0, 1.0]
    """
    largest = np.abs(matrix).max(axis=1)
    return np.where(largest > 0, largest / _LARGEST, 1).astype(np.float32)


def _codes(numbers: npt.NDArray[np.floating]) -> Codes:
    codes: Codes = np.clip(np.rint(numbers), -_LARGEST, _LARGEST).astype(np.int8)
    return codes
