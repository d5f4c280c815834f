"""Channel shuffles (reshape, transpose, reshape) that are read in place, as in ShuffleNet.

A shuffle moves whole images to give every group of a convolution channels of all groups before it. What works on
channels one by one is done before it instead, its constants in the other order, and a convolution reads the channels
where they are: ``Value.dealt``. What else reads a shuffled image gets it emitted.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from autotune.importer.layouts.packing import Array, Shape
from autotune.importer.layouts.tensor_layouts import TensorLayouts, Value, shape_of

SWAPPED = (0, 2, 1, 3, 4)
"""Axes of (n, groups, channels of one, h, w) where a shuffle exchanges the two parts of the channels."""


def shuffled(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """The shuffle of a native image whose last step is ``call``, a reshape; None if it is no such step."""
    swap = _made(layouts, call, "relax.permute_dims")
    split = None if swap is None else _made(layouts, swap, "relax.reshape")
    if swap is None or split is None or swap.attrs.axes is None or len(shape) != 4:
        return None
    value, parts = layouts.value(split.args[0]), shape_of(swap.args[0]) or ()
    axes = tuple(int(axis) % len(parts) for axis in swap.attrs.axes)
    if value is None or value.native is None or value.shape != shape or axes != SWAPPED:
        return None
    n, channels, *rest = shape
    if parts[:1] + parts[3:] != (n, *rest) or parts[1] * parts[2] != channels:
        return None
    return Value(shape, dealt=(value, parts[1]))


def _made(layouts: TensorLayouts, call: relax.Call, name: str) -> relax.Call | None:
    """The call that made the first operand of ``call``, if it is of operation ``name``."""
    operand = call.args[0]
    made = layouts.made_by.get(operand) if isinstance(operand, relax.Var) else None
    return made if made is not None and str(getattr(made.op, "name", "")) == name else None


def places(channels: int, groups: int) -> Array:
    """(channels,) where each channel of the shuffled image is in the image."""
    return np.arange(channels).reshape(groups, -1).T.reshape(-1)


def before_shuffle(array: Array, groups: int, axis: int) -> Array:
    """What goes with the channels of a shuffled image along ``axis``, in the order of the image."""
    return np.take(array, np.argsort(places(array.shape[axis], groups)), axis)


def after(value: Value, out: relax.Expr, shape: Shape) -> Value:
    """What was computed of the image of a shuffled ``value``, shuffled."""
    assert value.dealt is not None
    return Value(shape, dealt=(Value(shape, native=out), value.dealt[1]))


def elementwise(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """An operation of one shuffled image, and of constants with a number for all or for each channel."""
    values = [layouts.value(arg) for arg in call.args]
    images = [value for value in values if value is not None]
    if len(images) != 1 or images[0].dealt is None or images[0].shape != shape:
        return None
    (source, groups), operands = images[0].dealt, []
    for arg, value in zip(call.args, values, strict=True):
        array = layouts.array(arg)
        if value is not None:
            operands.append(layouts.native(source))
        elif array is None:  # no tensor, but a number of ``clip``
            operands.append(arg)
        elif array.size == 1:
            operands.append(layouts.constant(array.reshape(())))
        elif array.ndim in (3, 4) and array.size == array.shape[-3] == shape[1]:
            wide = before_shuffle(array.reshape(1, -1, 1, 1), groups, 1)
            operands.append(layouts.native_constant(wide, 0.0))
        else:
            return None
    return after(images[0], layouts.emit_like(call, operands), shape)
