"""Costs of subgraphs on each size of lane, measured: alone, next to busy neighbours, and from lane to lane.

Everything is measured on the machine that will run the model, by the driver that will run it, from the model's own
kernels in their own order, so that caches hold what they will hold in use:

    alone       all subgraphs in a row on one lane, every other core idle
    busy        the same while every other core runs the model's other subgraphs again and again
    transfer    neighbouring calls on one core, then in turn on two: the difference is the price of crossing, and a
                line through it over the bytes that cross gives latency and bandwidth
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.backends.cpu.native_executor import NativeExecutor
from autotune.backends.cpu.native_library import NativeLibrary
from autotune.backends.executor import Arrays
from autotune.graph.flat import Flat
from autotune.graph.lanes import cpu_lane
from autotune.graph.partition import Subgraph
from autotune.graph.steps import Group, Operand, Piece, Steps, arrange
from autotune.runtime.model_timing import Run, at_work, occupied_s, race, ratios, timelines

LEAST_BYTES_PER_S = 1e9
"""Bandwidth of reading what another core wrote, at least: a smaller one is noise on a model of small tensors."""

LONGEST_LATENCY_S = 20e-6
"""Seconds of handing over between lanes, at most: a longer one is noise. The driver takes 2 µs (docs/lab: branches)."""


@dataclass(frozen=True)
class Transfer:
    """The price of crossing from one lane to another: ``latency_s`` + bytes · ``s_per_byte``."""

    latency_s: float
    s_per_byte: float


@dataclass(frozen=True)
class LaneProfiler:
    """Measures costs.

    Attributes:
        libraries: threads → kernels built for so many.
        flats: threads → the program with kernels for so many, with aligned weights.
        inputs: to run on.
        cpus: logical CPU of every core.
    """

    libraries: Mapping[int, NativeLibrary]
    flats: Mapping[int, Flat]
    inputs: Arrays
    cpus: Sequence[int]

    def costs(self, subgraphs: Sequence[Subgraph], threads: int, busy: bool) -> dict[str, float]:
        """Name → seconds of each of ``subgraphs`` on a lane of ``threads`` threads.

        Those whose calls have all vanished are left out.

        Args:
            busy: whether all other cores are at work on the same subgraphs, as ``neighbours`` says; else idle.
        """
        steps = self._only(subgraphs, threads)
        with ExitStack() as stack:
            executor = stack.enter_context(self._executor(steps, self.cpus[:threads]))
            for first, size in neighbours(threads, sorted(self.flats), len(self.cpus)) if busy else ():
                work = self._only(subgraphs, size)
                neighbour = stack.enter_context(self._executor(work, self.cpus[first : first + size]))
                stack.enter_context(at_work(self._run(neighbour)))
            seconds = _durations(self._spans(executor))
        return {group.name: float(value) for group, value in zip(executor.groups, seconds, strict=True)}

    def transfer(self, subgraphs: Sequence[Subgraph]) -> Transfer:
        """The price of crossing between lanes of one thread, from calls that follow each other."""
        steps = self._only(subgraphs, 1)
        lanes = (cpu_lane(0, 1), cpu_lane(1, 1))
        one = replace(steps, lanes=lanes, groups=_alternating(len(steps.calls), 1))
        two = replace(one, groups=_alternating(len(steps.calls), 2))
        with self._executor(one, self.cpus[:2]) as here, self._executor(two, self.cpus[:2]) as across:
            together, apart = _durations(self._spans(here)), self._spans(across)
        gaps = np.median(apart[:, 1:, 0] - apart[:, :-1, 1], axis=0)
        latency_s = float(np.clip(np.median(gaps), 0.0, LONGEST_LATENCY_S)) if gaps.size else 0.0
        moved = np.array([_bytes_between(a.operands, b.operands) for a, b in pairwise(steps.calls)])
        crossing = moved > 0
        if not crossing.any():
            return Transfer(latency_s, 0.0)
        # Seconds per byte from the sum over all calls: single calls are noisier than what crossing costs.
        extra = _durations(apart)[1:] - together[1:]
        per_byte = float(np.clip(extra[crossing].sum() / moved[crossing].sum(), 0.0, 1.0 / LEAST_BYTES_PER_S))
        return Transfer(latency_s, per_byte)

    def end_to_end(self, candidates: Sequence[Steps]) -> list[float]:
        """Median seconds of whole runs of each candidate, timed in turn."""
        with ExitStack() as stack:
            executors = [stack.enter_context(self._executor(steps, self.cpus)) for steps in candidates]
            return race([self._run(executor) for executor in executors])

    def ratios(self, one: Steps, other: Steps) -> tuple[float, float, float]:
        """Work like ``model_timing.ratios``, of whole runs."""
        with self._executor(one, self.cpus) as before, self._executor(other, self.cpus) as after:
            return ratios(self._run(before), self._run(after))

    def taken(self, steps: Steps) -> dict[str, float]:
        """Work like ``occupied_s``, of whole runs."""
        with self._executor(steps, self.cpus) as executor:
            return occupied_s(timelines(lambda: executor.timeline(self.inputs)), steps.lanes)

    def _only(self, subgraphs: Sequence[Subgraph], threads: int) -> Steps:
        """``subgraphs`` in a row on one lane; memory that the rest of the program would write is left as it is."""
        flat = self.flats[threads]
        wanted = {call for part in subgraphs for call in part.nodes}
        others = [Piece("", (call,), 0) for call in range(len(flat.calls)) if call not in wanted]
        pieces = [Piece(part.name, part.nodes, 0) for part in subgraphs]
        order = sorted((*pieces, *others), key=lambda piece: piece.calls[0])
        steps = arrange(self.flats, _runnable(order, flat), (cpu_lane(0, threads),))
        calls = iter(steps.calls)
        kept, groups = [], []
        for group in steps.groups:
            own = [next(calls) for _ in range(group.calls)]
            if group.name:
                kept += own
                groups.append(Group(group.name, 0, group.calls))
        return replace(steps, calls=tuple(kept), groups=tuple(groups))

    def _executor(self, steps: Steps, cpus: Sequence[int]) -> closing[NativeExecutor]:
        return closing(NativeExecutor(self.libraries, steps, steps.weights, cpus))

    def _run(self, executor: NativeExecutor) -> Run:
        return lambda: max(span.ended_s for span in executor.timeline(self.inputs))

    def _spans(self, executor: NativeExecutor) -> NDArray[Any]:
        """(runs, groups, 2) seconds at which each group began and ended."""
        runs = timelines(lambda: executor.timeline(self.inputs))
        return np.array([[(span.began_s, span.ended_s) for span in run] for run in runs])


def neighbours(threads: int, sizes: Sequence[int], cores: int) -> Iterator[tuple[int, int]]:
    """(first core, cores) of the lanes that fill the cores beside the first ``threads``.

    Of lanes of the same size where they fit, else of the largest size that does.

    Args:
        sizes: that lanes can have.
        cores: that there are.
    """
    first = threads
    while fitting := [size for size in sizes if size <= cores - first]:
        size = threads if threads in fitting else max(fitting)
        yield first, size
        first += size


def _durations(spans: NDArray[Any]) -> NDArray[Any]:
    """(groups,) median seconds of each."""
    return np.asarray(np.median(spans[:, :, 1] - spans[:, :, 0], axis=0))


def _runnable(pieces: Sequence[Piece], flat: Flat) -> list[Piece]:
    """``pieces`` in an order in which each comes after what it reads."""
    edges = flat.edges
    left, done, order = list(pieces), set[int](), []
    while left:
        piece = next(
            p for p in left if all(read in done or read in p.calls for call in p.calls for read in edges[call])
        )
        left.remove(piece)
        done.update(piece.calls)
        order.append(piece)
    return order


def _alternating(calls: int, lanes: int) -> tuple[Group, ...]:
    """Every call a group, on the first ``lanes`` lanes in turn, each after the one before."""
    return tuple(Group("", number % lanes, 1, (number - 1,) if number else ()) for number in range(calls))


def _bytes_between(writer: Sequence[Operand], reader: Sequence[Operand]) -> int:
    """Bytes that one call writes and the next reads."""
    output = writer[-1]
    if all((operand.place, operand.index) != (output.place, output.index) for operand in reader[:-1]):
        return 0
    return int(np.prod(output.shape)) * np.dtype(output.dtype).itemsize
