"""The best placement that there is, proven: branch and bound over courses. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune.graph.placement import Course, Placement, Problem, course_of
from autotune.graph.placers import correction, heft, single
from schedules.errors import UsageError

NODES = 6_000
"""Courses not yet at their end that the search looks at before it gives up proving: about a second."""


@dataclass(frozen=True)
class Exact:
    """What the exact search found.

    Attributes:
        placement: the best.
        bound_s: no course is shorter than this.
        nodes: courses looked at, most not yet at their end.
    """

    placement: Placement
    bound_s: float
    nodes: int

    @property
    def gap(self) -> float:
        """How far the placement may be from the best, as a share of it; 0 is proven optimal."""
        best = self.placement.makespan_s
        return 0.0 if best <= self.bound_s * (1.0 + 1e-9) else best / self.bound_s - 1.0


def exact(problem: Problem, most_nodes: int = NODES) -> Exact:
    """Branch and bound, depth first, the most promising child first.

    Two courses of the same subgraphs are compared by when cores get free, when results that are still needed
    are there on every lane, and the memory spent: the one that is nowhere better is dropped.

    A subgraph that every path meets starts after everything before it and ends before everything after it, so what lies
    between two of those is searched alone, for every pair of lanes that they may be on. Limits of memory hold for the
    whole model, which is then searched as one.

    Args:
        most_nodes: look at no more courses; the gap is then what is left unproven.
    """
    if problem.limits or not problem.count:
        return _Search(problem, most_nodes).run()
    readers = _readers(problem)
    everyone = set(range(problem.count))
    meets = [s for s in sorted(everyone) if everyone - {s} == _reached(s, problem.needs) | _reached(s, readers)]
    ways: dict[int | None, _Way] = {None: _Way(0.0, 0.0, (), 0)}
    previous: int | None = None
    begin = 0
    for meet in (*meets, None):
        end = problem.count if meet is None else meet
        between = list(range(begin, end))
        if between or meet is not None:
            ways = _next_ways(problem, ways, previous, between, meet, max(400, most_nodes // (1 + len(meets))))
        previous, begin = meet, end + 1
    best = min(ways.values(), key=lambda way: way.seconds)
    lanes = dict(best.chosen)
    placement = course_of(problem, [lanes[s] for s in range(problem.count)], [s for s, _ in best.chosen])
    return Exact(placement, min(way.bound_s for way in ways.values()), sum(way.nodes for way in ways.values()))


@dataclass(frozen=True)
class _Way:
    """The best way to the end of a subgraph that every path meets, for one lane of it.

    Attributes:
        bound_s: no way is shorter.
        chosen: (subgraph, lane) in order.
    """

    seconds: float
    bound_s: float
    chosen: tuple[tuple[int, int], ...]
    nodes: int


def _reached(start: int, edges: Sequence[Sequence[int]]) -> set[int]:
    found, left = set[int](), [start]
    while left:
        new = set(edges[left.pop()]) - found
        found |= new
        left += new
    return found


def _readers(problem: Problem) -> list[list[int]]:
    readers: list[list[int]] = [[] for _ in range(problem.count)]
    for subgraph, sources in enumerate(problem.needs):
        for source in sources:
            readers[source].append(subgraph)
    return readers


def _next_ways(
    problem: Problem,
    ways: dict[int | None, _Way],
    previous: int | None,
    between: Sequence[int],
    meet: int | None,
    most_nodes: int,
) -> dict[int | None, _Way]:
    """From every lane that ``previous`` may be on, through ``between``, to every lane that ``meet`` may be on."""
    found: dict[int | None, _Way] = {}
    lasts: list[int | None] = [None] if meet is None else [lane for _, lane in problem.choices(meet)]
    nodes = sum(way.nodes for way in ways.values())
    for last in lasts:
        best: _Way | None = None
        bound = math.inf
        for first, way in ways.items():
            part = _part(problem, previous, first, between, meet, last)
            solved = _Search(part.problem, most_nodes).run()
            nodes += solved.nodes
            bound = min(bound, way.bound_s + solved.bound_s)
            seconds = way.seconds + solved.placement.makespan_s
            if best is None or seconds < best.seconds:
                own = ((part.subgraphs[s], solved.placement.lanes[s]) for s in solved.placement.order)
                best = _Way(seconds, 0.0, (*way.chosen, *((s, lane) for s, lane in own if s != previous)), 0)
        assert best is not None
        found[last] = _Way(best.seconds, bound, best.chosen, 0)
    key = next(iter(found))
    found[key] = _Way(found[key].seconds, found[key].bound_s, found[key].chosen, nodes)
    return found


@dataclass(frozen=True)
class _Part:
    """Some subgraphs of a problem as a problem of their own."""

    problem: Problem
    subgraphs: tuple[int, ...]


def _part(
    problem: Problem,
    previous: int | None,
    first: int | None,
    between: Sequence[int],
    meet: int | None,
    last: int | None,
) -> _Part:
    """``between`` with ``previous``, which costs nothing any more, on lane ``first``, and ``meet`` on lane ``last``."""
    subgraphs = [s for s in (previous, *between, meet) if s is not None]
    place = {s: index for index, s in enumerate(subgraphs)}
    count = len(problem.lanes)

    def costs(table: Sequence[Sequence[float | None]], s: int) -> tuple[float | None, ...]:
        if s == previous:
            return tuple(0.0 if lane == first else None for lane in range(count))
        if s == meet:
            return tuple(table[s][lane] if lane == last else None for lane in range(count))
        return tuple(table[s])

    part = Problem(
        problem.lanes,
        tuple(tuple(place[source] for source in problem.needs[s] if source in place) for s in subgraphs),
        tuple(costs(problem.alone, s) for s in subgraphs),
        tuple(costs(problem.busy, s) for s in subgraphs),
        tuple(problem.bytes[s] for s in subgraphs),
        problem.latency_s,
        problem.bytes_per_s,
    )
    return _Part(part, tuple(subgraphs))


class _Search:
    def __init__(self, problem: Problem, most_nodes: int) -> None:
        self._problem = problem
        self._most = most_nodes
        self._nodes = 0
        self._seen: dict[int, list[tuple[float, ...]]] = {}
        self._open = math.inf  # least bound of what was left unexplored
        self._readers = _readers(problem)
        self._least_work = [
            min(cost * problem.lanes[lane].threads for cost, lane in problem.choices(s)) for s in range(problem.count)
        ]
        self._best = self._incumbent()

    def run(self) -> Exact:
        if self._problem.count:
            self._grow(Course(self._problem), 0)
        bound = min(self._best.makespan_s, self._open)
        return Exact(self._best, bound, self._nodes)

    def _incumbent(self) -> Placement:
        """The best of the quick ways: a tight start prunes most."""
        found = []
        quick: tuple[Callable[[Problem], Placement], ...] = (single, heft, correction)
        for place in quick:
            try:
                found.append(place(self._problem))
            except UsageError:  # it ran out of memory; another may not, and the search itself may not
                continue
        if not found:
            raise UsageError("no placement found that keeps within the lanes' memory; give more lanes or more memory")
        return min(found, key=lambda placement: placement.makespan_s)

    def _grow(self, course: Course, done: int) -> None:
        problem = self._problem
        if len(course.lane) == problem.count:
            placement = course.done()
            if placement.makespan_s < self._best.makespan_s:
                self._best = placement
            return
        ready = [
            s
            for s in range(problem.count)
            if not done >> s & 1 and all(done >> source & 1 for source in problem.needs[s])
        ]
        children = []
        for subgraph in ready:
            for lane in range(len(problem.lanes)):
                if course.finish(subgraph, lane) is not None:
                    child = course.copy()
                    child.put(subgraph, lane)
                    bound = self._bound(child, done | 1 << subgraph)
                    children.append((bound, -problem.tails[subgraph], subgraph, lane, child))
        children.sort(key=lambda item: item[:4])
        for bound, _, subgraph, _, child in children:
            if bound >= self._best.makespan_s * (1 - 1e-9):
                continue
            if self._nodes >= self._most:
                self._open = min(self._open, bound)
                continue
            self._nodes += 1
            if not self._dominated(child, done | 1 << subgraph):
                self._grow(child, done | 1 << subgraph)

    def _bound(self, course: Course, done: int) -> float:
        """No completion ends before this: chains that are left, and work that is left shared by all cores."""
        problem = self._problem
        latest = max(course.end.values(), default=0.0)
        work = sum(course.free)
        idle = min(course.free)
        for subgraph in range(problem.count):
            if not done >> subgraph & 1:
                ready = max((course.end[s] for s in problem.needs[subgraph] if s in course.end), default=0.0)
                latest = max(latest, max(ready, idle) + problem.tails[subgraph])
                work += self._least_work[subgraph]
        return max(latest, work / len(course.free))

    def _dominated(self, course: Course, done: int) -> bool:
        """Whether a course of the same subgraphs was seen that is nowhere worse; if not, this one is remembered."""
        problem = self._problem
        state = list(course.free)
        for s in range(problem.count):
            if done >> s & 1 and any(not done >> reader & 1 for reader in self._readers[s]):
                moved = course.end[s] + problem.transfer_s(s)
                state += [course.end[s] if course.lane[s] == lane else moved for lane in range(len(problem.lanes))]
        state += [float(course.used(lane)) for lane in range(len(problem.limits))]
        state.append(max(course.end.values()))
        seen = self._seen.setdefault(done, [])
        if any(all(a <= b for a, b in zip(other, state, strict=True)) for other in seen):
            return True
        seen[:] = [other for other in seen if not all(b <= a for a, b in zip(other, state, strict=True))]
        seen.append(tuple(state))
        return False
