from __future__ import annotations

import numpy as np

from search.allocators.gradient import Gradient
from tests.search_tests.states import known


def test_gradient_leaves_a_task_that_has_stopped_gaining() -> None:
    falling = known("a", [8e-3 / 1.3**slot for slot in range(5) for _ in range(8)], bound_s=0.0)
    flat = known("b", [2e-3] * 40, bound_s=0.0)
    served = [Gradient(np.random.default_rng(seed)).next([flat, falling]) for seed in range(20)]
    assert served.count("a") >= 18


def test_every_task_has_a_slot_before_the_slope_decides() -> None:
    states = [known("a", [8e-3 / 1.3**slot for slot in range(8)]), known("b", [])]
    gradient = Gradient(np.random.default_rng(0))
    assert gradient.next(states) == "b"
    assert gradient.why("b", states) == "every task is served once first"
    assert "by its slope" in gradient.why("a", states)
