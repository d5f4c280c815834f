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
    RunError,
    ScheduleError,
    UsageError,
    VerificationError,
)

if TYPE_CHECKING:
    from autotune.dispatch import InferenceSession as InferenceSession
    from autotune.dispatch import load as load
    from autotune.entry import build as build
    from autotune.entry import tune as tune
    from autotune.function import TunedFunction as TunedFunction
    from autotune.function import tune_function as tune_function
    from autotune.options import Options as Options
    from autotune.pipeline import Result as Result

__version__ = installed(DISTRIBUTION) or "0+unknown"

_HOMES = {
    "InferenceSession": "autotune.dispatch",
    "Options": "autotune.options",
    "Result": "autotune.pipeline",
    "TunedFunction": "autotune.function",
    "build": "autotune.entry",
    "load": "autotune.dispatch",
    "tune": "autotune.entry",
    "tune_function": "autotune.function",
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
    "RunError",
    "ScheduleError",
    "TunedFunction",
    "UsageError",
    "VerificationError",
    "build",
    "load",
    "tune",
    "tune_function",
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
