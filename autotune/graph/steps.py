"""A flat program with every decision made: which lane makes which kernel calls, in which order, on which memory.

A program that runs on one lane is one group of calls. One that was placed on several (autotune/graph/placement.py) has
a group per subgraph, and waits where data crosses from lane to lane.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from numpy.typing import NDArray

from autotune.graph.arena import place_tensors, root_of
from autotune.graph.flat import Flat, Use
from autotune.graph.lanes import HOST, Lane
from autotune.interface import Growth


@dataclass(frozen=True)
class Operand:
    """One argument of a kernel.

    Attributes:
        place: where it lies, a ``Place``, or the device whose arena holds it.
        index: number of the input or weight; byte offset in the arena.
    """

    place: str
    index: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Condition:
    """A boolean tensor of one element, and the value with which a call is made."""

    operand: Operand
    when: bool


@dataclass(frozen=True)
class Step:
    """One kernel call: the last operand is written.

    Attributes:
        condition: without which the call is left out; None if the call is always made.
    """

    symbol: str
    operands: tuple[Operand, ...]
    condition: Condition | None = field(default=None, metadata={"sparse": True})

    @property
    def tensors(self) -> tuple[Operand, ...]:
        """The operands, and the condition's where there is one."""
        return self.operands if self.condition is None else (*self.operands, self.condition.operand)


MOST_STEPS = 2
"""Steps in which rows of a result follow an open size, as the core knows them (``core.cc``)."""


