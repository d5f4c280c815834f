"""The CUDA driver as far as we need it: streams, events, graphs, pinned memory. Every call is checked.

A *sticky* error (an illegal address, a launch that failed) poisons the context for good: the process has to end, and
what it was doing has failed. Others leave it usable.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schedules.vocabulary.errors import InstallError, MeasureError

STICKY = frozenset({700, 702, 709, 710, 713, 714, 715, 716, 717, 718, 719})
"""CUresult values after which a context is unusable (CUDA Driver API, ``cudaError_enum``)."""

PEER_IS_ON = 704  # CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED

NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: does not wait for the legacy stream
THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL


class StickyError(MeasureError):
    """The context of this process is unusable."""


class Driver:
    """Checked calls of ``cuda.bindings.driver``.

    Args:
        bindings: the module, or a stand-in of the same functions (tests).
        ordinal: number of the device.

    Raises:
        InstallError: if there is no driver or no such device.
    """

    def __init__(self, bindings: Any = None, ordinal: int = 0) -> None:
        self._cuda = bindings if bindings is not None else _bindings()
        try:
            (status,) = self._cuda.cuInit(0)
        except RuntimeError as error:  # the bindings look for the driver's library at the first call
            raise InstallError(
                "no CUDA device can be used: NVIDIA's driver is not installed; install it, or use a machine that has it"
            ) from error
        if int(status):
            raise InstallError(
                f"no CUDA device can be used (cuInit says {_name(status)}); see whether nvidia-smi lists one"
            )
        self.device = self.call("cuDeviceGet", ordinal)
        # The primary context is the one that TVM's runtime uses too.
        self.context = self.call("cuDevicePrimaryCtxRetain", self.device)
        self.enter()

    def enter(self) -> None:
        """Make the device's context that of the calling thread, which every thread has to do for itself."""
        self.call("cuCtxSetCurrent", self.context)

    def reaches(self, other: Driver) -> bool:
        """Let copies from another device pass the host's memory, where the machine can; whether it can."""
        if not self.call("cuDeviceCanAccessPeer", self.device, other.device):
            return False
        self.enter()
        self.call("cuCtxEnablePeerAccess", other.context, 0, passes=PEER_IS_ON)
        return True

    def call(self, function: str, *arguments: Any, passes: int = 0) -> Any:
        """The value (or tuple of values, or None) of one driver call.

        Args:
            passes: an error that is none here.

        Raises:
            StickyError: if the context is lost.
            MeasureError: for any other error.
        """
        status, *values = getattr(self._cuda, function)(*arguments)
        code = int(status)
        if code not in (0, passes):
            kind = StickyError if code in STICKY else MeasureError
            raise kind(f"{function} failed: {_name(status)} ({code})")
        return values[0] if len(values) == 1 else tuple(values) or None

    def attribute(self, name: str) -> int:
        """A device attribute by its name without ``CU_DEVICE_ATTRIBUTE_``."""
        number = getattr(self._cuda.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.call("cuDeviceGetAttribute", number, self.device))

    @property
    def arch(self) -> str:
        """``sm_NN``."""
        return f"sm_{self.attribute('COMPUTE_CAPABILITY_MAJOR')}{self.attribute('COMPUTE_CAPABILITY_MINOR')}"

    def stream(self) -> Any:
        """A new stream that does not wait for the legacy one."""
        return self.call("cuStreamCreate", NON_BLOCKING)

    def synchronize(self, stream: Any) -> None:
        """Wait until all work on ``stream`` is done; errors of earlier launches surface here."""
        self.call("cuStreamSynchronize", stream)

    def graph(self, stream: Any, launch: Callable[[], None]) -> Any:
        """Return the launches that ``launch`` puts on ``stream``, as an executable graph; nothing runs."""
        self.call("cuStreamBeginCapture", stream, THREAD_LOCAL)
        try:
            launch()
        finally:
            graph = self.call("cuStreamEndCapture", stream)
        return self.call("cuGraphInstantiate", graph, 0)

    def replay(self, graph: Any, stream: Any) -> None:
        """Put an executable graph on ``stream``."""
        self.call("cuGraphLaunch", graph, stream)

    def free_bytes(self) -> int:
        """Return the bytes of the device's memory that nobody uses."""
        free, _ = self.call("cuMemGetInfo")
        return int(free)

    def pinned(self, count: int) -> NDArray[np.uint8]:
        """Page-locked host memory, which copies to and from the device without a detour; never freed."""
        pointer = int(self.call("cuMemHostAlloc", max(1, count), 0))

        return np.ctypeslib.as_array((ctypes.c_uint8 * max(1, count)).from_address(pointer))

    @contextmanager
    def timed(self, stream: Any, seconds: list[float]) -> Iterator[None]:
        """Append the device's own time between begin and end of the body on ``stream``."""
        begin, end = self.call("cuEventCreate", 0), self.call("cuEventCreate", 0)
        try:
            self.call("cuEventRecord", begin, stream)
            yield
            self.call("cuEventRecord", end, stream)
            self.call("cuEventSynchronize", end)
            seconds.append(float(self.call("cuEventElapsedTime", begin, end)) * 1e-3)
        finally:
            for event in (begin, end):
                self.call("cuEventDestroy", event)


def _bindings() -> Any:
    try:
        from cuda.bindings import driver  # optional: an extra
    except ImportError as error:
        raise InstallError(
            f"the CUDA driver is called through cuda-bindings, which is not installed ({error}); "
            "install it with: pip install 'tune-compiler[cuda]'"
        ) from error
    return driver


def _name(status: Any) -> str:
    return str(getattr(status, "name", status))
