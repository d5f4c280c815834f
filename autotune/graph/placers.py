"""Quick ways to place subgraphs: one lane, HEFT and the paper's two. Pure.

single          the one lane on which the model is fastest
heft            H. Topcuoglu et al., "Performance-effective and low-complexity task scheduling for heterogeneous
                computing", IEEE TPDS 2002: by upward rank, each on the lane on which it ends first
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
        UsageError: if no lane can run and hold them all.
    """
    found = []
    for lane in range(len(problem.lanes)):
        partial = PartialPlacement(problem)
        for subgraph in problem.order:
            if partial.finish(subgraph, lane) is None:
                break
            partial.place(subgraph, lane)
        else:
            found.append(partial.finished())
    if not found:
        raise UsageError("no lane alone can run the whole model; give more lanes or more memory")
    return min(found, key=lambda placement: placement.makespan_s)


def heft(problem: Problem) -> Placement:
    """Heterogeneous earliest finish time, without its insertion into gaps: our lanes run in order.

    Raises:
        UsageError: if a subgraph fits no lane's memory.
    """
    ranks = _upward_ranks(problem)
    partial = PartialPlacement(problem)
    # A rank is above the rank of everything that follows, so the order of falling ranks respects all dependences.
    for subgraph in sorted(range(problem.count), key=lambda s: (-ranks[s], s)):
        partial.place(subgraph, _first_to_end(partial, subgraph))
    return partial.finished()


def _upward_ranks(problem: Problem) -> list[float]:
    """Mean cost plus the largest of mean transfer and rank over all readers."""
    ranks = [0.0] * problem.count
    for subgraph in reversed(range(problem.count)):
        costs = [cost for cost, _ in problem.choices(subgraph)]
        moved = problem.transfer_s(subgraph) * (1.0 - 1.0 / len(problem.lanes))
        after = max((moved + ranks[reader] for reader in problem.readers[subgraph]), default=0.0)
        ranks[subgraph] = sum(costs) / len(costs) + after
    return ranks


def greedy(problem: Problem) -> Placement:
    """The paper's greedy: the critical path on its fastest lanes, all others where they end first.

    Raises:
        UsageError: if a subgraph fits no lane's memory.
    """
    critical = set(_critical_path(problem))
    partial = PartialPlacement(problem)
    for subgraph in problem.order:
        fastest = [lane for _, lane in problem.choices(subgraph) if partial.finish(subgraph, lane) is not None]
        lane = fastest[0] if fastest and subgraph in critical else _first_to_end(partial, subgraph)
        partial.place(subgraph, lane)
    return partial.finished()


def _critical_path(problem: Problem) -> Iterator[int]:
    """The chain of subgraphs that takes longest, each on its fastest lane, from its first."""
    candidates = [subgraph for subgraph in range(problem.count) if not problem.needs[subgraph]]
    while candidates:
        current = max(candidates, key=lambda s: problem.tails[s])
        yield current
        candidates = list(problem.readers[current])


def correction(problem: Problem) -> Placement:
    """The paper's greedy-correction: greedy's placement, changed while a move or a swap shortens its makespan.

    Raises:
        UsageError: as ``greedy``.
    """
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
    if any(problem.cost(subgraph, lane) is None for subgraph, lane in enumerate(lanes)):
        return False
    for lane, limit in enumerate(problem.limits):
        if sum(problem.memory[s][lane] for s, where in enumerate(lanes) if where == lane) > limit:
            return False
    return True


def _first_to_end(partial: PartialPlacement, subgraph: int) -> int:
    ends = [(partial.finish(subgraph, lane), lane) for lane in range(len(partial.problem.lanes))]
    possible = [(end, lane) for end, lane in ends if end is not None]
    if not possible:
        raise UsageError(f"subgraph {subgraph} fits no lane's memory any more; give more lanes or more memory")
    return min(possible)[1]
