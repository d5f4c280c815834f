"""Bench: what is reported, what is refused, and one real round with every engine there is."""

import importlib.util
import json
import shutil

import numpy as np
import onnx
import psutil
import pytest

from autotune.artifact.directory import read_artifact
from autotune.artifact.known_models import remember_model
from autotune.artifact.manifest import sealed
from autotune.validation import bench as bench_module
from autotune.validation import bench_process
from autotune.validation.bench import (
    FEWEST_ROUNDS,
    BenchResult,
    bench,
    check_engines,
    find_model,
    is_known,
    start_engine,
    write_job,
)
from autotune.validation.bench_process import EngineTimes
from autotune.validation.peers.peer_catalog import peer
from autotune.validation.verify import random_inputs
from schedules.vocabulary.errors import ArtifactError, InstallError, ModelError, UsageError
from tests.autotune_tests.composites import three_segments, two_batches

OURS = EngineTimes("tune", "1", "fp32", [[0.010, 0.012], [0.011, 0.013]])
THEIRS = EngineTimes("onnxruntime", "2", "fp32", [[0.022], [0.036]])
RESULT = BenchResult(None, "tiny.onnx", 2, (OURS, THEIRS), 0.25)


def test_speedup_is_the_others_median_over_ours():
    assert RESULT.speedup("onnxruntime") == pytest.approx(0.029 / 0.0115)


def test_quartiles_are_of_the_ratio_of_each_round():
    low, high = RESULT.quartiles("onnxruntime")
    assert (low, high) == pytest.approx(np.percentile([0.022 / 0.011, 0.036 / 0.012], (25, 75)))


@pytest.mark.parametrize(
    ("rounds", "spread", "known"),
    [(FEWEST_ROUNDS, 0.004, True), (FEWEST_ROUNDS - 1, 0.0, False), (FEWEST_ROUNDS, 0.02, False), (400, 0.02, True)],
)
def test_a_ratio_is_known_when_its_interval_is_narrow(rounds, spread, known):
    """Drift that meets both engines is no uncertainty of their ratio."""
    drift = np.linspace(1.0, 3.0, rounds)
    noise = 1.0 + spread * np.random.default_rng(0).standard_normal(rounds)
    ours = EngineTimes("tune", "1", "fp32", [[0.01 * speed] for speed in drift])
    theirs = EngineTimes(
        "other", "1", "fp32", [[0.02 * speed * ratio] for speed, ratio in zip(drift, noise, strict=True)]
    )
    assert is_known(theirs, ours) == known


def test_rounds_end_when_every_ratio_is_known_or_at_the_limit(tiny_built, monkeypatch):
    monkeypatch.setattr(bench_module, "ROUND_S", 0.001)
    monkeypatch.setattr(bench_module, "is_known", lambda other, ours: len(ours.rounds) >= 3)
    assert len(bench(tiny_built.artifact, [str(tiny_built.artifact)]).engines[0].rounds) == 3
    monkeypatch.setattr(bench_module, "is_known", lambda other, ours: False)
    assert len(bench(tiny_built.artifact, [str(tiny_built.artifact)], most_rounds=4).engines[0].rounds) == 4
    assert len(bench(tiny_built.artifact, [str(tiny_built.artifact)], rounds=2).engines[0].rounds) == 2


def test_data_follows_the_contract():
    data = json.loads(json.dumps(RESULT.to_data()))
    assert {"threads": 2, "rounds": 2}.items() <= data.items()
    assert list(data["speedup"]) == ["onnxruntime"]
    ours = data["engines"][0]
    assert {"name", "precision", "min_ms", "p50_ms", "mean_ms", "p90_ms", "p99_ms"} <= set(ours)
    assert (ours["min_ms"], ours["p50_ms"], ours["mean_ms"]) == pytest.approx((10.0, 11.5, 11.5))
    assert ours["p50_ms"] < ours["p90_ms"] < ours["p99_ms"] < 13.0


def test_unknown_peer_is_refused_with_the_nearest_name():
    with pytest.raises(UsageError, match="did you mean 'openvino'"):
        check_engines(["openvno"])
    with pytest.raises(UsageError, match="twice"):
        check_engines(["onnxruntime", "onnxruntime"])


