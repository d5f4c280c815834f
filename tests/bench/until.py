"""``python -m tests.bench.until``: is the remaining gain that a run states as often in its interval as it says?

Recorded models are tuned with the default strategies; at a few moments the certificate behind ``--until`` says what
``AHEAD`` more trials of every task would bring, and the recorded courses say what they did bring.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.replay.allocator_replay import rules_of
from autotune.replay.trace import Trace, load_traces
from autotune.replay.trajectories import CourseRules, Courses
from search.allocator_catalog import DEFAULT_ALLOCATOR, make_allocator
from search.remaining import RemainingGain
from tests.bench.packing import TRACES

MODELS = ("squeezenet", "encoder", "resnet50", "vgg19")
MOMENTS_S = (5.0, 10.0, 20.0, 40.0)
AHEAD = 64
"""Recorded tasks have 96 configs: more trials than that many cannot be looked ahead."""


@dataclass(frozen=True)
class Promise:
    """What was stated at a moment and what came, as shares of the model's latency then.

    Attributes:
        model: name of the trace.
        moment_s: seconds of tuning, as asked for.
        expected, low, high: as stated, the interval at 80 %.
        realised: what ``AHEAD`` more trials of every task brought.
    """

    model: str
    moment_s: float
    expected: float
    low: float
    high: float
    realised: float

    @property
    def kept(self) -> bool:
        """Whether the truth is in the interval."""
        return self.low <= self.realised <= self.high


def promises(model: str, traces: Sequence[Trace], seed: int) -> list[Promise]:
    """One tuning of a model; a moment before every task had a slot is moved to when it had."""
    allocator = make_allocator(DEFAULT_ALLOCATOR, np.random.default_rng([seed, 7]))
    certificate = RemainingGain(np.random.default_rng([seed, 1]), ahead=AHEAD)
    courses = Courses(traces, seed, rules_of(DEFAULT_ALLOCATOR, CourseRules()))
    courses.finish()
    places = {trace.task.key: index for index, trace in enumerate(traces)}
    slots = [0] * len(traces)
    states = [courses.state(index, 0) for index in range(len(traces))]
    now_s, left, found = 0.0, list(MOMENTS_S), []
    while left and (key := allocator.next(states)) is not None:
        index = places[key]
        slots[index] += 1
        states[index] = courses.state(index, slots[index])
        spent_s = courses.courses[index].spent_s
        place = min(slots[index], len(spent_s) - 1)
        now_s += spent_s[place] - spent_s[place - 1]
        certificate.observe(states)
        if now_s >= left[0] and min(slots):
            stated = certificate.estimate(states)
            now, later = 0.0, 0.0
            for state, course in zip(states, courses.courses, strict=True):
                if state.best_s is not None:
                    ahead = course.states[-1].latencies_s[: state.trials + AHEAD]
                    now += state.weight * state.best_s
                    later += state.weight * min(latency for latency in ahead if latency is not None)
            facts = stated.to_data()
            found.append(Promise(model, left.pop(0), facts["share"], facts["low"], facts["high"], 1.0 - later / now))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.until", description=__doc__)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--first-seed", type=int, default=0)
    arguments = parser.parse_args()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    found = []
    for model in MODELS:
        traces = load_traces(TRACES / f"{model}.npz").traces
        found += [promise for seed in seeds for promise in promises(model, traces, seed)]
        _print(model, [promise for promise in found if promise.model == model])
    for moment_s in MOMENTS_S:
        _print(f"after {moment_s:.0f} s", [promise for promise in found if promise.moment_s == moment_s])
    _print("all", found)


def _print(name: str, found: Sequence[Promise]) -> None:
    if found:
        kept, expected, realised = (
            float(np.mean([getattr(promise, what) for promise in found])) for what in ("kept", "expected", "realised")
        )
        told = f"{len(found):4d} moments, {kept:.0%} in the 80 % interval, {expected:.1%} expected"
        print(f"{name:12s} {told}, {realised:.1%} realised", flush=True)


if __name__ == "__main__":
    main()
