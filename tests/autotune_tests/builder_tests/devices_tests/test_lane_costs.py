"""Costs of a subgraph on a device that is not at hand."""

from dataclasses import replace

from autotune.backends.backend_catalog import backend_of
from autotune.builder.devices.lane_costs import device_bound_s
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
