"""Quantised operators spelled out, as ONNX and ONNX Runtime define them: dequantised, computed, quantised.

    QLinearConv, QLinearMatMul                 ONNX's
    QLinearAdd, QLinearMul, QLinearSigmoid, QLinearLeakyRelu, QLinearConcat, QLinearAveragePool,
    QLinearGlobalAveragePool, QGemm            com.microsoft's

Only so can ``widen`` say what their roundings are worth: each of them rounds its result to 8 bits. It shares nothing
with the importer's own rewrites, whose mistakes it would repeat otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import onnx
from onnx import NodeProto, helper

Spelled = list[tuple[NodeProto, str]]
"""Standard nodes, each with the value of the model whose shape its result has, or with nothing."""


@dataclass
class _Speller:
    """The nodes that stand for ``node``."""

    node: NodeProto
    nodes: Spelled = field(default_factory=list)

    def attributes(self, *left_out: str) -> dict[str, Any]:
        """Those of the node, but some."""
        kept = [attribute for attribute in self.node.attribute if attribute.name not in left_out]
        return {attribute.name: helper.get_attribute_value(attribute) for attribute in kept}

    def op(self, kind: str, inputs: list[str], like: str = "", output: str = "", **attributes: Any) -> str:
        """Note a node; the name of its result."""
        output = output or f"{self.node.output[0]}.real{len(self.nodes)}"
        self.nodes.append((helper.make_node(kind, inputs, [output], f"{output}.node", **attributes), like))
        return output

    def real(self, first: int, axis: int = 1) -> str:
        """Return the number that input ``first`` stands for; its scale and zero point are the two inputs behind it."""
        value = self.node.input[first]
        return self.op("DequantizeLinear", list(self.node.input[first : first + 3]), value, axis=axis)

    def bias(self, place: int, scales: tuple[int, int]) -> list[str]:
        """The bias at input ``place``, if there is one: a sum of products, whose scale is that of both factors."""
        inputs = self.node.input
        if len(inputs) <= place or not inputs[place]:
            return []
        scale = self.op("Mul", [inputs[index] for index in scales], inputs[scales[1]])
        return [self.op("DequantizeLinear", [inputs[place], scale], inputs[place], axis=0)]

    def end(self, result: str, first: int) -> None:
        """Quantise ``result`` by the scale and zero point at input ``first``."""
        self.op("QuantizeLinear", [result, *self.node.input[first : first + 2]], output=self.node.output[0])


def spelled(node: NodeProto) -> Spelled:
    """Standard nodes that stand for ``node``; none where it is no such operator, or a form that is not spelled out."""
    how = SPELLED.get((node.domain if node.domain != "ai.onnx" else "", node.op_type))
    if how is None:
        return []
    speller = _Speller(node)
    return speller.nodes if how(speller) else []


def _conv(s: _Speller) -> bool:
    operands = [s.real(0), s.real(3, axis=0), *s.bias(8, (1, 4))]
    s.end(s.op("Conv", operands, s.node.output[0], **s.attributes()), 6)
    return True


def _matmul(s: _Speller) -> bool:
    s.end(s.op("MatMul", [s.real(0, axis=-2), s.real(3, axis=-1)], s.node.output[0]), 6)
    return True


def _elementwise(s: _Speller) -> bool:
    s.end(s.op(s.node.op_type.removeprefix("QLinear"), [s.real(0), s.real(3)], s.node.output[0]), 6)
    return True


def _of_one(s: _Speller) -> bool:
    if s.attributes().get("channels_last", 0):
        return False
    kind, attributes = s.node.op_type.removeprefix("QLinear"), s.attributes("channels_last")
    s.end(s.op(kind, [s.real(0)], s.node.output[0], **attributes), 3)
    return True


def _concat(s: _Speller) -> bool:
    parts = [s.real(first) for first in range(2, len(s.node.input), 3)]
    s.end(s.op("Concat", parts, s.node.output[0], **s.attributes()), 0)
    return True


def _gemm(s: _Speller) -> bool:
    attributes = s.attributes()
    if attributes.get("alpha", 1.0) != 1.0:
        return False
    operands = [s.real(0), s.real(3, axis=0 if attributes.get("transB", 0) else 1), *s.bias(6, (1, 4))]
    if len(s.node.input) <= 7 or not s.node.input[7]:  # its result is a float
        s.op("Gemm", operands, s.node.output[0], s.node.output[0], **attributes)
    else:
        s.end(s.op("Gemm", operands, s.node.output[0], **attributes), 7)
    return True


MICROSOFT = "com.microsoft"

SPELLED: dict[tuple[str, str], Callable[[_Speller], bool]] = {
    ("", "QLinearConv"): _conv,
    ("", "QLinearMatMul"): _matmul,
    (MICROSOFT, "QLinearAdd"): _elementwise,
    (MICROSOFT, "QLinearMul"): _elementwise,
    (MICROSOFT, "QLinearSigmoid"): _of_one,
    (MICROSOFT, "QLinearLeakyRelu"): _of_one,
    (MICROSOFT, "QLinearAveragePool"): _of_one,
    (MICROSOFT, "QLinearGlobalAveragePool"): _of_one,
    (MICROSOFT, "QLinearConcat"): _concat,
    (MICROSOFT, "QGemm"): _gemm,
}
"""Domain and operator → what spells it out; False where it cannot."""


def results(nodes: Spelled) -> Iterator[tuple[str, str]]:
    """The values between the nodes, which are floats, and the value whose shape each has."""
    return ((node.output[0], like) for node, like in nodes if node.op_type != "QuantizeLinear")


INT8 = 4
"""The accuracy level of com.microsoft that rounds activations to int8."""


def unrounded(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """A copy whose products by packed weights take activations as they are; None if all do so already."""
    rounding = [index for index, node in enumerate(model.graph.node) if rounds_operand(node)]
    if not rounding:
        return None
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for index in rounding:
        copy.graph.node[index].CopyFrom(unrounded_node(model.graph.node[index]))
    return copy


def rounds_operand(node: NodeProto) -> bool:
    """Return whether a product by packed weights takes its other operand in int8."""
    return node.op_type == "MatMulNBits" and any(a.name == "accuracy_level" and a.i == INT8 for a in node.attribute)


def unrounded_node(node: NodeProto) -> NodeProto:
    """A product by packed weights whose other operand stays as it is: accuracy level 1 of com.microsoft is fp32."""
    copy = NodeProto()
    copy.CopyFrom(node)
    kept = [attribute for attribute in node.attribute if attribute.name != "accuracy_level"]
    del copy.attribute[:]
    copy.attribute.extend([*kept, helper.make_attribute("accuracy_level", 1)])
    return copy
