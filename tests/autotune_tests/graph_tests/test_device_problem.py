"""Costs of subgraphs on a CPU and a device, and what is placed by them."""

import pytest

from autotune.builder.placing import placements_of
from autotune.graph.device_problem import INPUTS, OUTPUTS, Costs, Ends, problem_of, values_of
from autotune.graph.lanes import coupled_lanes
from autotune.graph.partition import Subgraph
from autotune.graph.placement import Link
from autotune.interface import TensorSpec

LANES = coupled_lanes("cpu,cuda:0", 2)
WAYS = {("", "cuda:0"): Link(0.5), ("cuda:0", ""): Link(0.25)}


def spec(name):
    return TensorSpec(name, (8,), "float32")


def ends(name, inputs, outputs):
    return Ends(name, tuple(map(spec, inputs)), tuple(map(spec, outputs)))


PARTS = [ends("0.0", "x", "a"), ends("0.1", "x", "b"), ends("1", "ab", "y")]
WHOLE = ends("model", "x", "y")


def placed(costs):
    problem, _ = problem_of(PARTS, WHOLE, costs, LANES, WAYS)
    names = (INPUTS, *(part.name for part in PARTS), OUTPUTS)
    return placements_of([(tuple(Subgraph(name, ()) for name in names), problem)])


def test_the_longer_branch_goes_to_the_lane_that_is_faster_for_it():
    costs = [Costs(9.0, 2.0, 9.0, 2.0), Costs(1.0, 5.0, 1.0, 5.0), Costs(1.0, 5.0, 1.0, 5.0)]
    best, *_ = placed(costs)
    assert best.placement.lanes == (0, 1, 0, 0, 0)
    # x is copied to the device, and a back; then what joins the two branches runs on the CPU.
    assert best.predicted_s == pytest.approx(0.5 + 2.0 + 0.25 + 1.0)


def test_a_subgraph_that_the_device_cannot_run_stays_on_the_cpu():
    costs = [Costs(9.0, 1.0, 9.0, 1.0), Costs(9.0, None, 9.0, None), Costs(9.0, 1.0, 9.0, 1.0)]
    assert all(each.placement.lanes[2] == 0 for each in placed(costs))


def test_a_chain_on_the_device_pays_for_the_models_input_and_output_only():
    costs = [Costs(99.0, 1.0, 99.0, 1.0)] * 3
    best, *_ = placed(costs)
    assert best.placement.lanes == (0, 1, 1, 1, 0)
    assert best.predicted_s == pytest.approx(0.5 + 3.0 + 0.25)
    assert len(best.placement.copies) == 2


def test_values_are_numbered_as_the_tensors_of_the_problem():
    problem, values = problem_of(PARTS, WHOLE, [Costs(1.0, 1.0, 1.0, 1.0)] * 3, LANES, WAYS)
    assert values == values_of(PARTS, WHOLE) == ["x", "a", "b", "y"]
    assert [(t.source, t.readers, t.bytes) for t in problem.tensors] == [
        (0, (1, 2), 32),
        (1, (3,), 32),
        (2, (3,), 32),
        (3, (4,), 32),
    ]
