"""Costs corrected by what runs of placements took, subgraph by subgraph. Pure.

DUET (IPDPS 2021) corrects a placement by measured seconds of the whole model. A run tells more: when every subgraph and
every copy began and ended. What each took, from the moment at which it could have begun, is compared with what the
simulation foresees for it in the same placement, and its cost is multiplied by the ratio: alone as well as beside
others, and on all lanes that differ in nothing. So neighbours, caches and waiting threads count as they were met.
Several runs count by their geometric mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.graph.lanes import Way
from autotune.graph.placement import LEAST_S, Costs, Link, PartialPlacement, Placement, Problem
from autotune.graph.placers import first_to_end
from autotune.graph.simulation import simulate, simulate_copies

HOPED = 0.75
"""Share of its seconds that a way is taken to need until a copy over it was measured. So a placement that copies there
is tried where that could pay, and then the way is measured; without, one that was believed too slow was never used."""

Span = tuple[float, float]
"""Seconds from the start of a run to when something began and ended."""


@dataclass(frozen=True)
class Taken:
    """Seconds of the parts of a run.

    Attributes:
        subgraphs: number → seconds; those without calls are left out.
        links: way → seconds of all its copies.
    """

    subgraphs: Mapping[int, float]
    links: Mapping[Way, float]


def occupied(spans: Sequence[Span], after: Sequence[Collection[int]]) -> list[float]:
    """Seconds of each of ``spans`` from when all that it comes after was over: with what waiting and handing over cost.

    Args:
        after: (n,) numbers of the others that each waits for.
    """
    return [
        end - min(begin, max((spans[other][1] for other in after[number]), default=0.0))
        for number, (begin, end) in enumerate(spans)
    ]


def foreseen(problem: Problem, placement: Placement) -> Taken:
    """Return the seconds that the simulation foresees for the parts of a run of ``placement``."""
    spans, copies = list(simulate(problem, placement)), simulate_copies(problem, placement)
    arrival = {(copy.tensor, copy.link[1]): problem.count + number for number, copy in enumerate(copies)}
    cores = [set(problem.lanes[lane].cores) for lane in placement.lanes]
    after: list[set[int]] = [set() for _ in range(problem.count)]
    for place, s in enumerate(placement.order):
        memory = problem.lanes[placement.lanes[s]].memory
        after[s] |= {other for other in placement.order[:place] if cores[s] & cores[other]}
        after[s] |= {arrival.get((t, memory), problem.tensors[t].source) for t in problem.reads[s]}
    seconds = occupied([*spans, *((copy.start, copy.end) for copy in copies)], [*after, *(() for _ in copies)])
    links: Counter[Way] = Counter()
    for copy in copies:
        links[copy.link] += copy.end - copy.start  # type: ignore[assignment]
    return Taken(dict(enumerate(seconds[: problem.count])), links)


class MeasuredCosts:
    """A problem that is corrected by one run after the other.

    Attributes:
        problem: as it is known now.
    """

    def __init__(self, problem: Problem) -> None:
        self._given = problem
        self._factors: dict[tuple[int, int] | Way, float] = dict.fromkeys(problem.links, HOPED)
        self._seen: Counter[tuple[int, int] | Way] = Counter()
        self.problem = self._corrected()

    def add(self, placement: Placement, taken: Taken) -> None:
        """Count what a run of ``placement`` took."""
        expected, spans = foreseen(self.problem, placement), simulate(self.problem, placement)
        for subgraph, seconds in taken.subgraphs.items():
            lane, own = placement.lanes[subgraph], spans[subgraph][1] - spans[subgraph][0]
            crossing = expected.subgraphs[subgraph] - own  # which is not part of its cost
            if (self._given.alone[subgraph][lane] or 0.0) > LEAST_S:
                self._count((subgraph, self._given.alike[lane]), seconds - crossing, own)
        for way, seconds in taken.links.items():
            self._count(way, seconds, expected.links.get(way, 0.0))
        self.problem = self._corrected()

    def _count(self, what: tuple[int, int] | Way, seconds: float, expected: float) -> None:
        if min(seconds, expected) > 0.0:
            self._seen[what] += 1
            self._factors[what] = self._factors.get(what, 1.0) * (seconds / expected) ** (1.0 / self._seen[what])

    def _corrected(self) -> Problem:
        problem, factors = self._given, self._factors

        def table(costs: Costs) -> Costs:
            return tuple(
                tuple(c and c * factors.get((s, problem.alike[lane]), 1.0) for lane, c in enumerate(row))
                for s, row in enumerate(costs)
            )

        ways = {
            way: Link(link.latency_s * factors[way], link.bytes_per_s / factors[way])
            for way, link in problem.links.items()
        }
        beside = {kind: table(costs) for kind, costs in problem.beside.items()}
        return replace(problem, alone=table(problem.alone), beside=beside, links=ways)

    def least_seen(self) -> tuple[Placement, bool]:
        """All subgraphs on lanes on which they were measured least, and whether some of them were never measured there.

        As many runs as there are unlike lanes tell all costs.
        """
        partial, unknown = PartialPlacement(self.problem), False
        for subgraph in self.problem.order:
            able = [(cost, lane) for cost, lane in self.problem.choices(subgraph) if cost > LEAST_S]
            seen = {lane: self._seen[subgraph, self.problem.alike[lane]] for _, lane in able}
            fewest = min(seen.values(), default=0)
            lanes = [lane for lane, times in seen.items() if times == fewest]
            unknown = unknown or (bool(lanes) and not fewest)
            partial.place(subgraph, first_to_end(partial, subgraph, lanes or None))
        return partial.finished(), unknown
