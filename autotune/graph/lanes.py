"""Lanes: groups of cores, or devices, that run subgraphs side by side. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from schedules.errors import UsageError

AUTO = "auto"
_CPU = re.compile(r"cpu(?::(\d+)x(\d+))?")
_CUDA = re.compile(r"cuda(?::(\d+))?")


@dataclass(frozen=True)
class Lane:
    """Some cores that run one subgraph at a time.

    Attributes:
        name: for people, such as ``cpu:0-1``.
        first, threads: its cores by position among those the artifact may use. Lanes may share cores; then they take
            turns.
    """

    name: str
    first: int
    threads: int

    @property
    def cores(self) -> range:
        """Positions of its cores."""
        return range(self.first, self.first + self.threads)


def cpu_lane(first: int, threads: int) -> Lane:
    """The lane of ``threads`` cores from ``first`` on."""
    last = first + threads - 1
    return Lane(f"cpu:{first}" if threads == 1 else f"cpu:{first}-{last}", first, threads)


def parse_lanes(text: str, threads: int) -> tuple[Lane, ...]:
    """The lanes that ``--lanes`` names.

    Args:
        text: ``cpu`` (all threads together), ``cpu:2x1`` (two groups of one core), or ``auto``: all threads together,
            and where there are two or more, two halves that may work side by side.
        threads: threads that may be used.

    Raises:
        UsageError: for anything else, more cores than there are, or a device that cannot be used here.
    """
    if text == AUTO:
        halves = [cpu_lane(0, threads // 2), cpu_lane(threads // 2, threads // 2)] if threads > 1 else []
        return (cpu_lane(0, threads), *halves)
    devices = [part.strip() for part in text.split(",")]
    for device in devices:
        if _CUDA.fullmatch(device):
            raise UsageError(
                f"--lanes {text!r} asks for {device}, and this version runs on CPUs only; give cpu, cpu:2x1 or auto"
            )
    match = _CPU.fullmatch(devices[0])
    if match is None or len(devices) > 1:
        raise UsageError(f"--lanes {text!r} is not understood; give cpu, cpu:2x1 (two groups of one core) or auto")
    if match.group(1) is None:
        return (cpu_lane(0, threads),)
    groups, size = int(match.group(1)), int(match.group(2))
    if groups < 1 or size < 1 or groups * size > threads:
        raise UsageError(f"--lanes {text!r} needs {groups * size} threads and there are {threads}; ask for fewer")
    return tuple(cpu_lane(index * size, size) for index in range(groups))
