"""``python -m tests.bench.until``: is the remaining gain that a run states right when it stops by it?

Recorded models are tuned with the default strategies. At a few moments, and where ``--until`` would stop, the estimate
says what ``AHEAD`` more trials of every task would bring, and the recorded trajectories say what they did bring, by the
true latencies of what was tried: the least of many noisy timings falls for ever, and finalists are timed again. A run
may stop by the expected gain (``mean``) or by the upper end of its interval (``high``).

The model ``tasks`` is made of the tasks that were recorded one by one, each as often as makes their shares of its time
alike. No constant of the gain model was fitted to it.
"""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from autotune.replay.allocator_replay import Moment, moments, pace_of
from autotune.replay.recorded_runs import SearchRules
from autotune.replay.trace import Trace, load_traces
from autotune.replay.trajectories import Trajectories, Trajectory
from costmodels.cost_model import Floats
from search.allocators.allocator_catalog import DEFAULT_ALLOCATOR, make_allocator
from search.allocators.remaining import RemainingGain
from tests.bench.packing import TRACES

MODELS = {
    **{name: (name,) for name in ("squeezenet", "encoder", "resnet50", "vgg19")},
    "tasks": ("conv1x1", "conv3x3", "conv3x3-fire", "conv7x7", "depthwise", "dense", "batch_matmul", "generic"),
}
"""Model → trace files whose tasks it has."""

MOMENTS_S = (5.0, 10.0, 20.0, 40.0)
SHARES = (0.05, 0.03, 0.02, 0.01)
RULES = {"mean": "share", "high": "high"}
"""By what a run may stop → the field of the statement."""

AHEAD = 64
"""Trials ahead: a recorded task has 96 configs, and some are tried before the first moment."""


@dataclass(frozen=True)
class Statement:
    """What was stated at a moment and what came, as shares of the model's latency then.

    Attributes:
        model: name of the trace.
        when: the moment, for people: ``after 5 s``, or ``until 5% by mean``.
        asked: what the run was to end at; infinite at a moment that does not depend on it.
        now_s: seconds of tuning until it.
        expected, low, high: as stated, the interval at 80 %.
        realised: what ``AHEAD`` more trials of every task brought.
    """

    model: str
    when: str
    asked: float
    now_s: float
    expected: float
    low: float
    high: float
    realised: float

    @property
    def is_right(self) -> bool:
        """Whether the truth is in the interval."""
        return self.low <= self.realised <= self.high

    @property
    def leaves_more(self) -> bool:
        """Whether more was left than asked."""
        return self.realised > self.asked


def statements(model: str, traces: Sequence[Trace], seed: int) -> Iterator[Statement]:
    """One tuning of a model; nothing is stated before every task had a slot."""
    certificate = RemainingGain(np.random.default_rng([seed, 1]), ahead=AHEAD)
    trajectories = Trajectories(traces, seed, SearchRules(pace=pace_of(DEFAULT_ALLOCATOR)))
    trajectories.finish()
    bests = [_bests(task) for task in trajectories.tasks]
    times, shares = list(MOMENTS_S), {rule: list(SHARES) for rule in RULES}
    for moment in moments(trajectories, make_allocator(DEFAULT_ALLOCATOR, np.random.default_rng([seed, 7]))):
        certificate.observe(moment.states)
        if not min(moment.slots):
            continue
        facts = certificate.estimate(moment.states).to_data()
        stated = (moment.now_s, facts["share"], facts["low"], facts["high"], _realised(moment, bests))
        if times and moment.now_s >= times[0]:
            yield Statement(model, f"after {times.pop(0):.0f} s", np.inf, *stated)
        for rule, field in RULES.items():
            while shares[rule] and facts[field] < shares[rule][0]:
                asked = shares[rule].pop(0)
                yield Statement(model, f"until {asked:.0%} by {rule}", asked, *stated)
        if not times and not any(shares.values()):
            return


def _realised(moment: Moment, bests: Sequence[Floats]) -> float:
    """What ``AHEAD`` more trials of every task brought.

    Args:
        bests: for every task, the least true latency of what was tried, by number of trials.
    """
    now, later = 0.0, 0.0
    for state, best in zip(moment.states, bests, strict=True):
        if state.best_s is not None:
            now += state.weight * best[state.trials - 1]
            later += state.weight * best[min(state.trials + AHEAD, len(best)) - 1]
    return 1.0 - later / now


def _bests(task: Trajectory) -> Floats:
    """(trials,) least true latency of what was tried so far."""
    true_s = [task.trace.true_s[task.trace.space.index(config)] for config, _ in task.results]
    return np.minimum.accumulate(np.nan_to_num(true_s, nan=np.inf))


def _traces(model: str) -> list[Trace]:
    found = [trace for name in MODELS[model] for trace in load_traces(TRACES / f"{name}.npz").traces]
    if len(MODELS[model]) == 1:
        return found
    longest_s = max(trace.best_s for trace in found)
    return [replace(each, task=replace(each.task, weight=round(longest_s / each.best_s))) for each in found]


def _of_model(job: tuple[str, int]) -> list[Statement]:
    model, seed = job
    return list(statements(model, _traces(model), seed))


def main() -> None:
    """Print one line for every model, every moment, and every model at every end."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.until", description=__doc__)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    models = arguments.models.split(",")
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        jobs = [(model, seed) for model in models for seed in seeds]
        found = list(chain.from_iterable(pool.imap(_of_model, jobs)))
    for model in models:
        _print(f"{model}, after", [one for one in found if one.model == model and one.when.startswith("after")])
    for when in sorted({one.when for one in found}):
        _print(when, [one for one in found if one.when == when])
        for model in models:
            _print(f"  {model}", [one for one in found if (one.when, one.model) == (when, model)])


def _print(name: str, found: Sequence[Statement]) -> None:
    if found:
        right, more, expected, realised = (
            float(np.mean([getattr(one, what) for one in found]))
            for what in ("is_right", "leaves_more", "expected", "realised")
        )
        low, high = (float(np.mean([edge(one) for one in found])) for edge in (_is_below, _is_above))
        now_s, middle = (float(np.median([getattr(one, what) for one in found])) for what in ("now_s", "realised"))
        print(
            f"{name:22s} {len(found):4d} statements, {right:4.0%} in the 80 % interval, {low:4.0%} below, {high:4.0%} "
            f"above it; {more:4.0%} left more than asked; {expected:5.1%} expected, {realised:5.1%} realised (median "
            f"{middle:.1%}), {now_s:.1f} s",
            flush=True,
        )


def _is_below(one: Statement) -> bool:
    return one.realised < one.low


def _is_above(one: Statement) -> bool:
    return one.realised > one.high


if __name__ == "__main__":
    main()
