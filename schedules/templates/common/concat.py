"""Concatenation as a kernel of its own, so that an executor can leave it out and have its parts written in place.

Where it does run (an input among its parts, or a part with two places), the elementwise template schedules it.
"""

from __future__ import annotations

import json

from tvm import te, tirx

from schedules.templates.common.structure import blocks_in_order

OP = "concat"


def concat(parts: list[te.Tensor], axis: int) -> te.Tensor:
    """Tensors that differ along ``axis`` only, one after the other."""
    sizes = [int(part.shape[axis]) for part in parts]
    shape = list(parts[0].shape)
    shape[axis] = sum(sizes)

    def element(*index: tirx.Var) -> tirx.Expr:
        position = index[axis]
        start = sum(sizes) - sizes[-1]
        value = parts[-1][(*index[:axis], position - start, *index[axis + 1 :])]
        for part, size in zip(reversed(parts[:-1]), reversed(sizes[:-1]), strict=True):
            start -= size
            taken = part[(*index[:axis], position - start, *index[axis + 1 :])]
            value = tirx.if_then_else(position < start + size, taken, value)
        return value

    attrs = {"tune.anchor": OP, "tune.geometry": json.dumps({"axis": axis})}
    return te.compute(shape, element, name="concat", attrs=attrs)


def concat_axis(func: tirx.PrimFunc) -> int | None:
    """The axis, if ``func`` does nothing but concatenate."""
    blocks = blocks_in_order(func)
    if len(blocks) != 1 or str(blocks[0].annotations.get("tune.anchor", "")) != OP:
        return None
    return int(json.loads(str(blocks[0].annotations["tune.geometry"]))["axis"])
