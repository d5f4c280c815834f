"""Which lane runs which subgraph, and in which order. Pure: costs in, placement out.

Notation: subgraphs s = 0 … n − 1, topologically ordered; lanes l; c(s, l) the seconds of s on l; t the tensors that s
reads. A lane is a set of cores, and cores run one subgraph at a time, so lanes that share cores take turns. A lane has
a memory: the host's, or a device's own.

Subgraphs are placed one after the other (list scheduling in the literature; here a schedule is a transformation of
loops). Each starts on its lane as soon as the lane's cores are free and what it reads is there:

    start(s) = max( free(core) for core of lane(s),  there(t, lane(s)) for t read by s )
    end(s)   = start(s) + c(s, lane(s))

A tensor is there at the end of the subgraph that writes it on the same lane; a crossing later (latency + bytes /
bandwidth) on another lane of the same memory; and when its copy ends in another memory. A tensor is copied into a
memory once, however many subgraphs read it there, and a link between two memories copies one tensor at a time, beside
what lanes compute. The makespan is the last end.

A subgraph that others may run beside is counted at its cost with the other kinds of lane at work (``Problem.beside``).
That is pessimistic at the ends of a phase; ``simulate`` counts it only while another lane works.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from autotune.graph.lanes import HOST, Lane

LEAST_S = 1e-12
"""Seconds of a subgraph that takes no time, so that its rate is finite."""

ROUNDING = 1e-9
"""Relative difference of two sums of the same seconds in another order."""

Costs = tuple[tuple[float | None, ...], ...]
"""(n, n_lanes) seconds of subgraphs on lanes; None where a subgraph cannot run."""


@dataclass(frozen=True)
class Tensor:
    """A tensor that one subgraph writes and others read.

    Attributes:
        source: the subgraph that writes it.
        readers: those that read it, ascending.
        bytes: its size.
    """

    source: int
    readers: tuple[int, ...]
    bytes: int = 0


@dataclass(frozen=True)
class Link:
    """A way for tensors: ``latency_s`` seconds + bytes / ``bytes_per_s``."""

    latency_s: float = 0.0
    bytes_per_s: float = float("inf")

    def seconds(self, size: int) -> float:
        """Seconds of a tensor of ``size`` bytes."""
        return self.latency_s + size / self.bytes_per_s


@dataclass(frozen=True)
class Problem:
    """The data that placement decides on.

    Attributes:
        lanes: where subgraphs may run.
        tensors: what passes between subgraphs.
        alone: seconds with all other lanes idle.
        beside: kind of lane (``Lane.kind``) → seconds with lanes of that kind at work beside it; kinds that nothing
            was measured beside are left out.
        crossing: between two lanes of one memory.
        links: (from, to) → the way between two memories; a pair that is missing goes through the host's.
    """

    lanes: tuple[Lane, ...]
    tensors: tuple[Tensor, ...]
    alone: Costs
    beside: Mapping[str, Costs] = field(default_factory=dict)
    crossing: Link = Link()
    links: Mapping[tuple[str, str], Link] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Subgraphs."""
        return len(self.alone)

    @cached_property
    def busy(self) -> Costs:
        """Seconds beside the worst neighbour that a lane may have: what placing counts."""
        return tuple(
            tuple(self.rate_s(s, lane, self._neighbours[lane]) for lane in range(len(self.lanes)))
            for s in range(self.count)
        )

    @cached_property
    def _neighbours(self) -> tuple[frozenset[str], ...]:
        """(n_lanes,) kinds of the lanes that may work beside each."""
        return tuple(
            frozenset(other.kind for other in self.lanes if not set(other.cores) & set(lane.cores))
            for lane in self.lanes
        )

    @cached_property
    def alike(self) -> tuple[int, ...]:
        """(n_lanes,) the first lane that differs from each in nothing but which cores and which memory are its own."""
        columns = [self._column(lane) for lane in range(len(self.lanes))]
        return tuple(columns.index(column) for column in columns)

    def _column(self, lane: int) -> tuple[object, ...]:
        own = self.lanes[lane]
        ways = (self.links.get((HOST, own.memory)), self.links.get((own.memory, HOST))) if own.memory else ()
        others = frozenset((way[0] == own.memory, frozenset(way), link) for way, link in self._direct_links(own))
        tables = (self.alone, *(self.beside[kind] for kind in sorted(self.beside)))
        return own.threads, own.kind, ways, others, tuple(tuple(row[lane] for row in table) for table in tables)

    def _direct_links(self, lane: Lane) -> list[tuple[tuple[str, str], Link]]:
        """The links between the memory of ``lane`` and those of other devices."""
        return [(way, link) for way, link in self.links.items() if way in self.direct and lane.memory in way]

    @property
    def direct(self) -> tuple[tuple[str, str], ...]:
        """The links between the memories of two devices, past the host's."""
        return tuple(way for way in self.links if HOST not in way)

    def rate_s(self, subgraph: int, lane: int, kinds: frozenset[str]) -> float | None:
        """Seconds of ``subgraph`` on ``lane`` while lanes of ``kinds`` work; None where it cannot run."""
        own = self.alone[subgraph][lane]
        if own is None:
            return None
        return max([own, *(self.beside[kind][subgraph][lane] or own for kind in kinds if kind in self.beside)])

    def cost(self, subgraph: int, lane: int) -> float | None:
        """Seconds that placing counts for ``subgraph`` on ``lane``; None where it cannot run."""
        return self.busy[subgraph][lane]

    def choices(self, subgraph: int) -> list[tuple[float, int]]:
        """(seconds, lane) of every lane that can run it, fastest first."""
        costs = ((self.cost(subgraph, lane), lane) for lane in range(len(self.lanes)))
        return sorted((cost, lane) for cost, lane in costs if cost is not None)

    def route(self, source: str, target: str) -> tuple[tuple[str, str], ...]:
        """The links from one memory to another, in order; none from a memory to itself."""
        if source == target:
            return ()
        direct = (source, target)
        return (direct,) if direct in self.links or HOST in direct else ((source, HOST), (HOST, target))

    def way(self, placement: Placement) -> tuple[object, ...]:
        """Return the steps of a run of ``placement``: two that are equal in this differ at most in seconds."""
        cores = range(1 + max(lane.cores[-1] for lane in self.lanes))
        lanes, links = placement.lanes, sorted({copy.link for copy in placement.copies})
        return (
            lanes,
            *(tuple(s for s in placement.order if core in self.lanes[lanes[s]].cores) for core in cores),
            *((link, tuple(copy.tensor for copy in placement.copies if copy.link == link)) for link in links),
        )

    def copy_s(self, link: tuple[str, str], tensor: int) -> float:
        """Seconds that ``tensor`` occupies ``link``."""
        return self.links.get(link, self.crossing).seconds(self.tensors[tensor].bytes)

    @cached_property
    def reads(self) -> tuple[tuple[int, ...], ...]:
        """(n,) for every subgraph the tensors that it reads, ascending."""
        reads: list[list[int]] = [[] for _ in range(self.count)]
        for number, tensor in enumerate(self.tensors):
            for reader in tensor.readers:
                reads[reader].append(number)
        return tuple(map(tuple, reads))

    @cached_property
    def needs(self) -> tuple[tuple[int, ...], ...]:
        """(n,) for every subgraph those that it reads from, ascending."""
        return tuple(tuple(sorted({self.tensors[t].source for t in reads})) for reads in self.reads)

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """(n,) for every subgraph those that read from it, ascending."""
        readers: list[list[int]] = [[] for _ in range(self.count)]
        for subgraph, sources in enumerate(self.needs):
            for source in sources:
                readers[source].append(subgraph)
        return tuple(map(tuple, readers))

    @cached_property
    def tails(self) -> tuple[float, ...]:
        """(n,) least seconds from the start of each subgraph to the end of the model."""
        tails = [0.0] * self.count
        for subgraph in reversed(range(self.count)):
            after = max((tails[reader] for reader in self.readers[subgraph]), default=0.0)
            tails[subgraph] = self.choices(subgraph)[0][0] + after
        return tuple(tails)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """All subgraphs, each after what it needs, longest tail first."""
        left, order, done = set(range(self.count)), [], set[int]()
        while left:
            ready = [subgraph for subgraph in left if done.issuperset(self.needs[subgraph])]
            chosen = max(ready, key=lambda subgraph: (self.tails[subgraph], -subgraph))
            left.remove(chosen)
            done.add(chosen)
            order.append(chosen)
        return tuple(order)


