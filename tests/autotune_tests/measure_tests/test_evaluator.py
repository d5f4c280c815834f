from __future__ import annotations

import numpy as np
import pytest

from autotune.measure.evaluator import EVALUATORS, Adaptive, CoefficientOfVariation, Evaluator, make_evaluator, taken
from schedules.errors import UsageError


def runs_of(
    latency_s: float, seed: int = 0, spread: float = 0.01, spikes: float = 0.02, count: int = 600
) -> list[float]:
    """Runs as this kind of machine gives them: a little noise, and now and then one disturbed upwards."""
    rng = np.random.default_rng(seed)
    runs = latency_s * (1 + spread * np.abs(rng.standard_normal(count)))
    runs[rng.random(count) < spikes] *= 2
    return [float(run) for run in runs]


@pytest.mark.parametrize("name", EVALUATORS)
@pytest.mark.parametrize("incumbent_s", [None, 1e-9, 1e9])
@pytest.mark.parametrize("latency_s", [1e-6, 1e-3, 1.0])
def test_every_evaluator_takes_a_run_and_ends(name: str, incumbent_s: float | None, latency_s: float) -> None:
    evaluator = make_evaluator(name)
    assert isinstance(evaluator, Evaluator)
    series = [latency_s] * 200_000
    assert 1 <= taken(evaluator, series, incumbent_s) <= (100_001 if name == "time" else 500)


def test_unknown_evaluator_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'adaptive'"):
        make_evaluator("adaptiv")


def test_fixed_takes_500_runs_and_time_a_tenth_of_a_second() -> None:
    assert taken(make_evaluator("fixed"), runs_of(1e-3)) == 500
    assert taken(make_evaluator("time"), [1e-3] * 600) == 100
    assert taken(make_evaluator("time"), [1.0] * 600) == 1


def test_the_published_rules_stop_at_the_third_batch_when_runs_are_alike() -> None:
    assert taken(make_evaluator("cv"), runs_of(1e-3)) == 150
    assert taken(make_evaluator("cv-released"), runs_of(1e-3)) == 150


def test_the_published_rules_go_on_while_batches_differ() -> None:
    halving = [run for batch in range(20) for run in [2.0**-batch] * 50]
    assert taken(CoefficientOfVariation(), halving) == 500
    assert taken(CoefficientOfVariation(cumulative=False), halving) == 500


def test_the_released_rule_drops_the_extremes_above_four_batches() -> None:
    outlying = [1.0] * 100 + [3.0] * 50 + [1.0] * 500
    released = taken(CoefficientOfVariation(cumulative=False), outlying)
    assert released == 250  # five batches; without the slowest they are all alike
    assert taken(CoefficientOfVariation(), outlying) > released


class TestAdaptive:
    def test_a_hopeless_candidate_gets_one_run(self) -> None:
        assert taken(Adaptive(), runs_of(2e-3), incumbent_s=1e-3) == 1

    def test_a_slower_candidate_gets_three_at_most(self) -> None:
        assert taken(Adaptive(), runs_of(1.2e-3, spikes=0), incumbent_s=1e-3) <= 3

    def test_one_disturbed_run_does_not_end_a_winner(self) -> None:
        runs = runs_of(0.9e-3, spikes=0)
        runs[1] *= 3
        assert taken(Adaptive(), runs, incumbent_s=1e-3) >= Adaptive().least_runs

    def test_a_steady_candidate_needs_the_least_runs(self) -> None:
        assert taken(Adaptive(), [1e-4] * 600) == Adaptive().least_runs

    def test_a_noisy_candidate_gets_more_runs_but_not_without_end(self) -> None:
        rule = Adaptive()
        counts = [taken(rule, runs_of(1e-5, seed, spread=0.2)) for seed in range(20)]
        assert max(counts) <= rule.most_runs
        assert np.median(counts) > 4 * rule.least_runs

    def test_a_long_kernel_is_capped_by_time(self) -> None:
        assert taken(Adaptive(), runs_of(0.1, spread=0.2)) == 2

    @pytest.mark.parametrize("seed", range(20))
    def test_runs_far_below_the_papers_baseline(self, seed: int) -> None:
        contender = sum(runs_of(1e-3, seed)[: taken(Adaptive(), runs_of(1e-3, seed), 1.01e-3)])
        assert sum(runs_of(1e-3, seed)[:500]) / contender > 3.9


def true_best_found(name: str, seed: int, candidates: int = 40) -> bool:
    """Race candidates one after the other as a session does; whether the winner is within 2 % of the true best."""
    rng = np.random.default_rng(seed)
    truth = 1e-3 * (1 + rng.gamma(1.5, 0.3, candidates))
    evaluator, incumbent, chosen = make_evaluator(name), None, 0
    for index, latency in enumerate(truth):
        runs = runs_of(float(latency), seed * 1000 + index)
        measured = float(np.median(runs[: taken(evaluator, runs, incumbent)]))
        if incumbent is None or measured < incumbent:
            incumbent, chosen = measured, index
    return bool(truth[chosen] <= 1.02 * truth.min())


def test_racing_rarely_loses_the_best() -> None:
    assert np.mean([true_best_found("adaptive", seed) for seed in range(40)]) >= 0.95
