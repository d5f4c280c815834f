"""Placing subgraphs in order, and simulating what neighbours cost."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.graph.lanes import cpu_lane
from autotune.graph.placement import Problem, place_all, simulate
from autotune.graph.placers import correction
from tests.autotune_tests.graph_tests.dags import random_edges, random_problem

seeds = st.integers(0, 2**32 - 1)
TWO = (cpu_lane(0, 1), cpu_lane(1, 1))


def test_simulation_ends_though_subgraphs_take_next_to_no_time():
    costs = ((0.05, 0.05), (1e-12, 1e-12), (0.02, 0.02), (1e-12, 1e-12))
    problem = Problem(TWO, ((), (0,), (1,), (2,)), costs, costs, (0,) * 4)
    assert simulate(problem, place_all(problem, (0, 0, 1, 1)))[-1][1] == pytest.approx(0.07)


def test_simulation_slows_down_only_what_has_a_neighbour():
    alone, busy = ((1.0, 1.0), (3.0, 3.0)), ((2.0, 2.0), (6.0, 6.0))
    problem = Problem(TWO, ((), ()), alone, busy, (0, 0))
    spans = simulate(problem, place_all(problem, (0, 1)))
    assert spans[0] == pytest.approx((0.0, 2.0))
    # A third of its work is done after 2 s beside the other; the rest runs alone at full speed.
    assert spans[1] == pytest.approx((0.0, 2.0 + 2.0))


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_without_contention_the_simulation_is_the_placement(seed):
    rng = np.random.default_rng(seed)
    made = random_problem(rng, random_edges(rng, 6))
    problem = Problem(made.lanes, made.needs, made.alone, made.alone, made.bytes, made.latency_s, made.bytes_per_s)
    placement = correction(problem)
    assert max(end for _, end in simulate(problem, placement)) == pytest.approx(placement.makespan_s)


def test_subgraphs_start_when_their_cores_are_free_and_what_they_read_is_there():
    costs = ((1.0, 1.0), (2.0, 2.0), (1.0, 1.0))
    problem = Problem(TWO, ((), (), (0, 1)), costs, costs, (1000, 1000, 0), 0.5, 1000.0)
    placement = place_all(problem, (0, 1, 0))
    assert placement.starts == (0.0, 0.0, 3.5)  # of the other lane: 2 s, 0.5 s of latency and 1 s for 1000 bytes
    assert placement.makespan_s == 4.5
    assert place_all(problem, (0, 0, 0)).starts == (2.0, 0.0, 3.0)  # the longest tail goes first


def test_readers_and_tails_follow_from_needs():
    costs = ((1.0, 3.0), (2.0, 1.0), (4.0, 4.0))
    problem = Problem(TWO, ((), (0,), (0,)), costs, costs, (0, 0, 0))
    assert problem.readers == ((1, 2), (), ())
    assert problem.tails == (5.0, 1.0, 4.0)
    assert problem.order == (0, 2, 1)
