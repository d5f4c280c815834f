"""Splits, concatenations and shuffles of channels that are not carried out until something needs their result.

An image that they make is remembered as channels of other images (``Value.picked``). What works on channels one by one
is done before a permutation, its constants in the other order; a convolution's weights are brought into the order in
which the channels lie. Where channels have to be moved, one kernel does what a whole chain of such operations asks for.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax

from autotune.importer.layouts.layout_agnostic import images_taken, joined
from autotune.importer.layouts.packing import Array, Shape, up
from autotune.importer.layouts.tensor_layouts import Picked, TensorLayouts, Value, channel_shuffle
from autotune.importer.rewriting.registry import OPAQUE_PATTERN
from autotune.importer.rewriting.relax_values import shape_of
from schedules.templates.common.movements import MOST_RUNS, pick_channels, runs_of

MOST_PARTS = 4
"""Images side by side up to which an elementwise operation is done to each of them. Heuristic, not measured."""

SWAPPED = (0, 2, 1, 3, 4)
"""Axes of (n, groups, channels of one, h, w) where a shuffle exchanges the two parts of the channels."""


def shuffled(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """The shuffle of an image whose last step is ``call``, a reshape; None if it is no such step."""
    swap = _made(layouts, call, "relax.permute_dims")
    split = None if swap is None else _made(layouts, swap, "relax.reshape")
    if swap is None or split is None or swap.attrs.axes is None or len(shape) != 4:
        return None
    value, parts = layouts.value(split.args[0]), shape_of(swap.args[0]) or ()
    axes = tuple(int(axis) % len(parts) for axis in swap.attrs.axes)
    if value is None or not value.is_image or value.shape != shape or axes != SWAPPED:
        return None
    n, channels, *rest = shape
    if parts[:1] + parts[3:] != (n, *rest) or parts[1] * parts[2] != channels:
        return None
    return _picked(value, places(channels, parts[1]), shape)


def _made(layouts: TensorLayouts, call: relax.Call, name: str) -> relax.Call | None:
    """The call that made the first operand of ``call``, if it is of operation ``name``."""
    operand = call.args[0]
    maker = layouts.made_by.get(operand) if isinstance(operand, relax.Var) else None
    return maker if maker is not None and str(getattr(maker.op, "name", "")) == name else None


def sliced(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """Channels that lie together in an image; else as on every target."""
    value = layouts.value(call.args[0])
    axes, begins, _, *steps = ([int(number) for number in arg] for arg in call.args[1:])
    if value is None or not value.is_image or len(shape) != 4 or axes != [1] or steps not in ([], [[1]]):
        return images_taken(layouts, call, shape)
    begin = begins[0] % value.channels if begins[0] < value.channels else value.channels
    return _picked(value, np.arange(begin, begin + shape[1]), shape) if shape[1] else None


def concatenated(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """Images side by side: written in place where they are whole images that fill whole blocks."""
    fields = list(call.args[0].fields) if isinstance(call.args[0], relax.Tuple) else []
    known = [value for value in map(layouts.value, fields) if value is not None and value.is_image]
    if len(shape) != 4 or int(call.attrs.axis) % 4 != 1 or not fields or len(known) != len(fields):
        return joined(layouts, call, shape)
    if all(value.picked is None and value.channels % layouts.block == 0 for value in known):
        return joined(layouts, call, shape)
    sources = [_as_picked(value) for value in known]
    starts = np.cumsum([0, *(sum(part.channels for part in picked.parts) for picked in sources)])
    order = np.concatenate([picked.order + start for picked, start in zip(sources, starts, strict=False)])
    picked = _reduced([part for picked in sources for part in picked.parts], order)
    if picked.is_whole and all(part.channels % layouts.block == 0 for part in picked.parts):
        return Value(shape, native=layouts.joined([layouts.native(part) for part in picked.parts]))
    return Value(shape, picked=picked)


def _as_picked(value: Value) -> Picked:
    return value.picked or Picked((value,), np.arange(value.channels))


def _picked(value: Value, order: Array, shape: Shape) -> Value:
    """The channels ``order`` of an image."""
    whole = _as_picked(value)
    return Value(shape, picked=_reduced(whole.parts, whole.order[order]))


def _reduced(parts: Sequence[Value], order: Array) -> Picked:
    """Only the parts that are needed, each of them once."""
    kept: list[Value] = []
    starts: dict[int, int] = {}
    own, start, total = np.zeros_like(order), 0, 0
    for part in parts:
        inside = (order >= start) & (order < start + part.channels)
        if inside.any() and id(part) not in starts:
            starts[id(part)] = total
            kept.append(part)
            total += part.channels
        own[inside] = order[inside] - start + starts.get(id(part), 0)
        start += part.channels
    return Picked(tuple(kept), own)


def native_image(layouts: TensorLayouts, picked: Picked, order: Array) -> relax.Expr | None:
    """A native image of the channels ``order``, counted as ``Picked.order`` is; None if too many lie apart.

    Channels that fill up the last block are copies of the last one.
    """
    block = layouts.block
    starts = np.cumsum([0, *(up(part.channels, block) for part in picked.parts)])
    stored = [start + np.arange(part.channels) for start, part in zip(starts, picked.parts, strict=False)]
    filled = np.pad(np.concatenate(stored)[order], (0, -len(order) % block), mode="edge")
    if len(runs_of(filled.tolist(), starts.tolist())) > MOST_RUNS:
        return None
    natives = [layouts.native(part) for part in picked.parts]
    attrs = {"op_pattern": OPAQUE_PATTERN}
    return layouts.builder.emit_te(
        pick_channels, natives, filled.tolist(), primfunc_name_hint="channel_picks", primfunc_attrs=attrs
    )


def plain_image(layouts: TensorLayouts, value: Value, picked: Picked) -> relax.Expr:
    """``value``, which is ``picked``, as ONNX has it."""
    order, channels = picked.order, len(picked.order)
    if (groups := _groups(picked)) or (np.diff(order) == 1).all():
        plain = [layouts.plain(part) for part in picked.parts]
        whole = plain[0] if len(plain) == 1 else layouts.builder.emit(relax.op.concat(plain, axis=1))
        if groups:
            return layouts.builder.emit(channel_shuffle(whole, value.shape, groups))
        if picked.is_whole:
            return whole
        begin = int(order[0])
        return layouts.builder.emit(relax.op.strided_slice(whole, [1], [begin], [begin + channels]))
    native = native_image(layouts, picked, order)
    if native is not None:
        return layouts.from_native(Value(value.shape, native=native))
    whole = layouts.builder.emit(relax.op.concat([layouts.plain(part) for part in picked.parts], axis=1))
    return layouts.builder.emit(relax.op.take(whole, layouts.constant(order.astype(np.int64)), axis=1))


def _groups(picked: Picked) -> int:
    """The groups of the shuffle that ``picked`` is of all its parts side by side; 0 if it is none."""
    channels = len(picked.order)
    step = int(picked.order[1]) if channels > 1 else 0
    if step < 2 or channels % step or channels != sum(part.channels for part in picked.parts):
        return 0
    return channels // step if np.array_equal(picked.order, places(channels, channels // step)) else 0


def stored(layouts: TensorLayouts, value: Value) -> tuple[Value, Array | None]:
    """An image that has the channels of ``value`` natively, and which of them is which.

    Returns:
        The image, and (channels,) where channel c of ``value`` is in it; None where it is channel c.
    """
    picked = value.picked
    if picked is None or value.native is not None:
        return value, None
    if picked.is_permutation:
        return picked.parts[0], picked.order
    channels = np.unique(picked.order)
    if len(channels) < len(picked.order):
        return value, None
    if picked.ascending is None:
        picked.ascending = native_image(layouts, picked, channels)
    if picked.ascending is None:
        return value, None
    return Value(value.shape, native=picked.ascending), np.searchsorted(channels, picked.order)


def readable(
    layouts: TensorLayouts, value: Value, weight: Array, groups: int, depthwise: bool
) -> tuple[Value, Array, Array | None, int]:
    """Return the image, weight and orders that a convolution reads in place of an image.

    Args:
        weight: (filters, channels / groups, …) in the order of the image's channels.

    Returns:
        The image to read, the weight in the order of its channels, that order where the result has it too (of a
        depthwise convolution; else None), and the groups of a shuffle that is the kernel's own; 0 for none.
    """
    image, order = stored(layouts, value)
    if order is None:
        return image, weight, None, 0
    if depthwise or groups == 1:
        return image, in_order(weight, order, 0 if depthwise else 1), order if depthwise else None, 0
    shuffle = 0 if value.picked is None or not value.picked.is_permutation else _groups(value.picked)
    return (image, weight, None, shuffle) if shuffle else (value, weight, None, 0)


def places(channels: int, groups: int) -> Array:
    """(channels,) where each channel of the shuffled image is in the image."""
    return np.arange(channels).reshape(groups, -1).T.reshape(-1)


def in_order(array: Array, order: Array, axis: int) -> Array:
    """Return an array that goes with an image's channels along ``axis`` as they lie: channel c is at ``order[c]``."""
    return np.take(array, np.argsort(order), axis)


