"""``python -m research.curve``: the share of the tuned speed that a few trials per task reach, by model.

Recorded models are searched with the default strategies, every task as many trials as the others. After 0 trials a task
runs its template's first guess, after k the config that looks best of the k that were measured. A model's time is the
sum of its kernels', by their true latencies; the tuned speed is that of the best config recorded of every task.

    share after k trials = Σ weight · best latency / Σ weight · latency of the config chosen after k trials
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence

from autotune.contrib.replay.allocator_replay import pace_of
from autotune.contrib.replay.recorded_runs import SearchRules
from autotune.contrib.replay.trace import Trace, load_traces
from autotune.contrib.replay.trajectories import Trajectories, Trajectory
from research.packing import TRACES
from search.allocators.allocator_catalog import DEFAULT_ALLOCATOR

MODELS = ("squeezenet", "encoder", "resnet50", "vgg19")
TRIALS = (0, 1, 3, 10, 30)


def shares(traces: Sequence[Trace], seed: int, trials: Sequence[int] = TRIALS) -> list[float]:
    """Share of the tuned speed of a model of ``traces`` after each number of ``trials`` per task."""
    rules = SearchRules(pace=pace_of(DEFAULT_ALLOCATOR), trials=max(trials))
    trajectories = Trajectories(traces, seed, rules)
    trajectories.finish()
    best_s = sum(trace.task.weight * trace.best_s for trace in traces)
    return [best_s / sum(_weighted_s(task, count) for task in trajectories.tasks) for count in trials]


def _weighted_s(task: Trajectory, count: int) -> float:
    """Seconds of all runs of a task in one inference, with the config that is chosen after ``count`` trials."""
    trace = task.trace
    valid = [(measured.latency_s, config) for config, measured in task.results[:count] if measured.ok]
    guessed = next(iter(trace.space.initial), None)
    chosen = min(valid, key=lambda pair: pair[0])[1] if valid else guessed
    latency_s = trace.untuned_s if chosen is None else float(trace.true_s[trace.space.index(chosen)])
    return trace.task.weight * (trace.untuned_s if math.isnan(latency_s) else latency_s)


def main() -> None:
    """Print a line of a Markdown table per model, medians over the seeds."""
    parser = argparse.ArgumentParser(prog="python -m research.curve", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--models", default=",".join(MODELS))
    arguments = parser.parse_args()
    print("| model | tasks |" + "".join(f" {count} |" for count in TRIALS))
    print("|---|---|" + "---|" * len(TRIALS))
    rows = []
    for model in arguments.models.split(","):
        traces = load_traces(TRACES / f"{model}.npz").traces
        runs = [shares(traces, seed) for seed in range(arguments.seeds)]
        rows.append([statistics.median(column) for column in zip(*runs, strict=True)])
        print(f"| {model} | {len(traces)} |" + "".join(f" {share:.1%} |" for share in rows[-1]), flush=True)
    means = [math.exp(statistics.mean(map(math.log, column))) for column in zip(*rows, strict=True)]
    print("| geometric mean | |" + "".join(f" {share:.1%} |" for share in means))


if __name__ == "__main__":
    main()
