"""An ONNX model as a PyTorch module, node by node: what a user of PyTorch would have written, batch norms folded.

Its outputs are compared with ours before it is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch.nn import functional

Tensor = torch.Tensor
Attributes = dict[str, Any]

PLAIN_SOFTMAX = 13
"""The opset from which on Softmax goes along one axis; before, along all from its axis on."""


class OnnxModule(torch.nn.Module):
    """Runs the nodes of a simplified model in order.

    Raises:
        NotImplementedError: at the first run, for an operator that is not listed here.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__()
        graph = model.graph
        opset = next(entry.version for entry in model.opset_import if not entry.domain)
        self._numbers: dict[str, list[int]] = {}
        for index, tensor in enumerate(graph.initializer):
            array = numpy_helper.to_array(tensor)
            if array.dtype == np.int64:  # shapes and axes, which must not live on the device
                self._numbers[tensor.name] = [int(value) for value in array.reshape(-1)]
            self.register_buffer(f"w{index}", torch.from_numpy(array.copy()))
        self._names = {tensor.name: f"w{index}" for index, tensor in enumerate(graph.initializer)}
        self._inputs = [value.name for value in graph.input if value.name not in self._names]
        self._outputs = [value.name for value in graph.output]
        self._nodes = [
            (
                "FlatSoftmax" if node.op_type == "Softmax" and opset < PLAIN_SOFTMAX else node.op_type,
                list(node.input),
                list(node.output),
                {a.name: _value(a) for a in node.attribute},
            )
            for node in graph.node
        ]

    def forward(self, *arrays: Tensor) -> list[Tensor]:
        """Outputs in the model's order."""
        values = dict(zip(self._inputs, arrays, strict=True))
        for op, inputs, outputs, attributes in self._nodes:
            if op not in OPERATORS:
                raise NotImplementedError(f"the PyTorch peer does not know operator {op}")
            operands = [self._of(name, values) for name in inputs]
            numbers = [self._numbers.get(name, []) for name in inputs]
            results = OPERATORS[op](operands, attributes, numbers)
            values.update(zip(outputs, results if isinstance(results, tuple) else (results,), strict=False))
        return [values[name] for name in self._outputs]

    def _of(self, name: str, values: dict[str, Tensor]) -> Tensor | None:
        if not name:
            return None
        return values[name] if name in values else getattr(self, self._names[name])


