"""The CPU we run on: what code may use, how many threads it may have, and what they must fit.

Everything is read from the kernel's own files by a ``Reader``, so that another machine can be described too.
Instruction sets come from the flags that the kernel reports, not from the model's name: a virtual machine may hide or
add features, and LLVM and archspec then guess wrongly from the model number (a Sapphire Rapids shown as a Rocket Lake
loses AMX).
"""

from __future__ import annotations

import ctypes
import itertools
import os
import platform
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from schedules.processors import ARCHITECTURES, CODE_FEATURES, best_levels, best_processor, levels_of, processor
from schedules.target import Target
from schedules.vocabulary.errors import UsageError

CPUS = "/sys/devices/system/cpu"
NODES = "/sys/devices/system/node"

ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA = 158, 0x1023, 18
"""Numbers of Linux on x86-64: the system call, its request for a part of the registers, and AMX's tiles."""

MOST_CACHES = 8
"""Caches of one CPU that are looked for; the kernel lists 3 to 5."""


@dataclass(frozen=True)
class Cache:
    """A cache of data.

    Attributes:
        level: 2 or 3.
        cpus: logical CPUs that share it: a core's own, those of a cluster, of a slice or of a socket.
    """

    level: int
    size_bytes: int
    cpus: frozenset[int]


@dataclass(frozen=True)
class Host:
    """The description that the kernel gives of this machine.

    Attributes:
        model: the CPU's name, for people.
        architecture: ``x86_64``, ``aarch64``, ….
        vendor: ``GenuineIntel``, ``AuthenticAMD`` or another vendor's name.
        flags: CPU features by the kernel's names.
        online: logical CPUs of the machine.
        allowed: logical CPUs this process may run on (affinity and cpuset).
        cores: one of the allowed logical CPUs per physical core, ascending.
        quota: CPUs' worth of time that cgroups grant, or None without a limit.
        l1_bytes, l2_bytes, l3_bytes: data caches; 0 where the kernel does not say.
        nodes: logical CPUs beside each NUMA node's memory; empty where the kernel names no nodes.
        caches: the caches of levels 2 and 3 that the allowed CPUs use; empty where the kernel does not say who shares.
    """

    model: str
    architecture: str
    vendor: str
    flags: frozenset[str]
    online: int
    allowed: tuple[int, ...]
    cores: tuple[int, ...]
    quota: float | None
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    nodes: tuple[frozenset[int], ...] = ()
    caches: tuple[Cache, ...] = ()

    @property
    def usable_threads(self) -> int:
        """Threads that each get a physical core to themselves.

        A fractional quota is rounded down: with a thread more than the quota carries, the kernel stops all of them for
        the rest of every period.
        """
        return len(self.cores) if self.quota is None else max(1, min(len(self.cores), int(self.quota)))

    @property
    def isas(self) -> tuple[str, ...]:
        """Instruction-set levels that code may use here, best first."""
        return best_levels(self.architecture, self.flags)


Reader = Callable[[str], str | None]
"""A file's path → its text without spaces around it, or None where there is none or it may not be read."""


