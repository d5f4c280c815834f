"""``tune`` and ``build`` from file to artifact, with a measurer that makes its numbers up."""

import json
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import autotune
from autotune.artifact.directory import read_artifact
from autotune.artifact.known_models import remembered_model
from autotune.artifact.make_plan import UNTUNED
from autotune.artifact.manifest import attach
from autotune.builder import one_lane
from autotune.events import PhaseBegan, SlotDone, TuningBegan, TuningEnded
from autotune.host import compilers
from autotune.importer.guarded_import import import_model
from autotune.measure import local_measurer
from autotune.options import Options
from autotune.tuning import search_program
from autotune.tuning import tune as tuning
from autotune.tuning.run_plan import PartJob, resolve_target
from schedules.lower import BASELINE
from schedules.vocabulary.errors import InstallError, MissingRecordError, ModelError, UsageError
from tests.autotune_tests.fakes import FakeMeasurer, FakeRanker, fake_device, if_it_lowers
from tests.autotune_tests.tiny import save_tiny
from tuning_logs.sql_store import open_log


@pytest.fixture
def model(tmp_path):
    return save_tiny(tmp_path / "tiny.onnx")


@pytest.fixture
def latencies_ms():
    """The answers of timing a whole model, in turn; equally fast once they are used up."""
    return []


@pytest.fixture(autouse=True)
def measurers(monkeypatch, latencies_ms):
    """Every measurer that the pipeline opened; none is started for real."""
    return fake_device(monkeypatch, lambda *_: 1e-3 * (latencies_ms.pop(0) if latencies_ms else 1.0))


def known(tmp_path):
    """Records of kernels in the log: six trials, and the finalists of what had more than one."""
    log = open_log(tmp_path / "t.db")
    count = sum(record.key.space != UNTUNED.identity for record in log.records())
    log.close()
    assert count > 6
    return count


def options(tmp_path, **changes):
    chosen = {"out": tmp_path / "tiny.tuned", "log": tmp_path / "t.db", "threads": 1, "searcher": "random", "trials": 6}
    return Options(**{**chosen, "batch": 2, **changes})


def test_a_run_measures_builds_and_verifies(tmp_path, model, measurers):
    events = []
    result = tuning.tune(model, options(tmp_path), events.append)
    assert (result.measured_trials, result.reused_records, result.reason) == (6, 0, "6 trials were measured")
    assert result.verified.passed
    assert result.verified.reference.startswith("onnxruntime")
    provenance = read_artifact(result.artifact).provenance
    assert provenance["model"] == "tiny.onnx"
    assert remembered_model(provenance["sha256"]) == model.resolve()
    assert measurers[0].trials == 6
    assert measurers[0].closed
    assert {slot[0].task.key for slot in measurers[0].slots} <= set(measurers[0].expected)
    kinds = [type(event) for event in events]
    assert kinds.index(TuningBegan) < kinds.index(SlotDone) < kinds.index(TuningEnded)
    assert [event.name for event in events if isinstance(event, PhaseBegan)] == ["import", "build"]


def test_an_instant_run_builds_first_guesses_and_measures_no_kernel(tmp_path, model, measurers):
    result = tuning.tune(model, options(tmp_path, effort="instant", trials=None))
    assert (result.measured_trials, measurers[0].trials) == (0, 0)
    assert result.verified.passed
    assert dict(result.latency_ms) == {"untuned": 1.0, "tuned": 1.0}
    choices = read_artifact(result.artifact).plan.choices
    assert all(choice.latency_s is None for choice in choices)
    assert any(choice.config != BASELINE for choice in choices)


def test_an_instant_run_ships_what_the_log_knows(tmp_path, model, measurers):
    tuned = read_artifact(tuning.tune(model, options(tmp_path, trials=30)).artifact).plan
    instant = tuning.tune(model, options(tmp_path, effort="instant", trials=None, out=tmp_path / "again"))
    again = read_artifact(instant.artifact).plan
    measured = {choice.task: choice.config for choice in tuned.choices if choice.latency_s is not None}
    assert {task: again.config(task) for task in measured} == measured


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trials": 6}, "--trials 6"),
        ({"trials": None, "budget_s": 9.0}, "--budget 9"),
        ({"trials": None, "frozen": True}, "--frozen"),
        ({"trials": None, "lanes": "cpu:2x1"}, "--lanes cpu:2x1"),
    ],
)
def test_an_instant_run_has_nothing_to_limit(tmp_path, changes, words):
    with pytest.raises(UsageError, match=f"--effort instant does not go with {words}.*measures no kernels"):
        options(tmp_path, effort="instant", **changes)


