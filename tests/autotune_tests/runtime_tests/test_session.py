"""InferenceSession: the same answers as ONNX Runtime, from any thread, and errors that say what to give."""

import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest

import autotune
from autotune.artifact.directory import read_artifact
from autotune.artifact.manifest import KERNELS, read_manifest, write_manifest
from autotune.artifact.replacement import install
from autotune.host.machine import read_host
from autotune.runtime.multi_shape_executor import MultiShapeExecutor
from autotune.runtime.serve_options import ServeOptions
from autotune.runtime.session import InferenceSession
from schedules.vocabulary.errors import ArtifactError, RunError, UsageError
from tests.autotune_tests import tiny as tiny_module
from tests.autotune_tests.composites import data as segments_feed
from tests.autotune_tests.composites import rows, three_segments, two_batches
from tests.autotune_tests.runtime_tests.held import held
from tests.autotune_tests.tiny import build_untuned, save_tiny


@pytest.fixture(scope="module")
def session(tiny_built):
    return InferenceSession(tiny_built.artifact)


@pytest.fixture(scope="module")
def reference(tiny_built):
    return onnxruntime.InferenceSession(str(tiny_built.model), providers=["CPUExecutionProvider"])


def data(seed=0):
    return np.random.default_rng(seed).standard_normal((1, 16, 8, 8)).astype(np.float32)


def close(ours, theirs):
    return len(ours) == len(theirs) and all(
        a.dtype == b.dtype and np.allclose(a, b, 1e-3, 1e-5) for a, b in zip(ours, theirs, strict=True)
    )


def test_interface_is_onnxruntime_s(session, reference):
    for ours, theirs in (
        (session.get_inputs(), reference.get_inputs()),
        (session.get_outputs(), reference.get_outputs()),
    ):
        assert [(arg.name, arg.shape, arg.type) for arg in ours] == [(arg.name, arg.shape, arg.type) for arg in theirs]


def test_outputs_are_onnxruntime_s(session, reference):
    feed = {"data": data()}
    assert close(session.run(None, feed), reference.run(None, feed))


@pytest.mark.parametrize("names", [["features"], ["features", "scores"], ["scores", "scores"]])
def test_outputs_come_as_asked(session, reference, names):
    feed = {"data": data()}
    assert close(session.run(names, feed), reference.run(names, feed))


def test_results_are_the_caller_s(session):
    first = session.run(None, {"data": data()})
    copies = [array.copy() for array in first]
    session.run(None, {"data": data(1)})
    assert all(np.array_equal(a, b) for a, b in zip(first, copies, strict=True))


def test_input_is_left_as_it_was(session):
    array = data()
    before = array.copy()
    session.run(None, {"data": array})
    assert np.array_equal(array, before)


@pytest.mark.parametrize(
    ("names", "feed", "message"),
    [
        (None, {}, "input 'data' is missing; give an array of shape .1, 16, 8, 8. and type float32"),
        (None, {"data": data(), "x": data()}, r"no input 'x'; its inputs are \['data'\]"),
        (None, {"data": data()[0]}, r"has shape \(16, 8, 8\)"),
        (None, {"data": data().astype(np.float64)}, "type float64"),
        (
            ["score"],
            {"data": data()},
            r"no output 'score'; did you mean 'scores'\? its outputs are \['scores', 'features'\]",
        ),
    ],
)
def test_wrong_feeds_are_told(session, names, feed, message):
    with pytest.raises(UsageError, match=message) as caught:
        session.run(names, feed)
    assert "\n" not in str(caught.value)


