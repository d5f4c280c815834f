"""A session draws a model's random numbers: from its seed or other ones each time, alike in every kind of artifact."""

import importlib.util
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.artifact.composite import MODEL, read_composite
from autotune.artifact.manifest import SEGMENTS, kind_of
from autotune.exchange.export_c import export_c
from autotune.frame.noise import PREFIX, NoiseSource, noise_name, noise_of
from autotune.interface import OpenSpec, TensorSpec
from autotune.options import Options
from autotune.runtime.serve_options import ServeOptions
from autotune.validation.bench import bench
from schedules.vocabulary.errors import ModelError, UsageError
from tests.autotune_tests.fakes import fake_device

FLOAT = TensorProto.FLOAT
X = np.zeros((4, 32), np.float32)


def value(name, *shape, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def save_noisy(path, more=(), outputs=(), batch=4, opsets=()):
    """x (batch, 32) → its product with ones and normal noise; and noise of the seed 3 alone."""
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["n"]),
        helper.make_node("Add", ["x", "n"], ["a"]),
        helper.make_node("MatMul", ["a", "w"], ["y"]),
        helper.make_node("RandomUniformLike", ["x"], ["u"], seed=3.0),
        helper.make_node("Neg", ["u"], ["z"]),
        *more,
    ]
    all_outputs = [value("y", batch, 32), value("z", batch, 32), *outputs]
    weights = [numpy_helper.from_array(np.eye(32, dtype=np.float32), "w")]
    graph = helper.make_graph(nodes, path.stem, [value("x", batch, 32)], all_outputs, weights)
    opset = [helper.make_opsetid("", 18), *opsets]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    return path


def tuned(model, folder, **options):
    asked = Options(out=folder / "a.tuned", log=folder / "t.db", trials=2, threads=1, **options)
    result = autotune.tune(model, asked)
    assert result.verified.passed
    return result.artifact


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    """The only one that is measured, and verified in a process of its own: noise gets there, too."""
    folder = tmp_path_factory.mktemp("noisy")
    return tuned(save_noisy(folder / "noisy.onnx"), folder)


@pytest.fixture(scope="module")
def batches(tmp_path_factory):
    folder = tmp_path_factory.mktemp("batches")
    sets = ({"x": (1, 32)}, {"x": (4, 32)})
    with pytest.MonkeyPatch.context() as patch:
        fake_device(patch)
        return tuned(save_noisy(folder / "noisy.onnx", batch="rows"), folder, shapes=sets)


def test_other_sizes_of_a_model_that_draws_are_not_left_to_onnxruntime(batches):
    assert not read_composite(batches).other_sizes
    assert not (batches / MODEL).exists()


def test_a_name_of_noise_says_what_it_holds():
    for kind in ("normal", "uniform"):
        for seed in (None, 0, 1077936128):
            for stem in ("x", "layer/7/x", "7"):
                assert noise_of(noise_name(kind, seed, stem)) == (kind, seed)
    assert noise_of("x") is None


def test_the_interface_hides_noise_which_can_be_given(artifact):
    session = autotune.InferenceSession(artifact)
    assert [arg.name for arg in session.get_inputs()] == ["x"]
    normal, uniform = session.get_overridable_initializers()
    assert normal.name.startswith(PREFIX)
    assert normal.shape == [4, 32]
    noise = np.arange(128, dtype=np.float32).reshape(4, 32)
    y, z = session.run(None, {"x": X, normal.name: noise, uniform.name: noise})
    assert (y == noise).all()
    assert (z == -noise).all()
    with pytest.raises(UsageError, match=r"no input 'n'; .*its inputs are \['x'\]"):
        session.run(None, {"x": X, "n": noise})
    with pytest.raises(UsageError, match="input 'x' is missing"):
        session.run(None, {})
    with pytest.raises(UsageError, match=r"tune.noise/normal.* has shape \(2, 32\), the artifact was built for [^;]*$"):
        session.run(None, {"x": X, normal.name: np.zeros((2, 32), np.float32)})
    with pytest.raises(UsageError, match="give a mapping"):
        session.run(None, [X])


def test_runs_differ_and_a_seed_repeats_them(artifact):
    def two_runs(seed):
        session = autotune.InferenceSession(artifact, serve=ServeOptions(seed=seed))
        return [session.run(["y"], {"x": X})[0] for _ in range(2)]

    one, other, again, unseeded = two_runs(1), two_runs(2), two_runs(1), two_runs(None)
    assert all((a == b).all() for a, b in zip(one, again, strict=True))
    different = [*one, *other, *unseeded, *two_runs(None)]
    assert all((a != b).any() for n, a in enumerate(different) for b in different[:n])


def test_a_seed_of_the_model_is_one_stream_whatever_the_session_s(artifact):
    runs = []
    for seed in (None, 1, 2):
        session = autotune.InferenceSession(artifact, serve=ServeOptions(seed=seed))
        runs.append([session.run(["z"], {"x": X})[0] for _ in range(2)])
    assert all((a == b).all() for run in runs[1:] for a, b in zip(run, runs[0], strict=True))
    assert (runs[0][0] != runs[0][1]).any()


@pytest.mark.parametrize("seed", [-1, 1.5, "1", True])
def test_a_seed_that_is_none_is_refused(artifact, seed):
    with pytest.raises(UsageError, match=r"seed is .*; it must be a whole number"):
        autotune.InferenceSession(artifact, serve=ServeOptions(seed=seed))


