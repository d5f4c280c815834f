"""Tune an ONNX model for the machine it runs on.

    result = autotune.tune("model.onnx", autotune.Options(budget_s=60, out="model.tuned"))
    session = autotune.InferenceSession("model.tuned")      # mirrors onnxruntime.InferenceSession

Names are looked up when they are first used: importing this costs milliseconds, and TVM is imported only after the
installed versions were judged (a bad pair is a segmentation fault without a message).
"""

from importlib import import_module
from typing import TYPE_CHECKING

from autotune.versions import DISTRIBUTION, check_versions, installed
from schedules.errors import (
    ArtifactError,
    AutotuneError,
    InstallError,
    LogError,
    MeasureError,
    MissingRecordError,
    ModelError,
    ScheduleError,
    UsageError,
    VerificationError,
)

if TYPE_CHECKING:
    from autotune.options import Options as Options
    from autotune.pipeline import Result as Result
    from autotune.pipeline import build as build
    from autotune.pipeline import tune as tune
    from autotune.runtime import InferenceSession as InferenceSession
    from autotune.runtime import load as load

__version__ = installed(DISTRIBUTION) or "0+unknown"

_HOMES = {
    "InferenceSession": "autotune.runtime",
    "Options": "autotune.options",
    "Result": "autotune.pipeline",
    "build": "autotune.pipeline",
    "load": "autotune.runtime",
    "tune": "autotune.pipeline",
}

__all__ = [
    "ArtifactError",
    "AutotuneError",
    "InferenceSession",
    "InstallError",
    "LogError",
    "MeasureError",
    "MissingRecordError",
    "ModelError",
    "Options",
    "Result",
    "ScheduleError",
    "UsageError",
    "VerificationError",
    "build",
    "load",
    "tune",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check_versions()
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
