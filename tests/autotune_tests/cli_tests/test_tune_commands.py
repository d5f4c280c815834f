"""``tune run`` and ``tune build``: what they print where, and what they leave."""

import json
from dataclasses import replace

import pytest

from autotune.artifact.make_plan import UNTUNED
from autotune.measure import local_measurer
from autotune.tuning.result import Result
from schedules.vocabulary.errors import MeasureError
from tests.autotune_tests.cli_tests.lines import FAST, one_line
from tests.autotune_tests.fakes import FakeMeasurer
from tests.autotune_tests.tiny import save_tiny


def test_run_then_look_at_everything(answer, faked):
    code, out, err = answer("run", "tiny.onnx", "--log", "t.db", *FAST)
    assert (code, err) == (0, "")
    assert "tiny.tuned" in out
    assert "outputs match onnxruntime" in out
    assert "4 trials measured" in out
    code, out, _ = answer("run", "tiny.onnx", "--log", "t.db", *FAST, "--json")
    data = json.loads(out)
    assert (code, data["measured_trials"], data["artifact"]) == (0, 0, "tiny.tuned")
    keys = json.loads(answer("log", "list", "--log", "t.db", "--json")[1])["keys"]
    tuned = [key["timed"] + sum(key["failed"].values()) for key in keys if key["space"] != UNTUNED.identity]
    assert data["reused_records"] == 4  # trials; finalists were timed a second time
    assert sum(tuned) >= 4
    for arguments in (
        ("tasks", "tiny.onnx", "--threads", "1", "--log", "t.db"),
        ("kernels", "tiny.tuned"),
        ("verify", "tiny.tuned", "tiny.onnx"),
    ):
        code, out, err = answer(*arguments)
        assert (code, err) == (0, ""), arguments
        assert out
        code, out, err = answer(*arguments, "--json")
        assert (code, err) == (0, ""), arguments
        assert isinstance(json.loads(out), dict)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MeasureError("an engine hangs")])
def test_a_run_is_reported_without_its_comparison(answer, faked, monkeypatch, error):
    def fails(*arguments, **options):
        raise error

    monkeypatch.setattr("autotune.validation.bench.bench", fails)
    code, out, _ = answer("run", "tiny.onnx", "--log", "t.db", *FAST[:-1])
    assert code == 0
    assert "outputs match onnxruntime" in out
    assert "times as fast" not in out


def test_several_models_share_a_run(answer, faked):
    save_tiny(faked.parent / "other.onnx", seed=1)
    several = ("tiny.onnx", "other.onnx", "--weight", "other=3", "--out", "made", "--log", "t.db", *FAST)
    code, out, err = answer("run", *several, "--explain")
    assert (code, err) == (0, "")
    assert "made/other.tuned: " in out
    assert "weight 3" in out
    assert "weighted latencies together 4.000 ms" in out
    code, out, err = answer("run", *several, "--json")
    data = json.loads(out)
    assert (code, [model["artifact"] for model in data["models"]]) == (0, ["made/tiny.tuned", "made/other.tuned"])
    assert answer("build", "tiny.onnx", "other.onnx", "--threads", "1", "--log", "t.db", "--quiet")[0] == 0
    assert (faked.parent / "other.tuned").is_dir()


def test_progress_is_on_stderr_in_plain_lines(answer, faked):
    code, out, err = answer("run", "tiny.onnx", "--log", "t.db", *FAST[:-1], "--json")
    assert code == 0
    compared = json.loads(out)["in_turn"]
    assert [engine["name"] for engine in compared["engines"]] == ["tune", "onnxruntime"]
    again = json.loads(answer("run", "tiny.onnx", "--log", "t.db", *FAST[:-1], "--json")[1])["in_turn"]
    assert again["speedup"] == compared["speedup"], "a run that is not carried out keeps its comparison"
    assert "importing the model" in err
    assert "stopped: 4 trials were measured" in err
    assert "\x1b" not in err


def test_frozen_run_and_build_exit_3(answer, faked):
    for arguments in (("run", "tiny.onnx", "--frozen"), ("build", "tiny.onnx")):
        code, out, err = answer(*arguments, "--threads", "1", "--log", "t.db", "--quiet")
        assert (code, out) == (3, "")
        assert one_line(err)
        assert "tune first or merge a log" in err


def test_a_bundle_is_read_again_only_to_be_explained(answer, tmp_path, monkeypatch):
    (tmp_path / "several").mkdir()
    (tmp_path / "several" / "manifest.json").write_text('{"format": 4}')  # whoever reads it complains
    part = Result("tiny.onnx", tmp_path / "several" / "part-0", "cpu", 1, 1)
    whole = replace(part, artifact=tmp_path / "several", parts=(part,))
    monkeypatch.setattr("autotune.tuning.tune.tune", lambda *_: whole)
    assert answer("run", "tiny.onnx", "--quiet")[0] == 0
    code, _, err = answer("run", "tiny.onnx", "--quiet", "--explain")
    assert code == 1
    assert "part-0 is not an artifact" in err


def test_interrupted_run_exits_130_with_its_artifact(answer, faked, monkeypatch):
    measurer = FakeMeasurer()

    def stop(candidate):
        raise KeyboardInterrupt

    measurer.answer = stop
    monkeypatch.setattr(local_measurer, "LocalMeasurer", lambda *_, **__: measurer)
    code, out, _ = answer("run", "tiny.onnx", "--log", "t.db", *FAST, "--json")
    assert code == 130
    assert json.loads(out)["interrupted"] is True
    assert answer("verify", "tiny.tuned", "tiny.onnx")[0] == 0


def test_the_log_comes_from_the_environment(answer, faked, monkeypatch):
    monkeypatch.setenv("TUNE_LOG", "env.db")
    assert answer("run", "tiny.onnx", *FAST)[0] == 0
    assert answer("log", "stats")[1].startswith(str(faked.parent / "env.db"))
