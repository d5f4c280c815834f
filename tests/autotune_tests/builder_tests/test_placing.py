"""The one procedure that places a model: what is tried, what is kept, and what the plan says of it."""

from dataclasses import replace

import numpy as np
import pytest

from autotune.artifact.plan import Choice
from autotune.builder.placing import MOST_MEASURED, SETTLED, WORTH, Candidate, fastest, placements_of
from autotune.graph.exact import exact
from autotune.graph.lanes import cpu_lane
from autotune.graph.measured_costs import foreseen
from autotune.graph.partition import Subgraph
from autotune.graph.placement import Link
from autotune.graph.simulation import simulate
from research import lane_correction
from schedules.lower import BASELINE
from tests.autotune_tests.graph_tests.dags import device_problem, problem_of, random_edges, random_problem

TWO = (cpu_lane(0, 1), cpu_lane(1, 1))
PARTS = (Subgraph("0.0", (0,)), Subgraph("0.1", (1, 2)))


def problem(*costs):
    return problem_of(TWO, ((),) * len(costs), costs)


class Fake:
    """A model of independent subgraphs; what is made is a name.

    Args:
        again: (least, median) of one lane's seconds by the placement's, when the two are timed again.
    """

    def __init__(self, cuts, seconds, one_lane=("one lane",), again=(2.0, 2.0)):
        self._cuts, self._seconds, self._one_lane, self._again = cuts, seconds, one_lane, again
        self.raced, self.compared = [], []

    def cuts(self):
        return self._cuts

    def one_lane(self):
        return [Candidate(name, name) for name in self._one_lane]

    def make(self, number, placed):
        return f"made {number}"

    def seconds(self, candidates):
        self.raced.append([candidate.executable for candidate in candidates])
        return [self._seconds.get(candidate.executable, 1.0) for candidate in candidates]

    def ratios(self, one, other):
        self.compared.append((one.executable, other.executable))
        if one.placed is None:
            return (*self._again, 9.0)
        ratio = self._seconds.get(one.executable, 1.0) / self._seconds.get(other.executable, 1.0)
        return ratio, ratio, ratio

    def taken(self, candidate, number):
        return {}

    def settled(self, placements):
        return placements

    def fits(self, placed):
        return True


class Priced(Fake):
    """A model whose subgraphs take what ``truth`` says, whatever was believed; what is made is a placement."""

    def __init__(self, cuts, truth):
        super().__init__(cuts, {}, ())
        self._truth = truth

    def make(self, number, placed):
        return placed.placement

    def seconds(self, candidates):
        return [self._true_s(candidate) for candidate in candidates]

    def _true_s(self, candidate):
        return max(end for _, end in simulate(self._truth, candidate.executable))

    def ratios(self, one, other):
        before, after = (self._true_s(candidate) for candidate in (one, other))
        return [before / after] * 3

    def taken(self, candidate, number):
        names = [subgraph.name for subgraph in candidate.placed.subgraphs]
        return {names[s]: value for s, value in foreseen(self._truth, candidate.executable).subgraphs.items()}


EQUAL = [(PARTS, problem((1.0, 1.0), (1.0, 1.0)))]


def test_a_placement_is_kept_only_if_it_is_worth_it():
    source = Fake(EQUAL, {"one lane": 1.0, "made 1": 0.9}, again=(1.1, 1.25))
    best = fastest(source)
    assert best.candidate.executable == "made 1"
    assert best.candidate.placed.uses_several_lanes
    assert (best.seconds, best.one_lane_s) == (0.8, 1.0)  # as they were timed again
    assert best.ms == {"one lane": 1000.0, "placed, 1": pytest.approx(900.0)}
    assert source.compared[-1] == ("one lane", "made 1")
    slower = Fake(EQUAL, {"one lane": 0.9, "made 1": 0.91})
    assert fastest(slower).candidate.placed is None
    assert all(before != "one lane" for before, _ in slower.compared)


@pytest.mark.parametrize("again", [(1.0, WORTH - 0.01), (0.99, 1.5)])
def test_one_lane_is_kept_where_a_placement_is_not_faster_beyond_noise_when_both_are_timed_again(again):
    best = fastest(Fake(EQUAL, {"one lane": 1.0, "made 1": 0.5}, again=again))
    assert best.candidate.placed is None
    assert best.seconds == best.one_lane_s == 1.0


def test_a_placement_is_corrected_by_what_is_measured():
    unequal = [(PARTS, problem((1.0, 1.0), (0.9, 0.9)))]
    source = Fake(unequal, {"one lane": 1.0, "made 1": 0.9, "made 2": 0.6})
    best = fastest(source)
    assert best.candidate.executable == "made 2"
    assert best.ms["placed, 1, corrected 1"] == pytest.approx(600.0)
    assert source.raced == [["one lane", "made 1"]]
    assert source.compared[0] == ("made 1", "made 2")
    assert all(before == "made 2" for before, _ in source.compared[1:-1])  # the best so far is the one to beat
    assert len(source.compared) <= 1 + MOST_MEASURED


@pytest.mark.parametrize("seed", range(10))
def test_correction_ends_at_the_optimum_where_costs_were_wrong(seed):
    rng = np.random.default_rng(seed)
    truth = replace(random_problem(rng, random_edges(rng, 8)), beside={})
    off = tuple(tuple(cost * float(rng.uniform(0.8, 1.2)) for cost in row) for row in truth.alone)
    parts = tuple(Subgraph(str(s), (s,)) for s in range(truth.count))
    source = Priced([(parts, replace(truth, alone=off))], truth)
    best = fastest(source)
    assert best.seconds == pytest.approx(exact(truth).placement.makespan_s)
    assert best.seconds <= min(source.seconds([Candidate("", p.placement) for p in placements_of(source.cuts())]))


