"""Code that was written for onnxruntime's session runs unchanged; what is ignored is said."""

import logging
import threading

import numpy as np
import onnxruntime
import pytest

from autotune.runtime.session import InferenceSession
from schedules.vocabulary.errors import ArtifactError, RunError, UsageError


@pytest.fixture(scope="module")
def feed():
    return {"data": np.random.default_rng(0).standard_normal((1, 16, 8, 8)).astype(np.float32)}


def serve(session, feed):
    """What a user of onnxruntime does."""
    inputs, outputs = session.get_inputs(), session.get_outputs()
    names = [output.name for output in outputs]
    options = onnxruntime.RunOptions()
    options.log_severity_level = 3
    results = session.run(names, {inputs[0].name: feed[inputs[0].name]}, options)
    told = [(arg.name, arg.shape, arg.type) for arg in (*inputs, *outputs)]
    return told, session.get_providers(), dict(zip(names, results, strict=True))


def test_the_same_code_runs_on_both(tiny_built, feed):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    providers = ["CPUExecutionProvider"]
    theirs = serve(onnxruntime.InferenceSession(str(tiny_built.model), options, providers=providers), feed)
    ours = serve(InferenceSession(str(tiny_built.artifact), options, providers=providers), feed)
    assert ours[:2] == theirs[:2]
    for name, expected in theirs[2].items():
        np.testing.assert_allclose(ours[2][name], expected, rtol=1e-3, atol=1e-5)


def test_other_providers_are_ignored_aloud(tiny_built, caplog):
    providers = [("CUDAExecutionProvider", {"device_id": 0}), "CPUExecutionProvider"]
    with caplog.at_level(logging.WARNING):
        session = InferenceSession(tiny_built.artifact, providers=providers)
    assert "CUDAExecutionProvider are ignored" in caplog.text
    assert session.get_providers() == ["CPUExecutionProvider"]
    caplog.clear()
    session.set_providers(["CPUExecutionProvider"])
    assert caplog.text == ""


@pytest.mark.parametrize("arguments", [{"sess_options": 1}, {"threads": 1}, {}])
def test_threads_come_from_wherever_they_are_said(tiny_built, arguments):
    assert InferenceSession(tiny_built.artifact, **arguments).threads == 1


@pytest.mark.parametrize("threads", [2.5, "4", True, [1], -1, 10**30])
def test_threads_that_are_no_count_are_told(tiny_built, threads):
    with pytest.raises(UsageError, match="at least 1 and at most 4096"):
        InferenceSession(tiny_built.artifact, threads=threads)


@pytest.mark.parametrize("path", [None, 3, "a\0b", ["model.tuned"]])
def test_what_is_no_path_is_told(path):
    with pytest.raises(UsageError, match="is no path"):
        InferenceSession(path)


def test_other_arguments_of_a_wrong_type_are_told(tiny_built, feed, caplog):
    with pytest.raises(UsageError, match=r"give autotune\.ServeOptions"):
        InferenceSession(tiny_built.artifact, serve={"streams": 2})
    session = InferenceSession(tiny_built.artifact, providers="CPUExecutionProvider")
    assert caplog.text == ""
    InferenceSession(tiny_built.artifact, providers=[5])
    assert "providers 5 are ignored" in caplog.text
    for names, said in (
        ("scores", "output_names is 'scores'; give a list"),
        (7, "is 7; give a list"),
        ([7], "output 7"),
    ):
        with pytest.raises(UsageError, match=said):
            session.run(names, feed)
    with pytest.raises(UsageError, match="no input 7"):
        session.run(None, {7: feed["data"], **feed})


@pytest.mark.parametrize("kind", [iter, tuple, np.array])
def test_names_of_outputs_may_be_of_any_kind_of_sequence(tiny_built, feed, kind):
    session = InferenceSession(tiny_built.artifact)
    want = session.run(None, feed)
    for got in (session.run(kind(["features"]), feed), session.run_async(kind(["features"]), feed).result(20)):
        assert [array.tolist() for array in got] == [want[1].tolist()]


def test_zero_threads_of_session_options_mean_the_default(tiny_built):
    assert InferenceSession(tiny_built.artifact, onnxruntime.SessionOptions()).threads == 1


def test_what_cannot_be_is_told(tiny_built, feed):
    with pytest.raises(UsageError, match="at least 1"):
        InferenceSession(tiny_built.artifact, threads=0)
    with pytest.raises(UsageError, match="not bytes; save the model"):
        InferenceSession(tiny_built.model.read_bytes())
    with pytest.raises(ArtifactError, match="tune run MODEL"):
        InferenceSession(tiny_built.model)
    options = onnxruntime.RunOptions()
    options.terminate = True
    with pytest.raises(RunError, match="give fresh ones"):
        InferenceSession(tiny_built.artifact).run(None, feed, options)


def test_the_rest_of_the_interface_answers(tiny_built):
    session = InferenceSession(tiny_built.artifact)
    assert session.get_modelmeta().graph_name == "tiny.onnx"
    assert session.get_modelmeta().custom_metadata_map["sha256"]
    assert session.get_overridable_initializers() == []
    assert session.get_provider_options() == {"CPUExecutionProvider": {}}
    session.disable_fallback()
    session.enable_fallback()


def test_threads_that_share_a_session_get_their_own_results(tiny_built):
    session = InferenceSession(tiny_built.artifact)
    rng = np.random.default_rng(1)
    feeds = [{"data": rng.standard_normal((1, 16, 8, 8)).astype(np.float32)} for _ in range(4)]
    expected = [session.run(["scores"], feed)[0] for feed in feeds]
    wrong = []

    def work(number):
        for _ in range(20):
            got = session.run(["scores"], feeds[number])[0]
            if not np.array_equal(got, expected[number]):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
