"""Constant folding in NumPy for the few operations that stand between weights and their use.

TVM's FoldConstant compiles a function per operation; NumPy needs microseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from autotune.host.dtypes import numpy_type

Array = NDArray[Any]


def _axes(call: relax.Call, name: str = "axes") -> tuple[int, ...] | None:
    axes = getattr(call.attrs, name)
    return None if axes is None else tuple(int(axis) for axis in axes)


def _expand(call: relax.Call, x: Array) -> Array:
    for axis in sorted(_axes(call, "axis") or ()):
        x = np.expand_dims(x, axis)
    return x


_UNARY: dict[str, Callable[[Array], Array]] = {
    "relax.sqrt": np.sqrt,
    "relax.rsqrt": lambda x: (1.0 / np.sqrt(x)).astype(x.dtype),
    "relax.negative": np.negative,
    "relax.exp": np.exp,
    "relax.abs": np.abs,
}
_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.divide": np.divide,
}
_OF_INTEGERS: dict[str, Callable[[Array, Array], Array]] = {
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.less": np.less,
}
"""As of places in tensors that count from the end where they are negative."""


def fold_call(call: relax.Call, args: list[Array | None], shape: tuple[int, ...], dtype: str) -> Array | None:
    """The value of ``call`` whose arguments are all constant, or None if it is not one of the folded kinds.

    Args:
        args: value of each argument; None for one that is not an array (a shape).
        shape, dtype: of the result, which may be a view of an argument: what becomes a weight is packed, or copied by
            ``TensorLayouts.constant``, and one copy of a large one is enough.
    """
    name = str(call.op.name)
    first = args[0] if args else None
    if first is None:
        return None
    result: Array | None = None
    if name in ("relax.reshape", "relax.squeeze"):
        result = first.reshape(shape)
    elif name == "relax.astype":
        result = first
    elif name == "relax.permute_dims":
        result = np.transpose(first, _axes(call))
    elif name == "relax.expand_dims":
        result = _expand(call, first)
    elif name == "relax.broadcast_to":
        result = np.broadcast_to(first, shape)
    elif name in _UNARY:
        result = _UNARY[name](first)
    elif name == "relax.where" and args[1] is not None and args[2] is not None:
        result = np.where(first, args[1], args[2])
    elif name in (binary := _BINARY if first.dtype.kind == "f" else _OF_INTEGERS) and args[1] is not None:
        result = binary[name](first, args[1])
    if result is None or result.shape != shape:
        return None
    return result.astype(numpy_type(dtype), copy=False)
