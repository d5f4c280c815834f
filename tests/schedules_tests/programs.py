"""Small programs, one per case that a template must get right, each with what NumPy says of it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes  # noqa: F401  # by importing it, np.dtype("bfloat16") exists
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from tvm import relax, te, tirx

from autotune.host.dtypes import numpy_type
from schedules.config import Config
from schedules.lower import normalise, repack
from schedules.target import Target
from schedules.templates.common.windows import Pooling, Window
from schedules.templates.cpu.batch_matmul import batch_matmul
from schedules.templates.cpu.conv2d import conv2d
from schedules.templates.cpu.depthwise import depthwise
from schedules.templates.cpu.matmul import matmul
from schedules.templates.cpu.pooling import pool2d
from schedules.templates.instructions.dots import FORMS, TAPS, DotForm
from schedules.templates.low_bit.low_bit_matmul import low_bit_matmul
from schedules.templates.low_bit.low_bit_panels import low_bit_panels
from schedules.templates.low_bit.low_bit_tiles import low_bit_tiles
from tests.schedules_tests.guarded import GuardedTensor
from tests.shipping import loaded_kernel

Array = NDArray[Any]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A program for one template.

    Attributes:
        name: for people and golden files.
        template: who must claim it.
        build: makes the normalised function.
        expected: inputs → output by NumPy.
    """

    name: str
    template: str
    build: Callable[[], tirx.PrimFunc]
    expected: Callable[..., Array]

    @functools.cached_property
    def func(self) -> tirx.PrimFunc:
        return self.build()


def shapes(func: tirx.PrimFunc) -> list[Shape]:
    """Shape of every parameter; the last is the output."""
    return [tuple(int(size) for size in param.ty.shape) for param in func.params]


def dtypes(func: tirx.PrimFunc) -> list[np.dtype[Any]]:
    """Type of every parameter; the last is the output's."""
    return [np.dtype(str(param.ty.dtype)) for param in func.params]


def inputs(func: tirx.PrimFunc, seed: int = 0) -> list[Array]:
    """Random arrays: of any value in integers, else positive (some programs take roots).

    So an accumulator left at zero shows.
    """
    rng = np.random.default_rng(seed)

    def array(shape: Shape, dtype: np.dtype[Any]) -> Array:
        if dtype.kind not in "iu":
            return rng.uniform(0.1, 1.0, shape).astype(dtype)
        limits = np.iinfo(dtype if dtype.itemsize == 1 else np.int16)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)

    return [array(*signature) for signature in zip(shapes(func)[:-1], dtypes(func)[:-1], strict=True)]


def run(func: tirx.PrimFunc, config: Config, target: Target, arrays: list[Array]) -> Array:
    """Return the output of ``func`` under ``config``, compiled even where its template writes assembly.

    It runs twice: with nothing to be touched behind its tensors, and with nothing in front of them.

    Raises:
        ScheduleError: if the config is illegal.
    """
    kernel = loaded_kernel(func, config, target)
    changed = {index: how.apply(arrays[index]) for index, how in repack(func, config).items()}
    out_dtype = dtypes(func)[-1]
    nothing = 77 if out_dtype.kind in "iu" else np.nan  # what is not written shows
    passed = [changed.get(index, array) for index, array in enumerate(arrays)]
    unwritten = np.full(shapes(func)[-1], nothing, out_dtype)
    outputs = []
    for at_end in (True, False):
        tensors = [GuardedTensor(array, at_end) for array in (*passed, unwritten)]
        kernel(*(guarded.tensor for guarded in tensors))
        outputs.append(tensors[-1].read())
    np.testing.assert_array_equal(*outputs)
    return outputs[0]


def from_te(*tensors: te.Tensor) -> tirx.PrimFunc:
    """The function, with 64-bit indices as Relax gives them to its kernels."""
    return normalise(te.create_prim_func(list(tensors), index_dtype_override="int64"))


