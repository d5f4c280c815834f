"""An artifact that runs in a process of its own, which may crash or hang without harm to this one.

Its kernels may never have run before: guesses for tasks without records, records of another machine. What verifies the
artifact goes on after a crash, and tries an artifact of other kernels.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from numpy.typing import NDArray

from autotune.artifact.directory import Artifact, read_artifact
from autotune.backends.backend_catalog import backend_of
from autotune.host.fork_server import Handler, Job, Refused, Start
from autotune.host.worker_pool import ForkServerProcess, Lost, WorkerPool
from autotune.runtime.onnxruntime_compat import ModelMeta
from autotune.runtime.session import InferenceSession, NodeArg
from autotune.validation.arithmetic.reference_engines import Arrays
from autotune.validation.reference_runs import Reference
from autotune.validation.verdict import Verdict
from autotune.validation.verify import compare_session, session_inputs
from schedules.vocabulary.errors import AutotuneError, RunError

START = Start("autotune.builder.isolated_session:SessionHandler", None)

TIMEOUT_S = 600.0
"""Wall-clock limit of opening an artifact and of one run. Heuristic: one that exceeds it hangs."""


class CrashError(RunError):
    """The process that ran an artifact died, or did not end in time."""


@dataclass(frozen=True)
class Description:
    """The description that a session gives of itself."""

    inputs: list[NodeArg]
    noise: list[NodeArg]
    outputs: list[NodeArg]
    meta: ModelMeta


@dataclass(frozen=True, kw_only=True)
class Call(Job):
    """One run of the artifact, or without ``feed`` its description.

    Attributes:
        opens: whether it is opened first, in place of another one.
        closes: whether it is closed instead, which gives back a device's memory.
    """

    artifact: Path
    opens: bool = False
    closes: bool = False
    feed: Arrays | None = None


class SessionHandler(Handler):
    """Runs one artifact at a time, opened by a job, so never before a fork."""

    def __init__(self, _settings: object) -> None:
        self._session: InferenceSession | None = None

    def answer(self, job: Call) -> Description | list[NDArray[Any]] | Refused | None:
        """Do one job."""
        try:
            if job.opens or job.closes:
                self._session = None
                gc.collect()  # the device's memory goes with the last reference
            if job.closes:
                return None
            session = self._session = self._session or InferenceSession(job.artifact)
            if job.feed is not None:
                return session.run(None, job.feed)
            inputs, noise = session.get_inputs(), session.get_overridable_initializers()
            return Description(inputs, noise, session.get_outputs(), session.get_modelmeta())
        except AutotuneError as error:
            return Refused(error)


def _runs_in_forks(artifact: Artifact) -> bool:
    """Return whether a fork can run ``artifact``; it cannot use a device's context (``host/fork_server.py``)."""
    parts = (artifact, *map(artifact.open_device_part, artifact.device_parts))
    return all(backend_of(part.target).forks for part in parts)


class IsolatedSession(AbstractContextManager["IsolatedSession"]):
    """The part of ``InferenceSession`` that verification needs, answered by a process of its own.

    Args:
        server: of the run; None starts one for this artifact alone. A fork of it costs milliseconds, so each artifact
            of CPU kernels gets one. A process that uses a device takes seconds to start, so it runs one artifact after
            another until one fails: the device's context may then be lost.

    Raises:
        CrashError: from any method, if that process dies or does not answer in time.
        AutotuneError: as ``InferenceSession``.
    """

    def __init__(self, artifact: Path, server: ForkServerProcess | None = None) -> None:
        self._artifact = artifact
        self._is_fork = _runs_in_forks(read_artifact(artifact))
        self._own = ExitStack()
        server = server or self._own.enter_context(ForkServerProcess())
        self._pool = WorkerPool(server, START, 1, tries=1) if self._is_fork else server.kept(START, fresh=True)
        try:
            self._description: Description = self._asked(Call(artifact=artifact, opens=True, timeout_s=TIMEOUT_S))
        except BaseException as error:  # Ctrl-C, too, leaves no process
            self.__exit__(type(error), error)
            raise

    def __exit__(self, *exc: object) -> None:
        if self._is_fork or any(exc):
            self._pool.close()
        else:
            self._asked(Call(artifact=self._artifact, closes=True, timeout_s=TIMEOUT_S))
        self._own.close()

    def get_inputs(self) -> list[NodeArg]:
        """The model's inputs, in order."""
        return self._description.inputs

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The inputs of noise."""
        return self._description.noise

    def get_outputs(self) -> list[NodeArg]:
        """The model's outputs, in order."""
        return self._description.outputs

    def get_modelmeta(self) -> ModelMeta:
        """The provenance of the artifact."""
        return self._description.meta

    def run(self, output_names: Sequence[str] | None, feed: Arrays) -> list[NDArray[Any]]:
        """Every output."""
        outputs: list[NDArray[Any]] = self._asked(Call(artifact=self._artifact, timeout_s=TIMEOUT_S, feed=feed))
        return outputs

    def _asked(self, job: Call) -> Any:
        (answer,) = self._pool.run([job])
        if isinstance(answer, Lost):
            raise CrashError(f"the process that ran {self._artifact.name} failed: {answer.message}")
        return answer


def compare_isolated(
    artifact: Path, reference: Reference, seed: int = 0, server: ForkServerProcess | None = None
) -> Verdict:
    """Work like ``verify.compare_artifact``, with the artifact in a process of its own.

    Raises:
        CrashError: if that process dies or does not answer in time.
    """
    with IsolatedSession(artifact, server) as session:
        return compare_session(cast(InferenceSession, session), reference, seed)  # it has what that asks for


def run_isolated(artifact: Path, seed: int = 0, server: ForkServerProcess | None = None) -> None:
    """Run the artifact once on random inputs in a process of its own, and compare nothing.

    Raises:
        CrashError: if that process dies or does not answer in time.
    """
    with IsolatedSession(artifact, server) as session:
        session.run(None, session_inputs(cast(InferenceSession, session), seed))
