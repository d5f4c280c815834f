"""Groups of CPU cores as lanes: a model's kernels for every size of lane, compiled and loaded, cut and priced."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.artifact.apply_plan import apply_plan
from autotune.artifact.plan import Plan
from autotune.backends.cpu.linking import compile_kernels, concats_of, link_kernels
from autotune.backends.cpu.native_library import NativeLibrary
from autotune.backends.executor import Arrays
from autotune.builder.build_request import BuildRequest
from autotune.builder.lane_profiles import LaneProfiler, Transfer
from autotune.builder.placing import Candidate, PlacedModel
from autotune.builder.profile_cache import ProfileCache
from autotune.graph.flat import Flat
from autotune.graph.flattening import read_flat
from autotune.graph.lanes import CPU, Lane
from autotune.graph.partition import Partition, Subgraph, partition, refine, subgraph_needs, untangle
from autotune.graph.placement import Link, Problem, tensors_of
from autotune.graph.steps import WHOLE, Piece, Steps, arrange
from autotune.host.machine import thread_cpus
from autotune.host.pages import ALIGNMENT, paged
from autotune.measure.measurer import symbol_of

PIECES = (1, 4)
"""Into how many pieces the longest branch of a phase may be cut; each is placed, and the fastest is kept. Uncut, the
convolutional towers of docs/lab: branches gain less than cut into three; more than four was not tried."""


MOST_CHAINS = 12
"""Chains of branches that need each other that are placed one by one: placements of so many are proven best in a second
(docs/lab: branches)."""


@dataclass(frozen=True)
class CoreGroups:
    """A model on groups of cores, compiled for every size of group; as ``placing.fastest`` wants it.

    Attributes:
        plans: threads → the kernels chosen.
        flats: threads → the program with kernels for so many threads.
        objects: threads → symbol → object file.
        lanes: the groups; one of all threads may be among them.
        threads: of the one lane that may run the whole model; None where only placements are wanted.
        inputs: what costs are measured on.
        folder: for libraries that costs are measured with.
    """

    plans: Mapping[int, Plan]
    flats: Mapping[int, Flat]
    objects: Mapping[int, dict[str, Path]]
    lanes: tuple[Lane, ...]
    threads: int | None
    cache: ProfileCache
    inputs: Arrays
    folder: Path

    @cached_property
    def _profiler(self) -> LaneProfiler:
        libraries: dict[int, NativeLibrary] = {}
        for threads, kernels in self.objects.items():
            path = self.folder / f"lanes-{threads}.so"
            link_kernels(kernels, path)
            libraries[threads] = NativeLibrary(path)
        return LaneProfiler(libraries, self.flats, self.inputs, thread_cpus(self._cores))

    @property
    def _cores(self) -> int:
        return max(lane.cores[-1] for lane in self.lanes) + 1

    @property
    def _flat(self) -> Flat:
        """The calls, which are the same for all sizes."""
        return next(iter(self.flats.values()))

    def cuts(self) -> Iterator[tuple[tuple[Subgraph, ...], Problem]]:
        """Implement ``Source.cuts``: one subgraph a branch, then the branches in pieces, then tangles as graphs."""
        edges = self._flat.edges
        cut = partition(edges)
        per_call: dict[int, float] = {}
        for pieces in PIECES:
            if pieces > 1:
                cut = refine(cut, edges, per_call.__getitem__, pieces)
            problem = self.problem(cut)
            if pieces == 1:
                per_call = _per_call(self._flat, cut.subgraphs, problem)
            yield cut.subgraphs, problem
        coarse = partition(edges)
        graph = untangle(coarse, edges, MOST_CHAINS)
        if graph != coarse:
            yield graph.subgraphs, self.problem(graph)

    def settled(self, placements: Sequence[PlacedModel]) -> Sequence[PlacedModel]:
        """Implement ``Source.settled``: all groups of cores have the host's memory."""
        return placements

    def fits(self, placed: PlacedModel) -> bool:
        """Implement ``Source.fits``."""
        return True

    def one_lane(self) -> list[Candidate[Steps]]:
        """Implement ``Source.one_lane``."""
        if self.threads is None:
            return []
        wide = next(index for index, lane in enumerate(self.lanes) if lane.threads == self.threads)
        piece = Piece(WHOLE, tuple(range(len(self._flat.calls))), wide)
        return [Candidate("one lane", arrange(self.flats, [piece], self.lanes))]

    def make(self, number: int, placed: PlacedModel) -> Steps:
        """Implement ``Source.make``."""
        return placed.steps(self.flats)

    def seconds(self, candidates: Sequence[Candidate[Steps]]) -> list[float]:
        """Implement ``Source.seconds``: measured and recorded; from the log where nothing may be measured.

        Raises:
            MissingRecordError: if a timing is missing and may not be measured.
        """
        if len(candidates) == 1 and candidates[0].placed is None:
            return [0.0]  # one lane is not timed again where there is nothing beside it
        # What is timed in turn is a record of its own: each race decides one question, and a build asks the same ones.
        names = [_hashed(f"{self._text(candidates)}\n{number}") for number in range(len(candidates))]
        if self.cache.frozen:
            return self.cache.recorded("model", names, "timings of the whole model on these lanes") or []
        return self.cache.keep(
            "model", names, self._profiler.end_to_end([candidate.executable for candidate in candidates])
        )

    def ratios(self, one: Candidate[Steps], other: Candidate[Steps]) -> list[float]:
        """Implement ``Source.ratios``: measured and recorded, as ``seconds``."""
        text = self._text([one, other])
        names = [_hashed(f"{text}\nratio {number}") for number in range(3)]
        if self.cache.frozen:
            return self.cache.recorded("ratio", names, "comparisons of a placement with one lane") or []
        return self.cache.keep("ratio", names, self._profiler.ratios(one.executable, other.executable))

    def taken(self, candidate: Candidate[Steps], number: int) -> dict[str, float]:
        """Implement ``Source.taken``: measured and recorded, as ``seconds``."""
        text = f"{self._text([candidate])}\n{number}"
        parts = [group.name for group in candidate.executable.groups]
        names = [_hashed(f"{text}\n{part}") for part in parts]
        if self.cache.frozen:
            seconds = self.cache.recorded("place", names, "timings of subgraphs in their places") or []
        else:
            taken = self._profiler.taken(candidate.executable)
            seconds = self.cache.keep("place", names, [taken[part] for part in parts])
        return dict(zip(parts, seconds, strict=True))

    def _text(self, candidates: Sequence[Candidate[Steps]]) -> str:
        """Kernels, lanes and calls: what a timing of ``candidates`` depends on."""
        kernels = "\n".join(plan.digest for plan in self.plans.values())
        steps = [candidate.executable for candidate in candidates]
        return f"{kernels}\n{[(s.lanes, s.groups, [call.symbol for call in s.calls]) for s in steps]!r}"

    def problem(self, cut: Partition) -> Problem:
        """Return the costs of each subgraph of ``cut`` on each lane, from the log or else measured.

        Raises:
            MissingRecordError: if the log lacks a cost and nothing may be measured.
        """
        subgraphs = cut.subgraphs
        alone = {threads: self._costs(subgraphs, threads, "alone") for threads in self.flats}
        busy = {
            threads: costs if threads == self._cores else self._costs(subgraphs, threads, "busy")
            for threads, costs in alone.items()
        }
        transfer = self._transfer(subgraphs)
        needs = subgraph_needs(subgraphs, self._flat.edges)
        return Problem(
            self.lanes,
            tensors_of(needs, [_bytes_out(self._flat, part) for part in subgraphs]),
            tuple(tuple(alone[lane.threads].get(part) for lane in self.lanes) for part in subgraphs),
            {CPU: tuple(tuple(busy[lane.threads].get(part) for lane in self.lanes) for part in subgraphs)},
            Link(transfer.latency_s, 1.0 / transfer.s_per_byte if transfer.s_per_byte > 0.0 else float("inf")),
        )

    def _costs(self, subgraphs: Sequence[Subgraph], threads: int, what: str) -> dict[Subgraph, float]:
        """Seconds of the subgraphs that have kernels for ``threads`` threads."""
        some = self._runnable(subgraphs, threads)
        # What a kernel leaves in the caches for the next depends on both, so a cost is one of this cut and of no other.
        cut = " ".join(f"{part.name} {self._digest([part], threads)}" for part in some)
        names = [_hashed(f"{threads} {part.name} {cut}") for part in some]
        seconds = self.cache.recorded(what, names, f"profiles of subgraphs on lanes of {threads} threads")
        if seconds is None:
            measured = self._profiler.costs(some, threads, busy=what == "busy")
            seconds = self.cache.keep(what, names, [measured.get(part.name, 0.0) for part in some])
        return dict(zip(some, seconds, strict=True))

    def _transfer(self, subgraphs: Sequence[Subgraph]) -> Transfer:
        """The price of crossing; nothing where no lane has one thread, which it is measured on."""
        some = self._runnable(subgraphs, 1) if 1 in self.flats else []
        if not some:
            return Transfer(0.0, 0.0)
        names = [self._digest(some, 1)]
        latency = self.cache.recorded("latency", names, "prices of crossing between lanes")
        per_byte = self.cache.recorded("byte", names, "prices of crossing between lanes")
        if latency is None or per_byte is None:
            transfer = self._profiler.transfer(some)
            latency = self.cache.keep("latency", names, [transfer.latency_s])
            per_byte = self.cache.keep("byte", names, [transfer.s_per_byte])
        return Transfer(latency[0], per_byte[0])

    def _runnable(self, subgraphs: Sequence[Subgraph], threads: int) -> list[Subgraph]:
        """Those of ``subgraphs`` that have kernels for ``threads`` threads."""
        calls, objects = self.flats[threads].calls, self.objects[threads]
        return [part for part in subgraphs if all(calls[call].symbol in objects for call in part.nodes)]

    def _digest(self, subgraphs: Sequence[Subgraph], threads: int) -> str:
        """Name of these kernels in a log."""
        plan = self.plans[threads]
        calls = [self.flats[threads].calls[number] for part in subgraphs for number in part.nodes]
        configs = [plan.config(call.symbol.removeprefix(symbol_of(""))).to_json() for call in calls]
        words = [f"{call.symbol} {config} {call.shape}" for call, config in zip(calls, configs, strict=True)]
        return _hashed("\n".join(words))


def compile_lanes(request: BuildRequest, plans: Mapping[int, Plan], inputs: Arrays, folder: Path) -> CoreGroups:
    """Compile what ``plans`` chose for every size of lane; the program can be cut.

    Raises:
        MeasureError: if a kernel does not compile.
    """
    flats: dict[int, Flat] = {}
    objects: dict[int, dict[str, Path]] = {}
    for threads, own in request.kernels.items():
        flat = read_flat(apply_plan(own.program, plans[threads]), concats_of(own.program))
        assert own.measurer is not None
        flats[threads] = flat
        objects[threads] = compile_kernels(own.tunable, plans[threads], own.measurer)
    cache = ProfileCache(request.log, request.target, request.options.frozen)
    threads_of_one = None if request.whole is None else request.target.threads
    return CoreGroups(plans, aligned_flats(flats), objects, request.lanes, threads_of_one, cache, inputs, folder)


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


def _bytes_out(flat: Flat, part: Subgraph) -> int:
    """Return the bytes of ``part``'s outputs that later subgraphs read."""
    inside = set(part.nodes)
    read = {source for call, sources in enumerate(flat.edges) if call not in inside for source in sources}
    return sum(flat.calls[call].bytes for call in part.nodes if call in read)


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
