"""Narrow floats and integers: stored as bit patterns, computed in fp32, rounded after every operation.

That is what NumPy, ONNX's reference, does, and it is more accurate than summing in the short type. A device that
multiplies fp16 itself (``HALF_NATIVE``) gets its fp16 operands as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy

from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from autotune.importer.onnx_model.formats import INTEGERS, NARROW, SCALES, STORAGE
from autotune.importer.onnx_model.graph_edits import replace_nodes
from autotune.importer.onnx_model.graph_walk import attributes_of
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.onnx_model.shapes import OWN_DOMAIN
from autotune.importer.onnx_model.tensors import array_of
from schedules.vocabulary.errors import ModelError

MOVES = frozenset(
    {
        "Reshape",
        "Transpose",
        "Identity",
        "Squeeze",
        "Unsqueeze",
        "Flatten",
        "Concat",
        "Slice",
        "Gather",
        "GatherElements",
        "GatherND",
        "Expand",
        "Split",
        "Tile",
        "Where",
        "ScatterElements",
        "ScatterND",
        "DepthToSpace",
        "SpaceToDepth",
        "Trilu",
        "ReverseSequence",
        "Compress",
        "Shape",
        "Size",
        "TensorScatter",
    }
)
"""Operators that move elements and compute nothing, so that they work on codes."""


HALF_NATIVE = frozenset(
    {
        *("Conv", "MatMul", "Gemm", "MaxPool", "AveragePool", "GlobalMaxPool"),
        *("Add", "Sub", "Mul", "Div", "Neg", "Abs", "Relu", "Max", "Min", "Clip"),
    }
)
"""Operators that a GPU computes on fp16 operands with one rounding, as if in fp32: products and sums of windows are
added up in fp32 there (``cuda_computes``), and fp32 is wide enough that rounding one step twice changes nothing."""


def encoded(model: ModelProto, half_native: bool = False) -> ModelProto:
    """A copy in which every tensor of a narrow type holds its codes (``formats``); the model itself if there is none.

    Args:
        half_native: leave fp16 operands to ``HALF_NATIVE`` operators.

    Raises:
        ModelError: if an operator computes with a type that has no arithmetic.
    """
    scope = Scope(model)
    short = {name: kind for name, kind in scope.types.items() if kind in NARROW or kind == TensorProto.FLOAT16}
    if not short:
        return model
    copy = deepcopy(model)
    kept: list[NodeProto] = []
    for node in copy.graph.node:
        native = half_native and node.op_type in HALF_NATIVE and _is_half(node, scope)
        kept.extend([node] if native else _encoded_node(node, short, scope))
    replace_nodes(copy.graph, kept)
    del copy.graph.value_info[:]
    for value in (*copy.graph.input, *copy.graph.output):
        kind = value.type.tensor_type.elem_type
        value.type.tensor_type.elem_type = STORAGE.get(kind, kind)
    for tensor in copy.graph.initializer:
        if tensor.data_type in NARROW:
            codes = array_of(tensor).view(helper.tensor_dtype_to_np_dtype(STORAGE[tensor.data_type]))
            tensor.CopyFrom(numpy_helper.from_array(codes, tensor.name))
    return copy


def _is_half(node: NodeProto, scope: Scope) -> bool:
    """Whether all that the node reads and writes is fp16."""
    return all(scope.types.get(name) == TensorProto.FLOAT16 for name in (*node.input, *node.output) if name)


def _encoded_node(node: NodeProto, short: dict[str, int], scope: Scope) -> Iterable[NodeProto]:
    touched = [name for name in (*node.input, *node.output) if name in short]
    if not touched or (node.op_type in MOVES and not any(a.name == "reduction" for a in node.attribute)):
        return [node]
    if node.op_type in ("Cast", "CastLike"):
        return _cast(node, short, scope)
    if node.op_type == "BitCast":
        target = next(a.i for a in node.attribute if a.name == "to")
        return [helper.make_node("BitCast", node.input, node.output, node.name, to=STORAGE.get(target, target))]
    before, after, names = [], [], scope.names
    for index, name in enumerate(node.input):
        if name in short:
            if NARROW.get(short[name]) in INTEGERS or NARROW.get(short[name]) in SCALES:
                raise ModelError(
                    f"operator {node.op_type} (node {node.name!r}) is not supported on {NARROW[short[name]]} tensors; "
                    "cast them first"
                )
            before.append(_decode(name, names.new(f"{node.name}/in{index}"), short[name]))
            node.input[index] = before[-1].output[0]
    for index, name in enumerate(node.output):
        if name in short:
            node.output[index] = names.new(f"{node.name}/out{index}")
            after.append(_encode(node.output[index], name, short[name]))
    return [*before, node, *after]


def _decode(name: str, to: str, kind: int) -> NodeProto:
    """The numbers behind codes, as fp32 (integers: int32)."""
    if kind == TensorProto.FLOAT16:
        return helper.make_node("Cast", [name], [to], to, to=TensorProto.FLOAT)
    return helper.make_node("Decode", [name], [to], to, domain=OWN_DOMAIN, format=NARROW[kind])


def _encode(name: str, to: str, kind: int, saturate: int = 1, round_mode: str = "up") -> NodeProto:
    """The codes of fp32 (or int32) numbers."""
    if kind == TensorProto.FLOAT16:
        return helper.make_node("Cast", [name], [to], to, to=TensorProto.FLOAT16)
    more = {"round_mode": round_mode} if NARROW[kind] in SCALES else {}
    return helper.make_node(
        "Encode", [name], [to], to, domain=OWN_DOMAIN, format=NARROW[kind], saturate=saturate, **more
    )


def _cast(node: NodeProto, short: dict[str, int], scope: Scope) -> list[NodeProto]:
    """From codes to numbers, to the type that the encoder wants, to codes; what is not needed is left out."""
    attributes = attributes_of(node)
    source, target = scope.types.get(node.input[0], 0), scope.types.get(node.output[0], attributes.get("to", 0))
    nodes, name = [], node.input[0]
    if source in NARROW:
        nodes.append(_decode(name, scope.names.new(f"{node.name}/decoded"), source))
        name = nodes[-1].output[0]
    if target not in NARROW:
        nodes.append(helper.make_node("Cast", [name], [node.output[0]], node.name, to=target))
        return nodes
    wanted = TensorProto.INT32 if NARROW[target] in INTEGERS else TensorProto.FLOAT
    wide = scope.names.new(f"{node.name}/wide")
    nodes.append(helper.make_node("Cast", [name], [wide], wide, to=wanted))
    mode = attributes.get("round_mode", b"up").decode()
    nodes.append(_encode(wide, node.output[0], target, attributes.get("saturate", 1), mode))
    return nodes
