"""Placing a tuned model on lanes: cut, measure, place, measure again, and keep whatever is fastest.

DUET (IPDPS 2021) in five steps: partition (graph/partition.py), compiler-aware profiling (graph/costs.py), placement
(graph/placers.py, graph/exact.py), end-to-end measurement, and the fall-back to one lane where that is faster.
"""

from __future__ import annotations

import hashlib
import logging
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray

from autotune.artifact.apply_plan import specialise
from autotune.artifact.plan import Choice, LanePlan, Placed, Plan, make_plan
from autotune.backends.cpu.libraries import open_library
from autotune.backends.cpu.linking import compile_kernels, concats_of, link_kernels
from autotune.backends.executor import Tensors
from autotune.build.lane_timing import Bench, Transfer
from autotune.graph.exact import exact
from autotune.graph.flat import Flat, read_flat
from autotune.graph.lanes import Lane
from autotune.graph.partition import Partition, Subgraph, partition, refine
from autotune.graph.placement import Placement, Problem, simulate
from autotune.graph.placers import correction
from autotune.graph.steps import Piece, Steps, arrange
from autotune.host.machine import thread_cpus
from autotune.host.pages import ALIGNMENT, paged
from autotune.host.roofline import measure_peak
from autotune.importer.program import Program
from autotune.measure.measurer import Workshop, symbol_of
from autotune.options import Options
from schedules.config import Config
from schedules.errors import MissingRecordError, UsageError
from schedules.lower import BASELINE, claim, load_program
from schedules.target import Target
from tuning_logs.measurement import Measurement
from tuning_logs.record import RecordKey, TuningRecord
from tuning_logs.store import LogStore

logger = logging.getLogger(__name__)

PIECES = (1, 4)
"""Into how many pieces the longest branch of a phase may be cut; each is placed, and the fastest is kept."""

WORTH = 1.02
"""Several lanes are kept only if they are faster than one by this factor: below it is noise."""

PROMISING = 1.15
"""Below this possible gain, with every branch running beside the others for nothing, lanes are not looked at. What is
really gained is what parallel loops lose, a sixth of it or less: SqueezeNet (1.11) and ResNet-50 (1.13) never did."""

SIDE_SHARE = 0.4
"""Of the budget, for kernels of lanes that leave cores to others, where the model could be twice as fast so; in
proportion less where less can be gained, since what they get is lost to the kernels of all threads."""

LEAST_S = 1e-12
"""Stands for no time in a log."""

RACE_S = 1.5
"""Seconds for which the placements are timed against each other."""


@dataclass(frozen=True)
class Kind:
    """Kernels for lanes of one size.

    Attributes:
        target: with the lane's threads.
        program: with the spaces of that target.
        tasks: keys of the tasks that such lanes may run.
        workshop: compiles for it.
    """

    target: Target
    program: Program
    tasks: frozenset[str]
    workshop: Workshop

    @property
    def tunable(self) -> Program:
        """The program with no task but its own."""
        return replace(self.program, tasks=tuple(task for task in self.program.tasks if task.key in self.tasks))

    def plan(self, log: LogStore, frozen: bool, most_loss: int) -> Plan:
        """The best known kernels of its own tasks; the others are left untuned, and not built."""
        own = self.tunable
        best = make_plan(own.tasks, own.spaces, self.target, log, frozen, most_loss)
        rest = (Choice(task.key, BASELINE, None) for task in self.program.tasks if task.key not in self.tasks)
        return Plan(self.target, tuple(sorted((*best.choices, *rest), key=lambda choice: choice.task)))


@dataclass(frozen=True)
class Size:
    """What is tuned for lanes of one size.

    Attributes:
        tasks: keys.
        share: of the budget.
    """

    tasks: frozenset[str]
    share: float


def plan_sizes(program: Program, whole: Target, lanes: tuple[Lane, ...], options: Options) -> dict[int, Size]:
    """Threads of a lane → what is tuned for such lanes.

    Lanes that leave cores to others are tuned for what may run side by side, if that could gain anything at best.

    Raises:
        UsageError: if lanes were asked for by name and the program cannot be cut.
    """
    everything = frozenset(task.key for task in program.tasks)
    sizes = sorted({lane.threads for lane in lanes}, reverse=True)
    if len(lanes) == 1 and sizes[0] == whole.threads:
        return {sizes[0]: Size(everything, 1.0)}
    drawn = outline(program, whole)
    if drawn is None:
        if sizes[0] == whole.threads:
            return {sizes[0]: Size(everything, 1.0)}
        raise UsageError(
            f"--lanes {options.lanes}: this model runs on TVM's virtual machine and cannot be cut; give cpu"
        )
    if sizes[0] != whole.threads:
        return {threads: Size(everything, 1.0 / len(sizes)) for threads in sizes}
    flat, cut = drawn
    gain = possible_gain(flat, cut, bounds_of(program, whole))
    logger.debug("phases that run side by side could make the model %.2f times as fast at best", gain)
    if gain < PROMISING:
        return {sizes[0]: Size(everything, 1.0)}
    share = SIDE_SHARE * min(1.0, gain - 1.0)
    rest = {threads: Size(parallel_tasks(flat, cut), share / (len(sizes) - 1)) for threads in sizes[1:]}
    return {sizes[0]: Size(everything, 1.0 - share), **rest}


