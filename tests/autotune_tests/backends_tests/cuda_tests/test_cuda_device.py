"""Two CUDA devices, with a stand-in for the driver that copies in the memory of this machine."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import tvm

from autotune.backends.cuda import cuda_device, driver
from autotune.backends.cuda.cuda_device import CudaDevice
from autotune.backends.device_interface import Room
from schedules.vocabulary.errors import MeasureError
from tests.autotune_tests.backends_tests.cuda_tests.fake_driver import FakeBindings

PEER_IS_ON = 704


class Copying(FakeBindings):
    """Copies when it is asked to, and remembers the context of every copy."""

    def __init__(self, reachable: bool = True, enabling: int = 0) -> None:
        super().__init__()
        self.current, self.copies, self._reachable, self._enabling = "", [], reachable, enabling

    def __getattr__(self, name):
        special = {
            "cuDeviceGet": lambda ordinal: (0, ordinal),
            "cuDevicePrimaryCtxRetain": lambda ordinal: (0, f"context {ordinal}"),
            "cuMemGetInfo": lambda: (0, 1 << 30, 1 << 30),
            "cuDeviceCanAccessPeer": lambda *_: (0, int(self._reachable)),
            "cuCtxEnablePeerAccess": self._enable,
            "cuCtxSetCurrent": self._enter,
            "cuMemcpyHtoDAsync": lambda target, source, size, _: self._copy("in", target, source, size),
            "cuMemcpyDtoHAsync": lambda target, source, size, _: self._copy("out", target, source, size),
            "cuMemcpyPeerAsync": self._peer,
        }
        return special.get(name) or super().__getattr__(name)

    def _enter(self, context):
        self.current = context
        return (0,)

    def _enable(self, context, _flags):
        self.calls.append(("cuCtxEnablePeerAccess", (self.current, context)))
        return (self._enabling,)

    def _peer(self, target, context, source, other, size, _stream):
        return self._copy((other, context), target, source, size)

    def _copy(self, what, target, source, size):
        self.copies.append((what, self.current))
        ctypes.memmove(target, source, size)
        return (0,)


def devices(monkeypatch, bindings):
    monkeypatch.setattr(driver, "_bindings", lambda: bindings)
    monkeypatch.setattr(cuda_device, "check_device", lambda _ordinal: None)
    monkeypatch.setattr(tvm, "cuda", lambda _ordinal: tvm.cpu(0))
    return [CudaDevice(f"cuda:{ordinal}", Room(1024), ordinal) for ordinal in (0, 1)]


@pytest.mark.parametrize("reachable", [True, False])
def test_values_pass_from_one_device_to_another(monkeypatch, reachable):
    bindings = Copying(reachable)
    one, other = devices(monkeypatch, bindings)
    array, back = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    one.upload(array, 256)
    other.pull(one, 256, 512, array.nbytes)
    other.download(512, back)
    assert np.array_equal(back, array)
    assert bindings.copies == [
        ("in", "context 0"),
        (("context 0", "context 1"), "context 1"),
        ("out", "context 1"),
    ]
    assert other.reaches(one) == one.reaches(other) == reachable


@pytest.mark.parametrize("enabling", [0, PEER_IS_ON])
def test_access_to_another_device_s_memory_is_allowed_by_the_one_that_copies(monkeypatch, enabling):
    bindings = Copying(enabling=enabling)
    one, other = devices(monkeypatch, bindings)
    for _ in range(2):
        other.pull(one, 0, 0, 16)
    assert [arguments for name, arguments in bindings.calls if name == "cuCtxEnablePeerAccess"] == [
        ("context 1", "context 0")
    ]


def test_access_that_fails_is_told(monkeypatch):
    one, other = devices(monkeypatch, Copying(enabling=2))
    with pytest.raises(MeasureError, match="cuCtxEnablePeerAccess failed"):
        other.reaches(one)


def test_what_is_no_cuda_device_is_not_reached(monkeypatch):
    one, _ = devices(monkeypatch, Copying())
    assert not one.reaches(object())
