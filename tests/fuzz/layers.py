"""Operators with weights or windows: convolutions, pools, products, normalisations, resampling."""

from __future__ import annotations

import math

import numpy as np

from tests.fuzz.grower import Grower, NoFitError

CHANNELS = (1, 2, 3, 5, 8, 12, 16, 17, 24, 32, 33, 48)


def _spatial(g: Grower, ranks: tuple[int, ...] = (3, 4, 4, 4, 4, 5)) -> str:
    """An image-like value (n, c, …)."""
    rank = g.one_of(ranks)
    return g.pick(lambda name: g.rank(name) == rank and g.shape(name)[1] <= 64)


def windows(g: Grower, sizes: tuple[int, ...], most: int = 5) -> dict[str, list[int]]:
    """Kernel, strides and pads that fit: a window never lies in the padding alone."""
    kernel = [g.between(1, min(most, size + 2)) for size in sizes]
    if g.chance(0.5):
        kernel = [min(kernel)] * len(sizes)
    pads = [g.between(0, (k - 1)) if g.chance(0.6) else (k - 1) // 2 for k in kernel * 2]
    strides = [g.one_of((1, 1, 1, 2, 2, 3)) for _ in sizes]
    reach = [size + pads[axis] + pads[axis + len(sizes)] for axis, size in enumerate(sizes)]
    kernel = [min(k, most) for k, most in zip(kernel, reach, strict=True)]
    return {"kernel_shape": kernel, "pads": pads, "strides": strides}


def conv(g: Grower) -> None:
    x = _spatial(g)
    channels = g.shape(x)[1]
    divisors = [d for d in range(1, channels + 1) if channels % d == 0]
    groups = g.one_of((1, 1, 1, channels, g.one_of(divisors)))
    out = g.one_of(CHANNELS)
    if groups > 1:
        out = groups * g.one_of((1, 1, 2, 3)) if g.chance(0.7) else -(-out // groups) * groups
    attributes: dict[str, object] = {**windows(g, g.shape(x)[2:]), "group": groups}
    kernel = attributes["kernel_shape"]
    assert isinstance(kernel, list)
    if g.chance(0.2) and all(2 * k - 1 <= size for k, size in zip(kernel, g.shape(x)[2:], strict=True)):
        attributes["dilations"] = [g.one_of((1, 2)) for _ in kernel]
    if g.chance(0.15):
        del attributes["pads"]
        attributes.pop("dilations", None)
        attributes["auto_pad"] = ("SAME_UPPER", "SAME_LOWER", "VALID")[g.between(0, 2)]
    depth = channels // groups * math.prod(kernel)
    weights = [g.normal(out, channels // groups, *kernel, scale=1 / math.sqrt(depth))]
    weights += [g.normal(out)] if g.chance(0.6) else []
    made = g.op("Conv", x, *weights, **attributes)
    if g.chance(0.3):
        made = g.op("BatchNormalization", made, g.positive(out), g.normal(out), g.normal(out), g.positive(out))
    if g.chance(0.4):
        g.op(("Relu", "Sigmoid", "Tanh", "LeakyRelu")[g.between(0, 3)], made)


def conv_transpose(g: Grower) -> None:
    x = _spatial(g, (4,))
    channels = g.shape(x)[1]
    groups = 1 if g.chance(0.7) else g.one_of([d for d in range(1, channels + 1) if channels % d == 0])
    out = g.one_of((1, 2, 3, 8))
    attributes = windows(g, g.shape(x)[2:], 4)
    strides = attributes["strides"]
    more: dict[str, object] = {"group": groups}
    if g.chance(0.3):
        more["output_padding"] = [g.between(0, stride - 1) for stride in strides]
    weight = g.normal(channels, out, *attributes["kernel_shape"], scale=1 / math.sqrt(channels))
    g.op("ConvTranspose", x, weight, **attributes, **more)


def pool(g: Grower) -> None:
    x = _spatial(g)
    kind = "MaxPool" if g.chance(0.5) else "AveragePool"
    attributes: dict[str, object] = dict(windows(g, g.shape(x)[2:], 4))
    if g.chance(0.25):
        attributes["ceil_mode"] = 1
    if kind == "AveragePool" and g.chance(0.4):
        attributes["count_include_pad"] = 1
    if kind == "MaxPool" and g.chance(0.15):
        attributes["dilations"] = [g.one_of((1, 2)) for _ in g.shape(x)[2:]]
    g.op(kind, x, **attributes)


def global_pool(g: Grower) -> None:
    x = _spatial(g)
    g.op("GlobalAveragePool" if g.chance(0.7) else "GlobalMaxPool", x)


def matmul(g: Grower) -> None:
    x = g.pick(lambda name: 1 <= g.rank(name) <= 4)
    depth = g.shape(x)[-1]
    others = [n for n in g.values if n != x and g.rank(n) >= 2 and g.shape(n)[-2] == depth and g.dtype(n) == 1]
    if others and g.chance(0.4):
        scaled = g.op("Mul", x, g.constant(np.float32(1 / math.sqrt(depth))))
        g.op("MatMul", scaled, others[g.between(0, len(others) - 1)])
        return
    batch = g.shape(x)[:-2] if g.rank(x) > 2 and g.chance(0.3) else ()
    made = g.op("MatMul", x, g.normal(*batch, depth, g.one_of((1, 3, 8, 16, 17, 33, 64)), scale=depth**-0.5))
    if g.chance(0.5) and g.rank(made):
        made = g.op("Add", made, g.normal(g.shape(made)[-1]))
    if g.chance(0.3):
        g.op(("Relu", "Tanh", "Erf")[g.between(0, 2)], made)


def attention(g: Grower) -> None:
    """x xᵀ along the last axis, a softmax, and back."""
    x = g.pick(lambda name: g.rank(name) in (2, 3, 4) and g.shape(name)[-2] <= 32)
    rank = g.rank(x)
    swapped = g.op("Transpose", x, perm=[*range(rank - 2), rank - 1, rank - 2])
    scores = g.op("Mul", g.op("MatMul", x, swapped), g.constant(np.float32(0.5 / math.sqrt(g.shape(x)[-1]))))
    g.op("MatMul", g.op("Softmax", scores, axis=-1), x)


def gemm(g: Grower) -> None:
    x = g.pick(lambda name: g.rank(name) == 2)
    rows, depth = g.shape(x)
    turn = int(g.chance(0.3))
    rows, depth = (depth, rows) if turn else (rows, depth)
    wide = g.one_of((1, 3, 10, 16, 17, 33, 64))
    flip = int(g.chance(0.5))
    weight = g.normal(*((wide, depth) if flip else (depth, wide)), scale=depth**-0.5)
    shapes = ((wide,), (1, wide), (rows, 1), (rows, wide), (1,), ())
    bias = [g.normal(*shapes[g.between(0, 5)])] if g.chance(0.7) else []
    scale = {"alpha": 0.5, "beta": 2.0} if g.chance(0.2) else {}
    made = g.op("Gemm", x, weight, *bias, transA=turn, transB=flip, **scale)
    if g.chance(0.4):
        g.op("Relu", made)


def einsum(g: Grower) -> None:
    x = g.pick(lambda name: g.rank(name) == 3)
    batch, _, depth = g.shape(x)
    scale = depth**-0.5
    if g.chance(0.5):
        g.op("Einsum", x, g.normal(batch, depth, 5, scale=scale), equation="bij,bjk->bik")
    else:
        g.op("Einsum", x, g.normal(7, depth, scale=scale), equation="bij,kj->bki")


def layer_norm(g: Grower) -> None:
    x = g.pick(lambda name: g.rank(name) >= 1 and g.shape(name)[-1] > 3)
    axis = -1 if g.chance(0.8) or g.rank(x) < 3 else -2
    shape = g.shape(x)[axis:]
    bias = [g.normal(*shape)] if g.chance(0.8) else []
    if g.chance(0.5):
        g.op("LayerNormalization", x, g.positive(*shape), *bias, axis=axis, epsilon=1e-3)
    else:
        g.layer_norm(x, g.shape(x)[-1])


def instance_norm(g: Grower) -> None:
    x = g.pick(lambda name: g.rank(name) in (3, 4) and math.prod(g.shape(name)[2:]) > 3)
    channels = g.shape(x)[1]
    g.op("InstanceNormalization", x, g.positive(channels), g.normal(channels), epsilon=1e-3)


def local_response(g: Grower) -> None:
    x = g.pick(lambda name: g.rank(name) == 4)
    g.op("LRN", x, size=g.one_of((1, 3, 5)), alpha=0.1, beta=0.75, bias=1.0)


def resize(g: Grower) -> None:
    x = g.pick(lambda name: g.rank(name) == 4)
    scales = [1.0, 1.0, *((1.0, 2.0, 2.0, 3.0, 0.5)[g.between(0, 4)] for _ in range(2))]
    if g.chance(0.6):
        mode = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    else:
        modes = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
        mode = {"mode": "linear", "coordinate_transformation_mode": modes[g.between(0, 3)]}
    if g.chance(0.5):
        g.op("Resize", x, "", g.constant(np.array(scales, np.float32)), **mode)
    else:
        sizes = [int(size * scale) for size, scale in zip(g.shape(x), scales, strict=True)]
        if min(sizes) < 1:
            raise NoFitError
        g.op("Resize", x, "", "", g.ints(*sizes), **mode)


LAYERS = {
    conv: 16,
    conv_transpose: 1,
    pool: 3,
    global_pool: 1,
    matmul: 5,
    attention: 2,
    gemm: 3,
    einsum: 1,
    layer_norm: 2,
    instance_norm: 1,
    local_response: 0.5,
    resize: 1.5,
}
"""Operator → how often it is tried."""
