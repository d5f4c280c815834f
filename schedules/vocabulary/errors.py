"""The error tree of the whole project, and the one guard for illegal candidates.

    AutotuneError            every error a user can meet; its text is one sentence: what, with which values, what to do
    ├── ScheduleError        a config cannot be applied to a program (an illegal candidate, recorded and survived)
    ├── ModelError           the ONNX model cannot be read, or asks for something that is not supported
    │   ├── UnsupportedError an operator of a sound model cannot be imported, which ONNX Runtime may be able to run
    │   └── OneSetError      a sound model is tuned for one set of shapes alone
    ├── UsageError           an option or argument is wrong
    ├── InstallError         installed packages are missing or known not to work together
    ├── LogError             the tuning log cannot be opened, read or written
    ├── MissingRecordError   a frozen run or a build needs records that the log does not have
    ├── ArtifactError        an artifact cannot be written, read or trusted
    ├── MeasureError         measuring itself is broken (never one candidate's failure)
    │   └── CompileError     a kernel that is to be shipped does not compile
    ├── RunError             a kernel failed while a model ran, or the run was cancelled
    │   └── BusyError        a request was not run, because others took all of the time that it allowed
    └── VerificationError    outputs differ from the reference

Anything else that escapes is a bug and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable


class AutotuneError(Exception):
    """Root of every error this project raises on purpose."""


class ScheduleError(AutotuneError):
    """A config that cannot be applied to a program."""


class ModelError(AutotuneError):
    """A model that cannot be read or is not supported."""


class UnsupportedError(ModelError):
    """An operator, or a form of one, that cannot be imported; the model itself is sound."""


class OneSetError(ModelError):
    """A model that is tuned for one set of shapes alone; the model itself is sound."""


class UsageError(AutotuneError):
    """A wrong option or argument."""


class InstallError(AutotuneError):
    """Installed packages that are missing or known not to work together."""


class LogError(AutotuneError):
    """A tuning log that cannot be opened, read or written."""


class MissingRecordError(AutotuneError):
    """Records that a frozen run or a build needs and the log does not have."""


class ArtifactError(AutotuneError):
    """An artifact that cannot be written, read or trusted."""


class MeasureError(AutotuneError):
    """Measuring itself is broken; a single candidate's failure is a Measurement, not this."""


class CompileError(MeasureError):
    """A kernel that is to be shipped and does not compile.

    Attributes:
        tasks: keys of the tasks whose kernels do not; empty where that is not known.
    """

    def __init__(self, message: str, tasks: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.tasks = tuple(tasks)


class RunError(AutotuneError):
    """A kernel that failed while a model ran, or a run that was cancelled."""


class BusyError(RunError):
    """A request that was not run, because others took all of the time that it allowed."""

    @staticmethod
    def after(timeout_s: float | None, why: str = "no stream was free") -> BusyError:
        """The error of a request that waited for ``timeout_s`` seconds, for which ``why`` was so."""
        return BusyError(f"{why} for {timeout_s:g} s; allow a longer timeout, or send fewer requests at once")


class VerificationError(AutotuneError):
    """Outputs that differ from the reference."""


def check(condition: object, message: str) -> None:
    """Guard a schedule step.

    Raises:
        ScheduleError: with ``message`` if ``condition`` is false.
    """
    if not condition:
        raise ScheduleError(message)


def lines_of(error: object) -> list[str]:
    """The lines of an error's text that are not empty; its type where it has no text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines or [type(error).__name__]


def first_line(error: object, limit: int = 300) -> str:
    """The first line of an error's text, where ONNX and Ray say what is wrong, cut to ``limit`` characters."""
    text = lines_of(error)[0]
    return text if len(text) <= limit else text[: limit - 1] + "…"


def last_line(error: object) -> str:
    """The last line of an error's text, where TVM and ONNX Runtime say what is wrong."""
    return lines_of(error)[-1]


def named_last_line(error: BaseException, limit: int = 400) -> str:
    """``last_line`` after the error's type, for errors of foreign code, cut to ``limit`` characters."""
    return f"{type(error).__name__}: {last_line(error) if str(error).strip() else ''}"[:limit]