def read_file(path: str) -> str | None:
    """The ``Reader`` of this machine."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _archspec(attribute: str, unknown: Any) -> Any:
    """An attribute of what archspec makes of this machine; ``unknown`` where it cannot tell, as without ``/proc``."""
    import archspec.cpu  # takes 10 ms, and on x86-64 the kernel's files say all

    try:
        return getattr(archspec.cpu.host(), attribute)
    except (OSError, LookupError, TypeError, ValueError, AttributeError):
        return unknown


def read_host(read: Reader = read_file, allowed: Iterable[int] | None = None, architecture: str = "") -> Host:
    """Look at a machine.

    Args:
        read: reads its files.
        allowed: logical CPUs that kernels may use; None takes those of this process.
        architecture: of the machine; empty for this one's.
    """
    online = os.cpu_count() or 1
    cpus = tuple(sorted(_allowed(online) if allowed is None else allowed)) or (0,)
    info = _cpuinfo(read)
    caches = _cache_bytes(read, cpus[0])
    elsewhere = is_foreign(architecture)  # where archspec would speak of this machine
    return Host(
        model=info.get("model name") or (architecture if elsewhere else str(_archspec("name", ""))),
        architecture=architecture or platform.machine().lower(),
        vendor=info.get("vendor_id") or ("" if elsewhere else str(_archspec("vendor", ""))),
        flags=_flags(info) or frozenset(() if elsewhere else _archspec("features", ())),
        online=max(online, len(cpus)),
        allowed=cpus,
        cores=_physical_cores(read, cpus),
        quota=_cgroup_quota(read),
        l1_bytes=caches.get(1, 0),
        l2_bytes=caches.get(2, 0),
        l3_bytes=caches.get(3, 0),
        nodes=_nodes(read),
        caches=_shared_caches(read, cpus),
    )


def _allowed(online: int) -> Iterable[int]:
    """Logical CPUs that this process may run on."""
    try:
        return os.sched_getaffinity(0)
    except (AttributeError, OSError):  # another system, or a sandbox that forbids to ask
        return range(online)


def _flags(info: Mapping[str, str]) -> frozenset[str]:
    """Features in the kernel's words: ``flags`` on x86-64, ``Features`` on AArch64, extensions (``isa``) on RISC-V."""
    letters, *longer = info.get("isa", "").removeprefix("rv64").split("_")
    return frozenset([*info.get("flags", info.get("Features", "")).split(), *letters, *filter(None, longer)])


def host_target(threads: int | None = None, isa: str | None = None, host: Host | None = None) -> Target:
    """The target for kernels that run here.

    Args:
        threads: threads per kernel; None takes ``Host.usable_threads``.
        isa: instruction-set level, as ``Target.isa``; None takes the best.
        host: another machine than this one (tests).

    Raises:
        UsageError: for more threads than there are CPUs for this process, or an instruction set it does not have.
    """
    host = host or read_host()
    if threads is None:
        threads = host.usable_threads
    if not 1 <= threads <= len(host.allowed):
        raise UsageError(
            f"--threads {threads}: this process may run on {counted(host.allowed)}; give 1 to {len(host.allowed)}"
        )
    if isa is None:
        isa = host.isas[0]
    if isa not in host.isas:
        raise UsageError(f"instruction set {isa!r} cannot run here; this CPU has {', '.join(host.isas)}")
    defaults, mcpu = Target(kind="llvm", isa=isa), mcpu_of(host, isa)
    return Target(
        kind="llvm",
        isa=isa,
        mcpu=mcpu,
        features=hidden_features(host, mcpu),
        threads=threads,
        l1_bytes=host.l1_bytes or defaults.l1_bytes,
        l2_bytes=l2_share(host, threads) or defaults.l2_bytes,
        l3_bytes=host.l3_bytes or defaults.l3_bytes,
    )


