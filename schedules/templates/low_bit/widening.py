"""A stage that makes floats of weights of few bits, as calls of functions that unpack whole vectors of weights."""

from __future__ import annotations

from collections.abc import Callable

from tvm import s_tir, te, tirx
from tvm.ir.expr import TensorLoad
from tvm.s_tir.schedule import LoopRV

from schedules.templates.amx.amx_product import at_first, replace_body
from schedules.templates.common.structure import nodes_below
from schedules.templates.instructions.dots import DotForm

LEVEL_AXES = 4
"""Number of axes of the weight; scales and zero points have one less."""


def widened(
    weight: te.Tensor,
    scale: te.Tensor,
    zero: te.Tensor | None,
    form: DotForm,
    at: tuple[tirx.Expr, tirx.Expr, tirx.Expr, tirx.Expr],
) -> tirx.Expr:
    """(number - zero point) · scale ``at`` a panel, a vector, one of a lane's Q numbers there, and a lane."""
    panel, vector, within, lane = at
    size = int(weight.shape[1]) * form.depth // int(scale.shape[1])
    byte, group = weight[panel, vector, lane, within % 4], (vector * form.depth + within) // size
    if form.bits == 4:
        # No choice between halves: TVM would simplify what a side that is not taken reads, to beyond the tensor.
        byte = (byte >> (within // 4 * 4).astype("uint8")) & tirx.const(15, "uint8")
    half: tirx.Expr = tirx.const(float(1 << (form.bits - 1)), "float32")
    if zero is not None:
        point = zero[panel, group // 2 if form.bits == 4 else group, lane]
        if form.bits == 4:
            point = tirx.Select(group % 2 == 0, point & tirx.const(15, "uint8"), point >> tirx.const(4, "uint8"))
        half = point.astype("float32")
    return (byte.astype("float32") - half) * scale[panel, group, lane]


def widen(sch: s_tir.Schedule, vector: LoopRV, form: DotForm, rows: int, symbol: Callable[[int, bool], str]) -> None:
    """Make all numbers of one vector of weights by calls, each of which makes one of ``rows`` rows of the stage.

    Args:
        vector: the outermost of the two loops over what one vector of weights becomes: rows, then their elements.
        symbol: (row, whether there are zero points) → the function (levels, scale[, zero points, shift]) → that row.
    """
    block = sch.blockize(vector)
    outer = sch.get(block)
    (inner,) = nodes_below(outer.body, s_tir.SBlockRealize)
    within = [loop.loop_var for loop in nodes_below(outer.body, tirx.For)]
    bound = dict(zip((axis.var for axis in inner.block.iter_vars), inner.iter_values, strict=True))
    loads = nodes_below(inner.block.body, TensorLoad)
    levels = next(load for load in loads if len(load.indices) == LEVEL_AXES)
    scale = next(load for load in loads if str(load.source.dtype) == "float32")
    zero = [load for load in loads if len(load.indices) < LEVEL_AXES and str(load.source.dtype) == "uint8"][:1]
    (store,) = nodes_below(inner.block.body, tirx.BufferStore)

    def first(index: tirx.Expr) -> tirx.Expr:
        return at_first(index, bound, within)

    operands = [
        tirx.address_of(tirx.BufferLoad(load.source, [first(index) for index in load.indices]))
        for load in (levels, scale, *zero)
    ]
    if zero:
        shift = first(scale.indices[1]) % 2 * 4 if form.bits == 4 else tirx.const(0, "int32")
        operands.append(shift.astype("int32"))
    numbers = int(nodes_below(outer.body, tirx.For)[0].extent)  # the innermost loop comes first
    *place, row, _ = (first(index) for index in store.indices)
    kind = str(store.buffer.dtype)
    stores: list[tirx.Stmt] = []
    for number in range(rows):
        widened = tirx.call_pure_extern(f"{kind}x{numbers}", symbol(number, bool(zero)), *operands)
        columns = tirx.Ramp(tirx.const(0, "int64"), tirx.const(1, "int64"), numbers)
        stores.append(
            tirx.BufferStore(store.buffer, widened, [*place, row + tirx.const(number, row.ty.dtype), columns])
        )
    replace_body(sch, block, tirx.SeqStmt(stores))
