"""Block-wise DequantizeLinear before products and gathers, as opset 21 has it, becomes operators on packed weights.

    MatMul(x, DQ(w))          w (K, N) in blocks along axis 0
    MatMul(x, DQ(w)ᵀ), Gemm   w (N, K) in blocks along axis 1
    Gather(DQ(w), rows)       w (rows, width) in blocks along axis 1

Products take activations in int8, as ONNX Runtime does when it fuses the same nodes into MatMulNBits (its session
option ``qdq_matmulnbits_accuracy_level`` is 4 unless set).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from onnx import ModelProto, NodeProto, TensorProto, helper

from autotune.importer.low_bits.low_bit_operators import SMALLEST_GROUP, gathered_rows
from autotune.importer.onnx_model.graph_edits import replace_nodes, tidy
from autotune.importer.onnx_model.graph_walk import Names, attributes_of, reads
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.onnx_model.shapes import OWN_DOMAIN, know_domain
from autotune.importer.onnx_model.tensors import as_uint8
from autotune.importer.rewriting.emit import FLOAT, Emit, Node
from autotune.importer.rewriting.step import Step

BITS: Mapping[int, int] = {
    int(TensorProto.INT4): 4,
    int(TensorProto.UINT4): 4,
    int(TensorProto.INT8): 8,
    int(TensorProto.UINT8): 8,
}
SIGNED = (TensorProto.INT4, TensorProto.INT8)

OPERATORS = ("LowBitMatMul", "LowBitGather")


def has_packed(model: ModelProto) -> bool:
    """Return whether weights of ``model`` are quantised in blocks."""
    return any(_block_of(node) for node in model.graph.node)


def keep_packed(model: ModelProto, inputs: Collection[str]) -> None:
    """Rewrite the products and gathers of block-wise quantised weights in place.

    Args:
        model, inputs: as of ``integer_graph.make_integer``; products whose shapes are not known stay as they are.
    """
    know_domain(model)
    _Packed(model, inputs).run()
    tidy(model.graph)


def _block_of(node: NodeProto) -> int:
    """The block size of a DequantizeLinear; 0 for other nodes and other ways to scale."""
    return int(attributes_of(node).get("block_size", 0)) if node.op_type == "DequantizeLinear" else 0


@dataclass(frozen=True)
class _Table:
    """A quantised constant matrix: its integers, scales, zero points or "", and what attributes say of it."""

    inputs: tuple[str, str, str]
    kind: int
    shape: tuple[int, int]
    axis: int
    group: int


class _Packed(Step):
    def replaced(self, node: NodeProto) -> bool:
        """Append a product or gather of packed weights."""
        result = ""
        if node.op_type in ("MatMul", "Gemm") and self.makers.get(node.input[1]) is not None:
            result = self._product(node)
        elif node.op_type == "Gather":
            result = self._rows(node)
        if result:
            self.called("Identity", [result], node.output[0])
        return bool(result)

    def _table(self, name: str) -> _Table | None:
        """Return the constant matrix in blocks that a DequantizeLinear makes ``name`` of, if there is one."""
        node = self.makers.get(name)
        if node is None or not _block_of(node):
            return None
        names = [str(value) for value in node.input] + [""]
        kind, shape = self.scope.types.get(names[0], 0), self.scope.shapes.get(names[0], ())
        group, axis = _block_of(node), int(attributes_of(node).get("axis", 1)) % max(len(shape), 1)
        known = all(not value or value in self.scope.given for value in names[:3])
        if not known or kind not in BITS or len(shape) != 2 or group < SMALLEST_GROUP or group % 8:
            return None
        if BITS[kind] == 4 and shape[1] % 2:
            return None
        return _Table((names[0], names[1], names[2]), kind, (shape[0], shape[1]), axis, group)

    def _product(self, node: NodeProto) -> str:
        attributes = attributes_of(node)
        x = self.scope.shapes.get(node.input[0], ())
        source, turned = str(node.input[1]), bool(attributes.get("transB", 0))
        maker = self.makers[source]
        if maker.op_type == "Transpose" and attributes_of(maker).get("perm") == [1, 0]:
            source, turned = str(maker.input[0]), not turned
        table = self._table(source)
        plain = attributes.get("alpha", 1.0) == attributes.get("beta", 1.0) == 1.0 and not attributes.get("transA", 0)
        if table is None or not plain or len(x) < 2 or table.axis != int(turned):
            return ""
        depth, columns = table.shape[::-1] if turned else table.shape
        numbers = {"bits": BITS[table.kind], "group": table.group, "depth": depth, "columns": columns}
        inputs = [name for name in (str(node.input[0]), *table.inputs) if name]
        more = {"order": "nk" if turned else "kn", "signed": int(table.kind in SIGNED), "int8": 1}
        product = self.op("LowBitMatMul", *inputs, domain=OWN_DOMAIN, **numbers, **more)
        self.declare(product, (*x[:-1], columns), self.scope.types.get(node.input[0], FLOAT))
        bias = str(node.input[2]) if len(node.input) > 2 else ""
        return self.op("Add", product, bias) if bias else product

    def _rows(self, node: NodeProto) -> str:
        table, places = self._table(str(node.input[0])), self.scope.shapes.get(node.input[1])
        if table is None or places is None or table.axis != 1 or attributes_of(node).get("axis", 0):
            return ""
        levels, scale, zero = table.inputs
        numbers = {"bits": BITS[table.kind], "group": table.group, "depth": table.shape[1], "columns": table.shape[0]}
        inputs = [levels, str(node.input[1]), scale, zero]
        return gathered_rows(self, places, inputs, numbers, self.scope.types.get(scale, FLOAT))


JOINED = 32
"""Columns of which those of a product are a multiple to be joined: whole panels of every target."""


def join_products(model: ModelProto) -> None:
    """Products of one activation that are split into heads become one product and slices of it, in place.

    An activation is then rounded once, and small weights are streamed with large ones: keys and values of a decoder
    with grouped queries have a seventh of the queries' columns. What elementwise operators follow stays apart: its
    kernel computes them.
    """
    scope, alone = Scope(model), reads(model.graph)
    readers = {name: node for node in model.graph.node for name in node.input if alone[name] == 1}
    groups: dict[tuple[Any, ...], list[NodeProto]] = {}
    for node in model.graph.node:
        if node.op_type == "LowBitMatMul" and node.domain == OWN_DOMAIN and _is_split(node, readers, scope):
            numbers = {key: value for key, value in attributes_of(node).items() if key != "columns"}
            groups.setdefault((node.input[0], len(node.input), *sorted(numbers.items())), []).append(node)
    slices: dict[str, list[NodeProto]] = {}
    for members in groups.values():
        if len(members) > 1:
            slices[members[0].output[0]] = _joined(members, scope)
            slices.update((node.output[0], []) for node in members[1:])
    kept = [new for node in model.graph.node for new in slices.get(node.output[0] if node.output else "", [node])]
    if slices:
        replace_nodes(model.graph, kept)


def _is_split(node: NodeProto, readers: Mapping[str, NodeProto], scope: Scope) -> bool:
    """Return whether a product, perhaps with a bias, is reshaped, and has columns to be joined."""
    reader = readers.get(node.output[0])
    if reader is not None and reader.op_type == "Add" and any(name in scope.given for name in reader.input):
        reader = readers.get(reader.output[0])
    return reader is not None and reader.op_type == "Reshape" and attributes_of(node)["columns"] % JOINED == 0


def _joined(members: list[NodeProto], scope: Scope) -> list[NodeProto]:
    """One product in the place of ``members``, and slices for their results."""
    first, e = members[0], Emit(Node(members[0], scope))
    parts = [int(attributes_of(node)["columns"]) for node in members]
    numbers = {**attributes_of(first), "columns": sum(parts)}
    inputs = [first.input[0], *(name for node in members for name in node.input[1:])]
    whole, shape = (
        e.op("LowBitMatMul", *inputs, domain=OWN_DOMAIN, parts=parts, **numbers),
        scope.shapes[first.output[0]],
    )
    e.declare(whole, [*shape[:-1], sum(parts)], scope.types[first.output[0]])
    for node, part in zip(members, e.split(whole, parts, len(shape) - 1), strict=True):
        e.nodes.append(helper.make_node("Identity", [part], node.output, node.output[0]))
    return e.nodes


def as_bytes(model: ModelProto) -> None:
    """The constants of ``OPERATORS`` as bytes, in place: TVM has no integers of 4 bits, and copies would be as long."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    renamed: dict[str, str] = {}
    names: Names | None = None
    for node in model.graph.node:
        if node.op_type not in OPERATORS or node.domain != OWN_DOMAIN:
            continue
        for index, name in enumerate(node.input):
            tensor = constants.get(name)
            if index == 0 or tensor is None or tensor.data_type not in BITS or tensor.data_type == TensorProto.UINT8:
                continue
            if name not in renamed:
                names = names or Names(model.graph)
                renamed[name] = names.new(f"{name}/bytes")
                model.graph.initializer.append(as_uint8(tensor, renamed[name]))
            node.input[index] = renamed[name]
