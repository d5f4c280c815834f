"""Sizes that depend on data: computed in their largest size, with the true length beside it.

A value that works on every element along the open axis by itself changes nothing before the length, whatever lies
beyond it; operators for which it does matter are in ``operators/dynamic/open_sizes.py``. Shapes that are computed from
lengths are taken at their largest. The graph's outputs are cut to their lengths by the session.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from autotune.frame.frame import HostStep
from autotune.importer.onnx_model.graph_edits import replace_nodes
from autotune.importer.onnx_model.graph_walk import outer_reads, readers_of
from autotune.importer.onnx_model.scope import Array, Scope
from autotune.importer.onnx_model.shapes import infer_shapes
from autotune.importer.operators.dynamic import open_fills  # noqa: F401  # importing it fills the table
from autotune.importer.operators.dynamic.data_sized import DATA_SIZED, LIMITS
from autotune.importer.operators.dynamic.lengths import Counts, counted, known_counts
from autotune.importer.operators.dynamic.open_sizes import Open, OpenNode
from autotune.importer.operators.dynamic.sequence_values import CHOOSE
from autotune.importer.rewriting.emit import INT64, Emit, Node
from autotune.importer.rewriting.folding import known_results
from autotune.importer.rewriting.registry import Role, function_of

ELEMENTWISE = frozenset(
    {"Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitShift", "BitwiseAnd", "BitwiseNot"}
    | {"BitwiseOr", "BitwiseXor", "Cast", "Ceil", "Clip", "Cos", "Div", "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu"}
    | {"Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsNaN", "LeakyRelu", "Less", "LessOrEqual"}
    | {"Log", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu"}
    | {"Shrink", "Sigmoid", "Sign", "Sin", "Softsign", "Sqrt", "Sub", "Tan", "Tanh", "Where", "Xor"}
)
"""Operators of which every element depends on the elements at its own place."""

BY_IMAGE = frozenset(
    {"AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "DepthToSpace", "GlobalAveragePool", "GlobalMaxPool"}
    | {"InstanceNormalization", "LpPool", "MaxPool", "SpaceToDepth"}
)
"""Operators that work on every element of a batch by itself."""


def largest_sizes(model: ModelProto, inputs: Collection[str]) -> list[HostStep] | None:
    """Replace what is of a size that depends on data, in place; the cuts of outputs, or None where there is nothing.

    Args:
        inputs: as ``Scope`` has them.

    Raises:
        UnsupportedError: naming the operator that needs the true size.
    """
    graph = model.graph
    walk = _Walk(model, inputs)
    for proto in graph.node:
        walk.take(proto)
    if not walk.changed:
        return None
    outputs = [value.name for value in graph.output]
    replace_nodes(graph, walk.nodes)
    for value in graph.output:
        if value.name in walk.opens:
            value.type.tensor_type.ClearField("shape")
    infer_shapes(model, strict=False)
    return [_cut(model, name, walk.opens[name]) for name in outputs if name in walk.opens]


def _cut(model: ModelProto, name: str, size: Open) -> HostStep:
    """The step that cuts an output, whose length becomes an output too."""
    if all(value.name != size.length for value in model.graph.output):
        model.graph.output.append(helper.make_tensor_value_info(size.length, TensorProto.INT64, []))
    return HostStep("Cut", (name, size.length), (name,), {"axis": size.axis})


class _Walk:
    """Goes through a graph in order.

    Attributes:
        nodes: what takes the place of the nodes seen so far.
        opens: value → how open it is.
        changed: whether anything is open.
    """

    def __init__(self, model: ModelProto, inputs: Collection[str]) -> None:
        self._scope = Scope(model, inputs)
        self._ends = {value.name for value in model.graph.output}
        self._readers = readers_of(model.graph.node, bodies=True)
        self._counts: dict[str, Counts] = {}
        self._shared: dict[tuple[Any, ...], Any] = {}
        self.nodes: list[NodeProto] = []
        self.opens: dict[str, Open] = {}
        self.changed = False

    def take(self, proto: NodeProto) -> None:
        """Go on by one node."""
        node, reads = Node(proto, self._scope), outer_reads(proto)
        opens = [name for name in reads if name in self.opens]
        if self._is_data_sized(node, opens):
            self._data_sized(node)
        elif proto.op_type in ("Shape", "Size") and opens:
            self._measured(node)
        elif opens or any(name in self._counts for name in reads) or _has_two_shapes(node):
            self._behind(node, opens)
        else:
            known = known_results(proto, self._scope) if self.changed else None
            if known is None:
                self._keep([proto])
            self._know(known or {})

    def _is_data_sized(self, node: Node, opens: list[str]) -> bool:
        """Return whether the size of the node's results depends on data, while that of its first input is known."""
        if node.proto.domain or node.kind not in DATA_SIZED or node.input(0) not in self._scope.shapes:
            return False
        if node.kind in LIMITS:  # of an open size, or by numbers that follow from one: ``open_sizes``
            computed = [name for name in node.proto.input[LIMITS[node.kind]] if node.scope.array(name) is None]
            return bool(computed) and not opens and all(name not in self._counts for name in node.proto.input)
        if node.kind == "Loop" and opens:
            raise self._refused(node)
        return True

    def _data_sized(self, node: Node) -> None:
        """A node whose results have a size that depends on data; what is beyond the length of an input is no hit."""
        most = self._wanted(str(node.proto.output[0]))
        attributes = (attribute.SerializeToString() for attribute in node.proto.attribute)
        key = ("made", node.kind, most, tuple(node.proto.input), *attributes)
        if key not in self._shared:
            emit = Emit(node)
            at = OpenNode(node, emit, self.opens, self._counts, self._shared)
            inputs = self._without_rest(at)
            inner = node
            if inputs != list(node.proto.input):
                masked = NodeProto.FromString(node.proto.SerializeToString())
                del masked.input[:]
                masked.input.extend(inputs)
                self._note(emit.nodes)
                inner = Node(masked, self._scope)
            names, axes, length = DATA_SIZED[node.kind](inner, emit, most)
            self._keep(emit.nodes)
            self._shared[key] = names, axes, length
        names, axes, length = self._shared[key]
        for name, output, axis in zip(names, node.proto.output, axes, strict=False):
            if output:
                self._keep([helper.make_node("Identity", [name], [output], f"{output}/is")])
                self.opens |= {output: Open(axis, length)} if axis >= 0 else {}
        self.changed = True

    def _without_rest(self, at: OpenNode) -> list[str]:
        """The inputs of such a node with nothing beyond their lengths that would count."""
        node, names = at.node, [str(name) for name in at.node.proto.input]
        if not any(at.opens):
            return names
        if node.kind == "NonZero":
            return [at.masked(0, np.array(0))]
        if node.kind == "Compress" and at.open(1) is not None and (at.open(0) is None or node.attr("axis") is not None):
            return [names[0], at.masked(1, np.array(False))]
        boxes, scores = at.open(0), at.open(1)
        if (
            node.kind != "NonMaxSuppression"
            or scores is None
            or scores.axis != 2
            or boxes not in (None, Open(1, scores.length))
        ):
            raise self._refused(node)
        return [names[0], at.masked(1, at.least(1)), *names[2:]]

    def _measured(self, node: Node) -> None:
        """``Shape`` or ``Size`` of an open value."""
        size, emit = self.opens[node.input(0)], Emit(node)
        shape = list(node.shape(0))
        least, names = shape.copy(), np.full(len(shape), "", object)
        least[size.axis], names[size.axis] = 0, size.length
        parts = [emit.unsqueeze(size.length, 0) if axis == size.axis else emit.ints(n) for axis, n in enumerate(shape)]
        if node.kind == "Size":
            whole = emit.op("Mul", size.length, emit.const(np.int64(math.prod(shape) // max(shape[size.axis], 1))))
            counts = Counts(np.array(0), np.array(math.prod(shape)), np.array(whole, object))
        else:
            first = slice(node.attr("start", 0), node.attr("end", len(shape)))
            whole = emit.concat(parts[first], 0) if parts[first] else emit.const(np.zeros(0, np.int64))
            counts = Counts(np.array(least)[first], np.array(shape)[first], names[first])
        (output,) = node.proto.output
        self._keep([*emit.nodes, helper.make_node("Identity", [whole], [output], f"{output}/is")])
        self._counts[output] = counts

    def _behind(self, node: Node, opens: list[str]) -> None:
        """A node that reads what is open, or numbers that are computed from lengths."""
        proto, outputs = node.proto, list(node.proto.output)
        if not opens:
            arrays = {name: array for name in proto.input if (array := self._scope.array(name)) is not None}
            constants = {name: known_counts(array) for name, array in arrays.items()}
            result = counted(node, self._counts | constants)
            if result is not None and (result.least == result.most).all():
                kind = helper.tensor_dtype_to_np_dtype(self._scope.types.get(outputs[0], INT64))
                self._know({outputs[0]: result.most.astype(kind)})
                return
            if result is not None:
                self._keep([proto])
                self._counts[outputs[0]] = result
                return
        emit = Emit(node)
        handler = function_of(Role.OPEN, node.kind)
        results = handler(OpenNode(node, emit, self.opens, self._counts, self._shared)) if handler else None
        self._keep(emit.nodes)  # also of one that gave up: others may share what it made
        if results is not None:
            self.changed = True
            ends = [(name, output) for (name, _), output in zip(results, outputs, strict=False) if output]
            self._keep([helper.make_node("Identity", [name], [output], f"{output}/is") for name, output in ends])
            self.opens |= {o: size for (_, size), o in zip(results, outputs, strict=False) if o and size is not None}
            return
        if opens:
            self.opens |= self._passed_on(node)
        self._keep([proto])

    def _passed_on(self, node: Node) -> dict[str, Open]:
        """The open axis of what ``node`` makes, which it need not know of."""
        sizes = [self.opens.get(str(name)) for name in node.proto.input]
        lengths = {size.length for size in sizes if size}
        axis = _axis_of(node, sizes) if len(lengths) == 1 else None
        if axis is None or len(node.proto.output) != 1:
            raise self._refused(node)
        return {str(node.proto.output[0]): Open(axis, lengths.pop())}

    def _refused(self, node: Node) -> Exception:
        reads = sorted(outer_reads(node.proto))
        source = next(name for name in reads if name in self.opens or name in self._counts)
        return node.refused(f"the true size of its input {source!r} depends on data")

    def _wanted(self, name: str) -> int | None:
        """Return how many of the first elements along axis 0 are read of a value; None for all."""
        most = 0
        for reader in self._readers.get(name, ()):
            one = self._wanted_by(Node(reader, self._scope), name)
            if one is None:
                return None
            most = max(most, one)
        return None if name in self._ends else most

    def _wanted_by(self, node: Node, name: str) -> int | None:
        if node.kind == "Slice":
            starts, ends, axes, steps = (node.array(index) for index in range(1, 5))
            if starts is None or ends is None or axes is None or (steps is None and node.input(4)):
                return None
            for index, axis in enumerate(axes.reshape(-1)):
                step = 1 if steps is None else int(steps.reshape(-1)[index])
                end = int(ends.reshape(-1)[index])
                if axis == 0 and step == 1 and int(starts.reshape(-1)[index]) >= 0 and end >= 0:
                    return end
            return None
        along = int(node.attr("axis", 0))
        passes = (
            (node.kind == "Gather" and along > 0 and node.input(0) == name)
            or (node.kind == "Squeeze" and (axes := node.array(1)) is not None and bool((axes > 0).all()))
            or (node.kind == "Choose" and node.input(0) != name)
            or node.kind in ("Cast", "Identity")
        )
        return self._wanted(str(node.proto.output[0])) if passes else None

    def _know(self, arrays: dict[str, Array]) -> None:
        for name, array in arrays.items():
            self._scope.add(name, array)

    def _keep(self, nodes: list[NodeProto]) -> None:
        self._note(nodes)
        self.nodes += nodes

    def _note(self, nodes: list[NodeProto]) -> None:
        """Infer types and shapes of what ``nodes`` make, one after the other."""
        for node in nodes:
            self._scope.deduce(node)


def _has_two_shapes(node: Node) -> bool:
    """Return whether the branches of an If, whose condition is computed, make tensors of two known shapes."""
    shapes = [node.known_shape(index) for index in (1, 2)]
    return node.kind == CHOOSE and None not in shapes and shapes[0] != shapes[1]


def _axis_of(node: Node, sizes: list[Open | None]) -> int | None:
    """The open axis of the output; None if elements beyond the length may matter."""
    first = sizes[0].axis if sizes and sizes[0] else None
    rank = len(node.shape(0))
    if node.kind in ELEMENTWISE:
        return _aligned(node, sizes)
    if first is None or any(sizes[1:]):
        return None
    if node.kind == "Transpose":
        order = node.attr("perm") or list(reversed(range(rank)))
        return [int(place) for place in order].index(first)
    if node.kind == "Unsqueeze":
        new = rank + node.constant(1, "axes").size
        axes = {int(number) % new for number in node.constant(1, "axes").reshape(-1)}
        return [place for place in range(new) if place not in axes][first]
    if node.kind == "Squeeze" and node.input(1):
        axes = {int(number) % rank for number in node.constant(1, "axes").reshape(-1)}
        return None if first in axes else [place for place in range(rank) if place not in axes].index(first)
    if node.kind in BY_IMAGE:
        return 0 if first == 0 else None
    if node.kind in ("Hardmax", "LayerNormalization"):
        axis = int(node.attr("axis", -1)) % rank
        return first if first < axis or (first > axis and node.kind == "Hardmax") else None
    if node.kind == "Gemm":
        return 0 if first == 0 and not node.attr("transA", 0) else None
    if node.kind == "MatMul":
        return first if first < rank - 1 and len(node.shape(1)) <= 2 else None
    return None


def _aligned(node: Node, sizes: list[Open | None]) -> int | None:
    """The open axis of an elementwise result: counted from the back, the same in all inputs that have it."""
    ranks = [len(node.shape(index)) if name else 0 for index, name in enumerate(node.proto.input)]
    places = {ranks[index] - size.axis for index, size in enumerate(sizes) if size}
    if len(places) != 1:
        return None
    back = places.pop()
    for index, size in enumerate(sizes):
        if size is None and ranks[index] >= back and node.shape(index)[-back] != 1:
            return None
    return max(ranks) - back
