"""What subgraphs cost on the CPU's threads and on a device, and which of the two each should run on.

A subgraph's cost on a device holds the copies of its inputs and outputs, since what passes between subgraphs lies in
the host's memory; so handing over from one lane to the other costs no more. Where no device is at hand its cost is a
bound: the roofline of the data sheet at ``EFFICIENCY``, a launch per kernel, and the copies at ``COPY_BYTES_PER_S``.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune.build.lane_timing import RUNS, WARM_RUNS
from autotune.graph.exact import exact
from autotune.graph.lanes import Lane
from autotune.graph.placement import Placement, Problem
from autotune.graph.placers import correction
from autotune.host.dtypes import numpy_type
from autotune.host.roofline import Peak
from autotune.importer.onnx_model.branches import Branch
from autotune.importer.program import Program, TensorSpec
from autotune.runtime.plain_session import InferenceSession
from autotune.validation.verify import random_inputs

EFFICIENCY = 0.5
"""Of a GPU's roofline that a tuned kernel of a small batch is taken to reach; a guess, used only without a device."""
LAUNCH_S = 3e-6
"""Of a kernel in a CUDA graph."""
HAND_OVER_S = 20e-6
"""A copy's latency, launching a graph and waiting for it."""
COPY_BYTES_PER_S = 20e9
"""Through PCIe 4 × 16, whose 32 GB/s copies do not reach."""

DRIVER_S = 2e-6
"""Of handing over between threads of the driver of lanes, rounded up (docs/duet.md)."""


@dataclass(frozen=True)
class Costs:
    """Seconds of one subgraph.

    Attributes:
        cpu, device: with the other lane idle; ``device`` is None where it cannot run there.
        cpu_busy, device_busy: with it at work; as alone where that was not measured.
        measured: whether the device's are measured, not bounds.
    """

    cpu: float
    device: float | None
    cpu_busy: float
    device_busy: float | None
    measured: bool


def device_bound_s(program: Program, peak: Peak) -> float:
    """Seconds that ``program`` should take on a device that is not at hand, its copies included.

    Args:
        program: imported for the device.
        peak: of the device, by its data sheet.
    """
    kernels = sum(
        task.weight
        * (LAUNCH_S + peak.bound_s(int(task.flop / program.spaces[task.key].saving), task.bytes) / EFFICIENCY)
        for task in program.tasks
    )
    moved = sum(_bytes(spec) for spec in (*program.inputs, *program.outputs))
    return kernels + HAND_OVER_S + moved / COPY_BYTES_PER_S


def _bytes(spec: TensorSpec) -> int:
    return math.prod(spec.shape) * numpy_type(spec.dtype).itemsize


def whole_runs(session: InferenceSession, specs: Sequence[TensorSpec], seed: int) -> Callable[[], float]:
    """A function that runs ``session`` once on random inputs and answers the seconds it took."""
    feed = random_inputs(list(specs), seed)

    def run() -> float:
        began = time.perf_counter()
        session.run(None, feed)
        return time.perf_counter() - began

    return run


def median_s(run: Callable[[], float]) -> float:
    """Median seconds after a warm-up."""
    for _ in range(WARM_RUNS):
        run()
    return statistics.median(run() for _ in range(RUNS))


def problem_of(branches: Sequence[Branch], costs: Sequence[Costs], lanes: tuple[Lane, Lane]) -> Problem:
    """Placing ``branches`` on the CPU and the device."""
    maker = {name: number for number, branch in enumerate(branches) for name in branch.outputs}
    needs = tuple(
        tuple(sorted({maker[name] for name in branch.inputs if name in maker} - {number}))
        for number, branch in enumerate(branches)
    )
    return Problem(
        lanes,
        needs,
        tuple((cost.cpu, cost.device) for cost in costs),
        tuple((cost.cpu_busy, cost.device_busy) for cost in costs),
        tuple(0 for _ in branches),
        DRIVER_S,
    )


def placements_of(problem: Problem) -> list[Placement]:
    """The exact placement, then greedy-correction's if that is another one."""
    found = [exact(problem).placement, correction(problem)]
    return found[:1] if found[0].lanes == found[1].lanes else found
