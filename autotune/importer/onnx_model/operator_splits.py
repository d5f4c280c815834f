"""Operators of a model cut in two, so that two lanes can each compute a part of one: batch, rows or channels.

An operator is cut along the outermost axis of its output that is longer than one. What lies before that axis is one, so
the two parts lie one behind the other in memory, and joining them needs no copy (``graph/merge.py``). Along the batch,
or the rows of a product, each part reads its slice of the input and the same weights; along channels or columns, the
same input and its slice of the weights. Operators that work element by element on the result, such as an activation,
are computed in parts too. CoDL (Jia et al., MobiSys 2022) cuts so between a phone's CPU and its GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto, helper

from autotune.importer.onnx_model.graph_edits import replace_nodes
from autotune.importer.onnx_model.graph_walk import attributes_of, readers_of
from autotune.importer.onnx_model.scope import Scope

UNARY = frozenset(
    {"Abs", "Celu", "Clip", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log"}
    | {"Mish", "Neg", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Sqrt", "Tanh"}
)
BINARY = frozenset({"Add", "Sub", "Mul", "Div", "Max", "Min"})

UNIT = 16
"""Every part but the last is a multiple of so many rows or channels, or a whole sample: parts of fp32 then begin where
a kernel may read, on a cache line, and channels in blocks."""


Share = Callable[[NodeProto, Scope], float | None]
"""An operator that can be cut → the share of its first part in its output; None for one that stays whole."""


@dataclass(frozen=True)
class Join:
    """A value whose parts were computed one by one.

    Attributes:
        value: its name.
        parts: names of its parts, which follow each other in memory.
        produced: by the nodes of each part, whose nodes follow each other, the first part's before the second's.
    """

    value: str
    parts: tuple[str, str]
    produced: tuple[frozenset[str], frozenset[str]]


@dataclass(frozen=True)
class _Cut:
    """The cut of an operator.

    Attributes:
        axis: of its output.
        at: the first part's extent along it.
        slices: number of an input → the axis of it that is cut too; other inputs are read whole.
    """

    axis: int
    at: int
    slices: dict[int, int]


def split_operators(model: ModelProto, share: Share) -> tuple[ModelProto, tuple[Join, ...]]:
    """``model`` with some operators cut in two, and what they make joined by a ``Concat`` each. Pure.

    What the model puts out is computed whole.

    Args:
        model: simplified, with shapes.
    """
    result = deepcopy(model)
    splitter = _Splitter(result, Scope(result))
    for node in model.graph.node:
        splitter.add(node, share)
    replace_nodes(result.graph, splitter.nodes)
    return result, tuple(splitter.joins)


class _Splitter:
    """The nodes so far."""

    def __init__(self, model: ModelProto, scope: Scope) -> None:
        self._model, self._scope = model, scope
        self._outputs = {value.name for value in model.graph.output}
        self._readers = readers_of(model.graph.node)
        self._taken = set[str]()  # outputs of nodes that went into parts
        self._parts: dict[tuple[str, int], str] = {}
        self._slices: dict[tuple[str, int, int, int], str] = {}
        self.nodes: list[NodeProto] = []
        self.joins: list[Join] = []

    def add(self, node: NodeProto, share: Share) -> None:
        """Take over ``node``, cut or whole."""
        if node.output[0] in self._taken:
            return
        wanted = share(node, self._scope) if _is_cuttable(node, self._scope) else None
        cut = None if wanted is None else _cut(node, self._scope, wanted)
        if cut is None:
            self.nodes.append(node)
            return
        chain = self._chain(node, cut)
        last = chain[-1].output[0]
        if last in self._outputs:  # which has to be one value of the model's interface
            self.nodes.append(node)
            return
        before = len(self.nodes)
        first = self._part(chain, cut, 0)
        middle = len(self.nodes)
        parts = (first, self._part(chain, cut, 1))
        written = [
            frozenset(own.output[0] for own in nodes) for nodes in (self.nodes[before:middle], self.nodes[middle:])
        ]
        self.nodes.append(helper.make_node("Concat", parts, [last], name=f"{last}/join", axis=cut.axis))
        self.joins.append(Join(last, parts, (written[0], written[1])))
        self._taken |= {member.output[0] for member in chain}

    def _chain(self, node: NodeProto, cut: _Cut) -> list[NodeProto]:
        """``node`` and the operators behind it that can be computed in parts too."""
        chain = [node]
        while True:
            name = chain[-1].output[0]
            readers = self._readers.get(name, [])
            if name in self._outputs or len(readers) != 1 or not self._is_elementwise(readers[0], name, cut):
                return chain
            chain.append(readers[0])

    def _is_elementwise(self, node: NodeProto, name: str, cut: _Cut) -> bool:
        others = [operand for operand in node.input if operand and operand != name]
        if any(self._scope.array(operand) is None for operand in others):
            return False
        if node.op_type in UNARY:
            return True
        shape = self._scope.shapes.get(node.output[0])
        same = shape == self._scope.shapes[name] and list(node.input).count(name) == 1
        return node.op_type in BINARY and same and shape is not None and cut.axis < len(shape)

    def _part(self, chain: Sequence[NodeProto], cut: _Cut, number: int) -> str:
        """Add the nodes of a part; the name of what they make."""
        extent = self._scope.shapes[chain[0].output[0]][cut.axis]
        begin, end = ((0, cut.at), (cut.at, extent))[number]
        for position, node in enumerate(chain):
            own = deepcopy(node)
            own.name = f"{node.name or node.output[0]}/{number}"
            for index, name in enumerate(node.input):
                if not name:
                    continue
                if position and name == chain[position - 1].output[0]:
                    own.input[index] = self._of_part(name, number)
                    continue
                axis = cut.slices.get(index) if not position else self._constant_axis(name, node, cut)
                if axis is not None:
                    own.input[index] = self._sliced(name, axis, (begin, end), number)
            own.output[0] = self._of_part(node.output[0], number)
            self._declare(node.output[0], own.output[0], cut.axis, end - begin)
            self.nodes.append(own)
        return self._of_part(chain[-1].output[0], number)

    def _of_part(self, name: str, number: int) -> str:
        """Return the name of ``name`` in a part."""
        if (name, number) not in self._parts:
            self._parts[name, number] = self._scope.names.new(f"{name}/{number}")
        return self._parts[name, number]

    def _constant_axis(self, name: str, node: NodeProto, cut: _Cut) -> int | None:
        """The axis of the constant ``name`` that runs along the cut; None where it is the same for both parts."""
        shape, result = self._scope.shapes[name], self._scope.shapes[node.output[0]]
        axis = cut.axis - (len(result) - len(shape))
        return axis if node.op_type in BINARY and axis >= 0 and shape[axis] > 1 else None

    def _sliced(self, name: str, axis: int, span: tuple[int, int], number: int) -> str:
        """A constant's slice, or a node that slices a value; its name."""
        begin, end = span
        array = self._scope.array(name)
        key, stem = (name, axis, begin, end), f"{name}/{axis}:{begin}:{end}"
        if array is not None:
            if key not in self._slices:
                self._slices[key] = self._scope.names.new(stem)
                self._scope.add(self._slices[key], array.take(range(begin, end), axis))
            return self._slices[key]
        own = self._scope.names.new(f"{stem}/{len(self.joins)}.{number}")
        bounds = []
        for word, bound in (("begin", begin), ("end", end), ("axis", axis)):
            bounds.append(self._scope.names.new(f"{own}/{word}"))
            self._scope.add(bounds[-1], np.array([bound], np.int64))
        self._declare(name, own, axis, end - begin)
        self.nodes.append(helper.make_node("Slice", [name, *bounds], [own], name=own))
        return own

    def _declare(self, like: str, name: str, axis: int, extent: int) -> None:
        shape = list(self._scope.shapes[like])
        shape[axis] = extent
        value = helper.make_tensor_value_info(name, self._scope.types[like], shape)
        self._model.graph.value_info.append(value)
        self._scope.note(value)


