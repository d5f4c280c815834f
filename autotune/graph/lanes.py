"""Lanes: groups of cores, or devices, that run subgraphs side by side. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from schedules.vocabulary.errors import UsageError

AUTO = "auto"
CPU = "cpu"
HOST = ""
"""The memory of lanes of cores, as ``Lane.memory`` names it."""
ROOMY = 4
"""Threads from which on one is left to devices: it is a quarter of the CPU's work at most. Heuristic, not measured."""
_CPU = re.compile(r"(cpu|auto)(?::(\d+)x(\d+)|:(\d+(?:\+\d+)+))?")
_CORES = re.compile(r"cpu:(\d+)(?:-(\d+))?")
DEVICE_KINDS = ("cuda",)
"""Kinds of devices that ``--lanes`` may name."""
BYTE_UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3}


@dataclass(frozen=True)
class Lane:
    """Some cores that run one subgraph at a time.

    Attributes:
        name: for people, such as ``cpu:0-1``.
        first, threads: its cores by position among those the artifact may use. Lanes may share cores; then they take
            turns. A device has a core of its own, which is no CPU's: the thread that waits for it.
        device: such as ``cuda:0``; empty for cores.
        copies: whether it carries tensors instead of running subgraphs: one of the device's copy engines.
        limit_bytes: of the device's memory that the model may use; 0 for all that there is. Weights beyond it stay in
            the host's memory and are streamed.
    """

    name: str
    first: int
    threads: int
    device: str = ""
    copies: bool = False
    limit_bytes: int = 0

    @property
    def cores(self) -> range:
        """Positions of its cores."""
        return range(self.first, self.first + self.threads)

    @property
    def memory(self) -> str:
        """The memory that holds its tensors: the device's name, or the host's, which is empty."""
        return self.device

    @property
    def kind(self) -> str:
        """The kind of the lane: ``cpu``, or the kind of device, such as ``cuda``."""
        return self.device.partition(":")[0] or CPU


def cpu_lane(first: int, threads: int) -> Lane:
    """The lane of ``threads`` cores from ``first`` on."""
    last = first + threads - 1
    return Lane(f"cpu:{first}" if threads == 1 else f"cpu:{first}-{last}", first, threads)


def devices_of(text: str) -> tuple[str, ...]:
    """Return the devices that ``--lanes`` names, such as ``cuda:0``; none for cores alone.

    Raises:
        UsageError: if devices do not follow the cores, or one is named twice.
    """
    return tuple(device for device, _ in _cores_and_devices(text)[1])


def cores_of(text: str) -> str:
    """Return the cores that ``--lanes`` names, as typed; empty if it names devices alone.

    Raises:
        UsageError: as ``devices_of``.
    """
    return _cores_and_devices(text)[0]


def _cores_and_devices(text: str) -> tuple[str, tuple[tuple[str, int], ...]]:
    """The cores of ``--lanes`` as typed, and each device with the bytes of its memory that may be used, 0 for all."""
    parts = [part.strip() for part in text.split(",")]
    pattern = re.compile(rf"({'|'.join(DEVICE_KINDS)})(?::(\d+))?(?:=(\d+(?:\.\d+)?)([KMG]?)B)?")
    matches = [pattern.fullmatch(part) for part in parts]
    count = next((number for number, match in enumerate(matches) if match is not None), len(parts))
    cores, devices = ",".join(parts[:count]), list[tuple[str, int]]()
    if "" in parts[:count] and count < len(parts):
        raise UsageError(f"--lanes {text}: has an empty part; give cpu,cuda:0, or cuda:0,cuda:1 without the CPU")
    for match in matches[count:]:
        if match is None:
            raise UsageError(
                f"--lanes {text}: not understood; give a device as cpu,cuda:0 or cpu,cuda:0=4GB, after the cores"
            )
        kind, number, amount, unit = match.groups()
        device, limit = f"{kind}:{int(number or 0)}", int(float(amount) * BYTE_UNITS[unit]) if amount else 0
        if any(device == earlier for earlier, _ in devices):
            raise UsageError(f"--lanes {text}: names {device} twice; name each device once")
        if amount and not limit:
            raise UsageError(f"--lanes {text}: leaves the device no memory; give it some, such as {device}=4GB")
        devices.append((device, limit))
    if len(parts) == len(devices) == 1 and devices[0][1]:
        raise UsageError(f"--lanes {text}: a device needs the CPU next to it; give cpu,{text.strip()}")
    if len(parts) == len(devices) == 1 and not devices[0][0].endswith(":0"):
        raise UsageError(f"--lanes {text}: only cuda:0 can be named alone; give cpu,{devices[0][0]}")
    return cores, tuple(devices)


