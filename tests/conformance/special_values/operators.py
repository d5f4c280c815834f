"""Models whose every output is one operator, or one operator with what is fused into it."""

from __future__ import annotations

from collections.abc import Callable
from enum import Flag, auto
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import TensorProto, helper, numpy_helper

OPSET = 21
MICROSOFT = "com.microsoft"

Shape = tuple[int, ...]


class Rule(Flag):
    """How a case may differ from ONNX Runtime; ``docs/correctness.md`` has a row for each.

    Attributes:
        OVERFLOW: a sum or product beyond the largest number, which another order does not reach.
        MORE_NAN: NaN where ONNX Runtime has another value, next to a NaN or an infinity.
        LESS_NAN: another value where ONNX Runtime has NaN.
        ORDER: an extreme of numbers one of which is NaN, or all of which are -infinity.
        FINITE: inputs that are not finite are not compared.
        SMALL: inputs with numbers near the largest are not compared.
    """

    NONE = 0
    OVERFLOW = auto()
    MORE_NAN = auto()
    LESS_NAN = auto()
    ORDER = auto()
    FINITE = auto()
    SMALL = auto()


class Cases:
    """Collects the nodes of one model, and the case that each of its outputs belongs to."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        self.shapes: dict[str, Shape] = {}
        self.outputs: dict[str, str] = {}
        self.rules: dict[str, Rule] = {}
        self._declared: dict[str, Shape] = {}
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []

    def input(self, name: str, *shape: int) -> str:
        self.shapes[name] = shape
        return name

    def constant(self, values: ArrayLike, dtype: type[np.generic] = np.float32) -> str:
        name = f"w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def ints(self, *values: int) -> str:
        return self.constant(values, np.int64)

    def weight(self, *shape: int, scale: float = 0.3) -> str:
        return self.constant(scale * self._rng.standard_normal(shape))

    def op(self, kind: str, *inputs: str, count: int = 1, domain: str = "", **attributes: Any) -> str:
        """A node's first output; the others end in ``_1``, ``_2`` …"""
        name = f"v{len(self._nodes)}"
        outputs = [name, *(f"{name}_{number}" for number in range(1, count))]
        self._nodes.append(helper.make_node(kind, inputs, outputs, domain=domain, **attributes))
        return name

    def case(self, name: str, value: str, rule: Rule = Rule.NONE, shape: Shape = ()) -> None:
        """Make ``value`` an output, which case ``name`` is about; ``shape`` where ONNX cannot infer it."""
        assert name not in self.rules, name
        if shape:
            self._declared[value] = shape
        self.outputs[value] = name
        self.rules[name] = rule

    @property
    def operators(self) -> set[str]:
        """Kinds of nodes."""
        return {str(node.op_type) for node in self._nodes}

    def model(self) -> onnx.ModelProto:
        inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, s) for name, s in self.shapes.items()]
        outputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, self._declared[name])
            if name in self._declared
            else onnx.ValueInfoProto(name=name)
            for name in self.outputs
        ]
        graph = helper.make_graph(self._nodes, "special_values", inputs, outputs, self._weights)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        del model.graph.output[:]
        model.graph.output.extend(inferred.graph.output)
        return model


UNARY: dict[str, dict[str, Any]] = {
    "Abs": {},
    "Acos": {},
    "Acosh": {},
    "Asin": {},
    "Asinh": {},
    "Atan": {},
    "Atanh": {},
    "Ceil": {},
    "Celu": {"alpha": 1.5},
    "Cos": {},
    "Cosh": {},
    "Elu": {},
    "Erf": {},
    "Exp": {},
    "Floor": {},
    "Gelu": {},
    "HardSigmoid": {},
    "HardSwish": {},
    "IsInf": {},
    "IsNaN": {},
    "LeakyRelu": {},
    "Log": {},
    "Mish": {},
    "Neg": {},
    "Reciprocal": {},
    "Relu": {},
    "Round": {},
    "Selu": {},
    "Shrink": {"lambd": 0.5, "bias": 0.1},
    "Sigmoid": {},
    "Sign": {},
    "Sin": {},
    "Sinh": {},
    "Softplus": {},
    "Softsign": {},
    "Sqrt": {},
    "Tan": {},
    "Tanh": {},
    "ThresholdedRelu": {},
}

