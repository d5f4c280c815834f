"""Placing a model on lanes: one procedure for groups of CPU cores, and for cores with devices.

DUET (IPDPS 2021) in five steps. A *source* cuts the model into subgraphs and prices each on each lane (1, 2). Here they
are placed (3: graph/exact.py, graph/placers.py), every placement is made and timed end to end beside the whole model on
one lane, the fastest is corrected by more timings (4), and one lane is kept unless a placement is faster by ``WORTH``
when the two are timed again (5).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from autotune.artifact.plan import Choice, DeviceMemory, LanePlan, Placed
from autotune.graph.exact import best_known, exact
from autotune.graph.flat import Flat
from autotune.graph.lanes import copy_lanes
from autotune.graph.measured_costs import MeasuredCosts, Taken
from autotune.graph.partition import Subgraph
from autotune.graph.placement import Placement, Problem
from autotune.graph.placers import PROMISING, corrected, correction
from autotune.graph.simulation import simulate
from autotune.graph.steps import Piece, Steps, arrange
from schedules.vocabulary.errors import ModelError

logger = logging.getLogger(__name__)

WORTH = 1.02
"""Factor by which a placement must be faster than one lane to be kept. Smaller differences of two timings are noise."""

MOST_MEASURED = 8
"""Other placements that are made and timed to correct one. Heuristic: one takes some seconds on groups of cores."""

SETTLED, MOST_LEARNED = 6, 16
"""How often more the same placement must be best by corrected costs; runs of placements that costs are corrected by, at
most. Heuristic, not measured."""

M = TypeVar("M")
"""How a model is made to run: steps that are loaded already, or the folder of an artifact."""


@dataclass(frozen=True)
class PlacedModel:
    """A placement of a model's subgraphs.

    Attributes:
        subgraphs: (n,) with the numbers of their kernel calls, or none where calls are numbered after placing.
        spans: (n,) seconds at which each should begin and end, simulated.
        copies: between memories, as the plan has them.
        devices: what it takes of devices' memory, known once it is made.
    """

    subgraphs: tuple[Subgraph, ...]
    problem: Problem
    placement: Placement
    spans: tuple[tuple[float, float], ...]
    copies: tuple[Placed, ...] = ()
    devices: tuple[DeviceMemory, ...] = ()

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
        everything = tuple(sorted((*placed, *self.copies), key=lambda item: item.begin_s)) if self.copies else placed
        others = tuple((count, choices[count]) for count in sorted(used & set(choices)))
        return LanePlan(text, others, everything, devices=self.devices)


@dataclass(frozen=True)
class Candidate(Generic[M]):
    """A whole model, made to run one way.

    Attributes:
        name: for people.
        executable: what runs it.
        placed: where its subgraphs run; None for one lane.
    """

    name: str
    executable: M
    placed: PlacedModel | None = None


class Source(Protocol[M]):
    """A model that can be cut, run on one lane, and run as placed."""

    def cuts(self) -> Iterable[tuple[tuple[Subgraph, ...], Problem]]:
        """Ways to cut the model into subgraphs, each with its costs."""
        ...

    def settled(self, placements: Sequence[PlacedModel]) -> Sequence[PlacedModel]:
        """Return ``placements`` at the costs that they have in the memory of their devices; other ones if need be."""
        ...

    def fits(self, placed: PlacedModel) -> bool:
        """Return whether every device has room for what is placed on it."""
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

    def ratios(self, one: Candidate[M], other: Candidate[M]) -> Sequence[float]:
        """Return how many times as long ``one`` takes as ``other``: the median within its 95 % interval."""
        ...

    def taken(self, candidate: Candidate[M], number: int) -> Mapping[str, float]:
        """Seconds of each subgraph by name, and of all copies of a device's engine by its name, as they ran there.

        Args:
            number: of times that this was asked of ``candidate`` before.
        """
        ...


@dataclass(frozen=True)
class Fastest(Generic[M]):
    """The fastest way to run the model.

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
        ModelError: if the model fits nowhere.
    """
    one_lane = list(source.one_lane())
    settled = source.settled(placements_of(source.cuts()))
    placements = [placed for placed in settled if placed.uses_several_lanes or not one_lane]
    placed = [
        Candidate(f"placed, {number}", source.make(number, placed_model), placed_model)
        for number, placed_model in enumerate(placements, 1)
    ]
    candidates = [*one_lane, *placed]
    if not candidates:
        raise ModelError("no device has memory for the model; name the CPU next to the devices, or raise their limits")
    every = list(zip(candidates, source.seconds(candidates), strict=True))
    alone = min(every[: len(one_lane)], key=_seconds, default=None)
    best = min(every[len(one_lane) :], key=_seconds, default=alone)
    assert best is not None
    if best is not alone and (alone is None or best[1] <= alone[1] * (1.0 + PROMISING)):
        best = _Correction(source, best, len(placements) + 1, alone is None).run()
        every += [best] if best[0] not in candidates else []
    ms = {candidate.name: 1e3 * value for candidate, value in every}
    logger.info("milliseconds: %s", ", ".join(f"{name} {value:.3g}" for name, value in ms.items()))
    for placement in placements:
        logger.debug("%d subgraphs: predicted %.3g ms", len(placement.subgraphs), 1e3 * placement.predicted_s)
    if alone is None:
        return Fastest(best[0], best[1], None, ms)
    gain = _gain_over_one_lane(source, alone, best)
    return Fastest(best[0], alone[1] / gain, alone[1], ms) if gain else Fastest(*alone, alone[1], ms)


def _seconds(pair: tuple[Candidate[M], float]) -> float:
    return pair[1]


def _gain_over_one_lane(
    source: Source[M], alone: tuple[Candidate[M], float], best: tuple[Candidate[M], float]
) -> float:
    """Work like ``_certain_gain``, of what was timed to be faster than one lane; 0 of what was not."""
    return _certain_gain(source, alone[0], best[0]) if best[1] < alone[1] else 0.0


def _certain_gain(source: Source[M], before: Candidate[M], after: Candidate[M]) -> float:
    """Return how many times as fast as ``before`` ``after`` is; 0 where it is not faster by ``WORTH``, beyond noise.

    The fastest of several was chosen because it was timed fastest, so part of its gain is luck: both are timed again.
    """
    low, middle, _ = source.ratios(before, after)
    logger.info("%s: %.3f times as fast as %s (at least %.3f)", after.name, middle, before.name, low)
    return middle if middle >= WORTH and low >= 1.0 else 0.0


class _Correction(Generic[M]):
    """DUET's correction step: other placements are made, run, and kept if they are faster.

    First costs are corrected by what the parts of runs took. What is best by them is run and learned from in turn,
    until that is the same placement ``SETTLED`` times more: a cost that was measured too low makes a placement look
    best, is measured again there, and is corrected. Runs on lanes on which subgraphs were not measured go before. What
    this ends at and what it began with are then run in turn, and the former is kept if it is faster beyond noise: costs
    that were measured with noise prefer placements that are slower. Then, as in the paper, subgraphs are moved while
    the whole model gets faster, by ``WORTH`` and beyond noise.

    Args:
        start: a candidate and its seconds.
        number: of the first placement that is made, for ``Source.make``.
        alone: whether one lane may be what it ends at; not where it was timed as a whole, since another timing of it
            would be kept for being lucky.
    """

    def __init__(self, source: Source[M], start: tuple[Candidate[M], float], number: int, alone: bool) -> None:
        placed = start[0].placed
        assert placed is not None
        self._source, self._best, self._placed, self._number, self._alone = source, start, placed, number, alone
        self._name = start[0].name
        self._costs = MeasuredCosts(placed.problem)
        self._made = {placed.problem.way(placed.placement): start[0]}
        self._learned: Counter[str] = Counter()

    def run(self) -> tuple[Candidate[M], float]:
        """Return the best candidate at the end, and its seconds."""
        settled = self._settled()
        if settled is not self._best[0]:
            self._keep_if_faster(settled)
        left = 1 + MOST_MEASURED - len(self._made)
        kept = self._best[0].placed
        assert kept is not None
        corrected(self._costs.problem, kept.placement, lambda one, _: self._is_worth_it(one), left)
        return self._best

    def _settled(self) -> Candidate[M]:
        """Return the best candidate by costs that are corrected by runs."""
        best, same = self._best[0], 0
        self._learn(best)
        for _ in range(MOST_LEARNED):
            rest, unseen = self._costs.least_seen()
            placement = rest if unseen else exact(self._costs.problem).placement
            if not (unseen or self._may_be(placement)) or not self._has_room(placement):
                break
            other = self._candidate(placement)
            if not unseen:
                same, best = same + 1 if other is best else 0, other
            if same == SETTLED:
                break
            self._learn(other)
            if same and self._has_room(rest):  # costs that were measured once may be too high, as the best's too low
                self._learn(self._candidate(rest))
        return best

    def _has_room(self, placement: Placement) -> bool:
        """Return whether ``placement`` was made, or one more may be and fits."""
        if self._placed.problem.way(placement) in self._made:
            return True
        return len(self._made) <= MOST_MEASURED and self._source.fits(replace(self._placed, placement=placement))

    def _may_be(self, placement: Placement) -> bool:
        return self._alone or len(set(placement.lanes)) > 1

    def _keep_if_faster(self, candidate: Candidate[M]) -> None:
        low, middle, high = self._source.ratios(self._best[0], candidate)
        logger.info("%s: %.3f times as fast as before (%.3f to %.3f)", candidate.name, middle, low, high)
        if low >= 1.0:
            self._best = candidate, self._best[1] / middle

    def _is_worth_it(self, placement: Placement) -> bool:
        """Return whether ``placement`` is faster than the best, and then it is the best."""
        if not self._may_be(placement) or not self._source.fits(replace(self._placed, placement=placement)):
            return False
        other = self._candidate(placement)
        gain = _certain_gain(self._source, self._best[0], other)
        self._best = (other, self._best[1] / gain) if gain else self._best
        return gain > 0.0

    def _candidate(self, placement: Placement) -> Candidate[M]:
        """``placement``, made unless it was."""
        way = self._placed.problem.way(placement)
        if way not in self._made:
            problem, number = self._costs.problem, len(self._made)
            changed = replace(self._placed, problem=problem, placement=placement, spans=simulate(problem, placement))
            built = self._source.make(self._number + number - 1, changed)
            self._made[way] = Candidate(f"{self._name}, corrected {number}", built, changed)
        return self._made[way]

    def _learn(self, candidate: Candidate[M]) -> None:
        """Correct costs by what the parts of ``candidate`` take."""
        assert candidate.placed is not None
        seconds = self._source.taken(candidate, self._learned[candidate.name])
        self._learned[candidate.name] += 1
        problem = self._placed.problem
        engines = {lane.name: way for way, lane in copy_lanes(problem.lanes, problem.direct).items()}
        numbers = {subgraph.name: number for number, subgraph in enumerate(self._placed.subgraphs)}
        subgraphs = {numbers[name]: value for name, value in seconds.items() if name in numbers}
        links = {engines[name]: value for name, value in seconds.items() if name in engines}
        self._costs.add(candidate.placed.placement, Taken(subgraphs, links))


def placements_of(cuts: Iterable[tuple[tuple[Subgraph, ...], Problem]]) -> list[PlacedModel]:
    """The best known placement and greedy-correction's of every cut, each once."""
    models: dict[tuple[object, ...], PlacedModel] = {}
    for subgraphs, problem in cuts:
        for placement in (best_known(problem), correction(problem)):
            key = tuple((subgraphs[s], placement.lanes[s]) for s in placement.order)
            if key not in models:
                models[key] = PlacedModel(subgraphs, problem, placement, simulate(problem, placement))
    return list(models.values())
