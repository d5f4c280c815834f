"""CumSum and CumProd: one step after the other on CPUs, by doubling on devices, which have more threads than rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax

from autotune.importer.rewriting.registry import BY_HAND, OPAQUE_PATTERN, Inputs, converts
from autotune.importer.rewriting.relax_values import constant_of, dtype_of, kernel_call, sizes_of
from schedules.templates.by_hand.running import Running, running
from schedules.vocabulary.errors import ModelError


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