def _value(attribute: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    return torch.from_numpy(numpy_helper.to_array(value).copy()) if isinstance(value, onnx.TensorProto) else value


def _padded(x: Tensor, attributes: Attributes, value: float) -> tuple[Tensor, int | tuple[int, ...]]:
    """``x`` and the symmetric padding that is left to the operator; uneven padding is done here."""
    pads = list(attributes.get("pads", [0] * (2 * (x.dim() - 2))))
    half = len(pads) // 2
    if pads[:half] == pads[half:]:
        return x, tuple(pads[:half])
    order = [pads[axis + side * half] for axis in reversed(range(half)) for side in range(2)]
    return functional.pad(x, order, value=value), 0


def _conv(operands: list[Any], attributes: Attributes, _: list[list[int]]) -> Tensor:
    x, padding = _padded(operands[0], attributes, 0.0)
    bias = operands[2] if len(operands) > 2 else None
    strides, dilations = tuple(attributes.get("strides", (1, 1))), tuple(attributes.get("dilations", (1, 1)))
    return functional.conv2d(x, operands[1], bias, strides, padding, dilations, attributes.get("group", 1))


def _max_pool(operands: list[Any], attributes: Attributes, _: list[list[int]]) -> Tensor:
    x, padding = _padded(operands[0], attributes, float("-inf"))
    kernel, strides = tuple(attributes["kernel_shape"]), tuple(attributes.get("strides", (1, 1)))
    return functional.max_pool2d(x, kernel, strides, padding, ceil_mode=bool(attributes.get("ceil_mode", 0)))


def _average_pool(operands: list[Any], attributes: Attributes, _: list[list[int]]) -> Tensor:
    pads, kernel = list(attributes.get("pads", [0, 0, 0, 0])), tuple(attributes["kernel_shape"])
    strides, counted = tuple(attributes.get("strides", (1, 1))), bool(attributes.get("count_include_pad", 0))
    if pads[:2] == pads[2:]:
        return functional.avg_pool2d(operands[0], kernel, strides, tuple(pads[:2]), count_include_pad=counted)
    around = (pads[1], pads[3], pads[0], pads[2])
    sums = functional.avg_pool2d(functional.pad(operands[0], around), kernel, strides)
    if counted:
        return sums
    return sums / functional.avg_pool2d(functional.pad(torch.ones_like(operands[0]), around), kernel, strides)


def _gemm(operands: list[Any], attributes: Attributes, _: list[list[int]]) -> Tensor:
    a, b = operands[0], operands[1]
    a = a.t() if attributes.get("transA") else a
    b = b.t() if attributes.get("transB") else b
    product = attributes.get("alpha", 1.0) * (a @ b)
    return product if len(operands) < 3 or operands[2] is None else product + attributes.get("beta", 1.0) * operands[2]


def _mean(operands: list[Any], attributes: Attributes, numbers: list[list[int]]) -> Tensor:
    axes = list(attributes["axes"]) if "axes" in attributes else numbers[1]
    return operands[0].mean(axes, keepdim=bool(attributes.get("keepdims", 1)))


def _reshape(operands: list[Any], _: Attributes, numbers: list[list[int]]) -> Tensor:
    shape = [size or operands[0].shape[axis] for axis, size in enumerate(numbers[1])]
    return operands[0].reshape(shape)


def _unsqueeze(operands: list[Any], attributes: Attributes, numbers: list[list[int]]) -> Tensor:
    x = operands[0]
    for axis in sorted(attributes["axes"] if "axes" in attributes else numbers[1]):
        x = x.unsqueeze(axis)
    return x


def _norm(operands: list[Any], attributes: Attributes, _: list[list[int]]) -> Tensor:
    x, weight, bias = operands[0], operands[1], operands[2] if len(operands) > 2 else None
    axis = attributes.get("axis", -1) % x.dim()
    return functional.layer_norm(x, x.shape[axis:], weight, bias, attributes.get("epsilon", 1e-5))


def _flat_softmax(operands: list[Any], attributes: Attributes, _: list[list[int]]) -> Tensor:
    x = operands[0]
    return torch.softmax(x.flatten(attributes.get("axis", 1)), -1).reshape(x.shape)


def _batch_norm(operands: list[Any], attributes: Attributes, _: list[list[int]]) -> Tensor:
    x, scale, bias, mean, variance = operands
    return functional.batch_norm(x, mean, variance, scale, bias, eps=attributes.get("epsilon", 1e-5))


GATES = {"lstm": [0, 2, 3, 1], "gru": [1, 0, 2]}
"""ONNX's places of the gates in PyTorch's order: i, o, f, c → i, f, c, o; and z, r, n → r, z, n."""


def _recurrent(kind: str, operands: list[Any], attributes: Attributes) -> tuple[Tensor, ...]:
    """All states (steps, directions, batch, hidden) and the last ones of a layer, by cuDNN where it is installed."""
    x, w, r, bias, _, *states = [*operands, *[None] * (7 - len(operands))]
    direction = attributes.get("direction", b"forward").decode()
    if direction == "reverse" or (kind == "gru" and not attributes.get("linear_before_reset", 0)):
        raise NotImplementedError(f"the PyTorch peer does not know a {direction} {kind} of this form")
    count, order = w.shape[0], GATES[kind]
    hidden = w.shape[1] // len(order)

    def sorted_gates(rows: Tensor) -> Tensor:
        return torch.cat([rows[gate * hidden : (gate + 1) * hidden] for gate in order]).contiguous()

    bias = torch.zeros(count, 2 * w.shape[1], dtype=w.dtype, device=w.device) if bias is None else bias
    weights = [sorted_gates(part) for d in range(count) for part in (w[d], r[d], *bias[d].reshape(2, -1))]
    zero = torch.zeros(count, x.shape[1], hidden, dtype=x.dtype, device=x.device)
    begin = [zero if state is None else state for state in states[: 2 if kind == "lstm" else 1]]
    run = torch.lstm if kind == "lstm" else torch.gru
    states_of_steps, *last = run(
        x, begin if kind == "lstm" else begin[0], weights, True, 1, 0.0, False, count == 2, False
    )
    return states_of_steps.reshape(*states_of_steps.shape[:2], count, hidden).transpose(1, 2), *last


def _squeeze(operands: list[Any], attributes: Attributes, numbers: list[list[int]]) -> Tensor:
    axes = list(attributes["axes"]) if "axes" in attributes else numbers[1] if len(numbers) > 1 else None
    return operands[0].squeeze() if axes is None else operands[0].squeeze(tuple(axes))


def _sum(operands: list[Any]) -> Tensor:
    total = operands[0]
    for other in operands[1:]:
        total = total + other
    return total


OPERATORS: dict[str, Callable[[list[Any], Attributes, list[list[int]]], Tensor | tuple[Tensor, ...]]] = {
    "Abs": lambda x, a, n: torch.abs(x[0]),
    "Add": lambda x, a, n: x[0] + x[1],
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Clip": lambda x, a, n: torch.clamp(x[0], *(x[1:] or (a.get("min"), a.get("max")))),
    "Concat": lambda x, a, n: torch.cat(x, a["axis"]),
    "Conv": _conv,
    "Div": lambda x, a, n: x[0] / x[1],
    "Dropout": lambda x, a, n: x[0],
    "Erf": lambda x, a, n: torch.erf(x[0]),
    "FlatSoftmax": _flat_softmax,
    "Flatten": lambda x, a, n: x[0].flatten(a.get("axis", 1)),
    "Gelu": lambda x, a, n: functional.gelu(x[0], approximate=a.get("approximate", b"none").decode()),
    "Gemm": _gemm,
    "GRU": lambda x, a, n: _recurrent("gru", x, a),
    "GlobalAveragePool": lambda x, a, n: x[0].mean((2, 3), keepdim=True),
    "Identity": lambda x, a, n: x[0],
    "LRN": lambda x, a, n: functional.local_response_norm(
        x[0], a["size"], a.get("alpha", 1e-4), a.get("beta", 0.75), a.get("bias", 1.0)
    ),
    "LSTM": lambda x, a, n: _recurrent("lstm", x, a),
    "LayerNormalization": _norm,
    "MatMul": lambda x, a, n: x[0] @ x[1],
    "MaxPool": _max_pool,
    "Mul": lambda x, a, n: x[0] * x[1],
    "Pow": lambda x, a, n: x[0] ** x[1],
    "ReduceMean": _mean,
    "Relu": lambda x, a, n: torch.relu(x[0]),
    "Reshape": _reshape,
    "Sigmoid": lambda x, a, n: torch.sigmoid(x[0]),
    "Softmax": lambda x, a, n: torch.softmax(x[0], a.get("axis", -1)),
    "Sqrt": lambda x, a, n: torch.sqrt(x[0]),
    "Squeeze": _squeeze,
    "Sub": lambda x, a, n: x[0] - x[1],
    "Sum": lambda x, a, n: _sum(x),
    "Tanh": lambda x, a, n: torch.tanh(x[0]),
    "Transpose": lambda x, a, n: x[0].permute(tuple(a["perm"])),
    "Unsqueeze": _unsqueeze,
}