def test_missing_peer_is_refused_with_the_install_command(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InstallError, match=r"openvino is not installed; run: pip install 'tune-compiler\[bench\]'"):
        check_engines(["openvino"])
    with pytest.raises(InstallError, match="openvino-default is not installed"):
        check_engines(["openvino-default"])


def test_rounds_are_positive(tiny_built):
    with pytest.raises(UsageError, match="at least 1"):
        bench(tiny_built.artifact, rounds=0)


def test_model_is_found_beside_the_artifact_or_in_this_folder(tiny, tmp_path, monkeypatch):
    artifact = read_artifact(tiny.artifact)
    assert find_model(artifact) == tiny.model
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = tiny.model.rename(elsewhere / "tiny.onnx")
    with pytest.raises(ModelError, match="--model"):
        find_model(artifact)
    monkeypatch.chdir(elsewhere)
    assert find_model(artifact).resolve() == moved.resolve()
    assert find_model(artifact, moved) == moved


def test_a_model_elsewhere_is_found_where_it_was_tuned(tiny, tmp_path):
    kept = tmp_path / "elsewhere" / "another name.onnx"
    kept.parent.mkdir()
    tiny.model.rename(kept)
    remember_model(tiny.artifact, kept)
    artifact = read_artifact(tiny.artifact)
    assert find_model(artifact) == kept
    kept.write_bytes(kept.read_bytes() + b"\0")
    with pytest.raises(ModelError, match=r"another name\.onnx has changed since"):
        find_model(artifact)
    kept.unlink()
    with pytest.raises(ModelError, match="nor where it was when it was tuned here; give the model"):
        find_model(artifact)


def test_changed_model_is_refused(tiny):
    artifact = read_artifact(tiny.artifact)
    tiny.model.write_bytes(tiny.model.read_bytes() + b"\0")
    with pytest.raises(ModelError, match="has changed since"):
        find_model(artifact)
    with pytest.raises(ModelError, match="is not the model"):
        find_model(artifact, tiny.model)
    with pytest.raises(ModelError, match="does not exist"):
        find_model(artifact, tiny.model.with_name("gone.onnx"))


@pytest.fixture
def hurried(monkeypatch):
    """Rounds of a few runs: these tests look at the machinery, not at the times."""
    monkeypatch.setattr(bench_module, "ROUND_S", 0.002)
    monkeypatch.setattr(bench_process, "QUIET_S", 0.02)
    monkeypatch.setattr(bench_process, "QUIET_SHARE", 2.0)


def children():
    return [child.pid for child in psutil.Process().children(recursive=True)]


def test_engines_take_turns_and_leave_no_process(tiny_built, hurried):
    engines = [name for name in ("onnxruntime", "openvino") if importlib.util.find_spec(name)]
    assert "onnxruntime" in engines
    before = children()
    told = []
    result = bench(tiny_built.artifact, engines, rounds=2, progress=lambda *what: told.append(what))
    assert [engine.name for engine in result.engines] == ["tune", *engines]
    assert all(len(engine.rounds) == 2 and min(engine.runs_s) > 0 for engine in result.engines)
    assert {engine.precision for engine in result.engines} == {"fp32"}
    assert all(min(engine.memory) > 0 for engine in result.engines)
    assert all({"load_bytes", "serving_bytes"} <= engine.keys() for engine in result.to_data()["engines"])
    assert 0 <= result.others_cpu <= 1
    assert result.model == "tiny.onnx"
    assert told[-1] == ("rounds", 2, 2)
    assert children() == before


def test_another_artifact_is_an_engine_by_its_path(tiny_built, hurried, tmp_path):
    """It needs no model, and its times have its own name."""
    other = tmp_path / "other.tuned"
    shutil.copytree(tiny_built.artifact, other)
    result = bench(tiny_built.artifact, [str(other)], None, rounds=2)
    assert [engine.name for engine in result.engines] == ["tune", str(other)]
    assert len({engine.precision for engine in result.engines}) == 1
    assert list(result.to_data()["speedup"]) == [str(other)]


