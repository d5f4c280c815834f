"""``python -m tests.bench.until [FOLDER]``: is the remaining gain that a run states right when it stops by it?

The folder, ``tests/bench/runs`` if none is given, holds what ``python -m tests.zoo --keep`` left of runs that ended
by themselves and went on to the end of their budget. Each is gone through slot by slot, and what the certificate
says after each is compared with what came of the model until the end: the weighted sum over its tasks of the fastest
config tried, by its last timing, in turn with the other finalists where it was one. So a run is judged at the moment
when it would stop, for several shares asked, by the expected gain (``mean``) and by the upper end of its interval
(``high``, as ``--until`` does).
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from search.allocators.allocation import TaskState
from search.allocators.remaining import RemainingGain
from tests.bench.kept_runs import FOLDER, KeptRun, KeptTask, kept_runs

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
    """Those of one kept run; nothing is stated before every task had a slot."""
    certificate = RemainingGain(np.random.default_rng(0))
    asked = {rule: sorted(SHARES, reverse=True) for rule in RULES}
    states = {key: _state(key, task, 0, False) for key, task in run.tasks.items()}
    end_s = run.slots[-1].elapsed_s
    final_s = _model_s(run.tasks, {key: len(task.latencies_s) for key, task in run.tasks.items()})
    for slot in run.slots:
        states[slot.key] = _state(slot.key, run.tasks[slot.key], slot.trials, slot.exhausted)
        certificate.observe([*states.values()])
        if any(not state.trials and not state.exhausted for state in states.values()):
            continue
        facts = certificate.estimate([*states.values()]).to_data()
        left = 1.0 - final_s / _model_s(run.tasks, {key: state.trials for key, state in states.items()})
        for rule, field in RULES.items():
            while asked[rule] and facts[field] < asked[rule][0]:
                stated = facts["share"], facts["low"], facts["high"]
                now_s = slot.elapsed_s
                yield Statement(run.model, rule, asked[rule].pop(0), now_s / end_s, now_s, *stated, left)


def _state(key: str, task: KeptTask, count: int, exhausted: bool) -> TaskState:
    tried = tuple(task.latencies_s[:count])
    return TaskState(key, task.template, task.weight, 0, task.bound_s, tried, (0.0,) * len(tried), exhausted)


def _model_s(tasks: Mapping[str, KeptTask], counts: Mapping[str, int]) -> float:
    """The weighted sum of the tasks' best after so many trials; those without one are left out.

    Finalists of both runs were timed in turn, so the best of them stands for its task from when it was tried.
    """
    return sum(
        task.weight * min(np.inf if true_s is None else true_s for true_s in task.true_s[: counts[key]])
        for key, task in tasks.items()
        if min(counts.get(key, 0), len(task.true_s))
    )


def main() -> None:
    """Print a line for every rule and share."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.until", description=__doc__)
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
