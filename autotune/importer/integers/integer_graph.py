"""A quantised model whose products are of 8-bit integers, with one rounding behind each: in ONNX's own operators.

What quantisers write, Q(f(DQ(x))), is rewritten in steps, each over the whole graph. Q is QuantizeLinear, DQ is
DequantizeLinear, s and z are scales and zero points:

    Moved      f moves elements: f(DQ(x)) = DQ(f(x)), Q(f(x)) = f(Q(x)); and Q(DQ(x)) = x where s and z are equal
    Tables     what is computed of one byte, and rounded to one, is looked up (``byte_tables.py``)
    Products   Conv(DQ(x), DQ(w), DQ(b)) = (ConvInteger(x, w) + b) · (s of x · s of w); MatMul and Gemm the same
    Divided    Q(y · c) = Q'(y · (c / s)), where the scale of Q' is 1: what ONNX Runtime multiplies sums by
    OneType    int8 tensors become uint8 ones of zero point z + 128, or uint8 ones int8: as instructions multiply them

What is left of Q and DQ is arithmetic on single elements (``operators/quantised.py``), which is fused into the products
before and behind it. The products become kernels in ``operators/contractions/integer_products.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from autotune.importer.fusion.scales import split_batch_norms
from autotune.importer.integers.byte_tables import TABLE, Tables
from autotune.importer.integers.levels import Levels, LevelsStep
from autotune.importer.onnx_model.graph_edits import tidy
from autotune.importer.onnx_model.graph_walk import MOVES, attributes_of
from autotune.importer.onnx_model.shapes import infer_shapes
from autotune.importer.operators.contractions.integer_products import OFFSET
from autotune.importer.operators.quantised import GEOMETRY
from autotune.importer.rewriting.emit import FLOAT
from autotune.importer.rewriting.registry import rewrite, split_to_slices

SPELLED = ("QLinearConv", "QLinearMatMul")
"""Quantised operators whose rewrites make integer products of them at once."""

DEEPEST = 16
"""Operators between two quantisers that are looked through: a bound of the search."""


def make_integer(
    model: ModelProto, inputs: Collection[str], weights: Mapping[str, TensorProto], activations: str
) -> None:
    """Rewrite a quantised model in place; another one is left as it is.

    Args:
        model: a skeleton (``shapes.skeleton``), its functions expanded.
        inputs: names of its true inputs.
        weights: the initialisers of the whole model, by name.
        activations: uint8 or int8, the type that products read where it can be chosen.
    """
    if not any(node.op_type.endswith(("QuantizeLinear", "DequantizeLinear", *SPELLED)) for node in model.graph.node):
        return
    tidy(model.graph)
    infer_shapes(model, strict=False)
    split_to_slices(model)
    split_batch_norms(model)
    rewrite(model, inputs, only=SPELLED)
    for step in (_Moved, Tables, _Products, _Divided, partial(_OneType, activations)):
        infer_shapes(model, strict=False)
        step(model, inputs, weights).run()
        tidy(model.graph)


def _is_move(node: NodeProto) -> bool:
    """Return whether quantising before or behind ``node`` is the same."""
    if node.op_type in ("Resize", "Upsample"):
        modes = attributes_of(node)
        return modes.get("mode", b"nearest") == b"nearest" and b"crop" not in modes.get(
            "coordinate_transformation_mode", b""
        )
    return node.op_type in MOVES | {"MaxPool"} and sum(map(bool, node.output)) == 1


class _Moved(LevelsStep):
    """Dequantisers sink below what moves elements, quantisers rise above it, and pairs of equal parameters vanish."""

    def __init__(self, model: ModelProto, inputs: Collection[str], weights: Mapping[str, TensorProto]) -> None:
        super().__init__(model, inputs, weights)
        self._integers: dict[str, Levels] = {}  # value in fp32 → the integers that it is

    def replaced(self, node: NodeProto) -> bool:
        """See the module's docstring."""
        if node.op_type == "DequantizeLinear" and (levels := self.levels(node)) is not None:
            self._integers[node.output[0]] = levels
        if node.op_type == "QuantizeLinear":
            known, wanted = self._integers.get(node.input[0]), self.levels(node)
            if known is None or wanted is None or known.key != wanted.key:
                return False
            self.called("Identity", [known.q], node.output[0])  # the integers that its input was made of
            return True
        return (node.op_type == "Concat" or _is_move(node)) and self._moved(node)

    def _moved(self, node: NodeProto) -> bool:
        """Move integers in place of numbers, if they are integers before or will be behind."""
        count = len(node.input) if node.op_type == "Concat" else 1
        data = [str(name) for name in node.input[:count]]
        known = [self._integers.get(name) for name in data]
        behind = self._behind(node)
        goal = behind or known[0]
        if goal is None:
            return False
        if behind is None and any(levels is None or levels.key != goal.key for levels in known):
            return False
        if behind is not None and goal.axis is not None:
            return False
        axis = goal.axis
        if axis is not None:
            if node.op_type != "Transpose" or "perm" not in (attributes := attributes_of(node)):
                return False
            axis = list(attributes["perm"]).index(axis)
        parts = [
            levels.q if levels is not None and levels.key == goal.key else self.quantised(name, goal).q
            for name, levels in zip(data, known, strict=True)
        ]
        q = self.op(node.op_type, *parts, *node.input[count:], **attributes_of(node))
        self._integers[node.output[0]] = replace(goal, q=q, axis=axis, key=(goal.key[0], axis, *goal.key[2:]))
        self.dequantised(self._integers[node.output[0]], node.output[0])
        return True

    def _behind(self, node: NodeProto) -> Levels | None:
        """The levels that the result is quantised to, perhaps after more moves, where that is its only use."""
        reader = self.only_reader(node.output[0])
        while reader is not None and _is_move(reader) and reader.input[0] == node.output[0]:
            node = reader
            reader = self.only_reader(node.output[0])
        if reader is None or reader.op_type != "QuantizeLinear" or reader.input[0] != node.output[0]:
            return None
        levels = self.levels(reader)
        settled = levels is not None and all(not n or self.is_constant(n) for n in (levels.scale, levels.zero))
        return levels if settled and levels is not None and levels.axis is None else None