def from_relax(build: Callable[..., relax.Expr], *sizes: Shape) -> tirx.PrimFunc:
    """The one kernel that legalising and fusing ``build`` leaves."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{index}", relax.TensorType(size, "float32")) for index, size in enumerate(sizes)]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(build(*params))
        builder.emit_func_output(out)
    module = builder.finalize()
    for step in (
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
        relax.transform.DeadCodeElimination(["main"]),
    ):
        module = step(module)
    kernels = [function for function in module.functions.values() if isinstance(function, tirx.PrimFunc)]
    assert len(kernels) == 1, f"{len(kernels)} kernels are left"
    return normalise(kernels[0])


# -- convolutions ----------------------------------------------------------------------------------------------------

Pads = tuple[int, int, int, int]


def windows(data: Array, kernel: tuple[int, int], strides: tuple[int, int], dilation: tuple[int, int]) -> Array:
    """(n, C, h, w, b) → (n, C, oh, ow, b, kh, kw)."""
    reach = tuple(dilation[axis] * (kernel[axis] - 1) + 1 for axis in range(2))
    seen = sliding_window_view(data, reach, axis=(2, 3))
    return seen[:, :, :: strides[0], :: strides[1], :, :: dilation[0], :: dilation[1]]


def padded(data: Array, pads: Pads, value: float = 0.0) -> Array:
    top, left, bottom, right = pads
    around = [(0, 0), (0, 0), (top, bottom), (left, right), (0, 0)]
    return np.pad(data, around, constant_values=value)


def conv_case(
    name: str,
    data: Shape,
    weight: Shape,
    strides: tuple[int, int] = (1, 1),
    pads: Pads = (0, 0, 0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    epilogue: bool = True,
) -> Case:
    """Blocked convolution, with bias, residual and relu unless told otherwise."""

    def build() -> tirx.PrimFunc:
        x, w = te.placeholder(data, name="x"), te.placeholder(weight, name="w")
        out = conv2d(x, w, Window(weight[2:4], strides, pads, dilation), groups)
        if not epilogue:
            return from_te(x, w, out)
        bias = te.placeholder((1, weight[0], 1, 1, weight[5]), name="bias")
        residual = te.placeholder(out.shape, name="residual")
        added = te.compute(out.shape, lambda n, o, h, v, b: out[n, o, h, v, b] + bias[0, o, 0, 0, b], name="added")
        joined = te.compute(out.shape, lambda *i: added(*i) + residual(*i), name="joined")
        relu = te.compute(out.shape, lambda *i: te.max(joined(*i), tirx.const(2.0, "float32")), name="relu")
        return from_te(x, w, bias, residual, relu)

    def expected(x: Array, w: Array, bias: Array | None = None, residual: Array | None = None) -> Array:
        blocked = x[..., None] if x.ndim == 4 else x
        seen = windows(padded(blocked, pads), (weight[2], weight[3]), strides, dilation)
        n, _, oh, ow = seen.shape[:4]
        used = groups * weight[1] * weight[4]  # the last block may be padded
        channels = seen.transpose(0, 1, 4, 2, 3, 5, 6).reshape(n, -1, oh, ow, *seen.shape[5:])[:, :used]
        channels = channels.reshape(n, groups, -1, weight[4], oh, ow, *seen.shape[5:])
        filters = w.reshape(groups, -1, *weight[1:])
        out = np.einsum("ngcihwyx,gocyxib->ngohwb", channels, filters).reshape(n, weight[0], oh, ow, weight[5])
        return out if bias is None else np.maximum(out + bias + residual, 2.0)

    return Case(name, "conv2d", build, expected)


def dot_conv_case(
    name: str,
    data: Shape,
    weight: Shape,
    form: DotForm,
    strides: tuple[int, int] = (1, 1),
    pads: Pads = (0, 0, 0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    epilogue: bool = True,
) -> Case:
    """``conv_case`` with short types; ``weight`` is (O/b, C'/i, kh, kw, i, b), its i holds whole dot products."""
    depth, border = form.depth, 0 if form.data == "bfloat16" else 7
    o, c, kh, kw, i, b = weight

    def build() -> tirx.PrimFunc:
        x = te.placeholder(data, form.data, name="x")
        w = te.placeholder((o, c, kh, kw, i // depth, b, depth), form.weight, name="w")
        out = conv2d(x, w, Window((kh, kw), strides, pads, dilation), groups, border=border)
        if not epilogue:
            return from_te(x, w, out)
        bias = te.placeholder((1, o, 1, 1, b), form.sum, name="bias")
        return from_te(x, w, bias, stored(out, bias, lambda at: (0, at[1], 0, 0, at[4])))

    def expected(x: Array, w: Array, bias: Array | None = None) -> Array:
        wide = np.float64 if form.data == "bfloat16" else np.int64
        flat = w.transpose(0, 1, 2, 3, 4, 6, 5).reshape(weight).astype(wide)
        seen = windows(padded(x.astype(wide), pads, border), (kh, kw), strides, dilation)
        n, _, oh, ow = seen.shape[:4]
        channels = seen.transpose(0, 1, 4, 2, 3, 5, 6).reshape(n, -1, oh, ow, kh, kw)[:, : groups * c * i]
        channels = channels.reshape(n, groups, c, i, oh, ow, kh, kw)
        filters = flat.reshape(groups, -1, *weight[1:])
        out = np.einsum("ngcihwyx,gocyxib->ngohwb", channels, filters).reshape(n, o, oh, ow, b)
        return out.astype(form.sum) if bias is None else stored_by_numpy(out + bias)

    return Case(name, "conv2d", build, expected)


SCALE = 2.0**-13
"""Of integers that are stored as uint8: exact, and halves occur."""


def stored(out: te.Tensor, bias: te.Tensor, where: Callable[[Sequence[tirx.Var]], Sequence[Any]]) -> te.Tensor:
    """What follows a product of short types: the bias and, of integers, the step to uint8; of floats to bfloat16."""
    if str(out.dtype) == "float32":
        return te.compute(out.shape, lambda *at: (out(*at) + bias[where(at)]).astype("bfloat16"), name="stored")

    def quantised(*at: tirx.Var) -> tirx.Expr:
        real = (out(*at) + bias[where(at)]).astype("float32") * tirx.const(SCALE, "float32")
        level = tirx.nearbyint(real) + tirx.const(100.0, "float32")
        return te.max(te.min(level, tirx.const(255.0, "float32")), tirx.const(0.0, "float32")).astype("uint8")

    return te.compute(out.shape, quantised, name="stored")


def stored_by_numpy(out: Array) -> Array:
    if out.dtype.kind == "f":
        return out.astype(np.float32).astype(np.dtype("bfloat16"))
    return np.clip(np.round(out * SCALE) + 100, 0, 255).astype(np.uint8)


def straddling_case(
    name: str, data: Shape, per_group: int, groups: int, kernel: int = 1, dealt: int = 0, form: DotForm | None = None
) -> Case:
    """Grouped convolution whose blocks of output channels touch one or two groups, of shuffled channels with dealt.

    Weights of groups that a block does not touch are not zeros, as they are in models: no kernel may add them.
    """
    lanes = data[4]
    channels, outputs = data[1] * lanes // groups, per_group * groups
    blocks, inner = -(-outputs // lanes), math.gcd(channels, lanes)
    quad = form.depth if form else 1
    weight = (blocks, 2 * channels // inner, kernel, kernel, inner // quad, lanes, *([quad] if form else []))
    edge = kernel // 2

    def build() -> tirx.PrimFunc:
        x = te.placeholder(data, form.data if form else "float32", name="x")
        w = te.placeholder(weight, form.weight if form else "float32", name="w")
        window = Window((kernel, kernel), (1, 1), (edge,) * 4, (1, 1))
        return from_te(x, w, conv2d(x, w, window, groups, outputs, dealt=dealt))

    def expected(x: Array, w: Array) -> Array:
        seen = windows(padded(x, (edge,) * 4), (kernel, kernel), (1, 1), (1, 1))
        n, _, oh, ow = seen.shape[:4]
        flat = seen.transpose(0, 1, 4, 2, 3, 5, 6).reshape(n, groups * channels, oh, ow, kernel, kernel)
        if dealt:
            flat = flat.reshape(n, dealt, -1, *flat.shape[2:]).swapaxes(1, 2)
        flat = flat.reshape(n, groups, channels, oh, ow, kernel, kernel)
        w = w.reshape(*weight[:6], quad).swapaxes(5, 6)
        filters = w.reshape(blocks, 2, -1, kernel, kernel, inner, lanes).transpose(0, 1, 6, 2, 5, 3, 4)
        filters = filters.reshape(blocks, 2, lanes, channels, kernel, kernel)
        flat, filters = (array.astype(np.float64) for array in (flat, filters))
        out = np.zeros((n, blocks, oh, ow, lanes), form.sum if form else np.float32)
        for o in range(blocks):
            first = min(o * lanes // per_group, groups - 2)
            for index in range(2):
                start = (first + index) * per_group
                if start < (o + 1) * lanes and start + per_group > o * lanes:
                    terms = np.einsum("nchwyx,bcyx->nhwb", flat[:, first + index], filters[o, index])
                    out[:, o] += terms.astype(out.dtype)
        return out

    return Case(name, "conv2d", build, expected)


def depthwise_case(name: str, data: Shape, kernel: tuple[int, int], strides: int, pads: Pads, dilation: int) -> Case:
    steps, spread = (strides, strides), (dilation, dilation)

    def build() -> tirx.PrimFunc:
        x = te.placeholder(data, name="x")
        w = te.placeholder((data[1], *kernel, data[4]), name="w")
        out = depthwise(x, w, steps, pads, spread)
        capped = te.compute(out.shape, lambda *i: te.min(out(*i), tirx.const(3.0, "float32")), name="capped")
        return from_te(x, w, capped)

    def expected(x: Array, w: Array) -> Array:
        seen = windows(padded(x, pads), kernel, steps, spread)
        return np.minimum(np.einsum("nchwbyx,cyxb->nchwb", seen, w), 3.0)

    return Case(name, "depthwise", build, expected)


def taps_case(name: str, data: Shape, kernel: tuple[int, int], strides: int, pads: Pads, dilation: int = 1) -> Case:
    """``depthwise_case`` of bytes, four taps of a row in one dot product; ``dilation`` is down a column.

    Taps that fill up a dot product have weights here: they read what lies behind the window, the border at last.
    """
    steps, spread, border, filled = (strides, strides), (dilation, 1), 7, -(-kernel[1] // TAPS.depth)

    def build() -> tirx.PrimFunc:
        x = te.placeholder(data, "uint8", name="x")
        w = te.placeholder((data[1], kernel[0], filled, data[4], TAPS.depth), "int8", name="w")
        bias = te.placeholder((1, data[1], 1, 1, data[4]), "int32", name="bias")
        out = depthwise(x, w, steps, pads, spread, border, kernel[1])
        return from_te(x, w, bias, stored(out, bias, lambda at: (0, at[1], 0, 0, at[4])))

    def expected(x: Array, w: Array, bias: Array) -> Array:
        taps = w.astype(np.int64).transpose(0, 1, 2, 4, 3).reshape(data[1], kernel[0], -1, data[4])
        around = (*pads[:3], pads[3] + taps.shape[2] - kernel[1])
        seen = windows(padded(x.astype(np.int64), around, border), taps.shape[1:3], steps, spread)
        return stored_by_numpy(np.einsum("nchwbyx,cyxb->nchwb", seen, taps) + bias)

    return Case(name, "depthwise", build, expected)


def pool_case(name: str, data: Shape, kind: str, kernel: int, strides: int, pads: Pads, count_pads: bool) -> Case:
    size = tuple((data[2 + axis] + pads[axis] + pads[2 + axis] - kernel) // strides + 1 for axis in range(2))

    def build() -> tirx.PrimFunc:
        x = te.placeholder(data, name="x")
        window, steps = (kernel, kernel), (strides, strides)
        return from_te(x, pool2d(x, Pooling(kind, Window(window, steps, pads, (1, 1)), (size[0], size[1]), count_pads)))

    def expected(x: Array) -> Array:
        def seen(data: Array, value: float) -> Array:
            return windows(padded(data, pads, value), (kernel, kernel), (strides, strides), (1, 1))

        if kind == "max":
            return seen(x, -np.inf).max((5, 6))
        counts = np.ones_like(x) if not count_pads else padded(np.ones_like(x), pads, 1.0)
        taps = seen(counts, 0.0) if not count_pads else windows(counts, (kernel, kernel), (strides, strides), (1, 1))
        return seen(x, 0.0).sum((5, 6)) / taps.sum((5, 6))

    return Case(name, "pool", build, expected)


# -- products --------------------------------------------------------------------------------------------------------


def matmul_case(name: str, rows: int, depth: int, blocks: int, lanes: int, epilogue: bool = True) -> Case:
    def build() -> tirx.PrimFunc:
        x, w = te.placeholder((rows, depth), name="x"), te.placeholder((blocks, depth, lanes), name="w")
        bias = te.placeholder((blocks * lanes,), name="bias")
        out = matmul(x, w)
        if not epilogue:
            return from_te(x, w, out)
        added = te.compute(out.shape, lambda m, n: out[m, n] + bias[n], name="added")
        return from_te(x, w, bias, te.compute(out.shape, lambda *i: te.tanh(added(*i)), name="active"))

    def expected(x: Array, w: Array, *bias: Array) -> Array:
        product = np.einsum("mk,okb->mob", x, w).reshape(rows, -1)
        return np.tanh(product + bias[0]) if bias else product

    return Case(name, "matmul", build, expected)


def dot_matmul_case(name: str, rows: int, depth: int, blocks: int, lanes: int, form: DotForm, bare: bool) -> Case:
    def build() -> tirx.PrimFunc:
        x = te.placeholder((rows, depth), form.data, name="x")
        w = te.placeholder((blocks, depth // form.depth, lanes, form.depth), form.weight, name="w")
        out = matmul(x, w)
        if bare:
            return from_te(x, w, out)
        bias = te.placeholder((blocks * lanes,), form.sum, name="bias")
        return from_te(x, w, bias, stored(out, bias, lambda at: (at[1],)))

    def expected(x: Array, w: Array, bias: Array | None = None) -> Array:
        wide = np.float64 if form.data == "bfloat16" else np.int64
        numbers = x.astype(wide).reshape(rows, -1, form.depth)
        out = np.einsum("mkq,okbq->mob", numbers, w.astype(wide)).reshape(rows, -1)
        return out.astype(form.sum) if bias is None else stored_by_numpy(out + bias)

    return Case(name, "matmul", build, expected)


def low_bit_case(
    name: str,
    rows: int,
    depth: int,
    blocks: int,
    lanes: int,
    form_name: str,
    zeros: bool,
    group: int,
    template: str = "low_bit_matmul",
) -> Case:
    """With a sum behind it; ``zeros`` adds zero points, ``template`` chooses the product.

    Sums of float products by levels up to 128 are in the hundreds, with roundings to match: they are scaled down.
    """
    form = FORMS[form_name]
    groups = depth // group
    products = {"low_bit_matmul": low_bit_matmul, "low_bit_tiles": low_bit_tiles, "low_bit_panels": low_bit_panels}
    factor = 2.0**-8 if (form.data, form.bits) == ("float32", 8) else 1.0

    def build() -> tirx.PrimFunc:
        x = te.placeholder((rows, depth), name="x")
        w = te.placeholder((blocks, depth // form.depth, lanes, 4), "uint8", name="w")
        scale = te.placeholder((blocks, groups, lanes), name="scale")
        zero = te.placeholder((blocks, groups * form.bits // 8, lanes), "uint8", name="zero") if zeros else None
        out = products[template](x, w, scale, zero, form)
        scaled = (lambda value: value * tirx.const(factor, "float32")) if factor < 1.0 else (lambda value: value)
        added = te.compute(out.shape, lambda m, n: scaled(out[m, n]) + x[m, n % depth], name="added")
        return from_te(x, w, scale, *([] if zero is None else [zero]), added)

    def expected(x: Array, w: Array, scale: Array, zero: Array | None = None) -> Array:
        def halves(data: Array, axis: int) -> Array:
            return np.stack([data & 15, data >> 4], axis) if form.bits == 4 else np.expand_dims(data, axis)

        levels = halves(w, 3).transpose(0, 2, 1, 3, 4).reshape(-1, groups, group).astype(np.float64)
        half = np.full((blocks, groups, lanes), 1 << (form.bits - 1))
        points = half if zero is None else halves(zero, 2).reshape(half.shape)
        by_column = [halved.transpose(0, 2, 1).reshape(-1, groups, 1) for halved in (points, scale)]
        weight = ((levels - by_column[0]) * by_column[1]).reshape(-1, depth)
        numbers = x.astype(np.float64)
        if template == "low_bit_tiles":
            short = numpy_type("bfloat16")
            numbers, weight = (array.astype(np.float32).astype(short).astype(np.float64) for array in (x, weight))
        elif form.data == "int8":
            parts = x.reshape(rows, groups, group)
            step = np.abs(parts).max(-1, keepdims=True) * np.float32(1 / 127)
            inverse = np.divide(np.float32(1), step, out=np.zeros_like(step), where=step > 0)
            numbers = (np.round(parts * inverse).astype(np.float64) * step).reshape(rows, depth)
        return factor * (numbers @ weight.T) + x[:, np.arange(len(weight)) % depth]

    return Case(name, template, build, expected)


def batch_case(
    name: str, equation: str, first: Shape, second: Shape, lanes: int, scaled: bool, dtype: str = "float32"
) -> Case:
    def build() -> tirx.PrimFunc:
        x, y = te.placeholder(first, dtype, name="x"), te.placeholder(second, dtype, name="y")
        out = batch_matmul(x, y, equation, lanes)
        if not scaled:
            return from_te(x, y, out)
        factor = tirx.const(0.125, "float32")
        return from_te(x, y, te.compute(out.shape, lambda *i: out(*i) * factor, name="scaled"))

    def expected(x: Array, y: Array) -> Array:
        return np.einsum(equation, x.astype(np.float32), y.astype(np.float32)) * (0.125 if scaled else 1.0)

    return Case(name, "batch_matmul", build, expected)


# -- everything that comes out of Relax --------------------------------------------------------------------------------


def relax_case(name: str, template: str, build: Callable[..., relax.Expr], sizes: list[Shape], expected: Any) -> Case:
    return Case(name, template, lambda: from_relax(build, *sizes), expected)


def softmax(x: Array, axis: int = -1) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def layer_norm(x: Array, gamma: Array, beta: Array) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * gamma + beta


def instance_norm(x: Array, gamma: Array, beta: Array) -> Array:
    y = (x - x.mean((2, 3), keepdims=True)) / np.sqrt(x.var((2, 3), keepdims=True) + 1e-5)
    return y * gamma[:, None, None] + beta[:, None, None]


def normalised(variance: relax.Expr, x: relax.Expr, gamma: relax.Expr) -> relax.Expr:
    """The tail of a layer norm that an exporter has taken apart."""
    root = relax.op.sqrt(relax.op.add(relax.op.mean(variance, [-1], keepdims=True), relax.const(1e-5)))
    return relax.op.multiply(relax.op.divide(x, root), gamma)
