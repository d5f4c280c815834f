"""The cases of ``channel_sums``: convolutions by few filters, whose vectors run along channels."""

from __future__ import annotations

import numpy as np
from tvm import te, tirx

from schedules.templates.common.windows import Window
from schedules.templates.cpu.channel_sums import channel_sums
from tests.schedules_tests.programs import Array, Case, Shape, from_te, padded, windows


def sums_case(name: str, data: Shape, filters: int, window: Window, epilogue: bool = True) -> Case:
    """A convolution of ``data`` (n, C/b, h, w, b); its epilogue is a bias and a Relu."""

    def build() -> tirx.PrimFunc:
        x = te.placeholder(data, name="x")
        w = te.placeholder((filters, data[1], *window.size, data[4]), name="w")
        out = channel_sums(x, w, window)
        if not epilogue:
            return from_te(x, w, out)
        bias = te.placeholder((filters, 1, 1), name="bias")
        added = te.compute(out.shape, lambda n, o, h, w: out[n, o, h, w] + bias[o, 0, 0], name="added")
        capped = te.compute(out.shape, lambda *i: te.max(added(*i), tirx.const(0.0, "float32")), name="capped")
        return from_te(x, w, bias, capped)

    def expected(x: Array, w: Array, bias: Array | None = None) -> Array:
        seen = windows(padded(x, window.padding), window.size, window.strides, window.dilation)
        sums = np.einsum("nchwbyx,ocyxb->nohw", seen, w)
        return sums if bias is None else np.maximum(sums + bias, 0)

    return Case(name, "channel_sums", build, expected)


CHANNEL_SUMS = (
    sums_case("channel_sums_3x3", (1, 3, 8, 10, 16), 4, Window((3, 3), (1, 1), (1, 1, 1, 1), (1, 1))),
    sums_case("channel_sums_one", (2, 2, 5, 12, 8), 1, Window((5, 3), (2, 1), (2, 1, 1, 1), (1, 1)), epilogue=False),
    sums_case("channel_sums_line", (1, 2, 1, 64, 16), 2, Window((1, 7), (1, 1), (0, 3, 0, 3), (1, 2))),
    sums_case("channel_sums_1x1", (1, 4, 6, 20, 16), 3, Window((1, 1), (1, 1), (0, 0, 0, 0), (1, 1))),
)
