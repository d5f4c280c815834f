"""Every way to place subgraphs, by name, with baselines that the program does not use: single, round-robin, HEFT."""

from __future__ import annotations

from collections.abc import Callable

from autotune.graph.exact import exact
from autotune.graph.placement import PartialPlacement, Placement, Problem, place_all
from autotune.graph.placers import correction, first_to_end, greedy
from schedules.vocabulary.errors import UsageError


def single(problem: Problem) -> Placement:
    """All subgraphs on the lane on which that is fastest.

    Raises:
        UsageError: if no lane can run them all.
    """
    able = [lane for lane in range(len(problem.lanes)) if all(costs[lane] is not None for costs in problem.alone)]
    if not able:
        raise UsageError("no lane alone can run the whole model; give more lanes")
    placements = [place_all(problem, [lane] * problem.count) for lane in able]
    return min(placements, key=lambda placement: placement.makespan_s)


def round_robin(problem: Problem) -> Placement:
    """Subgraphs in order to lanes in turn, skipping lanes that cannot run them."""
    partial, turn = PartialPlacement(problem), 0
    for subgraph in problem.order:
        lanes = [(turn + offset) % len(problem.lanes) for offset in range(len(problem.lanes))]
        lane = next(lane for lane in lanes if partial.finish(subgraph, lane) is not None)
        partial.place(subgraph, lane)
        turn = lane + 1
    return partial.finished()


def heft(problem: Problem) -> Placement:
    """Heterogeneous earliest finish time, without its insertion into gaps: our lanes run in order.

    H. Topcuoglu et al., "Performance-effective and low-complexity task scheduling for heterogeneous computing", IEEE
    TPDS 2002: by upward rank (mean cost plus the largest of mean transfer and rank over all readers), each on the lane
    on which it ends first.
    """
    ranks = [0.0] * problem.count
    for subgraph in reversed(range(problem.count)):
        costs = [cost for cost, _ in problem.choices(subgraph)]
        out = [tensor.bytes for tensor in problem.tensors if tensor.source == subgraph]
        moved = problem.crossing.seconds(max(out, default=0)) * (1.0 - 1.0 / len(problem.lanes))
        after = max((moved + ranks[reader] for reader in problem.readers[subgraph]), default=0.0)
        ranks[subgraph] = sum(costs) / len(costs) + after
    partial = PartialPlacement(problem)
    # A rank is above the rank of everything that follows, so the order of falling ranks respects all dependences.
    for subgraph in sorted(range(problem.count), key=lambda s: (-ranks[s], s)):
        partial.place(subgraph, first_to_end(partial, subgraph))
    return partial.finished()


PLACERS: dict[str, Callable[[Problem], Placement]] = {
    "single": single,
    "round-robin": round_robin,
    "heft": heft,
    "greedy": greedy,
    "correction": correction,
    "exact": lambda problem: exact(problem).placement,
}
"""Name → placement of a problem."""