def _is_cuttable(node: NodeProto, scope: Scope) -> bool:
    """Return whether it is a convolution or a product of static shapes, by weights that are known."""
    known = all(name in scope.shapes for name in (*filter(None, node.input), *node.output))
    if not known or len(node.input) < 2 or scope.array(node.input[1]) is None or node.output[0] not in scope.types:
        return False
    if node.op_type == "Conv":
        return bool(attributes_of(node).get("group", 1) == 1)
    if node.op_type == "Gemm":
        return not attributes_of(node).get("transA", 0)
    return node.op_type == "MatMul" and len(scope.shapes[node.input[1]]) == 2


def _cut(node: NodeProto, scope: Scope, share: float) -> _Cut | None:
    """Return where to cut ``node`` so that its first part is about ``share``; None if there is no place."""
    shape = scope.shapes[node.output[0]]
    axis = next((index for index, extent in enumerate(shape) if extent > 1), None)
    if axis is None:
        return None
    whole_sample = node.op_type == "Conv" and axis == 0
    unit = 1 if whole_sample else UNIT
    at = unit * round(shape[axis] * share / unit)
    if not 0 < at < shape[axis]:
        return None
    channel = 1 if node.op_type == "Conv" else len(shape) - 1
    if axis < channel:
        slices = {0: axis}
        bias = scope.shapes.get(node.input[2], ()) if node.op_type == "Gemm" and len(node.input) > 2 else ()
        if len(bias) == 2 and bias[0] > 1:
            slices[2] = 0
        return _Cut(axis, at, slices)
    if axis > channel:
        return None
    weight_axis = (
        0 if node.op_type == "Conv" or (node.op_type == "Gemm" and attributes_of(node).get("transB", 0)) else 1
    )
    slices = {1: weight_axis}
    if len(node.input) > 2 and node.input[2]:
        bias = scope.shapes[node.input[2]]
        if bias and bias[-1] > 1:
            slices[2] = len(bias) - 1
    return _Cut(axis, at, slices)
