"""Random weights under which a deep network's outputs stay alive: finite, not constant, and led by the input.

Notation: m and v are mean and variance over a tensor's elements, as expected from the graph alone; n is a fan-in.

Weights are standardised (A. Brock et al., "Characterizing signal propagation to close the performance gap in
unnormalized ResNets", ICLR 2021, eq. 4):  W = (Z − mean(Z)) / (std(Z) √(n v_in))  over the fan-in, so that every
convolution and matrix product gives m = 0 and v = 1 whatever comes in, and the positive mean that a ReLU leaves does
not pile up until every input looks the same. He's scaling alone (no centring) lets deep outputs collapse. We depart
from the paper by following m and v through the graph instead of by one gain per block.

Centring alone makes a deep network chaotic: a ReLU lets 1/2 of a rounding error's variance through and leaves 0.34 of
the signal's, so that errors grew 700-fold through ResNet-50. Two things that trained networks have tame it: branches
that are added to a shortcut are small (RESIDUAL_GAIN), and what enters a ReLU is mostly positive (RELU_SHIFT).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

LOGIT_STD = 3.0
"""Spread of what a Softmax at the end sees: enough that some outputs are near 1 and a small error shows."""
SCORE_STD = 0.3
"""Spread of linear outputs: so small that rounding stays below the customary absolute tolerance of 1e-5 near 0."""

RESIDUAL_GAIN = 0.3
RELU_SHIFT = 0.7

LINEAR = ("Conv", "ConvTranspose", "Gemm", "MatMul")
RECURRENT = ("LSTM", "GRU", "RNN")


class Moments(NamedTuple):
    """Expected mean and variance of a tensor's elements."""

    mean: float
    variance: float


STANDARD = Moments(0.0, 1.0)
BOUNDED = {
    "Sigmoid": Moments(0.5, 0.04),
    "HardSigmoid": Moments(0.5, 0.03),
    "Tanh": Moments(0.0, 0.4),
    "Softmax": Moments(0.0, 1e-3),
    "Erf": Moments(0.0, 0.4),
    "LSTM": Moments(0.0, 0.05),
    "GRU": Moments(0.0, 0.1),
    "RNN": Moments(0.0, 0.3),
}
"""What leaves an operator that bounds its output, whatever of about m = 0, v = 1 comes in."""
VARIANCE_FACTOR = {"AveragePool": 0.5, "GlobalAveragePool": 0.1, "ReduceMean": 0.1}
"""v after ÷ v before of an operator that averages over neighbours. A guess between all equal and all independent."""


def rectified(moments: Moments) -> Moments:
    """Moments of max(0, x) for x normal with ``moments``: m Φ(m/σ) + σ φ(m/σ), and likewise of the square."""
    mean, std = moments.mean, math.sqrt(moments.variance)
    density = math.exp(-0.5 * (mean / std) ** 2) / math.sqrt(2 * math.pi)
    positive = 0.5 * (1 + math.erf(mean / std / math.sqrt(2)))
    first = mean * positive + std * density
    second = (mean**2 + std**2) * positive + mean * std * density
    return Moments(first, second - first**2)


