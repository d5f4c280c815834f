"""``python -m research.kept_allocation [FOLDER…]``: allocators compared on kept runs, which are of live size.

The searches of a kept run are fixed: each task's trials come in the recorded order, at the recorded seconds. An
allocator deals their slots anew. A run's latency is the weighted sum over its tasks of the best config so far, as the
finalists' timing in turn says. Each line gives the seconds until it stays within 5, 2 and 1 % of its end, geometric
means over the runs, and the ratio to the default with its standard error over runs. The runs were dealt by an earlier
default when they were recorded, so no task has more trials than that gave it.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from costmodels.cost_model import Floats
from research.kept_runs import FOLDER, KeptRun, KeptTask, kept_runs
from search.allocators.allocation import SLOT, Allocator, TaskState, slot_trials
from search.allocators.allocator_catalog import DEFAULT_ALLOCATOR, make_allocator
from search.allocators.stopping import credible_bound_s

NEAR = (1.05, 1.02, 1.01)
RIVALS = (DEFAULT_ALLOCATOR, "round-robin-paced", "gradient-paced", "gradient", "round-robin")
CLOSE = 1.001
"""A run that is as near to its end has arrived."""


@dataclass(frozen=True)
class KeptSearch:
    """One task's search.

    Attributes:
        task: as kept.
        cost_s: (n,) seconds of each trial.
        best_s: (n,) latency of the best config after each trial; infinite before a valid one.
    """

    task: KeptTask
    cost_s: Floats
    best_s: Floats

    def state(self, key: str, trials: int) -> TaskState:
        """Return the state after ``trials``."""
        tried, spent = tuple(self.task.latencies_s[:trials]), tuple(map(float, self.cost_s[:trials]))
        bound_s = credible_bound_s(self.task.bound_s, tried)
        flop = int(1e12 * self.task.bound_s)  # not kept; the order of first slots needs the most work first
        ended = trials >= len(self.cost_s)
        return TaskState(key, self.task.template, self.task.weight, flop, bound_s, tried, spent, ended)


@dataclass(frozen=True)
class KeptMoment:
    """A moment after a slot: seconds so far, the states, and the model's latency once every task has a valid trial."""

    now_s: float
    states: tuple[TaskState, ...]
    latency_s: float


def searches(run: KeptRun) -> dict[str, KeptSearch]:
    """Return the searches of the tasks with a valid trial, by task key."""
    costs: dict[str, list[float]] = defaultdict(list)
    before_s = 0.0
    for slot in run.slots:
        count = slot.trials - len(costs[slot.key])
        costs[slot.key] += [(slot.elapsed_s - before_s) / max(count, 1)] * count
        before_s = slot.elapsed_s
    by_key = {}
    for key, task in run.tasks.items():
        count = min(len(task.latencies_s), len(costs[key]))
        best = np.array([best_s(task, trials) for trials in range(1, count + 1)])
        if count and np.isfinite(best).any():
            by_key[key] = KeptSearch(task, np.array(costs[key][:count]), best)
    return by_key


def best_s(task: KeptTask, count: int) -> float:
    """The latency of the best of the first ``count`` trials of a task.

    Timings of different minutes differ by up to 30 % on a shared machine, so finalists, which had their turns together,
    are compared by that timing, which is the last of each. Only where none of the first ``count`` trials was a
    finalist, the search's own timing counts, and no less than what the best finalist takes. Infinite if every trial
    failed.
    """
    seen_s, true_s = (
        np.array([np.inf if one is None else one for one in timed], dtype=np.float64)
        for timed in (task.latencies_s, task.true_s)
    )
    finals_s = np.where(true_s != seen_s, true_s, np.inf)
    least = float(finals_s[:count].min())
    if np.isfinite(least):
        return least
    least_s = float(finals_s.min())
    seen = float(seen_s[:count].min())
    return max(seen, least_s) if np.isfinite(least_s) else seen


def dealt(by_key: dict[str, KeptSearch], allocator: Allocator) -> Iterator[KeptMoment]:
    """The moment after each slot, until the allocator serves no task."""
    trials = dict.fromkeys(by_key, 0)
    states = {key: search.state(key, 0) for key, search in by_key.items()}
    now_s = 0.0
    while (key := allocator.next([*states.values()])) is not None:
        start = trials[key]
        trials[key] += min(slot_trials(allocator.pace, start, SLOT), len(by_key[key].cost_s) - start)
        states[key] = by_key[key].state(key, trials[key])
        now_s += float(by_key[key].cost_s[start : trials[key]].sum())
        latency_s = sum(
            search.task.weight * (float(search.best_s[trials[key] - 1]) if trials[key] else np.inf)
            for key, search in by_key.items()
        )
        yield KeptMoment(now_s, tuple(states.values()), latency_s)


def end_s(by_key: dict[str, KeptSearch]) -> float:
    """Return the model's latency after all trials."""
    return sum(search.task.weight * float(search.best_s[-1]) for search in by_key.values())


def seconds(by_key: dict[str, KeptSearch], allocator: Allocator) -> list[float]:
    """Return the seconds until the run stays within each of ``NEAR`` of its end."""
    final_s, passed = end_s(by_key), []
    for moment in dealt(by_key, allocator):
        passed.append((moment.now_s, moment.latency_s))
        if moment.latency_s <= CLOSE * final_s:
            break
    times, latencies = np.array(passed).T
    above = [np.flatnonzero(latencies > factor * final_s) for factor in NEAR]
    firsts = [int(late[-1]) + 1 if len(late) else 0 for late in above]
    return [float(times[min(first, len(times) - 1)]) for first in firsts]


def line(name: str, own: Floats, default: Floats) -> str:
    """Return a row of a Markdown table: means over runs (rows), and ratios to the default."""
    apart = np.log(own / default)
    errors = apart.std(axis=0) / np.sqrt(len(own))
    means, ratios = np.exp(np.log(own).mean(axis=0)), np.exp(apart.mean(axis=0))
    cells = [f"{mean:.1f}, {ratio:.2f} ± {error:.2f}" for mean, ratio, error in zip(means, ratios, errors, strict=True)]
    return f"| `{name}` | {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table for each folder."""
    parser = argparse.ArgumentParser(prog="python -m research.kept_allocation", description=__doc__)
    parser.add_argument("folders", type=Path, nargs="*", default=[FOLDER, FOLDER / "confirmed"])
    parser.add_argument("--allocator", default=",".join(RIVALS))
    options = parser.parse_args(arguments)
    for folder in options.folders:
        runs = [searches(run) for run in kept_runs(folder)]
        print(f"{len(runs)} runs of {folder.name}\n\n| allocator | 5 % | 2 % | 1 % |\n|---|---|---|---|")

        def times(name: str, runs: Sequence[dict[str, KeptSearch]] = runs) -> Floats:
            return np.array([seconds(run, make_allocator(name, np.random.default_rng(0))) for run in runs])

        default = times(DEFAULT_ALLOCATOR)
        for name in options.allocator.split(","):
            print(line(name, default if name == DEFAULT_ALLOCATOR else times(name), default), flush=True)


if __name__ == "__main__":
    main()