class _Products(LevelsStep):
    """Products of 8-bit activations and 8-bit weights are summed as integers."""

    def __init__(self, model: ModelProto, inputs: Collection[str], weights: Mapping[str, TensorProto]) -> None:
        super().__init__(model, inputs, weights)
        self._integers: dict[str, Levels] = {}
        for node in model.graph.node:
            if node.op_type == "DequantizeLinear" and (levels := self.levels(node)) is not None:
                self._integers[node.output[0]] = levels

    def replaced(self, node: NodeProto) -> bool:
        """Emit the integer product of ``node``, if it is one."""
        if node.op_type not in ("Conv", "MatMul", "Gemm"):
            return False
        x, w = (self._integers.get(name) for name in node.input[:2])
        attributes = attributes_of(node)
        if x is None or w is None or x.axis is not None or self.is_constant(x.q) or not self.is_constant(w.q):
            return False
        rank = len(self.scope.shapes.get(w.q, ()))
        is_conv, is_turned = node.op_type == "Conv", bool(attributes.get("transB", 0))
        filters = 0 if is_conv or is_turned else 1
        if (rank not in (3, 4) if is_conv else rank != 2) or w.axis not in (None, filters):
            return False
        if attributes.get("transA", 0):
            return False
        is_centred = not w.zero or ((known := self.array(w.zero)) is not None and not known.any())
        zeros = [self.reshape(x.zero) if x.zero else "", "" if is_centred else self._per_filter(w.zero, w)]
        if is_conv:
            geometry = {name: attributes[name] for name in GEOMETRY if name in attributes}
            product = self.op("ConvInteger", x.q, w.q, *zeros, **geometry)
            places = [1, -1, *[1] * (rank - 2)]
        else:
            weight = self.transpose(w.q, 1, 0) if is_turned else w.q
            product, places = self.op("MatMulInteger", x.q, weight, *zeros), [-1]
        scale = self.op("Mul", self.reshape(x.scale), self._per_filter(w.scale, w))
        bias = str(node.input[2]) if len(node.input) > 2 else ""
        integers = self._integer_bias(bias, x, w) if attributes.get("alpha", 1.0) == attributes.get("beta", 1.0) else ""
        if integers:
            product = self.op("Add", product, self.reshape(integers, *places))
        if attributes.get("alpha", 1.0) != 1.0:
            scale = self.op("Mul", scale, self.const(np.float32(attributes["alpha"])))
        factor = self.reshape(scale, *places) if w.axis is not None else scale
        scaled = self.op("Mul", self.cast(product, FLOAT), factor)
        if bias and not integers:
            if attributes.get("beta", 1.0) != 1.0:
                bias = self.op("Mul", bias, self.const(np.float32(attributes["beta"])))
            scaled = self.op("Add", scaled, self.reshape(bias, *places) if is_conv else bias)
        self.called("Identity", [scaled], node.output[0])
        return True

    def _per_filter(self, name: str, w: Levels) -> str:
        """A scale or zero point of the weight as a number or a vector."""
        return self.reshape(name) if w.axis is None else name

    def _integer_bias(self, bias: str, x: Levels, w: Levels) -> str:
        """The integers of a bias on the scale of the sums; "" if it is on another."""
        maker = self.makers.get(bias)
        if maker is None or maker.op_type != "DequantizeLinear":
            return ""
        if self.scope.types.get(maker.input[0]) != TensorProto.INT32 or not self.is_constant(maker.input[0]):
            return ""
        zero = self.array(maker.input[2]) if len(maker.input) > 2 and maker.input[2] else np.zeros(())
        scales = [self.array(name) for name in (maker.input[1], x.scale, w.scale)]
        if zero is None or zero.any() or any(scale is None for scale in scales):
            return ""
        own, of_x, of_w = (np.asarray(scale, np.float32) for scale in scales)
        wanted = of_x.reshape(()) * of_w
        if own.size not in (1, wanted.size) or not np.allclose(own.reshape(-1), wanted.reshape(-1), 1e-5, 0):
            return ""
        shape = self.scope.shapes.get(maker.input[0], ())
        return str(maker.input[0]) if len(shape) == 1 else ""


