"""Plans: what is chosen, what is refused, and what tells two plans apart."""

import json
from dataclasses import replace

import pytest
import tvm

from autotune.artifact.make_plan import SHOWN, make_plan, record_key
from autotune.artifact.plan import Choice, Plan
from schedules.config import Config
from schedules.lower import BASELINE
from schedules.space import Knob, Space
from schedules.target import Target
from schedules.task import Task
from schedules.vocabulary.errors import ArtifactError, MissingRecordError
from tuning_logs.measurement import Measurement
from tuning_logs.record import TuningRecord
from tuning_logs.sql_store import memory_log

TARGET = Target("llvm", "avx2", threads=2)
SPACE = Space("toy", 1, (Knob("x", (1, 2, 3)),))
FIXED = Space("baseline", 1, ())


def task(key):
    return Task(key, f"fused_{key}", "toy", "toy", ((1,), (1,)), ("float32", "float32"), (), 10, 8)


def config(x):
    return Config(SPACE.identity, (("x", x),))


def log_with(*entries, target=TARGET):
    log = memory_log()
    log.append(
        [
            TuningRecord(record_key(task(key), SPACE, target), config(x), Measurement((latency,)), when=when)
            for when, (key, x, latency) in enumerate(entries)
        ]
    )
    return log


def test_the_fastest_config_is_chosen():
    plan = make_plan([task("a")], {"a": SPACE}, TARGET, log_with(("a", 1, 3e-5), ("a", 2, 1e-5), ("a", 3, 2e-5)))
    assert plan.choices == (Choice("a", config(2), 1e-5),)
    assert plan.config("a") == config(2)


def test_a_config_that_its_space_no_longer_has_is_not_chosen():
    log = log_with(("a", 2, 2e-5), ("a", 99, 1e-5))
    assert make_plan([task("a")], {"a": SPACE}, TARGET, log).config("a") == config(2)
    assert make_plan([task("a")], {"a": SPACE}, TARGET, log_with(("a", 99, 1e-5))).config("a") == BASELINE


def test_without_a_record_a_task_stays_untuned():
    plan = make_plan([task("b"), task("a")], {"a": SPACE, "b": SPACE}, TARGET, log_with(("a", 1, 1e-5)))
    assert plan.choices == (Choice("a", config(1), 1e-5), Choice("b", BASELINE, None))


def test_frozen_names_what_is_missing_and_why():
    log = log_with(("a", 1, 1e-5), target=replace(TARGET, threads=4))
    log.add_target(TARGET)
    log.add_target(replace(TARGET, threads=4))
    with pytest.raises(MissingRecordError, match="threads differs: 4 there, 2 here") as caught:
        make_plan([task("a")], {"a": SPACE}, TARGET, log, frozen=True)
    assert "fused_a (a)" in str(caught.value)


def test_frozen_lists_every_one_that_is_missing():
    tasks = [task(f"t{i}") for i in range(10)]
    with pytest.raises(MissingRecordError, match="10 of 10 tasks") as caught:
        make_plan(tasks, {missing.key: SPACE for missing in tasks}, TARGET, memory_log(), frozen=True)
    message = str(caught.value)
    assert all(f"fused_{missing.key} ({missing.key})" in message for missing in tasks)
    assert message.count("never measured") == SHOWN
    assert "\n" not in message


def test_what_cannot_be_tuned_is_never_missing():
    plan = make_plan([task("a")], {"a": FIXED}, TARGET, memory_log(), frozen=True)
    assert plan.config("a") == BASELINE


def test_records_of_another_tvm_do_not_count(monkeypatch):
    log = log_with(("a", 1, 1e-5))
    monkeypatch.setattr(tvm, "__version__", "0.99.0")
    with pytest.raises(MissingRecordError, match="tvm differs"):
        make_plan([task("a")], {"a": SPACE}, TARGET, log, frozen=True)


PLAN = Plan(TARGET, (Choice("a", config(1), 1e-5), Choice("b", BASELINE, None)))


def test_json_brings_the_plan_back():
    assert Plan.from_json(PLAN.to_json()) == PLAN


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"target": {}, "choices": 3}', PLAN.to_json()[:-20]])
def test_damaged_json_is_refused_in_one_line(text):
    with pytest.raises(ArtifactError, match="build the artifact again") as caught:
        Plan.from_json(text)
    assert "\n" not in str(caught.value)


def test_wrong_values_in_json_are_refused():
    data = json.loads(PLAN.to_json())
    data["choices"][0]["config"]["knobs"]["x"] = 1.5
    with pytest.raises(ArtifactError):
        Plan.from_json(json.dumps(data))
    data = json.loads(PLAN.to_json())
    data["target"]["isa"] = "avx1024"
    with pytest.raises(ArtifactError):
        Plan.from_json(json.dumps(data))


def test_digest_is_of_decisions_not_of_times():
    assert Plan(TARGET, (Choice("a", config(1), 9.0), PLAN.choices[1])).digest == PLAN.digest
    assert Plan(TARGET, (Choice("a", config(2), 1e-5), PLAN.choices[1])).digest != PLAN.digest
    assert Plan(replace(TARGET, threads=1), PLAN.choices).digest != PLAN.digest
