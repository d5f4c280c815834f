"""Largest and smallest: of several tensors, of the elements of one, within bounds, and in order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto
from tvm import relax, te, tirx, topi

from autotune.host.dtypes import numpy_type
from autotune.importer.onnx_model.shapes import OWN_DOMAIN
from autotune.importer.rewriting.emit import INT64, Emit, Node
from autotune.importer.rewriting.registry import OPAQUE_PATTERN, Inputs, converts, rewrites
from autotune.importer.rewriting.relax_values import constant_of, dtype_of, native, sizes_of
from schedules.templates.common.extremes import EXTREMES, extreme
from schedules.vocabulary.errors import ModelError

OF_ONE_AXIS = 13
"""First opset whose ``Hardmax`` takes the largest element along one axis."""

LONG = 64
"""Shortest rows that are reduced before what is left of a whole tensor is. Heuristic; of 128 × 768 numbers one
reduction takes 116 µs on two cores of an Ice Lake, this some 10."""


@converts("Max", "Min")
def max_of_tensors(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Two at a time, so that shapes broadcast; Relax's importer stacks all inputs."""
    tensors = [value for value in inputs if value is not None]
    combine = relax.op.maximum if attrs["tvm_custom"]["kind"] == "Max" else relax.op.minimum
    result = tensors[0]
    for value in tensors[1:]:
        result = bb.normalize(combine(result, value))
    return result


