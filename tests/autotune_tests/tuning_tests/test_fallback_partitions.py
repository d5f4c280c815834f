"""Models that TVM cannot express whole: ONNX Runtime runs the rest, and says so."""

import re
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.artifact.directory import read_artifact
from autotune.artifact.manifest import KERNELS, kind_of
from autotune.builder import one_lane
from autotune.cli.main import main
from autotune.importer.guarded_import import cut_model
from autotune.options import Options
from autotune.report.facts import read_facts
from autotune.report.page import render
from autotune.tuning import tune as tuning
from autotune.tuning.run_history import read_history
from schedules.vocabulary.errors import ArtifactError, ModelError, UsageError
from tests.autotune_tests.fakes import fake_device, interrupt_the_first_part
from tests.autotune_tests.tiny import save_tiny, target

FOREIGN = "SampleOp"  # ONNX Runtime's own, which returns its input and which nobody writes


def save_model(path, nodes, outputs):
    """A model of x and the weights w1 and w2, those that it uses."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal((8, 8, 3, 3)).astype(np.float32) / 8, name)
        for name in ("w1", "w2")
        if any(name in node.input for node in nodes)
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 12, 12])]
    graph = helper.make_graph(nodes, path.stem, inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """x → Conv → a foreign activation → Conv → y, and NonZero of it rounded: Winograd's 0 is only nearly 0."""
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node(FOREIGN, ["a"], ["b"], domain="com.microsoft"),
        helper.make_node("Conv", ["b", "w2"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"]),
        helper.make_node("Round", ["y"], ["whole"]),
        helper.make_node("NonZero", ["whole"], ["where"]),
    ]
    outputs = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 12, 12]),
        helper.make_tensor_value_info("where", TensorProto.INT64, [4, None]),
    ]
    return save_model(tmp_path_factory.mktemp("islands") / "islands.onnx", nodes, outputs)


@pytest.fixture(scope="module")
def result(model):
    folder = model.parent
    options = Options(out=folder / "a.tuned", log=folder / "t.db", trials=8, budget_s=20, fallback="onnxruntime")
    return autotune.tune(model, options)


def feed():
    return {"x": np.random.default_rng(1).standard_normal((1, 8, 12, 12)).astype(np.float32)}


@pytest.mark.parametrize(
    ("options", "advice"),
    [({"fallback": "none"}, "without --fallback none"), ({"objective": "balanced"}, "one set of shapes")],
)
def test_without_leave_the_model_is_refused_and_the_way_out_told(model, options, advice):
    with pytest.raises(ModelError, match=rf"com\.microsoft::{FOREIGN}.*{advice}"):
        autotune.tune(model, Options(out=model.parent / "b.tuned", log=model.parent / "t.db", trials=0, **options))


def test_the_result_says_what_is_not_tuned(result):
    data = result.to_data()
    assert data["islands"] == [[f"com.microsoft::{FOREIGN}"], ["NonZero"]]
    assert [Path(part["artifact"]) for part in data["segments"]] == [result.artifact / f"part-{n}" for n in (0, 2)]
    assert all(read_artifact(Path(part["artifact"])) for part in data["segments"])
    assert data["verified"]["passed"]
    assert data["latency_ms"]["tuned"] > 0


def test_outputs_are_onnxruntime_s(model, result):
    session = autotune.InferenceSession(result.artifact)
    theirs = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    assert [value.name for value in session.get_outputs()] == ["y", "where"]
    assert session.get_outputs()[1].shape == [4, None]
    for ours, other in zip(session.run(None, feed()), theirs.run(None, feed()), strict=True):
        assert np.allclose(ours, other, 1e-3, 1e-5)
    assert session.run(["where"], feed())[0].dtype == np.int64
    assert {name for name, _ in session.profile(feed())} >= {"fallback-1", "fallback-3"}


@pytest.mark.parametrize("wrong", [{}, {"y": 0}, {"x": np.zeros((1, 8, 12, 13), np.float32)}])
def test_wrong_feeds_are_told(result, wrong):
    with pytest.raises(UsageError):
        autotune.InferenceSession(result.artifact).run(None, wrong)


def test_verify_and_report_take_the_whole(model, result, capsys):
    assert main(["verify", str(result.artifact), str(model)]) == 0
    out = model.parent / "r.html"
    assert main(["report", str(result.artifact), "--out", str(out)]) == 0
    assert f"ONNX Runtime runs com.microsoft::{FOREIGN}; NonZero" in out.read_text()


