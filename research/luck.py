"""``python -m research.luck TRACE.npz …``: how far luck misleads a search, by how often a new best is confirmed.

Each recorded task is searched by the default searcher, and its finalists are timed in turn as at the end of a run. The
line of each number of confirmations says, over tasks and seeds: trials until the best config is within 2 % of the
fastest there is and stays so (geometric mean of the tasks' medians), seconds of runs, how far from it the config is
that ships, in the mean and how often beyond 2 %, and how fast the best was taken to be after all trials, over the
fastest there is: below 0 it was taken for faster than any config is.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autotune.contrib.replay.recorded_runs import ReplayBench, context_of, run_slot
from autotune.contrib.replay.trace import Trace, load_traces
from autotune.measure.evaluator import CONFIRMATIONS, FINAL_EVALUATOR, make_evaluator
from autotune.tuning.loop import CLOSE, FINALISTS
from search.allocators.allocation import SLOT, slot_trials
from search.allocators.share_per_second import PACE
from search.searchers.searcher import Result
from search.searchers.searcher_catalog import make_searcher

NEAR = 1.02
"""Of the fastest config: near enough."""


@dataclass(frozen=True)
class Searched:
    """One search.

    Attributes:
        trials: until the best was near for good; all of them plus a half if it was not.
        run_s: seconds of all runs.
        shipped: latency of what ships over that of the fastest config.
        taken: what the best was taken to take over the same, after all trials.
    """

    trials: float
    run_s: float
    shipped: float
    taken: float


def searched(trace: Trace, seed: int, confirmations: int, trials: int) -> Searched:
    """Search ``trace``."""
    bench = ReplayBench(trace, make_evaluator("adaptive"), np.random.default_rng([seed, 1]), confirmations)
    searcher = make_searcher("adaptive", context_of(trace, np.random.default_rng([seed, 2])))
    results: list[Result] = []
    near: int | None = None
    while len(results) < trials:
        new, _ = run_slot(searcher, bench, slot_trials(PACE, len(results), SLOT))
        if not new:
            break
        results += new
        best = min((measured.latency_s, trace.space.index(config)) for config, measured in results if measured.ok)
        near = (near or len(results)) if trace.true_s[best[1]] <= NEAR * trace.best_s else None
    ranked = sorted((measured.latency_s, trace.space.index(config)) for config, measured in results if measured.ok)
    finalists = [place for latency_s, place in ranked[:FINALISTS] if latency_s <= CLOSE * ranked[0][0]]
    final_s = bench.ranked(finalists, FINAL_EVALUATOR)
    shipped = float(trace.true_s[min(final_s, key=final_s.__getitem__)])
    return Searched(near or 1.5 * trials, bench.run_s, shipped / trace.best_s, ranked[0][0] / trace.best_s)


def line(confirmations: int, by_task: Sequence[Sequence[Searched]]) -> str:
    """What the searches of all tasks say."""
    every = [search for searches in by_task for search in searches]
    medians = [statistics.median(search.trials for search in searches) for searches in by_task]
    shipped, taken = (np.log([getattr(search, name) for search in every]) for name in ("shipped", "taken"))
    return (
        f"{confirmations} confirmations: near after {statistics.geometric_mean(medians):.1f} trials, "
        f"{statistics.fmean(search.run_s for search in every):.2f} s of runs, ships {shipped.mean():.1%} slower than "
        f"the fastest, by more than {NEAR - 1:.0%} in {np.mean(shipped > np.log(NEAR)):.0%}, "
        f"best taken for {taken.mean():+.1%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m research.luck", description=__doc__)
    parser.add_argument("traces", type=Path, nargs="+")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--seed", type=int, default=7500, help="the first")
    parser.add_argument("--trials", type=int, default=96)
    parser.add_argument("--confirmations", default=",".join(map(str, range(CONFIRMATIONS + 2))), help="with commas")
    options = parser.parse_args()
    traces = [trace for path in options.traces for trace in load_traces(path).traces]
    seeds = range(options.seed, options.seed + options.seeds)
    for count in map(int, options.confirmations.split(",")):
        print(line(count, [[searched(t, seed, count, options.trials) for seed in seeds] for t in traces]), flush=True)


if __name__ == "__main__":
    main()
