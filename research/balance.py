"""Balance of kernels over threads, without as many threads: ``python -m research.balance --all``.

A kernel's parallel loops have some number of jobs each. On T threads, n equal jobs take as long as ⌈n / T⌉ · T jobs.
The share n / (⌈n / T⌉ · T) of the threads' time is work; of what no loop runs in parallel it is 1 / T. A kernel's share
is that of all its loops, weighted by what they compute: the elements that their innermost statements write.

A model's balance is the mean over its kernels' first guesses, weighted by the time of their rooflines on one thread.
Kernels with less work than waking a thread takes are left out. The exit status is 1 if the mean over all kernels of all
models is below ``BAR`` for some number of threads.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tvm import s_tir, tirx
from tvm.sym import Analyzer

from autotune.importer.guarded_import import import_model
from schedules.lower import BASELINE, load_program, lower
from schedules.target import Target
from schedules.task import Task
from tests.models.catalog import cached

MODELS = (
    *("squeezenet", "shufflenet", "mobilenet_v2", "mobilenet_v3", "efficientnet_b0", "inception_v1", "inception_v2"),
    *("densenet121", "resnet18", "resnet50", "resnet50_b8", "unet", "qdq_cnn", "siamese_cnn"),
    *("encoder", "encoder_b8", "mt_dnn", "mlp", "wide_deep", "lstm"),
)
"""The twenty models of ``--all``."""

THREADS = (4, 8, 16, 32, 64)
BAR = 0.95

FLOP_PER_S, BYTES_PER_S = 100e9, 10e9
"""Speeds of one thread, for the weights. Guesses."""

LEAST_S = 2e-6
"""Seconds on one thread below which a kernel is left to one."""


@dataclass(frozen=True)
class Jobs:
    """A loop in parallel.

    Attributes:
        count: its iterations; 1 for everything that no loop runs in parallel.
        written: elements that all of them write, of every statement, whenever it runs.
    """

    count: int
    written: int


@dataclass(frozen=True)
class Balance:
    """The jobs of a kernel, and its time on one thread.

    Attributes:
        seconds: of all its calls on one thread, by its roofline.
        jobs: of its parallel loops, outermost only, and of the rest of it.
    """

    task: Task
    seconds: float
    jobs: tuple[Jobs, ...]

    def share(self, threads: int) -> float:
        """1 if all threads work all the time."""
        needed = sum(math.ceil(loop.count / threads) * threads * loop.written / loop.count for loop in self.jobs)
        return sum(loop.written for loop in self.jobs) / needed if self.jobs else 1 / threads


def parallel_jobs(func: tirx.PrimFunc) -> tuple[Jobs, ...]:
    """The parallel loops of a scheduled function in order, then the rest of it if that writes anything."""
    loops: list[Jobs] = []
    analyzer = Analyzer()  # the last block of keys, for one, has fewer

    def walk(statement: tirx.Stmt, times: int, inside: bool) -> int:
        """Elements that ``statement`` writes outside of parallel loops; with ``inside``, all."""
        if isinstance(statement, tirx.For):
            extent = int(analyzer.const_int_bound(statement.extent).max_value)
            if statement.kind == tirx.ForKind.PARALLEL and not inside:
                loops.append(Jobs(extent, walk(statement.body, times * extent, True)))
                return 0
            return walk(statement.body, times * extent, inside)
        if isinstance(statement, tirx.SeqStmt):
            return sum(walk(part, times, inside) for part in statement.seq)
        if isinstance(statement, s_tir.SBlockRealize):
            return walk(statement.block, times, inside)
        if isinstance(statement, s_tir.SBlock):
            first = walk(statement.init, times, inside) if statement.init is not None else 0
            return first + walk(statement.body, times, inside)
        if isinstance(statement, tirx.IfThenElse):
            other = walk(statement.else_case, times, inside) if statement.else_case is not None else 0
            return max(walk(statement.then_case, times, inside), other)
        if hasattr(statement, "body"):
            return walk(statement.body, times, inside)
        return times * statement.value.ty.dtype.lanes if isinstance(statement, tirx.BufferStore) else times

    alone = walk(func.body, 1, False)
    return (*loops, Jobs(1, alone)) if alone else tuple(loops)


def balances(model: Path, target: Target) -> list[Balance]:
    """Every kernel of ``model`` that is worth several threads, by its first guess."""
    _, program = import_model(model, {}, target)
    result = []
    for task in program.tasks:
        seconds = max(task.flop / FLOP_PER_S, task.bytes / BYTES_PER_S)
        if seconds < LEAST_S:
            continue
        config = (*program.spaces[task.key].initial, BASELINE)[0]
        jobs = parallel_jobs(lower(load_program(program.programs[task.key]), config, target).mod["main"])
        result.append(Balance(task, seconds * task.weight, jobs))
    return result


def mean(kernels: Sequence[Balance], threads: int) -> float:
    """The kernels' shares, weighted by their time."""
    total = sum(kernel.seconds for kernel in kernels)
    return sum(kernel.share(threads) * kernel.seconds for kernel in kernels) / total if total else 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--all", action="store_true", help="twenty models")
    parser.add_argument("--threads", type=int, nargs="+", default=THREADS)
    parser.add_argument("--processor", default="sapphirerapids")
    parser.add_argument("--worst", type=int, default=0, help="kernels to show of each model")
    arguments = parser.parse_args()
    names = arguments.models or (MODELS if arguments.all else ())
    models: list[dict[int, list[Balance]]] = []
    for name in names:
        models.append({})
        for threads in arguments.threads:
            kernels = models[-1][threads] = balances(cached(name), Target.cpu(arguments.processor, threads))
            lost = sorted(kernels, key=lambda kernel: kernel.seconds * (kernel.share(threads) - 1))
            for kernel in lost[: arguments.worst]:
                counts = [loop.count for loop in kernel.jobs]
                print(f"    {kernel.share(threads):6.1%}  {counts} jobs  {kernel.task.template} {kernel.task.name}")
        print(row(name, [mean(kernels, threads) for threads, kernels in models[-1].items()]), flush=True)
    alike = [statistics.fmean(mean(model[threads], threads) for model in models) for threads in arguments.threads]
    by_time = [
        mean([kernel for model in models for kernel in model[threads]], threads) for threads in arguments.threads
    ]
    print(row("models alike", alike), row("kernels by time", by_time), sep="\n")
    return 0 if min(by_time) >= BAR else 1


def row(name: str, shares: Sequence[float]) -> str:
    return f"{name:16} {' '.join(f'{share:6.1%}' for share in shares)}"


if __name__ == "__main__":
    sys.exit(main())
