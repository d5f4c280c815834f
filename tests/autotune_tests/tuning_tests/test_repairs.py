"""A broken operator costs speed, not the artifact: ONNX Runtime runs it, or its kernel is built untuned."""

import os
import signal
from dataclasses import replace

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

import autotune
from autotune.artifact.directory import read_artifact
from autotune.artifact.manifest import KERNELS, SEGMENTS, kind_of
from autotune.builder import one_lane
from autotune.cli.main import main
from autotune.host.machine import host_target
from autotune.importer.guarded_import import import_model
from autotune.importer.rewriting.registry import ENTRIES, Role
from autotune.measure.local_measurer import LocalMeasurer
from autotune.options import Options
from autotune.runtime.session import InferenceSession
from schedules.lower import BASELINE
from schedules.vocabulary.errors import ModelError, UnsupportedError, VerificationError
from tests.autotune_tests.fakes import fake_device
from tests.models import random_inputs

RNG = np.random.default_rng(0)


def weight(*shape):
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def convolutions():
    """An image model: convolutions around the two activations that are broken below."""
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Elu", ["a"], ["b"], "curved"),
        helper.make_node("Conv", ["b", "w1"], ["c"], "second", pads=[1, 1, 1, 1]),
        helper.make_node("HardSwish", ["c"], ["d"], "bent"),
        helper.make_node("Conv", ["d", "w2"], ["y"], "third"),
    ]
    weights = {"w0": weight(8, 3, 3, 3), "w1": weight(8, 8, 3, 3), "w2": weight(4, 8, 1, 1)}
    return nodes, ("x", (1, 3, 10, 10)), ("y", (1, 4, 10, 10)), weights


def perceptron():
    """A product on both sides of an Elu."""
    nodes = [
        helper.make_node("Gemm", ["x", "w0", "b0"], ["a"], "first"),
        helper.make_node("Elu", ["a"], ["b"], "curved"),
        helper.make_node("MatMul", ["b", "w1"], ["y"], "second"),
    ]
    return nodes, ("x", (32, 64)), ("y", (32, 48)), {"w0": weight(64, 96), "b0": weight(96), "w1": weight(96, 48)}


def attention():
    """Products of activations, with an Elu among their scores."""
    nodes = [
        helper.make_node("MatMul", ["x", "q"], ["queries"], "queries"),
        helper.make_node("Transpose", ["x"], ["keys"], "keys", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["queries", "keys"], ["scores"], "scores"),
        helper.make_node("Elu", ["scores"], ["bent"], "curved"),
        helper.make_node("Softmax", ["bent"], ["shares"], "shares", axis=-1),
        helper.make_node("MatMul", ["shares", "x"], ["mixed"], "mixed"),
        helper.make_node("MatMul", ["mixed", "o"], ["y"], "out"),
    ]
    return nodes, ("x", (1, 8, 16)), ("y", (1, 8, 16)), {"q": weight(16, 16), "o": weight(16, 16)}


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """Writes a model; in its runs nothing is measured."""
    fake_device(monkeypatch, forks=True)

    def save(make):
        nodes, (x, size), (y, result), weights = make()
        constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ((x, size), (y, result))
        ]
        graph = helper.make_graph(nodes, make.__name__, ends[:1], ends[1:], constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.save(model, tmp_path / f"{make.__name__}.onnx")
        return tmp_path / f"{make.__name__}.onnx"

    return save


def options(path, **more):
    return Options(out=path.with_suffix(".tuned"), log=path.with_name("t.db"), trials=0, threads=1, **more)


def check(path, result):
    """The artifact computes what ONNX Runtime does."""
    feed = random_inputs(onnx.load(path), seed=5)
    theirs = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feed)
    for one, other in zip(InferenceSession(result.artifact).run(None, feed), theirs, strict=True):
        np.testing.assert_allclose(one, other, 1e-3, 1e-5)
    assert result.verified.passed


def entered(role, kind, function):
    """Key and value of the registry for a function in place of what is registered."""
    return (role, "", kind), (function,)


def broken(kind):
    """What ways of import of one activation become."""

    def wrong_numbers(bb, inputs, attrs, opset):
        return bb.normalize(relax.op.multiply(inputs[0], relax.const(0.5, "float32")))

    def raising(bb, inputs, attrs, opset):
        raise ValueError("no such thing")

    def crashing(bb, inputs, attrs, opset):
        os.kill(os.getpid(), signal.SIGSEGV)

    return {"wrong numbers": wrong_numbers, "raises": raising, "crashes": crashing}[kind]


@pytest.mark.parametrize(
    ("make", "kind"),
    [(convolutions, "crashes"), (perceptron, "wrong numbers"), (attention, "wrong numbers"), (attention, "raises")],
)
def test_a_broken_conversion_is_left_to_onnxruntime(saved, monkeypatch, caplog, make, kind):
    monkeypatch.setitem(ENTRIES, *entered(Role.CONVERT, "Elu", broken(kind)))
    path = saved(make)
    result = autotune.tune(path, options(path))
    assert [set(operators) for operators in result.fallback_partitions] == [{"Elu"}] or make is attention
    assert any("Elu" in operators for operators in result.fallback_partitions)
    assert sum("; ONNX Runtime runs" in line for line in caplog.messages) == 1
    check(path, result)


