"""The loop nest of a product: the structure of a config's kernel as plain data.

    config ─template→ Nest ─to_tir→ schedule ─LLVM→ object
                           └─to_assembly→ text ─as→ object

``product_nests.py`` builds nests, ``nest_to_tir.py`` and ``nested_template.py`` render them. Features and
cycles read the same nest. Built from the columns of a space, its extents are (n,) arrays, one number per config.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

from schedules.templates.common.prefetch import share_of_lines
from schedules.templates.common.structure import Anchor
from schedules.vocabulary.errors import check


class Role(Enum):
    """The purpose of a loop."""

    JOB = "parallel"
    CHUNK = "chunk"
    """Parts of the sum. Partial sums lie in the result between them."""
    TILE = "for"
    SUM = "sum"
    STEP = "step"
    """Terms of the sum that are written out."""
    REGISTER = "unroll"
    """Sums of a register tile."""
    PAIR = "pair"
    """Two rows of numbers that one instruction multiplies."""
    LANES = "vector"
    """Lanes of one instruction, and the products that a dot product adds up."""


@dataclass(frozen=True)
class Loop:
    """One loop: the axis of the anchor that it runs over, and its number of turns."""

    axis: str
    extent: Any
    role: Role


NARROWER, EARLIER = "narrower", "earlier"
"""The last tile of an axis that tiles do not divide: it has fewer numbers, or begins earlier and repeats some."""

BEFORE, IN_JOBS = "before", "in jobs"
"""The places where an image gets its border: all rows before the first job, or each job's own rows."""


