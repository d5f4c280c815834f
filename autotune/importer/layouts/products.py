"""Products of two activations, as attention has them, without materialised transposes.

A product reads its operands in any order of their axes, and so takes in transposes that are not emitted yet
(``views.py``). A product whose only consumer transposes it writes its result in that order at once.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from autotune.importer.layouts.packing import Shape
from autotune.importer.layouts.tensor_layouts import TensorLayouts, Value
from autotune.importer.rewriting.relax_values import operator_name

Emit = Callable[[relax.Expr, relax.Expr, str], relax.Expr]
"""(left, right, equation as of einsum) → their product."""


def product(layouts: TensorLayouts, call: relax.Call, shape: Shape, emit: Emit) -> Value | None:
    """(…, m, k) @ (…, k, n) of two activations: read as they lie in memory, written as the consumer wants it.

    Args:
        shape: of the result, its batch axes before its last two.
        emit: emits the product.

    Returns:
        None unless both have the same one to four batch axes.
    """
    left, right = layouts.value(call.args[0]), layouts.value(call.args[1])
    rank = len(shape)
    if left is None or right is None or not 3 <= rank <= 6:
        return None
    if not len(left.shape) == len(right.shape) == rank or left.shape[:-2] != right.shape[:-2]:
        return None
    batch = "abcd"[: rank - 2]
    x, in_x = _operand(layouts, left, batch + "mk")
    y, in_y = _operand(layouts, right, batch + "kn")
    order = _wanted_order(layouts, rank)
    letters = "".join((batch + "mn")[axis] for axis in order)
    # The result's last axis is that of the columns of the second operand: (x·y)ᵀ = yᵀ·xᵀ
    out = emit(x, y, f"{in_x},{in_y}->{letters}") if letters[-1] == "n" else emit(y, x, f"{in_y},{in_x}->{letters}")
    if order == tuple(range(rank)):
        return Value(shape, plain=out)
    # Logical axis i of the result lies where ``order`` put it.
    return Value(shape, view=(out, tuple(order.index(axis) for axis in range(rank))))


def _operand(layouts: TensorLayouts, value: Value, letters: str) -> tuple[relax.Expr, str]:
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
