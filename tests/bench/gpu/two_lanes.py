"""``python -m tests.bench.gpu.two_lanes [MODEL]``: a CPU+GPU plan, compiled without a GPU and checked kernel by kernel.

The model is cut and placed as by ``--lanes`` (autotune/graph), with one lane of all CPU threads and one GPU lane:

    cut      phases and branches of the GPU's program; a kernel that no GPU schedule fits can run on the CPU lane only
    costs    rooflines, nothing measured: the CPU's from its measured peak, the GPU's from the numbers below
    place    exactly, by branch and bound
    build    every lane's kernels into a library of its own: LLVM's for the CPU, cubins for the GPU
    check    a kernel's machine code is in its own lane's library, and in that alone; all cubins are for our arch

Nothing runs on a GPU, and no artifact with a GPU lane is written: its executor does not exist.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import tvm

from autotune.cuda.builder import Wanted, build_kernels
from autotune.duet import outline
from autotune.graph.exact import exact
from autotune.graph.flat import Flat
from autotune.graph.lanes import Lane, cpu_lane
from autotune.graph.partition import Subgraph
from autotune.graph.placement import Placement, Problem, simulate
from autotune.importer.program import Program
from autotune.importing import import_model
from autotune.machine import host_target
from autotune.measure.base import symbol_of
from autotune.peak import measure_peak
from schedules.errors import ScheduleError
from schedules.lower import BASELINE, claim, load_program, lower, tvm_target
from schedules.target import Target
from schedules.task import Task
from tests.bench.gpu.cubins import machine_code
from tests.models.catalog import cached

GPU_GFLOPS, GPU_GB_S = 30e3, 3e3
"""Half of what NVIDIA's data sheet says of an H200's float32 and memory; a guess, to place by."""
LAUNCH_S = 3e-6
CROSSING_S, CROSSING_BYTES_PER_S = 20e-6, 20e9
"""From host to device and back: a guess for PCIe 5."""


@dataclass(frozen=True)
class Plan:
    """What runs where.

    Attributes:
        lanes: subgraph's name → its lane's.
        spans: simulated begin and end of each, seconds.
        kernels: lane → symbols of its kernels.
        libraries: lane → what was built.
    """

    lanes: Mapping[str, str]
    spans: Mapping[str, tuple[float, float]]
    kernels: Mapping[str, tuple[str, ...]]
    libraries: Mapping[str, Path]


def make_plan(model: Path, arch: str, out: Path, launch_s: float = LAUNCH_S, crossing_s: float = CROSSING_S) -> Plan:
    """Cut, place and build ``model`` for this CPU and a GPU of ``arch``.

    Args:
        launch_s: that a kernel costs on the GPU beside its roofline.
        crossing_s: that a subgraph's results cost on their way to the other lane, beside their bytes.

    Raises:
        ScheduleError: if the model cannot be cut.
    """
    gpu, cpu = Target.cuda(arch), host_target()
    _, program = import_model(model, {}, gpu)
    drawn = outline(program, gpu)
    if drawn is None:
        raise ScheduleError(f"{model.name} runs on TVM's virtual machine and cannot be cut")
    flat, cut = drawn
    lanes = (cpu_lane(0, cpu.threads), Lane("cuda:0", cpu.threads, 1))
    costs = _costs(program, cpu, gpu, launch_s)
    problem = _problem(flat, cut.subgraphs, cut.needs(flat.edges), lanes, costs, crossing_s)
    placement = exact(problem).placement
    kernels = _kernels(flat, cut.subgraphs, placement, lanes)
    libraries = {"cpu": out / "cpu.so", "cuda:0": out / "cuda.so"}
    tasks = {symbol_of(task.key): task for task in program.tasks}
    _build_cpu([tasks[symbol] for symbol in kernels[lanes[0].name]], program, cpu, libraries["cpu"])
    wanted = [_wanted(tasks[symbol], program) for symbol in kernels["cuda:0"]]
    build_kernels(wanted, gpu, libraries["cuda:0"])
    spans = simulate(problem, placement)
    names = [part.name for part in cut.subgraphs]
    where = {name: lanes[lane].name for name, lane in zip(names, placement.lanes, strict=True)}
    by_lane = {lanes[0].name: libraries["cpu"], "cuda:0": libraries["cuda:0"]}
    return Plan(where, dict(zip(names, spans, strict=True)), kernels, by_lane)


def wrong_kernels(plan: Plan, arch: str) -> list[str]:
    """What is wrong with each kernel that is not where it belongs; empty if all are."""
    found = []
    for lane, library in plan.libraries.items():
        code = list(machine_code(library))
        for symbol in plan.kernels[lane]:
            own = [kernel for kernel in code if kernel.name.startswith(f"{symbol}_kernel")]
            if lane.startswith("cpu") and own:
                found.append(f"{symbol} belongs on {lane} and is GPU code")
            if lane.startswith("cuda") and {kernel.arch for kernel in own} != {arch}:
                found.append(f"{symbol} belongs on {lane} and has no code for {arch}")
        known = tuple(f"{symbol}_kernel" for symbol in plan.kernels[lane])
        found += [f"{kernel.name} is not of {lane}" for kernel in code if not kernel.name.startswith(known)]
    return found


def _costs(program: Program, cpu: Target, gpu: Target, launch_s: float) -> dict[str, tuple[float, float | None]]:
    """Symbol → seconds of one call on the CPU and on the GPU; None where the GPU cannot run it."""
    peak = measure_peak(cpu)
    found: dict[str, tuple[float, float | None]] = {}
    for task in program.tasks:
        device = launch_s + max(task.flop / GPU_GFLOPS, task.bytes / GPU_GB_S) / 1e9
        fits = _fits(program, task, gpu)
        found[symbol_of(task.key)] = peak.bound_s(task.flop, task.bytes), device if fits else None
    return found


def _fits(program: Program, task: Task, gpu: Target) -> bool:
    try:
        lower(load_program(program.programs[task.key]), BASELINE, gpu)
    except ScheduleError:
        return False
    return True


def _problem(
    flat: Flat,
    parts: tuple[Subgraph, ...],
    needs: tuple[tuple[int, ...], ...],
    lanes: tuple[Lane, ...],
    costs: Mapping[str, tuple[float, float | None]],
    crossing_s: float,
) -> Problem:
    def cost(part: Subgraph, lane: int) -> float | None:
        each = [costs[flat.calls[call].symbol][lane] for call in part.nodes if call not in flat.removed]
        known = [seconds for seconds in each if seconds is not None]
        return sum(known) if len(known) == len(each) else None

    alone = tuple((cost(part, 0), cost(part, 1)) for part in parts)
    sizes = tuple(flat.calls[part.nodes[-1]].bytes for part in parts)
    return Problem(lanes, needs, alone, alone, sizes, crossing_s, CROSSING_BYTES_PER_S)


def _kernels(
    flat: Flat, parts: tuple[Subgraph, ...], placement: Placement, lanes: tuple[Lane, ...]
) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {lane.name: {} for lane in lanes}
    for part, lane in zip(parts, placement.lanes, strict=True):
        found[lanes[lane].name].update({flat.calls[c].symbol: None for c in part.nodes if c not in flat.removed})
    return {lane: tuple(symbols) for lane, symbols in found.items()}


def _build_cpu(tasks: list[Task], program: Program, cpu: Target, library: Path) -> None:
    functions = {}
    for task in tasks:
        func = load_program(program.programs[task.key])
        first = (*claim(func, cpu).space.first, BASELINE)[0]
        functions[symbol_of(task.key)] = (
            lower(func, first, cpu).mod["main"].with_attr("global_symbol", symbol_of(task.key))
        )
    tvm.compile(tvm.IRModule(functions), target=tvm_target(cpu)).export_library(str(library))


def _wanted(task: Task, program: Program) -> Wanted:
    first = program.spaces[task.key].first
    return Wanted(symbol_of(task.key), program.programs[task.key], (*first, BASELINE))


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu.two_lanes", description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="wide_deep")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--out", type=Path, default=Path("build/two_lanes"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    plan = make_plan(cached(arguments.model), arguments.arch, arguments.out)
    (arguments.out / "plan.json").write_text(json.dumps(asdict(plan), indent=1, default=str))
    for name, lane in plan.lanes.items():
        begin, end = plan.spans[name]
        print(f"subgraph {name:6} on {lane:8} {1e6 * begin:8.1f} to {1e6 * end:8.1f} µs by rooflines")
    wrong = wrong_kernels(plan, arguments.arch)
    counts = ", ".join(f"{len(symbols)} on {lane}" for lane, symbols in plan.kernels.items())
    print("\n".join(wrong) or f"all kernels are built for their devices: {counts} ({arguments.arch})")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