def for_threads(program: Program, target: Target) -> Program:
    """``program`` with the spaces that ``target`` has."""
    spaces = {task.key: claim(load_program(program.programs[task.key]), target).space for task in program.tasks}
    return replace(program, spaces=spaces)


def outline(program: Program, target: Target) -> tuple[Flat, Partition] | None:
    """The program's calls and phases, or None if it cannot be cut because the virtual machine runs it."""
    untuned = Plan(target, tuple(Choice(task.key, BASELINE, None) for task in program.tasks))
    flat = read_flat(specialise(program, untuned), concats_of(program))
    return None if flat is None else (flat, partition(flat.edges))


def parallel_tasks(flat: Flat, cut: Partition) -> frozenset[str]:
    """Keys of the tasks that multi-path phases call."""
    symbols = {
        flat.calls[call].symbol
        for phase in cut.phases
        if phase.is_multi_path
        for branch in phase.branches
        for part in branch
        for call in part.nodes
    }
    return frozenset(symbol.removeprefix(symbol_of("")) for symbol in symbols)


def bounds_of(program: Program, target: Target) -> dict[str, float]:
    """Symbol → least seconds of one call on ``target``, by the roofline."""
    peak = measure_peak(target)
    return {
        symbol_of(task.key): peak.bound_s(int(task.flop / program.spaces[task.key].saving), task.bytes)
        for task in program.tasks
    }


def possible_gain(flat: Flat, cut: Partition, seconds: Mapping[str, float]) -> float:
    """How much faster the model could be if each phase took no longer than its longest branch.

    Args:
        seconds: symbol → seconds of one call on all threads, measured or a bound.
    """

    def cost(part: Subgraph) -> float:
        return sum(seconds.get(flat.calls[call].symbol, 0.0) for call in part.nodes if call not in flat.removed)

    phases = [[sum(map(cost, branch)) for branch in phase.branches] for phase in cut.phases]
    whole, least = sum(map(sum, phases)), sum(map(max, phases))
    return whole / least if least > 0.0 else 1.0


@dataclass
class Built:
    """Kernels of all lane sizes, linked and loaded, with the program's inputs: what placements are measured with.

    Attributes:
        plans: threads → the kernels chosen.
        objects: threads → symbol → object file.
    """

    plans: Mapping[int, Plan]
    flats: Mapping[int, Flat]
    objects: Mapping[int, dict[str, Path]]
    lanes: tuple[Lane, ...]
    inputs: Tensors
    folder: Path

    @cached_property
    def bench(self) -> Bench:
        """The libraries, loaded."""
        libraries: dict[int, tvm.runtime.Module] = {}
        for threads, kernels in self.objects.items():
            path = self.folder / f"lanes-{threads}.so"
            link_kernels(kernels, path)
            libraries[threads] = open_library(path)
        cores = max(lane.cores[-1] for lane in self.lanes) + 1
        return Bench(libraries, self.flats, self.inputs, thread_cpus(cores))

    @property
    def flat(self) -> Flat:
        """The calls, which are the same for all sizes."""
        return next(iter(self.flats.values()))

    def digest(self, subgraphs: Sequence[Subgraph], threads: int) -> str:
        """Name of these kernels in a log."""
        calls = self.flats[threads].calls
        words = [
            f"{calls[call].symbol} {self._config(calls[call].symbol, threads)} {calls[call].shape}"
            for part in subgraphs
            for call in part.nodes
        ]
        return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]

    def _config(self, symbol: str, threads: int) -> str:
        return self.plans[threads].config(symbol.removeprefix(symbol_of(""))).to_json()

    def steps(self, subgraphs: Sequence[Subgraph], placement: Placement) -> Steps:
        """``subgraphs`` as placed."""
        pieces = [Piece(subgraphs[s].name, subgraphs[s].nodes, placement.lanes[s]) for s in placement.order]
        return arrange(self.flats, pieces, self.lanes)


