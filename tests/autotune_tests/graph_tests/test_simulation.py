"""Simulating what neighbours cost, and copies."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.graph.lanes import Lane, cpu_lane
from autotune.graph.placement import Link, Problem, Tensor, place_all
from autotune.graph.placers import correction
from autotune.graph.simulation import simulate, simulate_copies
from tests.autotune_tests.graph_tests.dags import device_problem, problem_of, random_edges, random_problem

seeds = st.integers(0, 2**32 - 1)
TWO = (cpu_lane(0, 1), cpu_lane(1, 1))


def test_simulation_ends_though_subgraphs_take_next_to_no_time():
    costs = ((0.05, 0.05), (1e-12, 1e-12), (0.02, 0.02), (1e-12, 1e-12))
    problem = problem_of(TWO, ((), (0,), (1,), (2,)), costs)
    assert simulate(problem, place_all(problem, (0, 0, 1, 1)))[-1][1] == pytest.approx(0.07)


def test_simulation_slows_down_only_what_has_a_neighbour():
    alone, busy = ((1.0, 1.0), (3.0, 3.0)), ((2.0, 2.0), (6.0, 6.0))
    problem = problem_of(TWO, ((), ()), alone, busy)
    spans = simulate(problem, place_all(problem, (0, 1)))
    assert spans[0] == pytest.approx((0.0, 2.0))
    # A third of its work is done after 2 s beside the other; the rest runs alone at full speed.
    assert spans[1] == pytest.approx((0.0, 2.0 + 2.0))


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_without_contention_the_simulation_is_the_placement(seed):
    rng = np.random.default_rng(seed)
    contended = random_problem(rng, random_edges(rng, 6))
    problem = replace(contended, beside={})
    placement = correction(problem)
    assert max(end for _, end in simulate(problem, placement)) == pytest.approx(placement.makespan_s)


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_with_a_device_the_simulation_ends_near_the_placement(seed):
    rng = np.random.default_rng(seed)
    problem = replace(device_problem(rng, random_edges(rng, 10)), beside={})
    placement = correction(problem)
    # A copy begins when its tensor is written, a placement's when its reader is placed: never much later.
    assert max(end for _, end in simulate(problem, placement)) <= placement.makespan_s * (1 + 1e-9)


def test_a_neighbour_of_another_kind_slows_down_by_its_own_figure():
    lanes = (cpu_lane(0, 1), Lane("sim:0", 1, 1, "sim:0"))
    beside = {"cpu": ((9.0, 9.0),) * 2, "sim": ((3.0, 9.0), (3.0, 9.0))}
    problem = Problem(lanes, (), ((1.0, 1.0), (1.0, 1.0)), beside)
    spans = simulate(problem, place_all(problem, (0, 1)))
    # The CPU's subgraph takes 3 s beside the device; the device does a third of its own by then, and the rest alone.
    assert spans[0] == pytest.approx((0.0, 3.0))
    assert spans[1] == pytest.approx((0.0, 3.0 + 2.0 / 3.0))


def test_a_copy_overlaps_with_other_work():
    lanes = (cpu_lane(0, 1), Lane("sim:0", 1, 1, "sim:0"))
    problem = Problem(lanes, (Tensor(0, (2,), 1000),), ((1.0, 1.0),) * 3, links={("", "sim:0"): Link(0.0, 1000.0)})
    placement = place_all(problem, (0, 1, 1), (0, 1, 2))
    assert simulate(problem, placement)[2] == pytest.approx((2.0, 3.0))
    (copy,) = simulate_copies(problem, placement)
    assert (copy.tensor, copy.link, copy.start, copy.end) == (0, ("", "sim:0"), 1.0, 2.0)
