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
from tvm import tirx

Values = Sequence[tirx.Expr]
Combine = Callable[[tirx.Expr, tirx.Expr], tirx.Expr]


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
