"""The node that a rewrite replaces, as it sees it, and the writer of the nodes that take its place."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import AttributeProto, NodeProto, helper

from autotune.importer.onnx_model.scope import Array, Scope
from autotune.importer.onnx_model.shapes import OWN_DOMAIN
from schedules.vocabulary.errors import UnsupportedError

INT64 = onnx.TensorProto.INT64
STANDING_FOR = {f"{OWN_DOMAIN}::Choose": "If"}
"""Operator of ours → the one of the user's model that it stands for, in messages."""

KEPT_BYTES = 1 << 12
"""Bytes of a constant up to which equal ones are found by comparing them, beyond by their hash."""

FLOAT = onnx.TensorProto.FLOAT

HALVES = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
"""Floating point numbers of 16 bits. A rewrite of several steps computes them in fp32 and rounds once."""


class Node:
    """One node, its attributes as Python values, its inputs with "" for those left out."""

    def __init__(self, proto: NodeProto, scope: Scope) -> None:
        self.proto, self.scope = proto, scope
        self.kind = str(proto.op_type)
        self.name = str(proto.name)
        self._attributes = {attribute.name: attribute for attribute in proto.attribute}

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute; strings as text."""
        attribute = self._attributes.get(name)
        value = default if attribute is None else helper.get_attribute_value(attribute)
        if isinstance(value, list) and value and isinstance(value[0], bytes):
            return [item.decode() for item in value]
        return value.decode() if isinstance(value, bytes) else value

    def numbers(self, name: str) -> Array | None:
        """A list attribute of numbers as an array, without a Python object for each; None where there is none."""
        attribute = self._attributes.get(name)
        if attribute is None or attribute.type not in (AttributeProto.INTS, AttributeProto.FLOATS):
            return None
        is_whole = attribute.type == AttributeProto.INTS
        values = attribute.ints if is_whole else attribute.floats
        return np.fromiter(values, np.int64 if is_whole else np.float32, len(values))

    @property
    def attributes(self) -> dict[str, Any]:
        """Every attribute that the node has, as ``attr`` gives it."""
        return self.given(*self._attributes)

    def given(self, *names: str) -> dict[str, Any]:
        """Those of the attributes ``names`` that the node has."""
        return {name: self.attr(name) for name in names if name in self._attributes}

    def axes(self, rank: int) -> list[int] | None:
        """Return the axes that a reduction is over, in order; none where it is over no axis.

        None where they are computed from the inputs.
        """
        axes = self.array(1) if self.input(1) else self.attr("axes", ())
        if axes is None:
            return None
        if not len(axes):
            return [] if self.attr("noop_with_empty_axes", 0) else list(range(rank))
        return sorted({int(axis) % rank for axis in axes})

    def input(self, index: int) -> str:
        """Name of an input; "" if it is left out."""
        return str(self.proto.input[index]) if index < len(self.proto.input) else ""

    def wants(self, index: int) -> bool:
        """Return whether output ``index`` is asked for."""
        return index < len(self.proto.output) and bool(self.proto.output[index])

    def array(self, index: int) -> Array | None:
        """Value of a constant input, else None."""
        return self.scope.array(self.input(index))

    def constant(self, index: int, what: str) -> Array:
        """Value of an input that must be constant, called ``what`` in the refusal."""
        array = self.array(index)
        if array is None:
            raise self.refused(f"its {what} {self.input(index)!r} is computed from the inputs; it must be a constant")
        return array

    def known_shape(self, index: int) -> tuple[int, ...] | None:
        """Static shape of an input, None if it is unknown."""
        return self.scope.shapes.get(self.input(index))

    def shape(self, index: int) -> tuple[int, ...]:
        """Static shape of an input.

        Raises:
            ModelError: if it is not known.
        """
        shape = self.known_shape(index)
        if shape is None:
            raise self.refused(f"the shape of its input {self.input(index)!r} depends on data")
        return shape

    def rank(self, index: int) -> int:
        """Return how many axes an input has.

        Raises:
            ModelError: if that is not known.
        """
        rank = self.scope.ranks.get(self.input(index))
        return len(self.shape(index)) if rank is None else rank

    def type(self, index: int) -> int:
        """ONNX element type of an input; 0 if unknown."""
        return self.scope.types.get(self.input(index), 0)

    def dtype(self, index: int) -> np.dtype[Any]:
        """NumPy type of an input."""
        return np.dtype(helper.tensor_dtype_to_np_dtype(self.type(index) or FLOAT))

    def refused(self, why: str) -> UnsupportedError:
        """The error that says that this node is not supported, and why."""
        kind = f"{self.proto.domain}::{self.kind}" if self.proto.domain else self.kind
        kind = STANDING_FOR.get(kind, kind)
        return UnsupportedError(f"operator {kind} (node {self.name!r}) is not supported: {why}")


class Emit:
    """Collects the nodes that replace one node; every method returns the name of a value."""

    def __init__(self, node: Node) -> None:
        self.node, self.scope, self.opset = node, node.scope, node.scope.opset
        self.nodes: list[NodeProto] = []
        self._stem = next((str(o) for o in node.proto.output if o), node.name) + "/" + node.kind
        self._known: dict[tuple[Any, ...], str] = {}
        self._count = 0

    def fresh(self) -> str:
        """A name that nothing has yet."""
        self._count += 1
        return self.scope.names.new(f"{self._stem}/{self._count}")

    def const(self, values: ArrayLike, dtype: Any = None) -> str:
        """A constant."""
        array = np.asarray(values, dtype)
        text = np.ascontiguousarray(array).tobytes()
        key = (array.shape, str(array.dtype), text if len(text) <= KEPT_BYTES else hashlib.sha256(text).digest())
        if key not in self._known:
            name = self.fresh()
            self.scope.add(name, array)
            self._known[key] = name
        return self._known[key]

    def ints(self, *values: int) -> str:
        """A constant int64 vector."""
        return self.const(np.array(values, np.int64))

    def like(self, value: float, index: int = 0) -> str:
        """A constant scalar of the type of the replaced node's input ``index``."""
        return self.const(np.array(value).astype(self.node.dtype(index)))

    def ops(self, kind: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: Any) -> list[str]:
        """One node; its outputs."""
        names = [self.fresh() for _ in range(outputs)]
        node = helper.make_node(kind, list(inputs), names, names[0], domain=domain, **attributes)
        self.nodes.append(node)
        return names

    def declare(self, name: str, shape: Sequence[int], kind: int) -> None:
        """Say what ONNX cannot infer: the shape and type of what one of our own operators makes."""
        self.scope.graph.value_info.append(helper.make_tensor_value_info(name, kind, list(shape)))
        self.scope.note(self.scope.graph.value_info[-1])

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """One node with one output; that."""
        return self.ops(kind, *inputs, **attributes)[0]

    def cast(self, x: str, to: int) -> str:
        """``x`` as another element type."""
        return self.op("Cast", x, to=to)

    def reshape(self, x: str, *shape: int) -> str:
        """``x`` with another shape."""
        return self.op("Reshape", x, self.ints(*shape))

    def transpose(self, x: str, *perm: int) -> str:
        """``x`` with its axes in another order."""
        return self.op("Transpose", x, perm=list(perm))

    def unsqueeze(self, x: str, *axes: int) -> str:
        """``x`` with new axes."""
        return self.op("Unsqueeze", x, self.ints(*axes))

    def squeeze(self, x: str, *axes: int) -> str:
        """``x`` without axes of size one."""
        return self.op("Squeeze", x, self.ints(*axes))

    def concat(self, parts: Sequence[str], axis: int) -> str:
        """``parts`` one after the other."""
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=axis)

    def slice(self, x: str, axis: int, start: int, stop: int, step: int = 1) -> str:
        """``x[start:stop:step]`` along ``axis``."""
        return self.op("Slice", x, self.ints(start), self.ints(stop), self.ints(axis), self.ints(step))

    def split(self, x: str, sizes: Sequence[int], axis: int) -> list[str]:
        """``x`` in parts of ``sizes`` along ``axis``."""
        starts = np.cumsum([0, *sizes])
        return [self.slice(x, axis, int(a), int(b)) for a, b in pairwise(starts)]

    def reduce(self, kind: str, x: str, axes: Sequence[int], keepdims: bool = True) -> str:
        """A reduction; its axes are an input or an attribute depending on the opset."""
        if self.opset >= (13 if kind == "ReduceSum" else 18):
            return self.op(kind, x, self.ints(*axes), keepdims=int(keepdims))
        return self.op(kind, x, axes=list(axes), keepdims=int(keepdims))


class Wide:
    """One input of a node in fp32 if it has 16 bits, so that a rewrite of several steps rounds once."""

    def __init__(self, e: Emit, index: int) -> None:
        self._e, self._kind, self._dtype = e, e.node.type(index), e.node.dtype(index)
        self._is_short = self._kind in HALVES
        self.x = e.cast(e.node.input(index), FLOAT) if self._is_short else e.node.input(index)

    def number(self, value: float) -> str:
        """A constant scalar of the type of ``x``."""
        return self._e.const(np.array(value).astype(np.float32 if self._is_short else self._dtype))

    def back(self, result: str) -> str:
        """Round what was computed to the type of the input."""
        return self._e.cast(result, self._kind) if self._is_short else result
