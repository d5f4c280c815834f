"""Quick ways to place subgraphs: baselines and the paper's. Pure.

single          the one lane on which the model is fastest
round-robin     lanes in turn
heft            H. Topcuoglu et al., "Performance-effective and low-complexity task scheduling for heterogeneous
                computing", IEEE TPDS 2002: by upward rank, each to the lane on which it ends first
greedy          DUET: from the critical path, the longest to its fastest lane, the others to whatever ends first
correction      greedy, then single subgraphs are moved and pairs swapped as long as that helps

The exact one is in graph/exact.py, all of them by name in graph/placer_catalog.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from autotune.graph.placement import Course, Placement, Problem, course_of, ready_order
from schedules.errors import UsageError

Judge = Callable[[Placement], float]
"""Seconds of a placement: its makespan, or a real end-to-end measurement."""


def single(problem: Problem) -> Placement:
    """All subgraphs on the lane on which that is fastest.

    Raises:
        UsageError: if no lane can run and hold them all.
    """
    found = []
    for lane in range(len(problem.lanes)):
        course = Course(problem)
        order = ready_order(problem)
        while order and course.finish(order[0], lane) is not None:
            course.put(order.pop(0), lane)
        if not order:
            found.append(course.done())
    if not found:
        raise UsageError("no lane alone can run the whole model; give more lanes or more memory")
    return min(found, key=lambda placement: placement.makespan_s)


def round_robin(problem: Problem) -> Placement:
    """Subgraphs in order to lanes in turn, skipping lanes that cannot run or hold them."""
    course, turn = Course(problem), 0
    for subgraph in ready_order(problem):
        for offset in range(len(problem.lanes)):
            lane = (turn + offset) % len(problem.lanes)
            if course.finish(subgraph, lane) is not None:
                course.put(subgraph, lane)
                turn = lane + 1
                break
        else:
            raise _full(subgraph)
    return course.done()


def heft(problem: Problem) -> Placement:
    """Heterogeneous earliest finish time, without its insertion into gaps: our lanes run in order."""
    ranks = _upward_ranks(problem)
    course = Course(problem)
    # By falling rank; a rank is above that of everything that follows, so this order respects all dependences.
    for subgraph in sorted(range(problem.count), key=lambda s: (-ranks[s], s)):
        course.put(subgraph, _first_to_end(course, subgraph))
    return course.done()


def _upward_ranks(problem: Problem) -> list[float]:
    """Mean cost plus the largest of mean transfer and rank over all readers."""
    ranks = [0.0] * problem.count
    readers: list[list[int]] = [[] for _ in range(problem.count)]
    for subgraph, sources in enumerate(problem.needs):
        for source in sources:
            readers[source].append(subgraph)
    for subgraph in reversed(range(problem.count)):
        costs = [cost for cost, _ in problem.choices(subgraph)]
        moved = problem.transfer_s(subgraph) * (1.0 - 1.0 / len(problem.lanes))
        after = max((moved + ranks[reader] for reader in readers[subgraph]), default=0.0)
        ranks[subgraph] = sum(costs) / len(costs) + after
    return ranks


def greedy(problem: Problem) -> Placement:
    """The paper's greedy: whatever is on the critical path to its fastest lane, the others to where they end first."""
    critical = set(_critical_path(problem))
    lanes: dict[int, int] = {}
    course = Course(problem)
    for subgraph in ready_order(problem):
        fastest = [lane for _, lane in problem.choices(subgraph) if course.finish(subgraph, lane) is not None]
        if not fastest:
            raise _full(subgraph)
        lanes[subgraph] = fastest[0] if subgraph in critical else _first_to_end(course, subgraph)
        course.put(subgraph, lanes[subgraph])
    return course.done()


def _critical_path(problem: Problem) -> Iterator[int]:
    """The chain of subgraphs that no course can beat, from its first."""
    heads = [subgraph for subgraph in range(problem.count) if not problem.needs[subgraph]]
    current: int | None = max(heads, key=lambda s: problem.tails[s], default=None)
    while current is not None:
        yield current
        after = [s for s in range(problem.count) if current in problem.needs[s]]
        current = max(after, key=lambda s: problem.tails[s], default=None)


MOST_TRIES = 1500
"""Changes that greedy-correction tries: on a model of many subgraphs all pairs, over and over, would take minutes."""


def correction(problem: Problem, judge: Judge | None = None, least_gain: float = 1e-6) -> Placement:
    """The paper's greedy-correction: greedy's placement, moved and swapped while ``judge`` finds that faster.

    Args:
        judge: seconds of a placement; None for its makespan. A real measurement may be given.
        least_gain: a change must shorten the run by more than this share: with a judge that measures, its noise.
    """
    seconds = judge or (lambda placement: placement.makespan_s)
    best = greedy(problem)
    least = seconds(best)
    improved, tries = True, 0
    while improved and tries < MOST_TRIES:
        improved = False
        for lanes in itertools.islice(_neighbours(problem, best), MOST_TRIES - tries):
            tries += 1
            other = course_of(problem, lanes)
            found = seconds(other)
            if found < least * (1.0 - least_gain):
                best, least, improved = other, found, True
                break
    return best


def _neighbours(problem: Problem, placement: Placement) -> Iterator[tuple[int, ...]]:
    """Every choice of lanes that differs by one move or one swap, and is allowed."""
    for subgraph in range(problem.count):
        for lane in range(len(problem.lanes)):
            if lane != placement.lanes[subgraph]:
                moved = list(placement.lanes)
                moved[subgraph] = lane
                if _allowed(problem, moved):
                    yield tuple(moved)
    for one, other in itertools.combinations(range(problem.count), 2):
        if placement.lanes[one] != placement.lanes[other]:
            swapped = list(placement.lanes)
            swapped[one], swapped[other] = swapped[other], swapped[one]
            if _allowed(problem, swapped):
                yield tuple(swapped)


def _allowed(problem: Problem, lanes: list[int]) -> bool:
    if any(problem.cost(subgraph, lane) is None for subgraph, lane in enumerate(lanes)):
        return False
    for lane, limit in enumerate(problem.limits):
        if sum(problem.memory[s][lane] for s, where in enumerate(lanes) if where == lane) > limit:
            return False
    return True


def _first_to_end(course: Course, subgraph: int) -> int:
    ends = [(course.finish(subgraph, lane), lane) for lane in range(len(course.problem.lanes))]
    possible = [(end, lane) for end, lane in ends if end is not None]
    if not possible:
        raise _full(subgraph)
    return min(possible)[1]


def _full(subgraph: int) -> UsageError:
    return UsageError(f"subgraph {subgraph} fits no lane's memory any more; give more lanes or more memory")