def elementwise(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """An operation of all channels of a few images, and of constants with a number for all or for each channel.

    It is done to each of the images, where it becomes part of the kernel that makes it.
    """
    values = [layouts.value(arg) for arg in call.args]
    images = [value for value in values if value is not None]
    if len(images) != 1 or images[0].shape != shape or images[0].native is not None:
        return None
    picked = images[0].picked
    if picked is None or not picked.is_complete or len(picked.parts) > MOST_PARTS:
        return None
    constants = []
    for arg, value in zip(call.args, values, strict=True):
        array = None if value is not None else layouts.array(arg)
        if array is not None and array.size > 1:
            if array.ndim not in (3, 4) or not array.size == array.shape[-3] == shape[1]:
                return None
            array = in_order(array.reshape(1, -1, 1, 1), picked.order, 1)
        constants.append(array)
    results, start = [], 0
    for part in picked.parts:
        operands: list[relax.Expr] = []
        for arg, value, array in zip(call.args, values, constants, strict=True):
            if value is not None:
                operands.append(layouts.native(part))
            elif array is None:  # no tensor, but a number of ``clip``
                operands.append(arg)
            elif array.size == 1:
                operands.append(layouts.constant(array.reshape(())))
            else:
                operands.append(layouts.native_constant(array[:, start : start + part.channels], 0.0))
        results.append(Value(part.shape, native=layouts.emit_like(call, operands)))
        start += part.channels
    return Value(shape, picked=Picked(tuple(results), picked.order))


def ordered(native: relax.Expr, order: Array | None, shape: Shape) -> Value:
    """A native image whose channel ``order[c]`` is channel c of the value."""
    image = Value(shape, native=native)
    return image if order is None else Value(shape, picked=Picked((image,), order))
