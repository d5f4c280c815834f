"""Several machines as one measurer, with machines that make their numbers up and die when told."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from autotune.host.machine import host_target
from autotune.host.roofline import Roofline
from autotune.measure.measurer import Candidate, Origin
from autotune.measure.remote.fleet import FleetMeasurer
from autotune.measure.remote.measuring_worker import Answer, MachineLost
from autotune.options import Options
from schedules.config import Config
from schedules.target import Target
from schedules.task import Task
from schedules.vocabulary.errors import MeasureError, UsageError
from tests.autotune_tests.fakes import by_config
from tests.conformance.measurer_suite import MeasurerSuite
from tuning_logs.measurement import Measurement

TASK = Task("t0", "double", "fake", "multiply", ((4,), (4,)), ("float32",) * 2, (), 4, 32)


def candidate(number: int) -> Candidate:
    """An own config per number; multiples of ten fail."""
    return Candidate(TASK, "{}", Config("fake/1", (("x", number),)))


def answer(asked: Candidate) -> Measurement:
    return Measurement(error="timeout", message="slow") if int(asked.config["x"]) % 10 == 0 else by_config(asked)


class FakeMachine:
    """A transport to nowhere.

    Attributes: calls (method, content), incumbents, dies: raise from the next call on.
    """

    def __init__(self, name: str) -> None:
        self.origin = Origin(name, f"fake {name}")
        self.target: Target = host_target(1)
        self.spent_s = 0.0
        self.calls: list[tuple[str, object]] = []
        self.incumbents: list[object] = []
        self.dies = False
        self.closed = 0
        self.threads: set[str] = set()

    def call(self, method: str, *arguments: Any) -> Any:
        self.calls.append((method, *arguments[:1]))
        self.threads.add(threading.current_thread().name)
        if self.dies:
            raise MachineLost("the cable was cut")
        if method == "roofline":
            return Roofline(1.0, 2.0, 3.0, 4)
        if method == "objects":
            return [f"{self.origin.host}-{asked.config['x']}".encode() for asked in arguments[0]]
        if method == "baseline_s":
            return Answer((Measurement((1e-3,)),), self.spent_s, 3 * self.spent_s)
        if method == "measure":
            self.incumbents.append(arguments[-1])
            self.spent_s += 1.0
        return Answer(tuple(answer(asked) for asked in arguments[0]), self.spent_s, 3 * self.spent_s)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def machines() -> list[FakeMachine]:
    return [FakeMachine(name) for name in ("ada", "bob")]


@pytest.fixture
def fleet(machines: list[FakeMachine]) -> FleetMeasurer:
    return FleetMeasurer(machines)


class TestFleetMeasurer(MeasurerSuite):
    @pytest.fixture
    def measurer(self, fleet: FleetMeasurer) -> FleetMeasurer:
        return fleet

    @pytest.fixture
    def batch(self) -> list[Candidate]:
        return [candidate(number) for number in (1, 10, 2, 20, 3)]

    @pytest.fixture
    def failing(self) -> set[int]:
        return {1, 3}


def test_a_batch_is_dealt_out_and_every_measurement_has_its_origin(
    fleet: FleetMeasurer, machines: list[FakeMachine]
) -> None:
    batch = [candidate(number) for number in range(1, 6)]
    assert fleet.measure(batch) == [answer(asked) for asked in batch]
    assert [len(machine.calls[0][1]) for machine in machines] == [3, 2]
    hosts = {asked: machine.origin for machine in machines for asked in machine.calls[0][1]}
    assert fleet.origins == [hosts[asked] for asked in batch]


def test_the_same_config_twice_goes_to_one_machine(fleet: FleetMeasurer, machines: list[FakeMachine]) -> None:
    fleet.measure([candidate(1)] * 4)
    assert [call for machine in machines for call in machine.calls] == [("measure", [candidate(1)])]
    assert fleet.origins == [machines[0].origin] * 4


def test_contenders_are_raced_against_the_true_incumbent(fleet: FleetMeasurer, machines: list[FakeMachine]) -> None:
    first = fleet.measure([candidate(1), candidate(2)])
    best = min((candidate(1), candidate(2)), key=lambda asked: by_config(asked).latency_s)
    best_s = min(measurement.latency_s for measurement in first)
    fleet.measure([candidate(3), candidate(4)], best_s)
    fleet.measure([candidate(5), candidate(6)], best_s / 2)  # an incumbent that the log brought: nobody here knows it
    assert [machine.incumbents for machine in machines] == [[None, best, None]] * 2


def test_what_an_earlier_run_found_best_is_sent_to_every_machine(
    fleet: FleetMeasurer, machines: list[FakeMachine]
) -> None:
    fleet.lead(candidate(9), 1e-9)
    fleet.measure([candidate(1), candidate(2)], 1e-9)
    assert [machine.incumbents for machine in machines] == [[candidate(9)]] * 2


def test_a_lost_machine_costs_what_it_was_measuring(fleet: FleetMeasurer, machines: list[FakeMachine]) -> None:
    machines[0].dies = True
    first, second = fleet.measure([candidate(1), candidate(2)])
    assert (first.error, second.ok) == ("worker_died", True)
    assert first.message == "ada was lost while it measured this: the cable was cut"
    assert all(measurement.ok for measurement in fleet.measure([candidate(3), candidate(4)]))
    assert [len(machine.calls) for machine in machines] == [1, 2]
    assert machines[0].closed


def test_when_the_last_machine_is_lost_nothing_is_recorded_and_one_line_says_so(
    fleet: FleetMeasurer, machines: list[FakeMachine]
) -> None:
    for machine in machines:
        machine.dies = True
    with pytest.raises(MeasureError, match=r"no machine is left .* bob was lost: the cable was cut; .* run the same"):
        fleet.measure([candidate(1), candidate(2)])
    with pytest.raises(MeasureError, match="no machine is left"):
        fleet.objects([candidate(1)])


def test_what_is_no_measurement_is_asked_of_the_next_machine(fleet: FleetMeasurer, machines: list[FakeMachine]) -> None:
    machines[0].dies = True
    assert fleet.baseline_s(candidate(1)).ok
    assert fleet.origins == [machines[1].origin]
    assert fleet.rank([candidate(1), candidate(2)])[0].ok
    assert fleet.origins == [machines[1].origin] * 2
    assert fleet.roofline() == Roofline(1.0, 2.0, 3.0, 4)
    assert fleet.rank([]) == []


def test_objects_come_from_the_machine_that_measured(fleet: FleetMeasurer, machines: list[FakeMachine]) -> None:
    batch = [candidate(number) for number in range(1, 5)]
    fleet.measure(batch)
    hosts = [origin.host for origin in fleet.origins]
    expected = [f"{host}-{n}" for n, host in enumerate(hosts, start=1)]
    assert [path.read_text() for path in fleet.objects(batch)] == expected
    machines[0].dies = True
    assert {path.read_text().split("-")[0] for path in fleet.objects(batch)} == {"bob"}


def test_waiting_is_divided_as_the_machines_spent_their_time(fleet: FleetMeasurer) -> None:
    fleet.measure([candidate(1), candidate(2)])
    assert fleet.compile_s > 0
    assert fleet.measure_s == pytest.approx(3 * fleet.compile_s)


def test_every_machine_has_one_thread_and_closes_with_the_fleet(
    fleet: FleetMeasurer, machines: list[FakeMachine]
) -> None:
    with fleet:
        for number in range(1, 9):
            fleet.measure([candidate(number), candidate(number + 20)])
        assert [len(machine.threads) for machine in machines] == [1, 1]
    assert [machine.closed for machine in machines] == [1, 1]
    with pytest.raises(MeasureError, match="closed"):
        fleet.measure([candidate(1)])


def test_options_name_one_place() -> None:
    with pytest.raises(UsageError, match="two places to measure"):
        Options(cluster="local", rpc="127.0.0.1:9190:board")
    with pytest.raises(UsageError, match="measures nothing"):
        Options(cluster="local", frozen=True)
    with pytest.raises(UsageError, match="--lanes cpu:2x1"):
        Options(rpc="127.0.0.1:9190:board", lanes="cpu:2x1")
