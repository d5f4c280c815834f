"""Turn squares of numbers in registers, by shuffles of two rows at a time."""

# No ``from __future__ import annotations`` here: TVM's script reads the annotations as values.

from tvm import tirx
from tvm.script import tirx as T  # noqa: N812  # the name that TVM's script is written with

from schedules.templates import scripted
from schedules.templates.by_hand.attention_shape import LANES


def _swapped(one: tirx.Expr, other: tirx.Expr, distance: int, upper: bool) -> tirx.Expr:
    """Pick from two rows, ``distance`` apart, what belongs into the first of them, or into the other."""
    lower = [LANES + lane - distance if lane & distance else lane for lane in range(LANES)]
    higher = [LANES + lane if lane & distance else lane + distance for lane in range(LANES)]
    return tirx.Shuffle([one, other], [tirx.const(lane, "int32") for lane in (higher if upper else lower)])


@scripted.inline
def _swap(to, of, distance):  # type: ignore[no-untyped-def]
    """Exchange the squares of ``distance`` numbers a side that lie across from each other."""
    for i in T.unroll(LANES // 2):
        first = T.meta_var(i // distance * 2 * distance + i % distance)
        to[first, T.Ramp(0, 1, LANES)] = _swapped(
            of[first, T.Ramp(0, 1, LANES)], of[first + distance, T.Ramp(0, 1, LANES)], distance, False
        )
        to[first + distance, T.Ramp(0, 1, LANES)] = _swapped(
            of[first, T.Ramp(0, 1, LANES)], of[first + distance, T.Ramp(0, 1, LANES)], distance, True
        )


@scripted.inline
def turn(square, other):  # type: ignore[no-untyped-def]
    """Turn ``square``, 16 × 16 numbers, in place."""
    _swap(other, square, 8)
    _swap(square, other, 4)
    _swap(other, square, 2)
    _swap(square, other, 1)
