"""A BERT as an ONNX graph, written node by node with the fused operators of ONNX Runtime.

It takes token numbers of texts of one length, so it needs no mask, and gives the mean of the
last states, not normalised. The weights are handed over when the graph is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from deepjoin.encoders.weights import BLOCK, Floats

if TYPE_CHECKING:
    import onnx

_FUSED = "com.microsoft"


@dataclass(frozen=True)
class Shape:
    """What a model is beside its weights."""

    kind: str
    layers: int
    heads: int
    epsilon: float


class Graph:
    """Writes the nodes of a model; what they compute on comes from the weights file."""

    def __init__(self, shape: Shape, weights: dict[str, Floats]) -> None:
        self._shape = shape
        self._weights = weights
        self._size = weights["positions"].shape[1]
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def model(self) -> onnx.ModelProto:
        """Put the whole together."""
        from onnx import TensorProto, helper

        tokens = helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", "length"])
        self._add(
            "ReduceMean", [self._last_layer(), self._constant("one", [1])], "vector", keepdims=0
        )
        vector = helper.make_tensor_value_info("vector", TensorProto.FLOAT, ["batch", self._size])
        graph = helper.make_graph(self._nodes, "encoder", [tokens], [vector], self._constants)
        sets = [helper.make_opsetid("", 18), helper.make_opsetid(_FUSED, 1)]
        return helper.make_model(graph, opset_imports=sets, ir_version=9)

    def _last_layer(self) -> str:
        state = self._embedded()
        for layer in range(self._shape.layers):
            state = self._layer(state, f"{layer}.")
        return self._add("Reshape", [state, self._three(self._size, "out")], "states")

    def _embedded(self) -> str:
        """Look the words up in their codes: the table need not be restored."""
        codes = self._add("Gather", [self._codes(), "tokens"], "word.codes")
        scales = self._add("Gather", [self._scales(), "tokens"], "word.scales")
        casts = [self._add("Cast", [x], f"{x}.float", to=1) for x in (codes, scales)]
        blocks = self._add("Mul", casts, "word.blocks")
        words = self._add("Reshape", [blocks, self._three(self._size, "in")], "word")
        length = self._add("Shape", ["tokens"], "length", start=1, end=2)
        zero = self._constant("zero", [0])
        places = self._add("Slice", [self._weight("positions"), zero, length, zero], "places")
        total = self._add("Add", [words, places], "embedded")
        flat = self._add(
            "Reshape", [total, self._constant("flat", [-1, self._size])], "embedded.flat"
        )
        scale, bias = self._weight("norm.weight"), self._weight("norm.bias")
        return self._add("LayerNormalization", [flat, scale, bias], "state", epsilon=self._epsilon)

    @property
    def _epsilon(self) -> float:
        return self._shape.epsilon

    def _layer(self, state: str, at: str) -> str:
        attended = self._product(self._attention(state, at), f"{at}attended")
        state = self._added_norm(attended, state, f"{at}attended")
        wide = self._product(state, f"{at}wide")
        bias = self._weight(f"{at}wide.bias")
        active = self._add("BiasGelu", [wide, bias], f"{at}active", domain=_FUSED)
        return self._added_norm(self._product(active, f"{at}narrow"), state, f"{at}narrow")

    def _attention(self, state: str, at: str) -> str:
        product = self._product(state, f"{at}attention")
        cube = self._add("Reshape", [product, self._three(3 * self._size, at)], f"{at}cube")
        parts = [f"{at}{one}" for one in ("query", "key", "value")]
        self._add("Split", [cube, self._constant("thirds", [self._size] * 3)], *parts, axis=-1)
        inputs = [*parts, self._weight(f"{at}attention.bias")]
        heads = self._shape.heads
        seen = self._add("MultiHeadAttention", inputs, f"{at}seen", domain=_FUSED, num_heads=heads)
        return self._add("Reshape", [seen, self._constant("flat", [-1, self._size])], f"{at}flat")

    def _product(self, state: str, name: str) -> str:
        return self._add(
            "Gemm", [state, self._weight(f"{name}.weight")], f"{name}.product", transB=1
        )

    def _added_norm(self, change: str, state: str, name: str) -> str:
        parts = (f"{name}_norm.weight", f"{name}_norm.bias", f"{name}.bias")
        inputs = [change, state, *map(self._weight, parts)]
        operator = "SkipLayerNormalization"
        return self._add(operator, inputs, f"{name}.state", domain=_FUSED, epsilon=self._epsilon)

    def _three(self, width: int, at: str) -> str:
        """Make the shape that gives each text of the batch its own rows."""
        sizes = self._add("Shape", ["tokens"], f"{at}sizes")
        return self._add(
            "Concat", [sizes, self._constant(f"width{width}", [width])], f"{at}shape", axis=0
        )

    def _codes(self) -> str:
        return self._outside(
            "words.codes", (len(self._weights["words"]), self._size // BLOCK, BLOCK), 3
        )

    def _scales(self) -> str:
        return self._outside(
            "words.scales", (len(self._weights["words"]), self._size // BLOCK, 1), 10
        )

    def _weight(self, name: str) -> str:
        return self._outside(name, self._weights[name].shape, 1)

    def _outside(self, name: str, shape: Sequence[int], kind: int) -> str:
        """Declare a weight that is handed over when the model is loaded."""
        from onnx import TensorProto

        if all(known.name != name for known in self._constants):
            tensor = TensorProto(name=name, data_type=kind, dims=shape)
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="weights.npz")
            self._constants.append(tensor)
        return name

    def _constant(self, name: str, values: list[int]) -> str:
        from onnx import numpy_helper

        if all(known.name != name for known in self._constants):
            self._constants.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def _add(
        self, operator: str, inputs: list[str], *outputs: str, domain: str = "", **options: Any
    ) -> str:
        from onnx import helper

        node = helper.make_node(operator, inputs, list(outputs), domain=domain, **options)
        self._nodes.append(node)
        return outputs[0]
