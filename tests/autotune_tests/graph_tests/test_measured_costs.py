"""Costs corrected by runs."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.graph.lanes import Lane, cpu_lane
from autotune.graph.measured_costs import HOPED, MeasuredCosts, Taken, foreseen, occupied
from autotune.graph.placement import Link, place_all
from autotune.graph.placers import correction
from tests.autotune_tests.graph_tests.dags import device_problem, problem_of, random_edges, random_problem

seeds = st.integers(0, 2**32 - 1)
TWO = (cpu_lane(0, 1), cpu_lane(1, 1))


def test_waiting_and_handing_over_count_from_the_moment_at_which_all_was_there():
    spans = [(0.0, 1.0), (1.5, 2.5), (2.0, 4.0)]
    assert occupied(spans, [(), (0,), (1,)]) == [1.0, 1.5, 2.0]  # the last began before it was said to


def test_what_is_foreseen_of_each_part_adds_up():
    problem = problem_of(
        TWO, ((), (), (0, 1)), ((1.0, 1.0), (2.0, 2.0), (3.0, 3.0)), sizes=[8, 8, 0], crossing=Link(0.5)
    )
    seconds = foreseen(problem, place_all(problem, (0, 1, 0)))
    assert seconds.subgraphs == pytest.approx({0: 1.0, 1: 2.0, 2: 3.5})  # the last waits for what crosses
    assert not seconds.links


def scaled(problem, rng, links):
    """``problem`` with other costs, alike on alike lanes."""
    factors = {(s, lane): float(rng.uniform(0.5, 2.0)) for s in range(problem.count) for lane in set(problem.alike)}

    def table(costs):
        return tuple(
            tuple(c and c * factors[s, problem.alike[lane]] for lane, c in enumerate(row))
            for s, row in enumerate(costs)
        )

    ways = {way: Link(link.latency_s * links, link.bytes_per_s / links) for way, link in problem.links.items()}
    return replace(problem, alone=table(problem.alone), links=ways)


@settings(max_examples=40, deadline=None)
@given(seeds, st.booleans())
def test_runs_on_all_lanes_tell_all_costs(seed, with_device):
    rng = np.random.default_rng(seed)
    make = device_problem if with_device else random_problem
    believed = replace(make(rng, random_edges(rng, 8)), beside={}, crossing=Link())
    truth = scaled(believed, rng, 1.7)
    costs, runs, placement, unseen = MeasuredCosts(believed), 0, correction(believed), True
    while unseen:
        costs.add(placement, foreseen(truth, placement))
        (placement, unseen), runs = costs.least_seen(), runs + 1
    assert runs <= len(set(believed.alike))
    for ours, theirs in zip(costs.problem.alone, truth.alone, strict=True):
        assert ours == pytest.approx(theirs)
    for way, link in costs.problem.links.items():
        hoped = HOPED * believed.links[way].latency_s  # where nothing was copied
        assert link.latency_s in (pytest.approx(truth.links[way].latency_s), pytest.approx(hoped))


def test_a_cost_beside_others_is_corrected_with_the_one_alone():
    believed = problem_of(TWO, ((), ()), ((1.0, 1.0), (1.0, 1.0)), ((2.0, 2.0), (2.0, 2.0)))
    costs = MeasuredCosts(believed)
    costs.add(place_all(believed, (0, 1)), Taken({0: 3.0, 1: 3.0}, {}))
    assert costs.problem.alone == (pytest.approx((1.5, 1.5)), pytest.approx((1.5, 1.5)))
    assert costs.problem.beside["cpu"][0] == pytest.approx((3.0, 3.0))


def test_several_runs_count_by_their_geometric_mean():
    believed = problem_of(TWO[:1], ((),), ((1.0,),))
    costs, placement = MeasuredCosts(believed), place_all(believed, (0,))
    for seconds in (4.0, 1.0):
        costs.add(placement, Taken({0: seconds}, {}))
    assert costs.problem.alone == ((pytest.approx(2.0),),)


def test_what_has_no_calls_and_takes_no_time_is_never_unseen():
    believed = problem_of(TWO, ((), ()), ((0.0, 0.0), (1.0, None)))
    costs, placement = MeasuredCosts(believed), place_all(believed, (0, 0))
    costs.add(placement, Taken({1: 2.0}, {}))
    assert costs.least_seen()[1] is False
    assert costs.problem.alone == ((0.0, 0.0), (pytest.approx(2.0), None))


def test_what_was_measured_least_is_measured_next():
    believed = problem_of((*TWO[:1], Lane("sim:0", 1, 1, "sim:0")), ((),), ((1.0, 5.0),))
    costs, lanes = MeasuredCosts(believed), []
    for _ in range(4):
        placement, unseen = costs.least_seen()
        lanes.append((*placement.lanes, unseen))
        costs.add(placement, Taken({0: 1.0}, {}))
    assert [lane for lane, _ in lanes] in ([0, 1, 0, 1], [0, 1, 1, 0])
    assert [unseen for _, unseen in lanes] == [True, True, False, False]
