"""Evaluators compared on traces: run time spent, and how often the chosen config is not among the best.

One tuning of a task: ``candidates`` configs, drawn by the seed, are timed one after the other; the fastest by its own
evaluator is chosen. Where the rule races, the finalists are timed once more in turn, as a run of ``tune`` does before
it ships, and their time is charged too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.measure.evaluator import FINAL_EVALUATOR, make_evaluator
from autotune.replay.recorded_runs import ReplayBench
from autotune.replay.trace import Trace
from autotune.tuning.loop import CLOSE, FINALISTS

WITHIN = (0.02, 0.05)
"""A chosen config slower than the best by more than this is a wrong choice."""


@dataclass(frozen=True)
class EvaluatorOutcome:
    """One tuning.

    Attributes:
        run_s: seconds of timed runs, controls and finalists included.
        runs: timed runs of candidates.
        excess: how much slower the chosen config truly is than the best of the candidates, as a share.
    """

    run_s: float
    runs: int
    excess: float


def choose_best(trace: Trace, evaluator: str, seed: int, candidates: int = 128) -> EvaluatorOutcome:
    """Time ``candidates`` configs with ``evaluator`` and choose one."""
    rule = make_evaluator(evaluator)
    bench = ReplayBench(trace, rule, np.random.default_rng([seed, 1]))
    order = np.random.default_rng([seed, 3]).permutation(np.flatnonzero(trace.errors < 0))[:candidates]
    estimates = {int(index): bench.measure(trace.space.config(trace.space.rows[index])).latency_s for index in order}
    ranked = sorted(estimates, key=estimates.__getitem__)
    if rule.races:
        finalists = [index for index in ranked[:FINALISTS] if estimates[index] <= CLOSE * estimates[ranked[0]]]
        if len(finalists) > 1:
            again = bench.ranked(finalists, FINAL_EVALUATOR)
            ranked = sorted(again, key=again.__getitem__)
    chosen_s, best_s = trace.true_s[ranked[0]], float(np.min(trace.true_s[order]))
    return EvaluatorOutcome(bench.run_s, bench.runs, float(chosen_s / best_s - 1.0))
