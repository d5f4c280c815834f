"""A CPU beside a simulated device of a fixed speed: ``python -m research.lane_device MODEL[:SECONDS]…``.

The device is as fast as ``--cores`` cores of this CPU: it takes for a subgraph what one core took when it was loaded
first, divided by so many, and copies as fast as PCIe. It computes each result once and then only waits as long, so that
it takes no core away. Its speed is made up: what is shown is how much of the gain that the costs allow is measured, not
how fast any device is. Operators are cut between the two where ``tune run --lanes cpu,sim:0`` says so; with ``--whole``
none is. ``research.auto_lanes tune`` makes the artifact of the CPU alone and the log before.

The bound is the gain of lanes that could divide every subgraph's work between them at any point, and copy for nothing.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.artifact.directory import Artifact, read_artifact
from autotune.backends.executor import Arrays
from autotune.builder.devices import cores_and_devices
from autotune.cli.reply import table
from autotune.graph.device_problem import problem_of
from autotune.graph.merge import JOIN
from autotune.graph.placement import Problem
from autotune.options import Options
from autotune.runtime.model_timing import Run, median_s, session_run
from autotune.runtime.session import InferenceSession
from autotune.tuning import coupled
from autotune.tuning.tune import tune
from autotune.validation.verify import session_inputs
from research.auto_lanes import FOLDER
from research.duet import stolen_s
from tests.models.catalog import cached
from tests.simulated import stand_in
from tests.simulated.software_device import DeviceProgram, SoftwareDevice
from tests.simulated.software_program import SoftwareProgram

LANES = "cpu,sim:0"
MEASURED_S = 0.1
"""Seconds for which a subgraph is timed on one core."""

SAMPLE = 61
"""Of so many values of an input one tells whether it was met before."""

ROUNDS, WARM, REST_S = 40, 5, 0.02
HEADS = ["model", "cores", "operators cut", "CPU ms", "device ms", "placed ms", "predicted", "off by", "gain"]
HEADS += ["quartiles", "bound", "stolen"]


class Replaying(SoftwareDevice):
    """A simulated device of a fixed speed, of so many cores, that takes no core away."""

    cores = 1.0

    def program(self, part: Artifact) -> DeviceProgram:
        return Replayed(self, part)


class Replayed:
    """A subgraph whose results are computed once for every input."""

    seconds: dict[int, float] = {}  # noqa: RUF012  (of every library: a subgraph that is loaded again is as fast)

    def __init__(self, device: SoftwareDevice, part: Artifact) -> None:
        self._device, self._program = device, SoftwareProgram(device, part)
        library = zlib.crc32(part.library.read_bytes())
        if library not in self.seconds:
            zeros = [np.zeros(spec.shape, spec.dtype) for spec in part.inputs]
            self.seconds[library] = median_s(lambda: _seconds(lambda: self._program.results(zeros)), MEASURED_S)
        self._seconds = self.seconds[library] / Replaying.cores
        self._known: dict[tuple[bytes, ...], list[Any]] = {}

    def run(self, inputs: Arrays, outputs: Arrays) -> None:
        def work() -> None:
            key = tuple(array.reshape(-1)[::SAMPLE].tobytes() for array in inputs)
            if key not in self._known:
                self._known[key] = [np.array(array) for array in self._program.results(inputs)]
            for place, array in zip(outputs, self._known[key], strict=True):
                place[...] = array.view(place.dtype).reshape(place.shape)

        self._device.occupy(work, self._seconds)

    def close(self) -> None:
        self._program.close()


def _seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def placed_artifact(name: str, budget_s: float, whole: bool) -> tuple[Path, float]:
    """``name`` tuned for both, built and placed; and the bound of its gain, 1 where it was not cut."""
    if whole:
        coupled.worth_cutting = lambda *_: lambda _node, _scope: None
    problems: list[Problem] = []

    def noted(*arguments: Any) -> tuple[Problem, list[str]]:
        result = problem_of(*arguments)
        problems.append(result[0])
        return result

    cores_and_devices.problem_of = noted  # type: ignore[assignment]
    out = FOLDER / f"{name}-sim{'-whole' if whole else ''}.tuned"
    tune(cached(name), Options(out=out, log=FOLDER / f"{name}.db", lanes=LANES, budget_s=budget_s, peer=False))
    parts = max(problems, key=lambda problem: problem.count, default=None)  # another one is of the whole
    return out, divided_bound(parts) if parts else 1.0


def divided_bound(problem: Problem) -> float:
    """The most that the lanes 0 and 1 together could gain over lane 0 if all work could be divided at any point.

    The subgraphs that the other lane is best at go there first, the last of them in part, until both end together.
    """
    pairs = [(cpu or 0.0, device) for cpu, device in problem.alone]
    left = total = sum(cpu for cpu, _ in pairs)
    there = 0.0
    able = [(device / cpu, cpu) for cpu, device in pairs if cpu and device is not None]
    for relative, cpu in sorted(able):
        share = min(1.0, max(0.0, (left - there) / (cpu * (1.0 + relative))))
        left, there = left - share * cpu, there + share * cpu * relative
    return total / left


def row(name: str, out: Path, bound: float) -> list[str]:
    """A line of the table: what was placed and one lane in turn."""
    cores = f"{Replaying.cores:g}"
    artifact = read_artifact(out)
    ms = artifact.provenance["lanes"]["ms"]
    alone = [f"{ms[lane]:.2f}" for lane in ("CPU alone", "sim:0 alone")]
    placed, steps = artifact.plan.lanes, artifact.steps
    if placed is None:
        tried = [f"{value:.2f}" for way, value in ms.items() if way.startswith("placed")]
        kept = f"one lane is kept; placed {', '.join(tried) or 'nowhere'}"
        return [out.stem, cores, "–", *alone, kept, *[""] * 4, f"{bound:.2f}", ""]
    joins = sum(step.symbol == JOIN for step in steps.calls)
    runs = []
    for path in (FOLDER / f"{name}-one.tuned", out):
        session = InferenceSession(path)
        runs.append(session_run(session, session_inputs(session, 0)))
    began, stolen = time.perf_counter(), stolen_s()
    rounds = [[_second(run) for run in runs] for _ in range(WARM + ROUNDS)][WARM:]
    low, middle, high = statistics.quantiles((one / both for one, both in rounds), n=4)
    took = statistics.median(both for _, both in rounds)
    times = [f"{1e3 * took:.2f}", f"{1e3 * placed.predicted_s:.2f}", f"{took / placed.predicted_s - 1.0:+.1%}"]
    gain = [f"{middle:.3f}", f"{low:.3f}–{high:.3f}", f"{bound:.2f}"]
    share = (stolen_s() - stolen) / (time.perf_counter() - began)
    return [out.stem, cores, str(joins), *alone, *times, *gain, f"{share:.0%}"]


def _second(run: Run) -> float:
    """Seconds of a run behind another one, after a rest in which the threads of the model before have gone to sleep."""
    time.sleep(REST_S)
    run()
    return run()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL[:SECONDS]")
    parser.add_argument("--whole", action="store_true", help="cut no operators")
    parser.add_argument("--cores", type=float, default=1.0, help="that the device is as fast as")
    arguments = parser.parse_args()
    Replaying.cores = arguments.cores
    stand_in.SoftwareDevice = Replaying  # type: ignore[misc]  # for all that opens a device here
    stand_in.stand_in(pytest.MonkeyPatch())
    for named in arguments.models:
        name, _, budget = named.partition(":")
        cells = row(name, *placed_artifact(name, float(budget or 20), arguments.whole))
        print("\n".join(table(HEADS, [cells])), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
