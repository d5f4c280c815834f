"""Costs of subgraphs on lanes, and of the ways between devices; bounds for a device that is not at hand."""

from dataclasses import replace

import pytest

from autotune.backends.backend_catalog import backend_of
from autotune.backends.cpu.cpu_backend import CpuBackend
from autotune.builder import device_profiles
from autotune.builder.devices.lane_costs import LaneCosts, device_bound_s
from autotune.graph.lanes import coupled_lanes
from autotune.graph.placement import Link
from autotune.host.machine import host_target
from autotune.importer.guarded_import import import_model
from autotune.options import Options
from schedules.target import Target
from tests.models.catalog import cached
from tests.simulated.software_device import SoftwareDevice, Speeds
from tests.simulated.stand_in import stand_in

MODEL = "tiny_wide_deep"
DEVICE = Target.cuda("sm_90")
FAST, SLOW = Link(1e-6, 1e12), Link(5e-3, 1e9)
"""Ways past the host's memory; through it a copy takes some 30 µs and what its bytes take twice."""


def test_costs_without_a_device_are_bounds():
    _, program = import_model(cached(MODEL), {}, DEVICE)
    roofline = backend_of(DEVICE).roofline(DEVICE)
    once = device_bound_s(program, roofline)
    more = device_bound_s(replace(program, tasks=(*program.tasks, *program.tasks)), roofline)
    assert 0.0 < once < more < 2 * once


def measured(text, device=True):
    host = host_target(1)
    lanes = coupled_lanes(text, 2)
    return LaneCosts(lanes, tuple(replace(host, threads=lane.threads) for lane in lanes), Options(device=device))


@pytest.fixture
def speeds(monkeypatch):
    """Speeds of the simulated devices by name, which tests fill in."""
    stand_in(monkeypatch)
    monkeypatch.setattr(device_profiles, "LARGE", 1 << 16)
    by_device = {}
    monkeypatch.setattr(
        CpuBackend, "device", lambda _backend, lane, room: SoftwareDevice(lane.device, room, by_device.get(lane.device))
    )
    return by_device


@pytest.mark.parametrize(("peer", "ways"), [(FAST, 2), (SLOW, 0), (None, 0)])
def test_devices_are_linked_past_the_host_where_that_is_possible_and_faster(speeds, peer, ways):
    speeds |= dict.fromkeys(["sim:0", "sim:1"], Speeds(peer=peer))
    links = measured("cpu,sim:0,sim:1").links
    through_host = [way for way in links if "" in way]
    assert sorted(through_host) == [("", "sim:0"), ("", "sim:1"), ("sim:0", ""), ("sim:1", "")]
    assert len([way for way in links if "" not in way]) == ways


def test_a_way_that_only_one_of_two_devices_has_is_not_taken(speeds):
    speeds["sim:0"] = Speeds(peer=FAST)
    assert all("" in way for way in measured("cpu,sim:0,sim:1").links)


def test_each_device_has_links_and_memory_of_its_own(speeds):
    speeds |= {"sim:0": Speeds(memory_bytes=10**6), "sim:1": Speeds(upload=SLOW, memory_bytes=2 * 10**6)}
    costs = measured("cpu,sim:0,sim:1=1MB,sim:2=5GB")
    assert [costs.capacity(lane).bytes for lane in (1, 2, 3)] == [10**6, 10**6, 4 << 30]
    assert costs.links["", "sim:1"].latency_s > SLOW.latency_s > costs.links["", "sim:0"].latency_s


def test_without_devices_links_are_guesses_and_memory_is_what_was_said(speeds):
    costs = measured("cpu,sim:0,sim:1=1MB", device=False)
    assert len(costs.links) == 4
    assert len(set(costs.links.values())) == 1
    assert [costs.capacity(lane).bytes for lane in (1, 2)] == [0, 10**6]


def test_lanes_that_differ_in_nothing_are_alike(speeds):
    costs = measured("cpu:2x1,sim:0,sim:1,sim:2=1MB")
    assert [costs.like(lane) for lane in range(5)] == [0, 0, 2, 2, 4]
