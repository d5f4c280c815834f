"""Small functions for the GPU's templates, with what NumPy says of each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tvm import te, tirx

from autotune.host.dtypes import rounded
from schedules.templates.common.windows import Pooling, Window
from schedules.templates.cuda import cuda_computes
from schedules.templates.cuda.cuda_mma import MULTIPLIES
from tests.schedules_tests.cases import CHAINS, GENERIC, ROWS
from tests.schedules_tests.programs import Array, Case, Pads, from_te, padded, windows
from tests.schedules_tests.recurrent_cases import RECURRENT as RECURRENT_CPU

Shape = tuple[int, ...]
BLOCKS = 1  # the CPU cases' windows expect a block axis behind the image


def _seen(
    x: Array,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    pads: Pads,
    dilation: tuple[int, int],
    value: float = 0.0,
) -> Array:
    """(b, h, w, C) → (b, C, oh, ow, kh, kw)."""
    blocked = x.transpose(0, 3, 1, 2)[..., None]
    return windows(padded(blocked, pads, value), kernel, strides, dilation)[:, :, :, :, 0]


def conv(
    name: str,
    data: Shape,
    outputs: int,
    kernel: tuple[int, int],
    strides=(1, 1),
    pads: Pads = (0, 0, 0, 0),
    dilation=(1, 1),
    groups: int = 1,
    epilogue: bool = True,
) -> Case:
    per_group = data[3] // groups
    weight = (groups, kernel[0] * kernel[1] * per_group, outputs // groups)

    def build() -> tirx.PrimFunc:
        x, w = te.placeholder(data, name="x"), te.placeholder(weight, name="w")
        out = cuda_computes.convolution(x, w, Window(kernel, strides, pads, dilation), groups)
        if not epilogue:
            return from_te(x, w, out)
        bias, residual = te.placeholder((outputs,), name="bias"), te.placeholder(out.shape, name="residual")
        added = te.compute(out.shape, lambda b, y, z, c: out[b, y, z, c] + bias[c] + residual[b, y, z, c], name="added")
        relu = te.compute(
            out.shape, lambda b, y, z, c: te.max(added[b, y, z, c], tirx.const(2.0, "float32")), name="relu"
        )
        return from_te(x, w, bias, residual, relu)

    def expected(x: Array, w: Array, bias: Array | None = None, residual: Array | None = None) -> Array:
        seen = _seen(x, kernel, strides, pads, dilation)
        b, _, oh, ow = seen.shape[:4]
        seen = seen.reshape(b, groups, per_group, oh, ow, *kernel)
        filters = w.reshape(groups, *kernel, per_group, -1)
        out = np.einsum("bgchwyx,gyxco->bhwgo", seen, filters).reshape(b, oh, ow, outputs)
        return out if bias is None else np.maximum(out + bias + residual, 2.0)

    return Case(name, "cuda_gemm", build, expected)


def dense(name: str, x_shape: Shape, columns: int) -> Case:
    def build() -> tirx.PrimFunc:
        x, w = te.placeholder(x_shape, name="x"), te.placeholder((x_shape[-1], columns), name="w")
        bias = te.placeholder((columns,), name="bias")
        out = cuda_computes.dense(x, w)
        return from_te(x, w, bias, te.compute(out.shape, lambda *i: te.tanh(out(*i) + bias[i[-1]]), name="active"))

    return Case(name, "cuda_gemm", build, lambda x, w, bias: np.tanh(x @ w + bias))


def excited(name: str, image: Shape, squeezed: int) -> Case:
    """The end of squeeze-and-excitation: a product of a few channels, whose sigmoid scales an entire image."""
    batch, _, _, channels = image

    def build() -> tirx.PrimFunc:
        x, w = te.placeholder((batch, 1, 1, squeezed), name="x"), te.placeholder((1, squeezed, channels), name="w")
        data = te.placeholder(image, name="data")
        out = cuda_computes.convolution(x, w, Window((1, 1), (1, 1), (0, 0, 0, 0), (1, 1)), 1)
        gate = te.compute(out.shape, lambda *at: te.sigmoid(out(*at)), name="gate")
        return from_te(
            x, w, data, te.compute(image, lambda b, y, z, c: gate[b, 0, 0, c] * data[b, y, z, c], name="scaled")
        )

    def expected(x: Array, w: Array, data: Array) -> Array:
        return data / (1 + np.exp(-np.einsum("byzk,gkc->byzc", x, w)))

    return Case(name, "cuda_gemm", build, expected)


def product(name: str, equation: str, first: Shape, second: Shape) -> Case:
    def build() -> tirx.PrimFunc:
        x, y = te.placeholder(first, name="x"), te.placeholder(second, name="y")
        return from_te(x, y, cuda_computes.product(x, y, equation))

    return Case(name, "cuda_gemm", build, lambda x, y: np.einsum(equation, x, y))


def depthwise(name: str, data: Shape, kernel: tuple[int, int], strides: tuple[int, int], pads: Pads) -> Case:
    def build() -> tirx.PrimFunc:
        x, w = te.placeholder(data, name="x"), te.placeholder((*kernel, data[3]), name="w")
        out = cuda_computes.depthwise(x, w, strides, pads, (1, 1))
        return from_te(
            x, w, te.compute(out.shape, lambda *i: te.min(out(*i), tirx.const(3.0, "float32")), name="capped")
        )

    def expected(x: Array, w: Array) -> Array:
        return np.minimum(np.einsum("bchwyx,yxc->bhwc", _seen(x, kernel, strides, pads, (1, 1)), w), 3.0)

    return Case(name, "cuda_map", build, expected)


def pool(name: str, data: Shape, kind: str, kernel: int, strides: int, pads: Pads, count_pads: bool) -> Case:
    window, steps = (kernel, kernel), (strides, strides)
    size = tuple((data[1 + axis] + pads[axis] + pads[2 + axis] - kernel) // strides + 1 for axis in range(2))

    def build() -> tirx.PrimFunc:
        x = te.placeholder(data, name="x")
        pooling = Pooling(kind, Window(window, steps, pads, (1, 1)), (size[0], size[1]), count_pads)
        return from_te(x, cuda_computes.pool2d(x, pooling))

    def expected(x: Array) -> Array:
        if kind == "max":
            return _seen(x, window, steps, pads, (1, 1), -np.inf).max((4, 5)).transpose(0, 2, 3, 1)
        taps = _seen(np.ones_like(x), window, steps, pads, (1, 1), float(count_pads)).sum((4, 5))
        return (_seen(x, window, steps, pads, (1, 1)).sum((4, 5)) / taps).transpose(0, 2, 3, 1)

    return Case(name, "cuda_map", build, expected)


PRODUCTS = (
    conv("conv_1x1", (1, 6, 5, 16), 24, (1, 1)),
    conv("conv_3x3", (1, 8, 7, 8), 32, (3, 3), pads=(1, 1, 1, 1)),
    conv("conv_first_layer", (1, 13, 13, 3), 20, (5, 5), (2, 2), (2, 2, 2, 2)),
    conv("conv_odd", (2, 6, 6, 5), 13, (3, 2), (2, 1), (1, 0, 1, 2), (1, 2), epilogue=False),
    conv("conv_grouped", (1, 6, 6, 12), 24, (3, 3), pads=(1, 1, 1, 1), groups=3),
    conv("conv_grouped_odd", (1, 5, 5, 16), 12, (3, 3), pads=(1, 1, 1, 1), groups=4),
    conv("conv_deep", (1, 3, 3, 64), 32, (3, 3), pads=(1, 1, 1, 1)),
    dense("dense_rows", (2, 9, 40), 48),
    dense("dense_vector", (1, 200), 36),
    dense("dense_vector_alone", (1, 40), 36),
    product("one_column", "bmk,bkn->bmn", (3, 50, 24), (3, 24, 1)),
    product("outer_product", "bmk,bkn->bmn", (2, 20, 1), (2, 1, 19)),
    product("scores", "bmhk,bnhk->bhmn", (1, 8, 3, 12), (1, 32, 3, 12)),
    product("context", "bhmk,bkhn->bmhn", (2, 3, 8, 12), (2, 12, 3, 16)),
    product("odd_product", "bmk,bkn->bmn", (4, 7, 5), (4, 5, 9)),
)
FEW = tuple(
    replace(case, template="cuda_reduce")
    for case in (
        product("inner_product", "bmk,bkn->bmn", (2, 1, 33), (2, 33, 1)),
        dense("dense_tiny", (1, 24), 6),
        dense("one_output", (1, 300), 1),
        dense("one_row_by_sixteen", (1, 130), 16),
        conv("squeezed", (1, 1, 1, 24), 6, (1, 1)),
        excited("excited", (1, 4, 5, 12), 3),
        excited("excited_batch", (2, 3, 3, 40), 10),
    )
)
"""Products with few outputs: less than a warp, or the end has more elements than the product."""

WINDOWS = (
    depthwise("depthwise_3x3", (1, 8, 8, 16), (3, 3), (1, 1), (1, 1, 1, 1)),
    depthwise("depthwise_5x5_strided", (2, 9, 11, 6), (5, 5), (2, 2), (2, 1, 2, 1)),
    pool("pool_max", (1, 9, 9, 16), "max", 3, 2, (1, 1, 1, 1), False),
    pool("pool_average", (1, 8, 8, 16), "avg", 2, 2, (0, 0, 0, 0), False),
    pool("pool_average_edges", (1, 7, 7, 6), "avg", 3, 1, (1, 1, 1, 1), False),
    pool("pool_average_padded", (1, 7, 7, 8), "avg", 3, 1, (1, 1, 1, 1), True),
)


def long_product(name: str, x_shape: Shape, columns: int) -> Case:
    """A product that no importer marked, too long for one thread."""

    def build() -> tirx.PrimFunc:
        x, w = te.placeholder(x_shape, name="x"), te.placeholder((x_shape[1], columns), name="w")
        k = te.reduce_axis((0, x_shape[1]), "k")
        out = te.compute((x_shape[0], columns), lambda i, j: te.sum(x[i, k] * w[k, j], axis=[k]), name="sum")
        return from_te(
            x, w, te.compute(out.shape, lambda i, j: te.max(out[i, j], tirx.const(1.0, "float32")), name="cut")
        )

    return Case(name, "cuda_reduce", build, lambda x, w: np.maximum(x @ w, 1.0))


RECURRENT = tuple(replace(case, template="cuda_recurrent") for case in RECURRENT_CPU if "bytes" not in case.name)
"""Without those of bytes, which are for CPUs alone: ``CudaBackend.check_program`` refuses them."""

OTHERS = (long_product("long_product", (32, 512), 48), long_product("long_product_odd", (30, 500), 46))

SHARED = tuple(case for case in (*ROWS, *CHAINS, *GENERIC))
"""Cases of the CPU whose functions are the same here; whichever template takes them must be right."""

CASES: tuple[Case, ...] = (*PRODUCTS, *FEW, *WINDOWS, *OTHERS, *RECURRENT, *SHARED)


def _rounded(kind: str, array: Array) -> Array:
    return rounded(array, kind) if kind == "tf32" else array


def half_conv(
    name: str,
    data: Shape,
    outputs: int,
    kernel: tuple[int, int],
    pads: Pads = (0, 0, 0, 0),
    strides=(1, 1),
    kind: str = "float16",
    groups: int = 1,
) -> Case:
    """A ``conv`` with a bias, of a ``kind`` of ``MULTIPLIES``."""
    multiplied, depth = MULTIPLIES[kind], kernel[0] * kernel[1] * data[3] // groups
    columns, has_bytes = outputs // groups, multiplied.sums == "int32"
    weight = (groups, columns, depth) if has_bytes else (groups, depth, columns)
    sum_type = "int32" if has_bytes else multiplied.types[0]

    def build() -> tirx.PrimFunc:
        x = te.placeholder(data, multiplied.types[0], name="x")
        w, bias = (
            te.placeholder(weight, multiplied.types[1], name="w"),
            te.placeholder((outputs,), sum_type, name="bias"),
        )
        window, operands = Window(kernel, strides, pads, (1, 1)), kind if kind == "tf32" else ""
        out = cuda_computes.convolution(x, w, window, groups, sum_type, operands)
        return from_te(x, w, bias, te.compute(out.shape, lambda b, y, z, c: out[b, y, z, c] + bias[c], name="added"))

    def expected(x: Array, w: Array, bias: Array) -> Array:
        plain = conv(name, data, outputs, kernel, strides, pads, groups=groups, epilogue=False)
        return plain.expected(_rounded(kind, x), _rounded(kind, w.transpose(0, 2, 1) if has_bytes else w)) + bias

    return Case(f"{kind.replace('*', '_')}_{name}", "cuda_tensor", build, expected)


def half_dense(name: str, rows: int, depth: int, columns: int, kind: str) -> Case:
    """A dense layer of a ``kind`` of ``MULTIPLIES``."""
    multiplied, turned = MULTIPLIES[kind], MULTIPLIES[kind].sums == "int32"

    def build() -> tirx.PrimFunc:
        x = te.placeholder((rows, depth), multiplied.types[0], name="x")
        w = te.placeholder((columns, depth) if turned else (depth, columns), multiplied.types[1], name="w")
        return from_te(x, w, cuda_computes.dense(x, w, multiplied.sums, kind if kind == "tf32" else ""))

    def expected(x: Array, w: Array) -> Array:
        return _rounded(kind, x) @ _rounded(kind, w.T if turned else w)

    return Case(f"{kind.replace('*', '_')}_{name}", "cuda_tensor", build, expected)


def half_product(name: str, equation: str, first: Shape, second: Shape, kind: str = "float16") -> Case:
    """A product of two activations of a ``kind`` of ``MULTIPLIES``."""
    dtype, operands = MULTIPLIES[kind].types[0], kind if kind == "tf32" else ""

    def build() -> tirx.PrimFunc:
        x, y = te.placeholder(first, dtype, name="x"), te.placeholder(second, dtype, name="y")
        return from_te(x, y, cuda_computes.product(x, y, equation, "", operands))

    def expected(x: Array, y: Array) -> Array:
        return np.einsum(equation, _rounded(kind, x), _rounded(kind, y))

    return Case(f"{kind.replace('*', '_')}_{name}", "cuda_tensor", build, expected)


HALVES = (
    half_conv("conv_1x1", (1, 6, 5, 16), 24, (1, 1)),
    half_conv("conv_3x3", (1, 8, 7, 16), 32, (3, 3), (1, 1, 1, 1)),
    half_conv("conv_first_layer", (1, 13, 13, 3), 20, (5, 5), (2, 2, 2, 2), (2, 2)),
    half_conv("conv_3x3", (1, 6, 6, 24), 40, (3, 3), (1, 1, 1, 1), kind="bfloat16"),
    half_conv("deep", (1, 5, 5, 64), 48, (3, 3), (1, 1, 1, 1)),
    half_product("scores", "bmhk,bnhk->bhmn", (1, 24, 3, 16), (1, 32, 3, 16)),
    half_product("one_row", "bmk,bkn->bmn", (2, 1, 40), (2, 40, 24)),
    half_product("one_column", "bmk,bkn->bmn", (2, 20, 40), (2, 40, 1)),
    half_product("odd", "bmk,bkn->bmn", (2, 17, 5), (2, 5, 9)),
)
TF32 = (
    half_conv("conv_3x3", (1, 8, 7, 16), 32, (3, 3), (1, 1, 1, 1), kind="tf32"),
    half_conv("conv_first_layer", (1, 13, 13, 3), 20, (5, 5), (2, 2, 2, 2), (2, 2), kind="tf32"),
    half_conv("conv_grouped", (1, 5, 5, 48), 36, (3, 3), (1, 1, 1, 1), kind="tf32", groups=3),
    half_dense("dense", 33, 72, 40, "tf32"),
    half_product("scores", "bmhk,bnhk->bhmn", (1, 24, 3, 16), (1, 32, 3, 16), "tf32"),
    half_product("odd", "bmk,bkn->bmn", (2, 17, 5), (2, 5, 9), "tf32"),
)
BYTES = (
    half_conv("conv_3x3", (1, 8, 7, 16), 32, (3, 3), (1, 1, 1, 1), kind="uint8*int8"),
    half_conv("conv_first_layer", (1, 13, 13, 3), 20, (5, 5), (2, 2, 2, 2), (2, 2), kind="int8*int8"),
    half_conv("conv_grouped", (1, 5, 5, 24), 36, (3, 3), (1, 1, 1, 1), kind="uint8*int8", groups=3),
    half_dense("dense", 33, 200, 40, "uint8*int8"),
    half_dense("dense_odd", 17, 37, 19, "int8*uint8"),
    half_dense("dense_deep", 16, 640, 24, "uint8*uint8"),
)
TENSOR = (*HALVES, *TF32, *BYTES)
"""Products on tensor cores."""
