"""An artifact whose kernels crash or hang takes no other process with it."""

import subprocess
import weakref

import numpy as np
import onnx
import psutil
import pytest

from autotune.artifact.manifest import attach
from autotune.artifact.plan import Plan
from autotune.builder import isolated_session
from autotune.builder.accuracy import Built, first_that_passes
from autotune.builder.isolated_session import Call, CrashError, IsolatedSession, SessionHandler, compare_isolated
from autotune.host.worker_pool import ForkServerProcess
from autotune.runtime.session import InferenceSession
from autotune.validation.reference_runs import Reference
from autotune.validation.verify import compare_artifact, session_inputs
from schedules.vocabulary.errors import ArtifactError, RunError, UsageError, VerificationError
from tests.autotune_tests.tiny import target

HARM = {
    "SIGSEGV": "*(volatile int*)0 = 0;",
    "SIGFPE": "volatile int zero = 0; zero = 7 / zero;",
    "SIGILL": "__builtin_trap();",
    "SIGABRT": "abort();",
    "exit status 3": "_exit(3);",
}


def harm(artifact, code):
    """Put a library in place of the artifact's that runs ``code`` when it is opened."""
    source = f"#include <stdlib.h>\n#include <unistd.h>\n__attribute__((constructor)) void harm(void) {{ {code} }}\n"
    library = artifact.parent / "harm.so"
    command = ["gcc", "-O0", "-shared", "-fPIC", "-x", "c", "-", "-o", library]
    subprocess.run(command, input=source.encode(), check=True)
    attach(artifact, "model.so", library.read_bytes())
    return artifact


def test_it_answers_as_a_session_does(tiny):
    session = InferenceSession(tiny.artifact)
    feed = session_inputs(session, 3)
    with IsolatedSession(tiny.artifact) as isolated:
        assert [(arg.name, arg.shape, arg.dtype) for arg in isolated.get_inputs()] == [
            (arg.name, arg.shape, arg.dtype) for arg in session.get_inputs()
        ]
        for mine, other in zip(isolated.run(None, feed), session.run(None, feed), strict=True):
            np.testing.assert_array_equal(mine, other)
        with pytest.raises(UsageError):
            isolated.run(None, {})
        assert len(isolated.run(None, feed)) == 2  # it goes on after an error
    reference = Reference(onnx.load(tiny.model))
    assert compare_isolated(tiny.artifact, reference, 5) == compare_artifact(tiny.artifact, reference, 5)


def test_what_cannot_be_opened_is_refused_as_by_a_session(tiny):
    (tiny.artifact / "model.so").write_bytes(b"")
    with pytest.raises(ArtifactError, match=r"model\.so was changed"):
        IsolatedSession(tiny.artifact)


@pytest.mark.parametrize("cause", HARM)
def test_a_crash_is_an_error_of_one_line(tiny, cause):
    with pytest.raises(CrashError, match=cause) as caught:
        IsolatedSession(harm(tiny.artifact, HARM[cause]))
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, RunError)


def test_one_that_hangs_is_killed(tiny, monkeypatch):
    monkeypatch.setattr(isolated_session, "TIMEOUT_S", 0.5)
    with pytest.raises(CrashError, match="not done within"):
        IsolatedSession(harm(tiny.artifact, "for (;;) sleep(1);"))


def test_artifacts_that_need_a_device_share_a_process_until_one_fails(tiny, tiny_built, monkeypatch):
    """Its start takes seconds. A fork would have what the server has, so it must be none; and forks are not shared."""
    feed = session_inputs(InferenceSession(tiny_built.artifact), 3)
    with ForkServerProcess() as server:

        def pid(artifact):
            with IsolatedSession(artifact, server) as session:
                assert len(session.run(None, feed)) == 2
                return session._pool.workers[0].pid

        assert pid(tiny.artifact) != pid(tiny_built.artifact)
        monkeypatch.setattr(isolated_session, "_runs_in_forks", lambda _: False)
        shared = pid(tiny.artifact)
        assert pid(tiny_built.artifact) == shared
        assert psutil.Process(shared).cmdline()[-1].endswith(".pickle")
        with pytest.raises(CrashError, match="SIGSEGV"):
            pid(harm(tiny.artifact, HARM["SIGSEGV"]))
        assert not psutil.pid_exists(shared)
        again = pid(tiny_built.artifact)
        with pytest.raises(UsageError), IsolatedSession(tiny_built.artifact, server) as session:
            session.run(None, {})  # as where a context is lost: the next artifact gets another process
        assert not psutil.pid_exists(again)
        assert pid(tiny_built.artifact) != again


def test_a_process_that_is_kept_gives_the_memory_of_an_artifact_back(tiny_built):
    handler = SessionHandler(None)
    described = handler.answer(Call(artifact=tiny_built.artifact, opens=True, timeout_s=1))
    assert described.inputs
    session = weakref.ref(handler._session)
    assert handler.answer(Call(artifact=tiny_built.artifact, closes=True, timeout_s=1)) is None
    assert session() is None


def test_a_build_goes_on_with_other_kernels_after_a_crash(tiny, tiny_built, caplog):
    plan, model = Plan(target(), ()), onnx.load(tiny.model)
    crashing, right = Built(harm(tiny.artifact, HARM["SIGFPE"]), plan), Built(tiny_built.artifact, plan)
    passed = first_that_passes(tiny.artifact, model, 0, [crashing, right])
    assert passed is not None
    assert passed.artifact is right
    assert passed.verdict.passed
    assert "SIGFPE" in caplog.text
    assert "it is built again of other kernels" in caplog.text
    with pytest.raises(VerificationError, match=r"SIGFPE.*report the model and --seed 7"):
        first_that_passes(tiny.artifact, model, 7, [crashing, crashing])
