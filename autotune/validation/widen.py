"""A model whose floats are widened to 64 bits: what its arithmetic would give if it did not round.

ONNX Runtime runs the widened graph. Every float of 16 or 32 bits becomes one of 64. What a quantised model rounds on
purpose is kept: QuantizeLinear and DequantizeLinear are written out as ONNX defines them, with exact quotients.

    QuantizeLinear      clip(round_half_even(x / scale) + zero_point)
    DequantizeLinear    (x - zero_point) · scale

Operators that are quantised themselves, such as QLinearConv, are spelled out with these (``quantised_operators``).

ONNX Runtime's CPU provider has no 64-bit convolution: ``exact_conv`` writes it as products of matrices, and
``exact_means`` means over positions. The few other operators without a 64-bit kernel (resizing, error functions …) run
in 32 bits between two casts: each rounds its inputs and its result once, which is little beside the thousands of
roundings of a model's sums. An input of the model that only they read stays as it is. A MatMulNBits that may round its
other operand to 8 bits (``accuracy_level``) is among them, and is told not to; a DynamicQuantizeLSTM becomes an LSTM.

A model of 16-bit floats may also be rounded where it says so, after every operator. So far is its own arithmetic from
exact; ONNX Runtime's CPU provider computes in 32 bits and is nearer.

A rounding that jumps hides how near it was: of two right programs one may round 0.4999999 up where the other rounds it
down. So the widened graph has an input, ``NOISE``: a factor of random numbers as large as the rounding of 32-bit (or
16-bit) sums, added before every quantiser. With 0 the outputs are exact, with 1 they show what such jumps are worth
(Parker, Monte Carlo Arithmetic, 1997).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import AttributeProto, NodeProto, TensorProto, helper, numpy_helper

from autotune.host.third_party import ThirdPartyError, third_party
from autotune.importer.onnx_model.graph_walk import subgraphs
from autotune.validation.arithmetic.exact_conv import convolution, transposed_convolution
from autotune.validation.arithmetic.exact_means import MEANS, write_mean
from autotune.validation.arithmetic.hoisted_branches import hoist_branches, only_chooses
from autotune.validation.arithmetic.model_work import conv_shapes, value_shapes
from autotune.validation.arithmetic.quantised_operators import results, spelled, unrounded_node
from autotune.validation.arithmetic.wide_types import (
    FLOATS,
    wide_kernels,
    widened_node,
    widened_tensor,
    widened_value,
)
from schedules.vocabulary.errors import ModelError

NOISE = "widened.noise"
"""Name of the factor of the random numbers: a 64-bit scalar, an input of models that quantise."""

ROUNDINGS = 4
"""Roundings of its type by which a quantiser's input is moved, of the largest value that it can tell. A blocked sum of
some thousand terms is off by that much. Heuristic, not measured."""


SHORT = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
"""Types that ONNX Runtime's CPU provider stores, and computes in 32 bits."""

INTEGERS: dict[int, tuple[int, int]] = {
    TensorProto.INT4: (-8, 7),
    TensorProto.UINT4: (0, 15),
    TensorProto.INT8: (-128, 127),
    TensorProto.UINT8: (0, 255),
    TensorProto.INT16: (-32768, 32767),
    TensorProto.UINT16: (0, 65535),
}
"""Types that QuantizeLinear saturates to, and their bounds."""

RUNTIME_TYPES = {
    f"tensor({name})": kind
    for name, kind in {
        "float": TensorProto.FLOAT,
        "float16": TensorProto.FLOAT16,
        "bfloat16": TensorProto.BFLOAT16,
        "double": TensorProto.DOUBLE,
        "bool": TensorProto.BOOL,
        **{name.lower(): getattr(TensorProto, name) for name in ("INT4", "UINT4", "INT8", "UINT8", "INT16", "UINT16")},
        **{name.lower(): getattr(TensorProto, name) for name in ("INT32", "UINT32", "INT64", "UINT64")},
    }.items()
}
"""ONNX Runtime's names of types."""

WRITTEN = {
    **dict.fromkeys(MEANS, "_mean"),
    "Conv": "_conv",
    "ConvTranspose": "_conv",
    "QuantizeLinear": "_quantize",
    "DequantizeLinear": "_dequantize",
    "DynamicQuantizeLinear": "_dynamic_quantize",
}
"""Operators that are written out → the method that does it."""

CLAIMED = frozenset({"LSTM", "GRU"})
"""Operators that ONNX Runtime registers for 64 bits and then refuses to run."""


