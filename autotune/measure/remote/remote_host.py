"""What an RPC device is: its host name, its CPU, its memory, read from its own kernel's files; and its roofline."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm

from autotune.host.fork_server import Handler, Job, Refused
from autotune.host.machine import host_target, read_host, thread_cpus
from autotune.host.roofline import Roofline, best_of, ordinary, roofline_by
from autotune.host.worker_pool import Lost, run_alone
from autotune.measure.messages import DeviceLost
from autotune.measure.remote.rpc_session import (
    CONNECT_S,
    FREE_S,
    Address,
    DeviceSession,
    compile_device_code,
)
from schedules.errors import MeasureError
from schedules.target import Target

HANDLER = "autotune.measure.remote.remote_host:ProbeHandler"

PROBE_S = CONNECT_S + FREE_S + 30.0
"""Seconds for a device to become free and to answer; 30 of them for its files, of which one takes milliseconds."""

FILES = (
    "proc/cpuinfo",
    "proc/meminfo",
    "proc/self/status",
    "proc/self/cgroup",
    "proc/self/mountinfo",
    "proc/sys/kernel/hostname",
    "proc/sys/kernel/random/boot_id",
)
"""Files that ``read_host`` reads, below the root."""

CACHES = 8
"""Caches of one CPU that are looked for; there are 3 to 5."""

CPU = "sys/devices/system/cpu"


@dataclass(frozen=True)
class RemoteHost:
    """One device.

    Attributes:
        name: its host name.
        boot: the identity of its running system: devices that share it are one machine.
        cpu: its CPU's name.
        target: what to build for.
        cores: where to pin the target's threads.
        memory_bytes: of the whole machine.
    """

    name: str
    boot: str
    cpu: str
    target: Target
    cores: tuple[int, ...]
    memory_bytes: int


@dataclass(frozen=True)
class Probe(Job):
    """Read a device's files, or find the roofline of ``host``, which is that device."""

    host: RemoteHost | None = None


def look_at(address: Address, threads: int | None = None, isa: str | None = None) -> RemoteHost:
    """The device at ``address``.

    Args:
        threads, isa: as for ``host_target``, of the device.

    Raises:
        MeasureError: if no device answers.
        UsageError: if the device has not so many CPUs, or not that instruction set.
    """
    return described(_probed(address, None), threads, isa)


def roofline_of(address: Address, host: RemoteHost) -> Roofline:
    """The device's roofline, measured there.

    Raises:
        MeasureError: if no device answers.
    """
    roofline: Roofline = _probed(address, host)
    return roofline


def _probed(address: Address, host: RemoteHost | None) -> Any:
    """What a ``ProbeHandler`` finds in a process of its own."""
    found = run_alone(HANDLER, address, Probe(host, timeout_s=PROBE_S))
    if isinstance(found, Lost):
        raise MeasureError(f"device {address} could not be read: {found.message}; restart its rpc_server")
    return found


def described(files: Mapping[str, str], threads: int | None, isa: str | None) -> RemoteHost:
    """What the kernel's files (``machine_files``) say of a device.

    Raises:
        UsageError: as ``host_target``.
    """
    with tempfile.TemporaryDirectory(prefix="tune-device-") as folder:
        root = Path(folder)
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        host = read_host(root, _listed(_field(files["proc/self/status"], "Cpus_allowed_list")))
    target = host_target(threads, isa, host)
    memory = _field(files.get("proc/meminfo", ""), "MemTotal").split()
    return RemoteHost(
        files.get("proc/sys/kernel/hostname", "").strip() or "device",
        files.get("proc/sys/kernel/random/boot_id", "").strip(),
        host.model,
        target,
        thread_cpus(target.threads, host),
        1024 * int(memory[0]) if memory else 1 << 30,
    )


def _field(text: str, name: str) -> str:
    """The value of ``name: value`` in one of the kernel's files."""
    return next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith(name + ":")), "")


def _listed(text: str) -> tuple[int, ...]:
    """``0-2,5`` → (0, 1, 2, 5)."""
    cpus: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        cpus += range(int(first), int(last or first) + 1)
    return tuple(cpus)


def machine_files(read: Callable[[str], bytes | None]) -> dict[str, str]:
    """The kernel's files that ``read_host`` and we need, by their path below the root."""
    files: dict[str, str] = {}

    def fetch(path: str) -> str:
        data = read("/" + path)
        if data is not None:
            files[path] = data.decode(errors="replace")
        return files.get(path, "")

    for path in FILES:
        fetch(path)
    cpus = _listed(_field(files["proc/self/status"], "Cpus_allowed_list"))
    for cpu in cpus:
        fetch(f"{CPU}/cpu{cpu}/topology/core_id")
        fetch(f"{CPU}/cpu{cpu}/topology/physical_package_id")
    for index in range(CACHES):
        if fetch(f"{CPU}/cpu{cpus[0]}/cache/index{index}/level"):
            fetch(f"{CPU}/cpu{cpus[0]}/cache/index{index}/type")
            fetch(f"{CPU}/cpu{cpus[0]}/cache/index{index}/size")
    for folder in _cgroups(files):
        for name in ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us"):
            fetch(f"{folder}/{name}")
    return files


def _cgroups(files: dict[str, str]) -> list[str]:
    """Folders that may hold a CPU quota: of every group of ours, up to where its hierarchy is mounted."""
    groups = [line.split(":", 2)[2] for line in files.get("proc/self/cgroup", "").splitlines()]
    folders = []
    for line in files.get("proc/self/mountinfo", "").splitlines():
        before, _, after = line.partition(" - ")
        if after.split()[:1] not in (["cgroup"], ["cgroup2"]):
            continue
        inside, mount = before.split()[3:5]
        for group in groups:
            relative = Path((group.removeprefix(inside) if inside != "/" else group).lstrip("/"))
            folders += [str(Path(mount.lstrip("/")) / part) for part in (relative, *relative.parents)]
    return list(dict.fromkeys(folders))


def _roofline(session: DeviceSession, host: RemoteHost, folder: Path) -> Roofline:
    """Measured in ``session``, with TVM's own remote timer."""

    def best_s(kernel: tvm.runtime.Module, shapes: list[tuple[int, ...]]) -> float:
        kernel.export_library(str(folder / "peak.so"))
        module = session.load(folder / "peak.so")
        return best_of(module, session.device, [session.tensor(ordinary(shape)) for shape in shapes])

    session.pin(host.target.threads, host.cores)
    session.take_lock()
    return roofline_by(host.target, best_s)


class ProbeHandler(Handler):
    """Looks at a device: it may not answer, so it is waited for in a process that can be killed."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def answer(self, job: Probe) -> dict[str, str] | Roofline | Refused:
        """The device's files, or with a host its roofline."""
        try:
            with tempfile.TemporaryDirectory(prefix="tune-device-") as folder:
                probe = compile_device_code(Path(folder) / "probe.so", timer=False)
                session = DeviceSession(self._address, probe)
                found = _roofline(session, job.host, Path(folder)) if job.host else machine_files(session.read)
                session.close()
                return found
        except MeasureError as error:
            return Refused(error)
        except DeviceLost as error:
            return Refused(MeasureError(str(error)))