def test_the_artifact_computes_what_the_model_does(tmp_path, model, measurers):
    result = tuning.tune(model, options(tmp_path, trials=12))
    x = np.random.default_rng(3).standard_normal((1, 16, 8, 8)).astype(np.float32)
    reference = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    ours = autotune.InferenceSession(result.artifact).run(None, {"data": x})
    assert np.allclose(ours[0], reference.run(None, {"data": x})[0], 1e-3, 1e-5)
    chosen = [choice.config for choice in read_artifact(result.artifact).plan.choices]
    assert any(config != BASELINE for config in chosen)


def test_the_untuned_build_is_shipped_where_it_is_faster(tmp_path, model, measurers, latencies_ms, monkeypatch):
    latencies_ms += [3.0, 2.0]
    monkeypatch.setattr(one_lane, "is_faster", lambda *_: True)
    result = tuning.tune(model, options(tmp_path, trials=12))
    assert result.latency_ms == {"tuned": 2.0, "untuned": 2.0}
    assert {choice.config for choice in read_artifact(result.artifact).plan.choices} == {BASELINE}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.db", "tiny.onnx", "tiny.tuned"]


def test_a_second_run_measures_nothing_and_keeps_the_artifact(tmp_path, model, measurers):
    first = tuning.tune(model, options(tmp_path))
    stamp = (first.artifact / "model.so").stat().st_mtime_ns
    second = tuning.tune(model, options(tmp_path))
    assert (second.measured_trials, second.failed_trials, second.reused_records) == (0, 0, 6)
    assert (second.reason, len(measurers)) == (f"{first.reason}; nothing has changed since", 1)
    assert (second.verified, second.latency_ms) == (first.verified, first.latency_ms)
    assert (first.artifact / "model.so").stat().st_mtime_ns == stamp


def test_a_second_run_with_the_log_of_another_measures_nothing(tmp_path, model, measurers):
    """Whatever is known of the run on this machine, the log alone says that its trials were measured."""
    tuning.tune(model, options(tmp_path))
    before = known(tmp_path)
    second = tuning.tune(model, options(tmp_path, out=tmp_path / "other"))
    assert (second.measured_trials, second.reused_records) == (0, before)
    assert measurers[1].trials == 0


def changed_model(tmp_path):
    save_tiny(tmp_path / "tiny.onnx", seed=5)


def damaged_artifact(tmp_path):
    path = tmp_path / "tiny.tuned" / "weights.bin"
    path.write_bytes(path.read_bytes()[:-1] + b"!")


def missing_artifact(tmp_path):
    shutil.rmtree(tmp_path / "tiny.tuned")


def another_record(tmp_path):
    log = open_log(tmp_path / "t.db")
    record = next(iter(log.records()))
    log.append([replace(record, when=record.when + 1.0)])
    log.close()


def missing_log(tmp_path):
    (tmp_path / "t.db").unlink()


@pytest.mark.parametrize("change", [changed_model, damaged_artifact, missing_artifact, another_record, missing_log])
def test_a_run_is_carried_out_again_where_something_has_changed(tmp_path, model, measurers, change):
    tuning.tune(model, options(tmp_path))
    change(tmp_path)
    again = tuning.tune(model, options(tmp_path))
    assert len(measurers) == 2
    assert tuning.REPEATED not in again.reason
    x = np.random.default_rng(3).standard_normal((1, 16, 8, 8)).astype(np.float32)
    reference = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    ours = autotune.InferenceSession(again.artifact).run(None, {"data": x})
    assert np.allclose(ours[0], reference.run(None, {"data": x})[0], 1e-3, 1e-5)


def test_records_of_other_kernels_do_not_matter(tmp_path, model, measurers):
    tuning.tune(model, options(tmp_path))
    log = open_log(tmp_path / "t.db")
    record = next(iter(log.records()))
    log.append([replace(record, key=replace(record.key, task="another"))])
    log.close()
    assert tuning.REPEATED in tuning.tune(model, options(tmp_path)).reason


def test_an_instant_run_is_repeated_only_with_the_very_same_log(tmp_path, model, measurers):
    """Its guesses depend on records of any kernel."""
    instant = options(tmp_path, effort="instant", trials=None)
    tuning.tune(model, instant)
    assert tuning.REPEATED in tuning.tune(model, instant).reason
    log = open_log(tmp_path / "t.db")
    log.add_workload("another", "program")
    log.close()
    assert tuning.REPEATED not in tuning.tune(model, instant).reason


def test_an_attachment_does_not_matter(tmp_path, model, measurers):
    attach(tuning.tune(model, options(tmp_path)).artifact, "bench.json", b"{}")
    assert tuning.REPEATED in tuning.tune(model, options(tmp_path)).reason


