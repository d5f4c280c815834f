"""Costs of subgraphs on a CPU and a device, and what is placed by them."""

from dataclasses import replace

from autotune.backends.backend_catalog import backend_of
from autotune.builder.branches import cut_into_branches
from autotune.builder.cpu_and_device import Costs, device_bound_s, problem_of
from autotune.builder.placing import placements_of
from autotune.graph.lanes import coupled_lanes
from autotune.graph.partition import Subgraph
from autotune.importer.guarded_import import import_model
from schedules.target import Target
from tests.models.catalog import cached

MODEL = "tiny_wide_deep"
DEVICE = Target.cuda("sm_90")


def test_costs_without_a_device_are_bounds():
    _, program = import_model(cached(MODEL), {}, DEVICE)
    roofline = backend_of(DEVICE).roofline(DEVICE)
    once = device_bound_s(program, roofline)
    more = device_bound_s(replace(program, tasks=(*program.tasks, *program.tasks)), roofline)
    assert 0.0 < once < more < 2 * once


def test_the_longer_branch_goes_to_the_lane_that_is_faster_for_it():
    _, branches = cut_into_branches(cached(MODEL), {})
    several = [number for number, branch in enumerate(branches) if "." in branch.name]
    costs = [Costs(1.0, 5.0, 1.0, 5.0) for _ in branches]
    costs[several[0]] = Costs(9.0, 2.0, 9.0, 2.0)
    problem = problem_of(branches, costs, coupled_lanes("cpu,cuda:0", 2))
    best, *_ = placements_of([(tuple(Subgraph(branch.name, ()) for branch in branches), problem)])
    assert best.placement.lanes[several[0]] == 1
    assert all(lane == 0 for number, lane in enumerate(best.placement.lanes) if number != several[0])


def test_a_subgraph_that_the_device_cannot_run_stays_on_the_cpu():
    _, branches = cut_into_branches(cached(MODEL), {})
    costs = [Costs(9.0, 1.0, 9.0, 1.0) for _ in branches]
    costs[1] = Costs(9.0, None, 9.0, None)
    problem = problem_of(branches, costs, coupled_lanes("cpu,cuda:0", 2))
    names = tuple(Subgraph(branch.name, ()) for branch in branches)
    assert all(placed.placement.lanes[1] == 0 for placed in placements_of([(names, problem)]))
