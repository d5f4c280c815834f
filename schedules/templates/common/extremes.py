"""Maxima and minima that start from ∓∞, as ONNX's ``ReduceMax`` and ``ReduceMin`` do.

TVM splits a reduction into partial ones if it is of a kind that it has been told of. Of its own accord it knows maxima
and minima that start from the largest finite number.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from functools import partial

import tvm_ffi
from tvm import te, tirx

Values = Sequence[tirx.Expr]
Combine = Callable[[tirx.Expr, tirx.Expr], tirx.Expr]


EXTREMES = "tune.extremes"
"""Attribute of a kernel that makes extremes of a tensor's last axes: 1 for the largest or 0, and how many axes."""


def extreme(largest: bool) -> Callable[..., tirx.Expr]:
    """The reducer of floats."""

    def combine(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
        return tirx.max(a, b) if largest else tirx.min(a, b)

    start = -math.inf if largest else math.inf
    reducer: Callable[..., tirx.Expr] = te.comm_reducer(combine, lambda dtype: tirx.const(start, dtype), name="extreme")
    return reducer


def along(x: te.Tensor, axes: Sequence[int], largest: bool) -> te.Tensor:
    """The extremes of ``x`` along neighbouring ``axes``, which stay with one number each."""
    loops = [te.reduce_axis((0, x.shape[axis]), f"r{axis}") for axis in axes]
    shape = [1 if place in axes else size for place, size in enumerate(x.shape)]
    reduce, before, behind = extreme(largest), axes[0], axes[-1] + 1

    def element(*at: tirx.Var) -> tirx.Expr:
        return reduce(x(*at[:before], *loops, *at[behind:]), axis=loops)

    return te.compute(shape, element, name="extreme")


def register_extremes() -> None:
    """Tell TVM of both: once per process, since it forgets none."""
    register = tvm_ffi.get_global_func("s_tir.schedule.RegisterReducer")
    kinds: tuple[tuple[Combine, float], ...] = ((tirx.max, -math.inf), (tirx.min, math.inf))
    for combine, start in kinds:
        functions = tvm_ffi.convert(partial(_combined, combine)), tvm_ffi.convert(partial(_identity, start))
        for function in functions:
            # TVM lets go of them when the process ends, and Python, which would have to free them, is gone by then.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(function))
        register(1, *functions)


def _combined(combine: Combine, left: Values, right: Values) -> list[tirx.Expr]:
    return [combine(left[0], right[0])]


def _identity(start: float, values: Values) -> list[tirx.Expr]:
    return [tirx.const(start, str(values[0].ty.dtype))]