def test_messages_name_what_is_there(model, result, capsys):
    assert main(["verify", str(result.artifact), str(model), "--bisect"]) == 0
    told = capsys.readouterr().out
    segment, own = told.strip().rsplit(" ", 2)[1:]
    assert main(["verify", segment, own, "--bisect"]) == 0
    assert main(["bench", segment, "--rounds", "1", "--quiet"]) == 0  # finds the model beside it
    capsys.readouterr()
    assert main(["kernels", str(result.artifact)]) == 1
    assert f"such as {segment}" in " ".join(capsys.readouterr().err.split())


def test_a_report_names_the_model_and_files_that_exist(model, result):
    page = render(read_facts(result.artifact))
    assert "<title>islands.onnx · tune</title>" in page
    assert "segment-" not in page
    for path in re.findall(r"tune (?:run|report|bench) (\S+)", page):
        assert (model.parent / path.removesuffix("</pre>")).exists()


def test_the_first_tuned_segment_need_not_be_the_first(tmp_path, measurers):
    path = save_model(
        tmp_path / "late.onnx",
        [
            helper.make_node(FOREIGN, ["x"], ["a"], domain="com.microsoft"),
            helper.make_node("Conv", ["a", "w1"], ["y"], pads=[1, 1, 1, 1]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 12, 12])],
    )
    options = Options(out=tmp_path / "a.tuned", log=tmp_path / "t.db", trials=0, fallback="onnxruntime")
    result = autotune.tune(path, options)
    with pytest.raises(ArtifactError, match="part-1"):
        read_artifact(result.artifact)


@pytest.fixture
def measurers(monkeypatch):
    """Every measurer that the pipeline opened; none is started for real."""
    return fake_device(monkeypatch)


@pytest.mark.parametrize("name", ["fallback-1.onnx", "manifest.json"])
def test_a_changed_byte_is_refused(result, name):
    path = result.artifact / name
    data = path.read_bytes()
    try:
        path.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
        with pytest.raises(ArtifactError):
            autotune.load(result.artifact)
    finally:
        path.write_bytes(data)


def test_a_second_run_keeps_history_and_latencies(model, tmp_path, measurers, monkeypatch):
    options = Options(out=tmp_path / "a.tuned", log=tmp_path / "t.db", trials=8, fallback="onnxruntime", threads=1)
    tuning.tune(model, options)
    first = tuning.tune(model, options)  # what a later segment found out about a task of both serves the earlier one
    told = [read_history(part) for part in sorted(first.artifact.glob("part-?"))]
    assert all(runs[0].slots for runs in told)
    monkeypatch.setattr(one_lane, "median_s", lambda *_: pytest.fail("the whole segment was timed again"))
    second = tuning.tune(model, options)
    assert second.measured_trials == 0
    assert [part.latency_ms for part in second.parts] == [part.latency_ms for part in first.parts]
    assert [read_history(part) for part in sorted(second.artifact.glob("part-?"))] == told


@pytest.mark.parametrize("more", [{"lanes": "cpu:2x1", "threads": 2}, {"target": target()}])
def test_segments_are_tuned_for_lanes_and_for_a_named_processor(model, tmp_path, measurers, more):
    result = tuning.tune(model, Options(out=tmp_path / "a.tuned", log=tmp_path / "t.db", trials=8, **more))
    assert result.fallback_partitions
    assert result.verified.passed


def test_several_models_have_fallback_partitions_each(model, tmp_path, measurers):
    options = Options(out=tmp_path, log=tmp_path / "t.db", trials=8, threads=1, fallback="onnxruntime")
    result = tuning.tune([model, save_tiny(tmp_path / "tiny.onnx")], options)
    assert [bool(part.fallback_partitions) for part in result.parts] == [True, False]
    assert all(part.verified.passed for part in result.parts)


def test_a_model_that_can_be_imported_has_no_islands(tmp_path, measurers):
    options = Options(out=tmp_path / "a.tuned", log=tmp_path / "t.db", trials=0, fallback="onnxruntime")
    result = autotune.tune(save_tiny(tmp_path / "tiny.onnx"), options)
    assert result.fallback_partitions == ()
    assert kind_of(result.artifact) == KERNELS


@pytest.mark.parametrize(
    "options",
    [
        {"fallback": "magic"},
        {"fallback": "onnxruntime", "objective": "balanced"},
        {"fallback": "onnxruntime", "device": False},
        {"fallback": "onnxruntime", "cluster": "local"},
        {"fallback": "onnxruntime", "rpc": "host:9190:key"},
    ],
)
def test_what_does_not_go_together_is_told(options):
    with pytest.raises(UsageError, match="fallback"):
        Options(**options)


