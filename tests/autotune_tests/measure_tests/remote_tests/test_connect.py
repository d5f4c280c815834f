"""Other machines to measure on: opened, compared with this one, and ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune.contributions import contributed
from autotune.host.machine import host_target, read_host
from autotune.measure.measurer import Origin
from autotune.measure.remote import connect
from autotune.measure.remote.connect import Fleet
from autotune.measure.remote.fleet import FleetMeasurer
from autotune.options import Options
from schedules.target import Target
from schedules.vocabulary.errors import UsageError


class Machine:
    def __init__(self, target: Target) -> None:
        self.origin, self.target, self.closed = Origin("ada", "fake"), target, 0

    def call(self, method: str, *arguments: Any) -> Any:
        raise AssertionError(method)

    def close(self) -> None:
        self.closed += 1


def opened(monkeypatch: pytest.MonkeyPatch, target: Target) -> Machine:
    machine = Machine(target)
    monkeypatch.setattr(contributed("ray"), "open_machines", lambda *_: [machine])
    return machine


def test_a_fleet_like_this_machine_is_not_foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = opened(monkeypatch, host_target())
    with Fleet(Options(cluster="local")) as fleet:
        assert (fleet.target, fleet.foreign) == (host_target(), "")
        assert fleet.measurer.target == host_target()
    assert machine.closed == 1


def test_a_fleet_of_other_machines_is_foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(host_target(), l2_bytes=2 * host_target().l2_bytes)
    opened(monkeypatch, other)
    with Fleet(Options(cluster="local")) as fleet:
        assert fleet.foreign == f"this machine is {host_target().fingerprint}, the kernels are for {other.fingerprint}"


def test_what_cannot_be_verified_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = next(isa for isa in ("amx", "neon") if isa not in read_host().isas)
    machine = opened(monkeypatch, replace(host_target(), isa=missing))
    with pytest.raises(UsageError, match="could not be verified here"):
        Fleet(Options(cluster="local"))
    assert machine.closed == 1


def test_devices_of_another_architecture_are_measured_and_what_is_built_for_them_never_runs_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(Target.cpu("neoverse-n2" if "neon" not in read_host().isas else "znver4", 1))
    monkeypatch.setattr(connect, "_devices", lambda *_: FleetMeasurer([machine]))
    with Fleet(Options(rpc="127.0.0.1:9190:board")) as fleet:
        assert fleet.target == machine.target
        assert fleet.foreign.endswith(f"the kernels are for {machine.target.fingerprint}")
