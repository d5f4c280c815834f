"""Quick ways to place subgraphs: one lane, and the paper's two. Pure.

single          the one lane on which the model is fastest
greedy          DUET (IPDPS 2021): the critical path on its fastest lanes, the others where they end first
correction      greedy, then single subgraphs are moved and pairs swapped as long as that helps

The exact search is in graph/exact.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from autotune.graph.placement import PartialPlacement, Placement, Problem, place_all
from schedules.errors import UsageError

MOST_TRIES = 1500
"""Changes that ``correction`` tries at most. Trying all pairs again and again on a model of 50 subgraphs would take
minutes. Heuristic, not measured."""

LEAST_GAIN = 1e-6
"""Share of the makespan that a change must save to be kept: more than rounding."""


def single(problem: Problem) -> Placement:
    """All subgraphs on the lane on which that is fastest.

    Raises:
        UsageError: if no lane can run them all.
    """
    able = [lane for lane in range(len(problem.lanes)) if all(costs[lane] is not None for costs in problem.busy)]
    if not able:
        raise UsageError("no lane alone can run the whole model; give more lanes")
    placements = [place_all(problem, [lane] * problem.count) for lane in able]
    return min(placements, key=lambda placement: placement.makespan_s)


def greedy(problem: Problem) -> Placement:
    """The paper's greedy: the critical path on its fastest lanes, all others where they end first."""
    critical = set(_critical_path(problem))
    partial = PartialPlacement(problem)
    for subgraph in problem.order:
        fastest = problem.choices(subgraph)[0][1]
        partial.place(subgraph, fastest if subgraph in critical else first_to_end(partial, subgraph))
    return partial.finished()


def _critical_path(problem: Problem) -> Iterator[int]:
    """The chain of subgraphs that takes longest, each on its fastest lane, from its first."""
    candidates = [subgraph for subgraph in range(problem.count) if not problem.needs[subgraph]]
    while candidates:
        current = max(candidates, key=lambda s: problem.tails[s])
        yield current
        candidates = list(problem.readers[current])


def correction(problem: Problem) -> Placement:
    """The paper's greedy-correction: greedy's placement, changed while a move or a swap shortens its makespan."""
    best = greedy(problem)
    improved, tries = True, 0
    while improved and tries < MOST_TRIES:
        improved = False
        for lanes in itertools.islice(_neighbours(problem, best), MOST_TRIES - tries):
            tries += 1
            other = place_all(problem, lanes)
            if other.makespan_s < best.makespan_s * (1.0 - LEAST_GAIN):
                best, improved = other, True
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
    return all(problem.cost(subgraph, lane) is not None for subgraph, lane in enumerate(lanes))


def first_to_end(partial: PartialPlacement, subgraph: int) -> int:
    """The lane on which ``subgraph`` would end first."""
    ends = [(partial.finish(subgraph, lane), lane) for lane in range(len(partial.problem.lanes))]
    return min((end, lane) for end, lane in ends if end is not None)[1]