BINARY = (
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Max",
    "Min",
    "Pow",
    "PRelu",
    "Equal",
    "Less",
    "LessOrEqual",
    "Greater",
    "GreaterOrEqual",
)


def unary(c: Cases, shape: Shape) -> None:
    x = c.input("x", *shape)
    for kind, attributes in UNARY.items():
        c.case(kind, c.op(kind, x, **attributes))
    c.case("Gelu tanh", c.op("Gelu", x, approximate="tanh"))
    c.case("IsInf positive", c.op("IsInf", x, detect_negative=0))
    c.case("Clip", c.op("Clip", x, c.constant(0.0), c.constant(6.0)))
    c.case("Clip above zero", c.op("Clip", x, c.constant(-0.5)))
    c.case("Clip below", c.op("Clip", x, "", c.constant(0.5)))
    c.case("Max with constant", c.op("Max", x, c.constant(0.25)))
    c.case("Min with constant", c.op("Min", x, c.constant(0.25)))
    c.case("constant Max", c.op("Max", c.constant(0.25), x))
    c.case("constant Min", c.op("Min", c.constant(0.25), x))
    c.case("constant Div", c.op("Div", c.constant(1.0), x))
    c.case("Swish", c.op("Mul", x, c.op("Sigmoid", x)))
    c.case("Pow two", c.op("Pow", x, c.constant(2.0)))
    c.case("Pow half", c.op("Pow", x, c.constant(0.5)))
    c.case("Pow fractional", c.op("Pow", x, c.constant(1.7)))
    c.case("constant Pow", c.op("Pow", c.constant(1.7), x))
    c.case("Mul by zero", c.op("Mul", x, c.constant(0.0)))
    for kind, zero in ((np.uint8, 120), (np.int8, 0)):
        byte = c.op("QuantizeLinear", x, c.constant(0.02), c.constant(zero, kind))
        c.case(f"QuantizeLinear {kind.__name__}", byte)
        c.case(
            f"DequantizeLinear {kind.__name__}",
            c.op("DequantizeLinear", byte, c.constant(0.02), c.constant(zero, kind)),
        )
    for kind in ("FLOAT16", "BFLOAT16", "DOUBLE"):
        narrow = c.op("Cast", x, to=getattr(TensorProto, kind))
        c.case(f"Cast {kind}", c.op("Cast", narrow, to=TensorProto.FLOAT))


def binary(c: Cases, shape: Shape) -> None:
    x, y, z = (c.input(name, *shape) for name in "xyz")
    for kind in BINARY:
        c.case(kind, c.op(kind, x, y))
    c.case("Mod", c.op("Mod", x, y, fmod=1))
    c.case("Max of three", c.op("Max", x, y, z))
    c.case("Min of three", c.op("Min", x, y, z))
    c.case("Mean", c.op("Mean", x, y, z))
    c.case("Sum", c.op("Sum", x, y, z))
    c.case("Where", c.op("Where", c.op("Less", x, y), z, x))
    c.case("Where NaN", c.op("Where", c.op("IsNaN", x), y, z))
    c.case("Relu of a sum", c.op("Relu", c.op("Add", x, y)))
    c.case("Clip of a product", c.op("Clip", c.op("Mul", x, y), c.constant(0.0), c.constant(6.0)))
    c.case("Add broadcast", c.op("Relu", c.op("Add", x, c.weight(shape[-1]))))


REDUCTIONS = (
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
)