class Refill:
    """One pass over a model's nodes in order, giving each weight its values by what consumes it.

    Args:
        model: topologically sorted; its weights are initialisers or ConstantOfShape nodes. Changed in place.
        seed: of every random number.
    """

    def __init__(self, model: onnx.ModelProto, seed: int) -> None:
        self.nodes = model.graph.node
        self.outputs = {value.name for value in model.graph.output}
        self.rng = np.random.default_rng(seed)
        self.weights = {tensor.name: tensor for tensor in model.graph.initializer}
        self.reshaped = {n.output[0]: n.input for n in self.nodes if n.op_type in ("Unsqueeze", "Reshape")}
        self.moments: dict[str, Moments] = {}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
        self.residual = self._residual_branches()
        self.done: set[str] = set()

    def run(self) -> None:
        """Fill every floating point weight of the graph."""
        for node in self.nodes:
            if node.op_type in LINEAR and self._is_weight(node.input[1]):
                self._linear(node)
            elif node.op_type in RECURRENT:
                self._recurrent(node)
            elif node.op_type == "BatchNormalization":
                self._batch_norm(node)
            elif node.op_type == "Gather":
                self._normal(node.input[0], 0.0, 1.0)
            elif node.op_type in ("Mul", "Add", "Sub", "Div", "PRelu", "LayerNormalization"):
                self._elementwise(node)
            self.moments.update(dict.fromkeys(node.output, self._moments_after(node)))
        self._scale_last()

    def _residual_branches(self) -> set[str]:
        """Outputs of linear and norm nodes that are added to something else: the ends of residual branches."""
        ends = {n.output[0] for n in self.nodes if n.op_type in (*LINEAR, "BatchNormalization")}
        sums = [
            set(n.input) for n in self.nodes if n.op_type in ("Sum", "Add") and not set(n.input) & set(self.weights)
        ]
        return {name for inputs in sums if inputs - ends for name in inputs & ends}

    def _source(self, name: str) -> str:
        """The initialiser behind ``name``, which may be a reshaped view of it."""
        return self.reshaped[name][0] if name in self.reshaped else name

    def _is_weight(self, name: str) -> bool:
        tensor = self.weights.get(self._source(name))
        return tensor is not None and tensor.data_type == onnx.TensorProto.FLOAT

    def _set(self, name: str, values: NDArray[np.floating]) -> None:
        """Give weight ``name`` its values, once: a shared weight keeps its first ones."""
        tensor = self.weights[self._source(name)]
        if tensor.name not in self.done:
            self.done.add(tensor.name)
            tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float32).reshape(tensor.dims), tensor.name))

    def _shape(self, name: str) -> tuple[int, ...]:
        """Shape that consumers of ``name`` see. Unsqueeze adds only ones, so the weight's own shape serves."""
        inputs = self.reshaped.get(name, ())
        if len(inputs) == 2 and inputs[1] in self.weights:
            values = np.empty(self.weights[inputs[0]].dims, np.bool_)
            return values.reshape(numpy_helper.to_array(self.weights[inputs[1]])).shape
        return tuple(self.weights[self._source(name)].dims)

    def _normal(self, name: str, mean: float, std: float) -> None:
        if name and self._is_weight(name):
            self._set(name, self.rng.normal(mean, std, self._shape(name)))

    def _standardised(self, shape: tuple[int, ...], axes: tuple[int, ...], v_in: float) -> NDArray[np.floating]:
        """W of ``shape`` with fan-in over ``axes``; see the module's formula. A fan-in below 4 is not centred."""
        fan_in = int(np.prod([shape[axis] for axis in axes]))
        values = self.rng.standard_normal(shape, np.float32)
        if fan_in >= 4:
            values -= values.mean(axis=axes, keepdims=True)
            values /= values.std(axis=axes, keepdims=True)
        values /= np.float32(np.sqrt(fan_in * v_in))
        return values

    def _linear(self, node: onnx.NodeProto) -> None:
        shape = self._shape(node.input[1])
        if node.op_type == "Conv":
            axes = tuple(range(1, len(shape)))
        elif node.op_type == "ConvTranspose":
            axes = (0, *range(2, len(shape)))
        else:
            transposed = any(a.name == "transB" and a.i for a in node.attribute)
            axes = (1,) if transposed else (len(shape) - 2,)
        gain = RESIDUAL_GAIN if node.output[0] in self.residual else 1.0
        self._set(node.input[1], gain * self._standardised(shape, axes, self._moments_of(node.input[0]).variance))
        if len(node.input) > 2:
            self._normal(node.input[2], self._shift(node), 0.1)

    def _recurrent(self, node: onnx.NodeProto) -> None:
        """W (dirs, gates·hidden, input) and R (dirs, gates·hidden, hidden); biases and peepholes small."""
        self._set(
            node.input[1],
            self._standardised(self._shape(node.input[1]), (2,), self._moments_of(node.input[0]).variance),
        )
        self._set(node.input[2], self._standardised(self._shape(node.input[2]), (2,), 1.0))
        for name in node.input[3:]:
            self._normal(name, 0.0, 0.1)

    def _batch_norm(self, node: onnx.NodeProto) -> None:
        _, scale, bias, mean, variance = node.input
        std = np.sqrt(self._moments_of(node.input[0]).variance)
        gain = RESIDUAL_GAIN if node.output[0] in self.residual else 1.0
        self._set(scale, gain * self.rng.uniform(0.8, 1.2, self._shape(scale)))
        self._normal(bias, self._shift(node), 0.1)
        self._normal(mean, 0.0, 0.1 * std)
        self._set(variance, self.rng.uniform(0.8, 1.2, self._shape(variance)) * std**2)

    def _elementwise(self, node: onnx.NodeProto) -> None:
        """A vector beside an activation: a scale near 1 or a small shift. Scalars are arithmetic, not weights."""
        for position, name in enumerate(node.input):
            if not self._is_weight(name) or np.prod(self._shape(name)) <= 1:
                continue
            if node.op_type == "PRelu":
                self._set(name, self.rng.uniform(0.1, 0.4, self._shape(name)))
            elif node.op_type in ("Mul", "Div") or (node.op_type == "LayerNormalization" and position == 1):
                self._set(name, self.rng.uniform(0.8, 1.2, self._shape(name)))
            else:
                self._normal(name, 0.0, 0.1)

    def _shift(self, node: onnx.NodeProto) -> float:
        """Mean of the bias of a linear or norm node: RELU_SHIFT where a ReLU is what comes next."""
        while len(self.readers.get(node.output[0], ())) == 1:
            node = self.readers[node.output[0]][0]
            if node.op_type in ("Relu", "Clip", "LeakyRelu"):
                return RELU_SHIFT
            if node.op_type not in ("Mul", "Add") or not any(self._is_weight(name) for name in node.input):
                break
        return 0.0

    def _moments_of(self, name: str) -> Moments:
        return self.moments.get(name, STANDARD)

    def _moments_after(self, node: onnx.NodeProto) -> Moments:
        """Moments of the node's output. A heuristic: elements are taken as normal and independent of each other."""
        known = [self.moments[name] for name in node.input if name in self.moments] or [STANDARD]
        mean = sum(moments.mean for moments in known)
        variance = sum(moments.variance for moments in known)
        if node.op_type == "MatMul" and not self._is_weight(node.input[1]):
            return Moments(0.0, 0.05 if known[0] == BOUNDED["Softmax"] else 1.0)  # attention averages its values
        if node.op_type in LINEAR or node.op_type in ("BatchNormalization", "LayerNormalization"):
            gain = RESIDUAL_GAIN if node.output[0] in self.residual else 1.0
            return Moments(self._shift(node), gain**2)
        if node.op_type == "Div" and len(known) == 2:
            return STANDARD  # a normalisation written out
        if node.op_type in BOUNDED:
            return BOUNDED[node.op_type]
        if node.op_type in ("Relu", "Clip", "LeakyRelu"):
            return rectified(known[0])
        if node.op_type in ("Sum", "Add", "Sub"):
            return Moments(mean, variance)
        if node.op_type == "Mul" and len(known) == 2:
            return Moments(known[0].mean * known[1].mean, 0.35 * max(moments.variance for moments in known))
        factor = VARIANCE_FACTOR.get(node.op_type, 1.0)
        return Moments(mean / len(known), max(factor * variance / len(known), 1e-4))

    def _scale_last(self) -> None:
        """Scale the last linear node to LOGIT_STD for a Softmax near the end, to SCORE_STD where it makes an output."""
        last = next((n for n in reversed(self.nodes) if n.op_type in LINEAR and self._is_weight(n.input[1])), None)
        softmax = next((n for n in reversed(self.nodes[-3:]) if n.op_type == "Softmax"), None)
        if last is None or (softmax is None and last.output[0] not in self.outputs):
            return
        gain = SCORE_STD
        if softmax is not None:
            gain = LOGIT_STD / math.sqrt(self._moments_of(softmax.input[0]).variance)
        tensor = self.weights[self._source(last.input[1])]
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(gain), tensor.name))


