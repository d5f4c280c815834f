"""Reductions that Relax's importer lacks or gets wrong: of whole numbers and over no axes; running sums and products.

Running sums go one step after the other on CPUs, and by doubling on devices, which have more threads than rows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx import TensorProto
from tvm import relax

from autotune.importer.rewriting.emit import Emit, Node
from autotune.importer.rewriting.registry import BY_HAND, OPAQUE_PATTERN, Inputs, converts, rewrites
from autotune.importer.rewriting.relax_values import constant_of, dtype_of, kernel_call, sizes_of
from schedules.templates.by_hand.running import Running, running
from schedules.vocabulary.errors import ModelError

DOUBLE = TensorProto.DOUBLE

OF_ONE = {
    "ReduceL1": lambda e, x: e.op("Abs", x),
    "ReduceL2": lambda e, x: e.op("Abs", x),
    "ReduceLogSum": lambda e, x: e.op("Log", x),
    "ReduceMean": lambda e, x: e.op("Identity", x),
    "ReduceSumSquare": lambda e, x: e.op("Mul", x, x),
}
"""Reduction → what it makes of a single element."""


@rewrites("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceMean", "ReduceSumSquare")
def reduction(node: Node, e: Emit) -> list[str] | None:
    """Over no axes: of every element by itself. Of whole numbers: sums in their type, roots and logarithms in fp64.

    The mean of nothing is 0.
    """
    axes, whole = node.axes(len(node.shape(0))), node.dtype(0).kind in "iu"
    if axes is None:
        return None
    if axes and node.kind == "ReduceMean" and not math.prod(node.shape(0)[axis] for axis in axes):
        return [e.reduce("ReduceSum", node.input(0), axes, bool(node.attr("keepdims", 1)))]  # 0, as ONNX Runtime's
    if not axes and node.attr("noop_with_empty_axes", 0):
        x = e.cast(node.input(0), DOUBLE) if whole and node.kind.startswith("ReduceLog") else node.input(0)
        result = OF_ONE[node.kind](e, x)
        return [result if x == node.input(0) else e.cast(result, node.type(0))]
    return _of_whole_numbers(node, e, axes) if whole else None


def _of_whole_numbers(node: Node, e: Emit, axes: list[int]) -> list[str] | None:
    shape, kind, keep = node.shape(0), node.type(0), bool(node.attr("keepdims", 1))
    x = node.input(0)
    if node.kind == "ReduceMean":
        count = math.prod(shape[axis] for axis in axes)
        return [e.op("Div", e.reduce("ReduceSum", x, axes, keep), e.like(count))]
    if node.kind == "ReduceL2":
        return [e.cast(e.reduce("ReduceL2", e.cast(x, DOUBLE), axes, keep), kind)]
    if node.kind == "ReduceLogSum":
        return [e.cast(e.op("Log", e.cast(e.reduce("ReduceSum", x, axes, keep), DOUBLE)), kind)]
    return None


@converts("CumSum", "CumProd")
def cumulative(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Running sums or products along the axis of the second input.

    Raises:
        ModelError: if the axis is computed.
    """
    x, number = inputs[0], constant_of(inputs[1])
    if x is None or number is None:
        raise ModelError("its axis is computed when the model runs; export the model with a constant axis")
    shape = sizes_of(x)
    axis = int(number.reshape(-1)[0]) % len(shape)
    form = Running(
        math.prod(shape[:axis]),
        shape[axis],
        math.prod(shape[axis + 1 :]),
        dtype_of(x),
        product=attrs["tvm_custom"]["kind"] == "CumProd",
        exclusive=bool(attrs.get("exclusive", 0)),
        reverse=bool(attrs.get("reverse", 0)),
    )
    if not math.prod(shape):
        return x
    flat = bb.normalize(relax.op.reshape(x, (form.outer, form.steps, form.columns)))
    if attrs["tvm_custom"][BY_HAND]:
        kernel = running(form).with_attr("op_pattern", OPAQUE_PATTERN)
        total = kernel_call(bb, kernel, "running", [flat], sizes_of(flat), form.dtype)
    else:
        total = _doubled(bb, flat, form)
    return relax.op.reshape(total, shape)


def _doubled(bb: relax.BlockBuilder, x: relax.Expr, form: Running) -> relax.Expr:
    """After step k, every element holds what the 2^k before it and itself make together."""
    join = relax.op.multiply if form.product else relax.op.add

    def shifted(x: relax.Expr, by: int) -> relax.Expr:
        neutral = np.full((form.outer, by, form.columns), int(form.product), form.dtype)
        filler = relax.const(neutral, form.dtype)
        if by == form.steps:
            return filler
        begin, end = (by, form.steps) if form.reverse else (0, form.steps - by)
        kept = bb.normalize(relax.op.strided_slice(x, [1], [begin], [end]))
        return bb.normalize(relax.op.concat([kept, filler] if form.reverse else [filler, kept], 1))

    if form.exclusive:
        x = shifted(x, 1)
    step = 1
    while step < form.steps:
        x = bb.normalize(join(x, shifted(x, step)))
        step *= 2
    return x
