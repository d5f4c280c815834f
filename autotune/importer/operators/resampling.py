"""Resize: along one axis after the other, each output a weighted sum of few inputs at constant places.

The weights are those of ONNX's reference (``onnx.reference.ops.op_resize``), computed for all outputs at once. Places
are computed in fp32, in the order of ONNX Runtime's operations: in fp64 another pixel is the nearest at ratios such as
14 to 32. Integers are resized as ONNX Runtime does: sums in fp32, cut to whole numbers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

import numpy as np
from onnx import TensorProto
from tvm import relax, te

from autotune.importer.onnx_model.scope import Array
from autotune.importer.onnx_model.shapes import OWN_DOMAIN
from autotune.importer.rewriting.emit import FLOAT, HALVES, INT64, Emit, Node
from autotune.importer.rewriting.registry import Inputs, converts, rewrites
from autotune.importer.rewriting.relax_values import sizes_of

Single = np.float32

WEIGHTED_ROWS = "WeightedRows"
"""An operator of ours."""

FEW_TAPS = 4
"""Inputs per output up to which elements of the innermost axis are gathered. Heuristic, not measured."""

MOST_TAPS = 24
"""Inputs per output up to which rows are summed, in vectors; above, a product with a matrix that is mostly zeros. For
640 × 480 to 224 × 224 pixels, 7 taps, the product took 3.2 ms (Zen 5). The limit is a heuristic, not measured."""

LEAST_ROW = 16
"""Elements of a row from which rows are summed in vectors. Heuristic, not measured."""

CROPPED = "tf_crop_and_resize"
"""The one way of counting that reads the region of interest."""

SMALL_INTEGERS = (TensorProto.INT8, TensorProto.UINT8)

BY_SCALE = "simple"
"""ONNX Runtime's name of the rounding below opset 11: ``nearest`` rounds up along axes that shrink, else down."""

HALFWAY = 1e-6
"""How far from the middle of two pixels a place in fp32 still counts as it, as in ONNX Runtime."""

BITS = 22
"""Bits of the weights with which bytes are antialiased, as ONNX Runtime counts them."""

FRACTION = 1 << 10
"""Steps between two pixels of an image of bytes whose channels come last, as ONNX Runtime counts them."""


@dataclass(frozen=True)
class _Axis:
    """One axis: its size before and after, their ratio in fp32, the size after before it was made whole, and its region
    of interest.
    """

    index: int
    size: int
    out: int
    scale: np.float32
    exact: float
    start: float = 0.0
    end: float = 1.0

    @property
    def stays(self) -> bool:
        """Whether the operator leaves the axis as it is, unless it crops."""
        return self.out == self.size and self.scale == 1


@rewrites("Resize", "Upsample")
def resize(node: Node, e: Emit) -> list[str] | None:
    """Gathers (nearest) or weighted sums (linear, cubic) along every axis that changes."""
    mode = str(node.attr("mode", "nearest"))
    axes = _axes(node, e.opset)
    where = _coordinates_mode(node, e.opset)
    if where == CROPPED and node.input(1) and node.array(1) is None:
        return [_cropped(node, e, axes, mode)]
    places = {axis.index: _places(axis, where) for axis in axes}
    changed = [axis for axis in axes if not axis.stays or where == CROPPED]
    x, kind = node.input(0), node.type(0)
    if mode == "nearest" or not changed:
        for axis in changed:
            picks = _nearest(node, e, axis, places[axis.index])
            x = e.op("Gather", x, e.const(picks), axis=axis.index)
    elif node.dtype(0).kind in "iu":
        x = _of_integers(node, e, axes, changed, places, mode)
    else:
        x, shape = e.cast(x, FLOAT) if kind in HALVES else x, list(node.shape(0))
        for axis in changed:
            _declare(e, x, shape, FLOAT if kind in HALVES else kind)
            x, shape[axis.index] = _along(node, e, x, axis, places[axis.index], mode), axis.out
        x = e.cast(x, kind) if kind in HALVES else x
    rank = len(node.shape(0))
    for axis in changed if where == CROPPED else ():
        mask = (places[axis.index] < 0) | (places[axis.index] > axis.size - 1)
        if mask.any():
            shaped = mask.reshape([-1 if i == axis.index else 1 for i in range(rank)])
            x = e.op("Where", e.const(shaped), e.like(node.attr("extrapolation_value", 0.0)), x)
    return [x if x != node.input(0) else e.op("Identity", x)]


