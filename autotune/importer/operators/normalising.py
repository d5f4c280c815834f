"""Normalisations and running sums that Relax's importer lacks or gets wrong."""

from __future__ import annotations

import math

import numpy as np

from autotune.importer.conversion.emit import FLOAT, Emit, Node
from autotune.importer.conversion.registry import rewrites


@rewrites("LayerNormalization")
def layer_norm(node: Node, e: Emit) -> list[str] | None:
    """Written out where mean and deviation are wanted too, which Relax's importer gives another shape, and before opset
    17, where the operator is ONNX Runtime's own.
    """
    if e.opset >= 17 and not node.wants(1) and not node.wants(2):
        return None
    rank, kind = len(node.shape(0)), node.type(0)
    axes = list(range(int(node.attr("axis", -1)) % rank, rank))
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


@rewrites("BatchNormalization")
def batch_norm(node: Node, e: Emit) -> list[str] | None:
    """(x − mean) ÷ √(variance + ε) · scale + bias, with the batch's own statistics (training mode) or computed ones.

    With constant parameters it stays, to be folded into a convolution or by ``rewrites.split_batch_norms``.
    """
    training = bool(node.attr("training_mode", 0))
    if not training and {str(name) for name in node.proto.input[1:5]} <= node.scope.given:
        return None
    x, rank = node.input(0), len(node.shape(0))
    by_channel = [-1, *[1] * (rank - 2)]
    scale, bias = e.reshape(node.input(1), *by_channel), e.reshape(node.input(2), *by_channel)
    if training:
        axes = [axis for axis in range(rank) if axis != 1]
        mean = e.reduce("ReduceMean", x, axes)
        centred = e.op("Sub", x, mean)
        variance = e.reduce("ReduceMean", e.op("Mul", centred, centred), axes)
    else:
        mean, variance = e.reshape(node.input(3), *by_channel), e.reshape(node.input(4), *by_channel)
        centred = e.op("Sub", x, mean)
    deviation = e.op("Sqrt", e.op("Add", variance, e.like(node.attr("epsilon", 1e-5))))
    made = [e.op("Add", e.op("Mul", e.op("Div", centred, deviation), scale), bias)]
    if training:
        momentum = float(node.attr("momentum", 0.9))
        for index, own in ((3, mean), (4, variance)):
            running = e.op("Mul", node.input(index), e.like(momentum))
            made.append(e.op("Add", running, e.op("Mul", e.reshape(own, -1), e.like(1 - momentum))))
    return made


@rewrites("InstanceNormalization")
def instance_norm(node: Node, e: Emit) -> list[str] | None:
    """(x − mean) · scale ÷ √(variance + ε) + bias over each channel's image, in operators that keep its layout.

    A group norm is written as an image whose channels are reshaped to groups: its means are those of channels.
    """
    kind, given = node.type(0), node.known_shape(0)
    image = _ungrouped(node)
    shape = node.known_shape(0) if image == node.input(0) else node.scope.shapes[image]
    if kind != FLOAT or given is None or shape is None or len(shape) != 4:
        return None
    n, channels, groups = shape[0], shape[1], given[1]

    def shared(own: str) -> str:
        """The mean of a group's channels, for each of them."""
        if groups == channels:
            return own
        mean = e.reduce("ReduceMean", e.reshape(own, n, groups, channels // groups), [2])
        return e.reshape(e.op("Expand", mean, e.ints(n, groups, channels // groups)), n, channels, 1, 1)

    # Differences are taken twice, with either sign, so that each goes into the kernel that reads it, and squares are
    # summed: TVM takes a mean for a product, before which nothing is fused.
    mean = shared(e.reduce("ReduceMean", image, [2, 3]))
    below = e.op("Sub", mean, image)
    squares = e.reduce("ReduceSum", e.op("Mul", below, below), [2, 3])
    variance = shared(e.op("Mul", squares, e.like(1 / math.prod(shape[2:]))))
    deviation = e.op("Sqrt", e.op("Add", variance, e.like(node.attr("epsilon", 1e-5))))
    scale, bias = (_by_channel(node, e, index, channels // groups) for index in (1, 2))
    y = e.op("Add", e.op("Mul", e.op("Sub", image, mean), e.op("Div", scale, deviation)), bias)
    return [y if image == node.input(0) else e.reshape(y, *given)]


def _ungrouped(node: Node) -> str:
    """The image (n, C, h, w) whose channels a reshape made groups of, else the operator's own input."""
    name, given = node.input(0), node.known_shape(0) or ()
    maker = next((each for each in node.scope.graph.node if name in each.output), None)
    if maker is None or maker.op_type != "Reshape":
        return name
    shape = node.scope.shapes.get(maker.input[0], ())
    fits = len(shape) == 4 and len(given) > 2 and shape[0] == given[0] and shape[1] % given[1] == 0
    return str(maker.input[0]) if fits else name


def _by_channel(node: Node, e: Emit, index: int, each: int) -> str:
    """A parameter of groups (G,) as one of channels, (G · each, 1, 1)."""
    groups = node.shape(index)[0]
    given = node.input(index)
    if each > 1:
        given = e.op("Expand", e.reshape(given, groups, 1), e.ints(groups, each))
    return e.reshape(given, groups * each, 1, 1)


@rewrites("LpNormalization")
def lp_norm(node: Node, e: Emit) -> list[str] | None:
    """x ÷ ‖x‖; 0 where the norm is 0."""
    kind = "ReduceL1" if int(node.attr("p", 2)) == 1 else "ReduceL2"
    size = e.reduce(kind, node.input(0), [int(node.attr("axis", -1)) % len(node.shape(0))])
    zero = e.like(0)
    empty = e.op("Equal", size, zero)
    return [e.op("Where", empty, zero, e.op("Div", node.input(0), e.op("Where", empty, e.like(1), size)))]


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


@rewrites("LRN")
def over_channels(node: Node, e: Emit) -> list[str] | None:
    """x ÷ (bias + α · mean of x² over ``size`` channels)^β, where β is a number of quarters: by square roots.

    Relax's importer takes a power, which LLVM makes one call of the C library's per element: 19 ns each, a quarter of
    Inception v1. What is raised is never negative where bias and α are not.
    """
    quarters = 4 * float(node.attr("beta", 0.75))
    alpha, bias = float(node.attr("alpha", 1e-4)), float(node.attr("bias", 1.0))
    if quarters not in (1, 2, 3, 4) or alpha < 0 or bias < 0 or node.type(0) != FLOAT:
        return None
    size, shape = int(node.attr("size")), node.shape(0)
    squares = e.reshape(e.op("Mul", node.input(0), node.input(0)), shape[0], 1, shape[1], -1)
    pads = [(size - 1) // 2, 0, size // 2, 0]
    means = e.op("AveragePool", squares, kernel_shape=[size, 1], pads=pads, count_include_pad=1)
    base = e.op("Add", e.op("Mul", e.reshape(means, *shape), e.like(alpha)), e.like(bias))
    root = e.op("Sqrt", base) if quarters < 4 else base
    power = {1: lambda: e.op("Sqrt", root), 3: lambda: e.op("Mul", root, e.op("Sqrt", root))}
    return [e.op("Div", node.input(0), power.get(int(quarters), lambda: root)())]
