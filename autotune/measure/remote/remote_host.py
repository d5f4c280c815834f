"""What an RPC device is: its host name, its CPU, its memory, read from its own kernel's files.

Run as ``python -m autotune.measure.remote.remote_host HOST:PORT:KEY`` it prints that as one line of JSON, or one line of what
is wrong and ends with status 1: a device that does not answer is waited for in a process that can be killed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import tvm

from autotune.host.machine import host_target, read_host, thread_cpus
from autotune.host.roofline import Peak, best_of, ordinary, peak_by
from autotune.measure.messages import DeviceLost
from autotune.measure.remote.rpc_session import (
    CONNECT_S,
    FREE_S,
    Address,
    DeviceSession,
    compile_device_code,
    parse_address,
)
from schedules.errors import MeasureError
from schedules.target import Target

PROBE_S = CONNECT_S + FREE_S + 30.0
FILES = (
    "proc/cpuinfo",
    "proc/meminfo",
    "proc/self/status",
    "proc/self/cgroup",
    "proc/self/mountinfo",
    "proc/sys/kernel/hostname",
    "proc/sys/kernel/random/boot_id",
)
CACHES = 8
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

    def to_json(self) -> str:
        """One line; ``from_json`` reads it back."""
        return json.dumps({**asdict(self), "target": self.target.to_json()})

    @staticmethod
    def from_json(text: str) -> RemoteHost:
        """Inverse of ``to_json``."""
        data = json.loads(text)
        return RemoteHost(**{**data, "target": Target.from_json(data["target"]), "cores": tuple(data["cores"])})


def look_at(address: Address, threads: int | None = None, isa: str | None = None) -> RemoteHost:
    """The device at ``address``.

    Args:
        threads, isa: as for ``host_target``, of the device.

    Raises:
        MeasureError: if no device answers.
        UsageError: if the device has not so many CPUs, or not that instruction set.
    """
    return described(json.loads(_told(address)), threads, isa)


def peak_of(address: Address, host: RemoteHost) -> Peak:
    """The device's peak, measured there."""
    return Peak(**json.loads(_told(address, host.to_json())))


def _told(address: Address, *more: str) -> str:
    """What this module says when it is run as a process of its own."""
    command = [sys.executable, "-m", "autotune.measure.remote.remote_host", str(address), *more]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise MeasureError(f"device {address} did not answer within {PROBE_S:.0f} s; restart its rpc_server") from error
    if found.returncode:
        lines = (found.stderr or found.stdout).strip().splitlines()
        raise MeasureError(lines[-1] if lines else f"device {address} could not be asked what it is")
    return found.stdout


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


def _peak(session: DeviceSession, host: RemoteHost, folder: Path) -> Peak:
    """Measured in ``session``, with TVM's own remote timer."""

    def best_s(kernel: tvm.runtime.Module, shapes: list[tuple[int, ...]]) -> float:
        kernel.export_library(str(folder / "peak.so"))
        module = session.load(folder / "peak.so")
        return best_of(module, session.device, [session.tensor(ordinary(shape)) for shape in shapes])

    session.pin(host.target.threads, host.cores)
    session.take_turn()
    return peak_by(host.target, best_s)


def main() -> int:
    """Entry point of the process: prints the files, or with a host's JSON as second argument its peak."""
    try:
        with tempfile.TemporaryDirectory(prefix="tune-device-") as folder:
            probe = compile_device_code(Path(folder) / "probe.so", timer=False)
            session = DeviceSession(parse_address(sys.argv[1]), probe)
            if len(sys.argv) > 2:
                answer: object = asdict(_peak(session, RemoteHost.from_json(sys.argv[2]), Path(folder)))
            else:
                answer = machine_files(session.read)
            sys.stdout.write(json.dumps(answer))
            session.close()
    except (MeasureError, DeviceLost) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