def test_a_repeated_run_removes_what_a_killed_one_left(tmp_path, model, measurers):
    artifact = tuning.tune(model, options(tmp_path)).artifact
    left = artifact.parent / f".{artifact.name}-abcdefgh"
    left.mkdir()
    assert tuning.REPEATED in tuning.tune(model, options(tmp_path)).reason
    assert not left.exists()


def test_a_run_that_was_interrupted_goes_on(tmp_path, model, measurers, monkeypatch):
    with monkeypatch.context() as patch:
        measurer = FakeMeasurer()

        def answer(candidate):
            if len(measurer.slots) == 2:
                raise KeyboardInterrupt
            return if_it_lowers(candidate)

        measurer.answer = answer
        patch.setattr(local_measurer, "LocalMeasurer", lambda *_, **__: measurer)
        assert tuning.tune(model, options(tmp_path)).interrupted
    again = tuning.tune(model, options(tmp_path))
    assert (again.interrupted, again.measured_trials) == (False, 5)


def test_a_repeated_run_loads_neither_tvm_nor_onnx(tmp_path, model, measurers):
    """In a process of its own: here they are loaded already."""
    asked = options(tmp_path)
    tuning.tune(model, asked)
    program = (
        "import sys; from pathlib import Path; from autotune.options import Options;"
        "from autotune.tuning.tune import tune;"
        f"result = tune({str(model)!r}, Options(out=Path({str(asked.out)!r}), log={str(asked.log)!r}, threads=1,"
        " searcher='random', trials=6, batch=2)); print(result.reason);"
        "print([name for name in ('tvm', 'onnx', 'sqlalchemy', 'xgboost') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"6 trials were measured; {tuning.REPEATED}", "[]"], done.stderr


def test_more_trials_go_on_where_the_last_run_ended(tmp_path, model, measurers):
    tuning.tune(model, options(tmp_path))
    before = known(tmp_path)
    second = tuning.tune(model, options(tmp_path, trials=10))
    assert (second.measured_trials, second.reused_records) == (4, before)
    asked = [(c.task.key, c.config) for measurer in measurers for slot in measurer.slots for c in slot]
    assert len(asked) == len(set(asked)) == 10


def test_build_reads_the_log_only(tmp_path, model, measurers):
    tuned = tuning.tune(model, options(tmp_path, trials=40, batch=8))
    built = tuning.build(model, options(tmp_path, out=tmp_path / "built"))
    assert measurers[1].trials == 0
    assert (built.measured_trials, built.artifact) == (0, tmp_path / "built")
    assert read_artifact(built.artifact).identity == read_artifact(tuned.artifact).identity


def test_frozen_with_a_missing_record_is_refused_and_leaves_nothing(tmp_path, model, measurers):
    with pytest.raises(MissingRecordError, match="there is no tuning log"):
        tuning.tune(model, options(tmp_path, frozen=True))
    assert not (tmp_path / "t.db").exists()
    assert measurers == []
    open_log(tmp_path / "t.db").close()
    with pytest.raises(MissingRecordError, match="have no record"):
        tuning.tune(model, options(tmp_path, frozen=True))
    assert [(measurer.trials, measurer.closed) for measurer in measurers] == [(0, True)]
    assert not (tmp_path / "tiny.tuned").exists()


def test_an_interrupted_run_ships_the_best_so_far(tmp_path, model, monkeypatch):
    measurer = FakeMeasurer()

    def answer(candidate):
        if len(measurer.slots) == 3:
            raise KeyboardInterrupt
        return if_it_lowers(candidate)

    measurer.answer = answer
    monkeypatch.setattr(local_measurer, "LocalMeasurer", lambda *_, **__: measurer)
    result = tuning.tune(model, options(tmp_path, trials=20))
    assert (result.interrupted, result.reason, result.measured_trials) == (True, "interrupted", 2)
    assert result.verified.passed
    assert measurer.closed
    log = open_log(tmp_path / "t.db")
    assert len(list(log.records())) == 2
    log.close()


def swallowed_ctrl_c():
    """What happens in a callback from native code: Python raises, nobody hears."""
    with suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_ctrl_c_swallowed_by_an_untuned_program_is_heard_before_the_next(tmp_path, model, monkeypatch):
    measurer, asked = FakeMeasurer(if_it_lowers), []

    def baseline_s(candidate):
        asked.append(candidate)
        swallowed_ctrl_c()
        return measurer.untuned

    measurer.baseline_s = baseline_s
    monkeypatch.setattr(local_measurer, "LocalMeasurer", lambda *_, **__: measurer)
    result = tuning.tune(model, options(tmp_path))
    assert (result.interrupted, len(asked)) == (True, 1)
    assert result.tasks > 1


@pytest.mark.parametrize("share", [-2.0, 2.0], ids=["no time", "time"])
def test_beyond_the_budget_only_what_had_a_slot_is_timed_untuned(share, tmp_path, model, measurers, monkeypatch):
    monkeypatch.setattr(search_program, "UNTUNED_SHARE", share)
    result = tuning.tune(model, options(tmp_path, trials=2))
    served = {slot[0].task.key for slot in measurers[0].slots}
    every = {choice.task for choice in read_artifact(result.artifact).plan.choices}
    log = open_log(tmp_path / "t.db")
    timed = {key.task for key in log.counts() if key.space == UNTUNED.identity}
    log.close()
    assert served < every
    assert timed == (served if share < 0 else every)


def test_ctrl_c_swallowed_by_what_is_measured_last_is_heard(tmp_path, model, monkeypatch):
    pipeline_options = options(tmp_path, trials=12)
    measurer = FakeRanker(if_it_lowers)
    monkeypatch.setattr(local_measurer, "LocalMeasurer", lambda *_, **__: measurer)
    monkeypatch.setattr(search_program, "_measure_untuned", lambda *_: swallowed_ctrl_c())
    assert tuning.tune(model, pipeline_options).interrupted


def test_failed_candidates_are_counted_and_survived(tmp_path, model, monkeypatch):
    from tuning_logs.measurement import Measurement

    slow = Measurement(error="timeout", message="slow")
    monkeypatch.setattr(local_measurer, "LocalMeasurer", lambda *_, **__: FakeMeasurer(lambda _: slow))
    result = tuning.tune(model, options(tmp_path))
    assert (result.measured_trials, result.failed_trials) == (6, 6)
    log = open_log(tmp_path / "t.db")
    tried = {key.task for key in log.counts() if key.space != UNTUNED.identity}
    log.close()
    chosen = {choice.task: choice.config for choice in read_artifact(result.artifact).plan.choices}
    assert tried
    assert {chosen[task] for task in tried} == {BASELINE}


def test_a_bad_model_leaves_nothing_behind(tmp_path, measurers):
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(b"not a model")
    with pytest.raises(ModelError):
        tuning.tune(bad, options(tmp_path))
    assert all(measurer.closed for measurer in measurers)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.onnx"]


def test_a_machine_without_a_compiler_is_told_at_once(tmp_path, model, measurers, monkeypatch):
    monkeypatch.setattr(compilers.cc, "get_cc", lambda: None)
    with pytest.raises(InstallError, match=r"install g\+\+ or clang"):
        tuning.tune(model, options(tmp_path))
    assert measurers == []


def test_unknown_strategies_are_refused(tmp_path, model, measurers):
    with pytest.raises(UsageError, match="did you mean 'random'"):
        tuning.tune(model, options(tmp_path, searcher="randm"))
    assert not (tmp_path / "tiny.tuned").exists()


def test_data_follows_the_contract(tmp_path, model, measurers):
    data = json.loads(json.dumps(tuning.tune(model, options(tmp_path)).to_data(), allow_nan=False))
    fields = "model artifact target threads tasks measured_trials failed_trials reused_records elapsed_s phase_s"
    assert set(fields.split()) | {"latency_ms", "verified"} <= set(data)
    assert set(data["phase_s"]) == {"import", "search", "compile", "measure", "build", "verify"}
    assert set(data["latency_ms"]) == {"untuned", "tuned"}
    errors = {"max_abs_err", "max_rel_err", "rms_rel_err", "mismatch", "bound", "allowed"}
    assert {"reference", "precision", "passed"} | errors == set(data["verified"])
    assert data["elapsed_s"] >= sum(data["phase_s"].values()) * 0.9


def test_out_defaults_to_the_model_s_stem_here(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert PartJob(model, Options()).out == Path("tiny.tuned")
    assert PartJob(model, Options(out="elsewhere")).out == Path("elsewhere")


def test_the_facade_is_lazy_and_complete():
    assert {"tune", "build", "load", "InferenceSession", "Options", "AutotuneError"} <= set(dir(autotune))
    assert autotune.tune is tuning.tune
    assert autotune.__version__
    with pytest.raises(AttributeError, match="no attribute 'tun'"):
        _ = autotune.tun


def test_weights_are_as_cold_as_a_model_s_in_winograd_s_form(model):
    chosen = Options(threads=1)
    target = resolve_target(chosen)
    _, program = import_model(model, chosen.inputs, target)
    plain = sum(array.nbytes for array in program.weights)
    transformed = [task for task in program.tasks if program.spaces[task.key].saving > 1]
    assert transformed, "the model has a convolution that Winograd applies to"
    largest = [max(int(np.prod(task.shapes[index])) for index in task.constants) for task in transformed]
    more = sum(3 * 4 * task.weight * size for task, size in zip(transformed, largest, strict=True))
    assert search_program.cold_bytes(program) == plain + more
