"""Placing subgraphs in order: cores, memories, copies."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.graph.lanes import Lane, cpu_lane
from autotune.graph.placement import Link, Problem, Tensor, place_all
from autotune.graph.placers import correction
from tests.autotune_tests.graph_tests.dags import device_problem, problem_of, random_edges

seeds = st.integers(0, 2**32 - 1)
TWO = (cpu_lane(0, 1), cpu_lane(1, 1))
COUPLED = (cpu_lane(0, 1), Lane("sim:0", 1, 1, "sim:0"))
WAYS = {("", "sim:0"): Link(0.0, 1000.0), ("sim:0", ""): Link(0.0, 500.0)}


def test_subgraphs_start_when_their_cores_are_free_and_what_they_read_is_there():
    costs = ((1.0, 1.0), (2.0, 2.0), (1.0, 1.0))
    problem = problem_of(TWO, ((), (), (0, 1)), costs, sizes=(1000, 1000, 0), crossing=Link(0.5, 1000.0))
    placement = place_all(problem, (0, 1, 0))
    assert placement.starts == (0.0, 0.0, 3.5)  # of the other lane: 2 s, 0.5 s of latency and 1 s for 1000 bytes
    assert placement.makespan_s == 4.5
    assert place_all(problem, (0, 0, 0)).starts == (2.0, 0.0, 3.0)  # the longest tail goes first


def test_readers_and_tails_follow_from_needs():
    costs = ((1.0, 3.0), (2.0, 1.0), (4.0, 4.0))
    problem = problem_of(TWO, ((), (0,), (0,)), costs)
    assert problem.readers == ((1, 2), (), ())
    assert problem.tails == (5.0, 1.0, 4.0)
    assert problem.order == (0, 2, 1)


def coupled(tensors, count):
    """Subgraphs of a second each on either lane."""
    return Problem(COUPLED, tensors, ((1.0, 1.0),) * count, links=WAYS)


def test_a_chain_that_stays_on_a_device_pays_for_no_copy():
    problem = coupled((Tensor(0, (1,), 1000), Tensor(1, (2,), 1000)), 3)
    placement = place_all(problem, (1, 1, 1))
    assert placement.makespan_s == 3.0
    assert placement.copies == ()


def test_a_tensor_is_copied_into_a_memory_once_however_many_read_it():
    problem = coupled((Tensor(0, (1, 2, 3), 2000),), 4)
    placement = place_all(problem, (0, 1, 1, 1))
    assert [(copy.tensor, copy.link, copy.start, copy.end) for copy in placement.copies] == [
        (0, ("", "sim:0"), 1.0, 3.0)
    ]
    assert placement.makespan_s == 6.0


def test_copies_run_beside_what_lanes_compute_and_one_after_another_on_a_link():
    problem = coupled((Tensor(0, (2,), 1000), Tensor(1, (3,), 1000)), 4)
    placement = place_all(problem, (0, 0, 1, 1), (0, 1, 2, 3))
    assert [(copy.start, copy.end) for copy in placement.copies] == [(1.0, 2.0), (2.0, 3.0)]
    assert placement.starts == (0.0, 1.0, 2.0, 3.0)


def test_two_devices_exchange_tensors_through_the_host():
    lanes = (cpu_lane(0, 1), Lane("sim:0", 1, 1, "sim:0"), Lane("sim:1", 2, 1, "sim:1"))
    ways = {("sim:0", ""): Link(1.0), ("", "sim:1"): Link(2.0)}
    problem = Problem(lanes, (Tensor(0, (1,), 8),), ((None, 1.0, None), (None, None, 1.0)), links=ways)
    placement = place_all(problem, (1, 2))
    assert [copy.link for copy in placement.copies] == [("sim:0", ""), ("", "sim:1")]
    assert placement.makespan_s == 1.0 + 1.0 + 2.0 + 1.0


def test_a_lane_is_slowed_down_by_the_kinds_of_lane_that_may_work_beside_it():
    beside = {"cpu": ((9.0, 3.0),), "sim": ((2.0, 9.0),)}
    problem = Problem(COUPLED, (), ((1.0, 1.0),), beside)
    assert problem.busy == ((2.0, 3.0),)
    assert problem.rate_s(0, 0, frozenset()) == 1.0


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_what_is_read_is_there_and_a_link_carries_one_tensor_at_a_time(seed):
    rng = np.random.default_rng(seed)
    problem = device_problem(rng, random_edges(rng, 8))
    placement = correction(problem)
    there = {(copy.tensor, copy.link[1]): copy.end for copy in placement.copies}
    assert len(there) == len(placement.copies)
    for s in range(problem.count):
        for number in problem.reads[s]:
            source = problem.tensors[number].source
            memory = problem.lanes[placement.lanes[s]].memory
            same = problem.lanes[placement.lanes[source]].memory == memory
            assert placement.starts[s] >= (placement.ends[source] if same else there[number, memory]) - 1e-12
    for link in {copy.link for copy in placement.copies}:
        spans = sorted((copy.start, copy.end) for copy in placement.copies if copy.link == link)
        assert all(one[1] <= other[0] + 1e-12 for one, other in itertools.pairwise(spans))