def _declare(e: Emit, x: str, shape: Sequence[int], kind: int) -> None:
    """Say what ``x`` is, unless that is known: nothing is inferred within a rewrite."""
    if x not in e.scope.shapes:
        e.declare(x, shape, kind)


def _is_old(node: Node, opset: int) -> bool:
    return node.kind == "Upsample" or opset < 11


def _coordinates_mode(node: Node, opset: int) -> str:
    return str(node.attr("coordinate_transformation_mode", "asymmetric" if _is_old(node, opset) else "half_pixel"))


def _axes(node: Node, opset: int) -> list[_Axis]:
    """All axes in order; sizes and ratios in fp32, as ONNX infers the result's shape."""
    shape, old = node.shape(0), _is_old(node, opset)
    rank = len(shape)
    chosen = [int(axis) % rank for axis in node.attr("axes", range(rank))]
    place = 1 if old else 2
    # Upsample before opset 9 has an attribute.
    scales = node.constant(place, "scales") if node.input(place) else np.array(node.attr("scales", []))
    roi = node.array(1) if _coordinates_mode(node, opset) == CROPPED and node.input(1) else None
    roi = np.zeros(0) if roi is None else roi
    by_axis = {axis: _Axis(axis, size, size, Single(1), size) for axis, size in enumerate(shape)}
    ratios = scales.astype(np.float32)
    policy, sizes = "stretch", None
    if not scales.size:
        sizes = node.constant(3, "sizes")
        ratios = np.array([Single(n) / Single(shape[a]) if shape[a] else 1 for n, a in zip(sizes, chosen, strict=True)])
        ratios = ratios.astype(np.float32)
        policy = str(node.attr("keep_aspect_ratio_policy", "stretch"))
        if policy != "stretch":
            ratios = np.full_like(ratios, ratios.min() if policy == "not_larger" else ratios.max())
    for position, (axis, ratio) in enumerate(zip(chosen, ratios, strict=True)):
        real = ratio * Single(shape[axis])
        exact = float(ratio) * shape[axis]
        size = math.floor(real)
        if sizes is not None:
            size = int(sizes[position]) if policy == "stretch" else math.floor(real + Single(0.5))
            exact = float(size)
        ends = (float(roi[position]), float(roi[position + len(chosen)])) if roi.size else (0.0, 1.0)
        by_axis[axis] = _Axis(axis, shape[axis], size, ratio, exact, *ends)
    return list(by_axis.values())


def _places(axis: _Axis, where: str) -> Array:
    """(out,) where every output lies among the inputs, in fp32."""
    x, half = np.arange(axis.out, dtype=np.float32), Single(0.5)
    last = Single(axis.size - 1)
    if where == "align_corners":
        return np.zeros_like(x) if axis.exact == 1 else x * last / (Single(axis.exact) - Single(1))
    if where == "asymmetric":
        return x / axis.scale
    if where == "tf_half_pixel_for_nn":
        return (x + half) / axis.scale
    if where == CROPPED:
        start, span = Single(axis.start), Single(axis.end) - Single(axis.start)
        if axis.out == 1:
            return np.full_like(x, 0.5 * float(Single(axis.start) + Single(axis.end)) * float(last))
        return start * last + x * span * last / Single(axis.out - 1)
    if where == "pytorch_half_pixel" and axis.out == 1:
        return np.zeros_like(x)
    offset = Single(0)
    if where == "half_pixel_symmetric":
        offset = Single(axis.size / 2) * (Single(1) - Single(axis.out) / (axis.scale * Single(axis.size)))
    return offset + (x + half) / axis.scale - half


def _nearest_mode(node: Node, e: Emit, axis: _Axis) -> str:
    """The rounding of places along an axis: ``floor``, ``ceil``, or to the nearest."""
    mode = str(node.attr("nearest_mode", "round_prefer_floor"))
    if mode == BY_SCALE or _is_old(node, e.opset):
        return "ceil" if axis.scale < 1 else "floor"
    return mode


