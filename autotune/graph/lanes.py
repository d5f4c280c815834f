"""Lanes: groups of cores, or devices, that run subgraphs side by side. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import accumulate

from schedules.errors import UsageError

AUTO = "auto"
CPU = "cpu"
ROOMY = 4
"""Threads from which on one is left to a device: it is a quarter of the CPU's work at most. Heuristic, not measured."""
_CPU = re.compile(r"cpu(?::(\d+)x(\d+)|:(\d+(?:\+\d+)+))?")
_CUDA = re.compile(r"cuda(?::(\d+))?")


@dataclass(frozen=True)
class Lane:
    """Some cores that run one subgraph at a time.

    Attributes:
        name: for people, such as ``cpu:0-1``.
        first, threads: its cores by position among those the artifact may use. Lanes may share cores; then they take
            turns. A device has a core of its own, which is no CPU's: the thread that waits for it.
        device: such as ``cuda:0``; empty for cores.
    """

    name: str
    first: int
    threads: int
    device: str = ""

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
    parts = [part.strip() for part in text.split(",")]
    named = [part for part in parts if _CUDA.fullmatch(part)]
    if not named:
        return ""
    match = _CUDA.fullmatch(named[0])
    assert match is not None
    if len(named) > 1 or parts[:-1] not in ([], [CPU]) or int(match.group(1) or 0):
        raise UsageError(f"--lanes {text!r} is not understood; a device goes as cpu,cuda:0")
    return "cuda:0"


def coupled_lanes(text: str, threads: int) -> tuple[Lane, Lane]:
    """All CPU threads, and the device, for ``cpu,cuda:0``.

    Where there are ``ROOMY`` threads or more the last one is left to the device: while the CPU's kernels run, it hands
    the device its work, and kernels whose threads have to share a core wait for the slowest.
    """
    device = device_of(text)
    own = threads - 1 if threads >= ROOMY else threads
    return cpu_lane(0, own), Lane(device, own, 1, device)


def parse_lanes(text: str, threads: int) -> tuple[Lane, ...]:
    """The lanes that ``--lanes`` names.

    Args:
        text: ``cpu`` (all threads together), ``cpu:2x1`` (two groups of one core), ``cpu:3+1`` (a group of three cores
            and one of one), or ``auto``: all threads together, and where there are two or more, two halves that may
            work side by side.
        threads: threads that may be used.

    Raises:
        UsageError: for anything else, more cores than there are, or a device that cannot be used here.
    """
    if text == AUTO:
        halves = [cpu_lane(0, threads // 2), cpu_lane(threads // 2, threads // 2)] if threads > 1 else []
        return (cpu_lane(0, threads), *halves)
    devices = [part.strip() for part in text.split(",")]
    if device_of(text):
        raise UsageError(f"--lanes {text!r} names a device, which is not for this command; give cpu, cpu:2x1 or auto")
    match = _CPU.fullmatch(devices[0])
    if match is None or len(devices) > 1:
        raise UsageError(
            f"--lanes {text!r} is not understood; give cpu, cpu:2x1 (two groups of one core), cpu:3+1 or auto"
        )
    groups, size, sizes = match.groups()
    if sizes is None and groups is None:
        return (cpu_lane(0, threads),)
    wanted = [int(part) for part in sizes.split("+")] if sizes else [int(size)] * int(groups)
    if not wanted or min(wanted) < 1 or sum(wanted) > threads:
        raise UsageError(f"--lanes {text!r} needs {sum(wanted)} threads and there are {threads}; ask for fewer")
    return tuple(cpu_lane(first, size) for first, size in zip(accumulate(wanted, initial=0), wanted, strict=False))