def tensors_of(needs: Sequence[Sequence[int]], sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """One tensor for every subgraph that others read from.

    Args:
        needs: (n,) the subgraphs that each reads from.
        sizes: (n,) bytes that others read of each.
    """
    readers: dict[int, list[int]] = {}
    for subgraph, sources in enumerate(needs):
        for source in sources:
            readers.setdefault(source, []).append(subgraph)
    return tuple(Tensor(source, tuple(reading), sizes[source]) for source, reading in sorted(readers.items()))


@dataclass(frozen=True)
class Copy:
    """A tensor on its way over a link, in seconds from the start of a run."""

    tensor: int
    link: tuple[str, str]
    start: float
    end: float


@dataclass(frozen=True)
class Placement:
    """A decision.

    Attributes:
        lanes: (n,) lane of every subgraph.
        order: all subgraphs in the order of their starts.
        starts, ends: (n,) seconds from the start of a run.
        copies: between memories, in the order in which they were asked for.
    """

    lanes: tuple[int, ...]
    order: tuple[int, ...]
    starts: tuple[float, ...]
    ends: tuple[float, ...]
    copies: tuple[Copy, ...] = ()

    @property
    def makespan_s(self) -> float:
        """Seconds until the last subgraph ends."""
        return max(self.ends, default=0.0)


@dataclass
class PartialPlacement:
    """Some subgraphs placed, in order; ``place`` adds the next one.

    Attributes:
        free: (cores,) seconds at which each core is free again.
        lane, start, end: by subgraph.
        there: (tensor, memory) → when its copy is there.
        copies: so far.
        link_free: link → when it is free again, of those that were used.
    """

    problem: Problem
    free: list[float] = field(default_factory=list)
    lane: dict[int, int] = field(default_factory=dict)
    start: dict[int, float] = field(default_factory=dict)
    end: dict[int, float] = field(default_factory=dict)
    there: dict[tuple[int, str], float] = field(default_factory=dict)
    copies: list[Copy] = field(default_factory=list)
    link_free: dict[tuple[str, str], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.free = self.free or [0.0] * (1 + max(lane.cores[-1] for lane in self.problem.lanes))

    def _arrivals(self, subgraph: int, lane: int) -> tuple[float, list[Copy]]:
        """Return when all that ``subgraph`` reads is there for ``lane``, and the copies that it takes."""
        problem, memory = self.problem, self.problem.lanes[lane].memory
        ready, copies, link_free = 0.0, list[Copy](), dict[tuple[str, str], float]()
        for number in problem.reads[subgraph]:
            tensor = problem.tensors[number]
            made_on = self.lane[tensor.source]
            home, when = problem.lanes[made_on].memory, self.end[tensor.source]
            if home == memory:
                when += 0.0 if made_on == lane else problem.crossing.seconds(tensor.bytes)
            for link in problem.route(home, memory):
                known = self.there.get((number, link[1]))
                if known is None:
                    link_free = link_free or dict(self.link_free)
                    start = max(when, link_free.get(link, 0.0))
                    known = start + problem.copy_s(link, number)
                    link_free[link] = known
                    copies.append(Copy(number, link, start, known))
                when = known
            ready = max(ready, when)
        return ready, copies

    def earliest(self, subgraph: int, lane: int) -> float:
        """Return when ``subgraph`` could start on ``lane``."""
        cores = max(self.free[core] for core in self.problem.lanes[lane].cores)
        return max(cores, self._arrivals(subgraph, lane)[0])

    def finish(self, subgraph: int, lane: int) -> float | None:
        """Return when it would end there; None where it cannot run."""
        cost = self.problem.cost(subgraph, lane)
        return None if cost is None else self.earliest(subgraph, lane) + cost

    def place(self, subgraph: int, lane: int) -> None:
        """Run it next on that lane, where it can run."""
        cost, (ready, copies) = self.problem.cost(subgraph, lane), self._arrivals(subgraph, lane)
        assert cost is not None
        start = max(ready, *(self.free[core] for core in self.problem.lanes[lane].cores))
        self.copies += copies
        self.link_free.update({copy.link: copy.end for copy in copies})  # a link's copies follow each other
        self.there.update({(copy.tensor, copy.link[1]): copy.end for copy in copies})
        self.lane[subgraph], self.start[subgraph], self.end[subgraph] = lane, start, start + cost
        for core in self.problem.lanes[lane].cores:
            self.free[core] = start + cost

    def copy(self) -> PartialPlacement:
        """An independent copy."""
        return PartialPlacement(
            self.problem,
            list(self.free),
            dict(self.lane),
            dict(self.start),
            dict(self.end),
            dict(self.there),
            list(self.copies),
            dict(self.link_free),
        )

    def finished(self) -> Placement:
        """The placement, once all subgraphs are placed."""
        everyone = range(self.problem.count)
        order = sorted(self.lane, key=lambda subgraph: (self.start[subgraph], self.end[subgraph], subgraph))
        return Placement(
            tuple(self.lane[s] for s in everyone),
            tuple(_topological(order, self.problem.needs)),
            tuple(self.start[s] for s in everyone),
            tuple(self.end[s] for s in everyone),
            tuple(self.copies),
        )


def _topological(order: Sequence[int], needs: Sequence[Sequence[int]]) -> list[int]:
    """``order`` with every subgraph after those that it needs; only subgraphs that take no time move."""
    left, done = list(order), set[int]()
    ordered: list[int] = []
    while left:
        chosen = next(subgraph for subgraph in left if done.issuperset(needs[subgraph]))
        left.remove(chosen)
        done.add(chosen)
        ordered.append(chosen)
    return ordered


def place_all(problem: Problem, lanes: Sequence[int], order: Sequence[int] | None = None) -> Placement:
    """The placement with given lanes, placed in ``order`` or else longest tail first.

    Args:
        lanes: (n,) lane of every subgraph; each can run there.
    """
    partial = PartialPlacement(problem)
    for subgraph in problem.order if order is None else order:
        partial.place(subgraph, lanes[subgraph])
    return partial.finished()
