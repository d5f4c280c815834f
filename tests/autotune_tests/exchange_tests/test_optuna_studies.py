"""Optuna reads what is exported: studies, trials, values, failures."""

import dataclasses
import sys

import pytest

from autotune.exchange.optuna_studies import export_studies, study_name
from schedules.config import Config
from schedules.errors import InstallError, LogError
from tuning_logs.measurement import Measurement
from tuning_logs.record import RecordKey, TuningRecord
from tuning_logs.sql_store import memory_log

KEY = RecordKey("f00d", "llvm-avx2-haswell-2t-1", "conv2d/1", "0.27")


def record(tile, order, latency_s=None, key=KEY, when=1.7e9):
    config = Config("conv2d/1", (("tile", tile), ("unroll", tile[0]), ("order", order)))
    measured = Measurement((latency_s,)) if latency_s else Measurement(error="timeout", message="slow")
    return TuningRecord(key, config, dataclasses.replace(measured, compile_s=2.0), when=when, host="a", seed=3)


@pytest.fixture
def log():
    made = memory_log()
    made.append([record((4, 2), "in", 2e-3), record((8, 1), "out", 1e-3, when=1.8e9), record((2, 2), "in", when=1.9e9)])
    made.append([record((4, 2), "in", 5e-3, dataclasses.replace(KEY, task="beef"))])
    return made


def test_optuna_loads_studies_with_their_trials(log, tmp_path):
    optuna = pytest.importorskip("optuna")
    address = f"sqlite:///{tmp_path / 'x.db'}"
    report = export_studies(log, address)
    assert (report.studies, report.trials, report.present) == (2, 4, 0)
    study = optuna.load_study(study_name=study_name(KEY), storage=address)
    assert study.best_value == 1e-3
    assert study.best_params == {"tile": "8×1", "unroll": 8, "order": "out"}
    assert study.user_attrs["task"] == "f00d"
    states = [trial.state for trial in study.trials]
    assert states == [optuna.trial.TrialState.COMPLETE] * 2 + [optuna.trial.TrialState.FAIL]
    assert study.trials[2].user_attrs["error"] == "timeout"
    assert study.trials[0].duration.total_seconds() == 2.0
    assert study.trials[0].datetime_complete < study.trials[1].datetime_complete


def test_a_study_that_is_there_is_left_alone(log, tmp_path):
    pytest.importorskip("optuna")
    address = f"sqlite:///{tmp_path / 'x.db'}"
    export_studies(log, address)
    log.append([record((4, 2), "in", 5e-3, dataclasses.replace(KEY, task="new"))])
    again = export_studies(log, address)
    assert (again.studies, again.trials, again.present) == (1, 1, 2)


def test_a_storage_that_cannot_be_used_is_told_in_one_line(log, tmp_path):
    pytest.importorskip("optuna")
    for address in (f"sqlite:///{tmp_path}", "nonsense", "postgresql+psycopg://me:secret@localhost:1/x"):
        with pytest.raises(LogError, match="Optuna cannot use the storage") as caught:
            export_studies(log, address)
        assert "\n" not in str(caught.value)
        assert "secret" not in str(caught.value)


def test_without_optuna_the_extra_is_named(log, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InstallError, match=r"tune-compiler\[optuna\]"):
        export_studies(log, "sqlite:///x.db")
