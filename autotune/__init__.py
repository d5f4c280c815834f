"""Tune an ONNX model for the machine it runs on.

    result = autotune.tune("model.onnx", autotune.Options(budget_s=60, out="model.tuned"))
    session = autotune.InferenceSession("model.tuned")      # mirrors onnxruntime.InferenceSession

Names are looked up when they are first used: importing this costs milliseconds. Sessions need TVM for some artifacts
only; all else imports it, after the installed versions were judged (a bad pair is a segmentation fault without a
message).
"""

from importlib import import_module
from typing import TYPE_CHECKING

from autotune.versions import DISTRIBUTION, check_versions, installed
from schedules.vocabulary.errors import (
    ArtifactError,
    AutotuneError,
    BusyError,
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
    __version__: str

    from autotune.exchange.export_c import export_c as export_c
    from autotune.options import Generation as Generation
    from autotune.options import Options as Options
    from autotune.runtime.adaptive.adapt import Adapt as Adapt
    from autotune.runtime.serve_options import ServeOptions as ServeOptions
    from autotune.runtime.session import InferenceSession as InferenceSession
    from autotune.runtime.session import load as load
    from autotune.tuning.function import TunedFunction as TunedFunction
    from autotune.tuning.function import tune_function as tune_function
    from autotune.tuning.result import Result as Result
    from autotune.tuning.tune import build as build
    from autotune.tuning.tune import tune as tune

SESSION = "autotune.runtime.session"

_HOMES = {
    "Adapt": "autotune.runtime.adaptive.adapt",
    "Generation": "autotune.options",
    "InferenceSession": SESSION,
    "Options": "autotune.options",
    "Result": "autotune.tuning.result",
    "ServeOptions": "autotune.runtime.serve_options",
    "TunedFunction": "autotune.tuning.function",
    "build": "autotune.tuning.tune",
    "export_c": "autotune.exchange.export_c",
    "load": SESSION,
    "tune": "autotune.tuning.tune",
    "tune_function": "autotune.tuning.function",
}

__all__ = [
    "Adapt",
    "ArtifactError",
    "AutotuneError",
    "BusyError",
    "Generation",
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
    "ServeOptions",
    "TunedFunction",
    "UsageError",
    "VerificationError",
    "build",
    "export_c",
    "load",
    "tune",
    "tune_function",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        return installed(DISTRIBUTION) or "0+unknown"
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _HOMES[name] != SESSION:
        check_versions()
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
