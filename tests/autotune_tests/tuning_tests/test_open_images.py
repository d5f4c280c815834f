"""Images and signals of sizes between those of an artifact's sets, whole: importer, kernels, jobs and cut outputs."""

import ctypes
import subprocess

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper, parser

import autotune
from autotune.artifact.composite import read_composite
from autotune.exchange.export_c import export_c
from autotune.options import Options
from autotune.tuning import multi_shape
from autotune.tuning import tune as tuning
from autotune.tuning.run_plan import PartJob
from schedules.vocabulary.errors import ModelError, VerificationError

DETECTOR = (
    """
    a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w)
    r = Relu(a)
    m = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2]>(r)
    c = Conv<pads=[1,1,1,1]>(m, v)
    g = GlobalAveragePool(c)
    s = Sigmoid(g)
    e = Mul(c, s)
    d = Conv<pads=[1,1,1,1], strides=[2,2]>(e, v)
    u = Resize<mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor">(d, , doubled)
    b = Add(u, e)
    h = Conv<pads=[1,1,1,1]>(b, v)
    f = Reshape(h, flat)
    k = Reshape(d, flat)
    j = Concat<axis=2>(f, k)
    y = Transpose<perm=[0,2,1]>(j)
    p = Resize<mode="linear", coordinate_transformation_mode="half_pixel">(h, , doubled)""",
    "1,3,height,width",
    [(1, 3, 32, 32), (1, 3, 32, 64), (1, 3, 64, 64)],
)
SPEECH = (
    """
    a = Conv<strides=[5]>(x, w)
    t = Tanh(a)
    n = InstanceNormalization(t, one, one)
    c = Conv<strides=[2], pads=[1,1]>(n, v)
    q = Transpose<perm=[0,2,1]>(c)
    k = MatMul(q, c)
    s = Softmax<axis=-1>(k)
    z = MatMul(s, q)
    y = MatMul(z, o)
    p = ReduceMean<axes=[1], keepdims=0>(z)""",
    "1,1,samples",
    [(1, 1, 400), (1, 1, 1600)],
)


def saved(body, shape, path):
    graph = f'<ir_version: 8, opset_import: ["" : 17]> g (float[{shape}] x) => (float[a] y, float[b] p) {{{body}\n}}'
    model, rng = parser.parse_model(graph), np.random.default_rng(0)
    for output in model.graph.output:
        output.CopyFrom(helper.make_empty_tensor_value_info(output.name))
    rank = shape.count(",") - 1
    weights = {
        "w": (16, 3 if rank == 2 else 1, *[3 if rank == 2 else 10] * rank),
        "v": (16, 16, *[3] * rank),
        "o": (16, 5),
    }
    arrays = {name: rng.standard_normal(size).astype(np.float32) / 5 for name, size in weights.items()}
    arrays |= {
        "doubled": np.array([1, 1, 2, 2], np.float32),
        "flat": np.array([0, 0, -1]),
        "one": np.ones(16, np.float32),
    }
    used = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in arrays.items() if name in used
    )
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture(scope="module", params=["detector", "speech"])
def made(request, tmp_path_factory):
    """The name, the model and its artifact of first guesses."""
    folder = tmp_path_factory.mktemp(request.param)
    body, shape, sets = {"detector": DETECTOR, "speech": SPEECH}[request.param]
    model = saved(body, shape, folder / "m.onnx")
    shapes = tuple({"x": one} for one in sets)
    options = Options(out=folder / "m.tuned", log=folder / "t.db", threads=1, trials=0, shapes=shapes)
    return request.param, model, tuning.tune(model, options).artifact


OTHERS = {
    "detector": [(1, 3, h, w) for h, w in ((16, 16), (24, 56), (48, 64), (64, 40), (8, 32))],
    "speech": [(1, 1, n) for n in (1599, 1000, 401, 399, 123)],
}


def test_other_sizes_are_padded(made, caplog):
    name, model, artifact = made
    session, rng = autotune.InferenceSession(artifact), np.random.default_rng(1)
    reference = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    for shape in OTHERS[name] * 2:  # what an earlier call left shows nothing
        feed = {"x": rng.standard_normal(shape).astype(np.float32)}
        session.run(None, {"x": np.full(read_composite(artifact).parts[-1].shapes["x"], np.nan, np.float32)})
        for ours, theirs in zip(session.run(None, feed), reference.run(None, feed), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)
    assert "ONNX Runtime" not in caplog.text


def test_jobs_of_rows_are_left_out(made):
    name, _, artifact = made
    interface = read_composite(artifact).interface
    if name == "detector":
        assert interface.limits == {"height": (8, 8), "width": (8, 8)}
        assert interface.outputs[0].shape == (1, "of height, width", 16)
        lives = [part.live for part in read_composite(artifact).parts]
        assert {size.symbol for live in lives if live for size in live.sizes} >= {"height"}
        assert any(jobs.growth for live in lives if live for size in live.sizes for jobs in size.calls)
    else:
        assert interface.padded == {"samples"}


def test_a_model_that_cannot_be_told_is_built_as_before(tmp_path, monkeypatch):
    def refused(*_, **__):
        raise ModelError("no")

    monkeypatch.setattr(multi_shape, "load_model", refused)
    model = saved(SPEECH[0], SPEECH[1], tmp_path / "m.onnx")
    sets = tuple({"x": one} for one in SPEECH[2])
    job = PartJob(model, Options(out=tmp_path / "m.tuned", threads=1, shapes=sets))
    assert [part.options.inputs for part in multi_shape.ShapeSets(job).parts(tmp_path)] == list(sets)


def test_a_model_that_differs_between_its_sets_is_not_padded(tmp_path, monkeypatch, caplog):
    def differs(*_):
        raise VerificationError("they differ")

    monkeypatch.setattr(multi_shape.ShapeSets, "_check_between", differs)
    model = saved(SPEECH[0], SPEECH[1], tmp_path / "m.onnx")
    sets = tuple({"x": one} for one in SPEECH[2])
    options = Options(out=tmp_path / "m.tuned", log=tmp_path / "t.db", threads=1, trials=0, shapes=sets)
    artifact = tuning.tune(model, options).artifact
    assert "not padded: they differ" in caplog.text
    assert not read_composite(artifact).interface.padded
    feed = {"x": np.random.default_rng(0).standard_normal((1, 1, 1000)).astype(np.float32)}
    ours = autotune.InferenceSession(artifact).run(None, feed)
    theirs = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"]).run(None, feed)
    assert all(np.allclose(a, b, 1e-3, 1e-4) for a, b in zip(ours, theirs, strict=True))


def test_a_c_library_has_the_inputs_of_the_model_alone(made, tmp_path):
    name, _, artifact = made
    out = export_c(artifact, tmp_path / "c", "images")
    done = subprocess.run([out / "selftest/selftest"], capture_output=True, text=True, check=True)
    assert f"{3 * len(read_composite(artifact).parts)} cases, all as recorded" in done.stdout
    library = ctypes.CDLL(str(out / "lib/libimages.so"))
    library.images_inputs.restype = ctypes.c_size_t
    assert library.images_inputs() == 1, name


def test_sizes_that_the_model_refuses_are_refused(made):
    name, _, artifact = made
    if name == "detector":
        with pytest.raises(Exception, match=r"Add|broadcast"):
            autotune.InferenceSession(artifact).run(None, {"x": np.zeros((1, 3, 28, 32), np.float32)})
