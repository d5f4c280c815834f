"""One lane: the faster of the tuned and the untuned build is installed, timed once, and left where it is there."""

import re
from dataclasses import replace

import onnx
import pytest

from autotune.artifact.directory import read_artifact
from autotune.artifact.make_plan import record_key
from autotune.builder import accuracy, one_lane
from autotune.builder.build_request import LATENCY, BuildRequest, LaneKernels
from autotune.builder.one_lane import build_on_one_lane
from autotune.graph.lanes import cpu_lane
from autotune.options import Options
from autotune.validation.verify import compare_artifact
from schedules.lower import BASELINE, EXACT
from schedules.vocabulary.errors import CompileError
from tests.autotune_tests.tiny import target, tiny_program
from tuning_logs.measurement import Measurement
from tuning_logs.record import TuningRecord
from tuning_logs.sql_store import memory_log


@pytest.fixture
def request_of(tiny_built, measurer, tmp_path):
    """A request to build the tiny model with one tuned kernel, and its kernels."""
    program = tiny_program(tiny_built.model)
    task = next(task for task in program.tasks if program.spaces[task.key].knobs)
    space, log = program.spaces[task.key], memory_log()
    key, measured = record_key(task, space, target()), Measurement(latencies_s=(1e-9,))
    log.append([TuningRecord(key, space.initial[0], measured, "", 0.0, "host")])
    kernels = LaneKernels(target(), program, frozenset(task.key for task in program.tasks), measurer)
    model = onnx.load(tiny_built.model)
    whole = target()
    lanes = (cpu_lane(0, whole.threads),)
    return BuildRequest(
        tmp_path / "out.tuned", model, tiny_built.model, whole, {whole.threads: kernels}, lanes, log, Options()
    )


@pytest.fixture
def timed(monkeypatch):
    """Seconds that timing a whole model returns, in turn; a further timing fails."""
    left = []
    monkeypatch.setattr(one_lane, "median_s", lambda *_: left.pop(0))
    return left


def is_tuned(plan):
    return any(choice.config != BASELINE for choice in plan.choices)


def test_what_is_faster_is_installed_and_not_timed_again(request_of, timed):
    timed += [1.0, 2.0]
    result = build_on_one_lane(request_of, request_of.whole)
    assert result.verdict.passed
    assert is_tuned(result.plan)
    assert result.latency_ms == {"untuned": 2000.0, "tuned": 1000.0}
    assert read_artifact(request_of.out).provenance[LATENCY] == result.latency_ms
    again = build_on_one_lane(request_of, request_of.whole)
    assert again.latency_ms == result.latency_ms
    assert [path.name for path in request_of.out.parent.iterdir()] == [request_of.out.name]


def test_the_untuned_build_is_installed_where_nothing_beats_it(request_of, timed, monkeypatch, caplog):
    timed += [2.0, 1.0]
    monkeypatch.setattr(one_lane, "is_faster", lambda *_: True)
    result = build_on_one_lane(request_of, request_of.whole)
    assert not is_tuned(result.plan)
    assert result.latency_ms == {"untuned": 1000.0, "tuned": 1000.0}
    assert not is_tuned(read_artifact(request_of.out).plan)
    assert "the untuned build is the fastest" in caplog.text


def test_the_untuned_build_is_not_installed_for_one_disturbed_timing(request_of, timed, monkeypatch, caplog):
    timed += [2.0, 1.0]
    monkeypatch.setattr(one_lane, "is_faster", lambda *_: False)
    result = build_on_one_lane(request_of, request_of.whole)
    assert is_tuned(result.plan)
    assert is_tuned(read_artifact(request_of.out).plan)
    assert "the untuned build" not in caplog.text


def test_an_interrupted_run_is_verified_but_not_timed(request_of, timed):
    result = build_on_one_lane(replace(request_of, timed=False), request_of.whole)
    assert result.verdict.passed
    assert result.latency_ms == {"untuned": None, "tuned": None}
    assert LATENCY not in read_artifact(request_of.out).provenance


def test_tasks_that_the_budget_did_not_reach_are_built_by_guesses(request_of, timed):
    timed += [1.0, 2.0]
    program = request_of.whole.program
    plan = build_on_one_lane(request_of, request_of.whole).plan
    with_choice = [task.key for task in program.tasks if program.spaces[task.key].knobs]
    untried = [choice for choice in plan.choices if choice.task in with_choice and choice.latency_s is None]
    assert untried
    assert all(choice.config != BASELINE for choice in untried)


