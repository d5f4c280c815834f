"""A model's tasks, beside an empty log and one with records."""

import pytest

from autotune.artifact.make_plan import record_key
from autotune.options import Options
from autotune.report.inspect_tasks import report_tasks
from tests.autotune_tests.tiny import save_tiny, target, tiny_program
from tuning_logs.measurement import Measurement
from tuning_logs.record import TuningRecord
from tuning_logs.sql_store import open_log


@pytest.fixture
def model(tmp_path):
    return save_tiny(tmp_path / "tiny.onnx")


def test_without_records_every_tunable_task_is_missing(model, tmp_path):
    open_log(tmp_path / "t.db").close()
    report = report_tasks(model, Options(threads=1, log=tmp_path / "t.db"))
    tunable = [task for task in report.tasks if task.tunable]
    assert tunable
    for task in tunable:
        assert (task.best, task.best_s, task.trials) == (None, None, 0)
        assert task.missing
        assert task.why.startswith("not found: ")
    assert all(task.bound_s > 0 for task in report.tasks)


def test_the_fastest_record_is_the_one_that_is_used(model, tmp_path):
    program = tiny_program(model)
    task = next(task for task in program.tasks if program.spaces[task.key].knobs)
    space = program.spaces[task.key]
    key = record_key(task, space, target())
    log = open_log(tmp_path / "t.db")
    log.add_target(target())
    records = [
        TuningRecord(key, config, Measurement((seconds,)), host="here", when=1.7e9)
        for config, seconds in zip(space.initial[:2], (2e-5, 1e-5), strict=False)
    ]
    log.append(records)
    log.close()
    report = report_tasks(model, Options(threads=1, log=tmp_path / "t.db"))
    known = next(row for row in report.tasks if row.task.key == task.key)
    best_s = min(record.measurement.latency_s for record in records)
    assert (known.best_s, known.trials, known.missing) == (best_s, len(records), "")
    assert "on here, the best of" in known.why
    data = next(row for row in report.to_data()["tasks"] if row["key"] == task.key)
    assert data["best_us"] == pytest.approx(1e6 * best_s)
    assert data["roofline_share"] == pytest.approx(known.bound_s / best_s)
