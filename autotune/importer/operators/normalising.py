"""Normalisations and reductions in the forms that Relax's importer lacks or gets wrong."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from autotune.importer.conversion.registry import rewrites
from autotune.importer.conversion.scope import FLOAT, Emit, Node


def _tail(node: Node) -> list[int]:
    """Axes from attribute ``axis`` to the last."""
    rank = len(node.shape(0))
    return list(range(int(node.attr("axis", -1)) % rank, rank))


@rewrites("LayerNormalization")
def layer_norm(node: Node, e: Emit) -> list[str] | None:
    """Written out where mean and deviation are wanted too; Relax's importer gives those another shape."""
    if not node.wants(1) and not node.wants(2):
        return None
    axes, kind = _tail(node), node.type(0)
    stash = int(node.attr("stash_type", FLOAT))
    x = e.cast(node.input(0), stash) if kind != stash else node.input(0)
    mean = e.reduce("ReduceMean", x, axes)
    centred = e.op("Sub", x, mean)
    variance = e.reduce("ReduceMean", e.op("Mul", centred, centred), axes)
    epsilon = e.cast(e.const(np.float32(node.attr("epsilon", 1e-5))), stash)
    inverse = e.op("Reciprocal", e.op("Sqrt", e.op("Add", variance, epsilon)))
    normal = e.op("Mul", centred, inverse)
    y = e.op("Mul", e.cast(normal, kind) if kind != stash else normal, node.input(1))
    return [e.op("Add", y, node.input(2)) if node.input(2) else y, mean, inverse]


@rewrites("RMSNormalization")
def rms_norm(node: Node, e: Emit) -> list[str] | None:
    """x ÷ √(mean x² + ε) · scale."""
    axes, kind = _tail(node), node.type(0)
    stash = int(node.attr("stash_type", FLOAT))
    x = e.cast(node.input(0), stash) if kind != stash else node.input(0)
    square = e.reduce("ReduceMean", e.op("Mul", x, x), axes)
    epsilon = e.cast(e.const(np.float32(node.attr("epsilon", 1e-5))), stash)
    normal = e.op("Div", x, e.op("Sqrt", e.op("Add", square, epsilon)))
    return [e.op("Mul", e.cast(normal, kind) if kind != stash else normal, node.input(1))]


@rewrites("BatchNormalization")
def batch_norm_training(node: Node, e: Emit) -> list[str] | None:
    """In training mode: by the batch's own mean and variance, which move the running ones."""
    if not node.attr("training_mode", 0):
        return None
    x, rank = node.input(0), len(node.shape(0))
    axes = [axis for axis in range(rank) if axis != 1]
    mean = e.reduce("ReduceMean", x, axes)
    centred = e.op("Sub", x, mean)
    variance = e.reduce("ReduceMean", e.op("Mul", centred, centred), axes)
    wide = [-1, *[1] * (rank - 2)]
    inverse = e.op("Sqrt", e.op("Add", variance, e.like(node.attr("epsilon", 1e-5))))
    y = e.op("Mul", e.op("Div", centred, inverse), e.reshape(node.input(1), *wide))
    made = [e.op("Add", y, e.reshape(node.input(2), *wide))]
    momentum = float(node.attr("momentum", 0.9))
    for index, fresh in ((3, mean), (4, variance)):
        old = e.op("Mul", node.input(index), e.like(momentum))
        made.append(e.op("Add", old, e.op("Mul", e.reshape(fresh, -1), e.like(1 - momentum))))
    return made


@rewrites("MeanVarianceNormalization")
def mean_variance(node: Node, e: Emit) -> list[str] | None:
    """(x − mean) ÷ (√variance + 1e-9)."""
    axes = [int(axis) % len(node.shape(0)) for axis in node.attr("axes", [0, 2, 3])]
    centred = e.op("Sub", node.input(0), e.reduce("ReduceMean", node.input(0), axes))
    deviation = e.op("Sqrt", e.reduce("ReduceMean", e.op("Mul", centred, centred), axes))
    return [e.op("Div", centred, e.op("Add", deviation, e.like(1e-9)))]


@rewrites("LpNormalization")
def lp_norm(node: Node, e: Emit) -> list[str] | None:
    """x ÷ ‖x‖; 0 where the norm is 0."""
    kind = "ReduceL1" if int(node.attr("p", 2)) == 1 else "ReduceL2"
    size = e.reduce(kind, node.input(0), [int(node.attr("axis", -1)) % len(node.shape(0))])
    zero = e.like(0)
    empty = e.op("Equal", size, zero)
    return [e.op("Where", empty, zero, e.op("Div", node.input(0), e.op("Where", empty, e.like(1), size)))]


@rewrites("ReduceMax", "ReduceMin")
def reduce_bool(node: Node, e: Emit) -> list[str] | None:
    """Of booleans: by way of int32."""
    if node.type(0) != TensorProto.BOOL:
        return None
    wide = e.cast(node.input(0), TensorProto.INT32)
    axes = node.array(1) if node.input(1) else node.attr("axes")
    if axes is None:
        if node.attr("noop_with_empty_axes", 0):
            return [e.op("Identity", node.input(0))]
        axes = range(len(node.shape(0)))
    keep = bool(node.attr("keepdims", 1))
    return [e.cast(e.reduce(node.kind, wide, [int(axis) for axis in axes], keep), TensorProto.BOOL)]


@rewrites("CumSum", "CumProd")
def cumulative(node: Node, e: Emit) -> list[str] | None:
    """By doubling: after step k every element holds what the 2^k before it and itself make together."""
    axis = int(node.constant(1, "axis").reshape(-1)[0]) % len(node.shape(0))
    shape, x = node.shape(0), node.input(0)
    kind, neutral = ("Add", 0) if node.kind == "CumSum" else ("Mul", 1)
    extent = shape[axis]
    back = bool(node.attr("reverse", 0))

    def shifted(x: str, by: int) -> str:
        filler = e.const(np.full((*shape[:axis], by, *shape[axis + 1 :]), neutral).astype(node.dtype(0)))
        if back:
            return e.concat([e.slice(x, axis, by, extent), filler], axis)
        return e.concat([filler, e.slice(x, axis, 0, extent - by)], axis)

    if node.attr("exclusive", 0):
        x = shifted(x, 1)
    step = 1
    while step < extent:
        x = e.op(kind, x, shifted(x, step))
        step *= 2
    return [x if x != node.input(0) else e.op("Identity", x)]
