"""An artifact that runs in a process of its own, which may crash or hang without harm to this one.

Its kernels may never have run before: guesses for tasks without records, records of another machine. What verifies the
artifact goes on after a crash, and tries an artifact of other kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from numpy.typing import NDArray

from autotune.host.fork_server import Handler, Job, Refused
from autotune.host.worker_pool import ForkServerProcess, Lost, WorkerPool
from autotune.runtime.onnxruntime_compat import ModelMeta
from autotune.runtime.session import InferenceSession, NodeArg
from autotune.validation.reference_runs import Arrays, Reference
from autotune.validation.verdict import Verdict
from autotune.validation.verify import compare_session
from schedules.vocabulary.errors import AutotuneError, RunError

HANDLER = "autotune.builder.isolated_session:SessionHandler"

TIMEOUT_S = 600.0
"""Wall-clock limit of opening an artifact and of one run. Heuristic: one that exceeds it hangs."""


class CrashError(RunError):
    """The process that ran an artifact died, or did not end in time."""


@dataclass(frozen=True)
class Description:
    """What a session says of itself."""

    inputs: list[NodeArg]
    noise: list[NodeArg]
    outputs: list[NodeArg]
    meta: ModelMeta


@dataclass(frozen=True, kw_only=True)
class Call(Job):
    """One run, or without ``feed`` a description."""

    feed: Arrays | None = None


class SessionHandler(Handler):
    """Runs one artifact, opened by the first job, so never before a fork."""

    def __init__(self, artifact: Path) -> None:
        self._artifact = artifact
        self._session: InferenceSession | None = None

    def answer(self, job: Call) -> Description | list[NDArray[Any]] | Refused:
        """Do one job."""
        try:
            session = self._session = self._session or InferenceSession(self._artifact)
            if job.feed is not None:
                return session.run(None, job.feed)
            inputs, noise = session.get_inputs(), session.get_overridable_initializers()
            return Description(inputs, noise, session.get_outputs(), session.get_modelmeta())
        except AutotuneError as error:
            return Refused(error)


class IsolatedSession(AbstractContextManager["IsolatedSession"]):
    """What verification asks of an ``InferenceSession``, answered by a process of its own.

    Raises:
        CrashError: from any method, if that process dies or does not answer in time.
        AutotuneError: as ``InferenceSession``.
    """

    def __init__(self, artifact: Path) -> None:
        self._artifact = artifact
        self._server = ForkServerProcess(HANDLER, artifact)
        try:
            self._pool = WorkerPool(self._server, 1, tries=1)
            self._description: Description = self._asked(Call(timeout_s=TIMEOUT_S))
        except BaseException:  # Ctrl-C, too, leaves no process
            self._server.close()
            raise

    def __exit__(self, *_: object) -> None:
        self._server.close()

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
        outputs: list[NDArray[Any]] = self._asked(Call(timeout_s=TIMEOUT_S, feed=feed))
        return outputs

    def _asked(self, job: Call) -> Any:
        (answer,) = self._pool.run([job])
        if isinstance(answer, Lost):
            raise CrashError(f"the process that ran {self._artifact.name} failed: {answer.message}")
        return answer


def compare_isolated(artifact: Path, reference: Reference, seed: int = 0) -> Verdict:
    """Work like ``verify.compare_artifact``, with the artifact in a process of its own.

    Raises:
        CrashError: if that process dies or does not answer in time.
    """
    with IsolatedSession(artifact) as session:
        return compare_session(cast(InferenceSession, session), reference, seed)  # it has what that asks for