def test_several_broken_conversions_are_found_at_once(saved, monkeypatch):
    monkeypatch.setitem(ENTRIES, *entered(Role.CONVERT, "Elu", broken("wrong numbers")))
    monkeypatch.setitem(ENTRIES, *entered(Role.CONVERT, "HardSwish", broken("wrong numbers")))
    path = saved(convolutions)
    result = autotune.tune(path, options(path))
    assert result.fallback_partitions == (("Elu",), ("HardSwish",))
    check(path, result)


def test_a_broken_rewrite_is_found_in_the_model_as_it_was(saved, monkeypatch):
    """The rewritten model agrees with its kernels: only the original shows the fault."""
    monkeypatch.setitem(
        ENTRIES, *entered(Role.REWRITE, "Elu", lambda node, e: [e.op("Mul", node.input(0), e.like(0.5))])
    )
    path = saved(perceptron)
    result = autotune.tune(path, options(path))
    assert result.fallback_partitions == (("Elu",),)
    check(path, result)


def test_the_command_ends_well_and_says_what_runs_where(saved, monkeypatch, capsys):
    monkeypatch.setitem(ENTRIES, *entered(Role.CONVERT, "Elu", broken("wrong numbers")))
    path = saved(perceptron)
    code = main(["run", str(path), "--out", str(path.with_suffix(".tuned")), "--trials", "0", "--log", f"{path}.db"])
    printed = capsys.readouterr()
    assert code == 0
    assert "ONNX Runtime runs Elu" in printed.out
    assert "Traceback" not in printed.out + printed.err
    assert kind_of(path.with_suffix(".tuned")) == SEGMENTS


@pytest.mark.parametrize(("kind", "error"), [("wrong numbers", VerificationError), ("raises", UnsupportedError)])
def test_without_leave_a_broken_conversion_is_refused(saved, monkeypatch, kind, error):
    monkeypatch.setitem(ENTRIES, *entered(Role.CONVERT, "Elu", broken(kind)))
    path = saved(perceptron)
    with pytest.raises(error):
        autotune.tune(path, options(path, fallback="none"))
    assert not path.with_suffix(".tuned").exists()


def test_without_onnxruntime_a_model_is_refused_as_it_was(saved, monkeypatch):
    monkeypatch.setitem(ENTRIES, *entered(Role.CONVERT, "Elu", broken("raises")))
    monkeypatch.setattr("autotune.tuning.split.importlib.util.find_spec", lambda name: None)
    path = saved(perceptron)
    with pytest.raises(UnsupportedError, match="package onnxruntime is installed"):
        autotune.tune(path, options(path))


def test_a_bad_file_is_refused_in_its_own_words(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"no model")
    with pytest.raises(ModelError) as caught:
        autotune.tune(tmp_path / "m.onnx", options(tmp_path / "m.onnx"))
    assert "ONNX Runtime" not in str(caught.value)


def test_a_tuned_kernel_that_gives_wrong_numbers_is_built_untuned(saved, monkeypatch, caplog):
    """Every tuned kernel of one task is built from the program of a steeper Elu, after it was measured."""
    path = saved(perceptron)
    steep = onnx.load(path)
    steep.graph.node[1].attribute.append(helper.make_attribute("alpha", 3.0))
    onnx.save(steep, path.with_name("steep.onnx"))
    machine = host_target(1)
    right, wrong = (import_model(file, {}, machine)[1] for file in (path, path.with_name("steep.onnx")))
    key, other = ({*one.programs} - {*two.programs} for one, two in ((right, wrong), (wrong, right)))
    (task,), (text,) = key, (wrong.programs[changed] for changed in other)
    build = one_lane.build_artifact

    def poisoned(out, program, plan, model, measurer):
        if plan.config(task) == BASELINE:
            return build(out, program, plan, model, measurer)
        with LocalMeasurer(machine) as other:  # the run's own ships the very kernels that it measured
            return build(out, replace(program, programs={**program.programs, task: text}), plan, model, other)

    monkeypatch.setattr(one_lane, "build_artifact", poisoned)
    result = autotune.tune(path, replace(options(path), trials=6, budget_s=20))
    assert any("built untuned, since other kernels give wrong numbers" in line for line in caplog.messages)
    assert (result.fallback_partitions, kind_of(result.artifact)) == ((), KERNELS)
    assert read_artifact(result.artifact).plan.config(task) == BASELINE
    check(path, result)


def test_a_node_that_loses_nan_alone_is_left_to_onnx_runtime(tmp_path):
    """Its numbers are right on random inputs; windows at the border that hold nothing but NaN give a number."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8,9,9] x) => (float[1,8,5,5] y, float[1,8,9,9] z)
        { y = MaxPool<kernel_shape = [3,3], strides = [2,2], pads = [1,1,1,1]>(x) z = Exp(x) }"""
    path = tmp_path / "border.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    result = autotune.tune(path, Options(effort="instant", out=tmp_path / "out", log=tmp_path / "log.db"))
    assert result.verified.passed
    assert any("MaxPool" in operators for operators in result.fallback_partitions)
    x = np.full((1, 8, 9, 9), np.nan, np.float32)
    expected = onnxruntime.InferenceSession(path).run(None, {"x": x})
    for made, theirs in zip(InferenceSession(result.artifact).run(None, {"x": x}), expected, strict=True):
        np.testing.assert_array_equal(made, theirs)
