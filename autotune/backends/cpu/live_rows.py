"""Experiments that find the jobs that may be left out when only the first rows of an open size count.

A program that was built for 64 rows computes 64 also if the call has 40. Its kernels run jobs, and mostly each makes
some rows alone: then those of rows that do not count are left out (``core.h``), with the very kernels that were tuned.

    rows     a tensor follows the open size if its first m parts of n stay the same, bit for bit, whatever stands
             behind the first m rows of the inputs, and every other part changes
    jobs     the jobs that write a part are found by running some of them on memory that is filled before; all groups,
             one after the other, must make what the whole call makes, and each its own rows alone
    zeros    where another call reads what was left out, it finds zeros: what an earlier run left there may be no
             number, or an index that leads anywhere

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

from autotune.backends.cpu.native_library import NativeLibrary
from autotune.backends.cpu.program_words import nbytes
from autotune.backends.cpu.stepped_calls import EACH, SteppedCalls
from autotune.backends.executor import Arrays, LiveCase
from autotune.graph.steps import CallJobs, LiveRows, Operand, Step, Steps
from autotune.host.pages import paged

Bytes = NDArray[np.uint8]

FILLS = 0x5A, 0xA6
"""Bytes that memory is filled with before jobs write into it; none writes both."""

WHOLE = CallJobs()

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


@dataclass
class _Call:
    """The results of all cases for one call."""

    follows: bool = True
    writers: set[int] = field(default_factory=set)
    jobs: CallJobs = WHOLE


def live_rows(
    library: NativeLibrary,
    steps: Steps,
    weights: Sequence[NDArray[Any]],
    symbol: str,
    rows: int,
    cases: Sequence[LiveCase],
) -> LiveRows | None:
    """Return the jobs of ``steps`` that may be left out if fewer than ``rows`` of ``symbol`` count; None if none may.

    Args:
        weights: the program's, aligned.
        cases: as kernels read the inputs; at least one.

    Raises:
        RunError: if a kernel fails.
    """
    if steps.lanes:
        return None  # kernels of several libraries
    stepped = SteppedCalls(library)
    calls = [_Call() for _ in steps.calls]
    known: dict[_Kind, CallJobs] = {}
    with stepped.attached():
        for case in cases:
            _Experiment(stepped, steps, weights, rows, case, calls, known).run()
    zeroed = {writer for call in calls for writer in call.writers}
    by_call = []
    for number, (step, call) in enumerate(zip(steps.calls, calls, strict=True)):
        jobs = call.jobs if call.follows else WHOLE
        row_bytes = nbytes(step.operands[-1]) // rows if jobs.groups and number in zeroed else 0
        by_call.append(replace(jobs, row_bytes=row_bytes))
    return LiveRows(symbol, rows, tuple(by_call)) if any(jobs.groups for jobs in by_call) else None


class _Experiment:
    """One case: all calls in order, of both runs side by side."""

    def __init__(
        self,
        stepped: SteppedCalls,
        steps: Steps,
        weights: Sequence[NDArray[Any]],
        rows: int,
        case: LiveCase,
        calls: list[_Call],
        known: dict[_Kind, CallJobs],
    ) -> None:
        self._stepped, self._steps, self._weights, self._rows, self._live = stepped, steps, weights, rows, case.live
        self._calls, self._known = calls, known
        self._zeros, self._other = _Memory.of(steps, case.zeros), _Memory.of(steps, case.other)
        self._written: list[_Written] = []

    def run(self) -> None:
        """Note in every call what this case shows."""
        for number, step in enumerate(self._steps.calls):
            call = self._calls[number]
            operands = [self._zeros.view(operand, self._weights) for operand in step.operands]
            output = operands[-1]
            before = output.copy()  # some calls go on from what lies there
            self._run(step, operands)
            self._run(step, [self._other.view(operand, self._weights) for operand in step.operands])
            call.follows = call.follows and self._follows(output, self._other.view(step.operands[-1], self._weights))
            kind = step.symbol, tuple(operand.shape for operand in step.operands)
            if call.follows and kind not in self._known:
                self._known[kind] = self._jobs(step, operands, before)
            call.jobs = self._known[kind] if call.follows else WHOLE
            call.writers |= set(self._writers(step.operands[:-1]))
            start = step.operands[-1].index
            end = start + nbytes(step.operands[-1])
            self._written = [one for one in self._written if one.end <= start or end <= one.start]
            self._written.append(_Written(number, start, end))

    def _run(self, step: Step, operands: Sequence[Bytes], jobs: Sequence[int] | None = None) -> None:
        self._stepped.run(step, [operand.ctypes.data for operand in operands], jobs)

    def _follows(self, one: Bytes, other: Bytes) -> bool:
        """Return whether a tensor's first parts are equal in both runs, and every other part differs."""
        if one.size % self._rows:
            return False
        differs = (one.reshape(self._rows, -1) != other.reshape(self._rows, -1)).any(axis=1)
        return not differs[: self._live].any() and bool(differs[self._live :].all())

    def _writers(self, operands: Sequence[Operand]) -> Iterator[int]:
        """Numbers of the calls whose results these are."""
        for operand in operands:
            if operand.place == "arena":
                yield from (written.number for written in self._written if _overlap(operand, written))

    def _jobs(self, step: Step, operands: Sequence[Bytes], before: Bytes) -> CallJobs:
        """Return how the call's jobs are spread over rows, or ``WHOLE``."""
        whole = operands[-1]
        again = paged(whole.size)
        again[:] = before
        self._run(step, [*operands[:-1], again])
        if self._stepped.loops != 1 or self._stepped.barriers or not np.array_equal(again, whole):
            return WHOLE
        probe = _Probe(self._stepped, step, operands, self._rows)
        jobs = probe.spread()
        return jobs if jobs.groups > 1 and probe.is_right(jobs, whole) else WHOLE


