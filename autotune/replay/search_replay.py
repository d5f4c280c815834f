"""Searchers compared on traces: trials, seconds and quality until a config near the best was measured."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.measure.evaluator import make_evaluator
from autotune.replay.recorded_runs import ReplayBench
from autotune.replay.trace import Trace
from schedules.space import Space
from search.searcher import Result, SearchContext
from search.searcher_catalog import make_searcher

Prior = tuple[tuple[Space, tuple[Result, ...]], ...]


@dataclass(frozen=True)
class SearchRules:
    """What every searcher of a comparison gets.

    Attributes:
        trials: most trials of one search.
        batch: configs of a slot; the first slot of a task has ``first``.
        near: a config within this factor of the trace's best counts as found.
        evaluator: how candidates are timed.
        cost_model: of the searchers that use one.
    """

    trials: int = 192
    batch: int = 8
    first: int = 8
    near: float = 1.05
    evaluator: str = "adaptive"
    cost_model: str = "boosted"


@dataclass(frozen=True)
class SearchOutcome:
    """One search on one trace.

    Attributes:
        trials: up to and including the first config near the best; 1.5 × the limit if there was none.
        tuning_s: what they cost, builds and runs, as recorded.
        found: whether there was one.
        thinking_s: seconds that ask and tell took here.
        asked: trials that were run.
    """

    trials: int
    tuning_s: float
    found: bool
    thinking_s: float
    asked: int


def search(trace: Trace, searcher: str, seed: int, rules: SearchRules, prior: Prior = ()) -> SearchOutcome:
    """Run ``searcher`` until it has measured a config near the best, or has had all its trials."""
    bench = ReplayBench(trace, make_evaluator(rules.evaluator), np.random.default_rng([seed, 1]))
    context = SearchContext(trace.space, np.random.default_rng([seed, 2]), rules.cost_model, prior)
    began = time.perf_counter()
    asked = make_searcher(searcher, context)
    thinking_s = time.perf_counter() - began
    trials, spent_s = 0, 0.0
    limit = min(rules.trials, len(trace.true_s))
    while trials < limit:
        began = time.perf_counter()
        configs = asked.ask(min(rules.batch if trials else rules.first, limit - trials))
        thinking_s += time.perf_counter() - began
        if not configs:
            break
        results = []
        for config in configs:
            measured = bench.measure(config)
            spent_s += measured.compile_s + measured.run_s
            trials += 1
            results.append((config, measured))
            if trace.true_s[trace.space.index(config)] <= rules.near * trace.best_s:
                return SearchOutcome(trials, spent_s, True, thinking_s, trials)
        began = time.perf_counter()
        asked.tell(results)
        thinking_s += time.perf_counter() - began
    return SearchOutcome(3 * rules.trials // 2, spent_s, False, thinking_s, trials)


def prior_of(trace: Trace, others: Sequence[Trace], rng: np.random.Generator, count: int = 32) -> Prior:
    """Results of other tasks of the same template, as a log would hold them: first guesses and some random ones."""
    found = []
    for other in others:
        if other.task.template != trace.task.template or other.task.key == trace.task.key:
            continue
        configs = dict.fromkeys([*other.space.initial, *other.space.sample(count, rng)])
        bench = ReplayBench(other, make_evaluator("adaptive"), rng)
        found.append((other.space, tuple((config, bench.measure(config)) for config in list(configs)[:count])))
    return tuple(found)