@dataclass(frozen=True)
class CallJobs:
    """Jobs of a call's parallel loop, and the rows that each makes: job i those of group i // inner % groups.

    Attributes:
        count: jobs.
        inner: neighbouring jobs that make the same rows.
        groups: groups of rows; 0 for a call of which the size leaves nothing out.
        rows: rows of a group; the last one may have fewer.
        row_bytes: bytes of a row, if what is behind the live ones must be zero because another call reads it; else 0.
        outer: how many times all rows stand in the result.
        growth: how many rows the result has of so many of the open size, of ``MOST_STEPS`` at most; None: as many.
        loop: number of the parallel loop among several of the kernel, which run whole; None: the only one.
    """

    count: int = 0
    inner: int = 0
    groups: int = 0
    rows: int = 0
    row_bytes: int = 0
    outer: int = 1
    growth: Growth | None = field(default=None, metadata={"sparse": True})
    loop: int | None = field(default=None, metadata={"sparse": True})

    def left(self, live: int) -> Fraction:
        """Return the share of the jobs that is left where ``live`` of the open size count."""
        rows = live if self.growth is None else self.growth.of(live)
        return Fraction(-(-rows // self.rows), self.groups) if self.groups else Fraction(1)

    def within(self, other: CallJobs) -> bool:
        """Return whether jobs of both can be left out: all groups lie within each group of ``other``."""
        if not (self.groups and other.groups):
            return True
        return self.count == other.count and self.loop == other.loop and other.inner % (self.inner * self.groups) == 0


@dataclass(frozen=True)
class LiveRows:
    """Jobs of a program that may be left out when only the first rows of an open size count.

    Attributes:
        symbol: the open size.
        rows: the size that the program was built for.
        calls: of every call, in order.
    """

    symbol: str
    rows: int
    calls: tuple[CallJobs, ...]


MOST_LIVE = 2
"""Open sizes along which the core leaves out jobs at once (``core.cc``)."""


@dataclass(frozen=True)
class LiveSizes:
    """Jobs of a program that may be left out where open sizes are less than those that it was built for.

    Attributes:
        sizes: ``MOST_LIVE`` at most; the jobs of each lie within the groups of the one before it.
        seconds: measured, of every call when all its jobs run; empty where that is not known.
    """

    sizes: tuple[LiveRows, ...]
    seconds: tuple[float, ...] = field(default=(), compare=False)

    def share(self, sizes: Mapping[str, int], threads: int) -> float:
        """Return the share of a whole run's time that a run of ``sizes`` takes.

        Threads share the jobs of a call, so its time is that of the one with most jobs.
        """
        whole_s = sum(self.seconds)
        if not whole_s or any(len(self.seconds) != len(size.calls) for size in self.sizes):  # older, or damaged
            return math.prod(sizes[size.symbol] / size.rows for size in self.sizes)
        live = [sizes[size.symbol] for size in self.sizes]
        calls = zip(*(size.calls for size in self.sizes), strict=True)
        pairs = zip(self.seconds, calls, strict=True)
        return sum(seconds * _rounds(jobs, live, threads) for seconds, jobs in pairs) / whole_s


def nested(sizes: Sequence[LiveRows]) -> tuple[LiveRows, ...]:
    """Return ``sizes`` of one program in the order in which jobs of each lie within groups of the one before it.

    Where calls have it the other way round, the second leaves no jobs of them out.
    """
    if len(sizes) < 2:
        return tuple(sizes)
    one, other = sizes
    fits = [sum(map(CallJobs.within, inner.calls, outer.calls)) for outer, inner in ((one, other), (other, one))]
    outer, inner = (one, other) if fits[0] >= fits[1] else (other, one)
    # Rows that do not count must be zero for those that read them, whether they are computed or left out.
    pairs = zip(inner.calls, outer.calls, strict=True)
    calls = tuple(jobs if jobs.within(around) else replace(jobs, groups=0) for jobs, around in pairs)
    return outer, replace(inner, calls=calls)


def _rounds(jobs: Sequence[CallJobs], live: Sequence[int], threads: int) -> float:
    """The share of the jobs of the busiest of ``threads`` that is left of a call."""
    count = max(of_size.count for of_size in jobs)
    if not count:
        return 1.0
    left = count * math.prod(of_size.left(rows) for of_size, rows in zip(jobs, live, strict=True))
    return math.ceil(left / threads) / math.ceil(count / threads)


@dataclass(frozen=True)
class Group:
    """Calls that one lane makes in a row.

    Attributes:
        name: of the subgraph.
        lane: number of the lane.
        calls: how many; groups follow each other in ``Steps.calls``.
        waits: groups on other lanes that must be done before; all of them come earlier.
    """

    name: str
    lane: int
    calls: int
    waits: tuple[int, ...] = ()


@dataclass(frozen=True)
class Steps:
    """A flat program.

    Attributes:
        calls: in an order that respects all dependences.
        outputs: where the model's outputs lie after the last call.
        arena_bytes: size of the arena.
        weights: the program's weights, then the constants that its calls hold.
        lanes: what the groups run on; empty with ``groups`` where all calls run on one lane of all threads.
        groups: the calls by subgraph, in order.
        device_bytes: (device, size of its arena) where lanes are devices.
        spaces: of every call (byte offset, bytes) in the arena for what its kernel asks for while it runs; empty where
            it has none for any.
    """

    calls: tuple[Step, ...]
    outputs: tuple[Operand, ...]
    arena_bytes: int
    weights: tuple[NDArray[Any], ...]
    lanes: tuple[Lane, ...] = ()
    groups: tuple[Group, ...] = ()
    device_bytes: tuple[tuple[str, int], ...] = ()
    spaces: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Piece:
    """A subgraph on its lane.

    Attributes:
        name: for people.
        calls: numbers of its calls in ``Flat.calls``, ascending.
        lane: number of the lane.
    """

    name: str
    calls: tuple[int, ...]
    lane: int


WHOLE = "model"
"""Name of the one subgraph of a program that was not cut."""


def arrange(
    flats: Mapping[int, Flat],
    pieces: Sequence[Piece],
    lanes: Sequence[Lane],
    workspaces: Mapping[str, int] | None = None,
) -> Steps:
    """Steps that run ``pieces`` on ``lanes``.

    Args:
        flats: threads → the program with kernels of so many threads. They differ in kernels and weights,
            never in their calls.
        pieces: every call in exactly one, in an order in which each comes after all that it needs. Lanes that share
            cores run their pieces in this order.
        lanes: the lanes.
        workspaces: kernel → bytes that it asks for while it runs. The arena has room for them where there is one piece;
            of several that may run at once, workspaces lie elsewhere.
    """
    order = _Order(next(iter(flats.values())), pieces, lanes)
    offsets, sizes, spaces = order.memory((workspaces or {}) if len(pieces) == 1 else {})
    weights: dict[int, tuple[int, NDArray[Any]]] = {}  # programs of several sizes share arrays: each is kept once
    calls: list[Step] = []
    groups: list[Group] = []
    numbers: dict[int, int] = {}
    for position, piece in enumerate(pieces):
        flat = flats[lanes[piece.lane].threads]
        kept = [number for number in piece.calls if number not in flat.removed]
        if not kept:
            continue

        def placed(use: Use, flat: Flat = flat) -> Operand:
            index = use.source.index
            if use.source.place == "arena":
                return Operand(flat.calls[index].memory or "arena", offsets[index], use.shape, use.dtype)
            if use.source.place == "weight":
                array = flat.weights[index]
                index, _ = weights.setdefault(id(array), (len(weights), array))
            return Operand(use.source.place, index, use.shape, use.dtype)

        for number in kept:
            call = flat.calls[number]
            written = Operand(call.memory or "arena", offsets[number], call.shape, call.dtype)
            operands = (*(placed(use) for use in call.arguments), written)
            guard = call.guard
            condition = None if guard is None else Condition(placed(guard.condition), guard.when)
            calls.append(Step(call.symbol, operands, condition))
        numbers[position] = len(groups)
        waits = tuple(numbers[other] for other in order.waits(position) if other in numbers)
        groups.append(Group(piece.name, piece.lane, len(kept), waits))
    flat = next(iter(flats.values()))
    outputs = tuple(Operand("arena", offsets[use.source.index], use.shape, use.dtype) for use in flat.outputs)
    arrays = tuple(array for _, array in weights.values())
    devices = tuple((memory, size) for memory, size in sorted(sizes.items()) if memory != HOST)
    return Steps(tuple(calls), outputs, sizes.get(HOST, 0), arrays, tuple(lanes), tuple(groups), devices, spaces)


_Memory = tuple[tuple[int, ...], dict[str, int], tuple[tuple[int, int], ...]]
"""Offsets of all tensors in the arenas of their memories, the size of each arena, and the ``spaces`` of ``Steps``."""


class _Order:
    """Which calls are certainly over when another begins.

    Notation: sets of pieces and of calls are the bits of an integer.
    """

    def __init__(self, flat: Flat, pieces: Sequence[Piece], lanes: Sequence[Lane]) -> None:
        self._flat = flat
        self._pieces = pieces
        self._piece_of = {call: position for position, piece in enumerate(pieces) for call in piece.calls}
        self._writers = [self._written_by(call) for call in range(len(flat.calls))]
        self._before: list[int] = []
        self._waits: list[tuple[int, ...]] = []
        for position, piece in enumerate(pieces):
            leader = lanes[piece.lane].first
            needed = self._needed(position)
            # A core finishes one piece before it begins the next, as the first core of a lane or as another one. No
            # piece waits for one whose calls have all vanished: that one does not run.
            own = {
                other
                for other in range(position)
                if leader in lanes[pieces[other].lane].cores and not flat.removed.issuperset(pieces[other].calls)
            }
            before = 0
            for other in own | needed:
                before |= self._before[other] | 1 << other
            self._before.append(before)
            self._waits.append(tuple(sorted(needed - own)))

    def waits(self, position: int) -> tuple[int, ...]:
        """Pieces on other cores that must be done before the one at ``position``."""
        return self._waits[position]

    def memory(self, workspaces: Mapping[str, int]) -> _Memory:
        """Return where tensors lie, and workspaces, which are tensors that live as long as their call."""
        calls = self._flat.calls
        uses, first = [0] * len(calls), [-1] * len(calls)
        before = self._calls_before()
        for number in range(len(calls)):
            if number in self._flat.removed:
                continue
            self._add(uses, number, number)
            guard = calls[number].guard
            for use in (*calls[number].arguments, *([] if guard is None else [guard.condition])):
                if use.source.place == "arena":
                    self._add(uses, use.source.index, number)
            root, _ = root_of(number, self._flat.slices)
            first[root] &= before[number]
        for use in self._flat.outputs:
            self._add(uses, use.source.index, len(calls))  # a call that comes after all others

        extents, memories = [call.bytes for call in calls], [call.memory for call in calls]
        kept = [number for number in range(len(calls)) if number not in self._flat.removed] if workspaces else []
        for number in kept:
            extents.append(workspaces.get(calls[number].symbol, 0))
            memories.append(calls[number].memory)
            uses.append(1 << number if extents[-1] else 0)
            first.append(before[number])

        def clash(one: int, other: int) -> bool:
            apart = memories[one] != memories[other]
            return not apart and bool(uses[one] & ~first[other] and uses[other] & ~first[one])

        offsets, _ = place_tensors(extents, self._flat.slices, clash)
        sizes: dict[str, int] = {}
        for offset, extent, memory in zip(offsets, extents, memories, strict=True):
            sizes[memory] = max(sizes.get(memory, 0), offset + extent)
        return offsets[: len(calls)], sizes, tuple(zip(offsets[len(calls) :], extents[len(calls) :], strict=True))

    def _add(self, uses: list[int], tensor: int, call: int) -> None:
        root, _ = root_of(tensor, self._flat.slices)
        uses[root] |= 1 << call

    def _calls_before(self) -> list[int]:
        """For every call those that are certainly over when it begins."""
        inside = [sum(1 << call for call in piece.calls) for piece in self._pieces]
        before = [0] * len(self._flat.calls)
        for position, piece in enumerate(self._pieces):
            earlier = sum(calls for other, calls in enumerate(inside) if self._before[position] >> other & 1)
            for call in piece.calls:
                before[call] = earlier
                earlier |= 1 << call
        return before

    def _written_by(self, call: int) -> set[int]:
        """The calls that really write what ``call`` stands for: the parts of a concatenation that vanished."""
        if call not in self._flat.removed:
            return {call}
        parts = (use.source.index for use in self._flat.calls[call].arguments if use.source.place == "arena")
        return {writer for part in parts for writer in self._written_by(part)}

    def _needed(self, position: int) -> set[int]:
        """Pieces that write what the one at ``position`` reads."""
        needed = set()
        for call in self._pieces[position].calls:
            for use in self._flat.calls[call].arguments:
                if use.source.place == "arena":
                    needed |= {self._piece_of[writer] for writer in self._writers[use.source.index]}
        return needed - {position}
