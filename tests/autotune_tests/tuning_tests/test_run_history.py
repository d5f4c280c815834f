"""What a run remembers: slots with their reasons, what decisions brought, and where it is kept."""

import json
from dataclasses import replace

import pytest

from autotune.artifact.directory import read_artifact
from autotune.artifact.manifest import attach, attachment, read_manifest
from autotune.events import ReferenceTimed
from autotune.options import Options
from autotune.tuning import part
from autotune.tuning import run_history as history
from autotune.tuning.run_history import Recorder, TaskHistory, algorithm_of, read_history, write_history
from autotune.tuning.tune import tune
from schedules.config import Config
from schedules.vocabulary.errors import ArtifactError
from tests.autotune_tests.fakes import FakeMeasurer, fake_device
from tests.autotune_tests.report_tests.test_progress import BEGAN, B, began, slot, state
from tests.autotune_tests.tiny import save_tiny


@pytest.fixture
def run(monkeypatch, tmp_path):
    """``run(trials, **options)``: tune the tiny model with made-up times; its Result."""
    fake_device(monkeypatch)
    model = save_tiny(tmp_path / "tiny.onnx")

    def call(trials, **options):
        settings = {"threads": 1, "searcher": "random", "log": tmp_path / "t.db", "out": tmp_path / "tiny.tuned"}
        return tune(model, Options(trials=trials, **{**settings, **options}))

    return call


def test_a_slot_is_remembered_with_its_reason_and_its_failures():
    recorder = Recorder()
    for event in (BEGAN, began(B, "it is the slowest"), slot(B, state("b", 4e-5, 2e-5, None, weight=3), failed=1)):
        recorder(event)
    (kept,) = recorder.run.slots
    assert (kept.task, kept.why, kept.latencies_s, kept.failures) == (
        "b",
        "it is the slowest",
        (2e-5, None),
        ("timeout",),
    )
    assert (kept.began_s, kept.ended_s) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("items", "name"),
    [((("algorithm", 0),), "direct"), ((("algorithm", 4),), "Winograd F(4, 3)"), ((("tw", 4),), ""), ((), "")],
)
def test_algorithms_have_names(items, name):
    assert algorithm_of(Config("conv2d/1", items)) == name


def test_a_run_is_kept_in_its_artifact_and_listed_with_its_hash(run):
    result = run(6)
    (told,) = read_history(result.artifact)
    assert sum(len(slot.latencies_s) for slot in told.slots) == result.measured_trials == 6
    assert all(slot.why for slot in told.slots)
    assert {slot.task for slot in told.slots} <= {task.task for task in told.tasks}
    assert told.latency_ms == result.latency_ms
    assert told.verified["passed"]
    assert told.options["trials"] == 6
    assert "log" not in told.options
    assert {symbol.removeprefix("tune_") for symbol, _ in told.profile} >= {task.task for task in told.tasks}
    assert all(task.untuned_s == FakeMeasurer.untuned.latency_s for task in told.tasks)
    tried = [task for task in told.tasks if task.first_s is not None]
    assert tried
    assert all(task.best_s <= task.first_s for task in tried)
    assert history.FILE in read_manifest(result.artifact)["attached"]
    assert read_artifact(result.artifact)


def test_runs_add_up_and_one_that_measures_nothing_is_no_news(run):
    run(4)
    assert len(read_history(run(4).artifact)) == 1
    first, second = read_history(run(8).artifact)
    assert (sum(task.known for task in first.tasks), sum(task.known for task in second.tasks)) == (0, 4)


def test_a_build_from_the_log_has_no_history(run, tmp_path):
    run(6)
    assert read_history(run(None, frozen=True, out=tmp_path / "other.tuned").artifact) == ()


def test_a_run_whose_artifact_another_one_replaces_ends_well(run, monkeypatch, caplog):
    def replaced(*_):
        raise ArtifactError("it was replaced")

    monkeypatch.setattr(history, "kernel_times", replaced)
    assert read_artifact(run(4).artifact)
    assert caplog.messages[-1] == "the history of this run is not kept: it was replaced"


def test_the_reference_engine_is_timed_once_per_artifact(run, monkeypatch):
    asked = []
    timed = ReferenceTimed("onnxruntime", "1.0", 2e-3)

    def time_it(model, inputs, threads, seed):
        asked.append(threads)
        return timed

    monkeypatch.setattr(part, "reference_latency", time_it)
    run(4, peer=True)
    (told,) = read_history(run(4, peer=True).artifact)
    assert told.reference == timed
    assert asked == [1]


def test_an_attachment_that_was_changed_is_refused_and_the_artifact_still_runs(tiny):
    assert attachment(tiny.artifact, "note") is None
    attach(tiny.artifact, "note", b"one")
    attach(tiny.artifact, "note", b"two")
    assert attachment(tiny.artifact, "note") == b"two"
    (tiny.artifact / "note").write_bytes(b"three")
    with pytest.raises(ArtifactError, match="was lost or changed"):
        attachment(tiny.artifact, "note")
    assert read_artifact(tiny.artifact)


def test_a_history_that_is_no_history_is_told_in_one_line(tiny):
    attach(tiny.artifact, history.FILE, b"nonsense")
    with pytest.raises(ArtifactError, match="is damaged"):
        read_history(tiny.artifact)


def test_a_history_is_read_back_as_it_was_written(tiny):
    recorder = Recorder()
    for event in (BEGAN, began(B, "why"), slot(B, state("b", 4e-5, 2e-5, None), failed=1)):
        recorder(event)
    run = replace(
        recorder.run,
        reference=ReferenceTimed("onnxruntime", "1.0", 2e-3),
        tasks=(TaskHistory("b", 3, 1e-5, 1, 4e-5, None, 4e-5, 2e-5, {"direct": 2e-5}),),
        profile=(("tune_b", 2e-5),),
        lanes=(("cpu:0", "0.trunk", 0.0, 1e-5),),
    )
    write_history(tiny.artifact, (run,))
    assert read_history(tiny.artifact) == (run,)
    assert json.loads((tiny.artifact / "manifest.json").read_text())["attached"][history.FILE]
