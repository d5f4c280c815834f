"""Layers with attributes that exporters seldom write: recurrent ones, norms, samplings, attention, transforms."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from tests.fuzz.grower import Grower, NoFitError
from tests.fuzz.layers import windows
from tests.fuzz.rare_moves import axis_of, before, since

FLOAT = TensorProto.FLOAT
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
ACTIVATIONS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
OTHERS = ("Relu", "Tanh", "Sigmoid", "HardSigmoid", "Softsign")


def recurrent(g: Grower) -> None:
    """Either direction or both, with lengths, first states, peepholes, clips and other activations."""
    kind = ("LSTM", "GRU", "RNN")[g.between(0, 2)]
    x = g.pick(lambda name: g.rank(name) == 3 and g.shape(name)[0] <= 16)
    steps, batch, width = g.shape(x)
    direction = ("forward", "reverse", "bidirectional")[g.between(0, 2)]
    ways, units, gates = 2 if direction == "bidirectional" else 1, g.one_of((1, 3, 8, 16, 17)), GATES[kind]
    inputs = [
        x,
        g.normal(ways, gates * units, width, scale=width**-0.5),
        g.normal(ways, gates * units, units, scale=units**-0.5),
        g.normal(ways, 2 * gates * units, scale=0.5) if g.chance(0.7) else "",
        g.constant(g.rng.integers(1, steps + 1, batch).astype(np.int32)) if g.chance(0.3) else "",
        g.normal(ways, batch, units) if g.chance(0.4) else "",
    ]
    more: dict[str, object] = {"hidden_size": units, "direction": direction}
    if kind == "LSTM":
        inputs.append(g.normal(ways, batch, units) if g.chance(0.4) else "")
        inputs.append(g.normal(ways, 3 * units, scale=0.3) if g.chance(0.3) else "")
    if kind == "GRU":
        more["linear_before_reset"] = g.between(0, 1)
    if g.chance(0.2):
        more["clip"] = 1.5
    if g.chance(0.25):
        names = [OTHERS[g.between(0, 4)] if g.chance(0.5) else usual for usual in ACTIVATIONS[kind]]
        more["activations"] = names * ways
    while inputs[-1] == "":
        inputs.pop()
    g.op(kind, *inputs, outputs=3 if kind == "LSTM" else 2, **more)


def norm(g: Grower) -> None:
    kinds = ("LpNormalization", "MeanVarianceNormalization", "GroupNormalization", "RMSNormalization", "GlobalLpPool")
    kind = kinds[g.between(0, len(kinds) - 1)]
    if kind == "LpNormalization":
        x = g.pick(lambda name: g.rank(name) >= 1)
        g.op(kind, g.op("Add", x, g.constant(np.float32(0.3))), axis=axis_of(g, x), p=g.between(1, 2))
        return
    if kind == "RMSNormalization":
        since(g, 23)
        x = g.pick(lambda name: g.rank(name) >= 2 and g.shape(name)[-1] > 3)
        axis = g.between(1, g.rank(x) - 1)
        g.op(kind, x, g.positive(*g.shape(x)[axis:]), axis=axis, epsilon=1e-3)
        return
    x = g.pick(lambda name: g.rank(name) in (3, 4) and math.prod(g.shape(name)[2:]) > 3)
    channels = g.shape(x)[1]
    if kind == "MeanVarianceNormalization":
        axes = [0, *range(2, g.rank(x))] if g.chance(0.5) else [1, 2]
        g.op(kind, x, axes=axes)
    elif kind == "GlobalLpPool":
        before(g, 22)
        g.op(kind, x, p=g.between(1, 3))
    else:
        since(g, 21)
        groups = g.one_of([n for n in range(1, channels + 1) if channels % n == 0])
        g.op(kind, x, g.positive(channels), g.normal(channels), num_groups=groups, epsilon=1e-3)


def pooled(g: Grower) -> None:
    """One to three axes, rounded up, dilated, of any norm, with either kind of automatic padding."""
    x = g.pick(lambda name: 3 <= g.rank(name) <= 5)
    kind = ("MaxPool", "AveragePool", "LpPool")[g.between(0, 2)]
    more: dict[str, object] = dict(windows(g, g.shape(x)[2:], 4))
    if g.chance(0.3):
        del more["pads"]
        more["strides"] = [1 for _ in g.shape(x)[2:]]
        more["auto_pad"] = ("SAME_UPPER", "SAME_LOWER", "VALID")[g.between(0, 2)]
    elif g.chance(0.4) and (kind != "LpPool" or g.opset >= 18):
        more["ceil_mode"] = 1
    if g.chance(0.3) and g.opset >= 19 and "auto_pad" not in more:
        more["dilations"] = [g.between(1, 2) for _ in g.shape(x)[2:]]
    if kind == "LpPool":
        more["p"] = g.between(1, 3)
    if kind == "AveragePool":
        more["count_include_pad"] = g.between(0, 1)
    g.op(kind, x, **more)


def resized(g: Grower) -> None:
    """Any axes to any size, by every rule for places."""
    since(g, 18)
    x = g.pick(lambda name: g.rank(name) in (3, 4))
    mode = ("nearest", "linear", "cubic")[g.between(0, 2 if g.rank(x) == 4 else 1)]
    places = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")
    more: dict[str, object] = {"mode": mode, "coordinate_transformation_mode": places[g.between(0, 3 + (g.opset > 18))]}
    if mode == "nearest":
        kinds = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
        more["nearest_mode"] = kinds[g.between(0, 3)]
    elif g.chance(0.3) and g.rank(x) == 4:
        more["antialias"] = 1
    if mode == "cubic":
        more |= {"cubic_coeff_a": -0.5} if g.chance(0.5) else {}
        more |= {"exclude_outside": 1} if g.chance(0.3) else {}
    sizes = [max(1, size * g.between(1, 6) // 2) for size in g.shape(x)[2:]]
    if g.chance(0.5):
        axes = [axis - g.rank(x) if g.chance(0.3) else axis for axis in range(2, g.rank(x))]
        more["axes"] = axes
        if g.chance(0.4) and min(axes) > 0:  # ONNX Runtime ignores the policy of axes counted from the end
            more["keep_aspect_ratio_policy"] = ("not_larger", "not_smaller")[g.between(0, 1)]
        g.op("Resize", x, "", "", g.ints(*sizes), **more)
    else:
        g.op("Resize", x, "", "", g.ints(*g.shape(x)[:2], *sizes), **more)


def sampled(g: Grower) -> None:
    """GridSample of constant or computed places, some of them outside."""
    since(g, 16)
    x = g.pick(lambda name: g.rank(name) == 4)
    batch, rows, columns = g.shape(x)[0], g.between(1, 6), g.between(1, 6)
    if g.opset >= 20 and g.chance(0.4):
        theta = g.constant(g.rng.uniform(-1.1, 1.1, (batch, 2, 3)).astype(np.float32))
        aligned = g.between(0, 1) if min(rows, columns) > 1 else 0  # else ONNX and ONNX Runtime differ
        grid = g.op("AffineGrid", theta, g.ints(batch, g.shape(x)[1], rows, columns), align_corners=aligned)
    else:
        grid = g.constant(g.rng.uniform(-1.3, 1.3, (batch, rows, columns, 2)).astype(np.float32))
    modes = ("linear", "nearest", "cubic") if g.opset >= 20 else ("bilinear", "nearest", "bicubic")
    more = {
        "mode": modes[g.between(0, 2)],
        "padding_mode": ("zeros", "border", "reflection")[g.between(0, 2)],
        "align_corners": g.between(0, 1),
    }
    g.op("GridSample", x, grid, **more)


def regions(g: Grower) -> None:
    since(g, 16)
    before(g, 22)
    x = g.pick(lambda name: g.rank(name) == 4)
    batch, _, height, width = g.shape(x)
    count = g.between(1, 4)
    corners = g.rng.uniform(0, 0.6, (count, 2)) * (width, height)
    ends = corners + g.rng.uniform(0.2, 0.6, (count, 2)) * (width, height)
    boxes = g.constant(np.concatenate([corners, ends], 1).astype(np.float32))
    numbers = g.constant(g.rng.integers(0, batch, count).astype(np.int64))
    more: dict[str, object] = {
        "mode": ("avg", "max")[g.between(0, 1)],
        "output_height": g.between(1, 4),
        "output_width": g.between(1, 4),
        "sampling_ratio": g.between(0, 3),
        "coordinate_transformation_mode": ("half_pixel", "output_half_pixel")[g.between(0, 1)],
    }
    g.op("RoiAlign", x, boxes, numbers, **more)


def deformed(g: Grower) -> None:
    since(g, 19)
    x = g.pick(lambda name: g.rank(name) == 4 and g.shape(name)[1] <= 32 and min(g.shape(name)[2:]) >= 3)
    batch, channels, *sides = g.shape(x)
    window, out, groups = g.one_of((1, 2, 3)), g.one_of((2, 4, 8)), 2 if channels % 2 == 0 and g.chance(0.3) else 1
    pads, stride = [g.between(0, 1) for _ in range(4)], g.between(1, 2)
    ends = [(side + pads[axis] + pads[axis + 2] - window) // stride + 1 for axis, side in enumerate(sides)]
    apart = 2 if channels % 2 == 0 and g.chance(0.3) else 1
    taps = apart * window**2
    weight = g.normal(out, channels // groups, window, window, scale=1 / math.sqrt(channels * window**2))
    offsets = g.normal(batch, 2 * taps, *ends, scale=0.7)
    more = [g.normal(out) if g.chance(0.5) else ""]
    more += [g.positive(batch, taps, *ends)] if g.chance(0.5) else []
    g.op("DeformConv", x, weight, offsets, *(more if more != [""] else []), pads=pads, strides=[stride] * 2,
         group=groups, offset_group=apart, kernel_shape=[window] * 2)  # fmt: skip


def attention(g: Grower) -> None:
    """ONNX's own, of three or four axes, with groups of heads, masks, causal ones and a bound on scores."""
    since(g, 23)
    x = g.pick(lambda name: g.rank(name) == 3 and g.shape(name)[1] <= 32)
    if g.shape(x)[2] % 4:
        x = g.op("MatMul", x, g.normal(g.shape(x)[2], g.one_of((8, 12, 32)), scale=g.shape(x)[2] ** -0.5))
    batch, length, width = g.shape(x)
    heads = g.one_of((2, 4))
    shared = g.one_of([n for n in (1, 2, heads) if heads % n == 0])
    own = width // heads
    keys = g.op("MatMul", x, g.normal(width, shared * own, scale=width**-0.5))
    values = g.op("MatMul", x, g.normal(width, shared * own, scale=width**-0.5))
    more: dict[str, object] = {"q_num_heads": heads, "kv_num_heads": shared}
    inputs = [x, keys, values]
    if g.chance(0.4):
        dims = ((length, length), (batch, 1, length, length), (batch, heads, length, length))[g.between(0, 2)]
        mask = g.rng.random(dims) < 0.7
        mask[..., 0] = True
        inputs.append(g.constant(mask) if g.chance(0.5) else g.normal(*dims))
    elif g.chance(0.4):
        more["is_causal"] = 1
    if g.chance(0.3):
        more["softcap"] = 2.0
    if g.chance(0.3):
        more["scale"] = 0.3
    g.op("Attention", *inputs, **more)