def test_after_ctrl_c_nothing_more_is_measured(model, tmp_path, monkeypatch):
    started = interrupt_the_first_part(monkeypatch)
    result = tuning.tune(
        model, Options(out=tmp_path / "a.tuned", log=tmp_path / "t.db", trials=8, fallback="onnxruntime", peer=True)
    )
    assert [part.interrupted for part in result.parts] == [True, True]
    assert result.latency_ms == {"tuned": None}
    assert result.verified.passed
    assert [measurer.asked for measurer in started] == [1]  # one for the whole, which has no kernels, and all its parts


@pytest.mark.parametrize("seed", [{}, {"seed": 1.0}], ids=["random", "seeded"])
def test_what_a_body_draws_is_refused_before_it_is_tuned_unless_it_has_a_seed(tmp_path, seed):
    flag = [helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in ("go", "go_on")]
    count = helper.make_tensor_value_info("i", TensorProto.INT64, [])
    drawn = helper.make_tensor_value_info("noise", TensorProto.FLOAT, [1, 8, 12, 12])
    inside = [
        helper.make_node("Identity", ["go"], ["go_on"]),
        helper.make_node("RandomNormal", [], ["noise"], shape=[1, 8, 12, 12], **seed),
    ]
    body = helper.make_graph(inside, "body", [count, flag[0]], [flag[1], drawn])
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("ReduceMax", ["a"], ["most"], keepdims=0),
        helper.make_node("Cast", ["most"], ["times"], to=TensorProto.INT64),
        helper.make_node("Loop", ["times", ""], ["noises"], body=body),
        helper.make_node("ReduceSum", ["noises"], ["sum"], keepdims=0),
        helper.make_node("Add", ["a", "sum"], ["y"]),
    ]
    path = save_model(tmp_path / "noisy.onnx", nodes, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    if seed:
        assert any(segment.is_fallback for segment in cut_model(path, {}, target())[1])
        return
    with pytest.raises(ModelError, match=r"RandomNormal .* cannot be verified; let it draw outside"):
        cut_model(path, {}, target())


def test_onnxruntime_runs_an_entire_model_of_which_nothing_can_be_imported(tmp_path, capsys):
    nodes = [helper.make_node(FOREIGN, ["x"], ["y"], domain="com.microsoft")]
    path = save_model(
        tmp_path / "all.onnx", nodes, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 12, 12])]
    )
    options = Options(out=tmp_path / "a.tuned", log=tmp_path / "t.db", trials=0)
    result = autotune.tune(path, options)
    assert (result.tasks, result.parts, result.verified.passed) == (0, (), True)
    assert result.to_data()["islands"] == [[f"com.microsoft::{FOREIGN}"]]
    session = autotune.InferenceSession(result.artifact)
    assert session.threads == result.threads
    np.testing.assert_array_equal(session.run(None, feed())[0], feed()["x"])
    assert main(["verify", str(result.artifact), str(path), "--bisect"]) == 0
    assert main(["report", str(result.artifact), "--out", str(tmp_path / "r.html")]) == 2
    assert "ONNX Runtime runs the entire model" in capsys.readouterr().err
    assert autotune.tune(path, options).verified.passed  # an artifact without parts is in place


SIZES = {
    "a shape": (
        "(float[4,6] x, int64[2] n) => (float[A,B] z) { e = Exp(x) y = Reshape(e, n) z = Tanh(y) }",
        [[4, 6], [2, 12], [-1, 3]],
    ),
    "a number of samples": ("(float[1,16,1] x, int64 n) => (float[A,B,C] z) { z = DFT<axis = 1>(x, n) }", [16, 8, 20]),
}


@pytest.mark.parametrize("name", SIZES)
def test_inputs_that_are_sizes_are_verified_with_values_that_fit_and_take_others(name, tmp_path, caplog):
    text, values = SIZES[name]
    path = tmp_path / "sizes.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}'), path)
    options = Options(effort="instant", out=tmp_path / "out", log=tmp_path / "log.db")
    result = autotune.tune(path, options)
    assert result.verified.passed
    assert sum("the model is verified and timed with 'n' = " in record.message for record in caplog.records) == 1
    ours, theirs = autotune.InferenceSession(result.artifact), onnxruntime.InferenceSession(path)
    shape = ours.get_inputs()[0].shape
    for value in values:
        feed = {"x": np.ones(shape, np.float32), "n": np.array(value)}
        (made,), (expected,) = ours.run(None, feed), theirs.run(None, feed)
        np.testing.assert_allclose(made, expected, 1e-5, 1e-5)
