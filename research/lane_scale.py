"""More lanes than any machine here has: ``python -m research.lane_scale [PROFILES.json…]``.

Simulated machines of 8 to 128 cores and up to 8 devices: CPU seconds to place, makespan beside the best single lane
and beside the bound. PROFILES are what ``python -m research.placements LOG MODEL.onnx --record FILE`` wrote of
a model that was timed on lanes of one core and of two. Nothing is run, and nothing here says anything of a real device.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autotune.cli.reply import table
from autotune.graph.exact import exact
from autotune.graph.lanes import HOST, Lane, cpu_lane
from autotune.graph.placement import Link, Problem, tensors_of
from research.placer_catalog import single

TRACES = Path(__file__).parent / "traces"

MACHINES = (
    *((8, size, 0) for size in (4, 2, 1)),
    *((32, size, 0) for size in (16, 8, 4, 2)),
    *((128, size, 0) for size in (64, 32, 16, 8)),
    *((32, 16, devices) for devices in (1, 2, 4, 8)),
    *((128, 32, devices) for devices in (1, 8)),
)
"""(cores, cores of a group, devices)."""

CROSSING, PCIE = Link(1e-6, 10e9), Link(1e-5, 12e9)
"""Between groups of cores as the driver takes it (docs/lab: branches), and to a device, which is made up."""

DEVICE_CORES = 8
"""Cores that a device is as fast as, whatever the subgraph; made up."""


@dataclass(frozen=True)
class Profiles:
    """What is known of a model's subgraphs.

    Attributes:
        needs: subgraphs that each reads from.
        bytes: that others read of each.
        one, two: seconds of each on one core and on two.
    """

    name: str
    needs: list[list[int]]
    bytes: list[int]
    one: list[float]
    two: list[float]

    def seconds(self, subgraph: int, cores: int) -> float:
        """On so many cores, by Amdahl's law through one core and two; no faster on more than by the law."""
        one = self.one[subgraph]
        serial = min(1.0, max(0.0, 2.0 * self.two[subgraph] / one - 1.0)) if one > 0.0 else 0.0
        return one * (serial + (1.0 - serial) / cores)


def branching(phases: int = 8, width: int = 6) -> Profiles:
    """Phases of ``width`` branches of one to three subgraphs, of 0.2 to 4 ms and 0.02 to 0.2 serial, made up."""
    rng = np.random.default_rng(2)
    needs: list[list[int]] = [[]]
    for _ in range(phases):
        meet, ends = len(needs) - 1, []
        for _ in range(width):
            source = meet
            for _ in range(int(rng.integers(1, 4))):
                needs.append([source])
                source = len(needs) - 1
            ends.append(source)
        needs.append(ends)
    one = [float(rng.uniform(0.2e-3, 4e-3)) for _ in needs]
    two = [seconds * (1.0 + float(rng.uniform(0.02, 0.2))) / 2.0 for seconds in one]
    return Profiles("made up", needs, [int(size) for size in rng.integers(50_000, 2_000_000, len(needs))], one, two)


def scaled(model: Profiles, cores: int, size: int, devices: int) -> Problem:
    """``model`` on all cores together, on groups of ``size`` of them, and on devices."""
    groups = [cpu_lane(first, size) for first in range(0, cores, size)]
    lanes = (cpu_lane(0, cores), *groups, *(Lane(f"sim:{d}", cores + d, 1, f"sim:{d}") for d in range(devices)))
    alone = tuple(
        tuple(model.seconds(s, DEVICE_CORES if lane.device else lane.threads) for lane in lanes)
        for s in range(len(model.needs))
    )
    ways = {way: PCIE for d in range(devices) for way in ((HOST, f"sim:{d}"), (f"sim:{d}", HOST))}
    return Problem(lanes, tensors_of(model.needs, model.bytes), alone, {}, CROSSING, ways)


def row(model: Profiles, cores: int, size: int, devices: int) -> list[str]:
    """A line of the table."""
    problem = scaled(model, cores, size, devices)
    began = time.process_time()
    best = exact(problem)
    took = time.process_time() - began
    one = single(problem).makespan_s
    least = best.placement.makespan_s
    counts = [str(cores), f"{cores // size} × {size}", str(devices), str(len(set(best.placement.lanes)))]
    ms = [f"{1e3 * seconds:.2f}" for seconds in (one, least)]
    return [model.name, *counts, f"{took:.2f}", *ms, f"{one / least:.2f}", f"{best.gap:.1%}"]


HEADS = [
    "model",
    "cores",
    "groups",
    "devices",
    "lanes used",
    "CPU s",
    "one lane ms",
    "placed ms",
    "gain",
    "above bound",
]


def read(path: Path) -> Profiles:
    """Recorded profiles."""
    return Profiles(**json.loads(path.read_text()))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="*", type=Path, help="all that are recorded, and a made-up model, if none")
    paths = parser.parse_args(arguments).profiles
    models = map(read, paths) if paths else [branching(), *map(read, sorted(TRACES.glob("*-lanes.json")))]
    for model, machine in itertools.product(models, MACHINES):
        print("\n".join(table(HEADS, [row(model, *machine)])), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
