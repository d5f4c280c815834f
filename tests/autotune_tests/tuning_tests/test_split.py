"""Models whose batch is open: any batch is answered, from the first call and in every way of calling."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.artifact.composite import MODEL
from autotune.artifact.manifest import INTERFACE, KERNELS, SHAPES, kind_of, read_manifest, replace_field
from autotune.cli.main import main
from autotune.cli.text import run_lines
from autotune.options import Options
from autotune.runtime.serve_options import ServeOptions
from autotune.tuning import tune as tuning
from schedules.vocabulary.errors import RunError, UsageError
from tests.autotune_tests.fakes import fake_device
from tests.models import save


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Name → model and artifact; measured by a measurer that makes its numbers up."""
    folder = tmp_path_factory.mktemp("rows")

    def build(name, **changes):
        model = folder / f"{name}.onnx"
        if not model.exists():
            save(name, model)
        chosen = {"threads": 1, "searcher": "random", "trials": 8, "batch": 2, **changes}
        return model, tuning.tune(model, Options(**chosen))

    with pytest.MonkeyPatch.context() as patch:
        fake_device(patch)
        yield build


def rows(count, seed=0):
    return {"rows": np.random.default_rng(seed).standard_normal((count, 24)).astype(np.float32)}


def agrees(model, session, feed):
    expected = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"]).run(None, feed)
    got = session.run(None, feed)
    return len(got) == len(expected) and all(
        a.shape == b.shape and np.allclose(a, b, 1e-3, 1e-5) for a, b in zip(got, expected, strict=True)
    )


@pytest.fixture(scope="module")
def one_row(built, tmp_path_factory):
    """The artifact for one row of a model whose batch is open."""
    folder = tmp_path_factory.mktemp("row")
    return built("tiny_open_batch", inputs={"rows": (1, 24)}, out=folder / "m.tuned", log=folder / "t.db")


@pytest.mark.parametrize("count", [0, 1, 2, 7, 64])
def test_a_batch_of_one_answers_any(one_row, count):
    model, result = one_row
    session = autotune.InferenceSession(result.artifact)
    assert agrees(model, session, rows(count))
    binding = session.io_binding()
    binding.bind_cpu_input("rows", rows(count)["rows"])
    for arg in session.get_outputs():
        binding.bind_output(arg.name)
    session.run_with_iobinding(binding)
    expected = session.run(None, rows(count))
    assert all(np.array_equal(a, b) for a, b in zip(binding.get_outputs(), expected, strict=True))
    assert session.run_async(None, rows(count)).result()[0].shape == (count, 10)


def test_a_batch_of_one_takes_no_more_space_and_says_what_it_is(one_row, capsys):
    model, result = one_row
    assert kind_of(result.artifact) == KERNELS
    assert not (result.artifact / MODEL).exists()
    assert result.any_batch
    assert result.to_data()["any_batch"] is True
    assert run_lines(result)[-3] == f"{model.name}: calls of any batch are answered, row by row"
    session = autotune.InferenceSession(result.artifact)
    session.run(None, rows(7))
    assert session.sizes() == [{"shapes": {"rows": [7, 24]}, "count": 1}]
    assert main(["verify", str(result.artifact), str(model), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["passed"]
    assert data["rows"]["passed"]
    with pytest.raises(UsageError, match=r"built for batchx24; if the model leaves that size open, use .* rows:2x25"):
        session.run(None, {"rows": np.zeros((2, 25), np.float32)})


def test_verify_runs_several_rows(one_row, tmp_path, capsys):
    model, result = one_row
    copy = tmp_path / "copy.tuned"
    shutil.copytree(result.artifact, copy)
    replace_field(copy, INTERFACE, {**read_manifest(copy)[INTERFACE], "split": []})
    assert main(["verify", str(copy), str(model)]) == 2
    assert "no set of shapes for rows 3x24" in capsys.readouterr().err


def test_many_callers_of_many_batches_on_streams(one_row):
    model, result = one_row
    session = autotune.InferenceSession(result.artifact, serve=ServeOptions(streams=2))
    reference = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])

    def is_right(seed):
        feed = rows(seed % 5, seed)
        return np.allclose(session.run(None, feed)[0], reference.run(None, feed)[0], 1e-3, 1e-5)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(is_right, range(200)))


