"""A BERT as an ONNX graph, written node by node with the fused operators of ONNX Runtime.

The input is token numbers of texts of one length, so no mask is needed; the output is the mean of
the last states, not normalised. Weights are passed when the graph is loaded. Products are of 8-bit
integers with one scale for each row of states, so a vector does not depend on the other texts of
its batch, and sums are exact on every processor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from deepjoin.arrays import Array
from deepjoin.embed.columns.onnx_encoder import FINE_STATES, PROBE, twin_name

if TYPE_CHECKING:
    import onnx

_FUSED = "com.microsoft"
#: Products whose matrices are stored in two parts: the codes, and what rounding left over.
FINE_MATRICES = ("narrow",)
_LARGEST = 127.0
#: Rounding leaves at most half a step, which is divided into 127 smaller steps.
_FINER = 1 / (2 * _LARGEST)


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
