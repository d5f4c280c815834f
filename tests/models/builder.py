"""A short way to write ONNX graphs in Python, layer by layer, as PyTorch exports them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import TensorProto, helper, numpy_helper

from tests.models.weights import refill

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


class Builder:
    """Collects inputs, weights and nodes; every method returns the name of the value it makes.

    Weights start as zeros and get their random values from ``refill`` when the model is finished.
    """

    def __init__(self, name: str, opset: int = 17) -> None:
        self.name, self.opset = name, opset
        self.inputs: list[onnx.ValueInfoProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.nodes: list[onnx.NodeProto] = []

    def input(self, name: str, shape: Sequence[int | str], dtype: int = FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def weight(self, *shape: int) -> str:
        """A weight of ``shape``."""
        return self.constant(np.zeros(shape, np.float32))

    def constant(self, values: ArrayLike, dtype: type[np.generic] | None = None) -> str:
        """Numbers that stay what they are, unless they are vectors that a layer uses as weights."""
        name = f"w{len(self.weights)}"
        array = np.asarray(values, dtype)
        array = array.astype(np.float32) if array.dtype == np.float64 else array
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def ints(self, *values: int) -> str:
        """A constant int64 vector: shapes, axes, pads."""
        return self.constant(np.array(values, np.int64))

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        """One node; its first output. With ``outputs`` above 1 the others are called ``FIRST_1``, ``FIRST_2`` …"""
        first = f"{kind.lower()}{len(self.nodes)}"
        names = [first, *(f"{first}_{index}" for index in range(1, outputs))]
        self.nodes.append(helper.make_node(kind, inputs, names, first, **attributes))
        return first

    def conv(
        self,
        x: str,
        channels: tuple[int, int],
        kernel: int | tuple[int, int] = 3,
        stride: int = 1,
        groups: int = 1,
        dilation: int = 1,
        padding: int | None = None,
        bias: bool = True,
    ) -> str:
        """2-D convolution from ``channels[0]`` to ``channels[1]``; by default padded to keep the size."""
        kernels = (kernel, kernel) if isinstance(kernel, int) else kernel
        pads = [dilation * (size - 1) // 2 if padding is None else padding for size in kernels]
        weights = [self.weight(channels[1], channels[0] // groups, *kernels)]
        weights += [self.weight(channels[1])] if bias else []
        return self.op(
            "Conv",
            x,
            *weights,
            kernel_shape=kernels,
            strides=[stride, stride],
            pads=pads * 2,
            dilations=[dilation, dilation],
            group=groups,
        )

    def batch_norm(self, x: str, channels: int) -> str:
        return self.op("BatchNormalization", x, *(self.weight(channels) for _ in range(4)))

    def dense(self, x: str, sizes: tuple[int, int]) -> str:
        """A linear layer over a matrix (Gemm, weights (out, in))."""
        return self.op("Gemm", x, self.weight(sizes[1], sizes[0]), self.weight(sizes[1]), transB=1)

    def linear(self, x: str, sizes: tuple[int, int]) -> str:
        """A linear layer over the last axis of a tensor of any rank (MatMul and Add)."""
        return self.op("Add", self.op("MatMul", x, self.weight(*sizes)), self.weight(sizes[1]))

    def relu(self, x: str) -> str:
        return self.op("Relu", x)

    def swish(self, x: str) -> str:
        return self.op("Mul", x, self.op("Sigmoid", x))

    def gelu(self, x: str) -> str:
        """x/2 · (1 + erf(x/√2)), as PyTorch exports it below opset 20."""
        erf = self.op("Erf", self.op("Div", x, self.constant(2**0.5)))
        return self.op("Mul", self.op("Mul", x, self.op("Add", erf, self.constant(1.0))), self.constant(0.5))

    def layer_norm(self, x: str, width: int) -> str:
        """From primitives, as PyTorch exports it below opset 17."""
        centred = self.op("Sub", x, self.op("ReduceMean", x, axes=[-1]))
        square = self.op("Pow", centred, self.constant(2.0))
        variance = self.op("Add", self.op("ReduceMean", square, axes=[-1]), self.constant(1e-5))
        normal = self.op("Div", centred, self.op("Sqrt", variance))
        return self.op("Add", self.op("Mul", normal, self.weight(width)), self.weight(width))

    def flatten(self, x: str) -> str:
        return self.op("Flatten", x)

    def pooled(self, x: str) -> str:
        """Global average over the image, as a matrix (n, channels)."""
        return self.flatten(self.op("GlobalAveragePool", x))

    def max_pool(self, x: str, kernel: int = 2, stride: int = 2, padding: int = 0) -> str:
        return self.op("MaxPool", x, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[padding] * 4)

    def model(self, seed: int = 0, **outputs: str) -> onnx.ModelProto:
        """The finished model with its random weights and inferred output shapes; ``outputs`` are name → value."""
        public = {value: name for name, value in outputs.items()}
        for node in self.nodes:
            for names in (node.input, node.output):
                names[:] = [public.get(name, name) for name in names]
        values = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph(self.nodes, self.name, self.inputs, values, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        shapes = {value.name: value for value in onnx.shape_inference.infer_shapes(model).graph.output}
        for value in model.graph.output:
            value.CopyFrom(shapes[value.name])
        return refill(model, seed)
