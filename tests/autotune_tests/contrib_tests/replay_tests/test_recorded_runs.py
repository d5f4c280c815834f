from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotune.contrib.replay.recorded_runs import BUILDERS, ReplayBench, run_slot
from autotune.measure.evaluator import make_evaluator
from search.searchers.random_search import RandomSearch
from search.searchers.searcher import SearchContext
from tests.autotune_tests.contrib_tests.replay_tests.made_up import trace


def test_equal_code_is_timed_once_and_failures_are_measurements() -> None:
    recorded = trace()
    bench = ReplayBench(recorded, make_evaluator("fixed"), np.random.default_rng(0))
    configs = [recorded.space.config(row) for row in recorded.space.rows]
    first, second, broken = bench.measure(configs[0]), bench.measure(configs[1]), bench.measure(configs[5])
    assert second.latencies_s == first.latencies_s
    assert second.run_s == 0.0
    assert bench.run_s == pytest.approx(500 * recorded.runs_s[0].mean(), rel=0.02)
    assert first.run_s == pytest.approx(500 * recorded.runs_s[0].mean() + 1e-3, rel=0.02)
    assert broken.error == "timeout"
    assert broken.compile_s == recorded.compile_s[5] / BUILDERS


def test_a_slot_asks_measures_and_tells() -> None:
    recorded = trace()
    searcher = RandomSearch(SearchContext(recorded.space, np.random.default_rng(0)))
    bench = ReplayBench(recorded, make_evaluator("adaptive"), np.random.default_rng(0))
    results, thinking_s = run_slot(searcher, bench, 8)
    more, _ = run_slot(searcher, bench, 1000)
    assert len(results) == 8
    assert thinking_s > 0
    assert len({config for config, _ in results + more}) == len(results + more) == len(recorded.true_s)


def test_a_config_that_is_faster_than_the_best_has_to_be_so_again() -> None:
    recorded = trace()
    fastest, slow = int(np.nanargmin(recorded.true_s)), int(np.nanargmax(recorded.true_s))
    lucky = recorded.runs_s.copy()
    lucky[slow, 0] /= 10.0
    recorded = replace(recorded, runs_s=lucky)
    bench = ReplayBench(recorded, make_evaluator("adaptive"), np.random.default_rng(0))
    bench._starts[:] = 0
    best = bench.measure(recorded.space.config(recorded.space.rows[fastest]))
    believed = bench.measure(recorded.space.config(recorded.space.rows[slow]))
    assert recorded.true_s[slow] > 1.3 * recorded.true_s[fastest]
    assert believed.latency_s > 1.1 * best.latency_s, "the machine's speed differs by 10 % from pass to pass"
