"""How evenly kernels divide over threads, without as many threads: ``python -m research.balance MODEL… --threads 64``.

A kernel's parallel loops have some number of jobs each. On T threads, n equal jobs take as long as ⌈n / T⌉ · T jobs.
The share n / (⌈n / T⌉ · T) of the threads' time is work. A model's balance is the mean over its kernels' first guesses,
weighted by the time of their rooflines on one thread. Kernels with less work than waking a thread takes are left out.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import tvm_ffi
from tvm import tirx

from autotune.importer.guarded_import import import_model
from schedules.lower import BASELINE, load_program, lower
from schedules.target import Target
from schedules.task import Task
from tests.models.catalog import cached

FLOP_PER_S, BYTES_PER_S = 100e9, 10e9
"""Speeds of one thread, for the weights. Guesses."""

LEAST_S = 2e-6
"""Seconds on one thread below which a kernel is left to one."""


@dataclass(frozen=True)
class Balance:
    """A kernel's jobs, and what share of the threads' time they fill.

    Attributes:
        seconds: of all its calls on one thread, by its roofline.
        jobs: iterations of its parallel loops, outermost only; empty if nothing is parallel.
    """

    task: Task
    seconds: float
    jobs: tuple[int, ...]

    def share(self, threads: int) -> float:
        """1 if all threads work all the time; loops count by their jobs."""
        ideal = sum(self.jobs) / threads
        return ideal / sum(math.ceil(count / threads) for count in self.jobs) if self.jobs else 1 / threads


def parallel_jobs(func: tirx.PrimFunc) -> tuple[int, ...]:
    """Iterations of the parallel loops of a scheduled function, nested ones multiplied."""
    found: list[tirx.For] = []
    tvm_ffi.structural_walk(func.body, (tirx.For, found.append))  # append returns None, which means: go on
    return tuple(int(loop.extent) for loop in found if loop.kind == tirx.ForKind.PARALLEL)


def balances(model: Path, target: Target) -> list[Balance]:
    """Every kernel of ``model`` that is worth several threads, by its first guess."""
    _, program = import_model(model, {}, target)
    found = []
    for task in program.tasks:
        seconds = max(task.flop / FLOP_PER_S, task.bytes / BYTES_PER_S)
        if seconds < LEAST_S:
            continue
        config = (*program.spaces[task.key].initial, BASELINE)[0]
        jobs = parallel_jobs(lower(load_program(program.programs[task.key]), config, target).mod["main"])
        found.append(Balance(task, seconds * task.weight, jobs))
    return found


def mean(found: list[Balance], threads: int) -> float:
    """The kernels' shares, weighted by their time."""
    total = sum(each.seconds for each in found)
    return sum(each.share(threads) * each.seconds for each in found) / total if total else 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--threads", type=int, nargs="+", default=[4, 8, 16, 32, 64])
    parser.add_argument("--processor", default="sapphirerapids")
    parser.add_argument("--worst", type=int, default=0, help="kernels to show of each model")
    arguments = parser.parse_args()
    for name in arguments.models:
        for threads in arguments.threads:
            found = balances(cached(name), Target.cpu(arguments.processor, threads))
            print(f"{name:16} {threads:3} threads  {mean(found, threads):6.1%} of {len(found)} kernels", flush=True)
            lost = sorted(found, key=lambda each: each.seconds * (each.share(threads) - 1))
            for each in lost[: arguments.worst]:
                print(f"    {each.share(threads):6.1%}  {each.jobs} jobs  {each.task.template} {each.task.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
