"""The exact placement is never beaten, not even by brute force, and its bound holds where the search was cut short."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.graph.exact import best_known, exact
from autotune.graph.lanes import cpu_lane
from autotune.graph.placement import Link, PartialPlacement, place_all
from research.placer_catalog import PLACERS, single
from tests.autotune_tests.graph_tests.dags import device_problem, problem_of, random_edges, random_problem

seeds = st.integers(0, 2**32 - 1)
TWO = (cpu_lane(0, 1), cpu_lane(1, 1))


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_nothing_beats_the_exact_placement_and_it_is_not_below_its_bound(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, random_edges(rng, 6))
    solved = exact(problem)
    assert solved.gap == 0.0
    for place in PLACERS.values():
        assert solved.placement.makespan_s <= place(problem).makespan_s + 1e-9


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_the_exact_placement_equals_brute_force(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, random_edges(rng, 4))
    assert exact(problem).placement.makespan_s == pytest.approx(by_brute_force(problem))


def by_brute_force(problem):
    """The least makespan over all orders and lanes."""
    best = float("inf")
    for order in itertools.permutations(range(problem.count)):
        if any(order.index(source) > order.index(s) for s in order for source in problem.needs[s]):
            continue
        for lanes in itertools.product(range(len(problem.lanes)), repeat=problem.count):
            if all(problem.cost(s, lane) is not None for s, lane in enumerate(lanes)):
                best = min(best, place_all(problem, lanes, order).makespan_s)
    return best


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_with_a_device_the_exact_placement_equals_brute_force(seed):
    rng = np.random.default_rng(seed)
    problem = device_problem(rng, random_edges(rng, 5))
    solved = exact(problem)
    assert solved.placement.makespan_s == pytest.approx(by_brute_force(problem))
    assert solved.bound_s <= solved.placement.makespan_s * (1 + 1e-9)


def test_a_search_that_was_cut_short_says_how_far_it_may_be_off():
    rng = np.random.default_rng(5)
    problem = random_problem(rng, [[] for _ in range(14)])
    solved = exact(problem, most_nodes=20)
    assert solved.gap > 0.0
    assert solved.bound_s <= exact(problem).placement.makespan_s <= solved.placement.makespan_s


def test_two_equal_branches_take_half_the_time_on_two_lanes():
    one = ((1.0, 1.0),) * 2
    problem = problem_of(TWO, ((), ()), one)
    assert exact(problem).placement.makespan_s == 1.0
    assert single(problem).makespan_s == 2.0


def test_a_transfer_that_costs_more_than_it_gains_is_not_made():
    costs = ((1.0, 1.0), (0.2, 0.2), (0.1, 0.1))
    problem = problem_of(TWO, ((), (), (0, 1)), costs, sizes=(2000, 2000, 0), crossing=Link(0.0, 1000.0))
    assert len(set(exact(problem).placement.lanes)) == 1


def test_a_subgraph_that_cannot_run_on_a_lane_is_not_put_there():
    costs = ((None, 5.0), (1.0, None))
    problem = problem_of(TWO, ((), ()), costs)
    assert exact(problem).placement.lanes == (1, 0)
    assert PartialPlacement(problem).finish(0, 0) is None


def test_on_many_lanes_each_branch_has_a_lane_where_that_is_shorter():
    """All cores together always end a branch first, which leaves nothing for the others."""
    lanes = (cpu_lane(0, 8), *(cpu_lane(core, 1) for core in range(8)))
    needs, costs = [()], [(0.125, *[1.0] * 8)]
    for _ in range(3):
        meet = len(needs) - 1
        needs += [(meet,)] * 8
        costs += [(0.3, *[1.0] * 8)] * 8
        needs.append(tuple(range(meet + 1, meet + 9)))
        costs.append((0.125, *[1.0] * 8))
    solved = exact(problem_of(lanes, tuple(needs), tuple(costs)))
    assert solved.placement.makespan_s == pytest.approx(3 * 1.0 + 4 * 0.125)
    assert solved.bound_s <= solved.placement.makespan_s


@settings(max_examples=10, deadline=None)
@given(seeds)
def test_the_bound_holds_on_many_lanes(seed):
    rng = np.random.default_rng(seed)
    edges = random_edges(rng, 5)
    few = (cpu_lane(0, 2), cpu_lane(0, 1), cpu_lane(1, 1), cpu_lane(2, 1))
    many = (*few, cpu_lane(3, 1))
    costs = [[float(rng.uniform(0.1, 1.0)) for _ in range(2)] for _ in edges]
    rows = [tuple((wide, *[one] * (len(lanes) - 1)) for wide, one in costs) for lanes in (few, many)]
    solved = exact(problem_of(many, edges, rows[1]))
    assert solved.bound_s <= solved.placement.makespan_s * (1 + 1e-9)
    assert solved.bound_s <= exact(problem_of(few, edges, rows[0])).placement.makespan_s * (1 + 1e-9)


GROUPS = ((cpu_lane(0, 1),), (cpu_lane(0, 1), cpu_lane(1, 1)))


@settings(max_examples=15, deadline=None)
@given(seeds, st.sampled_from([(1, 2), (2, 1)]))
def test_with_several_devices_or_groups_the_exact_placement_equals_brute_force(seed, counts):
    rng, (groups, devices) = np.random.default_rng(seed), counts
    problem = device_problem(rng, random_edges(rng, 4), devices=devices, cores=GROUPS[groups - 1])
    solved = exact(problem)
    assert solved.placement.makespan_s == pytest.approx(by_brute_force(problem))
    assert solved.bound_s <= solved.placement.makespan_s * (1 + 1e-9)


def on(problem, lanes):
    """The problem without other lanes; None where some subgraph then cannot run."""
    tables = {
        name: tuple(tuple(cost if lane in lanes else None for lane, cost in enumerate(row)) for row in table)
        for name, table in {"": problem.alone, **problem.beside}.items()
    }
    alone = tables.pop("")
    able = all(any(cost is not None for cost in row) for row in alone)
    return replace(problem, alone=alone, beside=tables) if able else None


@settings(max_examples=15, deadline=None)
@given(seeds, st.sampled_from([(1, 2), (2, 1), (2, 2)]), st.sampled_from([30, 1000]))
def test_more_lanes_are_never_longer_than_two_of_them_or_one(seed, counts, most_nodes):
    rng, (groups, devices) = np.random.default_rng(seed), counts
    problem = device_problem(rng, random_edges(rng, 12), devices=devices, cores=GROUPS[groups - 1])
    best = best_known(problem, most_nodes)
    for count in (1, 2):
        for lanes in itertools.combinations(range(len(problem.lanes)), count):
            if (fewer := on(problem, lanes)) is not None:
                assert best.makespan_s <= exact(fewer, most_nodes // 10).placement.makespan_s * (1 + 1e-9)
