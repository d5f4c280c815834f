"""The placement of least makespan, with a proof: branch and bound over partial placements. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from autotune.graph.placement import ROUNDING, Costs, PartialPlacement, Placement, Problem, Tensor, place_all
from autotune.graph.placers import MOST_TRIES, correction

MOST_NODES = 6_000
"""Partial placements that the search looks at before it gives up proving: about a second. A random Inception-like
problem of 46 subgraphs on three lanes is proven in 0.5 s (docs/lab: branches)."""

SECTION_TRIES = 100
"""Changes of a quick placement that are tried at least before a section is searched for one pair of lanes; all pairs
share ``MOST_TRIES``. Heuristic."""

LEAST_TRIES = 10
"""The same where the quick placement is not searched from. Heuristic."""

LEAST_NODES = 100
"""Partial placements that each section of the graph may cost, however many sections there are. Heuristic."""


MOST_LANES = 4
"""Lanes up to which placements are searched; on more, quick ones are taken and the bound says how good they are. A
section of the graph is searched for every pair of lanes; on more lanes, of lanes of different kinds."""


@dataclass(frozen=True)
class Exact:
    """The result of the exact search.

    Attributes:
        placement: the best one found.
        bound_s: no placement has a shorter makespan.
        nodes: partial placements looked at.
    """

    placement: Placement
    bound_s: float
    nodes: int

    @property
    def gap(self) -> float:
        """How much longer than the optimum the makespan may be, as a share; 0 is proven optimal."""
        best = self.placement.makespan_s
        return 0.0 if best <= self.bound_s * (1.0 + ROUNDING) else best / self.bound_s - 1.0


def exact(problem: Problem, most_nodes: int = MOST_NODES) -> Exact:
    """Branch and bound, depth first, the most promising child first.

    Two partial placements of the same subgraphs are compared by when cores get free, and when results that are still
    needed are there on every lane. One that is nowhere better than the other is dropped.

    A subgraph that every path meets starts after everything before it and ends before everything after it. So the
    sections between two such subgraphs are searched one by one, for every pair of lanes of the two.

    Args:
        problem: of one subgraph at least.
        most_nodes: look at no more partial placements; the gap is then what is left unproven.
    """
    usable = sorted({lane for subgraph in range(problem.count) for _, lane in problem.choices(subgraph)})
    searched = len(usable) <= MOST_LANES
    lanes_tried = usable if searched else _different(problem)
    everyone = set(range(problem.count))
    meets = [s for s in sorted(everyone) if everyone - {s} == _reached(s, problem.needs) | _reached(s, problem.readers)]
    per_section = max(LEAST_NODES, most_nodes // (1 + len(meets))) if searched else 0
    tries = max(SECTION_TRIES if searched else LEAST_TRIES, MOST_TRIES // (len(lanes_tried) ** 2 * (1 + len(meets))))
    prefixes: dict[int | None, _Prefix] = {None: _Prefix(0.0, 0.0, ())}
    nodes = 0
    previous: int | None = None
    begin = 0
    for meet in (*meets, None):
        end = problem.count if meet is None else meet
        between = tuple(range(begin, end))
        if between or meet is not None:
            section = _Section(problem, previous, between, meet, lanes_tried)
            prefixes, looked_at = _extended(prefixes, section, per_section, tries)
            nodes += looked_at
        previous, begin = meet, end + 1
    best = min(prefixes.values(), key=lambda prefix: prefix.seconds)
    lanes = dict(best.chosen)
    placement = place_all(problem, [lanes[s] for s in range(problem.count)], [s for s, _ in best.chosen])
    bound_s = min(prefix.bound_s for prefix in prefixes.values())
    if placement.makespan_s > bound_s * (1.0 + ROUNDING):
        placement = min((placement, correction(problem)), key=lambda other: other.makespan_s)
    return Exact(placement, bound_s, nodes)


def best_known(problem: Problem, most_nodes: int = MOST_NODES) -> Placement:
    """The placement of ``exact``; next to devices, where that is not proven, the shortest of it and of fewer lanes.

    A search that gives up among many lanes may miss what it finds on one lane or two. So more lanes are never longer.
    """
    solved, alike = exact(problem, most_nodes), problem.alike
    if not solved.gap or len(alike) <= 2 or not any(lane.device for lane in problem.lanes):
        return solved.placement
    some = [lanes for count in (1, 2) for lanes in combinations(range(len(alike)), count)]
    unlike = {tuple(sorted(alike[lane] for lane in lanes)): lanes for lanes in some}
    fewer = (exact(_on(problem, lanes), most_nodes // len(unlike)).placement for lanes in unlike.values())
    return min(solved.placement, *fewer, key=lambda placement: placement.makespan_s)


def _on(problem: Problem, lanes: Collection[int]) -> Problem:
    """``problem`` without other lanes than ``lanes``, but for subgraphs that can run on none of these."""

    def table(costs: Costs) -> Costs:
        return tuple(
            tuple(cost if lane in lanes or able.isdisjoint(lanes) else None for lane, cost in enumerate(row))
            for row, able in zip(costs, everywhere, strict=True)
        )

    everywhere = [{lane for lane, cost in enumerate(row) if cost is not None} for row in problem.alone]
    beside = {kind: table(costs) for kind, costs in problem.beside.items()}
    return replace(problem, alone=table(problem.alone), beside=beside)


@dataclass(frozen=True)
class _Prefix:
    """The best placement of everything up to a subgraph that every path meets, for one lane of that subgraph.

    Attributes:
        seconds: until that subgraph ends.
        bound_s: no placement gets there sooner.
        chosen: (subgraph, lane) in order.
    """

    seconds: float
    bound_s: float
    chosen: tuple[tuple[int, int], ...]


def _different(problem: Problem) -> list[int]:
    """The first lane of each kind: of equal ones that are all free, any will do, but for a crossing."""
    return sorted(set(problem.alike))


def _reached(start: int, edges: Sequence[Sequence[int]]) -> set[int]:
    reached, left = set[int](), [start]
    while left:
        new = set(edges[left.pop()]) - reached
        reached |= new
        left += new
    return reached


@dataclass(frozen=True)
class _Section:
    """Subgraphs between two that every path meets.

    Attributes:
        previous: the one before; None for the first section.
        meet: the one after, which belongs to this section; None for the last section.
        lanes: on which ``meet`` may run.
    """

    problem: Problem
    previous: int | None
    between: tuple[int, ...]
    meet: int | None
    lanes: Collection[int]

    @property
    def subgraphs(self) -> list[int]:
        """All of them in order, with ``previous`` and ``meet``."""
        return [s for s in (self.previous, *self.between, self.meet) if s is not None]

    @property
    def last_lanes(self) -> list[int | None]:
        """Lanes on which ``meet`` can run, of those that it may."""
        if self.meet is None:
            return [None]
        able = [lane for _, lane in self.problem.choices(self.meet)]
        return [lane for lane in able if lane in self.lanes] or [*able]

    def on(self, first: int | None, last: int | None) -> Problem:
        """The section with ``previous``, which costs nothing any more, on lane ``first``, and ``meet`` on ``last``."""
        whole, subgraphs = self.problem, self.subgraphs
        place = {s: index for index, s in enumerate(subgraphs)}

        def costs(table: Costs, s: int) -> tuple[float | None, ...]:
            if s == self.previous:
                return tuple(0.0 if lane == first else None for lane in range(len(whole.lanes)))
            if s == self.meet:
                return tuple(cost if lane == last else None for lane, cost in enumerate(table[s]))
            return tuple(table[s])

        inside = [
            (tensor, tuple(place[reader] for reader in tensor.readers if reader in place))
            for tensor in whole.tensors
            if tensor.source in place
        ]
        return replace(
            whole,
            tensors=tuple(Tensor(place[old.source], readers, old.bytes) for old, readers in inside if readers),
            alone=tuple(costs(whole.alone, s) for s in subgraphs),
            beside={kind: tuple(costs(table, s) for s in subgraphs) for kind, table in whole.beside.items()},
        )


def _extended(
    prefixes: Mapping[int | None, _Prefix], section: _Section, most_nodes: int, tries: int
) -> tuple[dict[int | None, _Prefix], int]:
    """The best prefix up to the end of ``section`` for every lane of its last subgraph, and the nodes looked at."""
    extended: dict[int | None, _Prefix] = {}
    subgraphs, nodes = section.subgraphs, 0
    for last in section.last_lanes:
        best: _Prefix | None = None
        bound = math.inf
        for first, prefix in prefixes.items():
            part = section.on(first, last)
            solved = _Search(part, most_nodes, correction(part, tries)).run()
            nodes += solved.nodes
            bound = min(bound, prefix.bound_s + solved.bound_s)
            seconds = prefix.seconds + solved.placement.makespan_s
            if best is None or seconds < best.seconds:
                own = ((subgraphs[s], solved.placement.lanes[s]) for s in solved.placement.order)
                best = _Prefix(seconds, 0.0, (*prefix.chosen, *(pair for pair in own if pair[0] != section.previous)))
        assert best is not None
        extended[last] = replace(best, bound_s=bound)
    return extended, nodes


class _Search:
    """Branch and bound over one problem.

    Args:
        start: a short placement: the search prunes by it from the beginning.
    """

    def __init__(self, problem: Problem, most_nodes: int, start: Placement) -> None:
        self._problem = problem
        self._most = most_nodes
        self._nodes = 0
        self._seen: dict[tuple[int, tuple[object, ...]], list[tuple[float, ...]]] = {}
        self._memories = sorted({lane.memory for lane in problem.lanes})
        self._open = math.inf  # least bound of what was left unexplored
        self._least_work = [
            min(cost * problem.lanes[lane].threads for cost, lane in problem.choices(s)) for s in range(problem.count)
        ]
        self._cores = [set(lane.cores) for lane in problem.lanes]
        self._around = [[o for o, cores in enumerate(self._cores) if cores & own] for own in self._cores]
        alike = problem.alike
        self._alike = [first if alike.count(first) > 1 else -1 - lane for lane, first in enumerate(alike)]
        self._best = start

    def run(self) -> Exact:
        self._grow(PartialPlacement(self._problem), 0)
        return Exact(self._best, min(self._best.makespan_s, self._open), self._nodes)

    def _grow(self, partial: PartialPlacement, done: int) -> None:
        problem = self._problem
        if len(partial.lane) == problem.count:
            placement = partial.finished()
            if placement.makespan_s < self._best.makespan_s:
                self._best = placement
            return
        ready = [
            s
            for s in range(problem.count)
            if not done >> s & 1 and all(done >> source & 1 for source in problem.needs[s])
        ]
        children = []
        lanes = self._distinct(partial)
        for subgraph in ready:
            for lane in lanes:
                if partial.finish(subgraph, lane) is not None:
                    child = partial.copy()
                    child.place(subgraph, lane)
                    bound = self._bound(child, done | 1 << subgraph)
                    children.append((bound, -problem.tails[subgraph], subgraph, lane, child))
        children.sort(key=lambda item: item[:4])
        for bound, _, subgraph, _, child in children:
            if bound >= self._best.makespan_s * (1.0 - ROUNDING):
                continue
            if self._nodes >= self._most:
                self._open = min(self._open, bound)
                continue
            self._nodes += 1
            if not self._dominated(child, done | 1 << subgraph):
                self._grow(child, done | 1 << subgraph)

    def _distinct(self, partial: PartialPlacement) -> list[int]:
        """Lanes without those that differ in nothing from an earlier one: of many equal cores one is tried."""
        used = set(partial.lane.values())
        seen = set[tuple[object, ...]]()
        distinct = []
        for lane, alike in enumerate(self._alike):
            if alike >= 0 and lane not in used:
                # Lanes that share its cores matter by what they are, whether they ran anything, and when they are free.
                around = [
                    (self._alike[other], other in used, sorted(partial.free[core] for core in self._cores[other]))
                    for other in self._around[lane]
                ]
                state = (alike, *(tuple(map(str, neighbour)) for neighbour in sorted(around)))
                if state in seen:
                    continue
                seen.add(state)
            distinct.append(lane)
        return distinct

    def _bound(self, partial: PartialPlacement, done: int) -> float:
        """No completion ends before this: the longest chain left, and the work left divided among all cores."""
        problem = self._problem
        latest = max(partial.end.values(), default=0.0)
        work = sum(partial.free)
        idle = min(partial.free)
        for subgraph in range(problem.count):
            if not done >> subgraph & 1:
                ready = max((partial.end[s] for s in problem.needs[subgraph] if s in partial.end), default=0.0)
                latest = max(latest, max(ready, idle) + problem.tails[subgraph])
                work += self._least_work[subgraph]
        return max(latest, work / len(partial.free))

    def _dominated(self, partial: PartialPlacement, done: int) -> bool:
        """Return whether one of the same subgraphs was seen that is nowhere worse; if not, this one is remembered.

        Only those with the same tensors in the same memories are compared: a copy that is still to be made may have to
        wait for another, one that was made does not.
        """
        problem = self._problem
        state, copied = list(partial.free), []
        for number, tensor in enumerate(problem.tensors):
            if not done >> tensor.source & 1 or all(done >> reader & 1 for reader in tensor.readers):
                continue
            made_on, end = partial.lane[tensor.source], partial.end[tensor.source]
            home = problem.lanes[made_on].memory
            crossed = end + problem.crossing.seconds(tensor.bytes)
            for lane, other in enumerate(problem.lanes):
                if other.memory == home:
                    state.append(end if lane == made_on else crossed)
            for memory in self._memories:
                there = partial.there.get((number, memory))
                copied.append((number, home, memory, there is not None))
                state.append(end if there is None else there)
        if len(self._memories) > 1:
            free = partial.link_free
            state += [free.get((one, other), 0.0) for one in self._memories for other in self._memories]
        state.append(max(partial.end.values()))
        seen = self._seen.setdefault((done, tuple(copied)), [])
        if any(all(a <= b for a, b in zip(other, state, strict=True)) for other in seen):
            return True
        seen[:] = [other for other in seen if not all(b <= a for a, b in zip(other, state, strict=True))]
        seen.append(tuple(state))
        return False
