"""Which sizes of lanes are tuned for, which tasks each of them may run, and their shares of the budget."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from autotune.artifact.apply_plan import apply_plan
from autotune.artifact.plan import Choice, Plan
from autotune.backends.backend_catalog import backend_of
from autotune.backends.cpu.linking import concats_of
from autotune.graph.flat import Flat
from autotune.graph.flattening import read_flat
from autotune.graph.lanes import Lane
from autotune.graph.partition import Partition, Subgraph, partition
from autotune.importer.program import Program
from autotune.measure.measurer import symbol_of
from schedules.lower import BASELINE, Spaces
from schedules.target import Target

logger = logging.getLogger(__name__)

PROMISING = 1.15
"""Gain below which several lanes are not considered, if every branch could run beside the others at no cost. What is
really gained is what parallel loops lose, a sixth of that or less: SqueezeNet (1.11) and ResNet-50 (1.13) never did."""

SIDE_SHARE = 0.4
"""Share of the budget for lanes that leave cores to others, where the model could become twice as fast; in proportion
less where less can be gained, since the kernels of all threads lose it (docs/lab: branches, figures)."""


@dataclass(frozen=True)
class Size:
    """The kernels to tune for lanes of one size.

    Attributes:
        tasks: keys.
        share: of the budget.
    """

    tasks: frozenset[str]
    share: float


def plan_sizes(program: Program, whole: Target, lanes: tuple[Lane, ...]) -> dict[int, Size]:
    """Threads of a lane → what is tuned for such lanes.

    Lanes that leave cores to others are tuned for what may run side by side, if that could gain anything at best.
    """
    everything = frozenset(task.key for task in program.tasks)
    sizes = sorted({lane.threads for lane in lanes}, reverse=True)
    only_whole = {sizes[0]: Size(everything, 1.0)}
    if len(lanes) == 1 and sizes[0] == whole.threads:
        return only_whole
    cut = cut_program(program, whole)
    if sizes[0] != whole.threads:
        return {threads: Size(everything, 1.0 / len(sizes)) for threads in sizes}
    gain = possible_gain(*cut, bounds_of(program, whole))
    logger.debug("phases that run side by side could make the model %.2f times as fast at best", gain)
    if gain < PROMISING:
        return only_whole
    share = SIDE_SHARE * min(1.0, gain - 1.0)
    rest = {threads: Size(parallel_tasks(*cut), share / (len(sizes) - 1)) for threads in sizes[1:]}
    return {sizes[0]: Size(everything, 1.0 - share), **rest}


def for_threads(program: Program, target: Target) -> Program:
    """``program`` with the spaces that ``target`` has."""
    return replace(program, spaces=Spaces(program.programs, target, program.open_sizes))


def operations(program: Program) -> int:
    """Return the floating-point operations of one inference."""
    return sum(task.flop * task.weight for task in program.tasks)


def cut_program(program: Program, target: Target) -> tuple[Flat, Partition]:
    """The program's calls and phases."""
    untuned = Plan(target, tuple(Choice(task.key, BASELINE, None) for task in program.tasks))
    flat = read_flat(apply_plan(program, untuned), concats_of(program))
    return flat, partition(flat.edges)


def parallel_tasks(flat: Flat, cut: Partition) -> frozenset[str]:
    """Keys of the tasks that multi-path phases call."""
    branches = [branch for phase in cut.phases if phase.is_multi_path for branch in phase.branches]
    calls = (call for branch in branches for part in branch for call in part.nodes)
    return frozenset(flat.calls[call].symbol.removeprefix(symbol_of("")) for call in calls)


def bounds_of(program: Program, target: Target) -> dict[str, float]:
    """Symbol → least seconds of one call on ``target``, by the roofline."""
    roofline = backend_of(target).roofline(target)
    least = {task: int(task.flop / program.spaces[task.key].saving) for task in program.tasks}
    return {symbol_of(task.key): roofline.bound_s(flop, task.bytes, task.dtypes) for task, flop in least.items()}


def possible_gain(flat: Flat, cut: Partition, seconds: Mapping[str, float]) -> float:
    """Return how much faster the model could be if each phase took no longer than its longest branch.

    Args:
        seconds: symbol → seconds of one call on all threads, measured or a bound.
    """

    def cost(part: Subgraph) -> float:
        return sum(seconds.get(flat.calls[call].symbol, 0.0) for call in part.nodes if call not in flat.removed)

    phases = [[sum(map(cost, branch)) for branch in phase.branches] for phase in cut.phases]
    whole, least = sum(map(sum, phases)), sum(map(max, phases))
    return whole / least if least > 0.0 else 1.0
