"""``python -m research.until [FOLDER]``: is the remaining gain that a run states right when it stops by it?

The folder, ``research/runs`` if none is given, holds what ``python -m tests.zoo --keep`` left of runs that ended
by themselves and went on to the end of their budget. Each is gone through slot by slot, and what the certificate
says after each is compared with what came of the model until the end: the weighted sum over its tasks of the fastest
config tried, by the timing of the finalists in turn. So a run is judged at the moment when it would stop, for several
shares asked, by the expected gain (``mean``) and by the upper end of its interval (``high``, as ``--until`` does).
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from research.kept_runs import FOLDER, KeptRun, KeptTask, kept_runs
from search.allocators.allocation import TaskState
from search.allocators.remaining import RemainingGain
from search.allocators.stopping import Limits, credible_bound_s, every_task_tried

SHARES = (0.05, 0.03, 0.02, 0.01)
RULES = {"mean": "share", "high": "high"}
"""By what a run may stop → the field of the statement."""


@dataclass(frozen=True)
class Statement:
    """What was stated when a run would stop and what came, as shares of the model's latency then.

    Attributes:
        model: its name.
        rule: by which it stops.
        asked: what the run was to end at.
        time: the moment over the whole time of tuning.
        now_s: seconds of tuning until it.
        expected, low, high: as stated, the interval at 80 %.
        realised: what all later trials brought.
    """

    model: str
    rule: str
    asked: float
    time: float
    now_s: float
    expected: float
    low: float
    high: float
    realised: float


def statements(run: KeptRun) -> Iterator[Statement]:
    """Those of one kept run; nothing is stated before every task was tried."""
    certificate = RemainingGain(np.random.default_rng(0), Limits())
    asked = {rule: sorted(SHARES, reverse=True) for rule in RULES}
    states = {key: _state(key, task, 0, False) for key, task in run.tasks.items()}
    end_s = run.slots[-1].elapsed_s
    for slot in run.slots:
        states[slot.key] = _state(slot.key, run.tasks[slot.key], slot.trials, slot.exhausted)
        certificate.observe([*states.values()])
        if not every_task_tried([*states.values()]):
            continue
        facts = certificate.estimate([*states.values()]).to_data()
        for rule, field in RULES.items():
            while asked[rule] and facts[field] < asked[rule][0]:
                stated = facts["share"], facts["low"], facts["high"]
                left = _left(run.tasks, {key: state.trials for key, state in states.items()})
                now_s = slot.elapsed_s
                yield Statement(run.model, rule, asked[rule].pop(0), now_s / end_s, now_s, *stated, left)


def _state(key: str, task: KeptTask, count: int, exhausted: bool) -> TaskState:
    tried = tuple(task.latencies_s[:count])
    bound_s = credible_bound_s(task.bound_s, tried)
    return TaskState(key, task.template, task.weight, 0, bound_s, tried, (0.0,) * len(tried), exhausted)


def _left(tasks: Mapping[str, KeptTask], counts: Mapping[str, int]) -> float:
    """What all trials after the first ``counts`` brought, as a share of the weighted sum of the tasks' best.

    Tasks without a valid trial by then are left out.
    """
    now_s = {key: _best_s(tasks[key], count) for key, count in counts.items() if count}
    valid = [key for key, best_s in now_s.items() if np.isfinite(best_s)]
    end_s = sum(tasks[key].weight * _best_s(tasks[key], len(tasks[key].latencies_s)) for key in valid)
    return 1.0 - end_s / sum(tasks[key].weight * now_s[key] for key in valid)


def _best_s(task: KeptTask, count: int) -> float:
    """What the best of the first ``count`` trials of a task takes.

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
    best_s = float(finals_s[:count].min())
    if np.isfinite(best_s):
        return best_s
    least_s = float(finals_s.min())
    seen = float(seen_s[:count].min())
    return max(seen, least_s) if np.isfinite(least_s) else seen


def main() -> None:
    """Print a line for every rule and share."""
    parser = argparse.ArgumentParser(prog="python -m research.until", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    runs = list(kept_runs(parser.parse_args().folder))
    for made, count in sorted(Counter(run.made for run in runs).items()):
        print(f"{count} of {made}")
    found = [one for run in runs for one in statements(run)]
    for rule in RULES:
        for share in SHARES:
            print(summary([one for one in found if (one.rule, one.asked) == (rule, share)], len(runs)), flush=True)


def summary(found: Sequence[Statement], runs: int) -> str:
    """A line on statements of one rule and share."""
    if not found:
        return "no run stops"
    realised = np.array([one.realised for one in found])
    low, high = (np.array([getattr(one, edge) for one in found]) for edge in ("low", "high"))
    more = float(np.mean(realised > found[0].asked))
    return (
        f"until {found[0].asked:.0%} by {found[0].rule}: {len(found)} of {runs} runs stop, after "
        f"{np.median([one.now_s for one in found]):.1f} s and {np.mean([one.time for one in found]):.0%} of the time; "
        f"{np.mean([one.expected for one in found]):.1%} expected, {realised.mean():.1%} realised (most "
        f"{realised.max():.1%}); {np.mean((low <= realised) & (realised <= high)):.0%} in the 80 % interval, "
        f"{np.mean(realised < low):.0%} below, {np.mean(realised > high):.0%} above; {more:.0%} left more than asked"
    )


if __name__ == "__main__":
    main()
