"""Quick ways to place subgraphs: the paper's two, and one more. Pure.

greedy          DUET (IPDPS 2021): the critical path on its fastest lanes, the others where they end first
earliest        longest tail first, each subgraph where it ends first
correction      the better of the two, then single subgraphs are moved and pairs swapped as long as that helps

The exact search is in graph/exact.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator

from autotune.graph.placement import PartialPlacement, Placement, Problem, place_all

MOST_TRIES = 1500
"""Changes that ``correction`` tries at most. Trying all pairs again and again on a model of 50 subgraphs would take
minutes. Heuristic, not measured."""

PROMISING = 0.1
"""Share of the makespan by which a change may be worse, as predicted, and still be judged: predictions were off by up
to 9 % (docs/lab: branches)."""

LEAST_GAIN = 1e-6
"""Share of the seconds that a change must save to be kept where they are computed: more than rounding."""


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


Judge = Callable[[Placement, Placement], bool]
"""(one, other) → whether ``one`` is faster."""


def earliest(problem: Problem, lanes: Collection[int] | None = None) -> Placement:
    """Longest tail first, each where it ends first: on many lanes a better start than ``greedy``.

    Args:
        lanes: that are considered, for subgraphs that can run on one of them; None for all.
    """
    partial = PartialPlacement(problem)
    for subgraph in problem.order:
        partial.place(subgraph, first_to_end(partial, subgraph, lanes))
    return partial.finished()


def _starts(problem: Problem) -> Iterator[Placement]:
    """Quick placements: with all lanes, and with the devices and groups of cores of one size.

    A subgraph ends first on the largest group, which then is free for nothing else: where groups of several sizes
    share cores, only smaller ones run anything side by side.
    """
    yield greedy(problem)
    yield earliest(problem)
    sizes = {lane.threads for lane in problem.lanes if not lane.device}
    for size in sorted(sizes) if len(sizes) > 1 else ():
        yield earliest(problem, [n for n, lane in enumerate(problem.lanes) if lane.device or lane.threads == size])


def correction(problem: Problem, most: int = MOST_TRIES) -> Placement:
    """The paper's greedy-correction: a placement that is changed while a move or a swap shortens its makespan.

    The paper begins with greedy's; here with ``earliest``'s, on all lanes or some, where that is shorter.

    Args:
        most: changes that are tried.
    """
    start = min(_starts(problem), key=lambda placement: placement.makespan_s)
    return corrected(problem, start, _is_shorter, most)


def _is_shorter(one: Placement, other: Placement) -> bool:
    return one.makespan_s < other.makespan_s * (1.0 - LEAST_GAIN)


def corrected(problem: Problem, start: Placement, judge: Judge, most: int) -> Placement:
    """``start``, changed while a move of a subgraph, in lane or order, or a swap of two is faster by ``judge``'s word.

    The model of costs only says which changes are worth a try, so a judge that measures corrects the model, as DUET
    does.

    Args:
        most: tries, each of which asks the judge once.
    """
    best = start
    improved, looked_at, judged = True, 0, {problem.way(start)}
    while improved and looked_at < MOST_TRIES:
        improved = False
        for lanes, order in itertools.islice(_neighbours(problem, best), MOST_TRIES - looked_at):
            looked_at += 1
            other = place_all(problem, lanes, order)
            way = problem.way(other)
            if way in judged or other.makespan_s > best.makespan_s * (1.0 + PROMISING):
                continue
            if len(judged) > most:
                return best
            judged.add(way)
            if judge(other, best):
                best, improved = other, True
                break
    return best


def _neighbours(problem: Problem, placement: Placement) -> Iterator[tuple[list[int], list[int]]]:
    """(lanes, order) of every placement that differs by one subgraph's lane or place in the order, or by one swap."""
    for subgraph in placement.order:
        rest = [other for other in placement.order if other != subgraph]
        place = {other: index for index, other in enumerate(rest)}
        first = max((place[source] + 1 for source in problem.needs[subgraph]), default=0)
        last = min((place[reader] for reader in problem.readers[subgraph]), default=len(rest))
        for _, lane in problem.choices(subgraph):
            moved = list(placement.lanes)
            moved[subgraph] = lane
            yield from ((moved, [*rest[:index], subgraph, *rest[index:]]) for index in range(first, last + 1))
    for one, other in itertools.combinations(range(problem.count), 2):
        swapped = list(placement.lanes)
        swapped[one], swapped[other] = swapped[other], swapped[one]
        allowed = all(problem.cost(subgraph, swapped[subgraph]) is not None for subgraph in (one, other))
        if swapped[one] != swapped[other] and allowed:
            yield swapped, list(placement.order)


def first_to_end(partial: PartialPlacement, subgraph: int, lanes: Collection[int] | None = None) -> int:
    """The lane, of ``lanes`` if one of them can run it, on which ``subgraph`` would end first."""
    ends = ((partial.finish(subgraph, lane), lane) for lane in lanes or range(len(partial.problem.lanes)))
    able = [(end, lane) for end, lane in ends if end is not None]
    return min(able)[1] if able else first_to_end(partial, subgraph)
