"""``python -m research.metaschedule MODEL.onnx ARTIFACT FILE.events``: TVM's own tuner beside this one.

MetaSchedule tunes the same model for so many trials, with its defaults, on as many threads as the artifact; then both
are timed in turn. The events are those of the run that made the artifact: they say when its kernels were as fast as
MetaSchedule's in the end.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import autotune
from autotune.backends.cpu.libraries import set_threads
from autotune.host.machine import host_target
from autotune.validation.verify import compare, session_inputs
from research.gpu import metaschedule
from research.time_to_target import soon
from schedules.lower import tvm_target

PAUSE_S = 0.3
"""Until the threads of the other engine are quiet."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m research.metaschedule")
    parser.add_argument("model", type=Path)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("events", type=Path)
    parser.add_argument("--trials", type=int, default=256)
    parser.add_argument("--each", type=int, default=64, help="trials of a task's round, by default TVM's")
    parser.add_argument("--seconds", type=float, help="end it after so long, with what it has by then")
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    ours = autotune.load(arguments.artifact)
    target = str(tvm_target(host_target(ours.threads)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        began = time.perf_counter()
        metaschedule.tune(arguments.model, folder, target, arguments.seconds, arguments.trials, arguments.each)
        spent_s = time.perf_counter() - began
        feed = session_inputs(ours, 0)
        set_threads(ours.threads)
        theirs = metaschedule.engine(arguments.model, folder, target, feed)
        trials = metaschedule.records(folder)
        verdict = compare("ours", _listed(theirs()), ours.run(None, feed))
        ours_ms, theirs_ms = _in_turn([lambda: ours.run(None, feed), theirs], arguments.rounds)
    _, reached_s = soon(arguments.events, theirs_ms)
    print(f"MetaSchedule: {trials} trials in {spent_s:.1f} s, {theirs_ms:.2f} ms; {verdict.difference} from ours")
    print(f"ours: {ours_ms:.2f} ms, {theirs_ms / ours_ms:.2f} times faster")
    if reached_s is not None:
        print(f"as fast as MetaSchedule's after {reached_s:.1f} s of tuning, {spent_s / reached_s:.0f} times sooner")
    return 0


def _listed(outputs: Any) -> list[np.ndarray]:
    return outputs if isinstance(outputs, list) else [outputs]


def _in_turn(engines: list[Callable[[], Any]], rounds: int) -> list[float]:
    """Median ms of every engine; a round has three calls of each, of which the last two count."""
    spent: list[list[float]] = [[] for _ in engines]
    for _ in range(rounds):
        for engine, times in zip(engines, spent, strict=True):
            time.sleep(PAUSE_S)
            engine()
            for _ in range(2):
                began = time.perf_counter()
                engine()
                times.append(1e3 * (time.perf_counter() - began))
    return [statistics.median(times) for times in spent]


if __name__ == "__main__":
    raise SystemExit(main())
