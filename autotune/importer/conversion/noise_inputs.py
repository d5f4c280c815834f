"""Operators that draw random numbers become arithmetic on inputs of noise, which the session draws.

``RandomNormalLike(x)`` becomes ``noise · scale + mean``, of which ``noise`` is a new input of the shape of x. So the
kernels and the reference engine compute the same function of the same numbers, and can be compared. An operator in a
body of an If, Loop or Scan stays as it is, and is refused later.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import ModelProto, TensorProto, helper

from autotune.frame.noise import NORMAL, UNIFORM, noise_name
from autotune.importer.conversion.flat_model import flatten, inline_functions
from autotune.importer.onnx_model.graph_edits import constants_to_initialisers
from autotune.importer.onnx_model.graph_walk import RANDOM, name_nodes, walk_nodes
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.onnx_model.shapes import STANDARD_DOMAINS, infer_shapes
from autotune.importer.rewriting.emit import FLOAT, INT64, Emit, Node
from autotune.importer.rewriting.registry import replace_all
from schedules.vocabulary.errors import ModelError

DOUBLE = TensorProto.DOUBLE

OPEN_NOISE = 1 << 20
"""Elements of noise for a tensor whose size depends on data; a larger one repeats them. Heuristic, not measured: a
voice of 192 channels speaks for a minute with 5,000 frames."""

CUMULATIVE = 11
"""First opset with CumSum and Range."""


def set_noise_apart(model: ModelProto) -> None:
    """Put arithmetic on inputs of noise in the place of operators of the main graph that draw, in place.

    Args:
        model: its shapes are inferred.

    Raises:
        ModelError: as ``infer_shapes`` and ``inline_functions``.
    """
    if any(node.op_type in DRAWN for function in model.functions for node in walk_nodes(function.node)):
        model.CopyFrom(inline_functions(model))
        infer_shapes(model)
    if not any(node.op_type in DRAWN and node.domain in STANDARD_DOMAINS for node in model.graph.node):
        return
    constants_to_initialisers(model.graph)
    scope = Scope(model)
    if not all(name in scope.shapes for node in model.graph.node if node.op_type in RANDOM for name in node.output):
        _learn_sizes(scope, model)
    drawn, refusal = replace_all(
        model, scope, lambda proto: DRAWN.get(proto.op_type) if proto.domain in STANDARD_DOMAINS else None
    )
    if refusal is not None:
        raise refusal
    if drawn:
        name_nodes(model.graph.node)
        infer_shapes(model)


def _learn_sizes(scope: Scope, model: ModelProto) -> None:
    """Add to ``scope`` the shapes and constants that folding finds."""
    try:
        known = Scope(flatten(model))
    except ModelError:  # the model is refused later, in the words for what is wrong
        return
    for name in known.made & scope.made:
        if name in known.shapes:
            scope.shapes.setdefault(name, known.shapes[name])
            scope.ranks.setdefault(name, known.ranks[name])
        if name in known.types:
            scope.types.setdefault(name, known.types[name])


def _noise(node: Node, e: Emit, kind: str, like: str, shape: tuple[int, ...] | None, dtype: int = FLOAT) -> str:
    """An input of noise of ``shape``; where that is not known, of the shape of the value ``like``."""
    seed = node.attr("seed")
    bits = None if seed is None else int(np.float32(seed).view(np.uint32))
    stem = next((str(output) for output in node.proto.output if output), node.name)
    name = e.scope.names.new(noise_name(kind, bits, stem))
    sizes = (OPEN_NOISE,) if shape is None else shape
    e.scope.graph.input.append(helper.make_tensor_value_info(name, dtype, sizes))
    e.scope.note(e.scope.graph.input[-1])
    if shape is not None:
        return name
    if e.opset < CUMULATIVE:
        raise node.refused(f"the shape of its result depends on data, which needs opset {CUMULATIVE} or newer")
    own = e.op("Shape", like)
    zero, one, most = (e.const(np.int64(number)) for number in (0, 1, OPEN_NOISE))
    count = e.op("Size", like)
    places = e.op("Mod", e.op("Range", zero, count, one), most)
    return e.op("Reshape", e.op("Gather", name, places, axis=0), own)


def _wide(kind: int) -> int:
    """The type in which numbers for a tensor of the ONNX type ``kind`` are drawn."""
    return DOUBLE if kind == DOUBLE else FLOAT


def _shape_of(node: Node) -> tuple[int, ...] | None:
    """The shape of a result: its own, an attribute's, or that of what it is like."""
    said = node.attr("shape")
    if said is not None:
        return tuple(map(int, said))
    known = node.scope.shapes.get(str(node.proto.output[0]))
    return known if known is not None or not node.proto.input else node.known_shape(0)


