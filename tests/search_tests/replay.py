"""Replay of searchers on made-up kernels: how many trials until a config near the best was measured."""

from __future__ import annotations

import numpy as np

from search.searchers.searcher import Result, SearchContext
from search.searchers.searcher_catalog import make_searcher
from tests.search_tests.synthetic import BENCHES, Bench

NEAR = 1.05


def prior_of(name: str) -> tuple[tuple[object, tuple[Result, ...]], ...]:
    """Some forty results of every other bench of the same space: first guesses and random configs."""
    rng = np.random.default_rng(99)
    results = []
    for other, bench in BENCHES.items():
        if other != name and bench.space.identity == BENCHES[name].space.identity:
            configs = dict.fromkeys([*bench.space.initial, *bench.space.sample(32, rng)])
            results.append((bench.space, tuple((config, bench.measure(config, rng)) for config in configs)))
    return tuple(results)


def trials_to_near(searcher: str, bench: Bench, seed: int, limit: int, prior: tuple = (), batch: int = 8) -> int:  # type: ignore[type-arg]
    """Trials up to and including the first config within 5 % of the true best; 1.5 × ``limit`` if there was none."""
    noise = np.random.default_rng(1000 + seed)
    asked = make_searcher(searcher, SearchContext(bench.space, np.random.default_rng(seed), siblings=prior))
    trials = 0
    while trials < limit:
        configs = asked.ask(batch)
        if not configs:
            break
        for config in configs:
            trials += 1
            if bench.true_s(config) <= NEAR * bench.best_s:
                return trials
        asked.tell([(config, bench.measure(config, noise)) for config in configs])
    return limit * 3 // 2


def typical(searcher: str, names: tuple[str, ...], seeds: int, limit: int, prior: bool = False) -> float:
    """Geometric mean over benches and seeds."""
    logs = [
        np.log(trials_to_near(searcher, BENCHES[name], seed, limit, prior_of(name) if prior else ()))
        for name in names
        for seed in range(seeds)
    ]
    return float(np.exp(np.mean(logs)))