def _nearest(node: Node, e: Emit, axis: _Axis, places: Array) -> Array:
    """(out,) the input that every output is."""
    mode = _nearest_mode(node, e, axis)
    if mode in ("floor", "ceil"):
        picks = (np.floor if mode == "floor" else np.ceil)(places)
    else:
        wide = places.astype(np.float64)
        up = mode == "round_prefer_ceil"
        picks = np.floor(wide + 0.5 + HALFWAY) if up else np.ceil(wide - 0.5 - HALFWAY)
    return np.clip(picks, 0, axis.size - 1).astype(np.int64)


def _cropped(node: Node, e: Emit, axes: Sequence[_Axis], mode: str) -> str:
    """Resize the pixels of a region that is computed, so that indices and weights are computed too.

    Raises:
        UnsupportedError: if it weights four pixels, or antialiases, or rounds to integers.
    """
    nearest = mode == "nearest"
    if not e.scope.settled:
        raise node.refused(f"its region of interest {node.input(1)!r} is not known yet")
    if not nearest and (mode != "linear" or node.attr("antialias", 0) or node.dtype(0).kind in "iu"):
        raise node.refused(f"its region of interest {node.input(1)!r} is computed and its mode is {mode}")
    kind, rank = node.type(0), len(axes)
    chosen = [int(axis) % rank for axis in node.attr("axes", range(rank))]
    roi = e.cast(node.input(1), FLOAT)
    x = node.input(0) if nearest else e.cast(node.input(0), FLOAT)
    masks = []
    for axis in [axis for axis in axes if axis.index in chosen and not (axis.stays and axis.size == 1)][::-1]:
        number, last = chosen.index(axis.index), e.const(Single(axis.size - 1))
        start, end = (e.op("Gather", roi, e.ints(number + side * len(chosen)), axis=0) for side in (0, 1))
        if axis.out == 1:
            places = e.op("Mul", e.op("Mul", e.op("Add", start, end), e.const(Single(0.5))), last)
        else:
            steps = e.const(np.arange(axis.out, dtype=np.float32))
            span = e.op("Mul", e.op("Mul", steps, e.op("Sub", end, start)), last)
            places = e.op("Add", e.op("Mul", start, last), e.op("Div", span, e.const(Single(axis.out - 1))))
        zero, shape = e.const(Single(0)), [-1 if i == axis.index else 1 for i in range(rank)]
        outside = e.op("Or", e.op("Less", places, zero), e.op("Greater", places, last))
        masks.append(e.reshape(outside, *shape))
        picks = e.op("Clip", _rounded(node, e, axis, places) if nearest else places, zero, last)
        low = picks if nearest else e.op("Floor", picks)
        one = e.op("Gather", x, e.cast(low, INT64), axis=axis.index)
        if nearest:
            x = one
            continue
        high = e.op("Min", e.op("Add", low, e.const(Single(1))), last)
        other = e.op("Gather", x, e.cast(high, INT64), axis=axis.index)
        share = e.reshape(e.op("Sub", picks, low), *shape)
        x = e.op("Add", one, e.op("Mul", e.op("Sub", other, one), share))
    x = x if nearest else e.cast(x, kind)
    for mask in masks:
        x = e.op("Where", mask, e.like(node.attr("extrapolation_value", 0.0)), x)
    return x


def _rounded(node: Node, e: Emit, axis: _Axis, places: str) -> str:
    """Computed places as those of the nearest inputs."""
    mode = _nearest_mode(node, e, axis)
    if mode in ("floor", "ceil"):
        return e.op(mode.capitalize(), places)
    up = mode == "round_prefer_ceil"
    half = e.const(Single(0.5 + HALFWAY if up else -0.5 - HALFWAY))
    return e.op("Floor" if up else "Ceil", e.op("Add", places, half))


def _of_integers(
    node: Node, e: Emit, axes: Sequence[_Axis], changed: Sequence[_Axis], places: dict[int, Array], mode: str
) -> str:
    """Integers: linear by sums over the corners around every place, else along one axis after the other.

    Antialiased bytes have weights of ``BITS`` bits, whose sums are exact in fp64, and are rounded behind each axis.
    """
    kind, limits = node.type(0), np.iinfo(node.dtype(0))
    rounds = bool(node.attr("antialias", 0))
    if mode == "linear" and not rounds:
        return _corners(node, e, _spatial(axes, changed), places)
    unit = float(1 << BITS) if kind in SMALL_INTEGERS and rounds else 1.0
    low, high, half, scale = (e.const(np.float64(number)) for number in (limits.min, limits.max, 0.5, 1 / unit))
    x, shape = e.cast(node.input(0), TensorProto.DOUBLE), list(node.shape(0))
    for axis in reversed(changed):
        _declare(e, x, shape, TensorProto.DOUBLE)
        x = _along(node, e, x, axis, places[axis.index], mode, unit)
        x = e.op("Mul", x, scale) if unit != 1 else x
        x = e.op("Floor", e.op("Add", x, half)) if rounds else x
        x, shape[axis.index] = e.op("Clip", x, low, high), axis.out
    return e.cast(x, kind)


