"""What a device takes, measured through the device: here a simulated one whose seconds are known."""

import pytest

from autotune.builder import device_profiles
from autotune.builder.device_profiles import measured_links
from autotune.graph.lanes import HOST, Lane
from autotune.graph.placement import Link
from tests.simulated.clock import ManualClock
from tests.simulated.software_device import SoftwareDevice, Speeds

LANE = Lane("sim:0", 2, 1, "sim:0")


class Simulated:
    """A backend of one simulated device on a clock that only goes on while the device works."""

    def __init__(self, speeds):
        self.clock, self._speeds = ManualClock(), speeds

    def device(self, lane, room):
        return SoftwareDevice(lane.device, room, self._speeds, self.clock)


def test_links_are_measured_in_both_directions(monkeypatch):
    backend = Simulated(Speeds(Link(2e-3, 1e9), Link(1e-3, 4e9)))
    monkeypatch.setattr(device_profiles.time, "perf_counter", backend.clock.now)
    links = measured_links(backend, LANE)
    there, back = links[HOST, "sim:0"], links["sim:0", HOST]
    assert (there.latency_s, there.bytes_per_s) == pytest.approx((2e-3, 1e9))
    assert (back.latency_s, back.bytes_per_s) == pytest.approx((1e-3, 4e9))
