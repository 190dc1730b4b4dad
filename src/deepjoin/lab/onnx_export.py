"""Export a sentence-transformers folder to the small model folder that needs no torch.

For models of the BERT and DistilBERT architectures that average their tokens; anything else is
refused, because the export would silently drop it.

Matrices are rounded to 8 bits, with one step for each row, so that products on real texts change
least: the rounding error of a number is compensated in the numbers after it, as far as their
inputs correlate (GPTQ). Where the inputs are unknown, each number is rounded to the nearest step.

The graph is written node by node with the fused operators of ONNX Runtime. Its input is token
numbers of texts of one length, so no mask is needed; its output is the mean of the last states, not
normalised. Weights are passed when it is loaded. Products are of 8-bit integers with one scale for
each row of states, so a vector does not depend on the other texts of its batch, and sums are exact
on every processor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import Array, Double, Float
from deepjoin.embed.columns.encoder import text_settings
from deepjoin.embed.columns.onnx_encoder import FINE_STATES, FORMAT, PROBE, session, twin_name
from deepjoin.embed.columns.text import TextSettings
from deepjoin.embed.columns.tokens import Tokens
from deepjoin.embed.columns.torch_encoder import SETTINGS_FILE
from deepjoin.embed.columns.weights import BLOCK, block_codes, write_weights
from deepjoin.errors import DeepJoinError, MissingExtra

if TYPE_CHECKING:
    import onnx


_FUSED = "com.microsoft"
#: Products whose matrices are stored in two parts: the codes, and what rounding left over.
FINE_MATRICES = ("narrow",)
_LARGEST = 127
#: Rounding leaves at most half a step, which is divided into 127 smaller steps.
_FINER = 1 / (2 * _LARGEST)
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
#: Share of the mean moment added to each, so that the inverse exists.
_DAMPING = 0.01
#: Inputs rounded between two updates of the rest of the matrix.
_INPUTS = 64


@dataclass(frozen=True)
class Shape:
    """Architecture of a model: everything that the weights do not show."""

    kind: str
    layers: int
    heads: int
    epsilon: float


def probe() -> onnx.ModelProto:
    """Write the smallest graph whose sums overflow 16 bits, which some processors get wrong."""
    from onnx import TensorProto, helper, numpy_helper

    kinds = (("states", TensorProto.UINT8), ("sums", TensorProto.INT32))
    states, sums = (helper.make_tensor_value_info(name, kind, None) for name, kind in kinds)
    matrix = numpy_helper.from_array(np.full(PROBE, _LARGEST, np.int8), "matrix")
    node = helper.make_node("MatMulInteger", ["states", "matrix"], ["sums"])
    graph = helper.make_graph([node], "probe", [states], [sums], [matrix])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


class GraphWriter:
    """Writes the nodes of a model for the arrays it will be given.

    If the arrays hold a matrix of floats instead of its codes, the product is computed in floats,
    and its input states are another output, under the name of the product.
    """

    def __init__(self, shape: Shape, arrays: Mapping[str, Array]) -> None:
        self._shape = shape
        self._arrays = arrays
        self._size = arrays["positions"].shape[1]
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}
        self._outputs = ["vector"]

    def model(self) -> onnx.ModelProto:
        """Write the whole model."""
        from onnx import TensorProto, helper

        tokens = helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", "length"])
        state = self._embedded()
        for layer in range(self._shape.layers):
            state = self._layer(state, f"{layer}.")
        states = self._add("Reshape", [state, self._three(self._size, "out")], "states")
        self._add("ReduceMean", [states, self._constant("one", [1])], "vector", keepdims=0)
        puts = [helper.make_tensor_value_info(x, TensorProto.FLOAT, None) for x in self._outputs]
        constants = list(self._constants.values())
        graph = helper.make_graph(self._nodes, "encoder", [tokens], puts, constants)
        sets = [helper.make_opsetid("", 18), helper.make_opsetid(_FUSED, 1)]
        return helper.make_model(graph, opset_imports=sets, ir_version=9)

    def _embedded(self) -> str:
        """Look words up in the table of codes, so that the table of floats is never built."""
        parts = [
            self._add("Gather", [self._outside(f"words.{part}"), "tokens"], f"word.{part}")
            for part in ("codes", "scales")
        ]
        casts = [self._add("Cast", [part], f"{part}.float", to=1) for part in parts]
        blocks = self._add("Mul", casts, "word.blocks")
        words = self._add("Reshape", [blocks, self._three(self._size, "in")], "word")
        length = self._add("Shape", ["tokens"], "length", start=1, end=2)
        zero = self._constant("zero", [0])
        places = self._add("Slice", [self._outside("positions"), zero, length, zero], "places")
        total = self._add("Add", [words, places], "embedded")
        return self._norm(self._flat(total, "embedded.flat"), "norm", "state")

    def _layer(self, state: str, at: str) -> str:
        product = self._product(state, f"{at}attention")
        cube = self._add("Reshape", [product, self._three(3 * self._size, at)], f"{at}cube")
        parts = [f"{at}{one}" for one in ("query", "key", "value")]
        self._add("Split", [cube, self._constant("thirds", [self._size] * 3)], *parts, axis=-1)
        inputs = [*parts, self._outside(f"{at}attention.bias")]
        heads = self._shape.heads
        seen = self._add("MultiHeadAttention", inputs, f"{at}seen", domain=_FUSED, num_heads=heads)
        attended = self._product(self._flat(seen, f"{at}flat"), f"{at}attended")
        state = self._added_norm(attended, state, f"{at}attended")
        wide = self._product(state, f"{at}wide")
        bias = self._outside(f"{at}wide.bias")
        active = self._add("BiasGelu", [wide, bias], f"{at}active", domain=_FUSED)
        return self._added_norm(self._product(active, f"{at}narrow"), state, f"{at}narrow")

    def _product(self, state: str, name: str) -> str:
        if f"{name}.weight" in self._arrays:
            states = self._add("Identity", [state], name)
            self._outputs.append(states)
            inputs = [state, self._outside(f"{name}.weight")]
            return self._add("Gemm", inputs, f"{name}.product", transB=1)
        # Scale each row so that its largest number is 127.
        sizes = self._add("Abs", [state], f"{name}.sizes")
        last = self._constant("last", [-1])
        most = self._add("ReduceMax", [sizes, last], f"{name}.most.size", keepdims=1)
        # A row of zeros must not be divided by zero.
        safe = self._add("Max", [most, self._number(1e-12)], f"{name}.safe")
        factor = self._add("Div", [self._number(_LARGEST), safe], f"{name}.factor")
        scale = self._add("Mul", [safe, self._number(1 / _LARGEST)], f"{name}.back")
        scaled = self._add("Mul", [state, factor], f"{name}.scaled")
        whole = self._add("Round", [scaled], f"{name}.whole")
        first = self._rounded(whole, 1.0, f"{name}.first")
        sums = [self._sums(first, 1.0, f"{name}.codes", f"{name}.sums")]
        if name.partition(".")[2] in FINE_STATES:
            left = self._add("Sub", [scaled, whole], f"{name}.left")
            second = self._rounded(left, _FINER, f"{name}.second")
            sums.append(self._sums(second, _FINER, f"{name}.codes", f"{name}.more", twin=True))
        if f"{name}.rest" in self._arrays:
            sums.append(self._sums(first, 1.0, f"{name}.rest", f"{name}.most"))
        total = self._add("Sum", sums, f"{name}.total") if len(sums) > 1 else sums[0]
        return self._add("Mul", [total, scale], f"{name}.product")

    def _rounded(self, numbers: str, step: float, name: str) -> str:
        return self._add("QuantizeLinear", [numbers, self._number(step), self._middle()], name)

    def _sums(self, states: str, step: float, codes: str, name: str, twin: bool = False) -> str:
        """Multiply codes by codes: sums are exact integers, then multiplied by the steps."""
        matrix, steps = self._outside(codes, twin), self._outside(f"{codes}.steps")
        inputs = [states, matrix, self._number(step), steps, self._middle()]
        return self._add("MatMulIntegerToFloat", inputs, name, domain=_FUSED)

    def _added_norm(self, change: str, state: str, name: str) -> str:
        """Add and normalise; the fused SkipLayerNormalization takes five times as long."""
        inputs = [change, state, self._outside(f"{name}.bias")]
        total = self._add("Sum", inputs, f"{name}.changed")
        return self._norm(total, f"{name}_norm", f"{name}.state")

    def _norm(self, state: str, weights: str, name: str) -> str:
        inputs = [state, *(self._outside(f"{weights}.{part}") for part in ("weight", "bias"))]
        return self._add("LayerNormalization", inputs, name, epsilon=self._shape.epsilon)

    def _flat(self, states: str, name: str) -> str:
        return self._add("Reshape", [states, self._constant("flat", [-1, self._size])], name)

    def _three(self, width: int, at: str) -> str:
        """Return the shape (batch, length, width)."""
        sizes = self._add("Shape", ["tokens"], f"{at}sizes")
        return self._add(
            "Concat", [sizes, self._constant(f"width{width}", [width])], f"{at}shape", axis=0
        )

    def _outside(self, name: str, twin: bool = False) -> str:
        """Declare an array that is passed when the model is loaded, or its twin."""
        from onnx import TensorProto, helper

        array = self._arrays[name]
        name = twin_name(name) if twin else name
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor = TensorProto(name=name, data_type=kind, dims=array.shape)
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="weights.npz")
        self._constants[name] = tensor
        return name

    def _constant(self, name: str, values: list[int]) -> str:
        return self._inside(name, np.array(values, np.int64))

    def _number(self, value: float) -> str:
        return self._inside(f"number {value:.6g}", np.array(value, np.float32))

    def _middle(self) -> str:
        # Unsigned bytes have no zero in the middle, so 128 is the zero point.
        return self._inside("middle", np.array(128, np.uint8))

    def _inside(self, name: str, array: Array) -> str:
        from onnx import numpy_helper

        self._constants[name] = numpy_helper.from_array(array, name)
        return name

    def _add(
        self, operator: str, inputs: list[str], *outputs: str, domain: str = "", **options: Any
    ) -> str:
        from onnx import helper

        node = helper.make_node(operator, inputs, list(outputs), domain=domain, **options)
        self._nodes.append(node)
        return outputs[0]


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
