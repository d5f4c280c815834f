from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from search.allocators.dynatune import DynaTune
from tests.search_tests.states import known


@pytest.mark.parametrize("released", [False, True])
def test_every_task_gets_a_valid_config_first(released: bool) -> None:
    states = [known("a", [2e-3] * 8), known("b", [None] * 8), known("c", [])]
    dynatune = DynaTune(np.random.default_rng(0), released=released)
    assert dynatune.next(states) == "b"
    assert dynatune.next([states[0], replace(states[1], exhausted=True), states[2]]) == "c"


def test_the_paper_follows_latency_and_the_released_rule_follows_gflops() -> None:
    slow = known("slow", [9e-3, 8e-3, 7e-3, 6e-3, 5e-3, 4e-3, 3.5e-3, 3e-3])
    fast = known("fast", [1.02e-4, 1.01e-4, 1e-4, 1e-4, 1e-4, 1e-4, 1e-4, 1e-4])
    assert DynaTune(np.random.default_rng(0)).next([slow, fast]) == "slow"
    assert DynaTune(np.random.default_rng(0), released=True).next([slow, fast]) == "fast"
