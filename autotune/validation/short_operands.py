"""A model whose products read rounded operands: what shorter operands must cost, computed by ONNX Runtime in fp32.

Before every chosen Conv, MatMul and Gemm its two operands go through bf16 or fp16 and back; weights are rounded here.
TF32 is no type of ONNX. Veltkamp's way rounds to its 11 bits: x·(2¹³ + 1) − (x·(2¹³ + 1) − x) in fp32.
Two right programs differ in who else reads a rounded tensor: a product alone, or all that read the tensor, as where it
lies in memory as 16 bits. Both are made.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

from autotune.host.dtypes import rounded
from autotune.importer.onnx_model.light_model import LightModel, light, placeholder
from autotune.options import TF32, Precision

TF32_FACTOR, TF32_NAME = 2**13 + 1, "tune/tf32"

PRODUCTS = ("Conv", "MatMul", "Gemm")


def product_nodes(model: onnx.ModelProto) -> list[NodeProto]:
    """The products of a simplified model, in the order in which ``Precision`` numbers them."""
    return [node for node in model.graph.node if node.op_type in PRODUCTS and node.domain in ("", "ai.onnx")]


class ShortOperands:
    """Models like a given one with the operands of some products rounded. Every weight is rounded once.

    Args:
        model: simplified, in fp32; it is not changed.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._light = light(model)
        self._rounded: dict[str, TensorProto] = {}
        self._large: dict[str, NDArray[Any]] = {}

    @property
    def products(self) -> int:
        """How many products the model has."""
        return len(product_nodes(self._light.proto))

    def rounded(self, precision: Precision, stored: bool) -> LightModel:
        """The model with the operands of the products that ``precision`` chooses rounded.

        Args:
            stored: whether all who read a rounded tensor read it rounded; the outputs of the model are not.
        """
        copy = onnx.ModelProto()
        copy.CopyFrom(self._light.proto)
        graph = copy.graph
        chosen = [node for number, node in enumerate(product_nodes(copy)) if number in precision]
        weights = {tensor.name: tensor for tensor in graph.initializer}
        short = {name: f"{name}/{precision.short}" for node in chosen for name in node.input[:2]}
        for name in short:
            if name in weights and weights[name].data_type == TensorProto.FLOAT:
                graph.initializer.append(self._weight(weights[name], short[name], precision.dtype))
        for node in graph.node if stored else chosen:
            for index, name in enumerate(node.input):
                if name in short and (index < 2 or stored) and (name not in weights or node in chosen):
                    node.input[index] = short[name]
        _insert_casts(graph, [name for name in short if name not in weights], short, precision.dtype)
        return light(copy, {**self._light.weights, **self._large})

    def _weight(self, weight: TensorProto, name: str, dtype: str) -> TensorProto:
        """``weight`` rounded to ``dtype``, as the initialiser ``name``."""
        if name not in self._rounded:
            stored = self._light.weights.get(weight.name)
            array = numpy_helper.to_array(weight) if stored is None else stored
            short = rounded(array, dtype)
            if stored is not None:
                self._large[name] = short
            self._rounded[name] = numpy_helper.from_array(short, name) if stored is None else placeholder(name, weight)
        return self._rounded[name]


def _cast(name: str, to: str, dtype: str) -> list[NodeProto]:
    """Return the nodes that round ``name`` to ``dtype``."""
    short = f"{name}/short"
    if dtype != TF32:
        kind = TensorProto.DataType.Value(dtype.upper())
        return [
            helper.make_node("Cast", [name], [short], to=kind),
            helper.make_node("Cast", [short], [to], to=TensorProto.FLOAT),
        ]
    return [
        helper.make_node("Mul", [name, TF32_NAME], [short]),
        helper.make_node("Sub", [short, name], [f"{short}/rest"]),
        helper.make_node("Sub", [short, f"{short}/rest"], [to]),
    ]


def _insert_casts(graph: onnx.GraphProto, names: Collection[str], rounded: dict[str, str], dtype: str) -> None:
    """Put the rounding of every tensor of ``names`` behind the node that makes it, or first for inputs."""
    if dtype == TF32:
        graph.initializer.append(numpy_helper.from_array(np.array(TF32_FACTOR, np.float32), TF32_NAME))
    casts = {name: _cast(name, rounded[name], dtype) for name in names}
    inputs = [cast for value in graph.input for cast in casts.get(value.name, [])]
    nodes = [*inputs]
    for node in graph.node:
        nodes += [node, *(cast for name in node.output for cast in casts.get(name, []))]
    kept = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)
