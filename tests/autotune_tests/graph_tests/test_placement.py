"""Placement: every way gives a placement that can be run; the exact one is never beaten, not even by brute force."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.graph.exact import exact
from autotune.graph.lanes import Lane, cpu_lane, parse_lanes
from autotune.graph.placement import PartialPlacement, Problem, place_all, simulate
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


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_nothing_beats_the_exact_placement_and_it_is_not_below_its_bound(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, random_edges(rng, 6))
    found = exact(problem)
    assert found.gap == 0.0
    for place in PLACERS.values():
        assert found.placement.makespan_s <= place(problem).makespan_s + 1e-9


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_the_exact_placement_equals_brute_force(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, random_edges(rng, 4))
    best = float("inf")
    for order in itertools.permutations(range(problem.count)):
        if any(order.index(source) > order.index(s) for s in order for source in problem.needs[s]):
            continue
        for lanes in itertools.product(range(len(problem.lanes)), repeat=problem.count):
            best = min(best, place_all(problem, lanes, order).makespan_s)
    assert exact(problem).placement.makespan_s == pytest.approx(best)


def test_a_search_that_was_cut_short_says_how_far_it_may_be_off():
    rng = np.random.default_rng(5)
    problem = random_problem(rng, [[] for _ in range(14)])
    found = exact(problem, most_nodes=20)
    assert found.gap > 0.0
    assert found.bound_s <= exact(problem).placement.makespan_s <= found.placement.makespan_s


def test_two_equal_branches_take_half_the_time_on_two_lanes():
    one = ((1.0, 1.0),) * 2
    problem = Problem(TWO, ((), ()), one, one, (0, 0))
    assert exact(problem).placement.makespan_s == 1.0
    assert single(problem).makespan_s == 2.0


def test_a_transfer_that_costs_more_than_it_gains_is_not_made():
    costs = ((1.0, 1.0), (0.2, 0.2), (0.1, 0.1))
    problem = Problem(TWO, ((), (), (0, 1)), costs, costs, (2000, 2000, 0), 0.0, 1000.0)
    assert len(set(exact(problem).placement.lanes)) == 1


def test_correction_repairs_greedy():
    rng = np.random.default_rng(0)
    better = 0
    for _ in range(60):
        problem = random_problem(rng, random_edges(rng, 6))
        before, after = greedy(problem).makespan_s, correction(problem).makespan_s
        assert after <= before
        better += after < before - 1e-9
    assert better


def test_simulation_ends_though_subgraphs_take_next_to_no_time():
    costs = ((0.05, 0.05), (1e-12, 1e-12), (0.02, 0.02), (1e-12, 1e-12))
    problem = Problem(TWO, ((), (0,), (1,), (2,)), costs, costs, (0,) * 4)
    assert simulate(problem, place_all(problem, (0, 0, 1, 1)))[-1][1] == pytest.approx(0.07)


def test_a_model_that_no_lane_can_run_alone_has_no_single_lane():
    costs = ((None, 1.0), (1.0, None))
    with pytest.raises(UsageError, match="no lane alone"):
        single(Problem(TWO, ((), ()), costs, costs, (0, 0)))


def test_a_subgraph_that_cannot_run_on_a_lane_is_not_put_there():
    costs = ((None, 5.0), (1.0, None))
    problem = Problem(TWO, ((), ()), costs, costs, (0, 0))
    assert exact(problem).placement.lanes == (1, 0)
    assert PartialPlacement(problem).finish(0, 0) is None


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


@pytest.mark.parametrize(
    ("text", "lanes"),
    [
        ("cpu", (Lane("cpu:0-3", 0, 4),)),
        ("cpu:2x1", (Lane("cpu:0", 0, 1), Lane("cpu:1", 1, 1))),
        ("cpu:2x2", (Lane("cpu:0-1", 0, 2), Lane("cpu:2-3", 2, 2))),
        ("auto", (Lane("cpu:0-3", 0, 4), Lane("cpu:0-1", 0, 2), Lane("cpu:2-3", 2, 2))),
    ],
)
def test_lanes_are_read(text, lanes):
    assert parse_lanes(text, 4) == lanes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpu:3x2", "needs 6 threads and there are 4"),
        ("cpu:0x1", "needs 0 threads"),
        ("gpu", "is not understood"),
        ("cpu,cpu", "is not understood"),
        ("cpu,cuda:0", "not for this command"),
        ("cuda:0", "not for this command"),
    ],
)
def test_lanes_that_cannot_be_are_refused(text, message):
    with pytest.raises(UsageError, match=message):
        parse_lanes(text, 4)


def test_auto_on_one_thread_is_one_lane():
    assert parse_lanes("auto", 1) == (cpu_lane(0, 1),)
