"""Sizes that depend on data: computed in their largest size, with the true length beside it.

What reads such a value must work on every element along the open axis by itself, so that what lies beyond the length
changes nothing before it. The graph's outputs are cut to their lengths by the session.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from onnx import ModelProto, NodeProto, TensorProto, helper

from autotune.frame.frame import HostStep
from autotune.importer.conversion.emit import Emit, Node
from autotune.importer.onnx_model.mend import outer_reads
from autotune.importer.onnx_model.rewrites import replace_nodes
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.onnx_model.shapes import infer_shapes
from autotune.importer.operators.dynamic.data_sized import DATA_SIZED

ELEMENTWISE = frozenset(
    {"Abs", "Add", "And", "Cast", "Ceil", "Clip", "Div", "Equal", "Exp", "Floor", "Greater", "GreaterOrEqual"}
    | {"Identity", "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pow"}
    | {"Relu", "Round", "Sigmoid", "Sqrt", "Sub", "Tanh", "Where", "Xor"}
)
"""Operators of which every element depends on the elements at its own place."""


@dataclass(frozen=True)
class _Open:
    """A value in its largest size: its first ``length`` elements along ``axis`` count."""

    axis: int
    length: str


def largest_sizes(model: ModelProto, inputs: Collection[str]) -> list[HostStep] | None:
    """Replace what is of a size that depends on data, in place; the cuts of outputs, or None where there is nothing.

    Args:
        inputs: as ``Scope`` has them.

    Raises:
        UnsupportedError: naming the operator that needs the true size.
    """
    graph, scope = model.graph, Scope(model, inputs)
    kept: list[NodeProto] = []
    found: dict[str, _Open] = {}
    for proto in graph.node:
        if proto.op_type not in DATA_SIZED or proto.domain or proto.input[0] not in scope.shapes:
            kept.append(proto)
            continue
        node = Node(proto, scope)
        emit = Emit(node)
        made, axes, length = DATA_SIZED[proto.op_type](node, emit)
        kept += emit.nodes
        for name, output, axis in zip(made, proto.output, axes, strict=False):
            if output:
                kept.append(helper.make_node("Identity", [name], [output], f"{output}/is"))
                found |= {output: _Open(axis, length)} if axis >= 0 else {}
    if not found:
        return None
    replace_nodes(graph, kept)
    outputs = [value.name for value in graph.output]
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")
    infer_shapes(model, graph.name or "model", strict=False)
    scope = Scope(model, inputs)
    for proto in graph.node:
        if any(name in found for name in outer_reads(proto)) and not all(name in found for name in proto.output):
            found |= _passed_on(Node(proto, scope), found)
    return [_cut(model, name, found[name]) for name in outputs if name in found]


def _cut(model: ModelProto, name: str, size: _Open) -> HostStep:
    """The step that cuts an output, whose length becomes an output too."""
    if all(value.name != size.length for value in model.graph.output):
        model.graph.output.append(helper.make_tensor_value_info(size.length, TensorProto.INT64, []))
    return HostStep("Cut", (name, size.length), (name,), {"axis": size.axis})


def _passed_on(node: Node, found: dict[str, _Open]) -> dict[str, _Open]:
    """The open axes of what ``node`` makes."""
    sizes = [found.get(str(name)) for name in node.proto.input]
    lengths = {size.length for size in sizes if size}
    axis = _axis_of(node, sizes) if len(lengths) == 1 else None
    if axis is None or len(node.proto.output) != 1:
        source = next(name for name in sorted(outer_reads(node.proto)) if name in found)
        raise node.refused(f"the true size of its input {source!r} depends on data")
    return {str(node.proto.output[0]): _Open(axis, lengths.pop())}


def _axis_of(node: Node, sizes: list[_Open | None]) -> int | None:
    """The open axis of the output; None if elements beyond the length may matter."""
    first = sizes[0].axis if sizes and sizes[0] else None
    rank = len(node.shape(0))
    if node.kind in ELEMENTWISE:
        return _aligned(node, sizes)
    if node.kind == "Gather":
        along = int(node.attr("axis", 0)) % rank
        if first is None and len(sizes) > 1 and sizes[1]:
            return along + sizes[1].axis
        if first is None or first == along or sizes[1]:
            return None
        return first if first < along else first - 1 + len(node.shape(1))
    if node.kind == "GatherND" and first is None and len(sizes) > 1 and sizes[1] and not node.attr("batch_dims", 0):
        return sizes[1].axis if sizes[1].axis < len(node.shape(1)) - 1 else None
    if first is None or (any(sizes[1:]) and node.kind != "Concat"):
        return None
    if node.kind == "Transpose":
        order = node.attr("perm") or list(reversed(range(rank)))
        return [int(place) for place in order].index(first)
    if node.kind == "Unsqueeze":
        new = rank + node.constant(1, "axes").size
        axes = {int(each) % new for each in node.constant(1, "axes").reshape(-1)}
        return [place for place in range(new) if place not in axes][first]
    if node.kind == "Squeeze" and node.input(1):
        axes = {int(each) % rank for each in node.constant(1, "axes").reshape(-1)}
        return None if first in axes else [place for place in range(rank) if place not in axes].index(first)
    if node.kind == "Slice":
        axes = (
            {int(each) % rank for each in node.constant(3, "axes").reshape(-1)} if node.input(3) else set(range(rank))
        )
        return None if first in axes else first
    if node.kind == "Concat":
        same = all(size is not None and size.axis == first for size in sizes)
        return first if same and int(node.attr("axis")) % rank != first else None
    return None


def _aligned(node: Node, sizes: list[_Open | None]) -> int | None:
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
