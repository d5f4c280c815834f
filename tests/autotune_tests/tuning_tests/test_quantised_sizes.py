"""Models with scales of whole tensors, called with other sizes than those of their sets: a call's own numbers count."""

import shutil

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.artifact.directory import read_artifact
from autotune.options import Options
from autotune.runtime.adaptive.model_cache import ModelCache
from autotune.runtime.adaptive.tuned_kernels import TunedKernels
from autotune.runtime.serve_options import ServeOptions
from autotune.runtime.serving import Serving
from autotune.tuning import tune as tuning
from autotune.validation.bench import inputs_of
from tests.autotune_tests.fakes import fake_device
from tests.autotune_tests.runtime_tests.adaptive_tests.waiting import wait_for

WIDTH, INNER = 24, 16
SETS = ({"x": (4, 16, WIDTH)}, {"x": (1, 48, WIDTH)})


def product(name, x, y, rng, columns):
    """Nodes and weights of ``y = x · w`` as ONNX Runtime's tools quantise it."""
    w = rng.integers(-127, 128, (WIDTH if columns == INNER else INNER, columns)).astype(np.int8)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", [x], [f"{name}.q", f"{name}.s", f"{name}.z"]),
        helper.make_node("MatMulInteger", [f"{name}.q", f"{name}.w", f"{name}.z"], [f"{name}.i"]),
        helper.make_node("Cast", [f"{name}.i"], [f"{name}.f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", [f"{name}.f", f"{name}.s"], [f"{name}.m"]),
        helper.make_node("Mul", [f"{name}.m", "step"], [y]),
    ]
    return nodes, [numpy_helper.from_array(w, f"{name}.w")]


def model(path):
    """Two quantised products of (batch, length, 24)."""
    rng = np.random.default_rng(0)
    first, weights = product("one", "x", "h", rng, INNER)
    second, more = product("two", "h", "y", rng, 8)
    graph = helper.make_graph(
        [*first, *second],
        "quantised",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "length", WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "length", 8])],
        [*weights, *more, numpy_helper.from_array(np.float32(0.01), "step")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The model's path, its artifact and a session of it."""
    folder = tmp_path_factory.mktemp("quantised")
    path = model(folder / "rows.onnx")
    options = Options(
        out=folder / "rows.tuned", log=folder / "t.db", threads=1, trials=4, batch=2, searcher="random", shapes=SETS
    )
    with pytest.MonkeyPatch.context() as patch:
        fake_device(patch)
        result = tuning.tune(path, options)
    return path, autotune.InferenceSession(result.artifact)


def numbers(*shape):
    """Numbers of which some position far behind has the largest."""
    x = np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
    x[-1, -1] *= 3
    return {"x": x}


@pytest.mark.parametrize(("batch", "length"), [(4, 16), (4, 11), (3, 16), (2, 5), (1, 48), (1, 30), (1, 1)])
def test_other_sizes_have_the_scale_of_the_call(served, batch, length, caplog):
    path, session = served
    feed = numbers(batch, length, WIDTH)
    expected = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feed)
    for _ in range(2):  # the second one finds what the first one left
        got = session.run(None, feed)
        np.testing.assert_allclose(got[0], expected[0], rtol=1e-4, atol=1e-4)
    assert "ONNX Runtime runs" not in caplog.text


def test_what_counts_is_no_input_for_a_caller(served):
    assert [value.name for value in served[1].get_inputs()] == ["x"]


def test_larger_batches_are_not_cut_and_run_on_onnxruntime(served, caplog):
    path, session = served
    feed = numbers(5, 16, WIDTH)
    expected = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feed)
    np.testing.assert_array_equal(session.run(None, feed)[0], expected[0])
    assert "ONNX Runtime runs" in caplog.text
    assert "tune.noise" not in caplog.text


def test_a_part_is_called_and_timed_without_what_counts(served):
    """Other engines run the model as it is: the input would keep ONNX Runtime from its fused products."""
    path, _ = served
    part = path.with_suffix(".tuned") / "part-0"
    assert [spec.name for spec in inputs_of(read_artifact(part))] == ["x"]
    feed = numbers(4, 16, WIDTH)
    expected = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feed)
    np.testing.assert_allclose(autotune.InferenceSession(part).run(None, feed)[0], expected[0], rtol=1e-4, atol=1e-4)


def test_recorded_sizes_are_those_of_callers(served):
    path, _ = served
    session = autotune.InferenceSession(path.with_suffix(".tuned"))
    session.run(None, numbers(3, 9, WIDTH))
    assert session.sizes() == [{"shapes": {"x": [3, 9, WIDTH]}, "count": 1}]


def test_a_session_that_adapts_runs_such_kernels(served, tmp_path, monkeypatch):
    """It knows the model's own inputs only."""
    path, _ = served
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = ModelCache(path, 1)
    cache.make()
    shutil.copytree(path.with_suffix(".tuned"), cache.artifact)
    tuned = TunedKernels(Serving(cache.artifact, 1, ServeOptions()))
    session = autotune.InferenceSession(path, threads=1, adapt=True)
    try:
        wait_for(lambda: session.status()["artifact"])
        for shape, wanted in (((4, 11, WIDTH), True), ((5, 16, WIDTH), True), ((4, 11, WIDTH + 1), False)):
            arrays = [numbers(*shape)["x"]]
            assert tuned.serves(tuple(array.shape for array in arrays), arrays) == wanted
        feed = numbers(3, 11, WIDTH)
        expected = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feed)
        for got in (session.run(None, feed), tuned.serving.run(tuned.completed([feed["x"]]), None)):
            np.testing.assert_allclose(got[0], expected[0], rtol=1e-4, atol=1e-4)
    finally:
        session.close()