def _spatial(axes: Sequence[_Axis], changed: Sequence[_Axis]) -> list[_Axis]:
    """The axes of an image or volume, all of which ONNX Runtime weights, in its order: the innermost first."""
    rank, ends = len(axes), {axis.index for axis in changed}
    for first, behind in ((0, 0), (2, 0), (1, 1)):
        inner = list(axes[first : rank - behind])
        fits = len(inner) in ((2, 3) if behind == 0 else (2,)) and rank in (len(inner), len(inner) + 2)
        if fits and ends <= {axis.index for axis in inner}:
            return inner[::-1]
    return list(changed)[::-1]


def _corners(node: Node, e: Emit, axes: Sequence[_Axis], places: dict[int, Array]) -> str:
    """Σ over the corners of (the weights of all axes) · (the input there), in fp32; of bytes with channels last in
    integers.
    """
    kind, rank = node.type(0), len(node.shape(0))
    counts = kind in SMALL_INTEGERS and rank == 4 and axes[0].index == 2
    ends: list[list[tuple[Array, Array]]] = []
    for axis in axes:
        at = np.arange(axis.out, dtype=np.float32) if axis.scale == 1 else places[axis.index]
        at = np.clip(at, Single(0), Single(axis.size - 1))
        low = np.minimum(at.astype(np.int64), axis.size - 1)
        high = np.minimum(low + 1, axis.size - 1)
        if counts:
            whole = (at * Single(FRACTION)).astype(np.int64)
            before, behind = (np.abs(whole - FRACTION * neighbour) for neighbour in (high, low))
        else:
            before, behind = (np.abs(at - neighbour.astype(np.float32)) for neighbour in (high, low))
        same, half = low == high, FRACTION // 2 if counts else 0.5
        dtype = np.int32 if counts else np.float32
        weights = [np.where(same, half, distance).astype(dtype) for distance in (before, behind)]
        ends.append([(low, weights[0]), (high, weights[1])])
    total = ""
    for corner in product((0, 1), repeat=len(axes)):  # the innermost axis changes fastest
        x, factor = node.input(0), ""
        for axis, end, side in zip(axes, ends, reversed(corner), strict=True):
            picks, shares = end[side]
            own = e.const(shares.reshape([-1 if i == axis.index else 1 for i in range(rank)]))
            factor = e.op("Mul", factor, own) if factor else own
            x = e.op("Gather", x, e.const(picks), axis=axis.index)
        if counts:
            part = e.op("Mul", factor, e.cast(x, TensorProto.INT32))
        else:  # fused with the addition, a product would not be rounded, and whole numbers might be missed
            double = e.cast(e.cast(x, FLOAT), TensorProto.DOUBLE)
            part = e.cast(e.op("Mul", e.cast(factor, TensorProto.DOUBLE), double), FLOAT)
        total = e.op("Add", total, part) if total else part
    return e.cast(e.op("Div", total, e.const(np.int32(FRACTION**2))) if counts else total, kind)


