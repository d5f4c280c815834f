"""Scatters become kernels that are scheduled by hand (``schedules/templates/by_hand/scatter.py``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from autotune.importer.operators.moving import at_places, held_within
from autotune.importer.rewriting.emit import Emit, Node
from autotune.importer.rewriting.registry import BY_HAND, Inputs, converts, rewrites
from autotune.importer.rewriting.relax_values import constant_of, kernel_call, sizes_of, text_of
from schedules.templates.by_hand.scatter import REDUCTIONS, TYPES, ScatterShape, scatter
from schedules.vocabulary.errors import ModelError


@rewrites("ScatterElements")
def scattered_corner(node: Node, e: Emit) -> list[str] | None:
    """Scatter into the corner of the data that the updates reach, and append what lies behind it along each axis.

    Kernels address data and updates as if only the axis of the indices could differ in size.
    """
    shape, reached = node.known_shape(0), node.known_shape(1)
    if not shape or reached is None or len(reached) != len(shape):
        return None
    if not all(reached):
        return [node.input(0)]
    axis = int(node.attr("axis", 0)) % len(shape)
    cut = [at for at, size in enumerate(reached) if at != axis and size < shape[at]]
    if not cut:
        return None
    corner, behind = node.input(0), list[str]()
    for at in cut:
        behind.append(e.slice(corner, at, reached[at], shape[at]))
        corner = e.slice(corner, at, 0, reached[at])
    written = e.op("ScatterElements", corner, node.input(1), node.input(2), **node.attributes)
    for at, rest in zip(reversed(cut), reversed(behind), strict=True):
        written = e.concat([written, rest], at)
    return [written]


@converts("ScatterElements", "ScatterND")
def scattered(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """One kernel, or where there is none Relax's own.

    Raises:
        ModelError: if data and updates differ in rank, or along another axis than that of the indices.
    """
    operands = [operand for operand in inputs if operand is not None]
    if not math.prod(sizes_of(operands[1])):
        return operands[0]  # nothing is scattered
    if str(attrs["tvm_custom"]["kind"]) == "ScatterElements":
        _refuse_corner(sizes_of(operands[0]), sizes_of(operands[1]), int(attrs.get("axis", 0)))
    kernel = _by_hand(bb, operands, attrs) if attrs["tvm_custom"][BY_HAND] else None
    return at_places(bb, inputs, attrs, opset) if kernel is None else kernel


def _refuse_corner(shape: Sequence[int], reached: Sequence[int], axis: int) -> None:
    """Refuse updates that Relax's own scatter would address wrongly, whose shapes ``scattered_corner`` did not know.

    Raises:
        ModelError: if no kernel addresses ``reached`` elements of data of this shape.
    """
    fits = 0 < len(shape) == len(reached)
    if not fits or any(size != reached[at] for at, size in enumerate(shape) if at != axis % len(shape)):
        raise ModelError(
            f"updates of shape {list(reached)} do not go with data of shape {list(shape)} along axis {axis}, or their "
            "shapes are known too late to cut the data; export the model with fixed shapes"
        )


def _by_hand(bb: relax.BlockBuilder, operands: Sequence[relax.Expr], attrs: dict[str, Any]) -> relax.Expr | None:
    """Return ``operands`` (data, places, updates) scattered by one kernel; None where a form has none.

    Places that are the same for all elements of a row, as exporters write them with ``Expand``, are read once per row.
    """
    data, places, updates = operands
    reduction = text_of(attrs, "reduction", "none")
    shape, at, dtype = sizes_of(data), sizes_of(places), str(data.ty.dtype)
    fits = dtype in TYPES and reduction in REDUCTIONS
    if not fits or not math.prod(shape) or not math.prod(at) or not math.prod(sizes_of(updates)):
        return None
    axis = int(attrs.get("axis", 0)) % len(shape)
    is_nd = str(attrs["tvm_custom"]["kind"]) == "ScatterND"
    if (known := constant_of(places)) is not None:
        held_within(known, np.array(shape[: at[-1]] if is_nd else shape[axis]))
    if is_nd:
        depth, count = at[-1], math.prod(at[:-1])
        whole, slabs, sizes, width = True, 1, tuple(shape[:depth]), math.prod(shape[depth:])
        places = bb.normalize(relax.op.reshape(places, (1, count, depth)))
    else:
        slabs, count, width, sizes = math.prod(shape[:axis]), at[axis], math.prod(shape[axis + 1 :]), (shape[axis],)
        narrow = _of_rows(bb, places, axis) if width > 1 else places
        whole = narrow is not None
        places = places if narrow is None else narrow
        places = bb.normalize(relax.op.reshape(places, (slabs, count, 1 if whole else width)))
    form = ScatterShape(slabs, sizes, count, width, whole, dtype, str(places.ty.dtype), reduction)
    flat = [
        bb.normalize(relax.op.reshape(operand, (slabs, rows, width)))
        for operand, rows in ((data, form.rows), (updates, count))
    ]
    operands = flat[0], places, flat[1]
    return relax.op.reshape(
        kernel_call(bb, scatter(form), "scatter", operands, (slabs, form.rows, width), dtype), shape
    )


def _of_rows(bb: relax.BlockBuilder, places: relax.Expr, axis: int) -> relax.Expr | None:
    """``places`` with one element along the axes behind ``axis``, where all of them are the same; else None."""
    shape = sizes_of(places)
    behind = range(axis + 1, len(shape))
    if (array := constant_of(places)) is not None:
        first = array[(*[slice(None)] * (axis + 1), *[slice(1)] * len(behind))]
        return relax.const(np.ascontiguousarray(first)) if (array == first).all() else None
    binding = bb.lookup_binding(places) if isinstance(places, relax.Var) else places
    if not isinstance(binding, relax.Call) or getattr(binding.op, "name", "") != "relax.broadcast_to":
        return None
    source = binding.args[0]
    own = sizes_of(source)
    own = [1] * (len(shape) - len(own)) + own
    if any(own[at] != 1 for at in behind):
        return None
    wide = [*shape[: axis + 1], *[1] * len(behind)]
    source = bb.normalize(relax.op.reshape(source, own))
    return source if own == wide else bb.normalize(relax.op.broadcast_to(source, wide))