class NotWidenedError(Exception):
    """The model cannot be widened; the message says what of it."""


def is_short(model: onnx.ModelProto) -> bool:
    """Return whether ``model`` has values of 16-bit floats."""
    graph = model.graph
    values = (*graph.input, *graph.value_info, *graph.output)
    return any(value.type.tensor_type.elem_type in SHORT for value in values)


def widen(model: onnx.ModelProto, rounded: bool = False) -> tuple[onnx.ModelProto, bool]:
    """``model`` in 64 bits, and whether it has the input ``NOISE``.

    Args:
        model: checked, its shapes fixed and inferred; it is not changed.
        rounded: whether what an operator makes is rounded to 16 bits where the model says so.

    Raises:
        NotWidenedError: if it has subgraphs that compute something in turns, or values whose type is not known.
    """
    try:
        model = hoist_branches(model)
    except ModelError as error:
        raise NotWidenedError(f"a branch of it does not fit: {error}") from error
    widened = _Widened(model, rounded)
    return widened.model(), widened.noisy


class _Widened:
    """The new graph, node by node."""

    def __init__(self, model: onnx.ModelProto, rounded: bool) -> None:
        self._old, self._rounded = model, rounded
        self._opsets = {opset.domain or "onnx": opset.version for opset in model.opset_import}
        self._weights: list[TensorProto] = []
        self._narrow = frozenset[str]()
        self.nodes: list[NodeProto] = []
        self.noisy = False
        self.types: dict[str, int] = {}
        """Types in the old model, by value."""
        self.shapes = value_shapes(model)
        graph = model.graph
        for value in (*graph.input, *graph.value_info, *graph.output):
            self.types[value.name] = value.type.tensor_type.elem_type
        for weight in graph.initializer:
            self.types[weight.name] = weight.data_type
        produced = [value for node in graph.node for value in node.output if value]
        unknown = [value for value in produced if not self.types.get(value) or value not in self.shapes]
        if unknown:
            self._ask_runtime(unknown)
        self.shapes.update(conv_shapes(model, self.shapes))

    def _ask_runtime(self, names: list[str]) -> None:
        """Note types and shapes that ONNX's inference does not know, as behind operators of other domains."""
        try:
            values = _runtime_values(self._old, names)
        except NotWidenedError:
            if all(self.types.get(name) for name in names):  # a shape alone may not be needed
                return
            raise
        for value in values:
            if value.type in RUNTIME_TYPES:
                self.types[value.name] = RUNTIME_TYPES[value.type]
            if value.shape and all(isinstance(size, int) for size in value.shape):
                self.shapes.setdefault(value.name, tuple(value.shape))

    def model(self) -> onnx.ModelProto:
        """The widened model."""
        graph = self._old.graph
        if graph.sparse_initializer:
            raise NotWidenedError("it has sparse weights")
        self._weights = [widened_tensor(weight) for weight in graph.initializer]
        self._narrow = self._read_in_32_bits()
        for node in graph.node:
            first = len(self.nodes)
            self._add(node)
            if self._rounded:
                self._round(node, first)
        inputs = [value if value.name in self._narrow else widened_value(value) for value in graph.input]
        if self.noisy:
            inputs.append(helper.make_tensor_value_info(NOISE, TensorProto.DOUBLE, []))
        outputs = [widened_value(value) for value in graph.output]
        widened = helper.make_graph(self.nodes, "widened", inputs, outputs, self._weights)
        return helper.make_model(widened, opset_imports=self._old.opset_import, ir_version=self._old.ir_version)

    # What the operators are written with.

    def constant(self, array: NDArray[Any]) -> str:
        """The name of a new weight."""
        name = f"widened.w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(array, name))
        return name

    def emit(self, op: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """The output of a new node; it is called ``output`` if that is given."""
        output = output or f"widened.v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], f"widened.n{len(self.nodes)}", **attributes))
        return output

    def reshaped(self, value: str, shape: Iterable[int], output: str = "") -> str:
        """``value`` in another shape."""
        return self.emit("Reshape", value, self.constant(np.array(list(shape), np.int64)), output=output)

    def _is_float(self, value: str) -> bool:
        if value not in self.types:
            raise NotWidenedError(f"the type of '{value}' is not known")
        return self.types[value] in FLOATS

    def _read_in_32_bits(self) -> frozenset[str]:
        """Inputs of the model that only operators without a 64-bit kernel read.

        Between two casts they would be values like any other, which ONNX Runtime's attention takes for its results'
        memory, and refuses for its size.
        """
        graph = self._old.graph
        left = {value.name for value in graph.input if self.types[value.name] == TensorProto.FLOAT}
        for node in graph.node:
            if only_chooses(node):
                left -= {name for body in subgraphs(node) for inner in body.node for name in inner.input}
            if node.op_type in WRITTEN or spelled(node) or self._has_kernel(node):
                left -= set(node.input)
        return frozenset(left - {value.name for value in graph.output})

    def _add(self, node: NodeProto) -> None:
        if only_chooses(node):
            self.nodes.append(widened_node(node))
            return
        if any(attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for attribute in node.attribute):
            raise NotWidenedError(f"it has a {node.op_type} with a graph of its own")
        written = WRITTEN.get(node.op_type if node.domain in ("", "ai.onnx") else "")
        if written is not None and getattr(self, written)(node):
            return
        if parts := spelled(node):
            for value, like in results(parts):
                self.types.setdefault(value, TensorProto.FLOAT)
                if like in self.shapes:
                    self.shapes.setdefault(value, self.shapes[like])
            for part, _ in parts:
                self._add(part)
            return
        if node.op_type == "MatMulNBits":
            node = unrounded_node(node)
        elif node.op_type == "DynamicQuantizeLSTM":
            node = self._unrounded_lstm(node)
        if self._has_kernel(node):
            self.nodes.append(widened_node(node))
        else:
            self._in_32_bits(node)

    def _unrounded_lstm(self, node: NodeProto) -> NodeProto:
        """An LSTM by weights of 8 bits, widened, whose other operands stay as they are."""
        inputs = list(node.input[:8])
        for place, scale, zero in ((1, 8, 9), (2, 10, 11)):
            directions = (self.shapes.get(node.input[scale]) or (1,))[0] or 1
            spread = (directions, 1, -1)
            values = self.emit(
                "Sub", self._double(node.input[place]), self.reshaped(self._double(node.input[zero]), spread)
            )
            wide = self.emit("Mul", values, self.reshaped(node.input[scale], spread))
            inputs[place] = self.emit("Transpose", wide, perm=[0, 2, 1])
            self.types[inputs[place]] = TensorProto.FLOAT
        copy = helper.make_node("LSTM", inputs, node.output, node.name)
        copy.attribute.extend(node.attribute)
        return copy

    def _has_kernel(self, node: NodeProto) -> bool:
        """Return whether the node can run as it is, on floats of 64 bits."""
        if not any(self._is_float(value) for value in (*node.input, *node.output) if value):
            return True
        domain = node.domain if node.domain != "ai.onnx" else ""
        kernels = wide_kernels().get((domain, node.op_type), ())
        version = self._opsets.get(domain or "onnx", 1)
        try:
            since = onnx.defs.get_schema(node.op_type, version, domain).since_version
        except onnx.defs.SchemaError:
            return False
        return node.op_type not in CLAIMED and any(first <= since <= last for first, last in kernels)

    def _in_32_bits(self, node: NodeProto) -> None:
        copy = NodeProto()
        copy.CopyFrom(node)
        for index, value in enumerate(node.input):
            if value and self._is_float(value) and value not in self._narrow:
                copy.input[index] = self.emit("Cast", value, to=TensorProto.FLOAT)
        outputs = [(index, value) for index, value in enumerate(node.output) if value and self._is_float(value)]
        for index, value in outputs:
            copy.output[index] = f"{value}.32"
        for attribute in copy.attribute:
            if attribute.name in ("to", "dtype", "output_dtype") and attribute.i in FLOATS:
                attribute.i = TensorProto.FLOAT
        self.nodes.append(copy)
        for index, value in outputs:
            self.emit("Cast", copy.output[index], output=value, to=TensorProto.DOUBLE)

    def _round(self, node: NodeProto, first: int) -> None:
        """Round the outputs of ``node``, which are written from node ``first`` on, to their type in the model."""
        for value in node.output:
            if (kind := self.types.get(value, TensorProto.UNDEFINED)) in SHORT:
                for emitted in self.nodes[first:]:
                    emitted.output[:] = [f"{value}.exact" if name == value else name for name in emitted.output]
                self.emit("Cast", self.emit("Cast", f"{value}.exact", to=kind), output=value, to=TensorProto.DOUBLE)

    # Operators that are written out. Each says whether it could.

    def _conv(self, node: NodeProto) -> bool:
        shapes = [self.shapes.get(value) for value in (node.input[0], node.input[1], node.output[0])]
        if any(shape is None or None in shape for shape in shapes):
            raise NotWidenedError(f"the shape of the convolution '{node.name}' is not known")
        write = convolution if node.op_type == "Conv" else transposed_convolution
        write(self, node, *shapes)  # type: ignore[arg-type]  # checked the line before
        return True

    def _mean(self, node: NodeProto) -> bool:
        return write_mean(self, node, self.shapes.get(node.input[0]), self._opsets.get("onnx", 1))

    def _quantize(self, node: NodeProto) -> bool:
        attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        zero = node.input[2] if len(node.input) > 2 else ""
        kind = self.types.get(node.output[0], TensorProto.UNDEFINED)
        if attributes.get("block_size", 0) or kind not in INTEGERS:
            return False
        low, high = INTEGERS[kind]
        spacing = FLOATS.get(self.types.get(node.input[0], TensorProto.FLOAT), 0.0)
        exact = self.emit("Div", node.input[0], self._along(node.input[1], node.input[0], attributes))
        rounded = self.emit("Round", self._shaken(exact, ROUNDINGS * spacing * (high - low)))
        if zero:
            rounded = self.emit("Add", rounded, self._along(self._double(zero), node.input[0], attributes, zero))
        bounds = (self.constant(np.array(bound, np.float64)) for bound in (low, high))
        clipped = self.emit("Min", self.emit("Max", rounded, next(bounds)), next(bounds))
        self.emit("Cast", clipped, output=node.output[0], to=kind)
        return True

    def _dequantize(self, node: NodeProto) -> bool:
        attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        if attributes.get("block_size", 0):
            return False
        value, zero = self._double(node.input[0]), node.input[2] if len(node.input) > 2 else ""
        if zero:
            value = self.emit("Sub", value, self._along(self._double(zero), node.input[0], attributes, zero))
        self.emit("Mul", value, self._along(node.input[1], node.input[0], attributes), output=node.output[0])
        return True

    def _dynamic_quantize(self, node: NodeProto) -> bool:
        """Its input moved by the noise; its scale is chosen in 32 bits, as ONNX says."""
        low, high = INTEGERS[TensorProto.UINT8]
        spacing = FLOATS.get(self.types.get(node.input[0], TensorProto.FLOAT), 0.0)
        largest = self.emit("Abs", node.input[0])
        moved = self._shaken(node.input[0], ROUNDINGS * spacing * (high - low) / high, largest)
        copy = NodeProto()
        copy.CopyFrom(node)
        copy.input[0] = moved
        self.types[moved] = TensorProto.FLOAT
        self._in_32_bits(copy)
        return True

    def _shaken(self, value: str, deviation: float, scale: str = "") -> str:
        """``value`` plus normal numbers of that standard deviation (times ``scale``) times the noise."""
        self.noisy = True
        numbers = self.emit("RandomNormalLike", value, dtype=TensorProto.DOUBLE, seed=float(len(self.nodes)))
        factor = self.emit("Mul", NOISE, self.constant(np.array(deviation, np.float64)))
        added = self.emit("Mul", numbers, factor)
        return self.emit("Add", value, self.emit("Mul", added, scale) if scale else added)

    def _double(self, value: str) -> str:
        return self.emit("Cast", value, to=TensorProto.DOUBLE)

    def _along(self, value: str, data: str, attributes: dict[str, Any], name: str = "") -> str:
        """``value``, a scale or zero point called ``name`` in the old model, shaped to be applied along an axis."""
        shape, rank = self.shapes.get(name or value), self.shapes.get(data)
        if shape is not None and (len(shape) != 1 or shape[0] == 1):
            return self.reshaped(value, ()) if shape else value
        if shape is None or rank is None:
            raise NotWidenedError(f"the shapes of '{data}' and '{name or value}' are not known")
        axis = attributes.get("axis", 1) % len(rank)
        return self.reshaped(value, (-1, *(1 for _ in rank[axis + 1 :])))


def _runtime_values(model: onnx.ModelProto, names: list[str]) -> list[Any]:
    """Name, type and shape of values, as ONNX Runtime has them."""
    import onnxruntime  # optional: an extra

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    known = {value.name for value in copy.graph.output}
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in known)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        with third_party():
            session = onnxruntime.InferenceSession(
                copy.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
    except ThirdPartyError as error:
        raise NotWidenedError(f"ONNX Runtime does not say the types of its values: {error}") from error
    return list(session.get_outputs())
