"""ReduceMax and ReduceMin that know infinity: TVM's start from the largest finite number, and so never return it."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.ir import GenericConst
from tvm.relax.frontend.onnx import onnx_frontend

from autotune.importer.conversion.frontend import Inputs, converts
from schedules.errors import ModelError


@converts("ReduceMax", "ReduceMin")
def extreme(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Floats start from ∓∞; whole numbers go Relax's way.

    Raises:
        ModelError: if the axes are not constant.
    """
    x, axes = inputs[0], inputs[1] if opset >= 18 else None
    kind = str(attrs["tvm_custom"]["kind"])
    dtype = np.dtype(str(x.ty.dtype))  # type: ignore[union-attr]
    if dtype.kind != "f":
        native = onnx_frontend._get_convert_map()[kind].get_converter(opset)
        return native(bb, onnx_frontend.onnx_input(inputs), attrs, [{}, {}])
    rank = len(x.ty.shape)  # type: ignore[union-attr]
    given = axes.value.numpy().reshape(-1).tolist() if isinstance(axes, GenericConst) else attrs.get("axes")
    if axes is not None and not isinstance(axes, GenericConst):
        raise ModelError("its axes are computed from the inputs; they must be constant")
    if not given and attrs.get("noop_with_empty_axes", 0):
        return x
    reduced = sorted({int(axis) % rank for axis in given}) if given else list(range(rank))
    keep = bool(attrs.get("keepdims", 1))
    start = -np.inf if kind == "ReduceMax" else np.inf

    def combine(a: Any, b: Any) -> Any:
        return tirx.max(a, b) if kind == "ReduceMax" else tirx.min(a, b)

    reducer = te.comm_reducer(combine, lambda t: tirx.const(start, t), name="extreme")

    def compute(data: te.Tensor) -> te.Tensor:
        loops = [te.reduce_axis((0, data.shape[axis]), f"r{axis}") for axis in reduced]
        shape = [1 if i in reduced else n for i, n in enumerate(data.shape) if keep or i not in reduced]

        def element(*place: Any) -> Any:
            outer = iter(place)
            index = []
            for axis in range(rank):
                if axis in reduced:
                    if keep:
                        next(outer)
                    index.append(loops[reduced.index(axis)].var)
                else:
                    index.append(next(outer))
            return reducer(data(*index), axis=loops)

        return te.compute(shape, element, name="extreme")

    return bb.emit_te(compute, x, primfunc_name_hint=kind.lower())


@converts("Ranks")
def ranks(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Index of the k-th element of every row, k = 0 … count − 1: equal elements in their order.

    An element's rank is the number of those before it; the index of rank k is the sum of the one index that has it.
    """
    x, count, largest = inputs[0], int(attrs["count"]), bool(attrs["largest"])

    def compute(data: te.Tensor) -> te.Tensor:
        *outer, size = data.shape
        other, own = te.reduce_axis((0, size), "other"), te.reduce_axis((0, size), "own")

        def before(place: tuple[Any, ...], i: Any) -> Any:
            a, b = data(*place, other), data(*place, i)
            ahead = (a > b) if largest else (a < b)
            return tirx.any(ahead, tirx.all(a == b, other < i)).astype("int64")

        rank = te.compute(data.shape, lambda *p: te.sum(before(p[:-1], p[-1]), axis=other), name="rank")

        def index(*place: Any) -> Any:
            hit = rank(*place[:-1], own) == place[-1]
            return te.sum(tirx.Select(hit, own.var.astype("int64"), tirx.const(0, "int64")), axis=own)

        return te.compute((*outer, count), index, name="index")

    return bb.emit_te(compute, x, primfunc_name_hint="top")
