"""Which lane runs which subgraph, and in which order. Pure: costs in, placement out.

Notation: subgraphs s = 0 … n − 1, topologically ordered; lanes l; c(s, l) the seconds of s on l; p(s) the subgraphs
that s reads from. A lane is a set of cores, and cores run one subgraph at a time, so lanes that share cores take turns.

Subgraphs are placed one after the other (list scheduling in the literature; here a schedule is a transformation of
loops). Each starts on its lane as soon as the lane's cores are free and what it reads is there:

    start(s) = max( free(core) for core of lane(s),  end(r) + transfer(r, s) for r in p(s) )
    end(s)   = start(s) + c(s, lane(s))

where transfer(r, s) is zero on the same lane and latency + bytes / bandwidth between lanes. The makespan is the last
end. A subgraph on a lane that leaves cores to others is counted at its cost with the other lanes busy
(``Problem.busy``). That is pessimistic at the ends of a phase; ``simulate`` counts it only while another lane works.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from autotune.graph.lanes import Lane

LEAST_S = 1e-12
"""Seconds of a subgraph that takes no time, so that its rate is finite."""

ROUNDING = 1e-9
"""Relative difference of two sums of the same seconds in another order."""


@dataclass(frozen=True)
class Problem:
    """What placement decides on.

    Attributes:
        lanes: where subgraphs may run.
        needs: (n,) for every subgraph those that it reads from.
        alone: (n, n_lanes) seconds with all other lanes idle; None where a subgraph cannot run.
        busy: (n, n_lanes) seconds with the other lanes working; as ``alone`` for a lane of all cores.
        bytes: (n,) bytes that others read from a subgraph.
        latency_s: of handing over from one lane to another.
        bytes_per_s: at which another lane's data is read.
    """

    lanes: tuple[Lane, ...]
    needs: tuple[tuple[int, ...], ...]
    alone: tuple[tuple[float | None, ...], ...]
    busy: tuple[tuple[float | None, ...], ...]
    bytes: tuple[int, ...]
    latency_s: float = 0.0
    bytes_per_s: float = float("inf")

    @property
    def count(self) -> int:
        """Subgraphs."""
        return len(self.needs)

    def cost(self, subgraph: int, lane: int) -> float | None:
        """Seconds that placing counts for ``subgraph`` on ``lane``; None where it cannot run."""
        return self.busy[subgraph][lane]

    def choices(self, subgraph: int) -> list[tuple[float, int]]:
        """(seconds, lane) of every lane that can run it, fastest first."""
        costs = ((self.cost(subgraph, lane), lane) for lane in range(len(self.lanes)))
        return sorted((cost, lane) for cost, lane in costs if cost is not None)

    def transfer_s(self, subgraph: int) -> float:
        """Seconds from the end of ``subgraph`` until another lane has what it wrote."""
        return self.latency_s + self.bytes[subgraph] / self.bytes_per_s

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


@dataclass(frozen=True)
class Placement:
    """A decision.

    Attributes:
        lanes: (n,) lane of every subgraph.
        order: all subgraphs in the order of their starts.
        starts, ends: (n,) seconds from the start of a run.
    """

    lanes: tuple[int, ...]
    order: tuple[int, ...]
    starts: tuple[float, ...]
    ends: tuple[float, ...]

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
    """

    problem: Problem
    free: list[float] = field(default_factory=list)
    lane: dict[int, int] = field(default_factory=dict)
    start: dict[int, float] = field(default_factory=dict)
    end: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.free = self.free or [0.0] * (1 + max(lane.cores[-1] for lane in self.problem.lanes))

    def earliest(self, subgraph: int, lane: int) -> float:
        """When ``subgraph`` could start on ``lane``."""
        ready = max(self.free[core] for core in self.problem.lanes[lane].cores)
        for source in self.problem.needs[subgraph]:
            moved = 0.0 if self.lane[source] == lane else self.problem.transfer_s(source)
            ready = max(ready, self.end[source] + moved)
        return ready

    def finish(self, subgraph: int, lane: int) -> float | None:
        """When it would end there; None where it cannot run."""
        cost = self.problem.cost(subgraph, lane)
        return None if cost is None else self.earliest(subgraph, lane) + cost

    def place(self, subgraph: int, lane: int) -> None:
        """Run it next on that lane, where it can run."""
        start, cost = self.earliest(subgraph, lane), self.problem.cost(subgraph, lane)
        assert cost is not None
        self.lane[subgraph], self.start[subgraph], self.end[subgraph] = lane, start, start + cost
        for core in self.problem.lanes[lane].cores:
            self.free[core] = start + cost

    def copy(self) -> PartialPlacement:
        """An independent copy."""
        return PartialPlacement(self.problem, list(self.free), dict(self.lane), dict(self.start), dict(self.end))

    def finished(self) -> Placement:
        """The placement, once all subgraphs are placed."""
        everyone = range(self.problem.count)
        order = sorted(self.lane, key=lambda subgraph: (self.start[subgraph], self.end[subgraph], subgraph))
        return Placement(
            tuple(self.lane[s] for s in everyone),
            tuple(_topological(order, self.problem.needs)),
            tuple(self.start[s] for s in everyone),
            tuple(self.end[s] for s in everyone),
        )


