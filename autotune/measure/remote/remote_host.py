"""An RPC device: its host name, CPU and memory, read from its own kernel's files; and its roofline."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from numpy.typing import NDArray

from autotune.host.compilers import compile_with
from autotune.host.fork_server import Handler, Job, Refused
from autotune.host.machine import Reader, cpu_list, host_target, read_host, thread_cpus
from autotune.host.roofline import Roofline, best_of, roofline_by
from autotune.host.worker_pool import Lost, run_alone
from autotune.measure.messages import DeviceLost
from autotune.measure.remote.rpc_session import (
    CONNECT_S,
    FREE_S,
    Address,
    DeviceSession,
)
from schedules.target import Target
from schedules.vocabulary.errors import InstallError, MeasureError, UsageError

HANDLER = "autotune.measure.remote.remote_host:ProbeHandler"

PROBE_S = CONNECT_S + FREE_S + 30.0
"""Seconds for a device to become free and to answer; 30 of them for its files, of which one takes milliseconds."""

UNKNOWN_MEMORY_BYTES = 1 << 30
"""Memory of a device whose kernel does not say. Heuristic: small boards have no less."""


@dataclass(frozen=True)
class RemoteHost:
    """One device.

    Attributes:
        name: its host name.
        cpu: its CPU's name.
        target: what to build for.
        cores: where to pin the target's threads.
        memory_bytes: of the whole machine.
    """

    name: str
    cpu: str
    target: Target
    cores: tuple[int, ...]
    memory_bytes: int


@dataclass(frozen=True)
class Look(Job):
    """Describe the device; arguments as of ``look_at``."""

    threads: int | None
    isa: str | None


@dataclass(frozen=True)
class MeasureDevice(Job):
    """Find the roofline of ``host``, which is the device."""

    host: RemoteHost


def look_at(address: Address, threads: int | None = None, isa: str | None = None) -> RemoteHost:
    """The device at ``address``.

    Args:
        threads, isa: as for ``host_target``, of the device.

    Raises:
        MeasureError: if no device answers.
        UsageError: if the device has not so many CPUs, or not that instruction set.
    """
    host: RemoteHost = _probed(address, Look(threads, isa, timeout_s=PROBE_S))
    return host


def roofline_of(address: Address, host: RemoteHost) -> Roofline:
    """The device's roofline, measured there.

    Raises:
        MeasureError: if no device answers.
    """
    roofline: Roofline = _probed(address, MeasureDevice(host, timeout_s=PROBE_S))
    return roofline


def _probed(address: Address, job: Look | MeasureDevice) -> Any:
    """Return the answer of a ``ProbeHandler`` in a process of its own."""
    answer = run_alone(HANDLER, address, job)
    if isinstance(answer, Lost):
        raise MeasureError(f"device {address} could not be read: {answer.message}; restart its rpc_server")
    return answer


def described(read: Reader, threads: int | None, isa: str | None, architecture: str = "") -> RemoteHost:
    """Return the description of a device by its files.

    Args:
        architecture: as its LLVM names it; empty for this machine's.

    Raises:
        UsageError: as ``host_target``.
    """
    host = read_host(read, cpu_list(_field(read("/proc/self/status"), "Cpus_allowed_list")), architecture)
    target = host_target(threads, isa, host)
    memory = _field(read("/proc/meminfo"), "MemTotal").split()
    return RemoteHost(
        read("/proc/sys/kernel/hostname") or "device",
        host.model,
        target,
        thread_cpus(target.threads, host),
        1024 * int(memory[0]) if memory and memory[0].isdecimal() else UNKNOWN_MEMORY_BYTES,
    )


def _field(text: str | None, name: str) -> str:
    """The value of ``name: value`` in one of the kernel's files."""
    lines = (text or "").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name + ":")), "")


def _roofline(session: DeviceSession, host: RemoteHost, folder: Path) -> Roofline:
    """Measured in ``session``, with TVM's own remote timer."""

    def best_s(kernel: tvm.runtime.Module, arrays: list[NDArray[Any]]) -> float:
        kernel.export_library(str(folder / "peak.so"), fcompile=_linker(session.architecture))
        module = session.load(folder / "peak.so")
        return best_of(module, session.device, [session.tensor(array) for array in arrays])

    session.pin(host.target.threads, host.cores)
    session.take_lock()
    return roofline_by(host.target, best_s)


def _linker(architecture: str) -> Callable[..., None]:
    """Return a function that links libraries for a device, as TVM calls it."""

    def link(library: str, objects: Sequence[str], options: Sequence[str] | None = None, **_: object) -> None:
        compile_with(["-shared", "-fPIC", "-o", library, *objects, *(options or ())], architecture)

    return link


class ProbeHandler(Handler):
    """Looks at a device: it may not answer, so it is waited for in a process that can be killed."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def answer(self, job: Look | MeasureDevice) -> RemoteHost | Roofline | Refused:
        """Do one job; ``Refused`` if the device does not answer, or is not what the job says."""
        try:
            with tempfile.TemporaryDirectory(prefix="tune-device-") as folder:
                session = DeviceSession(self._address, Path(folder))
                if isinstance(job, Look):
                    reading: RemoteHost | Roofline = described(
                        session.read_text, job.threads, job.isa, session.architecture
                    )
                else:
                    reading = _roofline(session, job.host, Path(folder))
                session.close()
                return reading
        except (InstallError, MeasureError, UsageError) as error:
            return Refused(error)
        except DeviceLost as error:
            return Refused(MeasureError(str(error)))
