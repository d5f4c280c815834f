"""Normalisations and running sums that Relax's importer lacks or gets wrong."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from autotune.importer.rewriting.emit import FLOAT, Emit, Node, Wide
from autotune.importer.rewriting.registry import rewrites

DOUBLE = TensorProto.DOUBLE

BY_CHANNEL = 21
"""First opset whose group norms have a scale and a bias per channel."""


@rewrites("LayerNormalization")
def layer_norm(node: Node, e: Emit) -> list[str] | None:
    """Over one axis with a scale and bias of its length, as Relax's importer takes it; else what becomes such a node.

    Written out where mean and deviation are wanted too, which Relax's importer gives another shape, and before opset
    17, where the operator is ONNX Runtime's own.
    """
    shape, kind = node.shape(0), node.type(0)
    rank = len(shape)
    first = int(node.attr("axis", -1)) % max(rank, 1)
    if e.opset >= 17 and not node.wants(1) and not node.wants(2) and kind != DOUBLE:
        return _over_one_axis(node, e, shape, first)
    axes = list(range(first, rank))
    stash = kind if kind == DOUBLE else int(node.attr("stash_type", FLOAT))
    x = e.cast(node.input(0), stash) if kind != stash else node.input(0)
    mean = e.reduce("ReduceMean", x, axes)
    centred = e.op("Sub", x, mean)
    variance = e.reduce("ReduceMean", e.op("Mul", centred, centred), axes)
    epsilon = e.cast(e.const(np.float32(node.attr("epsilon", 1e-5))), stash)
    inverse = e.op("Reciprocal", e.op("Sqrt", e.op("Add", variance, epsilon)))
    normal = e.op("Mul", centred, inverse)
    y = e.op("Mul", e.cast(normal, kind) if kind != stash else normal, node.input(1))
    return [e.op("Add", y, node.input(2)) if node.input(2) else y, mean, inverse]


def _over_one_axis(node: Node, e: Emit, shape: tuple[int, ...], first: int) -> list[str] | None:
    """Several axes as one, and a scale and bias of another shape than theirs applied behind the node."""
    length, present = math.prod(shape[first:]), [index for index in (1, 2) if node.input(index)]
    if first == len(shape) - 1 and all(node.known_shape(index) == (length,) for index in present):
        return None
    apart = [index for index in present if math.prod(node.shape(index)) != length]
    apart = present if 1 in apart else apart  # the bias is added to what is scaled
    fills = {1: np.ones(length), 2: np.zeros(length)}
    parameters = [
        e.const(fills[index].astype(node.dtype(0))) if index in apart else e.reshape(node.input(index), length)
        for index in present
    ]
    x = e.reshape(node.input(0), *shape[:first], length)
    y = e.reshape(e.op("LayerNormalization", x, *parameters, axis=-1, **node.given("epsilon", "stash_type")), *shape)
    for index in apart:
        y = e.op("Mul" if index == 1 else "Add", y, node.input(index))
    return [y]


@rewrites("MeanVarianceNormalization")
def mean_variance_norm(node: Node, e: Emit) -> list[str] | None:
    """(x − mean) ÷ (√variance + 1e-9), which ONNX's own definition loses digits of: it subtracts squares.

    Up to opset 8 it has other attributes, which only ONNX Runtime reads.
    """
    usual = (0, 1, 2, 3) if node.attr("across_channels", 0) else (0, 2, 3)
    axes = [int(axis) % len(node.shape(0)) for axis in node.attr("axes", usual)]
    centred = e.op("Sub", node.input(0), e.reduce("ReduceMean", node.input(0), axes))
    if not node.attr("normalize_variance", 1):
        return [centred]
    deviation = e.op("Sqrt", e.reduce("ReduceMean", e.op("Mul", centred, centred), axes))
    return [e.op("Div", centred, e.op("Add", deviation, e.like(1e-9)))]


SIGNAL = 3
"""Axes of a signal of one dimension."""

IMAGES = SIGNAL, 4
"""Axes of what is normalised in the layout of images."""

BROADCAST = 7
"""Opset from which the operands of arithmetic need not have one shape."""


@rewrites("BatchNormalization")
def batch_norm(node: Node, e: Emit) -> list[str] | None:
    """(x − mean) ÷ √(variance + ε) · scale + bias, with the batch's own statistics (training mode) or computed ones.

    With constant parameters it stays, to be folded into a convolution or by ``scales.split_batch_norms``, unless
    they are of every element of an image (``spatial`` = 0, before opset 9).
    """
    training = bool(node.attr("training_mode", 0))
    apart = not node.attr("spatial", 1)
    mixed = len({node.type(index) for index in range(5)}) > 1
    fixed = {str(name) for name in node.proto.input[1:5]} <= node.scope.given
    if e.opset < BROADCAST or (not training and not apart and not mixed and fixed):
        return None
    x, rank, kind = node.input(0), len(node.shape(0)), node.type(0)
    if mixed and not training:
        names = [e.cast(str(name), FLOAT) for name in node.proto.input]
        more = {"epsilon": node.attr("epsilon", 1e-5)}
        return [e.cast(e.op("BatchNormalization", *names, **more), kind)]
    by_channel = [-1, *[1] * (rank - 2)]

    def parameter(index: int) -> str:
        name = node.input(index)
        name = e.cast(name, kind) if node.type(index) not in (0, kind) else name
        return name if apart or rank == 1 else e.reshape(name, *by_channel)

    scale, bias = parameter(1), parameter(2)
    if training:
        axes = [axis for axis in range(rank) if axis != 1]
        mean = e.reduce("ReduceMean", x, axes)
        centred = e.op("Sub", x, mean)
        variance = e.reduce("ReduceMean", e.op("Mul", centred, centred), axes)
    else:
        mean, variance = parameter(3), parameter(4)
        centred = e.op("Sub", x, mean)
    deviation = e.op("Sqrt", e.op("Add", variance, e.like(node.attr("epsilon", 1e-5))))
    outputs = [e.op("Add", e.op("Mul", e.op("Div", centred, deviation), scale), bias)]
    if training:
        momentum = float(node.attr("momentum", 0.9))
        for index, own in ((3, mean), (4, variance)):
            running = e.op("Mul", node.input(index), e.like(momentum, index))
            own = e.reshape(own, -1)
            own = e.cast(own, node.type(index)) if node.type(index) not in (0, kind) else own
            outputs.append(e.op("Add", running, e.op("Mul", own, e.like(1 - momentum, index))))
    return outputs


@rewrites("GroupNormalization")
def group_norm(node: Node, e: Emit) -> list[str] | None:
    """Return an instance norm of groups. Scale and bias are per group below opset ``BY_CHANNEL``, else per channel."""
    shape, groups = node.shape(0), int(node.attr("num_groups"))
    x = e.reshape(node.input(0), shape[0], groups, -1)
    more = {"epsilon": node.attr("epsilon", 1e-5)}
    scale, bias = node.input(1), node.input(2)
    if e.opset < BY_CHANNEL:
        return [e.reshape(e.op("InstanceNormalization", x, scale, bias, **more), *shape)]
    same = [e.const(np.full(groups, value, node.dtype(0))) for value in (1, 0)]
    normal = e.reshape(e.op("InstanceNormalization", x, *same, **more), *shape)
    by_channel = [shape[1], *[1] * (len(shape) - 2)]
    return [e.op("Add", e.op("Mul", normal, e.reshape(scale, *by_channel)), e.reshape(bias, *by_channel))]


@rewrites("InstanceNormalization")
def instance_norm(node: Node, e: Emit) -> list[str] | None:
    """(x − mean) · scale ÷ √(variance + ε) + bias over each channel's image, in operators that keep its layout.

    A group norm is written as an image whose channels are reshaped to groups: its means are those of channels. A signal
    is an image of one row.
    """
    kind, original = node.type(0), node.known_shape(0)
    image = _ungrouped(node)
    shape = node.known_shape(0) if image == node.input(0) else node.scope.shapes[image]
    if kind != FLOAT or original is None or shape is None or len(shape) not in IMAGES:
        return None
    n, channels, groups = shape[0], shape[1], original[1]
    if len(shape) == SIGNAL:
        if not any(other.op_type == "Conv" for other in node.scope.graph.node):
            return None  # no layout is kept, and fewer kernels compute it as it is
        image = e.reshape(image, n, channels, 1, shape[2])

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
    return [y if image == node.input(0) else e.reshape(y, *original)]


def _ungrouped(node: Node) -> str:
    """The image (n, C, h, w) or signal whose channels a reshape made groups of, else the operator's own input."""
    name, sizes = node.input(0), node.known_shape(0) or ()
    maker = next((other for other in node.scope.graph.node if name in other.output), None)
    if maker is None or maker.op_type != "Reshape":
        return name
    shape = node.scope.shapes.get(maker.input[0], ())
    fits = len(shape) in IMAGES and len(sizes) > 2 and shape[0] == sizes[0] and shape[1] % sizes[1] == 0
    return str(maker.input[0]) if fits else name


