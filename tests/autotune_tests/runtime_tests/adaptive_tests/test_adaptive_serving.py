"""A session that answers from the first call and tunes meanwhile: right before and after kernels are swapped in."""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime
import psutil
import pytest

import autotune
from autotune.runtime.adaptive import adaptive_serving, tuner_process
from autotune.runtime.adaptive.adaptive_serving import TICK_S, AdaptiveServing
from autotune.runtime.adaptive.routes import KERNELS
from autotune.runtime.serve_options import ServeOptions
from schedules.vocabulary.errors import ArtifactError, BusyError, InstallError, ModelError, UsageError
from tests.autotune_tests.runtime_tests.adaptive_tests.waiting import wait_for
from tests.conftest import keep_code
from tests.models import save

ADAPT = autotune.Adapt(cpu_share=1.0, until="99%")
BATCHES = (1, 8)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("adaptive") / "rows.onnx"
    save("tiny_open_batch", path)
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Folders of the user's own, the same for all tests that do not ask for others."""
    folder = tmp_path_factory.mktemp("home")
    keep_code(folder / "cache")
    return {"XDG_CACHE_HOME": str(folder / "cache"), "XDG_DATA_HOME": str(folder / "data")}


@pytest.fixture
def at_home(home, monkeypatch):
    for name, place in home.items():
        monkeypatch.setenv(name, place)
    monkeypatch.setattr(tuner_process, "WAIT_S", 1e-2)


@pytest.fixture
def elsewhere(at_home, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def opened(model):
    """Opens sessions, and closes them."""
    sessions = []

    def open_session(path=model, adapt=ADAPT, **changes):
        sessions.append(autotune.InferenceSession(path, threads=1, adapt=adapt, **changes))
        return sessions[-1]

    yield open_session
    for session in sessions:
        session.close()


@pytest.fixture(scope="module")
def reference(model):
    return onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])


def feed(batch, seed=0):
    return {"rows": np.random.default_rng(seed).standard_normal((batch, 24)).astype(np.float32)}


def agrees(session, reference, arguments):
    outputs, wanted = session.run(None, arguments), reference.run(None, arguments)
    return all(a.shape == b.shape and np.allclose(a, b, 1e-3, 1e-5) for a, b in zip(outputs, wanted, strict=True))


def pid_of(session):
    wait_for(lambda: session.status()["pid"])
    return session.status()["pid"]


@pytest.fixture(scope="module")
def tuned(model, home, reference):
    """The answers of a session to threads, from its first call until nothing was left to tune, and its states."""
    messages, stop, right = [], threading.Event(), []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logger = logging.getLogger("autotune.runtime.adaptive")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logger, "handlers", [handler])
        patch.setattr(logger, "level", logging.INFO)
        for name, place in home.items():
            patch.setenv(name, place)
        session = autotune.InferenceSession(model, threads=1, adapt=ADAPT)
        states = [session.status()]
        right.append(agrees(session, reference, feed(BATCHES[0])))
        states.append(session.status())

        def ask(seed):
            count = 0
            while not stop.wait(1e-2):
                count += 1
                right.append(agrees(session, reference, feed(BATCHES[count % 2], seed + count)))

        def is_done():
            status = session.status()
            return status["tuner"] == "idle" and not status["pid"] and all(size["gain"] for size in status["sizes"])

        with ThreadPoolExecutor(4) as pool:
            asking = [pool.submit(ask, seed) for seed in range(4)]
            try:
                wait_for(lambda: session.status()["pid"])
                wait_for(is_done)
                time.sleep(2 * TICK_S)  # a last look at the tuner, that has ended, times both engines again
                wait_for(is_done)
            finally:
                stop.set()
            for future in asking:
                future.result()
        states.append(session.status())
        session.close()
    return right, states, messages


def test_threads_get_right_answers_before_and_after_kernels_are_there(tuned):
    right, (before, first, after), messages = tuned
    assert (before["tuner"], before["pid"], before["artifact"], before["sizes"]) == ("none", None, None, [])
    (size,) = first["sizes"]
    assert (size["engine"], size["requests"], size["gain"]) == ("onnxruntime", {"onnxruntime": 1, "kernels": 0}, None)
    assert all(right)
    assert [size["up_to"] for size in after["sizes"]] == [[batch] for batch in BATCHES]
    assert all(size["requests"]["kernels"] > 0 for size in after["sizes"])
    assert sum(sum(size["requests"].values()) for size in after["sizes"]) >= len(right)
    assert any("run on" in text and "times as fast as ONNX Runtime" in text for text in messages)


