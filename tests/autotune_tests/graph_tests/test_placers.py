"""Every way to place subgraphs gives a placement that can be run."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.graph.exact import exact
from autotune.graph.lanes import cpu_lane
from autotune.graph.placers import corrected, correction, greedy
from research.placer_catalog import PLACERS, single
from schedules.vocabulary.errors import UsageError
from tests.autotune_tests.graph_tests.dags import device_problem, problem_of, random_edges, random_problem

seeds = st.integers(0, 2**32 - 1)
TWO = (cpu_lane(0, 1), cpu_lane(1, 1))


def is_valid(problem, placement):
    position = {s: i for i, s in enumerate(placement.order)}
    for s in range(problem.count):
        for source in problem.needs[s]:
            moved = placement.lanes[source] != placement.lanes[s]
            size = max(problem.tensors[t].bytes for t in problem.reads[s] if problem.tensors[t].source == source)
            crossing = moved * problem.crossing.seconds(size)
            assert placement.ends[source] + crossing <= placement.starts[s] + 1e-12
            assert position[source] < position[s]
    for one, other in itertools.combinations(range(problem.count), 2):
        shared = set(problem.lanes[placement.lanes[one]].cores) & set(problem.lanes[placement.lanes[other]].cores)
        if shared:
            apart = placement.ends[one] <= placement.starts[other] or placement.ends[other] <= placement.starts[one]
            assert apart, "a core runs one subgraph at a time"


@settings(max_examples=40, deadline=None)
@given(seeds)
@pytest.mark.parametrize("name", sorted(PLACERS))
def test_placements_can_be_run(name, seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, random_edges(rng, 6))
    is_valid(problem, PLACERS[name](problem))


def test_correction_repairs_greedy():
    rng = np.random.default_rng(0)
    better = 0
    for _ in range(60):
        problem = random_problem(rng, random_edges(rng, 6))
        before, after = greedy(problem).makespan_s, correction(problem).makespan_s
        assert after <= before
        better += after < before - 1e-9
    assert better


def test_a_model_that_no_lane_can_run_alone_has_no_single_lane():
    costs = ((None, 1.0), (1.0, None))
    with pytest.raises(UsageError, match="no lane alone"):
        single(problem_of(TWO, ((), ()), costs))


def test_a_judge_that_measures_corrects_what_costs_say():
    problem = problem_of(TWO, ((), ()), ((1.0, 1.02), (1.0, 1.02)))
    start = greedy(problem)
    asked = []

    def judge(one, other):
        asked.append((one.lanes, one.order))
        return one.lanes == (1, 0) and other.lanes != (1, 0)

    assert corrected(problem, start, judge, 10).lanes == (1, 0)
    assert len(asked) == len(set(asked))
    assert corrected(problem, start, judge, 0) == start


def test_correction_by_a_judge_never_ends_worse_than_it_began():
    rng = np.random.default_rng(2)
    for _ in range(40):
        problem = device_problem(rng, random_edges(rng, 8))
        truth = {}

        def seconds(placement, truth=truth):
            return truth.setdefault(placement.lanes, float(rng.uniform(0.5, 2.0)))

        start = greedy(problem)
        after = corrected(problem, start, lambda one, other: seconds(one) < seconds(other), 12)
        assert seconds(after) <= seconds(start)


def test_correction_of_the_exact_placement_keeps_the_optimum():
    rng = np.random.default_rng(3)
    for number in range(20):
        problem = (device_problem if number % 2 else random_problem)(rng, random_edges(rng, 8))
        best = exact(problem).placement
        after = corrected(problem, best, lambda one, other: one.makespan_s < other.makespan_s * (1.0 - 1e-6), 50)
        assert after.makespan_s == pytest.approx(best.makespan_s)
