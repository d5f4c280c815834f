"""Masks that say which part of a value counts, made of the inputs that say so of open sizes (``frame/noise.py``)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import numpy as np
from onnx import TensorProto

from autotune.frame.noise import live_name
from autotune.importer.live.live_axes import Axes, is_open
from autotune.importer.rewriting.emit import Emit
from autotune.interface import Axis, Extent, Growth, Joined, axis_size, axis_symbols

INT64 = TensorProto.INT64


class Masks:
    """The masks of one model; each is computed once, by the first node that needs it.

    Args:
        live: the open sizes of the set of shapes.
        axes: of values, as ``followed_axes`` finds them.
    """

    def __init__(self, live: Mapping[str, int], axes: Mapping[str, Axes]) -> None:
        self.axes = axes
        self._live = live
        self._known: dict[tuple[object, ...], str] = {}

    def open_axes(self, name: str, within: Collection[int] | None = None) -> list[int]:
        """The axes of a value that follow open sizes; none of a value that is not followed.

        Args:
            within: the axes that are asked for; all if None.
        """
        own = self.axes.get(name, ())
        return [
            number for number, axis in enumerate(own) if (within is None or number in within) and self._is_live(axis)
        ]

    def _is_live(self, axis: Axis) -> bool:
        return any(symbol in self._live for symbol in axis_symbols(axis))

    def count(self, e: Emit, extent: Extent) -> str:
        """How many entries count, an int64 tensor of one element."""
        if ("count", extent) not in self._known:
            if not extent.growth.steps:
                count = e.reduce("ReduceSum", e.cast(live_name(extent.symbol), INT64), [0])
            else:
                count = self.count(e, Extent(extent.symbol))
            for times, plus, over in extent.growth.steps:
                for kind, number, neutral in (("Mul", times, 1), ("Add", plus, 0), ("Div", over, 1)):
                    count = count if number == neutral else e.op(kind, count, e.ints(number))
            self._known["count", extent] = count
        return self._known["count", extent]

    def total(self, e: Emit, axes: Axes, over: Collection[int], kind: int) -> str:
        """How many numbers of a value count along the axes ``over``, one element of the type ``kind``."""
        counts, fixed = list[str](), 1
        for part in (part for number in over for part in axes[number]):
            if isinstance(part, int):
                fixed *= part
            elif isinstance(part, Extent):
                counts.append(self.count(e, part))
            else:
                along = e.cast(self._along(e, (part,)), INT64)
                counts.append(e.reduce("ReduceSum", along, [0]))
        total = counts[0]
        for count in [*counts[1:], *([e.ints(fixed)] if fixed > 1 else [])]:
            total = e.op("Mul", total, count)
        return e.cast(total, kind)

    def mask(self, e: Emit, axes: Axes, over: Collection[int]) -> str:
        """Whether numbers of a value count by their place along the axes ``over``; other axes have size one."""
        wanted = tuple(axis if number in over else (1,) for number, axis in enumerate(axes))
        if wanted not in self._known:
            mask = ""
            for number in over:
                along = self._along(e, axes[number])
                shape = [axis_size(axes[number], self._live) if at == number else 1 for at in range(len(axes))]
                along = e.reshape(along, *shape)
                mask = along if not mask else e.op("And", mask, along)
            self._known[wanted] = mask
        return self._known[wanted]

    def _along(self, e: Emit, axis: Axis) -> str:
        """Whether each entry of an axis counts; the parts of it in turn, outer ones first."""
        if axis not in self._known:
            mask, sizes = "", [axis_size((part,), self._live) for part in axis]
            for number, part in enumerate(axis):
                if isinstance(part, int):
                    continue
                own = e.reshape(self._first(e, part), *(-1 if at == number else 1 for at in range(len(axis))))
                mask = own if not mask else e.op("And", mask, own)
            if any(isinstance(part, int) for part in axis):
                mask = e.op("Expand", mask, e.ints(*sizes))
            self._known[axis] = e.reshape(mask, math.prod(sizes))
        return self._known[axis]

    def _first(self, e: Emit, extent: Extent | Joined) -> str:
        """Whether each entry that follows an open size counts."""
        if isinstance(extent, Joined):
            every = e.const(np.ones(1, bool))
            pieces = [
                self._along(e, axis) if is_open(axis) else e.op("Expand", every, e.ints(axis_size(axis, self._live)))
                for axis in extent.axes
            ]
            return e.concat(pieces, 0)
        if extent.growth == Growth():
            return live_name(extent.symbol)
        places = e.const(np.arange(extent.of(self._live), dtype=np.int64))
        return e.op("Less", places, self.count(e, extent))
