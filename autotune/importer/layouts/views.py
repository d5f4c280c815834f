"""Transposes that are not emitted until something needs the transposed tensor itself.

A transpose of a tensor that is still plain is remembered as a *view* (``Value.view``): its source, and the order in
which the source's axes make it. Further transposes are composed with it, and what works element by element, or along an
axis, works on the source.

Every function but ``of_view`` is a rule (``tensor_layouts.Rule``).

A product reads its operands in any order of their axes, and so takes in transposes that are not emitted yet. One whose
only consumer transposes it writes its result in that order at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm import relax

from autotune.importer.layouts.packing import Shape
from autotune.importer.layouts.tensor_layouts import TensorLayouts, Value
from autotune.importer.rewriting.relax_values import operator_name

Order = tuple[int, ...]

REDUCTIONS = {"relax.sum": relax.op.sum, "relax.mean": relax.op.mean}
"""Sums and means, by the operator's name."""


def transposed(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """A view, or the tensor itself where views cancel out."""
    value = layouts.value(call.args[0])
    if value is None or value.native is not None or call.attrs.axes is None:
        return None
    axes = tuple(int(axis) % len(shape) for axis in call.attrs.axes)
    if value.view is not None:
        source, before = value.view
        return _seen(shape, source, tuple(before[axis] for axis in axes))
    return _seen(shape, layouts.plain(value), axes)


def units_moved(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """A view with other axes of one number: reshapes, squeezes and new axes between transposes move nothing."""
    view = of_view(layouts.value(call.args[0]))
    if view is None:
        return None
    source, axes = view
    sizes = [int(size) for size in source.ty.shape]
    lies = [axis for axis in axes if sizes[axis] != 1]  # where each longer axis lies in the source
    if [sizes[axis] for axis in lies] != [size for size in shape if size != 1]:
        return None
    units = len(shape) - len(lies)
    there = sorted(lies)
    longer, new = iter([units + there.index(axis) for axis in lies]), iter(range(units))
    order = tuple(next(new) if size == 1 else next(longer) for size in shape)
    return _seen(shape, layouts.reshaped(source, (*[1] * units, *(sizes[axis] for axis in there))), order)


def elementwise_on_views(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """In the order of the source, if every operand is a view in the same order, a constant or one number."""
    values = [layouts.value(arg) for arg in call.args]
    orders = {view[1] for value in values if (view := of_view(value)) is not None}
    if len(orders) != 1:
        return None
    (order,) = orders
    operands = [_operand(layouts, arg, order) for arg in call.args]
    if len(order) != len(shape) or any(operand is None for operand in operands):
        return None
    return Value(shape, view=(layouts.emit_like(call, operands), order))


def reduced_view(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """Along axes of the source; they stay, with one number each."""
    view = of_view(layouts.value(call.args[0]))
    if view is None or not call.attrs.keepdims or call.attrs.axis is None:
        return None
    source, order = view
    axes = [order[int(axis) % len(order)] for axis in call.attrs.axis]
    reduced = layouts.builder.emit(REDUCTIONS[operator_name(call)](source, axes, keepdims=True))
    return Value(shape, view=(reduced, order))


def broadcast_view(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """To longer axes of the source."""
    view = of_view(layouts.value(call.args[0]))
    if view is None or len(shape) != len(view[1]):
        return None
    source, order = view
    sizes = [shape[order.index(axis)] for axis in range(len(order))]
    return Value(shape, view=(layouts.builder.emit(relax.op.broadcast_to(source, sizes)), order))


def of_view(value: Value | None) -> tuple[relax.Expr, Order] | None:
    """Source and order of a tensor that exists as a view only."""
    return value.view if value is not None and value.plain is None and value.native is None else None


def _seen(shape: Shape, source: relax.Expr, order: Order) -> Value:
    return Value(shape, plain=source) if order == tuple(range(len(order))) else Value(shape, view=(source, order))


def _operand(layouts: TensorLayouts, arg: relax.Expr, order: Order) -> relax.Expr | None:
    """``arg`` as it broadcasts against the source of a view of this ``order``."""
    array, value = layouts.array(arg), layouts.value(arg)
    if array is not None and array.size == 1:
        return layouts.scalar(array)
    if array is not None and array.ndim <= len(order):
        wide = array.reshape((1,) * (len(order) - array.ndim) + array.shape)
        return layouts.constant(wide.transpose([order.index(axis) for axis in range(len(order))]))
    if value is not None and len(value.shape) == 0:
        return layouts.plain(value)
    view = of_view(value)
    return view[0] if view is not None and view[1] == order else None


Emit = Callable[[relax.Expr, relax.Expr, str], relax.Expr]
"""(left, right, equation as of einsum) → their product."""


LEAST_ROWS = 4
"""Rows of a product without batch axes from which its second operand is worth packing. Heuristic, not measured."""


def product(layouts: TensorLayouts, call: relax.Call, shape: Shape, emit: Emit) -> Value | None:
    """(…, m, k) @ (…, k, n) of two activations: read as they lie in memory, written as the consumer wants it.

    Args:
        shape: of the result, its batch axes before its last two.
        emit: emits the product.

    Returns:
        None unless both have the same batch axes, up to four of them, or one of both has none. If that is the second,
        all rows of the first are one axis.
    """
    rank, sizes = len(shape), [_batch_of(layouts, arg) for arg in call.args]
    if None in sizes or not 2 <= rank <= 6 or (rank == 2 and shape[0] < LEAST_ROWS):
        return None
    left, right = layouts.value(call.args[0]), layouts.value(call.args[1])
    if sizes[0] != sizes[1] and math.prod(sizes[1] or ()) == 1 and left is not None and right is not None:
        rows = math.prod(shape[:-1])
        if rows < LEAST_ROWS:
            return None
        y, in_y = _alone(layouts, call.args[1], "kn")
        return Value(shape, matrix=emit(layouts.matrix(left), y, f"mk,{in_y}->mn"))
    batch = "abcd"[: rank - 2]
    is_packed = left is not None or shape[-2] > 1 or shape[-1] % 2 > 0  # one row of a constant: where no tile fits
    if sizes[0] == sizes[1] and right is not None and is_packed:
        x, in_x = _factor(layouts, call.args[0], batch + "mk")
    elif math.prod(sizes[0] or ()) == 1 and right is not None and sizes[1] == shape[:-2]:
        x, in_x = _alone(layouts, call.args[0], "mk")
    else:
        return None
    y, in_y = _read_operand(layouts, right, batch + "kn")
    order = _wanted_order(layouts, rank)
    letters = "".join((batch + "mn")[axis] for axis in order)
    # The result's last axis is that of the columns of the second operand: (x·y)ᵀ = yᵀ·xᵀ
    if letters[-1] != "n" and not set(batch) <= set(in_x):
        order, letters = tuple(range(rank)), batch + "mn"
    out = emit(x, y, f"{in_x},{in_y}->{letters}") if letters[-1] == "n" else emit(y, x, f"{in_y},{in_x}->{letters}")
    if order == tuple(range(rank)):
        return Value(shape, plain=out)
    # Logical axis i of the result lies where ``order`` put it.
    return Value(shape, view=(out, tuple(order.index(axis) for axis in range(rank))))


def _batch_of(layouts: TensorLayouts, expr: relax.Expr) -> Shape | None:
    """The batch axes of an operand of at least two axes; None for others."""
    value, array = layouts.value(expr), layouts.array(expr)
    shape = value.shape if value is not None else array.shape if array is not None else ()
    return tuple(shape[:-2]) if len(shape) > 1 else None


def _alone(layouts: TensorLayouts, expr: relax.Expr, letters: str) -> tuple[relax.Expr, str]:
    """An operand of one matrix as it lies in memory, and the letters of its axes."""
    value, array = layouts.value(expr), layouts.array(expr)
    if value is None:
        assert array is not None
        return layouts.constant(array.reshape(array.shape[-2:])), letters
    if len(value.shape) == 2:
        return _read_operand(layouts, value, letters)
    return layouts.reshaped(layouts.plain(value), value.shape[-2:]), letters


def _factor(layouts: TensorLayouts, expr: relax.Expr, letters: str) -> tuple[relax.Expr, str]:
    """An activation, or a constant such as the queries that a model has learnt, as it lies in memory."""
    value, array = layouts.value(expr), layouts.array(expr)
    if value is not None:
        return _read_operand(layouts, value, letters)
    assert array is not None
    return layouts.constant(array), letters


def _read_operand(layouts: TensorLayouts, value: Value, letters: str) -> tuple[relax.Expr, str]:
    """The tensor as it lies in memory, and the letter of each of its axes."""
    if value.view is None:
        return layouts.plain(value), letters
    source, axes = value.view
    there = [""] * len(axes)
    for letter, axis in zip(letters, axes, strict=True):
        there[axis] = letter
    return source, "".join(there)


def _wanted_order(layouts: TensorLayouts, rank: int) -> tuple[int, ...]:
    """The order in which the only consumer wants the axes, if it transposes and leaves rows or columns last.

    What reads a cast result counts as its consumer.
    """
    consumers = layouts.consumers.get(layouts.current, [])
    while len(consumers) == 1 and operator_name(consumers[0]) == "relax.astype":
        consumers = layouts.consumers.get(layouts.bound[consumers[0]], [])
    if len(consumers) == 1 and operator_name(consumers[0]) == "relax.permute_dims":
        axes = consumers[0].attrs.axes
        order = tuple(int(axis) % rank for axis in axes) if axes is not None else ()
        if len(order) == rank and order[-1] >= rank - 2:
            return order
    return tuple(range(rank))