def rows(c: Cases, shape: Shape) -> None:
    x = c.input("x", *shape)
    for kind in REDUCTIONS:
        rule = Rule.ORDER if kind in ("ReduceMax", "ReduceMin") else Rule.OVERFLOW
        rule |= Rule.MORE_NAN | Rule.LESS_NAN if kind == "ReduceProd" else Rule.NONE  # 0 · ∞ behind an underflow
        rule |= {"ReduceLogSumExp": Rule.MORE_NAN, "ReduceLogSum": Rule.SMALL}.get(kind, Rule.NONE)
        c.case(kind, c.op(kind, x, c.ints(-1), keepdims=0), rule)
        c.case(f"{kind} first axis", c.op(kind, x, c.ints(0), keepdims=1), rule)
        c.case(f"{kind} whole", c.op(kind, x, keepdims=1), rule)
    for kind in ("Softmax", "LogSoftmax"):
        c.case(kind, c.op(kind, x, axis=-1))
        c.case(f"{kind} first axis", c.op(kind, x, axis=0))
    c.case("Hardmax", c.op("Hardmax", x, axis=-1), Rule.ORDER)
    for kind in ("ArgMax", "ArgMin"):
        c.case(kind, c.op(kind, x, axis=-1), Rule.ORDER)
        c.case(f"{kind} last", c.op(kind, x, axis=0, select_last_index=1), Rule.ORDER)
    for largest in (0, 1):
        top = c.op("TopK", x, c.ints(3), count=2, largest=largest)
        c.case(f"TopK {largest}", top, Rule.ORDER)
        c.case(f"TopK {largest} indices", f"{top}_1", Rule.ORDER)
    c.case("CumSum", c.op("CumSum", x, c.ints(1)), Rule.OVERFLOW)
    c.case("LpNormalization", c.op("LpNormalization", x, p=2, axis=-1), Rule.OVERFLOW)
    norm = [c.weight(shape[-1]) for _ in range(2)]
    c.case("LayerNormalization", c.op("LayerNormalization", x, *norm), Rule.OVERFLOW)
    c.case("Relu of a LayerNormalization", c.op("Relu", c.op("LayerNormalization", x, *norm)), Rule.OVERFLOW)
    normal = c.op("MeanVarianceNormalization", x, axes=[1])
    c.case("MeanVarianceNormalization", normal, Rule.OVERFLOW | Rule.LESS_NAN)
    c.case("DynamicQuantizeLinear", c.op("DequantizeLinear", *_quantised(c, x)), Rule.FINITE)


def _quantised(c: Cases, x: str) -> tuple[str, str, str]:
    quantised = c.op("DynamicQuantizeLinear", x, count=3)
    return quantised, f"{quantised}_1", f"{quantised}_2"


ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSwish", "Softplus", "Elu")


def _epilogues(c: Cases, name: str, make: Callable[[], str], residual: str, rule: Rule) -> None:
    """What convolutions and products take in."""
    c.case(name, make(), rule)
    for kind in ACTIVATIONS:
        c.case(f"{kind} of a {name}", c.op(kind, make()), rule)
    c.case(f"Clip of a {name}", c.op("Clip", make(), c.constant(0.0), c.constant(6.0)), rule)
    value = make()
    c.case(f"Swish of a {name}", c.op("Mul", value, c.op("Sigmoid", value)), rule)
    c.case(f"{name} and sum", c.op("Relu", c.op("Add", make(), residual)), rule)
    c.case(f"{name} and product", c.op("Mul", make(), residual), rule)
    c.case(f"{name} and Max", c.op("Max", make(), residual), rule)