def test_a_call_of_many_rows_is_cancelled(one_row):
    session = autotune.InferenceSession(one_row[1].artifact)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(session.run, None, {"rows": np.zeros((5_000_000, 24), np.float32)})
        while not future.done():  # it may not have begun
            session.cancel()
        with pytest.raises(RunError, match="cancelled"):
            future.result()
    assert session.run(None, rows(2))[0].shape == (2, 10)


def test_a_second_run_keeps_what_is_known_of_the_batch(one_row, built):
    _, result = one_row
    before = read_manifest(result.artifact)
    log = result.artifact.with_name("t.db")
    _, again = built("tiny_open_batch", inputs={"rows": (1, 24)}, out=result.artifact, log=log, trials=9)
    assert again.any_batch
    assert read_manifest(again.artifact)[INTERFACE] == before[INTERFACE]


@pytest.fixture(scope="module")
def assumed(built, tmp_path_factory):
    """The artifact of a perceptron whose batch is open, of which nothing was said."""
    folder = tmp_path_factory.mktemp("assumed")
    return built("tiny_open_batch", out=folder / "m.tuned", log=folder / "t.db")


@pytest.mark.parametrize("count", [0, 1, 2, 7, 16, 33, 64, 200])
def test_a_perceptron_has_several_batches_and_answers_any(assumed, count):
    model, result = assumed
    assert kind_of(result.artifact) == SHAPES
    assert agrees(model, autotune.InferenceSession(result.artifact), rows(count))


ONE_ROW = [helper.make_node("Reshape", ["rows", "s"], ["f"]), helper.make_node("MatMul", ["f", "w"], ["y"])]
COUNTED = [helper.make_node("MatMul", ["rows", "w"], ["m"]), helper.make_node("NonZero", ["m"], ["y"])]


@pytest.mark.parametrize(
    ("nodes", "shape", "told"),
    [
        (ONE_ROW, ["n", 24], "rows:1x24"),
        (COUNTED, ["n", 24], "rows:1x24"),
        (COUNTED, ["batch", "length", 24], "rows:1x128x24"),
    ],
)
def test_a_model_that_has_one_set_is_tuned_for_that(built, tmp_path, caplog, nodes, shape, told):
    """One says that its batch is open, and reshapes to one row; another has sizes that depend on data."""
    weights = [
        numpy_helper.from_array(np.array([1, 24]), "s"),
        numpy_helper.from_array(np.random.default_rng(0).standard_normal((24, 8)).astype(np.float32), "w"),
    ]
    x = helper.make_tensor_value_info("rows", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT if nodes is ONE_ROW else TensorProto.INT64, None)
    opset = [helper.make_opsetid("", 17)]
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "m.onnx")
    options = Options(threads=1, searcher="random", trials=4, out=tmp_path / "m.tuned", log=tmp_path / "t.db")
    session = autotune.InferenceSession(tuning.tune(tmp_path / "m.onnx", options).artifact)
    sizes = [int(size) for size in told.removeprefix("rows:").split("x")]
    feed = {"rows": np.random.default_rng(1).standard_normal(sizes).astype(np.float32)}
    assert agrees(tmp_path / "m.onnx", session, feed)
    assert any(text.endswith(f"; the model is tuned for {told} alone") for text in caplog.messages)


@pytest.mark.parametrize(("count", "is_any"), [(1, True), (8, False)])
def test_a_batch_that_was_asked_for(built, tmp_path, count, is_any):
    model, result = built(
        "tiny_open_batch", out=tmp_path / "m.tuned", log=tmp_path / "t.db", inputs={"rows": (count, 24)}
    )
    session = autotune.InferenceSession(result.artifact)
    assert result.any_batch == is_any
    assert agrees(model, session, rows(count))
    if is_any:
        assert agrees(model, session, rows(9))
    else:
        with pytest.raises(UsageError, match=r"built for \(8, 24\); if the model leaves that size open"):
            session.run(None, rows(9))