@dataclass(frozen=True)
class Nest:
    """The loops of one kernel.

    Raises:
        ScheduleError: if the loops over an axis do not cover it, or more than its last tiles.

    Attributes:
        anchor: the product.
        axes: names of the anchor's axes, spatial ones first.
        loops: outermost first. Loops over one axis split it in this order.
        weight_axis: the axis along which a register tile has several vectors of weights; empty for none.
        padding: ``BEFORE``, ``IN_JOBS``, or empty without a border.
        last_tile: ``NARROWER`` or ``EARLIER``.
        bytes_ahead: distance at which a panel's own weights are prefetched; 0 prefetches the next panel's.
        prefetches: whether weights are prefetched.
        own_sums: whether sums get a buffer even without an epilogue. To LLVM a prefetch may read the result, so it
            would store sums before each.
    """

    anchor: Anchor
    axes: tuple[str, ...]
    loops: tuple[Loop, ...]
    weight_axis: str = ""
    padding: str = ""
    last_tile: str = NARROWER
    bytes_ahead: int = 0
    prefetches: bool = False
    own_sums: bool = False

    def __post_init__(self) -> None:
        covered = dict.fromkeys(self.axes, 1)
        for loop in self.loops:
            covered[loop.axis] *= loop.extent
        for axis, size in zip(self.axes, (*self.anchor.spatial, *self.anchor.reduction), strict=True):
            if isinstance(covered[axis], int) and covered[axis] != size:
                tiles = self.extent(Role.JOB, axis=axis) * self.extent(Role.REGISTER, Role.PAIR, axis=axis)
                fits = size < covered[axis] < size + tiles and bool(self.of(Role.TILE))
                check(fits, f"the loops over {axis} cover {covered[axis]} of {size}")

    def of(self, *roles: Role) -> list[Loop]:
        """The loops with one of these roles, outermost first."""
        return [loop for loop in self.loops if loop.role in roles]

    def extent(self, *roles: Role, axis: str = "") -> Any:
        """The product of the extents of these loops; with ``axis``, of those over it."""
        return math.prod(loop.extent for loop in self.of(*roles) if axis in ("", loop.axis))

    def size(self, axis: str) -> int:
        """Extent of an axis of the anchor."""
        return (*self.anchor.spatial, *self.anchor.reduction)[self.axes.index(axis)]

    @cached_property
    def lanes(self) -> int:
        """Sums of one vector."""
        return int(self.of(Role.LANES)[0].extent)

    @cached_property
    def has_columns(self) -> bool:
        """Whether lanes are part of the axis of weights, as columns of a matrix are."""
        return self.of(Role.LANES)[0].axis == self.weight_axis

    @cached_property
    def summed(self) -> tuple[str, ...]:
        """Names of the axes of the sum."""
        return self.axes[len(self.anchor.spatial) :]

    @cached_property
    def chunks(self) -> int:
        """Chunks of the sum."""
        return int(self.extent(Role.CHUNK))

    @cached_property
    def vectors(self) -> Any:
        """Vectors of weights of a register tile; 1 without ``weight_axis``."""
        return self.extent(Role.REGISTER, axis=self.weight_axis) if self.weight_axis else 1

    @cached_property
    def numbers(self) -> Any:
        """Numbers of a register tile: pixels, or rows of a matrix."""
        loops = self.of(Role.REGISTER, Role.PAIR)
        return math.prod(loop.extent for loop in loops if loop.axis != self.weight_axis or not self.weight_axis)

    @cached_property
    def terms(self) -> Any:
        """Terms that a tile adds to each sum; a dot product counts once."""
        return self.extent(Role.SUM, Role.STEP)

    @cached_property
    def jobs_sharing_weights(self) -> int:
        """Consecutive jobs that read the same panel of weights."""
        inside = 1
        for loop in reversed(self.of(Role.JOB)):
            if loop.axis == self.weight_axis:
                return int(inside)
            inside *= loop.extent
        return int(inside)

    @property
    def streams(self) -> int:
        """Streams of weights that a panel reads: one per vector if the sum has chunks, else one."""
        return int(self.vectors) if self.chunks > 1 else 1

    @cached_property
    def panel(self) -> int:
        """Vectors of weights in a panel, which ``tiles`` tiles read in turn."""
        return int(self.vectors * self.terms)

    @cached_property
    def tiles(self) -> int:
        """Tiles that read one panel before the next panel begins."""
        return int(self.extent(Role.TILE)) * (1 if self.chunks > 1 else self.jobs_sharing_weights)

    @cached_property
    def asked(self) -> tuple[int, int] | None:
        """(loop of the sum, vectors of each stream of the next panel) that it prefetches per turn; None for none."""
        if not self.prefetches or self.bytes_ahead:
            return None
        return share_of_lines(self.panel, self.streams, self.tiles, [loop.extent for loop in self.of(Role.SUM)])

    @cached_property
    def ragged(self) -> tuple[str, ...]:
        """Axes whose last tile has fewer numbers than the others."""
        spatial = self.axes[: len(self.anchor.spatial)]
        return tuple(axis for axis in spatial if self.extent(*Role, axis=axis) > self.size(axis))

    def drawn(self) -> str:
        """Return the nest as text; loops of one turn are left out."""
        head = f"{self.anchor.block} {self.anchor.spatial}, sums of {self.anchor.reduction}"
        return "\n".join([head, *self._lines()])

    def _lines(self) -> Iterator[str]:
        if self.padding == BEFORE:
            yield "parallel: pad all rows"
        yield f"parallel {_counts(self.of(Role.JOB))}:"
        indent = "    "
        if self.padding == IN_JOBS:
            yield f"{indent}pad the job's rows"
        around = indent
        for loop in self.of(Role.CHUNK, Role.TILE):
            if loop.extent > 1:
                last = f", the last one {self.last_tile}" if loop.role is Role.TILE and loop.axis in self.ragged else ""
                what = "for chunks of" if loop.role is Role.CHUNK else "for"
                yield f"{indent}{what} {loop.axis} {loop.extent}{last}:"
                indent += "    "
        outer = indent
        yield f"{outer}sums = {'0, or those of the chunks before' if self.chunks > 1 else '0'}"
        asked = self.asked
        for level, loop in enumerate(self.of(Role.SUM)):
            if loop.extent > 1:
                yield f"{indent}for {loop.axis} {loop.extent}:"
                indent += "    "
            if asked is not None and asked[0] == level:
                yield f"{indent}prefetch {self.streams * asked[1]} of the next panel's {self.panel} vectors"
        if self.bytes_ahead:
            yield f"{indent}prefetch weights {self.bytes_ahead} bytes ahead"
        written_out = _counts(self.of(Role.STEP, Role.REGISTER, Role.PAIR))
        taken = "data" if self.anchor.weight < 0 else "data · weight"
        yield f"{indent}unroll {written_out}: vector {_counts(self.of(Role.LANES))}: sums take {taken}"
        following = ", ".join(self.anchor.epilogue) or "the sums"
        yield f"{around if self.chunks > 1 else outer}write {following}"


def _counts(loops: list[Loop]) -> str:
    return ", ".join(f"{loop.axis} {loop.extent}" for loop in loops if loop.extent > 1) or "1"
