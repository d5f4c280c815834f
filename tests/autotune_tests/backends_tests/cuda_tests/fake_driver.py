"""A stand-in for ``cuda.bindings.driver``: remembers every call, fails where it is told to."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

ATTRIBUTES = {"COMPUTE_CAPABILITY_MAJOR": 9, "COMPUTE_CAPABILITY_MINOR": 0, "MULTIPROCESSOR_COUNT": 132}
VALUES = {
    "cuEventElapsedTime": 0.25,
    "cuStreamCreate": 77,
    "cuDeviceGet": 0,
    "cuGraphInstantiate": "graph",
    "cuMemAlloc": 4096,
}


class FakeBindings:
    """Answers as the driver does: (status, value…)."""

    def __init__(self, fail: dict[str, int] | None = None) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.CUdevice_attribute = SimpleNamespace(
            **{f"CU_DEVICE_ATTRIBUTE_{name}": value for name, value in ATTRIBUTES.items()}
        )
        self._fail = fail or {}
        self._kept: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments: Any) -> tuple[Any, ...]:
            self.calls.append((name, arguments))
            if name in self._fail:
                return (self._fail[name], None)[: 1 if name == "cuInit" else 2]
            if name == "cuDeviceGetAttribute":
                return 0, arguments[0]
            if name == "cuMemHostAlloc":
                self._kept.append(ctypes.create_string_buffer(arguments[0]))
                return 0, ctypes.addressof(self._kept[-1])
            if name in ("cuInit", "cuCtxSetCurrent", "cuStreamSynchronize", "cuGraphLaunch", "cuEventRecord"):
                return (0,)
            if name in ("cuEventSynchronize", "cuEventDestroy", "cuStreamBeginCapture", "cuMemsetD8Async"):
                return (0,)
            return 0, VALUES.get(name, name)

        return call

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]
