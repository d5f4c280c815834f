from __future__ import annotations

import pytest

from autotune.measure.evaluator import Adaptive, FixedCount
from autotune.measure.measurer import Candidate
from autotune.measure.replay_measurer import ReplayMeasurer, VirtualClock, cut, recorded
from schedules.config import Config
from schedules.task import Task
from schedules.vocabulary.errors import MissingRecordError
from tests.conformance.measurer_suite import MeasurerSuite
from tuning_logs.measurement import Measurement
from tuning_logs.record import RecordKey, TuningRecord

TASK = Task("t0", "t0", "none", "op", ((1,), (1,)), ("float32",) * 2, (), 1, 8)


def candidate(x: int) -> Candidate:
    return Candidate(TASK, "", Config("s/1", (("x", x),)))


MEASUREMENTS = {
    ("t0", candidate(0).config): Measurement((1e-3,) * 500, compile_s=0.1, run_s=0.51, code_hash="a"),
    ("t0", candidate(1).config): Measurement((4e-3,) * 500, compile_s=0.2, run_s=2.0, code_hash="b"),
    ("t0", candidate(2).config): Measurement(error="timeout", message="not done within 1 s", compile_s=1.0),
    ("t0", candidate(3).config): Measurement((1e-3,) * 500, compile_s=0.3, run_s=0.51, code_hash="a"),
}


class TestReplay(MeasurerSuite):
    @pytest.fixture
    def measurer(self) -> ReplayMeasurer:
        return ReplayMeasurer(MEASUREMENTS)

    @pytest.fixture
    def batch(self) -> list[Candidate]:
        return [candidate(x) for x in range(4)]

    @pytest.fixture
    def failing(self) -> set[int]:
        return {2}


def test_charges_what_was_recorded() -> None:
    clock = VirtualClock()
    measurer = ReplayMeasurer(MEASUREMENTS, clock=clock, builders=2)
    measurer.measure([candidate(0), candidate(1), candidate(2)])
    assert measurer.compile_s == pytest.approx((0.1 + 0.2 + 1.0) / 2)
    assert measurer.measure_s == pytest.approx(2.51)
    assert clock() == pytest.approx(measurer.compile_s + measurer.measure_s)
    assert measurer.runs == 1000


def test_an_evaluator_takes_fewer_of_the_recorded_runs() -> None:
    measurer = ReplayMeasurer(MEASUREMENTS, evaluator=Adaptive())
    winner, loser = measurer.measure([candidate(0), candidate(1)], incumbent_s=1.01e-3)
    assert winner.latencies_s == (1e-3,) * Adaptive().least_runs
    assert loser.latencies_s == (4e-3,)
    assert measurer.measure_s == pytest.approx(0.01 + 8e-3 + 4e-3)


def test_a_cut_never_invents_runs() -> None:
    short = Measurement((1.0, 2.0), run_s=3.5)
    assert cut(short, FixedCount(500), None).latencies_s == (1.0, 2.0)
    assert cut(short, FixedCount(1), None).run_s == pytest.approx(1.5)


def test_identical_code_runs_once() -> None:
    measurer = ReplayMeasurer(MEASUREMENTS)
    first, again = measurer.measure([candidate(0), candidate(3)])
    assert again.latencies_s == first.latencies_s
    assert (again.compile_s, again.run_s) == (0.3, 0.0)
    assert measurer.runs == 500


def test_what_was_never_recorded_is_named() -> None:
    with pytest.raises(MissingRecordError, match=r't0 has no recorded measurement of .*"x":9'):
        ReplayMeasurer(MEASUREMENTS).measure([candidate(9)])


def test_records_of_a_log_replay_with_the_newest_of_each_config() -> None:
    key = RecordKey("t0", "llvm", "s/1", "0.27")
    old, new = (TuningRecord(key, candidate(0).config, Measurement((latency,))) for latency in (2.0, 1.0))
    (answer,) = ReplayMeasurer(recorded([old, new])).measure([candidate(0)])
    assert answer.latency_s == 1.0
