"""Every way to place subgraphs gives a placement that can be run."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.graph.lanes import cpu_lane
from autotune.graph.placement import Problem
from autotune.graph.placers import correction, greedy, single
from schedules.errors import UsageError
from tests.autotune_tests.graph_tests.dags import random_edges, random_problem
from tests.bench.placer_catalog import PLACERS

seeds = st.integers(0, 2**32 - 1)
TWO = (cpu_lane(0, 1), cpu_lane(1, 1))


def is_valid(problem, placement):
    position = {s: i for i, s in enumerate(placement.order)}
    for s in range(problem.count):
        for source in problem.needs[s]:
            moved = placement.lanes[source] != placement.lanes[s]
            assert placement.ends[source] + moved * problem.transfer_s(source) <= placement.starts[s] + 1e-12
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
        single(Problem(TWO, ((), ()), costs, costs, (0, 0)))