def coupled_lanes(text: str, threads: int) -> tuple[Lane, ...]:
    """The groups of cores, then the devices, of ``cpu,cuda:0``, ``cpu:0,cpu:1-3,cuda:0`` or ``cuda:0,cuda:1``.

    Where no cores are named, one core is the first lane: it has the model's inputs and outputs in its memory.

    Where there are ``ROOMY`` threads or more, and no groups are named, the last thread is left to the devices: while
    the CPU's kernels run, it hands the devices their work, and kernels whose threads have to share a core wait for the
    slowest.

    Raises:
        UsageError: as ``devices_of`` and ``parse_lanes``.
    """
    cores, devices = _cores_and_devices(text)
    own = threads - 1 if threads >= ROOMY and cores in (CPU, AUTO) else threads
    groups = _groups(cores, own, text) if cores else (cpu_lane(0, 1),)
    first = 1 + max(lane.cores[-1] for lane in groups)
    lanes = (Lane(name, first + n, 1, name, limit_bytes=limit) for n, (name, limit) in enumerate(devices))
    return (*groups, *lanes)


Way = tuple[str, str]
"""(from, to): two memories between which tensors are copied."""


def copy_lanes(lanes: Sequence[Lane], direct: Iterable[Way] = ()) -> dict[Way, Lane]:
    """The copy engines of the devices among ``lanes``, one per direction, each beside all that computes.

    Args:
        direct: ways from one device's memory to another's, past the host's; each has an engine of its own.
    """
    first = max(lane.cores[-1] for lane in lanes) + 1
    engines: dict[Way, Lane] = {}
    for lane in lanes:
        for way, word in (((HOST, lane.memory), "in"), ((lane.memory, HOST), "out")):
            if lane.device and way not in engines:
                engines[way] = Lane(f"{lane.device} {word}", first + len(engines), 1, lane.device, copies=True)
    for source, target in sorted(direct):
        engines[source, target] = Lane(f"{source} to {target}", first + len(engines), 1, target, copies=True)
    return engines


def parse_lanes(text: str, threads: int) -> tuple[Lane, ...]:
    """The lanes that ``--lanes`` names.

    Args:
        text: ``cpu`` (all threads together), ``cpu:2x1`` (two groups of one core), ``cpu:3+1`` (a group of three cores
            and one of one), ``cpu:0,cpu:1-3`` (groups by the positions of their cores), ``auto:3+1`` (groups, and all
            threads together, so that a subgraph may run on either), or ``auto``: all threads together, and where there
            are two or more, two halves.
        threads: threads that may be used.

    Raises:
        UsageError: for anything else, more cores than there are, or a device that cannot be used here.
    """
    if devices_of(text):
        raise UsageError(f"--lanes {text}: names a device, which is not for this command; give cpu, cpu:2x1 or auto")
    return _groups(text, threads, text)


def _groups(cores: str, threads: int, typed: str) -> tuple[Lane, ...]:
    """The lanes of ``cores``, as ``parse_lanes`` reads them.

    Args:
        typed: all of ``--lanes``, for messages.
    """
    if cores == AUTO:
        halves = [cpu_lane(0, threads // 2), cpu_lane(threads // 2, threads // 2)] if threads > 1 else []
        return (cpu_lane(0, threads), *halves)
    parts = [part.strip() for part in cores.split(",")]
    if all(_CORES.fullmatch(part) for part in parts):
        return _named_cores(typed, parts, threads)
    match = _CPU.fullmatch(parts[0])
    if match is None or len(parts) > 1:
        raise UsageError(
            f"--lanes {typed}: not understood; give cpu, cpu:2x1 (two groups of one core), cpu:3+1, auto or auto:3+1"
        )
    kind, groups, size, sizes = match.groups()
    whole = cpu_lane(0, threads)
    if sizes is None and groups is None:
        return (whole,)
    wanted = [int(part) for part in sizes.split("+")] if sizes else [int(size)] * int(groups)
    if not wanted or min(wanted) < 1 or sum(wanted) > threads:
        raise UsageError(f"--lanes {typed}: needs {sum(wanted)} threads and there are {threads}; ask for fewer")
    some = [cpu_lane(first, size) for first, size in zip(accumulate(wanted, initial=0), wanted, strict=False)]
    return (whole, *some) if kind == AUTO else tuple(some)


def _named_cores(text: str, parts: Sequence[str], threads: int) -> tuple[Lane, ...]:
    """The lanes of ``cpu:0,cpu:1-3``, whose cores are named by position."""
    ends = [_CORES.fullmatch(part) for part in parts]
    spans = [(int(match[1]), int(match[2] or match[1])) for match in ends if match is not None]
    cores = [core for first, last in spans for core in range(first, last + 1)]
    if any(last < first for first, last in spans) or len(set(cores)) < len(cores):
        raise UsageError(f"--lanes {text}: each core may be in one lane, and ranges go up; give cpu:0,cpu:1-3")
    if max(cores) >= threads:
        raise UsageError(f"--lanes {text}: names core {max(cores)} and there are {threads}; the first is 0")
    return tuple(cpu_lane(first, last - first + 1) for first, last in spans)