def _along(node: Node, e: Emit, x: str, axis: _Axis, places: Array, mode: str, unit: float = 1.0) -> str:
    """The floats ``x`` resized along ``axis``, by weights of whole numbers that sum to ``unit`` unless it is 1."""
    places = places.astype(np.float64)
    ratio = places - np.floor(places)
    ratio[ratio == 0] = 1.0  # a place on an input counts as the right end of the interval before it
    weights = _weights(node, ratio, float(axis.scale), mode)
    taps = weights.shape[1]
    picks = (np.ceil(places) - taps // 2).astype(np.int64)[:, None] + np.arange(taps)
    if node.attr("exclude_outside", 0):
        weights = np.where((picks < 0) | (picks >= axis.size), 0.0, weights)
        weights /= weights.sum(axis=1, keepdims=True)
    picks = np.clip(picks, 0, axis.size - 1)
    weights = np.floor(weights * unit + 0.5) if unit != 1 else weights
    short = node.type(0) in (FLOAT, *HALVES)
    rank, dtype = len(node.shape(0)), np.float32 if short else np.float64
    if taps > FEW_TAPS:
        return _by_rows(e, x, axis, picks, weights.astype(dtype))
    total = ""
    for tap in range(taps):
        factor = weights[:, tap].astype(dtype).reshape([-1 if i == axis.index else 1 for i in range(rank)])
        part = e.op("Mul", e.op("Gather", x, e.const(picks[:, tap]), axis=axis.index), e.const(factor))
        total = e.op("Add", total, part) if total else part
    return total


def _by_rows(e: Emit, x: str, axis: _Axis, picks: Array, weights: Array) -> str:
    """``x`` resized by sums of rows, in vectors; the innermost axis is not the innermost meanwhile.

    Where there are too many taps or too short rows, it is a product with a matrix that is mostly zeros.
    """
    shape, columns = e.scope.shapes[x], np.arange(axis.out)[:, None]
    rank, taps = len(shape), min(weights.shape[1], axis.size)
    last = axis.index == rank - 1
    row = shape[rank - 2 if last else rank - 1] if rank > 1 else 1
    if taps > MOST_TAPS or row < LEAST_ROW:
        matrix = np.zeros((axis.size, axis.out), weights.dtype)
        np.add.at(matrix, (picks, columns), weights)
        order = [*(i for i in range(rank) if i != axis.index), axis.index]
        product = e.op("MatMul", e.transpose(x, *order), e.const(matrix))
        return e.transpose(product, *(order.index(i) for i in range(rank)))
    first = np.clip(picks[:, 0], 0, axis.size - taps)
    window = np.zeros((axis.out, taps), weights.dtype)  # places beyond an end are the end: their weights add up there
    np.add.at(window, (columns, picks - first[:, None]), weights)
    order = [*range(rank - 2), rank - 1, rank - 2] if last else list(range(rank))
    rows, place = (e.transpose(x, *order), rank - 2) if last else (x, axis.index)
    operands = [rows, e.const(first.astype(np.int32)), e.const(window)]
    sums = e.op(WEIGHTED_ROWS, *operands, domain=OWN_DOMAIN, axis=place)
    e.declare(sums, [axis.out if i == place else shape[order[i]] for i in range(rank)], e.scope.types[x])
    return e.transpose(sums, *order) if last else sums


@converts(WEIGHTED_ROWS)
def weighted_rows(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Sums of neighbouring rows: inputs (…, size, …), the first row of each output (out,), weights (out, taps)."""
    x, first, weights = inputs[:3]
    axis, (out, taps) = int(attrs["axis"]), sizes_of(weights)
    sizes = sizes_of(x)

    def rows(data: te.Tensor, start: te.Tensor, shares: te.Tensor) -> te.Tensor:
        def total(*at: Any) -> Any:
            begin = start(at[axis]).astype("int64")
            terms = (data(*at[:axis], begin + tap, *at[axis + 1 :]) * shares(at[axis], tap) for tap in range(taps))
            return reduce(operator.add, terms)

        return te.compute([*sizes[:axis], out, *sizes[axis + 1 :]], total, name="weighted_rows")

    return bb.emit_te(rows, x, first, weights, primfunc_name_hint="weighted_rows")


def _weights(node: Node, ratio: Array, scale: float, mode: str) -> Array:
    """(out, taps) weights of the neighbours, left to right."""
    cubic = mode == "cubic"
    a = float(node.attr("cubic_coeff_a", -0.75))
    reach = 2 if cubic else 1
    shrink = min(scale, 1.0) if node.attr("antialias", 0) else 1.0
    start = math.floor(-reach / shrink) + 1
    steps = np.arange(start, 2 - start if cubic else start + 2 - 2 * start)
    distance = np.abs((steps[None, :] - ratio[:, None]) * shrink)
    if cubic:
        near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        weights = np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
    else:
        weights = np.clip(1 - distance, 0, 1)
    return weights / weights.sum(axis=1, keepdims=True) if node.attr("antialias", 0) else weights