def test_threads_call_one_session_at_once(session, reference):
    feeds = [{"data": data(seed)} for seed in range(8)]
    expected = [reference.run(None, feed) for feed in feeds]
    wrong, ready = [], threading.Barrier(4)

    def work(offset):
        ready.wait()
        for step in range(25):
            index = (offset + step) % len(feeds)
            if not close(session.run(None, feeds[index]), expected[index]):
                wrong.append((offset, step))

    threads = [threading.Thread(target=work, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_streams_answer_as_one_session_does(tiny_built, reference):
    session = InferenceSession(tiny_built.artifact, serve=ServeOptions(streams=2))
    feeds = [{"data": data(seed)} for seed in range(8)]
    expected = [reference.run(None, feed) for feed in feeds]
    wrong, counts = [], [0] * 16

    def work(caller):
        for step in range(50):
            index = (caller + step) % len(feeds)
            if not close(session.run(None, feeds[index]), expected[index]):
                wrong.append((caller, step))
            counts[caller] += 1

    threads = [threading.Thread(target=work, args=(caller,)) for caller in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert session.streams == 2
    assert wrong == []
    assert counts == [50] * 16


def test_a_future_has_the_outputs_that_were_asked_for(session, reference):
    feeds = [{"data": data(seed)} for seed in range(5)]
    futures = [session.run_async(["features", "scores"], feed) for feed in feeds]
    for future, feed in zip(futures, feeds, strict=True):
        assert close(future.result(30), reference.run(["features", "scores"], feed))
    with pytest.raises(UsageError, match="no output 'score'"):
        session.run_async(["score"], feeds[0])
    with pytest.raises(UsageError, match="input 'data' is missing"):
        session.run_async(None, {})


def test_reload_swaps_under_load_and_drops_nothing(tmp_path, measurer):
    old, new = (save_tiny(tmp_path / f"tiny{seed}.onnx", seed, two_outputs=True) for seed in (1, 2))
    out = build_untuned(old, tmp_path / "served.tuned", measurer)
    fresh = build_untuned(new, tmp_path / "fresh.tuned", measurer)
    feed = {"data": data()}
    answers = [InferenceSession(path).run(None, feed) for path in (out, fresh)]
    session = InferenceSession(out, serve=ServeOptions(streams=2))
    assert not session.reload()
    seen, stop = [[] for _ in range(4)], threading.Event()

    def work(own):
        while not stop.is_set():
            outputs = session.run(None, feed) if len(own) % 2 else session.run_async(None, feed).result(30)
            own.append([close(outputs, answer) for answer in answers].index(True))

    threads = [threading.Thread(target=work, args=(own,)) for own in seen]
    for thread in threads:
        thread.start()
    while min(map(len, seen)) < 5:
        time.sleep(1e-3)
    install(fresh, out)
    assert session.reload()
    served = [len(own) for own in seen]
    while min(len(own) - count for own, count in zip(seen, served, strict=True)) < 5:
        time.sleep(1e-3)
    stop.set()
    for thread in threads:
        thread.join(30)
    for own in seen:
        assert own == sorted(own)  # the old artifact's answers, then the new one's, and nothing else
        assert set(own) == {0, 1}


def test_reload_refuses_another_interface_and_goes_on(tmp_path, measurer, tiny_built):
    other = build_untuned(save_tiny(tmp_path / "t.onnx", classes=7, two_outputs=True), tmp_path / "t.tuned", measurer)
    session = InferenceSession(tiny_built.artifact)
    with pytest.raises(UsageError, match=r"t.tuned has the outputs .* open a session of its own"):
        session.reload(other)
    with pytest.raises(ArtifactError, match="is not an artifact"):
        session.reload(tmp_path)
    assert session.run(["scores"], {"data": data()})[0].shape == (1, 10)


def test_callers_keep_their_cores(session):
    before = os.sched_getaffinity(0)
    session.run(None, {"data": data()})
    assert os.sched_getaffinity(0) == before


def test_two_sessions_of_one_artifact_do_not_disturb_each_other(tiny_built, session):
    other = autotune.load(tiny_built.artifact)
    feed = {"data": data()}
    assert close(session.run(None, feed), other.run(None, feed))


def test_an_artifact_that_was_built_anew_is_loaded_anew(tiny, tmp_path, measurer):
    feed = {"data": data()}
    before = InferenceSession(tiny.artifact)
    first = before.run(["scores"], feed)[0]
    # Other code under the same path, as a second tuning run leaves it.
    other = tmp_path / "other"
    other.mkdir()
    model = tiny_module.save_tiny(other / "tiny.onnx", classes=7)
    shutil.rmtree(tiny.artifact)
    tiny_module.build_untuned(model, tiny.artifact, measurer)
    assert InferenceSession(tiny.artifact).run(["scores"], feed)[0].shape == (1, 7)
    assert np.array_equal(before.run(["scores"], feed)[0], first)


def test_damaged_artifact_is_not_loaded(tiny):
    (tiny.artifact / "model.so").write_bytes(b"\x7fELF")
    with pytest.raises(ArtifactError, match="was changed"):
        InferenceSession(tiny.artifact)


@pytest.fixture(scope="module")
def composites(tmp_path_factory, measurer):
    folder = tmp_path_factory.mktemp("composites")
    return two_batches(folder, measurer), three_segments(folder, measurer)


def test_every_kind_of_artifact_gives_the_same_class(tiny_built, composites):
    batches, segments = composites
    for path in (tiny_built.artifact, batches.artifact, segments.artifact):
        assert type(autotune.InferenceSession(path)) is autotune.InferenceSession
        assert isinstance(autotune.load(path), autotune.InferenceSession)
    assert autotune.InferenceSession is InferenceSession


def test_open_sizes_are_shown_by_name_and_those_that_depend_on_data_as_none(composites):
    batches, segments = map(InferenceSession, (built.artifact for built in composites))
    assert [(arg.name, arg.shape, arg.type) for arg in batches.get_inputs()] == [
        ("rows", ["batch", 24], "tensor(float)")
    ]
    assert batches.get_outputs()[0].shape == ["batch", 10]
    assert {arg.name: (arg.shape, arg.type) for arg in segments.get_outputs()}["where"] == ([2, None], "tensor(int64)")


def test_outputs_of_segments_come_as_asked(composites):
    session = InferenceSession(composites[1].artifact)
    scores, means = session.run(["scores", "means"], segments_feed())
    every = session.run(None, segments_feed())
    assert np.array_equal(means, every[0])
    assert np.array_equal(scores, every[2])
    assert session.get_modelmeta().graph_name == "whole.onnx"


def test_threads_are_those_of_the_parts(composites):
    for built in composites:
        assert InferenceSession(built.artifact).threads == 1
        assert InferenceSession(built.artifact, threads=1).threads == 1
        with pytest.raises(UsageError, match="at least 1"):
            InferenceSession(built.artifact, threads=0)


def test_no_kind_of_artifact_starts_a_run_that_is_asked_to_end(composites):
    options = onnxruntime.RunOptions()
    options.terminate = True
    for built, feed in zip(composites, (rows(1), segments_feed()), strict=True):
        with pytest.raises(RunError, match="give fresh ones"):
            InferenceSession(built.artifact).run(None, feed, options)


@pytest.mark.parametrize(("isa", "told"), [("avx512", "this machine has generic"), ("neon", "was built for neon")])
def test_an_artifact_of_another_machine_is_read_but_not_run(tiny, monkeypatch, isa, told):
    plain = replace(read_host(), flags=frozenset())
    for module in ("autotune.host.machine", "autotune.backends.cpu.cpu_backend"):
        monkeypatch.setattr(f"{module}.read_host", lambda: plain)
    manifest = read_manifest(tiny.artifact)
    fields = {name: value for name, value in manifest.items() if name not in ("format", "kind", "seal", "attached")}
    write_manifest(tiny.artifact, KERNELS, {**fields, "target": {**manifest["target"], "isa": isa}, "cpu": []})
    assert read_artifact(tiny.artifact).target.isa == isa
    with pytest.raises(ArtifactError, match=told):
        InferenceSession(tiny.artifact)


NOT_TO_RUN = (
    *("tvm", "tvm_ffi", "schedules.templates", "schedules.lower", "tuning_logs.codec", "tuning_logs.sql_store"),
    *("onnx", "sklearn", "skopt", "xgboost", "scipy", "sqlalchemy", "search", "autotune.importer"),
    *("autotune.measure", "autotune.tuning", "autotune.builder", "autotune.backends.cuda", "autotune.cli"),
)
"""What importing, tuning and building need, and running an artifact does not."""

RUN_ALONE = """
import sys
import numpy as np
import autotune

session = autotune.InferenceSession(sys.argv[1])
shapes = {arg.name: [size if isinstance(size, int) else 2 for size in arg.shape] for arg in session.get_inputs()}
session.run(None, {name: np.zeros(shape, np.float32) for name, shape in shapes.items()})
print(*sys.modules)
"""


@pytest.mark.parametrize("kind", ["one shape", "shapes"])
def test_running_an_artifact_loads_nothing_of_importing_and_tuning(kind, tiny_built, composites):
    path = tiny_built.artifact if kind == "one shape" else composites[0].artifact
    command = [sys.executable, "-c", RUN_ALONE, str(path)]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert "autotune.runtime.session" in loaded
    assert [name for name in loaded if name.startswith(tuple(f"{package}." for package in NOT_TO_RUN))] == []
    assert not {*NOT_TO_RUN} & {*loaded}


@pytest.mark.parametrize("timeout_s", [float("inf"), 1e300, 10**30, 60, None])
@pytest.mark.parametrize("serve", [ServeOptions(), ServeOptions(max_batch=8)])
def test_long_time_limits_are_kept(batches, serve, timeout_s):
    session, feed = InferenceSession(batches.artifact, serve=serve), rows(1)
    want = InferenceSession(batches.artifact).run(None, feed)
    assert close(session.run(None, feed, timeout_s=timeout_s), want)
    assert close(session.run_async(None, feed, timeout_s=timeout_s).result(60), want)
    binding = session.io_binding()
    binding.bind_cpu_input("rows", feed["rows"])
    session.run_with_iobinding(binding, timeout_s=timeout_s)
    assert close(binding.get_outputs(), want)


@pytest.mark.parametrize("timeout_s", [float("nan"), -1, "1"])
def test_time_limits_that_are_none_are_told(session, timeout_s):
    feed = {"data": data()}
    binding = session.io_binding()
    binding.bind_cpu_input("data", feed["data"])
    for run in (
        lambda: session.run(None, feed, timeout_s=timeout_s),
        lambda: session.run_async(None, feed, timeout_s=timeout_s),
        lambda: session.run_with_iobinding(binding, timeout_s=timeout_s),
    ):
        with pytest.raises(UsageError, match=r"timeout_s is .*; it must be zero or more seconds"):
            run()


def test_no_time_at_all_is_enough_where_a_stream_is_idle(session):
    feed = {"data": data()}
    assert close(session.run(None, feed, timeout_s=0), session.run(None, feed))


@pytest.fixture(scope="module")
def batches(tmp_path_factory, measurer):
    return two_batches(tmp_path_factory.mktemp("batches"), measurer)


def test_an_output_is_bound_to_an_array_that_fits(session):
    binding = session.io_binding()
    binding.bind_cpu_input("data", data())
    binding.bind_output("scores", array=(target := np.zeros((1, 10), np.float32)))
    binding.bind_output("features", array=np.zeros((2, 32, 8, 8), np.float32))
    with pytest.raises(UsageError, match=r"output 'features' has shape \(1, 32, 8, 8\) .* bind one that fits"):
        session.run_with_iobinding(binding)
    assert not target.any()


def test_no_cancellation_is_lost(tiny_built, batches):
    """A request that is cancelled before its answer is there has none, wherever it is then."""
    for artifact, feed in ((tiny_built.artifact, {"data": data()}), (batches.artifact, rows(20))):
        session = InferenceSession(artifact)
        serving = session._serving
        for number in range(150):
            with held(serving):  # the request waits behind it, in the queue or at the core
                request = session.run_async(None, feed)
                if number % 3 == 1:
                    time.sleep(1e-4 * (number % 10))
                request.cancel()
            with pytest.raises((RunError, CancelledError), match=r"cancelled|^$"):
                request.result(60)
        assert session.run(None, feed)


@pytest.mark.parametrize("whose", ["request", "session"])
def test_a_run_is_cancelled_before_its_first_kernel(batches, monkeypatch, whose):
    entered, go, real = threading.Event(), threading.Event(), MultiShapeExecutor.run

    def late(self, arrays):
        entered.set()
        go.wait(60)
        return real(self, arrays)

    session = InferenceSession(batches.artifact)
    monkeypatch.setattr(MultiShapeExecutor, "run", late)
    request = session.run_async(None, rows(20))
    assert entered.wait(60)
    if whose == "request":
        assert not request.cancel()
    else:
        session.cancel()
    go.set()
    with pytest.raises(RunError, match="cancelled"):
        request.result(60)
    assert session.run(None, rows(20))


def test_cancelling_ends_no_request_that_comes_later(session):
    for _ in range(50):
        session.cancel()
        assert session.run(None, {"data": data()})