@dataclass
class Ledger:
    """Profiles in the log: measured once, then read.

    Attributes:
        frozen: measure nothing.
    """

    log: LogStore
    target: Target
    frozen: bool

    def known(self, what: str, digest: str) -> float | None:
        """The seconds recorded."""
        record = self.log.best(self._key(what, digest))
        return None if record is None else record.measurement.latency_s

    def keep(self, what: str, digest: str, seconds: float) -> float:
        """Record them; the newest counts. What was recorded: logs hold nothing that takes no time at all."""
        key, kept = self._key(what, digest), max(seconds, LEAST_S)
        measured = Measurement(latencies_s=(kept,))
        self.log.append([TuningRecord(key, Config(key.space, ()), measured, "", time.time(), platform.node())])
        return kept

    def _key(self, what: str, digest: str) -> RecordKey:
        return RecordKey(digest, self.target.fingerprint, f"lane-{what}/1", tvm.__version__)


def problem_of(built: Built, cut: Partition, ledger: Ledger) -> Problem:
    """What it costs to run each subgraph of ``cut`` on each lane, from the log or else measured.

    Raises:
        MissingRecordError: if the log lacks a cost and nothing may be measured.
    """
    subgraphs = cut.subgraphs
    cores = max(lane.cores[-1] for lane in built.lanes) + 1
    alone: dict[int, list[float | None]] = {}
    busy: dict[int, list[float | None]] = {}
    for threads in built.flats:
        can = [_has_kernels(built, part, threads) for part in subgraphs]
        some = [part for part, possible in zip(subgraphs, can, strict=True) if possible]
        alone[threads] = _spread(can, _costs(built, ledger, some, threads, "alone"))
        busy[threads] = (
            alone[threads] if threads == cores else _spread(can, _costs(built, ledger, some, threads, "busy"))
        )
    transfer = _transfer(built, ledger, subgraphs)
    flat = built.flat
    return Problem(
        built.lanes,
        cut.needs(flat.edges),
        tuple(tuple(alone[lane.threads][s] for lane in built.lanes) for s in range(len(subgraphs))),
        tuple(tuple(busy[lane.threads][s] for lane in built.lanes) for s in range(len(subgraphs))),
        tuple(_bytes_out(flat, part) for part in subgraphs),
        transfer.latency_s,
        1.0 / transfer.s_per_byte if transfer.s_per_byte > 0.0 else float("inf"),
    )


def _has_kernels(built: Built, part: Subgraph, threads: int) -> bool:
    calls = built.flats[threads].calls
    return all(calls[call].symbol in built.objects[threads] for call in part.nodes)


def _spread(can: Sequence[bool], costs: Sequence[float]) -> list[float | None]:
    each = iter(costs)
    return [next(each) if possible else None for possible in can]


def _costs(built: Built, ledger: Ledger, subgraphs: Sequence[Subgraph], threads: int, what: str) -> list[float]:
    # What a kernel leaves in the caches for the next depends on both, so a cost is one of this cut and of no other.
    cut = " ".join(f"{part.name} {built.digest([part], threads)}" for part in subgraphs)
    names = [hashlib.sha256(f"{threads} {part.name} {cut}".encode()).hexdigest()[:16] for part in subgraphs]
    known = [ledger.known(what, name) for name in names]
    found = [seconds for seconds in known if seconds is not None]
    if len(found) == len(known):
        return found
    if ledger.frozen:
        raise MissingRecordError(
            f"the log has no profile of {len(known) - len(found)} of {len(known)} subgraphs on lanes of {threads} "
            "threads; tune with the same --lanes first, or build with --lanes cpu"
        )
    run = built.bench.busy if what == "busy" else built.bench.alone
    measured = run(subgraphs, threads)
    costs = [measured.get(part.name, 0.0) for part in subgraphs]
    return [ledger.keep(what, name, seconds) for name, seconds in zip(names, costs, strict=True)]


def _transfer(built: Built, ledger: Ledger, subgraphs: Sequence[Subgraph]) -> Transfer:
    if 1 not in built.flats:
        return Transfer(0.0, 0.0)
    some = [part for part in subgraphs if _has_kernels(built, part, 1)]
    digest = built.digest(some, 1)
    latency, per_byte = ledger.known("latency", digest), ledger.known("byte", digest)
    if latency is not None and per_byte is not None:
        return Transfer(latency, per_byte)
    if ledger.frozen or not some:
        return Transfer(0.0, 0.0)
    found = built.bench.transfer(some)
    return Transfer(ledger.keep("latency", digest, found.latency_s), ledger.keep("byte", digest, found.s_per_byte))