@pytest.mark.usefixtures("at_home")
def test_the_interface_is_the_model_s(opened, reference):
    session = opened()
    for ours, theirs in (
        (session.get_inputs(), reference.get_inputs()),
        (session.get_outputs(), reference.get_outputs()),
    ):
        assert [(arg.name, arg.shape, arg.type) for arg in ours] == [(arg.name, arg.shape, arg.type) for arg in theirs]
    assert agrees(session, reference, feed(64))  # in pieces, or by ONNX Runtime


@pytest.mark.usefixtures("at_home", "tuned")
def test_another_process_begins_with_what_is_cached(model, reference, opened):
    script = f"""
        import json, sys
        import numpy as np
        import autotune
        session = autotune.InferenceSession({str(model)!r}, threads=1, adapt=True)
        artifact = session.status()["artifact"]
        shapes = [arg.shape for arg in session.get_inputs()]
        rows = np.random.default_rng(0).standard_normal((8, 24)).astype(np.float32)
        made = session.run(None, {{"rows": rows}})
        print(json.dumps([artifact, shapes, made[0].tolist(), session.status()["sizes"], "onnxruntime" in sys.modules]))
        session.close()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    artifact, shapes, output, sizes, has_onnxruntime = json.loads(done.stdout)
    assert artifact is not None
    assert shapes == [["batch", 24]]
    assert np.allclose(output, reference.run(None, feed(8))[0], 1e-3, 1e-5)
    engines = {tuple(size["up_to"]): size["engine"] for size in sizes}
    assert set(engines) == {(batch,) for batch in BATCHES}
    assert has_onnxruntime == (engines[(8,)] == "onnxruntime")
    session = opened()
    assert session.status()["artifact"] == artifact
    assert session.profile(feed(8))  # of the kernels
    assert agrees(session, reference, feed(5))


@pytest.mark.usefixtures("elsewhere")
def test_a_killed_tuner_loses_no_answer_and_is_started_again(opened, reference):
    session = opened()
    assert agrees(session, reference, feed(2))
    first = pid_of(session)
    os.kill(first, signal.SIGKILL)
    seen = set()

    def another():
        seen.add(session.status()["pid"])
        return agrees(session, reference, feed(2)) and seen - {first, None}

    wait_for(another)
    wait_for(lambda: agrees(session, reference, feed(2)) and session.status()["artifact"])


@pytest.mark.usefixtures("elsewhere")
def test_close_ends_the_tuner_and_answers_go_on(opened, reference):
    session = opened()
    assert agrees(session, reference, feed(2))
    tuner = psutil.Process(pid_of(session))
    started = [tuner, *tuner.children(recursive=True)]
    session.close()
    session.close()
    assert session.status()["pid"] is None
    assert session.status()["tuner"] == "ended"
    psutil.wait_procs(started, 60)
    assert not any(process.is_running() for process in started)
    assert agrees(session, reference, feed(7))


@pytest.mark.usefixtures("elsewhere")
def test_a_process_ends_while_it_tunes_and_leaves_nothing(model):
    script = f"""
        import time
        import numpy as np
        import autotune
        session = autotune.InferenceSession({str(model)!r}, threads=1, adapt=True)
        session.run(None, {{"rows": np.zeros((2, 24), np.float32)}})
        while not session.status()["pid"]:
            time.sleep(0.01)
        print(session.status()["pid"])
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    wait_for(lambda: not psutil.pid_exists(int(done.stdout)))


@pytest.mark.usefixtures("elsewhere")
def test_a_session_that_is_gone_has_no_tuner(model):
    session = autotune.InferenceSession(model, threads=1, adapt=ADAPT)
    session.run(None, feed(2))
    tuner = psutil.Process(pid_of(session))
    del session
    tuner.wait(60)


@pytest.mark.usefixtures("elsewhere")
def test_a_cache_that_cannot_be_written_is_said_and_changes_no_answer(opened, reference, tmp_path, caplog):
    (tmp_path / "cache").write_bytes(b"no folder")
    session = opened()
    assert all(agrees(session, reference, feed(batch)) for batch in (1, 2, 9))
    assert session.status()["tuner"].startswith("nothing is tuned: the cache cannot be written (")
    assert session.status()["pid"] is None
    assert len(caplog.messages) == 1