def materialise(model: onnx.ModelProto) -> None:
    """Turn ConstantOfShape nodes of known shape into zero initialisers, and weights listed as inputs into plain ones.

    Needs IR version 4 or newer, which this sets.
    """
    graph = model.graph
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    filled = [node for node in graph.node if node.op_type == "ConstantOfShape" and node.input[0] in shapes]
    used_as_shape = {node.input[0] for node in filled}
    kept = [tensor for tensor in graph.initializer if tensor.name not in used_as_shape]
    kept += [_zeros(node.output[0], shapes[node.input[0]]) for node in filled]
    outputs = {node.output[0] for node in filled}
    _replace(graph.node, [node for node in graph.node if node.output[0] not in outputs])
    _replace(graph.initializer, kept)
    _replace(graph.input, [value for value in graph.input if value.name not in shapes])
    model.ir_version = max(model.ir_version, 8)


def refill(model: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto:
    """The model with every floating point weight replaced by seeded random values (in place, and returned)."""
    materialise(model)
    Refill(model, seed).run()
    return model


def _zeros(name: str, shape: NDArray[np.int64]) -> onnx.TensorProto:
    return numpy_helper.from_array(np.zeros(tuple(shape), np.float32), name)


def _replace(field: Any, items: list[Any]) -> None:
    """Give a repeated protobuf field new items (which may be its own)."""
    copies = [type(item).FromString(item.SerializeToString()) for item in items]
    del field[:]
    field.extend(copies)