def products(c: Cases, rows: int, depth: int, columns: int) -> None:
    x, y, z = c.input("x", rows, depth), c.input("y", rows, columns), c.input("z", 2, depth, columns)
    batch = c.input("q", 2, rows, depth)
    _epilogues(c, "MatMul", lambda: c.op("MatMul", x, c.weight(depth, columns)), y, Rule.OVERFLOW)
    c.case("Gemm", c.op("Gemm", x, c.weight(columns, depth), c.weight(columns), transB=1), Rule.OVERFLOW)
    c.case("Gemm scaled", c.op("Gemm", x, c.weight(depth, columns), y, alpha=0.5, beta=2.0), Rule.OVERFLOW)
    c.case("MatMul of inputs", c.op("MatMul", batch, z), Rule.OVERFLOW)
    c.case("Einsum", c.op("Einsum", batch, z, equation="bij,bjk->bik"), Rule.OVERFLOW)


def convolutions(c: Cases, channels: int, size: int) -> None:
    x = c.input("x", 1, channels, size, size)
    y = c.input("y", 1, channels, size, size)
    rule = Rule.OVERFLOW

    def conv() -> str:
        return c.op("Conv", x, c.weight(channels, channels, 3, 3, scale=0.1), c.weight(channels), pads=[1] * 4)

    _epilogues(c, "Conv", conv, y, rule)
    _epilogues(
        c, "depthwise Conv", lambda: c.op("Conv", x, c.weight(channels, 1, 3, 3), pads=[1] * 4, group=channels), y, rule
    )
    c.case("Conv 1x1", c.op("Relu", c.op("Conv", x, c.weight(2 * channels, channels, 1, 1))), rule)
    strided = c.op("Conv", x, c.weight(channels, channels, 3, 3), strides=[2, 2], pads=[1] * 4)
    c.case("Conv stride", c.op("Relu", strided), rule)
    grouped = c.op("Conv", x, c.weight(channels, channels // 2, 3, 3), pads=[1] * 4, group=2)
    c.case("grouped Conv", grouped, rule | Rule.MORE_NAN)
    c.case(
        "ConvTranspose",
        c.op("Relu", c.op("ConvTranspose", x, c.weight(channels, channels, 2, 2), strides=[2, 2])),
        rule,
    )
    # Far from zero, next to which a rounding would decide; channels that only fill a block are 1 / 0.
    moved = c.op("Add", c.op("Conv", x, c.weight(channels, channels, 1, 1)), c.constant(np.full((channels, 1, 1), 16)))
    inner = c.op("Reciprocal", moved)
    c.case("Conv of a Reciprocal", c.op("Conv", inner, c.weight(channels, channels, 1, 1)), rule)


def images(c: Cases, channels: int, size: int) -> None:
    x = c.input("x", 1, channels, size, size)
    y = c.input("y", 1, channels, size, size)
    pooled = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
    for kind, rule in (("MaxPool", Rule.ORDER), ("AveragePool", Rule.OVERFLOW), ("LpPool", Rule.OVERFLOW)):
        c.case(kind, c.op(kind, x, **pooled), rule)
        c.case(f"{kind} unpadded", c.op(kind, x, kernel_shape=[2, 2], strides=[2, 2]), rule)
    c.case("AveragePool padding", c.op("AveragePool", x, count_include_pad=1, **pooled), Rule.OVERFLOW)
    c.case("MaxPool of a Relu", c.op("MaxPool", c.op("Relu", x), **pooled), Rule.ORDER)
    c.case("GlobalMaxPool", c.op("GlobalMaxPool", x), Rule.ORDER)
    for kind in ("GlobalAveragePool", "GlobalLpPool"):
        c.case(kind, c.op(kind, x), Rule.OVERFLOW)
    norm = [c.weight(channels) for _ in range(3)]
    c.case("BatchNormalization", c.op("Relu", c.op("BatchNormalization", x, *norm, c.constant(np.full(channels, 0.7)))))
    c.case("InstanceNormalization", c.op("InstanceNormalization", x, *norm[:2]), Rule.OVERFLOW)
    c.case("LRN", c.op("LRN", x, size=5), Rule.SMALL | Rule.LESS_NAN)
    c.case("Resize nearest", c.op("Resize", x, "", c.constant([1, 1, 2, 2]), mode="nearest"))
    for mode in ("linear", "cubic"):
        rule = Rule.OVERFLOW | Rule.LESS_NAN
        c.case(f"Resize {mode}", c.op("Resize", x, "", c.constant([1, 1, 2, 2]), mode=mode), rule)
    c.case("Concat", c.op("Concat", x, y, axis=1))
    c.case("Pad", c.op("Pad", x, c.ints(0, 0, 1, 1, 0, 0, 1, 1)))
    c.case("Transpose", c.op("Transpose", x, perm=[0, 2, 3, 1]))
    c.case("Gather", c.op("Gather", x, c.ints(3, 1, 0), axis=1))
    c.case("DepthToSpace", c.op("DepthToSpace", x, blocksize=2))
    c.case("Slice", c.op("Slice", x, c.ints(1), c.ints(size), c.ints(2), c.ints(2)))
    c.case("PRelu of channels", c.op("PRelu", x, c.weight(channels, 1, 1)))
    gate = c.op("Sigmoid", c.op("Conv", c.op("GlobalAveragePool", x), c.weight(channels, channels, 1, 1)))
    c.case("squeeze and excite", c.op("Mul", x, gate), Rule.OVERFLOW)


def sequences(c: Cases, steps: int, width: int, heads: int) -> None:
    x = c.input("x", steps, 1, width)
    for kind, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        weights = [c.weight(1, gates * width, width) for _ in range(2)]
        result = c.op(kind, x, *weights, c.weight(1, 2 * gates * width), hidden_size=width)
        c.case(kind, result, Rule.OVERFLOW | Rule.MORE_NAN)
    q, k, v = (c.input(name, 1, heads, steps, width // heads) for name in "qkv")
    mask = c.input("mask", 1, 1, steps, steps)

    def scores() -> str:
        return c.op("Mul", c.op("MatMul", q, c.op("Transpose", k, perm=[0, 1, 3, 2])), c.constant(0.5))

    def attended(weighed: str) -> str:
        return c.op("MatMul", c.op("Softmax", weighed, axis=-1), v)

    c.case("attention", attended(scores()), Rule.OVERFLOW)
    c.case("masked attention", attended(c.op("Add", scores(), mask)), Rule.OVERFLOW)
    flat = [c.input(f"{name} flat", 1, steps, width) for name in "qkv"]
    for causal in (0, 1):
        result = c.op("MultiHeadAttention", *flat, domain=MICROSOFT, num_heads=heads, unidirectional=causal)
        c.case(f"MultiHeadAttention {causal}", result, Rule.OVERFLOW, (1, steps, width))
    joined = c.op("LayerNormalization", c.op("Add", q, k), c.weight(width // heads))
    c.case("LayerNormalization of a sum", joined, Rule.OVERFLOW)


GROUPS: dict[str, Callable[[Cases], None]] = {
    "unary": lambda c: unary(c, (4, 64)),
    "unary odd": lambda c: unary(c, (3, 37)),
    "binary": lambda c: binary(c, (4, 64)),
    "binary odd": lambda c: binary(c, (3, 37)),
    "rows": lambda c: rows(c, (6, 64)),
    "rows odd": lambda c: rows(c, (5, 37)),
    "products": lambda c: products(c, 12, 64, 48),
    "products odd": lambda c: products(c, 5, 33, 10),
    "convolutions": lambda c: convolutions(c, 16, 12),
    "convolutions odd": lambda c: convolutions(c, 12, 9),
    "images": lambda c: images(c, 16, 12),
    "images odd": lambda c: images(c, 12, 9),
    "sequences": lambda c: sequences(c, 8, 64, 4),
    "sequences odd": lambda c: sequences(c, 5, 36, 3),
}


def cases(group: str) -> Cases:
    """The cases of one of ``GROUPS``."""
    all_cases = Cases()
    GROUPS[group](all_cases)
    return all_cases
