"""What subgraphs cost on each kind of lane, measured: alone, beside a busy neighbour, and the way from lane to lane.

Everything is measured on the machine that will run the model, by the driver that will run it, from the model's own
kernels in their own order, so caches are as warm as they will be:

    alone       all subgraphs in a row on one lane, every other core idle
    busy        the same while every other core runs the model's other subgraphs again and again
    transfer    neighbouring calls on one core, then in turn on two: what is longer is the price of crossing, and a
                line through it over the bytes that cross gives latency and bandwidth
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import tvm

from autotune.backends.cpu.lane_executor import LaneExecutor
from autotune.backends.executor import Tensors
from autotune.graph.flat import Flat
from autotune.graph.lanes import cpu_lane
from autotune.graph.partition import Subgraph
from autotune.graph.steps import Group, Operand, Piece, Steps, arrange

RUNS = 15
"""Timed runs of the whole model per cost; the median of each subgraph counts."""
WARM_RUNS = 3
LEAST_BYTES_PER_S = 1e9
"""Of reading what another core wrote: slower than this is noise on a model whose tensors are small."""
LONGEST_LATENCY_S = 20e-6

QUIET_S = 3e-3
"""After a run threads spin for 2 ms, on the cores that another machine is about to be timed on."""

Libraries = Mapping[int, tvm.runtime.Module]


@dataclass(frozen=True)
class Transfer:
    """The price of crossing from one lane to another: ``latency_s`` + bytes · ``s_per_byte``."""

    latency_s: float
    s_per_byte: float


@dataclass(frozen=True)
class Bench:
    """What costs are measured with.

    Attributes:
        libraries: threads → kernels built for so many.
        flats: threads → the program specialised for so many, with aligned weights.
        inputs: to run on.
        cpus: logical CPU of every core.
    """

    libraries: Libraries
    flats: Mapping[int, Flat]
    inputs: Tensors
    cpus: Sequence[int]

    def alone(self, subgraphs: Sequence[Subgraph], threads: int) -> dict[str, float]:
        """Name → seconds of each of ``subgraphs`` on a lane of ``threads`` threads; nothing else is run.

        Those whose calls have all vanished are left out.
        """
        with self._machine(self._only(subgraphs, threads), self.cpus[:threads]) as machine:
            return _by_name(machine, self.inputs)

    def busy(self, subgraphs: Sequence[Subgraph], threads: int) -> dict[str, float]:
        """As ``alone``, with all other cores at work on the same subgraphs, as lanes of as many threads."""
        neighbours = [self.cpus[at : at + threads] for at in range(threads, len(self.cpus) - threads + 1, threads)]
        steps = self._only(subgraphs, threads)
        with ExitStack() as stack:
            machine = stack.enter_context(self._machine(steps, self.cpus[:threads]))
            for cpus in neighbours:
                neighbour = stack.enter_context(self._machine(steps, cpus))
                stack.enter_context(at_work(_run(neighbour, self.inputs)))
            return _by_name(machine, self.inputs)

    def transfer(self, subgraphs: Sequence[Subgraph]) -> Transfer:
        """The price of crossing between lanes of one thread, from calls that follow each other."""
        steps = self._only(subgraphs, 1)
        lanes = (cpu_lane(0, 1), cpu_lane(1, 1))
        calls = len(steps.calls)
        one = Steps(steps.calls, steps.outputs, steps.arena_bytes, steps.weights, lanes, _alternating(calls, 1))
        two = replace(one, groups=_alternating(calls, 2))
        with self._machine(one, self.cpus[:2]) as here, self._machine(two, self.cpus[:2]) as across:
            together = np.array(_medians(here, self.inputs))
            gaps = np.array(_gaps(across, self.inputs))
            apart = np.array(_medians(across, self.inputs))
        moved = np.array([_bytes_between(a.operands, b.operands) for a, b in pairwise(steps.calls)])
        extra = apart[1:] - together[1:]
        crossing = moved > 0
        if not crossing.any():
            return Transfer(float(np.median(gaps)) if len(gaps) else 0.0, 0.0)
        # Seconds per byte from the sum over all calls: single calls are noisier than what crossing costs.
        per_byte = float(np.clip(extra[crossing].sum() / moved[crossing].sum(), 0.0, 1.0 / LEAST_BYTES_PER_S))
        return Transfer(float(np.clip(np.median(gaps), 0.0, LONGEST_LATENCY_S)), per_byte)

    def end_to_end(self, candidates: Sequence[Steps], seconds: float) -> list[float]:
        """Median seconds of whole runs of each candidate, timed in turn so that drift meets all of them alike."""
        with ExitStack() as stack:
            machines = [stack.enter_context(self._machine(steps, self.cpus)) for steps in candidates]
            return race([_run(machine, self.inputs) for machine in machines], seconds)

    def timeline(self, steps: Steps) -> list[tuple[float, float]]:
        """Median begin and end of every group of ``steps``, seconds."""
        with self._machine(steps, self.cpus) as machine:
            runs = [[(span.began_s, span.ended_s) for span in machine.timeline(self.inputs)] for _ in range(RUNS)]
        middle = np.median(np.array(runs[WARM_RUNS:]), axis=0)
        return [(float(began), float(ended)) for began, ended in middle]

    def _only(self, subgraphs: Sequence[Subgraph], threads: int) -> Steps:
        """``subgraphs`` in a row on one lane; what the rest of the program would have written is left as it is."""
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
        return Steps(tuple(kept), steps.outputs, steps.arena_bytes, steps.weights, steps.lanes, tuple(groups))

    @contextmanager
    def _machine(self, steps: Steps, cpus: Sequence[int]) -> Iterator[LaneExecutor]:
        machine = LaneExecutor(self.libraries, steps, steps.weights, cpus)
        try:
            yield machine
        finally:
            machine.close()


def race(runs: Sequence[Callable[[], float]], seconds: float) -> list[float]:
    """Median of every one of ``runs``, which each answer the seconds of one run; in turn, for about ``seconds``."""
    series: list[list[float]] = [[] for _ in runs]
    for run in runs:
        for _ in range(WARM_RUNS):
            run()
    spent, order = 0.0, list(range(len(runs)))
    while spent < seconds or len(series[0]) < RUNS:
        for index in order:
            time.sleep(QUIET_S)
            runs[index]()  # warms its caches again: in use nobody else runs in between
            series[index].append(runs[index]())
            spent += 2 * series[index][-1]
        order.reverse()
    return [statistics.median(times) for times in series]


def _run(machine: LaneExecutor, inputs: Tensors) -> Callable[[], float]:
    def run() -> float:
        spans = machine.timeline(inputs)
        return max(span.ended_s for span in spans)

    return run


def _runnable(pieces: Sequence[Piece], flat: Flat) -> list[Piece]:
    """``pieces`` in an order in which each comes after what it reads."""
    edges = flat.edges
    left, done, order = list(pieces), set[int](), []
    while left:
        for piece in left:
            inside = set(piece.calls)
            if all(read in done or read in inside for call in piece.calls for read in edges[call]):
                break
        left.remove(piece)
        done.update(piece.calls)
        order.append(piece)
    return order


def _alternating(calls: int, lanes: int) -> tuple[Group, ...]:
    """Every call a group, on the first ``lanes`` lanes in turn, each after the one before."""
    return tuple(Group("", number % lanes, 1, (number - 1,) if number else ()) for number in range(calls))


def _bytes_between(writer: Sequence[Operand], reader: Sequence[Operand]) -> int:
    """Bytes that one call writes and the next reads."""
    made = writer[-1]
    for operand in reader[:-1]:
        if (operand.place, operand.index) == (made.place, made.index):
            return int(np.prod(made.shape)) * np.dtype(made.dtype).itemsize
    return 0


def _by_name(machine: LaneExecutor, inputs: Tensors) -> dict[str, float]:
    return dict(zip((group.name for group in machine.groups), _medians(machine, inputs), strict=True))


def _medians(machine: LaneExecutor, inputs: Tensors) -> list[float]:
    for _ in range(WARM_RUNS):
        machine.timeline(inputs)
    runs = [[span.seconds for span in machine.timeline(inputs)] for _ in range(RUNS)]
    return [float(value) for value in np.median(np.array(runs), axis=0)]


def _gaps(machine: LaneExecutor, inputs: Tensors) -> list[float]:
    """Seconds between the end of each group and the begin of the next."""
    for _ in range(WARM_RUNS):
        machine.timeline(inputs)
    runs = []
    for _ in range(RUNS):
        spans = machine.timeline(inputs)
        runs.append([after.began_s - before.ended_s for before, after in pairwise(spans)])
    return [float(value) for value in np.median(np.array(runs), axis=0)] if runs[0] else []


@contextmanager
def at_work(run: Callable[[], float]) -> Iterator[None]:
    """Keep calling ``run`` in a thread of its own."""
    enough = threading.Event()

    def work() -> None:
        while not enough.is_set():
            run()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()
