"""Kernels that only move: concatenations, images made of some channels of others, and into blocks of channels and back.

A concatenation is a kernel of its own, so that an executor can leave it out and have its parts written in place. Where
it does run (an input among its parts, or a part with two places), the elementwise template schedules it.

A choice between two tensors is one too: if only one of them is computed, both are written where the choice would write.

Splits, concatenations and shuffles of channels that do not keep whole blocks, one behind another, are one kernel too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from tvm import te, tirx

from schedules.templates.common.structure import blocks_in_order

CONCAT, PICKS, BLOCK, UNBLOCK, CHOICE = "concat", "channel_picks", "block", "unblock", "choice"
"""The marks of the five."""

SIDE = 16
"""Channels of a block for which tiles of as many pixels are transposed in registers."""

PERIODS = (1, 2, 3, 4, 8)
"""Distances of channels whose sources are tried to be neighbours: shuffles of so many groups."""

MOST_RUNS = 32
"""Runs of neighbours that a kernel may have: code generation sees each of them. Heuristic, not measured."""


def concat(parts: list[te.Tensor], axis: int) -> te.Tensor:
    """Tensors that differ along ``axis`` only, one after the other."""
    sizes = [int(part.shape[axis]) for part in parts]
    shape = list(parts[0].shape)
    shape[axis] = sum(sizes)

    def element(*index: tirx.Var) -> tirx.Expr:
        position = index[axis]
        start = sum(sizes) - sizes[-1]
        value = parts[-1][(*index[:axis], position - start, *index[axis + 1 :])]
        for part, size in zip(reversed(parts[:-1]), reversed(sizes[:-1]), strict=True):
            start -= size
            taken = part[(*index[:axis], position - start, *index[axis + 1 :])]
            value = tirx.if_then_else(position < start + size, taken, value)
        return value

    attrs = {"tune.anchor": CONCAT, "tune.geometry": json.dumps({"axis": axis})}
    return te.compute(shape, element, name="concat", attrs=attrs)


def choice(condition: te.Tensor, one: te.Tensor, other: te.Tensor) -> te.Tensor:
    """``one`` if the only element of ``condition`` is true, else ``other``, which has its shape."""

    def element(*at: tirx.Var) -> tirx.Expr:
        return tirx.Select(condition(*[0] * len(condition.shape)), one(*at), other(*at))

    return te.compute(one.shape, element, name="choice", attrs={"tune.anchor": CHOICE})


def is_choice(func: tirx.PrimFunc) -> bool:
    """Return whether ``func`` does nothing but ``choice``."""
    blocks = blocks_in_order(func)
    return len(blocks) == 1 and str(blocks[0].annotations.get("tune.anchor", "")) == CHOICE


BORDER = "tune.border"
"""Attribute of a kernel that does ``with_border``: its ``widths``, flat."""


def with_border(x: te.Tensor, number: te.Tensor, widths: Sequence[tuple[int, int]], first: int = 2) -> te.Tensor:
    """``x`` within a border of a number that is known when the model runs.

    Args:
        number: one element of any rank.
        widths: before and behind each axis from ``first`` on.
    """
    inner = x.shape[first : first + len(widths)]
    rest = x.shape[first + len(widths) :]
    shape = [*x.shape[:first], *(size + sum(width) for size, width in zip(inner, widths, strict=True)), *rest]

    def element(*at: tirx.Var) -> tirx.Expr:
        place = [at[first + axis] - width[0] for axis, width in enumerate(widths)]
        inside = [tirx.all(index >= 0, index < size) for index, size in zip(place, inner, strict=True)]
        own = x(*at[:first], *place, *at[first + len(widths) :])
        return tirx.if_then_else(tirx.all(*inside), own, number(*[0] * len(number.shape)))

    return te.compute(shape, element, name="border")


REPEATED = ("reflect", "edge", "wrap")
"""Borders of elements of the tensor itself, by ONNX's names."""

REPEATED_BORDER = "tune.repeated_border"
"""Attribute of a kernel that does ``with_repeated_border``: its ``mode`` and ``widths``, flat."""


def with_repeated_border(x: te.Tensor, widths: Sequence[tuple[int, int]], mode: str) -> te.Tensor:
    """``x`` with some of its own elements around it.

    The contiguous axis has three parts, so that what lies between its ends is copied in vectors.

    Args:
        widths: before and behind each axis.
        mode: one of ``REPEATED``.
    """
    shape = [size + sum(width) for size, width in zip(x.shape, widths, strict=True)]

    def element(*at: tirx.Var) -> tirx.Expr:
        places = zip(at, x.shape, widths, strict=True)
        *outer, last = (_repeated(index - width[0], int(size), width, mode) for index, size, width in places)
        before, size = widths[-1][0], int(x.shape[-1])
        value = x(*outer, at[-1] - before)
        if widths[-1][1]:
            value = tirx.if_then_else(at[-1] < before + size, value, x(*outer, last))
        return tirx.if_then_else(at[-1] < before, x(*outer, last), value) if before else value

    return te.compute(shape, element, name="border")


