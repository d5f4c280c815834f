"""Lanes: groups of cores, or devices, that run subgraphs side by side. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from schedules.vocabulary.errors import UsageError

AUTO = "auto"
CPU = "cpu"
HOST = ""
"""The memory of lanes of cores, as ``Lane.memory`` names it."""
ROOMY = 4
"""Threads from which on one is left to a device: it is a quarter of the CPU's work at most. Heuristic, not measured."""
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
        """Where its tensors lie: the device's name, or the host's, which is empty."""
        return self.device

    @property
    def kind(self) -> str:
        """What it is made of: ``cpu``, or the kind of device, such as ``cuda``."""
        return self.device.partition(":")[0] or CPU


def cpu_lane(first: int, threads: int) -> Lane:
    """The lane of ``threads`` cores from ``first`` on."""
    last = first + threads - 1
    return Lane(f"cpu:{first}" if threads == 1 else f"cpu:{first}-{last}", first, threads)


def device_of(text: str) -> str:
    """The device that ``--lanes`` asks for beside the CPU, such as ``cuda:0``; empty if it names none.

    Raises:
        UsageError: for devices in any other place, or one that is not the first.
    """
    return _device_and_limit(text)[0]


def _device_and_limit(text: str) -> tuple[str, int]:
    """The device of ``--lanes``, and the bytes of its memory that may be used, 0 where that is not said."""
    parts = [part.strip() for part in text.split(",")]
    pattern = re.compile(rf"({'|'.join(DEVICE_KINDS)})(?::(\d+))?(?:=(\d+(?:\.\d+)?)([KMG]?)B)?")
    named = [match for match in map(pattern.fullmatch, parts) if match is not None]
    if not named:
        return "", 0
    kind, number, amount, unit = named[0].groups()
    if len(named) > 1:
        raise UsageError(
            f"--lanes {text}: names {len(named)} devices, and a model is placed on the CPU and one device; name one"
        )
    if parts[0] != CPU and any(_CPU.fullmatch(part) or _CORES.fullmatch(part) for part in parts[:-1]):
        raise UsageError(
            f"--lanes {text}: groups of cores are not placed next to a device, only all cores together; give "
            f"cpu,{parts[-1]}"
        )
    if int(number or 0):
        raise UsageError(
            f"--lanes {text}: only the first device is used; give {kind}:0, and hide the others from the program"
        )
    if parts[:-1] not in ([], [CPU]):
        raise UsageError(f"--lanes {text}: not understood; give a device as cpu,cuda:0 or cpu,cuda:0=4GB")
    limit = int(float(amount) * BYTE_UNITS[unit]) if amount else 0
    if amount and len(parts) == 1:
        raise UsageError(f"--lanes {text}: a device needs the CPU next to it; give cpu,{text.strip()}")
    if amount and not limit:
        raise UsageError(f"--lanes {text}: leaves the device no memory; give it some, such as cuda:0=4GB")
    return f"{kind}:0", limit


def coupled_lanes(text: str, threads: int) -> tuple[Lane, Lane]:
    """All CPU threads, and the device, for ``cpu,cuda:0``.

    Where there are ``ROOMY`` threads or more the last one is left to the device: while the CPU's kernels run, it hands
    the device its work, and kernels whose threads have to share a core wait for the slowest.
    """
    device, limit = _device_and_limit(text)
    own = threads - 1 if threads >= ROOMY else threads
    return cpu_lane(0, own), Lane(device, own, 1, device, limit_bytes=limit)


Way = tuple[str, str]
"""(from, to): two memories between which tensors are copied."""


def copy_lanes(lanes: Sequence[Lane]) -> dict[Way, Lane]:
    """The copy engines of the devices among ``lanes``, one per direction, each beside all that computes."""
    first = max(lane.cores[-1] for lane in lanes) + 1
    found: dict[Way, Lane] = {}
    for lane in lanes:
        for way, word in (((HOST, lane.memory), "in"), ((lane.memory, HOST), "out")):
            if lane.device and way not in found:
                found[way] = Lane(f"{lane.device} {word}", first + len(found), 1, lane.device, copies=True)
    return found


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
    if text == AUTO:
        halves = [cpu_lane(0, threads // 2), cpu_lane(threads // 2, threads // 2)] if threads > 1 else []
        return (cpu_lane(0, threads), *halves)
    devices = [part.strip() for part in text.split(",")]
    if device_of(text):
        raise UsageError(f"--lanes {text}: names a device, which is not for this command; give cpu, cpu:2x1 or auto")
    if all(_CORES.fullmatch(part) for part in devices):
        return _named_cores(text, devices, threads)
    match = _CPU.fullmatch(devices[0])
    if match is None or len(devices) > 1:
        raise UsageError(
            f"--lanes {text}: not understood; give cpu, cpu:2x1 (two groups of one core), cpu:3+1, auto or auto:3+1"
        )
    kind, groups, size, sizes = match.groups()
    whole = cpu_lane(0, threads)
    if sizes is None and groups is None:
        return (whole,)
    wanted = [int(part) for part in sizes.split("+")] if sizes else [int(size)] * int(groups)
    if not wanted or min(wanted) < 1 or sum(wanted) > threads:
        raise UsageError(f"--lanes {text}: needs {sum(wanted)} threads and there are {threads}; ask for fewer")
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
