"""``--lanes cpu,sim:0,sim:1``: simulated devices as lanes, here and in the processes that verify an artifact."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.backends.cpu.cpu_backend import CpuBackend
from autotune.builder import isolated_session
from autotune.graph import lanes
from autotune.host.fork_server import Start
from autotune.tuning import run_plan
from tests.simulated.software_device import SoftwareDevice


def stand_in(patch: pytest.MonkeyPatch) -> None:
    """Let ``sim:0``, ``sim:1`` and so on be devices whose target is one core of this CPU."""
    resolve = run_plan._device_targets

    def device_targets(options, names):
        if not names[0].startswith("sim:"):
            return resolve(options, names)
        return (replace(run_plan.resolve_target(replace(options, target=None)), threads=1),) * len(names)

    patch.setattr(lanes, "DEVICE_KINDS", ("cuda", "sim"))
    patch.setattr(CpuBackend, "device", lambda _backend, lane, room: SoftwareDevice(lane.device, room))
    patch.setattr(run_plan, "_device_targets", device_targets)
    patch.setattr(isolated_session, "START", Start("tests.simulated.stand_in:SimulatedSessionHandler", None))


class SimulatedSessionHandler(isolated_session.SessionHandler):
    """Runs an artifact in a process in which ``sim:0`` is a device."""

    def __init__(self, settings):
        super().__init__(settings)
        stand_in(pytest.MonkeyPatch())
