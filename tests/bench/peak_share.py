"""``python -m tests.bench.peak_share ARTIFACT…``: which share of the FMA peak the kernels of tuned artifacts reach.

The clock of a machine drifts, and drops where vectors are loaded (docs/benchmarks.md), so the peak is measured in turn
with the kernels, every round anew: the FMA kernel of ``tune devices``, then one inference, whose kernels the driver of
lanes times where they are, with weights and activations as cold as the model meets them.

Counted are convolutions and matrix products that are bound by arithmetic: at the peak they take twice as long as their
bytes at the measured bandwidth.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import tvm

from autotune.artifact.directory import read_artifact, read_tasks
from autotune.host.machine import thread_cpus
from autotune.host.roofline import best_of, fma_kernel, measure_roofline
from autotune.measure.measurer import symbol_of
from autotune.runtime.session import InferenceSession
from autotune.validation.verify import random_inputs
from schedules.target import Target
from schedules.task import Task

ROUNDS, WARM = 20, 3
QUIET_S = 4e-3
"""Threads of the last side spin for 2 ms."""
TEMPLATES = ("conv2d", "matmul")


@dataclass(frozen=True)
class Share:
    """One kernel.

    Attributes:
        share: median over the rounds of its nominal operations per second over the FMA peak's.
        winograd: whether it needs fewer operations than it is counted for.
    """

    model: str
    task: Task
    seconds: float
    share: float
    winograd: bool


def peak_timer(target: Target) -> tuple[ThreadPoolExecutor, object]:
    """A thread that owns TVM's pool, and a function that answers GFLOPS of the FMA kernel now."""
    own = ThreadPoolExecutor(1)

    def made() -> object:
        cpus = [str(cpu) for cpu in thread_cpus(target.threads)]
        tvm.get_global_func("runtime.config_threadpool")(-2, target.threads, cpus)
        kernel, given, flop = fma_kernel(target)
        arrays = [tvm.runtime.tensor(array) for array in given]
        return lambda: flop / best_of(kernel.mod, tvm.cpu(), arrays) / 1e9

    return own, own.submit(made).result()


def shares(path: Path) -> tuple[list[Share], list[float]]:
    """The kernels of one artifact, and the peak of every round in GFLOPS."""
    artifact = read_artifact(path)
    tasks = {symbol_of(task.key): task for task in read_tasks(path)[0]}
    configs = {symbol_of(choice.task): choice.config for choice in artifact.plan.choices}
    memory_gb_s = measure_roofline(artifact.target).memory_gb_s
    session, feed = InferenceSession(path), random_inputs(artifact.inputs, 0)
    own, peak_now = peak_timer(artifact.target)
    peaks: list[float] = []
    rounds: list[dict[str, float]] = []
    for number in range(WARM + ROUNDS):
        time.sleep(QUIET_S)
        peak = own.submit(peak_now).result()
        time.sleep(QUIET_S)
        session.run(None, feed)
        seconds: dict[str, list[float]] = {}
        for symbol, spent in session.profile(feed):
            seconds.setdefault(symbol, []).append(spent)
        if number >= WARM:
            peaks.append(peak)
            rounds.append({symbol: statistics.median(spent) for symbol, spent in seconds.items()})
    own.shutdown()
    found = []
    for symbol, task in tasks.items():
        gflops = statistics.median(peaks)
        if task.template not in TEMPLATES or symbol not in rounds[0]:
            continue
        if task.flop / gflops < 2 * task.bytes / memory_gb_s:
            continue
        ratios = [task.flop / spent[symbol] / 1e9 / peak for spent, peak in zip(rounds, peaks, strict=True)]
        seconds_s = statistics.median(spent[symbol] for spent in rounds)
        winograd = bool(dict(configs[symbol].items).get("algorithm", 0))
        found.append(Share(path.stem, task, seconds_s, statistics.median(ratios), winograd))
    return found, peaks


def summary(found: Sequence[Share]) -> str:
    """Median and quartiles, in percent."""
    values = [share.share for share in found]
    if len(values) < 2:
        return ", ".join(f"{value:.0%}" for value in values) or "none"
    low, middle, high = statistics.quantiles(values, n=4)
    return f"median {middle:.0%}, quartiles {low:.0%} and {high:.0%}, of {len(values)}"


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.peak_share", description=__doc__.splitlines()[0])
    parser.add_argument("artifacts", nargs="+", type=Path)
    parser.add_argument("--kernels", action="store_true", help="also list every kernel")
    arguments = parser.parse_args()
    everything: list[Share] = []
    for path in arguments.artifacts:
        found, peaks = shares(path)
        everything += found
        direct = [share for share in found if not share.winograd]
        low, middle, high = statistics.quantiles(peaks, n=4)
        print(f"{path.stem}: peak {middle:.0f} GFLOPS ({low:.0f} to {high:.0f}); direct {summary(direct)}")
        for share in sorted(found, key=lambda share: share.share) if arguments.kernels else ():
            kind = "Winograd" if share.winograd else "direct"
            print(f"  {share.share:5.0%} {1e6 * share.seconds:8.1f} µs  {kind:8}  {share.task.name}")
    direct = [share for share in everything if not share.winograd]
    print(f"direct: {summary(direct)}")
    print(f"Winograd: {summary([share for share in everything if share.winograd])}")


if __name__ == "__main__":
    main()
