"""Narrow floats and integers: stored as bit patterns, computed in fp32, rounded after every operation.

That is what NumPy, ONNX's reference, does, and it is more accurate than summing in the short type. A device that
multiplies 16-bit floats keeps them as such: bf16 is no bit pattern there, ``HALF_NATIVE`` operators read 16 bits, and
products do where both operands were cast to fp32 (``layouts.precision``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy

from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from autotune.importer.onnx_model.graph_edits import replace_nodes
from autotune.importer.onnx_model.graph_walk import MOVES, attributes_of
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.onnx_model.shapes import OWN_DOMAIN
from autotune.importer.onnx_model.tensors import array_of
from autotune.importer.operators.minifloat import INTEGERS, NARROW, SCALES, STORAGE
from autotune.importer.rewriting.emit import HALVES
from schedules.vocabulary.errors import ModelError

COPIES = MOVES | {"Compress", "Concat", "ReverseSequence", "ScatterElements", "ScatterND", "Shape", "Size", "Split"}
COPIES |= {"TensorScatter", "Trilu", "Where"}
"""Operators that move elements and compute nothing, so that they work on codes."""


HALF_NATIVE = frozenset({"AveragePool", "GlobalAveragePool", "LayerNormalization", "MaxPool", "ReduceMean", "Softmax"})
"""Operators whose kernels on a device read and store 16-bit floats and compute in fp32 (``precision.IN_LONG``,
``windows.pool``). A cast before any other operator is fused into its kernel."""


IMAGE_RANK = 4
"""Axes of the images that kernels of windows read."""


def encoded(model: ModelProto, half_native: bool = False) -> ModelProto:
    """A copy in which every tensor of a narrow type holds its codes (``minifloat``); the model itself if there is none.

    Args:
        half_native: keep bf16 tensors, and leave 16-bit operands to ``HALF_NATIVE`` operators.

    Raises:
        ModelError: if an operator computes with a type that has no arithmetic.
    """
    scope = Scope(model)
    coded = {kind: word for kind, word in STORAGE.items() if not (half_native and kind in HALVES)}
    short = {name: kind for name, kind in scope.types.items() if kind in NARROW or kind in HALVES}
    if not short:
        return model
    copy = deepcopy(model)
    kept: list[NodeProto] = []
    for node in copy.graph.node:
        native = half_native and node.op_type in HALF_NATIVE and _is_half(node, scope)
        kept.extend([node] if native else _encoded_node(node, short, scope, coded))
    replace_nodes(copy.graph, kept)
    del copy.graph.value_info[:]
    for value in (*copy.graph.input, *copy.graph.output):
        kind = value.type.tensor_type.elem_type
        value.type.tensor_type.elem_type = coded.get(kind, kind)
    for tensor in copy.graph.initializer:
        if tensor.data_type in coded:
            codes = array_of(tensor).view(helper.tensor_dtype_to_np_dtype(coded[tensor.data_type]))
            tensor.CopyFrom(numpy_helper.from_array(codes, tensor.name))
    return copy


def _is_half(node: NodeProto, scope: Scope) -> bool:
    """Return whether the node makes one tensor of 16-bit floats of others of that type; the axes of a mean are none."""
    if "Pool" in node.op_type and scope.ranks.get(node.input[0]) != IMAGE_RANK:
        return False
    floats = node.input[:1] if node.op_type == "ReduceMean" else node.input
    kinds = {scope.types.get(name) for name in (*floats, *node.output) if name}
    return len(node.output) == 1 and len(kinds) == 1 and kinds <= {*HALVES}


def _encoded_node(
    node: NodeProto, short: Mapping[str, int], scope: Scope, coded: Mapping[int, int]
) -> Iterable[NodeProto]:
    touched = [name for name in (*node.input, *node.output) if name in short]
    if not touched or (node.op_type in COPIES and not any(a.name == "reduction" for a in node.attribute)):
        return [node]
    if node.op_type in ("Cast", "CastLike"):
        return _cast(node, scope, coded)
    if node.op_type == "BitCast":
        target = next(a.i for a in node.attribute if a.name == "to")
        return [helper.make_node("BitCast", node.input, node.output, node.name, to=coded.get(target, target))]
    before, after, names = [], [], scope.names
    for index, name in enumerate(node.input):
        if name in short:
            if NARROW.get(short[name]) in INTEGERS or NARROW.get(short[name]) in SCALES:
                raise ModelError(
                    f"operator {node.op_type} (node {node.name!r}) is not supported on {NARROW[short[name]]} tensors; "
                    "cast them first"
                )
            before.append(_decode(name, names.new(f"{node.name}/in{index}"), short[name], coded))
            node.input[index] = before[-1].output[0]
    for index, name in enumerate(node.output):
        if name in short:
            node.output[index] = names.new(f"{node.name}/out{index}")
            after.append(_encode(node.output[index], name, short[name], coded))
    return [*before, node, *after]


def _decode(name: str, to: str, kind: int, coded: Mapping[int, int]) -> NodeProto:
    """The numbers behind codes, as fp32 (integers: int32)."""
    if kind not in coded:
        return helper.make_node("Cast", [name], [to], to, to=TensorProto.FLOAT)
    return helper.make_node("Decode", [name], [to], to, domain=OWN_DOMAIN, format=NARROW[kind])


def _encode(
    name: str, to: str, kind: int, coded: Mapping[int, int], saturate: int = 1, round_mode: str = "up"
) -> NodeProto:
    """The codes of fp32 (or int32) numbers."""
    if kind not in coded:
        return helper.make_node("Cast", [name], [to], to, to=kind)
    more = {"round_mode": round_mode} if NARROW[kind] in SCALES else {}
    return helper.make_node(
        "Encode", [name], [to], to, domain=OWN_DOMAIN, format=NARROW[kind], saturate=saturate, **more
    )


def _cast(node: NodeProto, scope: Scope, coded: Mapping[int, int]) -> list[NodeProto]:
    """From codes to numbers, to the type that the encoder wants, to codes; what is not needed is left out."""
    attributes = attributes_of(node)
    source, target = scope.types.get(node.input[0], 0), scope.types.get(node.output[0], attributes.get("to", 0))
    nodes, name = [], node.input[0]
    if source in NARROW:
        nodes.append(_decode(name, scope.names.new(f"{node.name}/decoded"), source, coded))
        name, source = nodes[-1].output[0], _wide(source)
    wanted = _wide(target) if target in NARROW else target
    if source != wanted or not (nodes or target in NARROW):
        wide = scope.names.new(f"{node.name}/wide")
        nodes.append(helper.make_node("Cast", [name], [wide], node.name, to=wanted))
        name = wide
    if target in NARROW:
        saturate, mode = attributes.get("saturate", 1), attributes.get("round_mode", b"up").decode()
        nodes.append(_encode(name, node.output[0], target, coded, saturate, mode))
    nodes[-1].output[0] = node.output[0]
    return nodes


def _wide(kind: int) -> int:
    """The type of the numbers behind codes of ``kind``."""
    return TensorProto.INT32 if NARROW[kind] in INTEGERS else TensorProto.FLOAT