def test_threads_draw_numbers_of_their_own(artifact):
    session = autotune.InferenceSession(artifact, serve=ServeOptions(seed=0))
    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(lambda _: session.run(["y"], {"x": X})[0], range(64)))
    runs += [future.result()[0] for future in [session.run_async(["y"], {"x": X}) for _ in range(16)]]
    assert len({run.tobytes() for run in runs}) == len(runs)
    alone = autotune.InferenceSession(artifact, serve=ServeOptions(seed=0))
    assert {run.tobytes() for run in runs} == {alone.run(["y"], {"x": X})[0].tobytes() for _ in runs}


def test_a_forked_child_draws_other_numbers(artifact):
    session = autotune.InferenceSession(artifact)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, session.run(["y"], {"x": X})[0].tobytes())
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(reader, X.nbytes) != session.run(["y"], {"x": X})[0].tobytes()


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 9])
def test_noise_has_the_sizes_of_its_request(batches, rows):
    y, z = autotune.InferenceSession(batches, serve=ServeOptions(seed=0)).run(
        None, {"x": np.zeros((rows, 32), np.float32)}
    )
    assert y.shape == z.shape == (rows, 32)
    assert len(np.unique(y)) == y.size
    assert len(np.unique(z)) == z.size


def test_joined_requests_have_noise_of_their_own(batches):
    serve = autotune.ServeOptions(max_batch=4, max_wait_s=0.01)
    session = autotune.InferenceSession(batches, serve=serve)
    futures = [session.run_async(["y"], {"x": X[:1]}) for _ in range(12)]
    assert len(np.unique([future.result()[0] for future in futures])) == 12 * 32


def test_a_model_in_segments_draws_too(tmp_path, monkeypatch):
    fake_device(monkeypatch)
    foreign = [
        helper.make_node("SampleOp", ["n"], ["s"], domain="com.microsoft"),
        helper.make_node("MatMul", ["s", "w"], ["t"]),
    ]
    own = [helper.make_opsetid("com.microsoft", 1)]
    model = save_noisy(tmp_path / "noisy.onnx", foreign, [value("t", 4, 32)], opsets=own)
    segmented = tuned(model, tmp_path)
    assert kind_of(segmented) == SEGMENTS
    session = autotune.InferenceSession(segmented, serve=ServeOptions(seed=0))
    assert [arg.name for arg in session.get_inputs()] == ["x"]
    y, _, t = session.run(None, {"x": X})
    assert (y == t).all()
    assert y.std() == pytest.approx(1, abs=0.3)


def test_peers_are_timed_on_the_same_noise(artifact):
    model = artifact.parent / "noisy.onnx"
    assert {engine.name for engine in bench(artifact, ("onnxruntime",), model, rounds=2).engines} >= {"onnxruntime"}


def test_a_c_library_takes_noise_as_arguments(artifact, tmp_path):
    export_c(artifact, tmp_path / "lib", "noisy")
    ran = subprocess.run([tmp_path / "lib/selftest/selftest"], capture_output=True, text=True, check=True)
    assert "all as recorded" in ran.stdout
    place = tmp_path / "lib/examples/noisy.py"
    spec = importlib.util.spec_from_file_location("noisy_example", place)
    binding = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(binding)
    noise = np.arange(128, dtype=np.float32).reshape(4, 32)
    assert (binding.Model().run(X, noise, noise)[0] == noise).all()


@pytest.mark.parametrize("kind", ["Loop", "If"])
def test_noise_in_a_body_is_refused_by_name(kind, tmp_path):
    body = [helper.make_node("RandomNormal", [], ["b"], "culprit", shape=[4, 32])]
    if kind == "If":
        branch = helper.make_graph(body, "branch", [], [value("b", 4, 32)])
        more = [
            helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
            helper.make_node("Cast", ["m"], ["flag"], to=TensorProto.BOOL),
            helper.make_node("If", ["flag"], ["o"], then_branch=branch, else_branch=branch),
        ]
    else:
        body.append(helper.make_node("Identity", ["go"], ["go_on"]))
        inner = [value("i", kind=TensorProto.INT64), value("go", kind=TensorProto.BOOL)]
        loop = helper.make_graph(body, "loop", inner, [value("go_on", kind=TensorProto.BOOL), value("b", 4, 32)])
        more = [helper.make_node("Loop", ["three", ""], ["o"], body=loop)]
        three = numpy_helper.from_array(np.int64(3))
        more.insert(0, helper.make_node("Constant", [], ["three"], value=three))
    model = save_noisy(tmp_path / "noisy.onnx", more, [value("o", *(4, 32) if kind == "If" else (3, 4, 32))])
    with pytest.raises(ModelError, match=r"RandomNormal .*random"):
        tuned(model, tmp_path)


def test_sizes_that_no_input_has_are_looked_up():
    specs = (OpenSpec("x", ("n",), "float32"), OpenSpec(noise_name("uniform", None, "y"), ("other",), "float32"))
    feed = NoiseSource(specs, 0, lambda shapes: {specs[1].name: (2 * shapes["x"][0],)}).add_to({"x": np.zeros(3)})
    assert feed[specs[1].name].shape == (6,)
    fixed = (TensorSpec(noise_name("normal", None, "y"), (5,), "float64"),)
    assert NoiseSource(fixed, 0, lambda _: {}).add_to({})[fixed[0].name].dtype == np.float64
