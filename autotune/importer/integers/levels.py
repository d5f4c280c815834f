"""Facts that the steps of ``integer_graph`` share: constants, readers, and 8-bit tensors that stand for numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper

from autotune.importer.onnx_model.graph_walk import attributes_of
from autotune.importer.rewriting.emit import FLOAT
from autotune.importer.rewriting.step import Step

BYTES = (TensorProto.UINT8, TensorProto.INT8)
"""Types of the integers that products are made of."""


@dataclass(frozen=True)
class Levels:
    """An 8-bit tensor and the numbers (q − zero) · scale that it stands for.

    Attributes:
        q: the integers.
        scale, zero: names of values; no zero point is "".
        kind: ONNX element type of ``q``.
        axis: along which scale and zero point differ; None if they are one number each.
        key: equal for equal parameters.
    """

    q: str
    scale: str
    zero: str
    kind: int
    axis: int | None
    key: tuple[Any, ...]


class LevelsStep(Step):
    """A step that knows which 8-bit tensors stand for numbers."""

    def levels(self, node: NodeProto) -> Levels | None:
        """Return a QuantizeLinear's result or a DequantizeLinear's input; None unless of 8 bits and fp32 scales."""
        is_source = node.op_type == "DequantizeLinear"
        q = str(node.input[0] if is_source else node.output[0])
        kind, scale = self.scope.types.get(q, 0), str(node.input[1])
        zero = str(node.input[2]) if len(node.input) > 2 else ""
        attributes = attributes_of(node)
        shape, rank = self.scope.shapes.get(scale), len(self.scope.shapes.get(str(node.input[0]), ()))
        is_plain = not attributes.get("block_size", 0) and attributes.get("output_dtype", 0) in (0, FLOAT, kind)
        if kind not in BYTES or self.scope.types.get(scale) != FLOAT or shape is None or not is_plain:
            return None
        axis = None
        if math.prod(shape) > 1:
            if not rank:
                return None
            axis = int(attributes.get("axis", 1)) % rank
        key = (kind, axis, self._identity(scale), self._identity(zero) if zero else b"")
        return Levels(q, scale, zero, kind, axis, key)

    def _identity(self, name: str) -> str | bytes:
        """Equal for equal values; zeros are as nothing."""
        array = self.array(name)
        if array is None:
            return name
        return np.ascontiguousarray(array).tobytes() if array.any() else b""

    def dequantised(self, levels: Levels, to: str = "") -> str:
        """The numbers that ``levels`` stand for, called ``to``."""
        to = to or self.fresh()
        inputs = [name for name in (levels.q, levels.scale, levels.zero) if name]
        self.called("DequantizeLinear", inputs, to, **({} if levels.axis is None else {"axis": levels.axis}))
        return to

    def quantised(self, x: str, like: Levels) -> Levels:
        """``x`` on the levels of another tensor, which are one number each."""
        zero = like.zero or self.const(np.zeros((), helper.tensor_dtype_to_np_dtype(like.kind)))
        return replace(like, q=self.op("QuantizeLinear", x, like.scale, zero), zero=zero)