@pytest.mark.parametrize("off", [0.0, 0.05, 0.2])
def test_none_of_many_placements_ends_worse_than_it_began_where_timings_are_off_by_one_percent(off, monkeypatch):
    monkeypatch.setattr(lane_correction, "MOST", 5)
    monkeypatch.setattr(lane_correction, "NOISES", (0.01,))
    rows = [row for number in range(90) for row in lane_correction.simulated(number, off)]
    assert len(rows) > 60
    assert [row for row in rows if row["after"] > row["before"] + lane_correction.EQUAL] == []
    assert np.mean([row["after"] for row in rows]) <= np.mean([row["before"] for row in rows])


@pytest.mark.parametrize(
    ("groups", "devices"), [(1, 1), *(pytest.param(*pair, marks=pytest.mark.slow) for pair in ((1, 2), (2, 1))), (2, 2)]
)
def test_correction_ends_near_the_optimum_on_groups_of_cores_and_several_devices(groups, devices):
    """And never where it is slower than at the beginning, though costs and timings are off."""
    cores, gaps = (cpu_lane(0, 2),) if groups == 1 else TWO, []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        truth = replace(device_problem(rng, random_edges(rng, 8), devices=devices, cores=cores), beside={})
        source = lane_correction.Simulated(lane_correction.wrong(truth, rng, 0.1), truth, rng, 0.01)
        ended_s = source.true_s(fastest(source).candidate.executable)
        assert ended_s <= source.began_s * (1 + lane_correction.EQUAL)
        gaps.append(ended_s / exact(truth).placement.makespan_s - 1.0)
    assert np.mean(gaps) < WORTH - 1.0


def test_a_move_that_gains_less_than_it_is_worth_is_not_made():
    """Both ways to swap two equal subgraphs take as long by their costs; one is timed a little shorter."""
    source = Fake([(PARTS, problem((1.0, 1.0), (0.9, 0.9)))], {"made 1": 1.0, "made 2": 0.99}, ())
    assert fastest(source).candidate.executable == "made 1"


class Disturbed(Priced):
    """A model that costs are learned of while something else runs, and compared with what it was by ``again``."""

    def __init__(self, cuts, truth, again):
        super().__init__(cuts, truth)
        self._again, self.learned = again, []

    def ratios(self, one, other):
        self.compared.append((one.executable, other.executable))
        return self._again

    def taken(self, candidate, number):
        self.learned.append((candidate.name, number))
        factor = 2.0 if len(self.learned) == 1 else 1.0
        return {name: factor * value for name, value in super().taken(candidate, number).items()}


@pytest.mark.parametrize(
    ("again", "kept"), [((0.5, 0.6, 0.7), True), ((0.9, 1.01, 1.1), True), ((1.0, 1.01, 1.1), False)]
)
def test_what_costs_say_is_best_is_kept_only_where_runs_in_turn_say_that_it_is_faster_beyond_noise(again, kept):
    truth = problem(*((cost, cost) for cost in (1.0, 0.6, 0.2, 0.2)))
    believed = problem(*((cost, cost) for cost in (1.0, 0.6, 0.6, 0.2)))
    parts = tuple(Subgraph(str(s), (s,)) for s in range(4))
    source = Disturbed([(parts, believed)], truth, again)
    best = fastest(source).candidate
    (first, corrected), *_ = source.compared
    assert [max(end for _, end in simulate(truth, placement)) for placement in (first, corrected)] == pytest.approx(
        [1.2, 1.0]
    )
    assert best.executable == (first if kept else corrected)


def test_costs_are_learned_again_until_the_same_placement_is_best():
    """The first run was disturbed, so what it was learned from looks slow until it is measured again."""
    truth = problem((1.0, 1.0), (0.9, 0.9))
    source = Disturbed([(PARTS, truth)], truth, (1.0, 1.0, 1.0))
    best = fastest(source)
    assert best.seconds == pytest.approx(1.0)
    assert len(source.learned) == len(set(source.learned))  # so that each is a record of its own
    assert max(number for _, number in source.learned) >= SETTLED - 1


def test_a_placement_is_not_corrected_into_one_lane():
    """Which was timed as a whole; another timing of it would be kept for being lucky."""
    unequal = [(PARTS, problem((1.0, 1.0), (0.05, 0.05)))]
    source = Fake(unequal, {f"made {number}": 1.0 / number for number in range(1, 20)})
    best = fastest(source)
    assert best.candidate.placed.uses_several_lanes
    assert len(source.compared) > 1


def test_a_placement_far_behind_one_lane_is_not_corrected():
    source = Fake(EQUAL, {"one lane": 1.0, "made 1": 1.5})
    assert fastest(source).candidate.executable == "one lane"
    assert source.compared == []


def test_the_fastest_of_several_single_lanes_is_the_one_to_beat():
    source = Fake(EQUAL, {"cpu": 3.0, "device": 1.0, "made 1": 0.99}, ("cpu", "device"), again=(1.0, 1.01))
    assert fastest(source).candidate.executable == "device"
    assert source.compared[-1] == ("device", "made 1")


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