def test_a_peer_with_several_ways_runs_in_its_fastest(tiny_built, hurried, monkeypatch):
    monkeypatch.setattr(bench_module, "LEAST_GAIN", 0.0)  # another way than the first one
    (engine,) = bench(tiny_built.artifact, ["onnxruntime-best"], rounds=1).engines[1:]
    assert engine.name == "onnxruntime-best"
    assert engine.to_data()["way"] in peer("onnxruntime-best").ways
    monkeypatch.setattr(bench_module, "LEAST_GAIN", 1e9)
    (engine,) = bench(tiny_built.artifact, ["onnxruntime-best"], rounds=1).engines[1:]
    assert engine.way == "onnxruntime"


def test_an_artifact_with_fallback_partitions_is_timed_as_a_whole(tmp_path, measurer, hurried):
    built = three_segments(tmp_path, measurer)
    result = bench(built.artifact, [str(built.artifact)], rounds=2)
    assert [engine.name for engine in result.engines] == ["tune", str(built.artifact)]
    assert all(min(engine.runs_s) > 0 for engine in result.engines)
    assert {engine.precision for engine in result.engines} == {"fp32"}


def test_several_sets_of_shapes_are_timed_part_by_part(tmp_path, measurer):
    built = two_batches(tmp_path, measurer)
    with pytest.raises(ArtifactError, match="name one of its parts"):
        bench(built.artifact, ["onnxruntime"])


def test_streams_and_batches_that_were_asked_for_are_not_the_other_artifacts(tmp_path, monkeypatch):
    """A fake in place of the process, that keeps what it would run."""
    started = []
    monkeypatch.setattr(bench_module, "EngineProcess", lambda *args: started.append(args))
    feed = {"x": np.zeros((1, 2), np.float32)}
    for serve in (None, {"max_batch": 8, "streams": 2}):
        folder = tmp_path / str(serve is None)
        folder.mkdir()
        write_job(folder, None, feed, 2, "ours.tuned", serve)
        start_engine("onnxruntime", folder, 1)
        start_engine(str(tmp_path), folder, 1)
        (engine, own, _), (ours, other, name) = started[-2:]
        assert (engine, own, ours, name) == ("onnxruntime", folder, "tune", str(tmp_path))
        job = json.loads((other / "job.json").read_text())
        want = {"threads": 1, "artifact": str(tmp_path.resolve()), "inputs": ["x"], "serve": serve and {}}
        want["source"] = None
        assert job == want
        assert np.load(other / "inputs.npz")["arr_0"].shape == (1, 2)


def test_an_artifact_with_other_inputs_is_refused(tiny_built, tmp_path):
    other = tmp_path / "other.tuned"
    shutil.copytree(tiny_built.artifact, other)
    manifest = json.loads((other / "manifest.json").read_text())
    manifest["inputs"][0]["shape"] = [2, *manifest["inputs"][0]["shape"][1:]]
    (other / "manifest.json").write_text(sealed(manifest))
    with pytest.raises(UsageError, match=r"other\.tuned takes other inputs than"):
        bench(tiny_built.artifact, [str(other)], None, rounds=2)


def test_no_peer_needs_no_model(tiny, hurried):
    tiny.model.unlink()
    result = bench(tiny.artifact, [], rounds=1)
    assert result.to_data()["speedup"] == {}


def job(tiny, tmp_path):
    artifact = read_artifact(tiny.artifact)
    feed = random_inputs(artifact.inputs, 0)
    bench_module.write_job(tmp_path, onnx.load(tiny.model), feed, artifact.target.threads, str(tiny.artifact))
    return tmp_path


def test_a_damaged_artifact_is_refused_before_any_process_starts(tiny):
    (tiny.artifact / "model.so").write_bytes(b"")
    before = children()
    with pytest.raises(ArtifactError, match="was changed"):
        bench(tiny.artifact, ["onnxruntime"])
    assert children() == before


def test_engines_get_fixed_shapes(tmp_path, tiny):
    folder = job(tiny, tmp_path)
    shape = onnx.load(folder / "model.onnx").graph.input[0].type.tensor_type.shape
    assert [dim.dim_value for dim in shape.dim] == [1, 16, 8, 8]