def _topological(order: Sequence[int], needs: Sequence[Sequence[int]]) -> list[int]:
    """``order`` with every subgraph after those that it needs; only subgraphs that take no time move."""
    left, done = list(order), set[int]()
    found: list[int] = []
    while left:
        chosen = next(subgraph for subgraph in left if done.issuperset(needs[subgraph]))
        left.remove(chosen)
        done.add(chosen)
        found.append(chosen)
    return found


def place_all(problem: Problem, lanes: Sequence[int], order: Sequence[int] | None = None) -> Placement:
    """The placement with given lanes, placed in ``order`` or else longest tail first.

    Args:
        lanes: (n,) lane of every subgraph; each can run there.
    """
    partial = PartialPlacement(problem)
    for subgraph in problem.order if order is None else order:
        partial.place(subgraph, lanes[subgraph])
    return partial.finished()


def simulate(problem: Problem, placement: Placement) -> tuple[tuple[float, float], ...]:
    """(n,) when every subgraph begins and ends, in seconds, slowed down only while another lane works.

    Between two events each running subgraph progresses at 1 / alone if no other runs, else at 1 / busy.
    """
    lanes = placement.lanes
    begun: dict[int, float] = {}
    ended: dict[int, float] = {}
    left: dict[int, float] = {}
    waiting = list(placement.order)
    now = 0.0

    def arrival(source: int, reader: int) -> float:
        return ended[source] + (0.0 if lanes[source] == lanes[reader] else problem.transfer_s(source))

    def may_start(subgraph: int) -> bool:
        """Whether its cores are free, no earlier subgraph waits for them, and what it reads is there."""
        others = (*left, *waiting[: waiting.index(subgraph)])
        cores = set(problem.lanes[lanes[subgraph]].cores)
        if any(cores & set(problem.lanes[lanes[other]].cores) for other in others):
            return False
        return all(source in ended and arrival(source, subgraph) <= now for source in problem.needs[subgraph])

    while waiting or left:
        for subgraph in [s for s in waiting if may_start(s)]:
            waiting.remove(subgraph)
            begun[subgraph], left[subgraph] = now, 1.0
        table = problem.busy if len(left) > 1 else problem.alone
        rates = {s: 1.0 / max(table[s][lanes[s]] or 0.0, LEAST_S) for s in left}
        due = {s: now + left[s] / rates[s] for s in left}
        arrivals = [arrival(r, s) for s in waiting for r in problem.needs[s] if r in ended]
        then = min([*due.values(), *(time for time in arrivals if time > now)])
        for subgraph, rate in rates.items():
            left[subgraph] -= (then - now) * rate
        now = then
        # What is due ends, even if rounding leaves a remainder: some subgraphs take almost no time.
        for subgraph in [s for s, rest in left.items() if due[s] <= now or rest <= ROUNDING]:
            del left[subgraph]
            ended[subgraph] = now
    return tuple((begun[s], ended[s]) for s in range(problem.count))
