"""Costs of subgraphs on cores and devices, and what is placed by them."""

import pytest

from autotune.builder.placing import placements_of
from autotune.graph.device_problem import INPUTS, OUTPUTS, Costs, Ends, problem_of, values_of
from autotune.graph.lanes import coupled_lanes
from autotune.graph.partition import Subgraph
from autotune.graph.placement import Link
from autotune.interface import TensorSpec

LANES = coupled_lanes("cpu,cuda:0", 2)
WAYS = {("", "cuda:0"): Link(0.5), ("cuda:0", ""): Link(0.25)}
SEVERAL = coupled_lanes("cpu:2x1,cuda:0,cuda:1", 2)
SEVERAL_WAYS = WAYS | {("", "cuda:1"): Link(0.5), ("cuda:1", ""): Link(0.25)}


def spec(name):
    return TensorSpec(name, (8,), "float32")


def ends(name, inputs, outputs):
    return Ends(name, tuple(map(spec, inputs)), tuple(map(spec, outputs)))


PARTS = [ends("0.0", "x", "a"), ends("0.1", "x", "b"), ends("1", "ab", "y")]
WHOLE = ends("model", "x", "y")


def placed(costs, lanes=LANES, ways=WAYS):
    problem, _ = problem_of(PARTS, WHOLE, costs, lanes, ways)
    names = (INPUTS, *(part.name for part in PARTS), OUTPUTS)
    return placements_of([(tuple(Subgraph(name, ()) for name in names), problem)])


def test_the_longer_branch_goes_to_the_lane_that_is_faster_for_it():
    best, *_ = placed([Costs((9.0, 2.0)), Costs((1.0, 5.0)), Costs((1.0, 5.0))])
    assert best.placement.lanes == (0, 1, 0, 0, 0)
    # x is copied to the device, and a back; then what joins the two branches runs on the CPU.
    assert best.predicted_s == pytest.approx(0.5 + 2.0 + 0.25 + 1.0)


def test_a_subgraph_that_the_device_cannot_run_stays_on_the_cpu():
    costs = [Costs((9.0, 1.0)), Costs((9.0, None)), Costs((9.0, 1.0))]
    assert all(one.placement.lanes[2] == 0 for one in placed(costs))


def test_a_chain_on_the_device_pays_for_the_models_input_and_output_only():
    best, *_ = placed([Costs((99.0, 1.0))] * 3)
    assert best.placement.lanes == (0, 1, 1, 1, 0)
    assert best.predicted_s == pytest.approx(0.5 + 3.0 + 0.25)
    assert len(best.placement.copies) == 2


def test_branches_go_to_two_devices_where_each_is_faster_than_cores():
    branch, join = Costs((9.0, 9.0, 4.0, 4.0)), Costs((1.0, 1.0, 9.0, 9.0))
    best, *_ = placed([branch, branch, join], SEVERAL, SEVERAL_WAYS)
    assert {best.placement.lanes[1], best.placement.lanes[2]} == {2, 3}
    assert best.placement.lanes[3] in (0, 1)
    assert best.predicted_s == pytest.approx(0.5 + 4.0 + 0.25 + 1.0)


def test_what_one_device_leaves_for_another_goes_through_the_host_or_past_it():
    costs = [Costs((None, None, 1.0, None)), Costs((None, None, 1.0, None)), Costs((None, None, None, 1.0))]
    through, *_ = placed(costs, SEVERAL, SEVERAL_WAYS)
    assert through.predicted_s == pytest.approx(0.5 + 2.0 + 0.25 + 0.5 + 1.0 + 0.25)
    direct = SEVERAL_WAYS | {("cuda:0", "cuda:1"): Link(0.125), ("cuda:1", "cuda:0"): Link(0.125)}
    past, *_ = placed(costs, SEVERAL, direct)
    assert past.predicted_s == pytest.approx(0.5 + 2.0 + 0.125 + 1.0 + 0.25)


def test_values_are_numbered_as_the_tensors_of_the_problem():
    problem, values = problem_of(PARTS, WHOLE, [Costs((1.0, 1.0))] * 3, LANES, WAYS)
    assert values == values_of(PARTS, WHOLE) == ["x", "a", "b", "y"]
    assert [(t.source, t.readers, t.bytes) for t in problem.tensors] == [
        (0, (1, 2), 32),
        (1, (3,), 32),
        (2, (3,), 32),
        (3, (4,), 32),
    ]


def test_inputs_and_outputs_are_on_cores_and_devices_alike_stay_alike():
    problem, _ = problem_of(PARTS, WHOLE, [Costs((2.0, 2.0, 1.0, 1.0))] * 3, SEVERAL, SEVERAL_WAYS)
    assert problem.alone[0] == problem.alone[-1] == (0.0, 0.0, None, None)
    assert problem.alike == (0, 0, 2, 2)


def test_costs_next_to_other_lanes_are_those_alone_where_nothing_was_measured():
    costs = [Costs((1.0, 2.0), {"cuda": (1.5, 2.0)}), Costs((1.0, 2.0)), Costs((1.0, 2.0), {"cpu": (1.0, 3.0)})]
    problem, _ = problem_of(PARTS, WHOLE, costs, LANES, WAYS)
    assert problem.beside["cuda"] == ((0.0, None), (1.5, 2.0), (1.0, 2.0), (1.0, 2.0), (0.0, None))
    assert problem.beside["cpu"] == ((0.0, None), (1.0, 2.0), (1.0, 2.0), (1.0, 3.0), (0.0, None))


def test_a_lane_that_fetches_weights_takes_as_much_longer_next_to_others():
    costs = Costs((1.0, 2.0), {"cpu": (1.0, 3.0)})
    assert costs.at(1, 5.0) == Costs((1.0, 5.0), {"cpu": (1.0, 6.0)})
    assert costs.at(1, None) == Costs((1.0, None), {"cpu": (1.0, None)})
    assert Costs((1.0, None)).at(1, 5.0) == Costs((1.0, None))
    assert costs.on([1]) == Costs((None, 2.0), {"cpu": (None, 3.0)})
