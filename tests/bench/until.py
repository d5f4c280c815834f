"""``python -m tests.bench.until``: how often does the remaining gain that a run states lie in the stated interval?

Recorded models are tuned with the default strategies. At a few moments, and where ``--until`` would stop, the estimate
says what ``AHEAD`` more trials of every task would bring, and the recorded trajectories say what they did bring.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.replay.allocator_replay import Moment, moments, pace_of
from autotune.replay.recorded_runs import SearchRules
from autotune.replay.trace import Trace, load_traces
from autotune.replay.trajectories import Trajectories
from search.allocators.allocator_catalog import DEFAULT_ALLOCATOR, make_allocator
from search.allocators.remaining import RemainingGain
from tests.bench.packing import TRACES

MODELS = ("squeezenet", "encoder", "resnet50", "vgg19")
MOMENTS_S = (5.0, 10.0, 20.0, 40.0)
SHARES = (0.05, 0.03, 0.02, 0.01)

AHEAD = 64
"""Trials ahead: a recorded task has 96 configs, and some are tried before the first moment."""


@dataclass(frozen=True)
class Statement:
    """What was stated at a moment and what came, as shares of the model's latency then.

    Attributes:
        model: name of the trace.
        when: the moment, for people.
        now_s: seconds of tuning until it.
        expected, low, high: as stated, the interval at 80 %.
        realised: what ``AHEAD`` more trials of every task brought.
    """

    model: str
    when: str
    now_s: float
    expected: float
    low: float
    high: float
    realised: float

    @property
    def is_right(self) -> bool:
        """Whether the truth is in the interval."""
        return self.low <= self.realised <= self.high


def statements(model: str, traces: Sequence[Trace], seed: int) -> Iterator[Statement]:
    """One tuning of a model; nothing is stated before every task had a slot."""
    certificate = RemainingGain(np.random.default_rng([seed, 1]), ahead=AHEAD)
    trajectories = Trajectories(traces, seed, SearchRules(pace=pace_of(DEFAULT_ALLOCATOR)))
    trajectories.finish()
    times, shares = list(MOMENTS_S), list(SHARES)
    for moment in moments(trajectories, make_allocator(DEFAULT_ALLOCATOR, np.random.default_rng([seed, 7]))):
        certificate.observe(moment.states)
        if not min(moment.slots):
            continue
        facts = certificate.estimate(moment.states).to_data()
        stated = (moment.now_s, facts["share"], facts["low"], facts["high"], _realised(moment, trajectories))
        if times and moment.now_s >= times[0]:
            yield Statement(model, f"after {times.pop(0):.0f} s", *stated)
        while shares and facts["share"] < shares[0]:
            yield Statement(model, f"until {shares.pop(0):.0%}", *stated)
        if not times and not shares:
            return


def _realised(moment: Moment, trajectories: Trajectories) -> float:
    now, later = 0.0, 0.0
    for state, task in zip(moment.states, trajectories.tasks, strict=True):
        if state.best_s is not None:
            ahead = task.states[-1].latencies_s[: state.trials + AHEAD]
            now += state.weight * state.best_s
            later += state.weight * min(latency for latency in ahead if latency is not None)
    return 1.0 - later / now


def main() -> None:
    """Print one line for every model and every moment."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.until", description=__doc__)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--first-seed", type=int, default=0)
    arguments = parser.parse_args()
    found: list[Statement] = []
    for model in MODELS:
        traces = load_traces(TRACES / f"{model}.npz").traces
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
            found += statements(model, traces, seed)
        _print(f"{model}, after", [one for one in found if one.model == model and one.when.startswith("after")])
    for when in dict.fromkeys(one.when for one in found):
        _print(when, [one for one in found if one.when == when])


def _print(name: str, found: Sequence[Statement]) -> None:
    if found:
        right, expected, realised = (
            float(np.mean([getattr(one, what) for one in found])) for what in ("is_right", "expected", "realised")
        )
        now_s = float(np.median([one.now_s for one in found]))
        print(
            f"{name:18s} {len(found):4d} statements, {right:4.0%} in the 80 % interval, {expected:.1%} expected, "
            f"{realised:.1%} realised, {now_s:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