@pytest.mark.usefixtures("elsewhere", "tuned")
def test_a_damaged_artifact_is_not_used(opened, reference, home, tmp_path):
    shutil.copytree(home["XDG_CACHE_HOME"], tmp_path / "cache", symlinks=True, dirs_exist_ok=True)
    (artifact,) = (tmp_path / "cache").glob("tune-compiler/adaptive/*/model.tuned")
    shutil.rmtree(artifact / "part-0", ignore_errors=True)
    (artifact / "manifest.json").write_text("{")
    session = opened()
    assert session.status()["artifact"] is None
    assert agrees(session, reference, feed(2))


@pytest.mark.usefixtures("at_home", "tuned")
def test_kernels_that_answer_otherwise_are_not_used(opened, reference, monkeypatch, caplog):
    monkeypatch.setattr(adaptive_serving, "agree", lambda *_: False)
    session = opened()
    assert session.status()["artifact"]
    monkeypatch.setattr(session._serving, "_start", lambda: None)
    session._serving._routes.begin_again()
    assert all(agrees(session, reference, feed(8, seed)) for seed in range(3))
    (size,) = (size for size in session.status()["sizes"] if size["up_to"] == [8])
    assert size["engine"] == "onnxruntime"
    assert any("their answers differ" in text for text in caplog.messages)


@pytest.mark.usefixtures("at_home", "tuned")
def test_nobody_gets_an_answer_of_kernels_before_it_was_compared(opened, reference, monkeypatch):
    session = opened()
    monkeypatch.setattr(session._serving, "_start", lambda: None)
    session._serving._routes.begin_again()
    asked = []

    def wrong(arrays, timeout_s):
        asked.append(threading.get_ident())
        time.sleep(0.2)  # while others ask
        return [np.zeros_like(array) for array in reference.run(None, {"rows": arrays[0]})]

    monkeypatch.setattr(session._serving._tuned.serving, "run", wrong)
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda seed: agrees(session, reference, feed(8, seed)), range(64)))
    assert len(asked) == 1


@pytest.mark.usefixtures("at_home", "tuned")
def test_an_artifact_that_cannot_serve_is_opened_once(opened, monkeypatch):
    counted = []

    def refused(*_):
        counted.append(1)
        raise ArtifactError("not for this machine")

    monkeypatch.setattr(adaptive_serving, "Serving", refused)
    session = opened()
    for _ in range(5):
        session._serving._swap()
    assert len(counted) == 1


@pytest.mark.parametrize(
    ("ours", "wanted", "same"),
    [
        ([1.0, 2.0], [1.0, 2.001], True),
        ([1.0, 2.0], [1.0, 2.5], False),
        ([1.0, np.nan], [1.0, np.nan], True),
        ([1.0, np.inf], [1.0, 1.0], False),
        ([[1.0]], [1.0], False),
        ([1, 2], [1, 2], True),
        ([1, 2], [1, 3], False),
        ([1, 2], [1.0, 2.0], False),
    ],
)
def test_answers_agree_within_bounds(ours, wanted, same):
    assert adaptive_serving.agree(np.array(ours), np.array(wanted)) == same


@pytest.mark.usefixtures("elsewhere")
def test_futures_bindings_and_wrong_inputs(opened, reference):
    session = opened()
    (name,) = (arg.name for arg in session.get_outputs())
    outputs = session.run_async([name], feed(3)).result(60)
    assert np.allclose(outputs[0], reference.run(None, feed(3))[0], 1e-3, 1e-5)
    binding = session.io_binding()
    binding.bind_cpu_input("rows", feed(3)["rows"])
    binding.bind_output(name)
    session.run_with_iobinding(binding)
    assert np.allclose(binding.copy_outputs_to_cpu()[0], outputs[0])
    with pytest.raises(UsageError, match=r"input 'rows' has shape \(3, 25\), .* for \?x24"):
        session.run(None, {"rows": np.zeros((3, 25), np.float32)})
    with pytest.raises(UsageError, match="leave reload out"):
        session.reload()
    with pytest.raises(UsageError, match="nothing is tuned yet"):
        session.profile(feed(3))