def l2_share(host: Host, threads: int) -> int:
    """Bytes of L2 that each of ``threads`` threads has at least: cores of a cluster share theirs equally."""
    cores = set(thread_cpus(threads, host)) & set(host.cores)
    used = [(cache.size_bytes, len(cache.cpus & cores)) for cache in host.caches if cache.level == 2]
    return min((size // sharing for size, sharing in used if sharing), default=host.l2_bytes)


def nodes_of(cpus: Iterable[int], host: Host) -> list[frozenset[int]]:
    """Those of ``cpus`` beside each node's memory, without empty nodes; all together where nodes are unknown."""
    wanted = frozenset(cpus)
    return [node & wanted for node in host.nodes if node & wanted] or [wanted]


def runs_here(target: Target) -> bool:
    """Return whether this machine's CPU runs code for ``target``."""
    host, known = read_host(), processor(target.mcpu)
    needed = frozenset() if known is None else known.code_flags
    unused = {CODE_FEATURES[name[1:]] for name in target.features if name.startswith("-") and name[1:] in CODE_FEATURES}
    return target.isa in levels_of(host.isas[0]) and needed - unused <= host.flags


def missing_features(flags: Iterable[str], host: Host | None = None) -> list[str]:
    """Those of ``flags`` that this CPU lacks; of AMX also whether the system permits it to this process."""
    host = host or read_host()
    flags = set(flags)
    missing = sorted(flags - host.flags)
    if not missing and "amx_tile" in flags and not _may_use_tiles():
        missing = ["AMX tiles, which the system does not permit"]
    return missing


def _may_use_tiles() -> bool:
    """Return whether Linux permits this process AMX tiles; once asked, it permits them to all threads."""
    return int(ctypes.CDLL(None).syscall(ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA)) == 0


def is_foreign(architecture: str) -> bool:
    """Return whether code of ``architecture``, a ``Target.architecture``, is for another one than this machine's."""
    machine = platform.machine().lower()
    return architecture not in ("", ARCHITECTURES.get(machine, machine))


def thread_cpus(threads: int, host: Host | None = None) -> tuple[int, ...]:
    """Logical CPUs to pin ``threads`` threads to: one per physical core first, siblings only after that."""
    host = host or read_host()
    siblings = tuple(cpu for cpu in host.allowed if cpu not in host.cores)
    return tuple(sorted((host.cores + siblings)[:threads]))


def core_groups(count: int, threads: int, host: Host | None = None) -> list[list[int]]:
    """Logical CPUs of ``count`` groups of ``threads`` threads each: streams, which do not wait for each other.

    A group takes the cores of one NUMA node where a node has so many left, and of the node with the most left, so that
    groups are spread over the memory of all nodes. Where there are fewer CPUs than threads, some CPUs get several.
    """
    host = host or read_host()
    cpus = thread_cpus(max(count * threads, len(host.cores)), host)
    left = [[cpu for cpu in cpus if cpu in node] for node in host.nodes]
    left = [*filter(None, left), [cpu for cpu in cpus if not any(cpu in node for node in host.nodes)]]
    groups = []
    for _ in range(count):
        own: list[int] = []
        while len(own) < threads:
            most = max(left, key=len)
            if not most:
                left = [list(cpus)]
                continue
            taken = min(threads - len(own), len(most))
            own += most[:taken]
            del most[:taken]
        groups.append(own)
    return groups


def counted(cpus: tuple[int, ...]) -> str:
    """The number of ``cpus`` in words."""
    return f"{len(cpus)} CPU{'s' if len(cpus) != 1 else ''}"


def mcpu_of(host: Host, isa: str) -> str:
    """LLVM's name of the best microarchitecture of level ``isa`` whose every feature ``host`` has; may be empty."""
    best = best_processor(isa, host.flags, host.vendor)
    return "" if best is None else best.name


def hidden_features(host: Host, mcpu: str) -> tuple[str, ...]:
    """Flags for LLVM against instructions that it takes for granted on ``mcpu``, and ``host`` does not report."""
    known = processor(mcpu)
    hidden = frozenset() if known is None else known.code_flags - host.flags
    return tuple(sorted(f"-{name}" for name, flag in CODE_FEATURES.items() if flag in hidden))


def _cpuinfo(read: Reader) -> dict[str, str]:
    """The first processor's lines of /proc/cpuinfo (on ARM it has ``Features`` and no model name)."""
    fields: dict[str, str] = {}
    for line in (read("/proc/cpuinfo") or "").splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    return fields


def _physical_cores(read: Reader, cpus: tuple[int, ...]) -> tuple[int, ...]:
    """The lowest of ``cpus`` on each physical core."""
    first: dict[tuple[str, str], int] = {}
    for cpu in cpus:
        topology = f"{CPUS}/cpu{cpu}/topology"
        core = read(f"{topology}/core_id")
        where = ("cpu", str(cpu)) if core is None else (read(f"{topology}/physical_package_id") or "", core)
        first.setdefault(where, cpu)
    return tuple(sorted(first.values()))


def _nodes(read: Reader) -> tuple[frozenset[int], ...]:
    """Logical CPUs of every NUMA node that has any."""
    nodes = (cpu_list(read(f"{NODES}/node{node}/cpulist")) for node in sorted(cpu_list(read(f"{NODES}/online"))))
    return tuple(cpus for cpus in nodes if cpus)


def cpu_list(text: str | None) -> frozenset[int]:
    """The numbers in a list as the kernel writes it, such as ``0-3,8``; what is no number is left out."""
    numbers: set[int] = set()
    for part in (text or "").split(","):
        if match := re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part.strip(), re.ASCII):
            numbers.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(numbers)


def _cache_bytes(read: Reader, cpu: int) -> dict[int, int]:
    """Bytes of each level's data cache as ``cpu`` sees it."""
    sizes = dict(_cache(read, f"{CPUS}/cpu{cpu}/cache/index{index}") for index in range(MOST_CACHES))
    sizes.pop(0, None)
    return sizes


def _shared_caches(read: Reader, cpus: tuple[int, ...]) -> tuple[Cache, ...]:
    """Each cache of levels 2 and 3 once, with all the CPUs that the kernel says share it."""
    caches: dict[tuple[int, frozenset[int]], Cache] = {}
    known: set[tuple[int, int]] = set()
    present = (read(f"{CPUS}/cpu{cpus[0]}/cache/index{index}/level") is not None for index in range(MOST_CACHES))
    last = sum(itertools.takewhile(bool, present))
    for cpu, index in itertools.product(cpus, range(1, last)):
        if (index, cpu) in known:
            continue
        folder = f"{CPUS}/cpu{cpu}/cache/index{index}"
        level, size = _cache(read, folder)
        sharing = cpu_list(read(f"{folder}/shared_cpu_list")) if level >= 2 else frozenset[int]()
        if cpu in sharing:
            caches.setdefault((level, sharing), Cache(level, size, sharing))
            known |= {(index, other) for other in sharing}
    return tuple(caches.values())


def _cache(read: Reader, folder: str) -> tuple[int, int]:
    """(level, bytes) of the data cache that ``folder`` describes; zeros for another kind, and for what is no cache."""
    level, kind, size = (read(f"{folder}/{name}") for name in ("level", "type", "size"))
    match = re.fullmatch(r"(\d{1,12})([KMG]?)", size or "", re.ASCII)
    if not match or level not in ("1", "2", "3") or kind not in ("Data", "Unified"):
        return 0, 0
    return int(level), int(match[1]) * {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[match[2]]


def _cgroup_quota(read: Reader) -> float | None:
    """CPUs' worth of time granted by the tightest cgroup (version 1 or 2) around this process."""
    paths: dict[str, str] = {}
    for line in (read("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        paths.update(dict.fromkeys(controllers.split(","), path))  # version 2 has no controllers: the key is ""
    quotas: list[float | None] = []
    for line in (read("/proc/self/mountinfo") or "").splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = (*rest.split(" "), "", "", "")[:3]  # the source between them may be empty
        inside, mount = (*fields.split(" "), *[""] * 5)[3:5]
        if kind == "cgroup2":
            quotas += [_quota_v2(read, folder) for folder in _folders(mount, inside, paths.get("", "/"))]
        elif kind == "cgroup" and "cpu" in options.split(","):
            quotas += [_quota_v1(read, folder) for folder in _folders(mount, inside, paths.get("cpu", "/"))]
    return min((quota for quota in quotas if quota is not None), default=None)


def _folders(mount: str, inside: str, path: str) -> list[PurePosixPath]:
    """Folders from this process's cgroup up to the mounted one; ``inside`` is the cgroup that is mounted."""
    relative = path.removeprefix(inside) if inside != "/" else path
    folder, top = PurePosixPath(mount) / relative.lstrip("/"), PurePosixPath(mount)
    if ".." in folder.parts:  # of a process that has moved to a cgroup outside of its namespace
        return [top]
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(top))]


def _quota_v2(read: Reader, folder: PurePosixPath) -> float | None:
    """``cpu.max`` holds microseconds granted (or ``max``) and the period."""
    return _quota(*(*(read(f"{folder}/cpu.max") or "").split(), "", "")[:2])


def _quota_v1(read: Reader, folder: PurePosixPath) -> float | None:
    """Microseconds granted per period; -1 is no limit."""
    return _quota(read(f"{folder}/cpu.cfs_quota_us"), read(f"{folder}/cpu.cfs_period_us"))


def _quota(granted: str | None, period: str | None) -> float | None:
    """Microseconds granted per period as a number of CPUs; None unless both are numbers above 0."""
    numbers = [int(text) for text in (granted, period) if text and re.fullmatch(r"\d{1,15}", text, re.ASCII)]
    return numbers[0] / numbers[1] if len(numbers) == 2 and all(numbers) else None