class _Probe:
    """Jobs of one call, run on memory of its own."""

    def __init__(self, stepped: SteppedCalls, step: Step, operands: Sequence[Bytes], rows: int) -> None:
        self._stepped, self._step, self._rows = stepped, step, rows
        self._inputs = [operand.ctypes.data for operand in operands[:-1]]
        self._size = operands[-1].size

    def spread(self) -> CallJobs:
        """Return how jobs are spread over rows as a few of them show; ``WHOLE`` if in no such way."""
        count = self._count()
        first = self._touched([0])
        inner = next((d for d in range(1, count) if count % d == 0 and self._touched([d]) != first), 0)
        if not inner or not first or first[0] != 0 or first != list(range(len(first))):
            return WHOLE
        groups = math.ceil(self._rows / len(first))
        return CallJobs(count, inner, groups, len(first)) if count % (groups * inner) == 0 else WHOLE

    def is_right(self, jobs: CallJobs, whole: Bytes) -> bool:
        """Return whether the jobs of each group, and of groups before, make the group's rows of ``whole``."""
        output = _filled(self._size, FILLS[0])
        parts, reference = output.reshape(self._rows, -1), whole.reshape(self._rows, -1)
        period = jobs.groups * jobs.inner
        for group in range(jobs.groups):
            first = range(group * jobs.inner, jobs.count, period)
            self._run(output, [start + job for start in first for job in range(jobs.inner)])
            own = slice(group * jobs.rows, (group + 1) * jobs.rows)
            if not np.array_equal(parts[own], reference[own]):
                return False
        return True

    def _count(self) -> int:
        """Jobs: those with a smaller number write something."""
        most = 1
        while most < EACH and self._touched([most]):
            most *= 2
        low, high = most // 2, most
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._touched([middle]) else (low, middle)
        return high

    def _touched(self, jobs: Sequence[int]) -> list[int]:
        """The rows that jobs write."""
        rows: set[int] = set()
        for fill in FILLS:
            output = _filled(self._size, fill)
            self._run(output, jobs)
            parts = output.reshape(self._rows, -1)
            if parts.shape[1] % 8 == 0:  # eight bytes at a time
                parts, fill = parts.view(np.uint64), int.from_bytes(bytes([fill] * 8), "little")
            rows |= set(np.flatnonzero((parts != fill).any(axis=1)).tolist())
        return sorted(rows)

    def _run(self, out: Bytes, jobs: Sequence[int]) -> None:
        self._stepped.run(self._step, [*self._inputs, out.ctypes.data], jobs)


def _overlap(operand: Operand, written: _Written) -> bool:
    return operand.index < written.end and written.start < operand.index + nbytes(operand)


def _filled(size: int, fill: int) -> Bytes:
    filled = paged(size)
    filled[:] = fill
    return filled
