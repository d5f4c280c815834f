"""``python -m research.peak_share ARTIFACT…``: which share of the peak the kernels of tuned artifacts reach.

The peak is that of the kernel's precision: multiply-adds of fp32, or dot products of bf16 or int8. The clock of a
machine drifts, and drops where vectors are loaded (docs/lab: benchmarks), so the peak is measured in turn with the
kernels, every round anew: the kernels of ``tune devices``, then one inference, whose kernels the driver of lanes times
where they are, with weights and activations as cold as the model meets them.

Counted are convolutions and matrix products that are bound by arithmetic: at the peak they take twice as long as their
bytes at the measured bandwidth.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import tvm

from autotune.artifact.directory import read_artifact, read_tasks
from autotune.artifact.precision_choice import precision_of
from autotune.host.machine import thread_cpus
from autotune.host.roofline import best_of, fma_kernels, measure_roofline
from autotune.measure.measurer import symbol_of
from autotune.runtime.session import InferenceSession
from autotune.validation.verify import random_inputs
from schedules.target import Target
from schedules.task import Task
from schedules.templates.instructions.dots import BF16, DotForm, byte_form

ROUNDS, WARM = 20, 3
QUIET_S = 4e-3
"""Threads of the last side spin for 2 ms."""
TEMPLATES = ("conv2d", "matmul")


@dataclass(frozen=True)
class Share:
    """One kernel.

    Attributes:
        precision: of what it multiplies.
        share: median over the rounds of its nominal operations per second over those of its precision's peak.
        winograd: whether it needs fewer operations than it is counted for.
    """

    model: str
    task: Task
    precision: str
    seconds: float
    share: float
    winograd: bool


def peak_timers(target: Target, precisions: Sequence[str]) -> tuple[ThreadPoolExecutor, dict[str, Callable[[], float]]]:
    """A thread that owns TVM's pool, and by precision a function that answers 1e9 operations per second now."""
    own = ThreadPoolExecutor(1)

    def threads() -> None:
        cpus = [str(cpu) for cpu in thread_cpus(target.threads)]
        tvm.get_global_func("runtime.config_threadpool")(-2, target.threads, cpus)

    def measuring(form: DotForm | None) -> Callable[[], float]:
        kernels = [
            (kernel.mod, [tvm.runtime.tensor(array) for array in operands], flop)
            for kernel, operands, flop in fma_kernels(target, form)
        ]
        return lambda: max(flop / best_of(mod, tvm.cpu(), arrays) for mod, arrays, flop in kernels) / 1e9

    own.submit(threads).result()
    forms = {"fp32": None, "bf16": BF16, "int8": byte_form(target)}
    return own, {name: own.submit(measuring, forms[name]).result() for name in precisions}


def shares(path: Path) -> tuple[list[Share], dict[str, list[float]]]:
    """The kernels of one artifact, and by precision the peak of every round in 1e9 operations per second."""
    artifact = read_artifact(path)
    tasks = {symbol_of(task.key): task for task in read_tasks(path)[0] if task.template in TEMPLATES}
    configs = {symbol_of(choice.task): choice.config for choice in artifact.plan.choices}
    memory_gb_s = measure_roofline(artifact.target).memory_gb_s
    session, feed = InferenceSession(path), random_inputs(artifact.inputs, 0)
    own, peak_now = peak_timers(artifact.target, sorted(set(map(precision_of, tasks.values()))))
    peaks: dict[str, list[float]] = {precision: [] for precision in peak_now}
    rounds: list[dict[str, float]] = []
    for number in range(WARM + ROUNDS):
        time.sleep(QUIET_S)
        now = {precision: own.submit(measured).result() for precision, measured in peak_now.items()}
        time.sleep(QUIET_S)
        session.run(None, feed)
        seconds: dict[str, list[float]] = {}
        for symbol, spent in session.profile(feed):
            seconds.setdefault(symbol, []).append(spent)
        if number >= WARM:
            for precision, peak in now.items():
                peaks[precision].append(peak)
            rounds.append({symbol: statistics.median(spent) for symbol, spent in seconds.items()})
    own.shutdown()
    result = []
    for symbol, task in tasks.items():
        precision = precision_of(task)
        gflops = statistics.median(peaks[precision])
        if symbol not in rounds[0] or task.flop / gflops < 2 * task.bytes / memory_gb_s:
            continue
        pairs = zip(rounds, peaks[precision], strict=True)
        share = statistics.median(task.flop / spent[symbol] / 1e9 / peak for spent, peak in pairs)
        seconds_s = statistics.median(spent[symbol] for spent in rounds)
        winograd = bool(dict(configs[symbol].items).get("algorithm", 0))
        result.append(Share(path.stem, task, precision, seconds_s, share, winograd))
    return result, peaks


def summary(parts: Sequence[Share]) -> str:
    """Median and quartiles, in percent."""
    values = [share.share for share in parts]
    if len(values) < 2:
        return ", ".join(f"{value:.0%}" for value in values) or "none"
    low, middle, high = statistics.quantiles(values, n=4)
    return f"median {middle:.0%}, quartiles {low:.0%} and {high:.0%}, of {len(values)}"


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m research.peak_share", description=__doc__.splitlines()[0])
    parser.add_argument("artifacts", nargs="+", type=Path)
    parser.add_argument("--kernels", action="store_true", help="also list every kernel")
    arguments = parser.parse_args()
    everything: list[Share] = []
    for path in arguments.artifacts:
        own_shares, peaks = shares(path)
        everything += own_shares
        for precision, rounds in peaks.items():
            low, middle, high = statistics.quantiles(rounds, n=4)
            direct = [share for share in own_shares if share.precision == precision and not share.winograd]
            print(
                f"{path.stem}, {precision}: peak {middle:.0f} ({low:.0f} to {high:.0f}) 1e9/s; direct {summary(direct)}"
            )
        for share in sorted(own_shares, key=lambda share: share.share) if arguments.kernels else ():
            kind = "Winograd" if share.winograd else "direct"
            name = f"{share.precision} {share.task.name}"
            print(f"  {share.share:5.0%} {1e6 * share.seconds:8.1f} µs  {kind:8}  {name}")
    for precision in sorted({share.precision for share in everything}):
        direct = [share for share in everything if share.precision == precision and not share.winograd]
        print(f"direct, {precision}: {summary(direct)}")
    print(f"Winograd: {summary([share for share in everything if share.winograd])}")


if __name__ == "__main__":
    main()
