"""``python -m research.prefetch MODEL.onnx ARTIFACT``: the artifact's kernels with and without their prefetches.

Each kernel as it ships beside the same without prefetches, in turn, on so many copies of its weights that each lies
beyond L2 when its turn comes, as in a model.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from autotune.artifact.directory import read_artifact
from autotune.backends.cpu.libraries import set_threads
from autotune.importer.guarded_import import import_model
from autotune.options import Options
from schedules.config import Config
from schedules.lower import load_program as load_prim_func
from schedules.lower import lower, repack, tvm_target
from schedules.target import Target
from schedules.task import Task
from schedules.templates.common import prefetch
from schedules.templates.cpu.passes import compiled

BYTES = 64 * 2**20
"""Of all copies of a weight together."""

MOST_COPIES = 64
"""Of a small weight: what lies between two of its turns is then in L2, as in a model's first layers."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m research.prefetch")
    parser.add_argument("model", type=Path)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    plan = read_artifact(arguments.artifact).plan
    set_threads(plan.target.threads)
    configs = {choice.task: choice.config for choice in plan.choices}
    _, program = import_model(arguments.model, Options().inputs, plan.target)
    print("| kernel | × | without µs | with µs | without / with |\n|---|---|---|---|---|")
    before = after = 0.0
    for task in program.tasks:
        text = program.programs[task.key]
        if "prefetch" not in str(lower(load_prim_func(text), configs[task.key], plan.target).mod["main"].script()):
            continue
        kernels = [_built(text, configs[task.key], plan.target, wanted) for wanted in (False, True)]
        without, having = _timed(kernels, _arguments(text, task, configs[task.key]), arguments.rounds)
        before, after = before + task.weight * without, after + task.weight * having
        row = f"{without * 1e6:.0f} | {having * 1e6:.0f} | {without / having:.2f}"
        print(f"| {task.name} | {task.weight} | {row} |")
    print(f"together {before * 1e3:.2f} ms without, {after * 1e3:.2f} ms with: {before / after:.3f}")
    return 0


def _built(program: str, config: Config, target: Target, wanted: bool) -> Any:
    fewest = prefetch.FEWEST_TILES
    prefetch.FEWEST_TILES = fewest if wanted else 1 << 30
    try:
        scheduled = lower(load_prim_func(program), config, target).mod["main"]
    finally:
        prefetch.FEWEST_TILES = fewest
    return compiled(scheduled, "main", tvm_target(target))["main"]


def _arguments(program: str, task: Task, config: Config) -> list[list[Any]]:
    """One list of arguments per copy of the weights; what is no weight is shared."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in task.shapes]
    for index, how in repack(load_prim_func(program), config).items():
        arrays[index] = how.apply(arrays[index])
    size = sum(arrays[index].nbytes for index in task.constants)
    shared = [tvm.runtime.tensor(array) for array in arrays]
    copies = range(min(max(2, BYTES // size), MOST_COPIES))
    return [
        [tvm.runtime.tensor(arrays[at]) if at in task.constants else array for at, array in enumerate(shared)]
        for _ in copies
    ]


def _timed(kernels: Sequence[Any], copies: list[list[Any]], rounds: int) -> list[float]:
    seconds: list[list[float]] = [[] for _ in kernels]
    for _ in range(rounds):
        for kernel, laps in zip(kernels, seconds, strict=True):
            kernel(*copies[0])
            began = time.perf_counter()
            for arguments in copies[1:]:
                kernel(*arguments)
            laps.append((time.perf_counter() - began) / (len(copies) - 1))
    return [statistics.median(laps) for laps in seconds]


if __name__ == "__main__":
    raise SystemExit(main())
