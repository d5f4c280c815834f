"""Products of two activations, as attention has them, without materialised transposes.

A transpose of a tensor that is still plain is not emitted: it is remembered as a *view*, composed with further ones,
and absorbed by a product that reads its operands in any order of their axes. What needs the transposed tensor itself
gets it emitted then. A product whose only consumer transposes it writes its result in that order at once.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from autotune.importer.layouts.packing import Shape
from autotune.importer.layouts.tensor_layouts import Forms, Value
from schedules.templates.cpu.batch_matmul import batch_matmul


def transposed(forms: Forms, call: relax.Call, shape: Shape) -> Value | None:
    """A view, or the tensor itself where views cancel out."""
    value = forms.value(call.args[0])
    if value is None or value.blocked is not None or call.attrs.axes is None:
        return None
    axes = tuple(int(axis) % len(shape) for axis in call.attrs.axes)
    if value.view is not None:
        source, before = value.view
        axes = tuple(before[axis] for axis in axes)
    else:
        source = forms.plain(value)
    if axes == tuple(range(len(axes))):
        return Value(shape, plain=source)
    return Value(shape, view=(source, axes))


def product(forms: Forms, call: relax.Call, shape: Shape) -> Value | None:
    """(…, m, k) @ (…, k, n) of two activations with equal batch axes."""
    left, right = forms.value(call.args[0]), forms.value(call.args[1])
    if left is None or right is None or not batches_agree(left.shape, right.shape, shape):
        return None
    if left.blocked is not None or right.blocked is not None or str(call.ty.dtype) != "float32":
        return None
    return in_any_order(
        forms, left, right, shape, lambda *given: forms.emit_anchor("batch_matmul", batch_matmul, *given, forms.block)
    )


def batches_agree(left: Shape, right: Shape, out: Shape) -> bool:
    """Whether ``left`` @ ``right`` is a product per batch: equal axes but the last two, up to 4 of them."""
    return 3 <= len(out) <= 6 and len(left) == len(right) == len(out) and left[:-2] == right[:-2]


def in_any_order(
    forms: Forms, left: Value, right: Value, shape: Shape, emit: Callable[[relax.Expr, relax.Expr, str], relax.Expr]
) -> Value:
    """``left`` @ ``right`` read as they lie in memory, and written in the order in which the consumer wants it.

    Args:
        shape: of the result, its batch axes before its last two.
        emit: (left, right, equation as of einsum) → the product.
    """
    batch = "abcd"[: len(shape) - 2]
    x, in_x = _operand(forms, left, batch + "mk")
    y, in_y = _operand(forms, right, batch + "kn")
    order = _wanted_order(forms, len(shape))
    letters = batch + "mn"
    out = emit(x, y, f"{in_x},{in_y}->{''.join(letters[axis] for axis in order)}")
    if order == tuple(range(len(shape))):
        return Value(shape, plain=out)
    # Logical axis i of the result lies where ``order`` put it.
    return Value(shape, view=(out, tuple(order.index(axis) for axis in range(len(shape)))))


def _operand(forms: Forms, value: Value, letters: str) -> tuple[relax.Expr, str]:
    """The tensor as it lies in memory, and the letter of each of its axes."""
    if value.view is None:
        return forms.plain(value), letters
    source, axes = value.view
    there = [""] * len(axes)
    for letter, axis in zip(letters, axes, strict=True):
        there[axis] = letter
    return source, "".join(there)


def _wanted_order(forms: Forms, rank: int) -> tuple[int, ...]:
    """The order in which the only consumer wants the axes, if it transposes and leaves the columns last."""
    consumers = forms.consumers.get(forms.current, [])
    if len(consumers) == 1 and _name(consumers[0]) == "relax.permute_dims":
        axes = consumers[0].attrs.axes
        order = tuple(int(axis) % rank for axis in axes) if axes is not None else ()
        if len(order) == rank and order[-1] == rank - 1:
            return order
    return tuple(range(rank))


def _name(consumer: relax.Expr) -> str:
    """The operation's name; empty for what is no call, such as the tuple of all outputs."""
    return str(getattr(getattr(consumer, "op", None), "name", ""))