class _Divided(LevelsStep):
    """Quantisers take the scale off what they round: constants before them are divided by it."""

    THROUGH = frozenset(
        {
            *("Relu", "LeakyRelu", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "ReduceMean"),
            *("ReduceSum", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze"),
        }
    )
    """Operators f of one tensor with f(x / s) = f(x) / s for s > 0."""
    TOGETHER = frozenset({"Add", "Sub", "Max", "Min", "Concat", "Sum"})
    """The same of several tensors."""
    PICKS = MOVES | {"Relu", "Clip", "Concat", "MaxPool", "GlobalMaxPool", "Max", "Min", "Resize", "Upsample"}
    """Operators whose results are numbers that they read."""
    ALONE = frozenset({"LeakyRelu", "Neg", "Abs", "Add", "Sub", "Mul", "Div"})
    """Operators whose results are as few as numbers that they read, if other operands are constants."""

    def replaced(self, node: NodeProto) -> bool:
        """See the module's docstring."""
        levels = self.levels(node) if node.op_type == "QuantizeLinear" else None
        if levels is None or levels.axis is not None or not self.is_constant(levels.scale):
            return False
        x = self._unclipped(str(node.input[0]), levels)
        if (known := self.array(levels.scale)) is None or float(known.reshape(())) != 1.0:
            scale = self.reshape(levels.scale)
            ratio = "" if self._is_picked(x, 0) else self._ratio(x, scale, 0)
            if ratio:
                x, levels = ratio, replace(levels, scale=self.const(np.float32(1)))
        inputs = [x, levels.scale, *([levels.zero] if levels.zero else [])]
        self.called("QuantizeLinear", inputs, node.output[0], **attributes_of(node))
        return True

    def _unclipped(self, x: str, levels: Levels) -> str:
        """Return the input of a Relu that the range of the integers replaces."""
        maker = self.makers.get(x)
        if maker is None or maker.op_type != "Relu" or self.only_reader(x) is None:
            return x
        zero = self.array(levels.zero) if levels.zero else np.zeros(())
        least = 0 if levels.kind == TensorProto.UINT8 else -128
        return str(maker.input[0]) if zero is not None and zero.size == 1 and int(zero.reshape(())) == least else x

    def _is_picked(self, x: str, depth: int) -> bool:
        """Return whether ``x`` has numbers that bytes stand for, or functions of one such number.

        They are multiples of a scale, so many lie halfway between two levels of the other: 3 · 0.05 is 2.5 · 0.06.
        Such are rounded as in ONNX Runtime only if they are multiplied and divided as there.
        """
        maker = self.makers.get(x)
        if maker is None or depth > DEEPEST:
            return self.is_constant(x)
        if maker.op_type == "DequantizeLinear":
            return True
        if maker.op_type in self.ALONE:
            varied = [str(name) for name in maker.input if not self.is_constant(name)]
            return len(varied) == 1 and self._is_picked(varied[0], depth + 1)
        if maker.op_type not in self.PICKS or (maker.op_type in ("Resize", "Upsample") and not _is_move(maker)):
            return False
        several = maker.op_type in ("Concat", "Max", "Min")
        return all(self._is_picked(str(name), depth + 1) for name in maker.input[: None if several else 1])

    def _ratio(self, x: str, scale: str, depth: int) -> str:
        """``x`` / ``scale``, divided where constants are; "" if that is nowhere."""
        if self.is_constant(x):
            return self.op("Div", x, scale) if self.scope.types.get(x) == FLOAT else ""
        maker = self.makers.get(x)
        if maker is None or depth > DEEPEST:
            return ""
        inputs, attributes = [str(name) for name in maker.input], attributes_of(maker)
        if maker.op_type == "DequantizeLinear":
            levels = self.levels(maker)
            if levels is None or levels.axis is not None or not self.is_constant(levels.scale):
                return ""
            return self.dequantised(replace(levels, scale=self.op("Div", self.reshape(levels.scale), scale)))
        if self.only_reader(x) is None:
            return ""
        if maker.op_type == "Mul":
            for mine, other in (inputs, inputs[::-1]):
                if self.is_constant(mine):
                    return self.op("Mul", other, self.op("Div", mine, scale))
            inputs, kept = inputs[:1], inputs[1:]
        elif maker.op_type == "Clip":
            if not all(not name or self.is_constant(name) for name in inputs[1:]):
                return ""
            kept = [self.op("Div", name, scale) if name else "" for name in inputs[1:]]
            inputs = inputs[:1]
        elif maker.op_type in self.THROUGH:
            inputs, kept = inputs[:1], inputs[1:]
        elif maker.op_type in self.TOGETHER:
            kept = []
        else:
            return ""
        parts = [self._ratio(name, scale, depth + 1) for name in inputs]
        return self.op(maker.op_type, *parts, *kept, **attributes) if all(parts) else ""


class _OneType(LevelsStep):
    """Activations of the other type of 8 bits become of type ``wanted``, their zero points 128 more or less."""

    def __init__(
        self, wanted: str, model: ModelProto, inputs: Collection[str], weights: Mapping[str, TensorProto]
    ) -> None:
        super().__init__(model, inputs, weights)
        self._wanted, self._more = wanted, OFFSET if wanted == "uint8" else -OFFSET
        kinds = (TensorProto.UINT8, TensorProto.INT8)
        self._kind, self._other = kinds if wanted == "uint8" else kinds[::-1]
        self._shifted = {name: self.scope.names.new(f"{name}/{wanted}") for name in sorted(self._shiftable())}

    def replaced(self, node: NodeProto) -> bool:
        """See the module's docstring."""
        written = [name for name in node.output if name in self._shifted]
        read = [index for index, name in enumerate(node.input) if name in self._shifted]
        if not written and not read:
            return False
        inputs = [self._shifted.get(name, str(name)) for name in node.input]
        attributes = attributes_of(node)
        attributes.pop("output_dtype", None) if node.op_type == "QuantizeLinear" else None
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            inputs = [*inputs[:2], self._zero(inputs[2] if len(inputs) > 2 else "")]
        elif node.op_type in ("ConvInteger", "MatMulInteger"):
            inputs += [""] * (4 - len(inputs))
            for index in read:
                inputs[2 + index] = self._zero(inputs[2 + index])
        to = self._shifted.get(node.output[0], str(node.output[0]))
        if node.op_type == TABLE:
            inputs[1] = self._table(str(node.input[1]), bool(read), bool(written))
            self.nodes.append(helper.make_node(TABLE, inputs, [to], to, domain=node.domain))
            self.declare(to, self.scope.shapes[node.output[0]], self._kind if written else self.scope.types[to])
        else:
            self.called(node.op_type, inputs, to, **attributes)
        return True

    def _table(self, name: str, read: bool, written: bool) -> str:
        """A table for shifted bytes, of shifted bytes."""
        table = self.array(name)
        assert table is not None
        table = np.roll(table, OFFSET) if read else table
        return self.const((table.astype(np.int32) + self._more).astype(self._wanted) if written else table)

    def _zero(self, zero: str) -> str:
        """A zero point and what the others get, in the type wanted."""
        if not zero:
            return self.const(np.array(self._more, self._wanted))
        wide = self.op("Add", self.cast(zero, TensorProto.INT32), self.const(np.int32(self._more)))
        return self.cast(wide, self._kind)

    def _shiftable(self) -> set[str]:
        """The tensors that quantisers make and that nothing reads but what can read the other type as well."""
        shiftable = {
            str(node.output[0])
            for node in self.makers.values()
            if (node.op_type in ("QuantizeLinear", "Concat", TABLE) or _is_move(node))
            and self.scope.types.get(node.output[0]) == self._other
            and not self.is_constant(node.output[0])
        }
        while True:
            wrong = {name for name in shiftable if not self._is_shiftable(name, shiftable)}
            if not wrong:
                return shiftable
            shiftable -= wrong

    def _is_shiftable(self, name: str, shiftable: set[str]) -> bool:
        maker, readers = self.makers[name], self.readers(name)
        if maker.op_type == "Concat":
            moved = list(maker.input)
        else:
            moved = [] if maker.op_type in ("QuantizeLinear", TABLE) else [maker.input[0]]
        if readers is None or not all(source in shiftable for source in moved):
            return False
        return all(
            reader.op_type in ("DequantizeLinear", "ConvInteger", "MatMulInteger", TABLE)
            or reader.output[0] in shiftable
            for reader in readers
        )