def _by_channel(node: Node, e: Emit, index: int, per_group: int) -> str:
    """A parameter of groups (G,) as one of channels, (G · each, 1, 1)."""
    groups = node.shape(index)[0]
    parameter = node.input(index)
    if per_group > 1:
        parameter = e.op("Expand", e.reshape(parameter, groups, 1), e.ints(groups, per_group))
    return e.reshape(parameter, groups * per_group, 1, 1)


@rewrites("LpNormalization")
def lp_norm(node: Node, e: Emit) -> list[str] | None:
    """x ÷ ‖x‖; 0 where the norm is 0."""
    kind = "ReduceL1" if int(node.attr("p", 2)) == 1 else "ReduceL2"
    size = e.reduce(kind, node.input(0), [int(node.attr("axis", -1)) % len(node.shape(0))])
    zero = e.like(0)
    empty = e.op("Equal", size, zero)
    return [e.op("Where", empty, zero, e.op("Div", node.input(0), e.op("Where", empty, e.like(1), size)))]


@rewrites("LRN")
def over_channels(node: Node, e: Emit) -> list[str] | None:
    """x ÷ (bias + α · mean of x² over ``size`` channels)^β; by square roots where β is a number of quarters.

    LLVM makes a power one call of the C library's per element: 19 ns each, a quarter of Inception v1. What is raised is
    never negative where bias and α are not. Relax's importer takes no even ``size``.
    """
    beta = float(node.attr("beta", 0.75))
    alpha, bias = float(node.attr("alpha", 1e-4)), float(node.attr("bias", 1.0))
    quarters = 4 * beta if alpha >= 0 and bias >= 0 else 0
    size, shape = int(node.attr("size")), node.shape(0)
    data = Wide(e, 0)  # 16 bits do not hold the square of 300
    squares = e.reshape(e.op("Mul", data.x, data.x), shape[0], 1, shape[1], -1)
    pads = [(size - 1) // 2, 0, size // 2, 0]
    means = e.op("AveragePool", squares, kernel_shape=[size, 1], pads=pads, count_include_pad=1)
    base = e.op("Add", e.op("Mul", e.reshape(means, *shape), data.number(alpha)), data.number(bias))
    if quarters not in (1, 2, 3, 4):
        return [data.back(e.op("Div", data.x, e.op("Pow", base, data.number(beta))))]
    root = e.op("Sqrt", base) if quarters < 4 else base
    power = {1: lambda: e.op("Sqrt", root), 3: lambda: e.op("Mul", root, e.op("Sqrt", root))}
    return [data.back(e.op("Div", data.x, power.get(int(quarters), lambda: root)()))]