def _bytes_out(flat: Flat, part: Subgraph) -> int:
    """What later subgraphs read of ``part``'s."""
    inside = set(part.nodes)
    read = {source for call, sources in enumerate(flat.edges) if call not in inside for source in sources}
    return sum(flat.calls[call].bytes for call in part.nodes if call in read)


@dataclass(frozen=True)
class Placing:
    """A placement of a partition, with what it should take and what it took.

    Attributes:
        spans: (n,) simulated begin and end of every subgraph.
        measured_s: end to end; None if it was not measured.
    """

    subgraphs: tuple[Subgraph, ...]
    problem: Problem
    placement: Placement
    steps: Steps
    spans: tuple[tuple[float, float], ...]
    measured_s: float | None = None

    @property
    def lanes_used(self) -> set[int]:
        """Numbers of the lanes that run anything."""
        return set(self.placement.lanes)

    def to_plan(self, text: str, plans: Mapping[int, Plan], threads: int, one_lane_s: float | None) -> LanePlan:
        """As plan.json has it."""
        used = sorted({self.problem.lanes[lane].threads for lane in self.lanes_used} - {threads})
        placed = [
            Placed(
                self.subgraphs[s].name,
                self.problem.lanes[self.placement.lanes[s]].name,
                self.subgraphs[s].nodes,
                *self.spans[s],
            )
            for s in self.placement.order
        ]
        choices = tuple((count, plans[count].choices) for count in used)
        return LanePlan(text, choices, tuple(placed), one_lane_s, self.measured_s)


def placings(built: Built, ledger: Ledger) -> list[Placing]:
    """The placements worth measuring: the exact one of every refinement, and greedy-correction's, without doubles."""
    flat = built.flat
    cut = partition(flat.edges)
    found: dict[tuple[object, ...], Placing] = {}
    per_call: dict[int, float] = {}
    for pieces in PIECES:
        if pieces > 1:
            cut = refine(cut, flat.edges, per_call.__getitem__, pieces)
        problem = problem_of(built, cut, ledger)
        subgraphs = cut.subgraphs
        if pieces == 1:
            per_call = _per_call(flat, subgraphs, problem)
        for placement in (exact(problem).placement, correction(problem)):
            key = tuple((subgraphs[s].nodes, placement.lanes[s]) for s in placement.order)
            if key not in found:
                steps = built.steps(subgraphs, placement)
                found[key] = Placing(subgraphs, problem, placement, steps, simulate(problem, placement))
    return list(found.values())


def _per_call(flat: Flat, subgraphs: Sequence[Subgraph], problem: Problem) -> dict[int, float]:
    """A rough price of each call, to cut branches by: bytes moved, scaled to what its subgraph takes."""
    prices = {}
    for s, part in enumerate(subgraphs):
        sizes = {
            call: sum(int(np.prod(use.shape)) for use in flat.calls[call].arguments) + flat.calls[call].bytes // 4
            for call in part.nodes
        }
        total = sum(sizes.values()) or 1
        cost = min((c for c in problem.alone[s] if c is not None), default=0.0)
        prices.update({call: cost * size / total for call, size in sizes.items()})
    return prices


def aligned_flats(flats: Mapping[int, Flat]) -> dict[int, Flat]:
    """The same with weights where kernels may read them, each copied once however many programs use it."""
    arrays = {id(array): array for flat in flats.values() for array in flat.weights}
    ends = list(accumulate((-(-array.nbytes // ALIGNMENT) * ALIGNMENT for array in arrays.values()), initial=0))
    memory = paged(ends[-1])
    moved: dict[int, NDArray[Any]] = {}
    for start, (key, array) in zip(ends, arrays.items(), strict=False):
        moved[key] = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        moved[key][...] = array

    return {
        threads: replace(flat, weights=tuple(moved[id(array)] for array in flat.weights))
        for threads, flat in flats.items()
    }


def build_kinds(
    kinds: Mapping[int, Kind], plans: Mapping[int, Plan], lanes: tuple[Lane, ...], inputs: Tensors, folder: Path
) -> Built:
    """Compile what ``plans`` chose for every size of lane."""
    flats: dict[int, Flat] = {}
    objects: dict[int, dict[str, Path]] = {}
    for threads, kind in kinds.items():
        flat = read_flat(specialise(kind.program, plans[threads]), concats_of(kind.program))
        assert flat is not None  # the caller has an outline
        flats[threads] = flat
        objects[threads] = compile_kernels(kind.tunable, plans[threads], kind.workshop)
    return Built(plans, aligned_flats(flats), objects, lanes, inputs, folder)