def test_a_guess_that_does_not_compile_is_built_untuned(request_of, timed, monkeypatch, caplog):
    timed += [1.0, 2.0]
    real = one_lane.build_artifact

    def build(path, program, plan, *others):
        if any(choice.config != BASELINE and choice.latency_s is None for choice in plan.choices):
            raise CompileError("conv does not compile (too large)")
        return real(path, program, plan, *others)

    monkeypatch.setattr(one_lane, "build_artifact", build)
    result = build_on_one_lane(request_of, request_of.whole)
    assert result.verdict.passed
    assert is_tuned(result.plan)
    assert all(choice.config == BASELINE for choice in result.plan.choices if choice.latency_s is None)
    assert "too large" in caplog.text


def test_only_the_guess_that_does_not_compile_is_built_untuned(request_of, timed, monkeypatch, caplog):
    timed += [1.0, 2.0]
    real = one_lane.build_artifact
    broken = []

    def build(path, program, plan, *others):
        guessed = [choice.task for choice in plan.choices if choice.config != BASELINE and choice.latency_s is None]
        broken[:] = broken or guessed[:1]
        if broken[0] in guessed:
            raise CompileError("conv does not compile (too large)", broken)
        return real(path, program, plan, *others)

    monkeypatch.setattr(one_lane, "build_artifact", build)
    plan = build_on_one_lane(request_of, request_of.whole).plan
    choices = {choice.task: choice for choice in plan.choices}
    assert choices[broken[0]].config == BASELINE
    others = [task for task in request_of.whole.program.tasks if task.key != broken[0]]
    assert any(choices[task.key].latency_s is None and choices[task.key].config != BASELINE for task in others)
    assert re.search(r"1 of \d+ kernels are built untuned", caplog.text)


def test_only_the_guess_that_computes_something_else_is_built_untuned(request_of, timed, monkeypatch, caplog):
    """What the measurer says of the wrong guess is made up, and so is the whole model's verdict before and after."""
    timed += [1.0, 2.0]
    kernels = request_of.whole
    guessed = {
        choice.task
        for choice in kernels.guessed_plan(request_of.log, frozen=False, most_loss=EXACT).choices
        if choice.config != BASELINE and choice.latency_s is None
    }
    wrong, compared = min(guessed), []

    def compare(path, reference, seed, _server):
        compared.append({choice.task for choice in read_artifact(path).plan.choices if choice.config != BASELINE})
        verdict = compare_artifact(path, reference, seed)
        return replace(verdict, passed=False) if wrong in compared[-1] else verdict

    class Checking:
        def measure(self, candidates):
            (candidate,) = candidates
            if candidate.task.key == wrong:
                return [Measurement(error="wrong_result", message="made up")]
            return kernels.measurer.measure(candidates)

        def __getattr__(self, name):
            return getattr(kernels.measurer, name)

    monkeypatch.setattr(accuracy, "compare_isolated", compare)
    checked = replace(kernels, measurer=Checking())
    plan = build_on_one_lane(request_of, checked).plan
    assert wrong not in compared[-1]
    assert guessed - {wrong} <= compared[-1]
    assert {choice.task for choice in plan.choices if choice.config != BASELINE} == compared[-1]
    assert "made up" in caplog.text


def test_guesses_that_give_up_less_accuracy_come_before_the_untuned_build(request_of, timed, monkeypatch):
    """One guess stands for an algorithm that gives up accuracy; every artifact that holds it is called wrong."""
    timed += [1.0, 2.0]
    real = request_of.whole
    exact = real.guessed_plan(request_of.log, frozen=False, most_loss=EXACT)
    guessed = {c.task for c in exact.choices if c.config != BASELINE and c.latency_s is None}
    lossy = min(guessed)

    class Kernels:
        def guessed_plan(self, log, frozen, most_loss):
            kept = (replace(c, config=BASELINE) if c.task == lossy and most_loss == EXACT else c for c in exact.choices)
            return replace(exact, choices=tuple(kept))

        def __getattr__(self, name):
            return getattr(real, name)

    def compare(path, reference, seed, _server):
        verdict = compare_artifact(path, reference, seed)
        holds = any(c.task == lossy and c.config != BASELINE for c in read_artifact(path).plan.choices)
        return replace(verdict, passed=verdict.passed and not holds)

    monkeypatch.setattr(accuracy, "compare_isolated", compare)
    plan = build_on_one_lane(request_of, Kernels()).plan
    assert {c.task for c in plan.choices if c.config != BASELINE and c.latency_s is None} == guessed - {lossy}


def test_a_measured_kernel_that_does_not_compile_is_said_so(request_of, monkeypatch):
    """Where all tasks have records there are no guesses: what is built is what the log says."""

    def build(*_):
        raise CompileError("conv does not compile (too large)")

    monkeypatch.setattr(one_lane, "build_artifact", build)
    with pytest.raises(CompileError, match="too large"):
        build_on_one_lane(request_of, request_of.whole)
    monkeypatch.setattr(LaneKernels, "guessed_plan", LaneKernels.plan)
    with pytest.raises(CompileError, match="too large"):
        build_on_one_lane(request_of, request_of.whole)
