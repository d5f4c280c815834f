"""Experiments that find the jobs that may be left out when only the first rows of an open size count.

A program that was built for 64 rows computes 64 also if the call has 40. Its kernels run jobs, and mostly each makes
some rows alone: then those of rows that do not count are left out (``core.h``), with the very kernels that were tuned.

    rows     a tensor follows the open size if along one of its axes the first m parts of n stay the same, bit for bit,
             whatever stands behind the first m rows of the inputs, and every other part changes or is one number. An
             axis may follow it by a growth, as behind a stride of two
    jobs     the jobs that write a part are found by running some of them on memory that is filled before; all groups,
             one after the other, must make what the whole call makes, and each its own rows alone
    zeros    where another call reads what was left out, it finds zeros, since what an earlier run left there may be no
             number, or an index that leads anywhere; not if it makes the same rows of floats that are no numbers

These are experiments. Afterwards the program is run with jobs left out, and must give the results of a whole run
(``validation/independence.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.backends.cpu.job_probe import WHOLE, Bytes, Probe
from autotune.backends.cpu.native_library import NativeLibrary
from autotune.backends.cpu.program_words import nbytes
from autotune.backends.cpu.stepped_calls import SteppedCalls
from autotune.backends.executor import Arrays, LiveCase
from autotune.graph.steps import CallJobs, LiveRows, Operand, Step, Steps
from autotune.host.pages import paged
from autotune.interface import Growth

NO_NUMBER = 0xFF
"""Byte of floats of any size that are no numbers."""

OTHER = 0x44
"""Byte of numbers of any type that are neither zero nor infinite."""

MOST_BESIDE = 8
"""Rows before the end that may change where other rows stand behind it, as a window of 17 taps reads them. Heuristic,
not measured: the results of every kernel that leaves out jobs are compared."""

_Kind = tuple[str, tuple[tuple[int, ...], ...]]
"""Kernel and shapes of a call: what its jobs make does not depend on where its operands lie."""


@dataclass
class _Memory:
    """The arena and inputs of one run, aligned as kernels want them."""

    arena: Bytes
    inputs: list[Bytes]

    @staticmethod
    def of(steps: Steps, inputs: Arrays) -> _Memory:
        held = []
        for array in inputs:
            copy = paged(max(1, array.nbytes))
            copy[: array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
            held.append(copy)
        return _Memory(paged(max(1, steps.arena_bytes)), held)

    def view(self, operand: Operand, weights: Sequence[NDArray[Any]]) -> Bytes:
        size = nbytes(operand)
        if operand.place == "weight":
            return weights[operand.index].reshape(-1).view(np.uint8)
        if operand.place == "input":
            return self.inputs[operand.index][:size]
        return self.arena[operand.index : operand.index + size]


@dataclass
class _Written:
    """The place that a call wrote to."""

    number: int
    start: int
    end: int


@dataclass(frozen=True)
class _Way:
    """A result follows the open size: all rows stand in it ``outer`` times, and grow with that by ``growth``."""

    outer: int
    growth: Growth


@dataclass
class _Call:
    """The results of all cases for one call.

    Attributes:
        ways: in which its result may follow the open size; None if no case has shown any.
        writers: calls whose results must be zero behind the rows that count, since this one reads them.
        was_made: whether any case makes it.
        is_kept: whether all of its result is read.
        is_filled: whether a number that is not zero stands behind the end of its result.
    """

    ways: Sequence[_Way] | None = None
    writers: set[int] = field(default_factory=set)
    jobs: CallJobs = WHOLE
    was_made: bool = False
    is_kept: bool = False
    is_filled: bool = False

    @property
    def outer(self) -> int:
        """How many times all rows stand in its result; 0 if that does not follow the open size."""
        return self.ways[0].outer if self.ways else 0

    @property
    def growth(self) -> Growth:
        """How many rows its result has of so many of the open size."""
        return self.ways[0].growth if self.ways else Growth()


def live_rows(
    library: NativeLibrary,
    steps: Steps,
    weights: Sequence[NDArray[Any]],
    symbol: str,
    rows: int,
    cases: Sequence[LiveCase],
    growths: Sequence[Growth] = (),
) -> LiveRows | None:
    """Return the jobs of ``steps`` that may be left out if fewer than ``rows`` of ``symbol`` count; None if none may.

    Args:
        weights: the program's, aligned.
        cases: as kernels read the inputs; at least one.
        growths: ways in which axes may follow the open size, besides as many.

    Raises:
        RunError: if a kernel fails.
    """
    if steps.lanes:
        return None  # kernels of several libraries
    stepped = SteppedCalls(library)
    calls = [_Call() for _ in steps.calls]
    known: dict[tuple[_Kind, Growth], CallJobs] = {}
    fitting = [own for own in growths if len(own.steps) <= library.growth_steps]
    ways = _Ways(rows, tuple(dict.fromkeys([Growth(), *fitting])))
    with stepped.attached():
        for case in cases:
            _Experiment(stepped, steps, weights, ways, case, calls, known).run()
    if not all(call.was_made for call in calls):
        return None  # nobody knows what these read
    zeroed = {writer for call in calls for writer in call.writers}
    by_call = []
    for number, (step, call) in enumerate(zip(steps.calls, calls, strict=True)):
        follows = call.outer and not call.is_kept
        jobs = replace(call.jobs, outer=call.outer) if follows else WHOLE
        own = call.growth.of(rows)
        row_bytes = nbytes(step.operands[-1]) // (own * jobs.outer) if follows and number in zeroed else 0
        growth = call.growth if call.growth.steps and (row_bytes or jobs.groups) else None
        by_call.append(replace(jobs, row_bytes=row_bytes, growth=growth))
    return LiveRows(symbol, rows, tuple(by_call)) if any(jobs.groups for jobs in by_call) else None


@dataclass(frozen=True)
class _Ways:
    """The size that a program was built for, and the ways in which axes may follow it."""

    rows: int
    growths: tuple[Growth, ...]


class _Experiment:
    """One case: all calls in order, of both runs side by side."""

    def __init__(
        self,
        stepped: SteppedCalls,
        steps: Steps,
        weights: Sequence[NDArray[Any]],
        ways: _Ways,
        case: LiveCase,
        calls: list[_Call],
        known: dict[tuple[_Kind, Growth], CallJobs],
    ) -> None:
        self._stepped, self._steps, self._weights, self._ways, self._live = stepped, steps, weights, ways, case.live
        self._calls, self._known = calls, known
        self._zeros, self._other = _Memory.of(steps, case.zeros), _Memory.of(steps, case.other)
        self._written: list[_Written] = []

    def run(self) -> None:
        """Note in every call what this case shows."""
        for number, step in enumerate(self._steps.calls):
            if not self._is_made(step):
                continue
            call = self._calls[number]
            call.was_made = True
            operands = [self._zeros.view(operand, self._weights) for operand in step.operands]
            output = operands[-1]
            before = output.copy()  # some calls go on from what lies there
            self._run(step, operands)
            self._run(step, [self._other.view(operand, self._weights) for operand in step.operands])
            self._narrow(call, step, operands, before)
            kind = (step.symbol, tuple(operand.shape for operand in step.operands)), call.growth
            if call.outer and kind not in self._known:
                self._known[kind] = self._jobs(step, operands, before, call)
            call.jobs = self._known[kind] if call.outer else WHOLE
            call.writers |= self._zeroed_for(step, call, operands, before)
            start = step.operands[-1].index
            end = start + nbytes(step.operands[-1])
            self._written = [one for one in self._written if one.end <= start or end <= one.start]
            self._written.append(_Written(number, start, end))

    def _is_made(self, step: Step) -> bool:
        """Return whether this case takes the side of a choice that needs the call; both runs have its condition."""
        condition = step.condition
        return condition is None or bool(self._zeros.view(condition.operand, self._weights).any()) == condition.when

    def _run(
        self, step: Step, operands: Sequence[Bytes], jobs: Sequence[int] | None = None, loop: int | None = None
    ) -> None:
        self._stepped.run(step, [operand.ctypes.data for operand in operands], jobs, loop or 0)

    def _narrow(self, call: _Call, step: Step, operands: Sequence[Bytes], before: Bytes) -> None:
        """Note in which ways a call's result may follow the open size, of those that earlier cases leave.

        A case shows nothing if the whole result is equal in both runs, as with the attention of all positions to a
        single one. It is also equal if zeros stand behind the end of what a call reads. So the call is made again of
        other numbers there. Rows that change are the last ones: those that do not count, and some before them where a
        call reads beside each row.
        """
        shape, output = step.operands[-1].shape, operands[-1]
        if not output.size:
            return
        word = np.dtype(f"u{min(8, output.size // math.prod(shape))}")
        ours = output.view(word).reshape(math.prod(shape), -1)

        def changes(other: Bytes) -> NDArray[np.bool_]:
            return np.asarray((other.view(word).reshape(ours.shape) != ours).any(axis=1))

        # Behind the end stand zeros or another number, if one does.
        changed = changes(self._other.view(step.operands[-1], self._weights))
        same = ((ours == ours[-1]) | (ours == 0)).all(axis=1)
        known = self._all_ways(shape) if call.ways is None else call.ways
        if changed.any():
            call.ways = self._fitting(known, changed, same, 0)
            return
        call.is_filled |= bool(same[-1] and ours[-1].any())
        spoilt = self._made_of_other(step, operands, before)
        beside = changed if spoilt is None else changes(spoilt)
        if beside.any():
            call.ways = self._fitting(known, beside, same, MOST_BESIDE)
        elif same.any():
            call.ways = self._fitting(known, changed, same, 0) or call.ways

    def _all_ways(self, shape: Sequence[int]) -> list[_Way]:
        """The ways in which a result of ``shape`` could follow the open size, if this case can show them.

        Ways of most rows come first: several rows taken for one seem to change where the last of them does.
        """
        ways = list[_Way]()
        for growth in sorted(self._ways.growths, key=lambda growth: -self._span(growth)[0]):
            count, live = self._span(growth)
            if live < count:
                ways += [_Way(outer, growth) for outer in _outers(shape, count)]
        return ways

    def _fitting(
        self, ways: Sequence[_Way], changed: NDArray[np.bool_], same: NDArray[np.bool_], beside: int
    ) -> list[_Way]:
        """Those of ``ways`` that fit to what changed of a result, and to where it is one number.

        Args:
            beside: how many rows before the end may change.
        """
        return [way for way in ways if self._fits(way, changed, same, beside)]

    def _fits(self, way: _Way, changed: NDArray[np.bool_], same: NDArray[np.bool_], beside: int) -> bool:
        count, live = self._span(way.growth)
        if live >= count:
            return not changed.any()
        live = max(live, 0)
        rows = np.any(changed.reshape(way.outer, count, -1), axis=2)
        dead = np.all(same.reshape(way.outer, count, -1), axis=2)
        if rows[:, : max(0, live - beside)].any() or not (rows | dead)[:, live:].all():
            return False
        return bool(rows[:, live:].any() or not dead[:, :live].all(axis=0).any())  # else it is that anywhere

    def _made_of_other(self, step: Step, operands: Sequence[Bytes], before: Bytes) -> Bytes | None:
        """Make a call once more of other numbers behind the end of what it reads; None if none can stand there."""
        spoilt = [self._spoilt(*pair, OTHER) for pair in zip(step.operands[:-1], operands, strict=False)]
        read = [array for array in spoilt if array is not None]
        if len(read) < len(spoilt) or all(map(np.array_equal, read, operands)):
            return None
        again = paged(before.size)
        again[:] = before
        self._run(step, [*read, again])
        return again

    def _span(self, growth: Growth) -> tuple[int, int]:
        """The rows of a result that follows the open size so, and how many of them count."""
        return growth.of(self._ways.rows), growth.of(self._live)

    def _zeroed_for(self, step: Step, call: _Call, operands: Sequence[Bytes], before: Bytes) -> set[int]:
        """Return the writers of what must be zero where rows do not count, or this call makes something else."""
        zeroed = set()
        for index, operand in enumerate(step.operands[:-1]):
            writers = {number for number in self._writers([operand]) if self._calls[number].outer}
            spoilt = self._spoilt(operand, operands[index], NO_NUMBER) if writers and call.outer else None
            if spoilt is not None and self._is_same(step, call, self._with(operands, index, spoilt), before):
                continue
            filled = any(self._calls[number].is_filled for number in writers)
            cleared = self._spoilt(operand, operands[index], 0) if writers and call.outer and not filled else None
            if not filled and (
                cleared is None or self._is_same(step, call, self._with(operands, index, cleared), before)
            ):
                zeroed |= writers
            else:  # what stands there is neither left out nor zero, such as scores that a softmax is to pass over
                for number in writers:
                    self._calls[number].is_kept = True
        return zeroed

    @staticmethod
    def _with(operands: Sequence[Bytes], index: int, other: Bytes) -> list[Bytes]:
        return [*operands[:index], other, *operands[index + 1 :]]

    def _is_same(self, step: Step, call: _Call, operands: Sequence[Bytes], before: Bytes) -> bool:
        """Return whether jobs of rows that count make these as they are, of other operands."""
        jobs, outer = call.jobs, call.outer or 1
        count, rows = self._span(call.growth)
        groups = -(-rows // jobs.rows) if jobs.groups else 0
        live = [job for job in range(jobs.count) if job // jobs.inner % jobs.groups < groups] if groups else None
        again = paged(before.size)
        again[:] = before
        self._run(step, [*operands[:-1], again], live, jobs.loop)
        few, whole = (array.reshape(outer, count, -1)[:, :rows] for array in (again, operands[-1]))
        return np.array_equal(few, whole)

    def _spoilt(self, operand: Operand, view: Bytes, byte: int) -> Bytes | None:
        """An operand, of other bytes where rows do not count; None of wide integers, which may be indices."""
        spoilt = paged(view.size)
        spoilt[:] = view
        for written in self._written if operand.place == "arena" else ():
            call, result = self._calls[written.number], self._steps.calls[written.number].operands[-1]
            if not call.outer or not _overlap(operand, written):
                continue
            if np.dtype(result.dtype).kind != "f" and np.dtype(result.dtype).itemsize > 1:
                return None
            count, rows = self._span(call.growth)
            dead = np.zeros((call.outer, count, nbytes(result) // (call.outer * count)), bool)
            dead[:, rows:] = True
            first, last = max(operand.index, written.start), min(operand.index + view.size, written.end)
            part = spoilt[first - operand.index : last - operand.index]
            part[dead.reshape(-1)[first - written.start : last - written.start]] = byte
        return spoilt

    def _writers(self, operands: Sequence[Operand]) -> Iterator[int]:
        """Numbers of the calls whose results these are."""
        for operand in operands:
            if operand.place == "arena":
                yield from (written.number for written in self._written if _overlap(operand, written))

    def _jobs(self, step: Step, operands: Sequence[Bytes], before: Bytes, call: _Call) -> CallJobs:
        """Return how the call's jobs are spread over rows, or ``WHOLE``."""
        whole = operands[-1]
        again = paged(whole.size)
        again[:] = before
        self._run(step, [*operands[:-1], again])
        if not self._stepped.loops or self._stepped.barriers or not np.array_equal(again, whole):
            return WHOLE
        # Of several loops, the last makes the result: those before prepare what it reads.
        probe = Probe(
            self._stepped, step, operands, self._span(call.growth)[0], call.outer or 1, self._stepped.loops - 1
        )
        jobs = probe.spread()
        return jobs if jobs.groups > 1 and probe.is_right(jobs, whole) else WHOLE


def _outers(shape: Sequence[int], count: int) -> list[int]:
    """How often ``count`` rows may stand in a tensor: as often as the axes before one of so many entries are large.

    Or that axis has a multiple of them, whose parts are several rows or of which each has all rows.
    """
    before, outers = 1, set()
    for size in shape:
        if size % count == 0:
            outers |= {before * parts for parts in range(1, size // count + 1) if size // count % parts == 0}
        before *= size
    return sorted(outers)


def _overlap(operand: Operand, written: _Written) -> bool:
    return operand.index < written.end and written.start < operand.index + nbytes(operand)
