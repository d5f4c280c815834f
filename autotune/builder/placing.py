"""Placing a model on lanes: one procedure for groups of CPU cores and for a CPU with a device.

DUET (IPDPS 2021) in five steps. A *source* cuts the model into subgraphs and prices each on each lane (1, 2). Here they
are placed (3: graph/exact.py, graph/placers.py), every placement is made and timed end to end beside the whole model on
one lane, the fastest is corrected by more timings (4), and one lane is kept unless a placement is faster by ``WORTH``
(5).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from autotune.artifact.plan import Choice, LanePlan, Placed
from autotune.graph.exact import exact
from autotune.graph.flat import Flat
from autotune.graph.partition import Subgraph
from autotune.graph.placement import Placement, Problem
from autotune.graph.placers import PROMISING, corrected, correction
from autotune.graph.simulation import simulate
from autotune.graph.steps import Piece, Steps, arrange

logger = logging.getLogger(__name__)

WORTH = 1.02
"""Factor by which a placement must be faster than one lane to be kept. Smaller differences of two timings are noise."""

MOST_MEASURED = 8
"""Changes of a placement that are made and timed. Heuristic: one takes a fraction of a second on groups of cores."""

M = TypeVar("M")
"""How a model is made to run: steps that are loaded already, or the folder of an artifact."""


@dataclass(frozen=True)
class PlacedModel:
    """A placement of a model's subgraphs.

    Attributes:
        subgraphs: (n,) with the numbers of their kernel calls, or none where calls are numbered after placing.
        spans: (n,) seconds at which each should begin and end, simulated.
        copies: between memories, as the plan has them.
    """

    subgraphs: tuple[Subgraph, ...]
    problem: Problem
    placement: Placement
    spans: tuple[tuple[float, float], ...]
    copies: tuple[Placed, ...] = ()

    @property
    def uses_several_lanes(self) -> bool:
        """Whether more than one lane runs anything."""
        return len(set(self.placement.lanes)) > 1

    @property
    def predicted_s(self) -> float:
        """Seconds until the last subgraph ends."""
        return max(end for _, end in self.spans)

    @property
    def pieces(self) -> list[Piece]:
        """The subgraphs that have calls, in order."""
        ordered = ((self.subgraphs[s], self.placement.lanes[s]) for s in self.placement.order)
        return [Piece(part.name, part.nodes, lane) for part, lane in ordered if part.nodes]

    def steps(self, flats: Mapping[int, Flat]) -> Steps:
        """The kernel calls in order, by lane, where all lanes have one memory.

        Args:
            flats: threads of a lane → the program with kernels for such lanes.
        """
        return arrange(flats, self.pieces, self.problem.lanes)

    def plan(self, text: str, choices: Mapping[int, tuple[Choice, ...]]) -> LanePlan:
        """As plan.json has it.

        Args:
            text: the option that named the lanes.
            choices: threads of a lane → its kernels, where that is not the plan's own number of threads.
        """
        lanes = [self.problem.lanes[lane] for lane in self.placement.lanes]
        used = {lane.threads for lane in lanes}
        ordered = ((self.subgraphs[s], lanes[s].name, self.spans[s]) for s in self.placement.order)
        placed = tuple(Placed(part.name, lane, part.nodes, *span) for part, lane, span in ordered if part.nodes)
        everything = tuple(sorted((*placed, *self.copies), key=lambda each: each.begin_s)) if self.copies else placed
        return LanePlan(text, tuple((count, choices[count]) for count in sorted(used & set(choices))), everything)


@dataclass(frozen=True)
class Candidate(Generic[M]):
    """A whole model, made to run one way.

    Attributes:
        name: for people.
        made: what runs it.
        placed: where its subgraphs run; None for one lane.
    """

    name: str
    made: M
    placed: PlacedModel | None = None


class Source(Protocol[M]):
    """A model that can be cut, run on one lane, and run as placed."""

    def cuts(self) -> Iterable[tuple[tuple[Subgraph, ...], Problem]]:
        """Ways to cut the model into subgraphs, each with its costs."""
        ...

    def one_lane(self) -> Sequence[Candidate[M]]:
        """The whole model on each lane that may run all of it; empty where only placements are wanted."""
        ...

    def make(self, number: int, placed: PlacedModel) -> M:
        """The model as placed."""
        ...

    def seconds(self, candidates: Sequence[Candidate[M]]) -> Sequence[float]:
        """Seconds that the whole model takes as each of ``candidates``, which are timed in turn."""
        ...


@dataclass(frozen=True)
class Fastest(Generic[M]):
    """What to keep.

    Attributes:
        seconds: that the whole model takes.
        one_lane_s: that it takes on the fastest single lane; None if that was not asked for.
        ms: name of every candidate → milliseconds.
    """

    candidate: Candidate[M]
    seconds: float
    one_lane_s: float | None
    ms: dict[str, float]


def fastest(source: Source[M]) -> Fastest[M]:
    """The fastest way to run the model.

    Raises:
        MissingRecordError: if a cost or a timing is missing and may not be measured.
    """
    one_lane = list(source.one_lane())
    placements = [placed for placed in placements_of(source.cuts()) if placed.uses_several_lanes or not one_lane]
    placed = [
        Candidate(f"placed, {number}", source.make(number, each), each) for number, each in enumerate(placements, 1)
    ]
    candidates = [*one_lane, *placed]
    seconds = source.seconds(candidates)
    one_lane_s = min(seconds[: len(one_lane)], default=math.inf)
    every = list(zip(candidates, seconds, strict=True))
    quickest = min(every[len(one_lane) :], key=lambda pair: pair[1], default=None)
    if quickest is not None and quickest[1] <= one_lane_s * (1.0 + PROMISING):
        every.append(_measured_correction(source, quickest, len(placements) + 1))
    ms = {candidate.name: 1e3 * value for candidate, value in every}
    logger.info("milliseconds: %s", ", ".join(f"{name} {value:.3g}" for name, value in ms.items()))
    for each in placements:
        logger.debug("%d subgraphs: predicted %.3g ms", len(each.subgraphs), 1e3 * each.predicted_s)
    best, best_s = min(every, key=lambda pair: pair[1] * (WORTH if pair[0].placed else 1.0))
    return Fastest(best, best_s, one_lane_s if one_lane else None, ms)


def _measured_correction(
    source: Source[M], start: tuple[Candidate[M], float], number: int
) -> tuple[Candidate[M], float]:
    """DUET's correction step: subgraphs are moved while the whole model is measured to get faster by ``WORTH``.

    Args:
        start: a candidate and its seconds. Every change is timed in turn with it, and counted by the ratio of the two.
        number: of the first change, for ``Source.make``.

    Returns:
        What it ends at, and its seconds.
    """
    before, start_s = start
    placed = before.placed
    assert placed is not None
    tried = {placed.placement: start}

    def judge(placement: Placement) -> float:
        if len(set(placement.lanes)) == 1 and placed.uses_several_lanes:
            return math.inf  # one lane has been timed as a whole
        if placement not in tried:
            changed = replace(placed, placement=placement, spans=simulate(placed.problem, placement))
            made = source.make(number + len(tried) - 1, changed)
            other = Candidate(f"{before.name}, corrected {len(tried)}", made, changed)
            before_s, after_s = source.seconds([before, other])
            tried[placement] = other, start_s * after_s / before_s
        return tried[placement][1]

    return tried[corrected(placed.problem, placed.placement, judge, MOST_MEASURED, 1.0 - 1.0 / WORTH)]


def placements_of(cuts: Iterable[tuple[tuple[Subgraph, ...], Problem]]) -> list[PlacedModel]:
    """The exact placement and greedy-correction's of every cut, each once."""
    found: dict[tuple[object, ...], PlacedModel] = {}
    for subgraphs, problem in cuts:
        for placement in (exact(problem).placement, correction(problem)):
            key = tuple((subgraphs[s], placement.lanes[s]) for s in placement.order)
            if key not in found:
                found[key] = PlacedModel(subgraphs, problem, placement, simulate(problem, placement))
    return list(found.values())