@converts("Clip")
def clip(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """``min(max(x, low), high)``: two elementwise operators, which fuse into what makes x and keep its layout.

    A bound that is NaN does not bind, as in ONNX Runtime. One that is left out is the largest number of either sign, so
    that infinities become finite.
    """
    result = inputs[0]
    bounds = inputs[1:3] if opset >= 11 else [_attribute(attrs, n, result) for n in ("min", "max")]
    for bound, limited in zip(bounds, (relax.op.maximum, relax.op.minimum), strict=True):
        bound = _default(result, limited is relax.op.maximum) if bound is None else bound
        if bound is None:
            continue
        if (known := constant_of(bound)) is not None:
            if np.isnan(known).any():
                continue
        elif np.dtype(str(bound.ty.dtype)).kind == "f":
            free = -np.inf if limited is relax.op.maximum else np.inf
            bound = bb.normalize(relax.op.where(relax.op.isnan(bound), relax.const(free, str(bound.ty.dtype)), bound))
        result = bb.normalize(limited(result, bound))
    return result


def _default(like: relax.Expr | None, least: bool) -> relax.Expr | None:
    """The bound where none is given: of floats alone, since no whole number is beyond its type."""
    dtype = numpy_type(dtype_of(like))
    if dtype.kind in "iub":
        return None
    limits = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return relax.const(float(limits.min if least else limits.max), dtype_of(like))


def _attribute(attrs: dict[str, Any], name: str, like: relax.Expr | None) -> relax.Expr | None:
    """The bound of operator sets before 11."""
    return relax.const(float(attrs[name]), dtype_of(like)) if name in attrs else None


@converts("ReduceMax", "ReduceMin")
def max_of_elements(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Floats start from ∓∞: Relax starts from the largest finite number, and never returns infinity.

    Whole numbers are left to Relax.

    Raises:
        ModelError: if the axes are not constant.
    """
    x, axes = inputs[0], inputs[1] if opset >= 18 else None
    kind = str(attrs["tvm_custom"]["kind"])
    dtype = np.dtype(dtype_of(x))
    if dtype.kind != "f":
        return native(kind, bb, inputs, attrs, opset)
    rank = len(sizes_of(x))
    known = constant_of(axes)
    if axes is not None and known is None:
        raise ModelError("its axes are computed from the inputs; they must be constant")
    listed = attrs.get("axes") if known is None else known.reshape(-1).tolist()
    if not listed and attrs.get("noop_with_empty_axes", 0):
        return x
    reduced = sorted({int(axis) % rank for axis in listed}) if listed else list(range(rank))
    keep = bool(attrs.get("keepdims", 1))
    axes_of_rows = _axes_of_rows(sizes_of(x))
    if len(reduced) == rank and str(dtype) == "float32" and axes_of_rows:
        name, attrs = f"{kind.lower()}_rows", {EXTREMES: [int(kind == "ReduceMax"), axes_of_rows]}
        x = bb.emit_te(_of_rows, x, *attrs[EXTREMES], primfunc_name_hint=name, primfunc_attrs=attrs)

    reducer = extreme(kind == "ReduceMax")

    def compute(data: te.Tensor) -> te.Tensor:
        loops = [te.reduce_axis((0, data.shape[axis]), f"r{axis}") for axis in reduced]
        shape = [1 if i in reduced else n for i, n in enumerate(data.shape) if keep or i not in reduced]

        def element(*place: Any) -> Any:
            left = iter(at for axis, at in enumerate(place) if not keep or axis not in reduced)
            over = iter(loop.var for loop in loops)
            return reducer(data(*(next(over if axis in reduced else left) for axis in range(rank))), axis=loops)

        return te.compute(shape, element, name="extreme")

    return bb.emit_te(compute, x, primfunc_name_hint=kind.lower())


def _axes_of_rows(shape: Sequence[int]) -> int:
    """Return how many of the last axes are rows of ``LONG`` and more, one axis at least being left; 0 if none are."""
    return next((count for count in range(1, len(shape)) if math.prod(shape[-count:]) >= LONG), 0)


def _of_rows(x: te.Tensor, largest: int, axes: int) -> te.Tensor:
    """The extremes of the last ``axes``, each of one number then, by integers that order as the floats do.

    TVM combines partial results, vectors and threads, of reductions that it knows; it knows none of floats that starts
    from infinity.
    """

    def ordered(bits: tirx.Expr) -> tirx.Expr:
        return bits ^ ((bits >> 31) & tirx.const(0x7FFFFFFF, "int32"))

    keys = te.compute(x.shape, lambda *at: ordered(tirx.reinterpret("int32", x(*at))), name="keys")
    extremes = (topi.max if largest else topi.min)(keys, axis=list(range(-axes, 0)), keepdims=True)
    return te.compute(extremes.shape, lambda *at: tirx.reinterpret("float32", ordered(extremes(*at))), name="extremes")


@rewrites("ReduceLogSumExp")
def log_of_sum(node: Node, e: Emit) -> list[str] | None:
    """m + log Σ e^(x − m) with the largest element m, or 0 where that is infinite: ∞ − ∞ is no number."""
    x, rank = node.input(0), len(node.shape(0))
    reduced = node.axes(rank)
    if reduced is None or not rank:
        return None
    if not reduced:
        return [e.op("Identity", x)]
    most = e.reduce("ReduceMax", x, reduced)
    if node.dtype(0).kind in "iu":  # ONNX Runtime cuts every power to a whole number: only the largest count
        largest = e.reduce("ReduceSum", e.cast(e.op("Equal", x, most), TensorProto.DOUBLE), reduced)
        result = e.op("Add", most, e.cast(e.op("Log", largest), node.type(0)))
        return [result if node.attr("keepdims", 1) else e.squeeze(result, *reduced)]
    shift = e.op("Where", e.op("Equal", e.op("Abs", most), e.like(np.inf)), e.like(0), most)
    total = e.reduce("ReduceSum", e.op("Exp", e.op("Sub", x, shift)), reduced)
    result = e.op("Add", e.op("Log", total), shift)
    return [result if node.attr("keepdims", 1) else e.squeeze(result, *reduced)]


@converts("ArgMax", "ArgMin")
def index_of_extreme(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """The index of the extreme, as ONNX Runtime finds it: a first NaN is beyond all numbers, other NaNs are ignored.

    One kernel makes the extremes, another one finds their first or last index: a reduction of both at once has no
    vectors. Both read the same numbers, for nothing is fused with them. Relax starts from the largest finite number,
    and prefers NaN to what is before.
    """
    x, kind = inputs[0], str(attrs["tvm_custom"]["kind"])
    largest, last, keep = kind == "ArgMax", bool(attrs.get("select_last_index", 0)), bool(attrs.get("keepdims", 1))
    dtype, sizes = dtype_of(x), sizes_of(x)
    axis = int(attrs.get("axis", 0)) % len(sizes)
    is_float = dtype.startswith(("float", "bfloat"))
    wide = "float32" if is_float and dtype != "float64" else dtype
    limit = math.inf if largest else -math.inf
    # The index of a number that is no extreme lies on the axis too, so that no kernel ever leads another one outside.
    unlikely = tirx.const(0 if last else max(0, int(sizes[axis]) - 1), "int32")

    def numbers(data: te.Tensor) -> te.Tensor:
        def number(*at: Any) -> Any:
            value = data(*at).astype(wide)
            if not is_float:
                return value
            beyond = tirx.Select(at[axis].equal(0), tirx.const(limit, wide), tirx.const(-limit, wide))
            return tirx.Select(value <= tirx.const(math.inf, wide), value, beyond)

        return te.compute(data.shape, number, name="numbers")

    def extremes(data: te.Tensor) -> te.Tensor:
        values = numbers(data)
        if not is_float:
            return (topi.max if largest else topi.min)(values, axis=axis, keepdims=True)
        step, reduce = te.reduce_axis((0, sizes[axis]), "r"), extreme(largest)
        shape = [1 if place == axis else size for place, size in enumerate(sizes)]
        return te.compute(
            shape, lambda *at: reduce(values(*at[:axis], step.var, *at[axis + 1 :]), axis=step), name="extreme"
        )

    def indices(data: te.Tensor, tops: te.Tensor) -> te.Tensor:
        values = numbers(data)

        def candidate(*at: Any) -> Any:
            value, top = values(*at), tops(*at[:axis], 0, *at[axis + 1 :])
            return tirx.Select(value < top if largest else value > top, unlikely, at[axis].astype("int32"))

        candidates = te.compute(data.shape, candidate, name="candidates")
        index = (topi.max if last else topi.min)(candidates, axis=axis, keepdims=keep)
        return te.compute(index.shape, lambda *at: index(*at).astype("int64"), name="index")

    name, alone = kind.lower(), {"op_pattern": OPAQUE_PATTERN}
    tops = bb.emit_te(extremes, x, primfunc_name_hint=f"{name}_extreme", primfunc_attrs=alone)
    return bb.emit_te(indices, x, tops, primfunc_name_hint=name, primfunc_attrs=alone)


@rewrites("Hardmax")
def hardmax(node: Node, e: Emit) -> list[str] | None:
    """Write 1 at ``ArgMax`` and 0 elsewhere.

    Below opset ``OF_ONE_AXIS`` all axes from ``axis`` on count as one. A matrix means the same in every opset.
    """
    x, axis = node.input(0), int(node.attr("axis", -1 if e.opset >= OF_ONE_AXIS else 1))
    known = node.known_shape(0)
    if e.opset < OF_ONE_AXIS and (known is None or len(known) != 2 or axis not in (1, -1)):
        return [e.op("Reshape", e.op("Hardmax", e.op("Flatten", x, axis=axis), axis=1), e.op("Shape", x))]
    shape = node.shape(0)
    axis %= len(shape)
    steps = np.arange(shape[axis], dtype=np.int64).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return [e.cast(e.op("Equal", e.op("ArgMax", x, axis=axis), e.const(steps)), node.type(0))]


ROUNDS = 6
"""Most elements of a row that are searched one after the other, in vectors of neighbouring rows. Heuristic."""

LEAST_VECTOR = 16
"""Neighbouring rows from which on they are searched in vectors."""


@rewrites("TopK")
def top_k(node: Node, e: Emit) -> list[str] | None:
    """The order of every row (``Ranks`` is ours), then a gather."""
    shape, rank = node.shape(0), len(node.shape(0))
    axis = int(node.attr("axis", -1)) % rank
    count = int(node.constant(1, "k").reshape(-1)[0])
    order = [*(i for i in range(rank) if i != axis), axis]
    x = e.transpose(node.input(0), *order)
    largest = int(node.attr("largest", 1))
    if count <= ROUNDS and math.prod(shape[axis + 1 :]) >= LEAST_VECTOR and node.dtype(0).name in ("float32", "int32"):
        top = e.op("Ranks", node.input(0), domain=OWN_DOMAIN, count=count, largest=largest, axis=axis)
        e.declare(top, [count if i == axis else size for i, size in enumerate(shape)], INT64)
        return [e.op("GatherElements", node.input(0), top, axis=axis), top]
    wide = e.cast(x, TensorProto.FLOAT) if node.type(0) in (TensorProto.FLOAT16, TensorProto.BFLOAT16) else x
    top = e.op("Ranks", wide, domain=OWN_DOMAIN, count=count, largest=largest)
    e.declare(top, [*(shape[i] for i in order[:-1]), count], INT64)
    back = [order.index(i) for i in range(rank)]
    values = e.op("GatherElements", x, top, axis=rank - 1)
    return [e.transpose(values, *back), e.transpose(top, *back)]
