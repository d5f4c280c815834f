"""Jobs of a kernel's parallel loop, run on memory that is filled before: which rows of its result each makes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.backends.cpu.stepped_calls import EACH, SteppedCalls
from autotune.graph.steps import CallJobs, Step
from autotune.host.pages import paged

Bytes = NDArray[np.uint8]

FILLS = 0x5A, 0xA6
"""Bytes that memory is filled with before jobs write into it; none writes both."""

WHOLE = CallJobs()


class Probe:
    """Jobs of one call, run on memory of its own."""

    def __init__(
        self, stepped: SteppedCalls, step: Step, operands: Sequence[Bytes], rows: int, outer: int, loop: int
    ) -> None:
        self._stepped, self._step, self._rows, self._outer, self._loop = stepped, step, rows, outer, loop
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
        jobs = CallJobs(count, inner, groups, len(first), outer=self._outer, loop=self._loop or None)
        return jobs if count % (groups * inner) == 0 else WHOLE

    def is_right(self, jobs: CallJobs, whole: Bytes) -> bool:
        """Return whether the jobs of each group, and of groups before, make the group's rows of ``whole``."""
        output = _filled(self._size, FILLS[0])
        parts, reference = (array.reshape(self._outer, self._rows, -1) for array in (output, whole))
        period = jobs.groups * jobs.inner
        for group in range(jobs.groups):
            first = range(group * jobs.inner, jobs.count, period)
            self._run(output, [start + job for start in first for job in range(jobs.inner)])
            own = slice(group * jobs.rows, (group + 1) * jobs.rows)
            if not np.array_equal(parts[:, own], reference[:, own]):
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
            parts = output.reshape(self._outer, self._rows, -1)
            if parts.shape[2] % 8 == 0:  # eight bytes at a time
                parts, fill = parts.view(np.uint64), int.from_bytes(bytes([fill] * 8), "little")
            rows |= set(np.flatnonzero((parts != fill).any(axis=(0, 2))).tolist())
        return sorted(rows)

    def _run(self, out: Bytes, jobs: Sequence[int]) -> None:
        self._stepped.run(self._step, [*self._inputs, out.ctypes.data], jobs, self._loop)


def _filled(size: int, fill: int) -> Bytes:
    filled = paged(size)
    filled[:] = fill
    return filled
