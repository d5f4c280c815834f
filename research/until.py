"""``python -m research.until [FOLDER…]``: how many runs would leave more than they were asked when they stop.

The folders, ``research/runs`` and its ``confirmed`` if none is given, hold what ``python -m tests.zoo --keep`` left of
runs that ended by themselves and went on to the end of their budget. Their slots are dealt anew by the default
allocator (``research.kept_allocation``). Each run stops at the first moment when the remaining gain
(``search/allocators/remaining.py``) is below the share asked, and is a *miss* if later trials brought more than that.

The bound's factor is chosen by risk control (Learn then Test, a fixed sequence of factors from large to small): the
least whose misses are at most 10 % of runs with 90 % confidence by Clopper and Pearson's interval, at every share.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import beta

from research.kept_allocation import dealt, end_s, searches
from research.kept_runs import FOLDER, KeptRun, kept_runs
from search.allocators.allocator_catalog import DEFAULT_ALLOCATOR, make_allocator
from search.allocators.remaining import GAIN_FACTOR, remaining_gain
from search.allocators.stopping import Limits, every_task_tried

SHARES = (0.05, 0.03, 0.02, 0.01)
MOST_MISSES, CONFIDENCE = 0.1, 0.9
FACTORS = np.arange(8.0, 0.5, -0.05)


@dataclass(frozen=True)
class Look:
    """A moment after a slot.

    Attributes:
        now_s: seconds of tuning so far.
        time: the same over all of the run's.
        stated: the remaining gain as a share of the model's latency, by the shipped factor.
        left: what all later trials brought, as a share of the model's latency.
    """

    now_s: float
    time: float
    stated: float
    left: float


def looks(run: KeptRun) -> Iterator[Look]:
    """Those of one kept run from when every task was tried, and its end, when nothing is left."""
    by_key, limits = searches(run), Limits()
    all_s = sum(float(search.cost_s.sum()) for search in by_key.values())
    final_s = end_s(by_key)
    for moment in dealt(by_key, make_allocator(DEFAULT_ALLOCATOR, np.random.default_rng(0))):
        if every_task_tried(moment.states):
            stated = remaining_gain(moment.states, limits).high_share
            left = 1.0 - final_s / moment.latency_s
            yield Look(moment.now_s, moment.now_s / all_s, stated, left)
    yield Look(all_s, 1.0, 0.0, 0.0)


def stop(seen: Sequence[Look], asked: float, factor: float = GAIN_FACTOR) -> Look:
    """Return the first look whose remaining gain, by ``factor``, is below ``asked``."""
    return next(look for look in seen if look.stated * factor / GAIN_FACTOR < asked)


def most_misses(misses: int, runs: int) -> float:
    """Return the upper end of Clopper and Pearson's one-sided interval for the share of misses."""
    return 1.0 if misses == runs else float(beta.ppf(CONFIDENCE, misses + 1, runs - misses))


def chosen_factor(runs: Sequence[Sequence[Look]]) -> float | None:
    """Return the factor by risk control; None if even the largest has too many misses."""
    chosen = None
    for factor in FACTORS:
        stops = [[stop(seen, asked, factor).left > asked for seen in runs] for asked in SHARES]
        if any(most_misses(sum(missed), len(runs)) > MOST_MISSES for missed in stops):
            break
        chosen = float(factor)
    return chosen


def summary(runs: Sequence[Sequence[Look]], asked: float, factor: float = GAIN_FACTOR) -> str:
    """Return a line on how ``runs`` stop by one share."""
    ends = [stop(seen, asked, factor) for seen in runs]
    misses = sum(end.left > asked for end in ends)
    return (
        f"until {asked:.0%}: after {np.median([end.now_s for end in ends]):.1f} s and "
        f"{np.mean([end.time for end in ends]):.0%} of the time; {misses} of {len(runs)} runs leave more than asked "
        f"(at most {most_misses(misses, len(runs)):.0%} of runs); {np.mean([end.left for end in ends]):.1%} left in "
        f"the mean, {max(end.left for end in ends):.1%} at most"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print how the runs stop, and which factor each folder and all of them choose."""
    parser = argparse.ArgumentParser(prog="python -m research.until", description=__doc__)
    parser.add_argument("folders", type=Path, nargs="*", default=[FOLDER, FOLDER / "confirmed"])
    by_folder = [[*kept_runs(folder)] for folder in parser.parse_args(arguments).folders]
    for day, count in sorted(Counter(run.made for runs in by_folder for run in runs).items()):
        print(f"{count} of {day}")
    seen = [[[*looks(run)] for run in runs] for runs in by_folder]
    every = [one for group in seen for one in group]
    for group in [*seen, every]:
        print(f"\n{len(group)} runs choose {chosen_factor(group)}; with {GAIN_FACTOR}:")
        for asked in SHARES:
            print(summary(group, asked), flush=True)


if __name__ == "__main__":
    main()