def _random(node: Node, e: Emit) -> list[str] | None:
    """``noise · scale + mean``, or ``noise · (high − low) + low``."""
    kind = NORMAL if "Normal" in node.kind else UNIFORM
    wanted = int(node.attr("dtype") or (node.type(0) if node.proto.input else 0) or FLOAT)
    dtype = _wide(wanted)
    x = _noise(node, e, kind, node.input(0), _shape_of(node), dtype)
    if kind == NORMAL:
        factor, offset = node.attr("scale", 1.0), node.attr("mean", 0.0)
    else:
        offset = node.attr("low", 0.0)
        factor = node.attr("high", 1.0) - offset
    numbers = np.array([factor, offset]).astype(helper.tensor_dtype_to_np_dtype(dtype))
    if factor != 1.0:
        x = e.op("Mul", x, e.const(numbers[0]))
    if offset != 0.0:
        x = e.op("Add", x, e.const(numbers[1]))
    return [x if wanted == dtype else e.cast(x, wanted)]


def _bernoulli(node: Node, e: Emit) -> list[str] | None:
    """``noise < p``."""
    p, dtype = node.input(0), _wide(node.type(0))
    if node.type(0) != dtype:
        p = e.cast(p, dtype)
    u = _noise(node, e, UNIFORM, node.input(0), _shape_of(node), dtype)
    return [e.cast(e.op("Less", u, p), int(node.attr("dtype") or node.type(0) or FLOAT))]


def _multinomial(node: Node, e: Emit) -> list[str] | None:
    """The first class whose cumulative probability is above ``noise``: how many are not.

    In fp64, whose rounding moves no boundary that a number of 53 bits is likely to meet.
    """
    if e.opset < CUMULATIVE:
        return None
    count, shape = int(node.attr("sample_size", 1)), node.known_shape(0)
    if shape is None:
        raise node.refused("the shape of its input depends on data")
    rows, classes = shape
    x = e.cast(node.input(0), DOUBLE)
    weights = e.op("Exp", e.op("Sub", x, e.reduce("ReduceMax", x, [1])))
    sums = e.op("CumSum", weights, e.const(np.int32(1)))
    total = e.slice(sums, 1, classes - 1, classes)
    u = _noise(node, e, UNIFORM, "", (rows, count), DOUBLE)
    below = e.op("Less", e.reshape(e.op("Mul", u, total), rows, count, 1), e.reshape(sums, rows, 1, classes))
    passed = e.reduce("ReduceSum", e.cast(e.op("Not", below), INT64), [2], keepdims=False)
    last = e.const(np.int64(classes - 1))
    index = e.op("Where", e.op("Less", passed, last), passed, last)
    return [e.cast(index, int(node.attr("dtype", TensorProto.INT32)))]


def _dropout(node: Node, e: Emit) -> list[str] | None:
    """``x · (noise ≥ ratio) ÷ (1 − ratio)`` where it trains."""
    training, ratio = node.array(2), node.array(1)
    if not node.input(2) or (training is not None and not training.any()) or (ratio is not None and not ratio.any()):
        return None
    kind, dtype = node.type(0), _wide(node.type(0))
    u = _noise(node, e, UNIFORM, node.input(0), node.known_shape(0), dtype)
    half, one = (e.const(np.array(number, helper.tensor_dtype_to_np_dtype(dtype))) for number in (0.5, 1))
    r = e.cast(node.input(1), dtype) if node.input(1) else half
    kept = e.op("Not", e.op("Less", u, r))
    scale = e.op("Div", one, e.op("Sub", one, r))
    if training is None:
        idle = e.op("Not", node.input(2))
        kept = e.op("Or", kept, idle)
        scale = e.op("Where", idle, one, scale)
    x = node.input(0) if kind == dtype else e.cast(node.input(0), dtype)
    y = e.op("Mul", e.op("Mul", x, scale), e.cast(kept, dtype))
    return [y if kind == dtype else e.cast(y, kind), kept]


DRAWN: dict[str, Callable[[Node, Emit], list[str] | None]] = {
    "RandomNormal": _random,
    "RandomNormalLike": _random,
    "RandomUniform": _random,
    "RandomUniformLike": _random,
    "Bernoulli": _bernoulli,
    "Multinomial": _multinomial,
    "Dropout": _dropout,
}
"""Operators that draw → what takes their place; None leaves a node as it is."""
