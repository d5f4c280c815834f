"""The tuner's process without a process: its stages, what it says, and its share of the CPU."""

import io
import queue
import time
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.artifact.manifest import KERNELS, SHAPES, kind_of
from autotune.tuning import tune as tuning
from autotune.tuning.background.background_tuner import BUDGETS_S, BackgroundTuner, Pace, Settings
from schedules.vocabulary.errors import LogError, UnsupportedError
from tests.autotune_tests.fakes import fake_device
from tests.conftest import keep_code
from tests.models import save


@pytest.fixture
def settings(tmp_path, monkeypatch):
    fake_device(monkeypatch)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    keep_code(tmp_path / "cache")
    save("tiny_open_batch", tmp_path / "m.onnx")
    (tmp_path / "out").mkdir()
    return Settings(str(tmp_path / "m.onnx"), str(tmp_path / "out" / "model.tuned"), 1, 1.0, 0.5, 1)


def rows(*batches):
    return [[[[batch, 24]], 1.0 / batch] for batch in batches]


def run(settings, *asked):
    """The lines that are said for lists of sizes that are all there at the beginning."""
    waiting, said = queue.Queue(), io.StringIO()
    for sizes in asked:
        waiting.put(sizes)
    tuner = BackgroundTuner(settings, waiting, said)
    tuner.run()
    tuner.say_end()
    return said.getvalue().splitlines()


@pytest.fixture
def asked(monkeypatch):
    """Options of the runs, which install what the first stage would."""
    options = []

    def tune(model, chosen, observe):
        options.append(chosen)
        return real(model, replace(chosen, effort="instant", budget_s=None, until=None), observe)

    real = tuning.tune
    monkeypatch.setattr(tuning, "tune", tune)
    return options


def test_stages_follow_each_other_and_sizes_are_added(settings, asked):
    said = run(settings, rows(1), rows(8))
    assert said[-2:] == ["state idle", "done 2"]
    assert said.count("built") == len(asked) == len(BUDGETS_S)
    assert asked[0].effort == "instant"
    assert [options.budget_s for options in asked[1:]] == [2 * seconds for seconds in BUDGETS_S[1:]]
    assert {options.until for options in asked[1:]} == {0.5}
    assert all([shapes["rows"] for shapes in options.shapes] == [(1, 24), (8, 24)] for options in asked)
    assert kind_of(Path(settings.out)) == SHAPES
    asked.clear()
    assert run(settings, rows(1))[-1] == "done 1"  # another session, of sizes that are there
    assert [options.effort == "instant" for options in asked] == [False] * (len(BUDGETS_S) - 1)


def test_one_size_is_a_plain_artifact(settings, asked):
    run(settings, rows(3))
    assert kind_of(Path(settings.out)) == KERNELS
    assert [(options.inputs, options.shapes) for options in asked] == [({"rows": (3, 24)}, ())] * len(BUDGETS_S)


def test_a_model_that_is_cut_has_one_size(settings, monkeypatch, asked):
    real = tuning.tune

    def tune(model, options, observe):
        if options.shapes:
            raise UnsupportedError("operator Frobnicate")
        return real(model, options, observe)

    monkeypatch.setattr(tuning, "tune", tune)
    assert run(settings, rows(1, 8))[-1] == "done 1"
    assert {tuple(options.inputs["rows"]) for options in asked} == {(1, 24)}  # that took the most time
    assert kind_of(Path(settings.out)) == KERNELS


def test_what_its_process_did_before_does_not_slow_it(monkeypatch):
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    end = time.process_time() + 0.3  # of the CPU; a test process has spent much more
    while time.process_time() < end:
        pass
    Pace(1.0, 1)()
    assert max(slept) < 0.1


def test_what_cannot_be_written_is_raised(settings, monkeypatch):
    def tune(*_):
        raise LogError("the disk is full")

    monkeypatch.setattr(tuning, "tune", tune)
    with pytest.raises(LogError):
        run(settings, rows(1))


def test_the_end_says_what_went_wrong_in_one_line(settings):
    said = io.StringIO()
    BackgroundTuner(settings, queue.Queue(), said).say_end("the disk\nis full")
    assert said.getvalue() == "failed the disk is full\ndone 0\n"


def test_a_pace_sleeps_until_the_share_is_kept(monkeypatch):
    slept = []
    pace = Pace(0.25, 2)
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(pace, "_spent_s", lambda: time.monotonic() - pace._began + 10.0)
    pace()
    assert slept[0] == pytest.approx(20.0, rel=0.1)
    monkeypatch.setattr(pace, "_spent_s", lambda: 0.0)
    pace()
    assert slept[1] == 0.0