def _repeated(place: tirx.Expr, size: int, width: tuple[int, int], mode: str) -> tirx.Expr:
    """The element of an axis of ``size`` at a place before, within or behind it."""
    if not any(width):
        return place
    zero, last = (tirx.const(number, place.ty.dtype) for number in (0, size - 1))
    if mode == "edge" or size == 1:
        return tirx.max(tirx.min(place, last), zero)
    if mode == "wrap" and max(width) <= size:
        return tirx.Select(place < zero, place + size, tirx.Select(place > last, place - size, place))
    if mode == "wrap":
        return tirx.floormod(place + size * -(-width[0] // size), size)
    period = 2 * (size - 1)
    if max(width) >= size:
        place = tirx.floormod(place + period * -(-width[0] // period), period)
    return tirx.min(tirx.max(place, zero - place), period - place)


def concat_axis(func: tirx.PrimFunc) -> int | None:
    """The axis, if ``func`` does nothing but concatenate."""
    blocks = blocks_in_order(func)
    if len(blocks) != 1 or str(blocks[0].annotations.get("tune.anchor", "")) != CONCAT:
        return None
    return int(json.loads(str(blocks[0].annotations["tune.geometry"]))["axis"])


def to_blocks(x: te.Tensor, lanes: int) -> te.Tensor:
    """(n, C, h, w) → (n, ⌈C / lanes⌉, h, w, lanes), padded channels 0."""
    n, channels, height, width = x.shape
    blocks = -(-int(channels) // lanes)

    def element(n: tirx.Var, c: tirx.Var, h: tirx.Var, w: tirx.Var, b: tirx.Var) -> tirx.Expr:
        value = x[n, c * lanes + b, h, w]
        if int(channels) % lanes == 0:
            return value
        return tirx.if_then_else(c * lanes + b < channels, value, tirx.const(0, x.dtype))

    return te.compute((n, blocks, height, width, lanes), element, name="block", attrs={"tune.anchor": BLOCK})


def from_blocks(x: te.Tensor, channels: int) -> te.Tensor:
    """(n, B, h, w, b) → (n, channels, h, w), dropping padded channels."""
    n, _, height, width, lanes = x.shape
    return te.compute(
        (n, channels, height, width),
        lambda n, c, h, w: x[n, c // lanes, h, w, c % lanes],
        name="unblock",
        attrs={"tune.anchor": UNBLOCK},
    )


def blocks_to(func: tirx.PrimFunc) -> bool | None:
    """Return whether ``func`` does nothing but ``to_blocks`` (True) or ``from_blocks`` (False); None if neither."""
    blocks = blocks_in_order(func)
    mark = str(blocks[0].annotations.get("tune.anchor", "")) if len(blocks) == 1 else ""
    return mark == BLOCK if mark in (BLOCK, UNBLOCK) else None


@dataclass(frozen=True)
class Run:
    """Channels ``start``, ``start + period`` … , ``count`` of them, which are channels ``first``, ``first + 1`` …"""

    start: int
    period: int
    count: int
    first: int


def runs_of(order: Sequence[int], ends: Sequence[int] = ()) -> tuple[Run, ...]:
    """``order`` as runs, by the one of ``PERIODS`` that needs the fewest.

    Args:
        ends: channels of the parts before which a run ends.
    """
    channels = np.asarray(order)
    return min((_runs(channels, ends, period) for period in PERIODS if period <= len(channels)), key=len)


def _runs(order: NDArray[np.int64], ends: Sequence[int], period: int) -> tuple[Run, ...]:
    runs = []
    for offset in range(period):
        taken = order[offset::period]
        breaks = (np.diff(taken) != 1) | np.isin(taken[1:], ends)
        starts = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(taken)]
        for start, end in pairwise(starts):
            runs.append(Run(offset + start * period, period, end - start, int(taken[start])))
    return tuple(runs)


def pick_channels(parts: list[te.Tensor], order: Sequence[int]) -> te.Tensor:
    """The channels ``order`` of ``parts``.

    Args:
        parts: (n, B, h, w, b) with equal n, h, w and b.
        order: for each channel of the result which one of the parts' it is, counted over all blocks of all parts; a
            multiple of b.

    Returns:
        (n, len(order) / b, h, w, b).
    """
    n, _, height, width, block = parts[0].shape
    lanes = int(block)
    ends = np.cumsum([int(part.shape[1]) * lanes for part in parts])
    runs = runs_of(order, ends.tolist())

    def element(n: tirx.Var, c: tirx.Var, h: tirx.Var, w: tirx.Var, b: tirx.Var) -> tirx.Expr:
        channel = c * lanes + b
        value: tirx.Expr | None = None
        for run in reversed(runs):
            number = int(np.searchsorted(ends, run.first, side="right"))
            start, first = run.start // run.period, run.first - (int(ends[number - 1]) if number else 0)
            turn = channel // run.period
            at = turn + (first - start)
            taken = parts[number][n, at // lanes, h, w, at % lanes]
            within = tirx.all(channel % run.period == run.start % run.period, turn >= start, turn < start + run.count)
            value = taken if value is None else tirx.if_then_else(within, taken, value)
        return value

    attrs = {"tune.anchor": PICKS, "tune.geometry": json.dumps({"order": [int(channel) for channel in order]})}
    shape = (n, len(order) // lanes, height, width, lanes)
    return te.compute(shape, element, name="channel_picks", attrs=attrs)


def picked_order(func: tirx.PrimFunc) -> tuple[int, ...] | None:
    """The order, if ``func`` does nothing but pick channels."""
    blocks = blocks_in_order(func)
    if len(blocks) != 1 or str(blocks[0].annotations.get("tune.anchor", "")) != PICKS:
        return None
    return tuple(json.loads(str(blocks[0].annotations["tune.geometry"]))["order"])
