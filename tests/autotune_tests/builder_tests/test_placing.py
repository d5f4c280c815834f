"""The one procedure that places a model: what is tried, what is kept, and what the plan says of it."""

import pytest

from autotune.artifact.plan import Choice
from autotune.builder.placing import MOST_MEASURED, WORTH, Candidate, fastest, placements_of
from autotune.graph.lanes import cpu_lane
from autotune.graph.partition import Subgraph
from autotune.graph.placement import Link
from schedules.lower import BASELINE
from tests.autotune_tests.graph_tests.dags import problem_of

TWO = (cpu_lane(0, 1), cpu_lane(1, 1))
PARTS = (Subgraph("0.0", (0,)), Subgraph("0.1", (1, 2)))


def problem(*costs):
    return problem_of(TWO, ((),) * len(costs), costs)


class Fake:
    """A model of independent subgraphs; what is made is a name."""

    def __init__(self, cuts, seconds, one_lane=("one lane",)):
        self._cuts, self._seconds, self._one_lane = cuts, seconds, one_lane
        self.raced = []

    def cuts(self):
        return self._cuts

    def one_lane(self):
        return [Candidate(name, name) for name in self._one_lane]

    def make(self, number, placed):
        return f"made {number}"

    def seconds(self, candidates):
        self.raced.append([candidate.made for candidate in candidates])
        return [self._seconds.get(candidate.made, 1.0) for candidate in candidates]


EQUAL = [(PARTS, problem((1.0, 1.0), (1.0, 1.0)))]


def test_a_placement_is_kept_only_if_it_is_worth_it():
    best = fastest(Fake(EQUAL, {"one lane": 1.0, "made 1": 0.9}))
    assert best.candidate.made == "made 1"
    assert best.candidate.placed.uses_several_lanes
    assert (best.seconds, best.one_lane_s) == (0.9, 1.0)
    assert best.ms == {"one lane": 1000.0, "placed, 1": pytest.approx(900.0)}
    hardly = fastest(Fake(EQUAL, {"one lane": 1.0, "made 1": 1.0 / WORTH + 1e-3}))
    assert hardly.candidate.placed is None


def test_a_placement_is_corrected_by_what_is_measured():
    source = Fake(EQUAL, {"one lane": 1.0, "made 1": 0.9, "made 2": 0.6})
    best = fastest(source)
    assert best.candidate.made == "made 2"
    assert best.seconds == pytest.approx(0.6)
    assert source.raced[0] == ["one lane", "made 1"]
    assert all(race[0] == "made 1" for race in source.raced[1:])
    assert len(source.raced) <= 1 + MOST_MEASURED


def test_a_placement_is_not_corrected_into_one_lane():
    """Which was timed as a whole; another timing of it would be kept for being lucky."""
    unequal = [(PARTS, problem((1.0, 1.0), (0.05, 0.05)))]
    source = Fake(unequal, {f"made {number}": 1.0 / number for number in range(1, 20)})
    source.placed = []
    make = source.make
    source.make = lambda number, placed: (source.placed.append(placed), make(number, placed))[1]
    fastest(source)
    assert len(source.placed) > 1
    assert all(placed.uses_several_lanes for placed in source.placed)


def test_a_placement_far_behind_one_lane_is_not_corrected():
    source = Fake(EQUAL, {"one lane": 1.0, "made 1": 1.5})
    assert fastest(source).candidate.made == "one lane"
    assert len(source.raced) == 1


def test_the_fastest_of_several_single_lanes_is_the_one_to_beat():
    times = {"cpu": 3.0, "device": 1.0, "made 1": 0.99}
    assert fastest(Fake(EQUAL, times, ("cpu", "device"))).candidate.made == "device"


def test_placements_on_one_lane_are_tried_only_where_no_single_lane_is():
    crossing = problem_of(TWO, ((), (0,)), ((1.0, 1.0),) * 2, crossing=Link(9.0))
    cuts = [(PARTS, crossing)]
    assert fastest(Fake(cuts, {"one lane": 1.0})).candidate.placed is None
    alone = fastest(Fake(cuts, {"made 1": 1.0}, ()))
    assert alone.one_lane_s is None
    assert not alone.candidate.placed.uses_several_lanes


def test_a_placement_that_two_cuts_have_in_common_is_made_once():
    assert len(placements_of(EQUAL * 2)) == len(placements_of(EQUAL))


def test_the_plan_names_lanes_in_order_and_kernels_of_other_sizes():
    (placed,) = placements_of(EQUAL)
    assert placed.predicted_s == pytest.approx(1.0)
    choices = (Choice("key", BASELINE, None),)
    plan = placed.plan("cpu:2x1", {1: choices, 4: choices})
    assert plan.lanes == "cpu:2x1"
    assert plan.choices == ((1, choices),)
    assert {(part.name, part.calls) for part in plan.subgraphs} == {("0.0", (0,)), ("0.1", (1, 2))}
    assert {part.lane for part in plan.subgraphs} == {"cpu:0", "cpu:1"}
    assert plan.predicted_s == pytest.approx(1.0)