@pytest.mark.usefixtures("elsewhere")
def test_the_child_of_a_fork_answers(opened, reference):
    session = opened()
    assert agrees(session, reference, feed(2))
    own = pid_of(session)
    wanted = reference.run(None, feed(3))[0]
    pid = os.fork()
    if not pid:
        code = 1
        try:
            right = np.allclose(session.run(None, feed(3))[0], wanted, 1e-3, 1e-5)
            code = 0 if right and session.status()["pid"] != own else 1
            session.close()
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert agrees(session, reference, feed(2))


@pytest.mark.usefixtures("at_home", "tuned")
def test_the_child_of_a_fork_has_the_kernels_whatever_threads_of_its_parent_did(opened, reference):
    session = opened()
    serving = session._serving
    serving._start = lambda: None
    wanted = reference.run(None, feed(8))[0]
    serving._routes.choose(serving._routes.of(((8, 24),))[0], KERNELS)
    serving._routes._lock.acquire()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            signal.alarm(60)
            before = serving._routes.of(((8, 24),))[0].requests[KERNELS]
            right = np.allclose(session.run_async(None, feed(8)).result()[0], wanted, 1e-3, 1e-5)
            code = 0 if right and serving._routes.of(((8, 24),))[0].requests[KERNELS] == before + 1 else 1
        finally:
            os._exit(code)
    serving._routes._lock.release()
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.usefixtures("at_home", "tuned")
def test_another_request_compares_when_the_first_was_interrupted(opened, reference, monkeypatch):
    session = opened()
    serving = session._serving
    monkeypatch.setattr(serving, "_start", lambda: None)
    serving._routes.begin_again()
    real = serving._on_kernels

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(serving, "_on_kernels", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.run(None, feed(8))
    monkeypatch.setattr(serving, "_on_kernels", real)
    assert agrees(session, reference, feed(8))
    assert serving._routes.of(((8, 24),))[0].is_checked


@pytest.mark.usefixtures("elsewhere")
def test_requests_that_nobody_waits_for_are_bounded(opened, reference):
    session = opened(serve=ServeOptions(max_queue=2))
    go, real = threading.Event(), session._serving._model.run
    session._serving._model.run = lambda *arguments: go.wait(60) and real(*arguments)
    requests = [session.run_async(None, feed(2, seed)) for seed in range(1 + 2)]
    with pytest.raises(BusyError, match="2 requests were waiting"):
        session.run_async(None, feed(2), timeout_s=0.02)
    assert requests[-1].cancel()
    go.set()
    for seed, request in enumerate(requests[:-1]):
        assert np.allclose(request.result(60)[0], reference.run(None, feed(2, seed))[0], 1e-3, 1e-5)


@pytest.mark.usefixtures("at_home", "tuned")
def test_kernels_are_profiled_on_the_inputs_that_they_take(opened, monkeypatch):
    """Kernels of recurrent models have inputs that say which positions count."""
    session = opened()
    profiled = []
    tuned = session._serving._tuned
    monkeypatch.setattr(tuned, "completed", lambda arrays: [*arrays, "live"])
    monkeypatch.setattr(tuned.serving, "_on_stream", lambda work, _: work(Executor()))
    monkeypatch.setattr(tuned.serving, "_streams", None)

    class Executor:
        def profile(self, arrays):
            profiled.append(arrays[1])

        timeline = profile

    session.profile(feed(8))
    session.timeline(feed(8))
    assert profiled == ["live", "live"]


def test_without_adapt_there_is_nothing_to_say(tiny_built):
    session = autotune.InferenceSession(tiny_built.artifact)
    with pytest.raises(UsageError, match="open the model with adapt=True"):
        session.status()
    session.close()


@pytest.mark.usefixtures("elsewhere")
def test_what_cannot_be_served_is_refused(model, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="max_batch is 8; adapt joins no requests"):
        autotune.InferenceSession(model, adapt=True, serve=ServeOptions(max_batch=8))
    with pytest.raises(UsageError, match="adapt is 1; give True"):
        autotune.InferenceSession(model, adapt=1)
    with pytest.raises(ModelError, match=r"none\.onnx"):
        autotune.InferenceSession(tmp_path / "none.onnx", adapt=True)
    with pytest.raises(ModelError, match="is not a file"):
        autotune.InferenceSession(tmp_path, adapt=True)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InstallError, match=r"rows\.onnx runs on ONNX Runtime, which is not installed"):
        AdaptiveServing(model, 1, ServeOptions(), ADAPT)