def rotated(g: Grower) -> None:
    since(g, 23)
    x = g.pick(lambda name: g.rank(name) == 4 and g.shape(name)[3] % 2 == 0 and g.shape(name)[3] >= 4)
    batch, _, length, width = g.shape(x)
    part = width if g.chance(0.6) or width % 4 else width // 2
    tables = [g.normal(batch, length, part // 2) for _ in range(2)]
    more = {"rotary_embedding_dim": part} if part < width else {}
    g.op("RotaryEmbedding", x, *tables, interleaved=g.between(0, 1), **more)


def einsum(g: Grower) -> None:
    """Two operands whose letters are shared, summed or kept by chance, at times one with a sum or a diagonal."""
    x = g.pick(lambda name: 1 <= g.rank(name) <= 4)
    letters = "abcd"[: g.rank(x)]
    if g.chance(0.2):
        kept = "".join(letter for letter in letters if g.chance(0.6))
        g.op("Einsum", x, equation=f"{letters}->{kept}")
        return
    sizes = dict(zip(letters, g.shape(x), strict=True)) | {"x": g.between(1, 5), "y": g.between(1, 3)}
    other = [letter for letter in sizes if g.chance(0.5)] or ["x"]
    other = [other[place] for place in g.rng.permutation(len(other))]
    summed = math.prod(sizes[letter] for letter in other)
    if summed > 20_000 or math.prod(sizes.values()) > 300_000:
        raise NoFitError
    used = [*letters, *(letter for letter in other if letter not in letters)]
    kept_letters = [letter for letter in used if g.chance(0.6)]
    kept = "".join(kept_letters[place] for place in g.rng.permutation(len(kept_letters)))
    weight = g.normal(*(sizes[letter] for letter in other), scale=0.3)
    equation = f"{letters},{''.join(other)}->{kept}"
    g.op("Einsum", x, weight, equation=equation)


def transform(g: Grower) -> None:
    """A discrete Fourier transform of a real or complex signal, in either direction, padded or cut."""
    since(g, 17)
    x = g.pick(lambda name: g.rank(name) in (2, 3) and 2 <= g.shape(name)[-1] <= 64)
    shape = g.shape(x)
    signal = g.op("Reshape", x, g.ints(*shape, 1))
    axis, length = g.between(1, len(shape) - 1), ""
    if g.chance(0.4):
        length = g.constant(np.int64(max(2, shape[axis] + g.between(-2, 3))))
    one = int(g.chance(0.4))
    if g.opset >= 20:
        whole = g.op("DFT", signal, length, g.constant(np.int64(axis)), onesided=one)
    else:
        whole = g.op("DFT", signal, *([length] if length else []), axis=axis, onesided=one)
    if g.chance(0.4) and not one and g.opset >= 20:
        g.op("DFT", whole, "", g.constant(np.int64(axis)), inverse=1)


def determinant(g: Grower) -> None:
    x = g.pick(lambda name: g.rank(name) >= 2 and g.shape(name)[-1] == g.shape(name)[-2] <= 5)
    g.op("Det", x)


def quantised_product(g: Grower) -> None:
    """QLinearMatMul or QLinearConv of bytes, with a scale a column."""
    x = g.pick(lambda name: g.rank(name) in (2, 4), (TensorProto.UINT8,))
    if g.rank(x) == 2:
        dims = (g.shape(x)[1], g.one_of((1, 8, 17)))
        wide, depth = dims[1], dims[0]
    else:
        window = 3 if min(g.shape(x)[2:]) >= 3 and g.chance(0.6) else 1
        dims = (g.one_of((1, 8, 16)), g.shape(x)[1], window, window)
        wide, depth = dims[0], math.prod(dims[1:])
    by_column = g.chance(0.5)
    scales = 0.01 * (0.5 + g.rng.random(wide if by_column else ()))
    zeros = np.zeros(wide if by_column else (), np.int8)
    head = [x, g.constant(np.float32(0.02)), g.constant(np.uint8(g.between(0, 200)))]
    weights = g.constant(g.rng.integers(-127, 128, dims).astype(np.int8))
    body = [weights, g.constant(scales.astype(np.float32)), g.constant(zeros)]
    tail = [g.constant(np.float32(0.02 * math.sqrt(depth) * 0.01 * 70)), g.constant(np.uint8(128))]
    if g.rank(x) == 2:
        g.op("QLinearMatMul", *head, *body, *tail)
    else:
        bias = [g.constant(g.rng.integers(-900, 900, wide).astype(np.int32))] if g.chance(0.5) else []
        g.op("QLinearConv", *head, *body, *tail, *bias, pads=[dims[2] // 2] * 4)


RARE_LAYERS = {
    recurrent: 5,
    norm: 3,
    pooled: 3,
    resized: 3,
    sampled: 2,
    regions: 1.5,
    deformed: 1,
    attention: 4,
    rotated: 3,
    einsum: 3,
    transform: 1.5,
    determinant: 0.7,
    quantised_product: 1.5,
}
"""Operator → how often it is tried."""
