"""Searchers, evaluators and cost models compared on one recorded task.

- A searcher is judged by the trials and seconds until a config near the best was measured, for several meanings of
  "near". Every searcher is given the same first guesses, or none; they count as its first trials.
- An evaluator is judged by the run time of one tuning and by the config it chooses: ``candidates`` configs, drawn by
  the seed, are timed one after the other. Where the evaluator races, the finalists are timed once more in turn, as
  ``tune run`` does before it ships, and that time is charged too.
- A cost model is fitted on some configs and judged on the others.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autotune.contrib.replay.recorded_runs import EVALUATOR, ReplayBench, SearchRules, context_of, run_slot
from autotune.contrib.replay.trace import Trace
from autotune.measure.evaluator import FINAL_EVALUATOR, make_evaluator
from autotune.tuning.loop import CLOSE, FINALISTS
from costmodels.cost_model_catalog import make_cost_model
from costmodels.metrics import Quality, assess
from costmodels.surrogate import bend
from schedules.config import Config
from search.searchers.searcher import Result, Searcher, Siblings
from search.searchers.searcher_catalog import make_searcher

WITHIN = (0.02, 0.05)
"""A chosen config slower than the best by more than this share is a wrong choice."""

HELD_OUT = 512
"""Most configs that a cost model is judged on."""

LEAST_HELD_OUT = 20
"""Fewest configs that a cost model is judged on."""

CANDIDATES = 128
"""Configs of which an evaluator chooses one."""

FITTED_RUNS = 8
"""Runs of a config whose median a cost model is fitted on, as a search would see it."""


@dataclass(frozen=True)
class SearchOutcome:
    """One search on one trace.

    Attributes:
        trials: for each factor, up to and including the first config within it; 1.5 × the limit if there was none.
        tuning_s: what they cost, builds and runs, as recorded; all of the search's where there was none.
        reached: for each factor, whether there was one.
        thinking_s: seconds that the searcher took here.
        asked: trials that were run.
    """

    trials: tuple[int, ...]
    tuning_s: tuple[float, ...]
    reached: tuple[bool, ...]
    thinking_s: float
    asked: int


@dataclass(frozen=True)
class EvaluatorOutcome:
    """One tuning with an evaluator.

    Attributes:
        run_s: seconds of timed runs, controls and finalists included.
        excess: how much slower the chosen config truly is than the best of the candidates, as a share.
    """

    run_s: float
    excess: float


@dataclass(frozen=True)
class CalibrationOutcome:
    """One fit of a cost model.

    Attributes:
        quality: on configs that were not fitted.
        fit_s, predict_s: seconds here.
    """

    quality: Quality
    fit_s: float
    predict_s: float


def search(
    trace: Trace,
    seed: int,
    rules: SearchRules,
    near: Sequence[float],
    siblings: Siblings = (),
    guesses: Sequence[Config] = (),
) -> SearchOutcome:
    """Search until a config within every factor of ``near`` of the best was measured, or all trials are used up.

    Args:
        guesses: what is measured and told first. The searcher itself knows no initial configs.
    """
    bench = ReplayBench(trace, make_evaluator(EVALUATOR), np.random.default_rng([seed, 1]))
    context = context_of(trace, np.random.default_rng([seed, 2]))
    context = replace(context, space=replace(trace.space, initial=()), siblings=siblings)
    began = time.perf_counter()
    searcher: Searcher = _Guessing(make_searcher(rules.searcher, context), guesses)
    thinking_s = time.perf_counter() - began
    reached: dict[float, tuple[int, float]] = {}
    trials, spent_s = 0, 0.0
    limit = min(rules.trials, len(trace.true_s))
    while trials < limit and len(reached) < len(set(near)):
        results, slot_thinking_s = run_slot(searcher, bench, min(rules.batch, limit - trials))
        thinking_s += slot_thinking_s
        if not results:
            break
        for config, measured in results:
            trials += 1
            spent_s += measured.compile_s + measured.run_s
            true_s = trace.true_s[trace.space.index(config)]
            for factor in near:
                if true_s <= factor * trace.best_s:
                    reached.setdefault(factor, (trials, spent_s))
    ends = [reached.get(factor, (3 * rules.trials // 2, spent_s)) for factor in near]
    return SearchOutcome(
        tuple(count for count, _ in ends),
        tuple(seconds for _, seconds in ends),
        tuple(factor in reached for factor in near),
        thinking_s,
        trials,
    )


class _Guessing:
    """A searcher that asks for ``guesses`` before it asks ``own``: all rivals begin with the same configs."""

    def __init__(self, own: Searcher, guesses: Sequence[Config]) -> None:
        self._own, self._guesses = own, list(guesses)

    def ask(self, count: int) -> list[Config]:
        if not self._guesses:
            return self._own.ask(count)
        asked, self._guesses = self._guesses[:count], self._guesses[count:]
        return asked

    def tell(self, results: Sequence[Result]) -> None:
        self._own.tell(results)


def sibling_results(trace: Trace, others: Sequence[Trace], rng: np.random.Generator, count: int = 32) -> Siblings:
    """``count`` results of every other task of the same template, as a log would hold them.

    The initial configs come first, then random ones.
    """
    siblings = []
    for other in others:
        if other.task.template != trace.task.template or other.task.key == trace.task.key:
            continue
        configs = dict.fromkeys([*other.space.initial, *other.space.sample(count, rng)])
        bench = ReplayBench(other, make_evaluator("adaptive"), rng)
        siblings.append((other.space, tuple((config, bench.measure(config)) for config in list(configs)[:count])))
    return siblings


def choose_best(trace: Trace, evaluator: str, seed: int) -> EvaluatorOutcome:
    """Time ``CANDIDATES`` configs with ``evaluator`` and choose one."""
    rule = make_evaluator(evaluator)
    bench = ReplayBench(trace, rule, np.random.default_rng([seed, 1]))
    order = np.random.default_rng([seed, 3]).permutation(np.flatnonzero(trace.errors < 0))[:CANDIDATES]
    estimates = {int(index): bench.measure(trace.space.config(trace.space.rows[index])).latency_s for index in order}
    ranked = sorted(estimates, key=estimates.__getitem__)
    if rule.races:
        finalists = [index for index in ranked[:FINALISTS] if estimates[index] <= CLOSE * estimates[ranked[0]]]
        if len(finalists) > 1:
            again = bench.ranked(finalists, FINAL_EVALUATOR)
            ranked = sorted(again, key=again.__getitem__)
    chosen_s, best_s = trace.true_s[ranked[0]], float(np.min(trace.true_s[order]))
    return EvaluatorOutcome(bench.run_s, float(chosen_s / best_s - 1.0))


def calibrate(trace: Trace, cost_model: str, seed: int, count: int) -> CalibrationOutcome | None:
    """Fit ``cost_model`` on ``count`` random valid configs; None where the trace has too few to judge."""
    valid = np.flatnonzero(trace.errors < 0)
    if len(valid) < count + LEAST_HELD_OUT:
        return None
    rng = np.random.default_rng([seed, 4])
    order = rng.permutation(valid)
    fitted, held = order[:count], order[count : count + HELD_OUT]
    features = trace.space.row_features(trace.space.rows)
    passes = rng.integers(trace.runs_s.shape[1], size=len(order))
    # One pass of each config, as a search would see it. Slow configs were recorded in one pass only.
    taken = [trace.series(index, first)[0][:FITTED_RUNS] for index, first in zip(order, passes, strict=True)]
    scores = bend(-np.log([np.median(runs) for runs in taken]))
    model = make_cost_model(cost_model, seed)
    began = time.perf_counter()
    model.fit(features[fitted], scores[:count])
    between = time.perf_counter()
    prediction = model.predict(features[held])
    ended = time.perf_counter()
    return CalibrationOutcome(assess(prediction, scores[count : count + len(held)]), between - began, ended - between)
