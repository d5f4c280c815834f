"""Every way to place subgraphs, by name, with a baseline of the paper that the program does not use: round-robin."""

from __future__ import annotations

from collections.abc import Callable

from autotune.graph.exact import exact
from autotune.graph.placement import PartialPlacement, Placement, Problem
from autotune.graph.placers import correction, greedy, heft, single
from schedules.errors import UsageError


def round_robin(problem: Problem) -> Placement:
    """Subgraphs in order to lanes in turn, skipping lanes that cannot run or hold them."""
    partial, turn = PartialPlacement(problem), 0
    for subgraph in problem.order:
        lanes = [(turn + offset) % len(problem.lanes) for offset in range(len(problem.lanes))]
        lane = next((lane for lane in lanes if partial.finish(subgraph, lane) is not None), None)
        if lane is None:
            raise UsageError(f"subgraph {subgraph} fits no lane's memory any more; give more lanes or more memory")
        partial.place(subgraph, lane)
        turn = lane + 1
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
